"""Room for our own files: whatever else stands at their names is set aside, and never followed.

A link, a socket, a folder where a file belongs, a file where a folder belongs: nobody's state can be in it, since
nothing here is ever read or written through it. It is moved into the quarantine folder under a fresh name. A
regular file that may not be read is left alone: that is for the one who took the permission away to mend.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from holdfast.stores import asides


def room_for_file(path: Path, quarantine: Path) -> list[str]:
    """What was in the way of a regular file at `path` and where it is now; nothing if nothing was."""
    return _room(path, stat.S_ISREG, quarantine)


def room_for_folder(path: Path, quarantine: Path) -> list[str]:
    """The same for a folder."""
    return _room(path, stat.S_ISDIR, quarantine)


def room_for_files_in(folder: Path, quarantine: Path) -> list[str]:
    """The same for every name in a folder of ours that holds nothing but files."""
    return [words for path in no_files_in(folder) for words in room_for_file(path, quarantine)]


def no_files_in(folder: Path) -> list[Path]:
    """What is in a folder and is no regular file, sorted; nothing if there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(folder / entry.name for entry in entries if not entry.is_file(follow_symlinks=False))
    except FileNotFoundError:
        return []


def sound_quarantine(quarantine: Path) -> list[str]:
    """The quarantine folder itself, if it is anything else, is moved out of the way beside its place."""
    mode = _kind(quarantine)
    if mode is None or stat.S_ISDIR(mode):
        return []
    kept_as = asides.back_up(quarantine)
    return [f"{quarantine.name} was {_named(mode)} and is kept as {kept_as.name}"]


def is_something_else(path: Path) -> bool:
    """Whether anything but a regular file stands at `path`."""
    kind = _kind(path)
    return kind is not None and not stat.S_ISREG(kind)


def is_no_folder(path: Path) -> bool:
    """Whether anything but a folder stands at `path`."""
    kind = _kind(path)
    return kind is not None and not stat.S_ISDIR(kind)


def _room(path: Path, is_right: Callable[[int], bool], quarantine: Path) -> list[str]:
    mode = _kind(path)
    if mode is None or is_right(mode):
        return []
    told = sound_quarantine(quarantine)
    kept_as = asides.set_aside(path, quarantine)
    return [*told, f"{path.name} was {_named(mode)} and is kept as {kept_as.parent.name}/{kept_as.name}"]


def _kind(path: Path) -> int | None:
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return None


def _named(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    if stat.S_ISDIR(mode):
        return "a folder"
    return "a file" if stat.S_ISREG(mode) else "no regular file"
