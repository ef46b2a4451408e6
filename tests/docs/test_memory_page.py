"""The page on memory, done as a reader would do it."""

from pathlib import Path

from .sessions import ROOT, play


def test_the_memory_page_prints_what_it_shows(tmp_path: Path) -> None:
    """Writing its file and typing its commands gives the output it shows."""
    assert play(ROOT / "docs" / "memory.md", tmp_path) >= 9
