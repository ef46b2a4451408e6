"""Several things damaged at once, as a seeded dice falls: the book comes out right, and nothing whole runs again.

The seed is in the test's name. HOLDFAST_DAMAGE_SEEDS=N tries so many of them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from random import Random

import pytest

from harness import VIEWS

from .damages import FILE_DAMAGES, delete
from .projects import Book

SEEDS = range(int(os.environ.get("HOLDFAST_DAMAGE_SEEDS", "6")))


@pytest.fixture(scope="session")
def halfway(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """A book whose process died in the second chapter."""
    book = Book(tmp_path_factory.mktemp("halfway")).begin(**{"merge[ch02]": "die"})
    assert book.first_run("--concurrency", "1").code < 0
    return book


def damage_some(paths: list[Path], dice: Random) -> list[str]:
    """Up to three of them; gives what was done, for whoever reads a failure."""
    done = []
    for path in dice.sample(paths, min(len(paths), dice.randrange(1, 4))):
        if path.is_file() and not path.is_symlink():
            damage = dice.choice(FILE_DAMAGES)
            damage(path, dice)
            done.append(f"{damage.__name__} {path.name}")
    return done


def damage_project(book: Book, dice: Random) -> list[str]:
    state = book.path(".holdfast")
    done = []
    if dice.random() < 0.3:
        delete(state, dice)
        done.append("delete .holdfast")
    elif dice.random() < 0.5:
        done += damage_some([path for path in sorted(state.rglob("*")) if path.is_file()], dice)
    if dice.random() < 0.3:
        done += damage_some([book.path(name) for name in VIEWS if book.path(name).exists()], dice)
    return done + damage_some([book.path(name) for name in book.artifacts()], dice)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_is_damaged_the_book_comes_out_right(
    seed: int, original: Book, halfway: Book, tmp_path: Path
) -> None:
    """Every artifact as it should be, no task with an intact artifact run again, and then nothing left to do."""
    dice = Random(seed)
    book = dice.choice([original, halfway]).copied_to(tmp_path / "here")
    told = damage_project(book, dice)
    whole = {name for name, content in book.artifacts().items() if content == original.artifacts().get(name)}
    said = book.run("--on-changed", "restore")
    assert said.code == 0, (told, said.text)
    assert book.bodies() == original.bodies(), told
    intact = {re.findall(rb" task=(\S+) ", original.artifacts()[name])[-1].decode() for name in whole}
    assert not intact & set(book.ran()), told
    assert book("recover").code == 0
    assert book.verify() == [], told
    assert book.run().code == 0
    assert not book.ran(), told
