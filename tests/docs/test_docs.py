"""The documentation points at things that exist, and leaves none of the important ones out."""

import re
from pathlib import Path

import pytest

from holdfast import errors

from .sessions import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
UNITS = sorted(
    path.name.removesuffix(".py") for path in (ROOT / "src" / "holdfast").glob("[a-z]*") if path.suffix != ".typed"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page names a file that is there."""
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_map_has_every_module() -> None:
    """CONTRIBUTING.md says of each module and folder of the package where it belongs."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    words = set(re.findall(r"[\w]+", text[text.index("## The map") : text.index("## To add an event")]))
    assert [unit for unit in UNITS if unit not in words] == []


def test_readme_has_every_exit_status() -> None:
    """The table of exit statuses in the README lists exactly those that errors.py defines."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| (\d+) \|", text[text.index("## Exit statuses") :], re.MULTILINE)
    defined = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert {int(status) for status in shown} == defined
