"""Books to begin with: an empty one, and one that is finished (made once, copied for each scenario)."""

from __future__ import annotations

from pathlib import Path

import pytest

from .projects import ALL, Book


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "here").begin()


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """A finished book that nobody disturbed."""
    book = Book(tmp_path_factory.mktemp("original")).begin()
    said = book.first_run()
    assert said.code == 0, said.text
    assert book.ran() == dict.fromkeys(ALL, 1)
    return book


@pytest.fixture
def finished(original: Book, tmp_path: Path) -> Book:
    """A copy of the finished book, to be damaged."""
    return original.copied_to(tmp_path / "here")
