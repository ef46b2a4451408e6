"""The recovery guide, done as a reader would do it: everything is broken as the page says."""

from pathlib import Path

from .sessions import ROOT, play


def test_the_guide_prints_what_the_page_shows(tmp_path: Path) -> None:
    """Breaking the book by the commands shown, and typing what the page says, gives the output it shows."""
    assert play(ROOT / "docs" / "recovery.md", tmp_path) >= 15
