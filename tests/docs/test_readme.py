"""The README's example does what the README says, word for word where words do not vary."""

from pathlib import Path

from .sessions import ROOT, play


def test_readme_example_prints_what_the_page_shows(tmp_path: Path) -> None:
    """Running the example by the commands shown gives the output shown."""
    assert play(ROOT / "README.md", tmp_path) >= 4
