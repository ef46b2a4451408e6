"""Ways to damage a project, drawn by a seeded dice: artifacts, state and views."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from outside import OUTSIDE

Damage = Callable[[Path, Random], None]


def delete(path: Path, dice: Random) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def empty(path: Path, dice: Random) -> None:
    path.write_bytes(b"")


def cut(path: Path, dice: Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: dice.randrange(len(data) or 1)])


def flip(path: Path, dice: Random) -> None:
    """One bit of it is other than it was."""
    data = bytearray(path.read_bytes())
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(bytes(data))


def zeros(path: Path, dice: Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def garbage(path: Path, dice: Random) -> None:
    path.write_bytes(dice.randbytes(300))


def tail_lost(path: Path, dice: Random) -> None:
    """The last block was never written: zeros from somewhere to the end."""
    data = path.read_bytes()
    place = dice.randrange(len(data) or 1)
    path.write_bytes(data[:place] + bytes(len(data) - place))


def other_words(path: Path, dice: Random) -> None:
    """Plain text of somebody else's."""
    path.write_text("Something else altogether.\n" * dice.randrange(1, 9))


def folder(path: Path, dice: Random) -> None:
    path.unlink()
    path.mkdir()


def link(path: Path, dice: Random) -> None:
    path.unlink()
    path.symlink_to(dice.choice([str(OUTSIDE), "/nowhere/at/all", path.name]))


def pipe(path: Path, dice: Random) -> None:
    path.unlink()
    os.mkfifo(path)


FILE_DAMAGES: tuple[Damage, ...] = (
    *(delete, empty, cut, flip, zeros, garbage, tail_lost, other_words, folder, link, pipe),
)
