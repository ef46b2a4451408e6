"""Files that are not in their place yet: their names, and the clearing away of those that the dead have left.

A temporary of ours is called `.hf-tmp-PID-RANDOM-N`, and what a step writes itself `out-PID-RANDOM-N-NAME`. After
a kill one may be left; `clear_litter` knows it by its name, and whether its process lives by the number in it.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
from pathlib import Path

from holdfast.stores import disk

NAME_KEPT = 200
"""Bytes of a file's own name in a name made from it: file systems allow 255, and something is put to it."""

_LITTER = re.compile(r"\.hf-tmp-(\d+)-(?:[0-9a-f]{8}-)?\d+|out-(\d+)-(?:[0-9a-f]{8}-)?\d+-.+", re.DOTALL)
_OURS = _OUR_OUTPUTS = ""  # how the names of this process's temporaries begin
_counter = itertools.count(1)


def _name_ourselves() -> None:
    """Numbers of processes come again, in a container at every start: hence the rest of the name.

    A forked process is another one, too. With the name of the one it was forked from, it would neither clear away
    what a killed child of that one left, nor find its own names free.
    """
    global _OURS, _OUR_OUTPUTS
    us = f"{os.getpid()}-{os.urandom(4).hex()}-"
    _OURS, _OUR_OUTPUTS = f".hf-tmp-{us}", f"out-{us}"


_name_ourselves()
os.register_at_fork(after_in_child=_name_ourselves)


def create_temp(folder: str, *, dir_fd: int | None = None) -> tuple[str, int]:
    """A new empty file of our temporary pattern, open for writing: its path and descriptor."""
    while True:
        temp = os.path.join(folder, f"{_OURS}{next(_counter)}")
        try:
            return temp, disk.open_file(temp, disk.NEW_FILE, dir_fd=dir_fd)
        except FileExistsError:
            continue  # somebody made one of that very name


def fresh_temp(folder: Path) -> str:
    """A path of our temporary pattern in `folder` that was never used before."""
    return os.fspath(folder / f"{_OURS}{next(_counter)}")


def discard(path: str, dir_fd: int | None = None) -> None:
    """Remove a temporary of ours, if it is still there. What cannot be removed now, the next start may."""
    try:
        disk.unlink(path, dir_fd=dir_fd)
    except OSError:
        pass  # the error that brought us here, if one did, is the one to show


def fresh_output(folder: Path, name: str) -> Path:
    """A path in `folder` that was never used before, and ends in `name`: where a step writes a file itself."""
    end = os.fsencode(name)[-NAME_KEPT:].decode("utf-8", "ignore")
    return folder / f"{_OUR_OUTPUTS}{next(_counter)}-{end}"


def discard_output(path: Path) -> None:
    """Remove what a step left there, a file or a folder. What cannot be removed now, the next start may."""
    try:
        _remove(os.fspath(path))
    except OSError:
        pass


def _remove(path: str) -> None:
    if stat.S_ISDIR(os.lstat(path).st_mode):
        disk.remove_tree(path)
    else:
        disk.unlink(path)


def clear_litter(folder: Path) -> int:
    """Remove temporary files, and what steps wrote themselves, that dead processes of ours left in `folder`.

    A living one, such as an `approve` beside us or another thread of ours, is about to rename its own. A process
    that only has the number of a dead one saves that one's litter, until the next start.
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return 0
    removed = 0
    for name in filter(_is_litter, names):
        path = os.path.join(folder, name)
        if name.startswith("out-"):
            discard_output(Path(path))
            removed += 1
        elif stat.S_ISREG(os.lstat(path).st_mode):
            disk.unlink(path)
            removed += 1
    return removed


def _is_litter(name: str) -> bool:
    """Whether it is a temporary of ours whose process is gone."""
    match = _LITTER.fullmatch(name)
    if match is None or name.startswith((_OURS, _OUR_OUTPUTS)):
        return False
    return not _is_another(int(match[1] or match[2]))


def _is_another(pid: int) -> bool:
    """Whether a process of that number lives that is not this one."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # somebody else's
    return pid != os.getpid()
