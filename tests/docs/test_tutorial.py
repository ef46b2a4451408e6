"""The tutorial, done as a reader would do it."""

from pathlib import Path

from .sessions import ROOT, play


def test_tutorial_prints_what_the_page_shows(tmp_path: Path) -> None:
    """Writing the tutorial's files and typing its commands gives the output it shows, deaths included."""
    assert play(ROOT / "docs" / "tutorial.md", tmp_path) >= 15
