"""Moving or copying things out of the way without losing them: into quarantine, or beside their place.

Setting aside never overwrites: the new name is reserved first (an empty file, or an empty directory for
a directory) and the rename replaces that reservation. A kill in between leaves an empty reservation.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast import clock
from holdfast.stores import atomic, disk, readable, temporaries

TAIL = "tail"
"""What the cut-off end of a file is labelled with in quarantine."""


def set_aside(path: Path, into: Path, *, dir_fd: int | None = None) -> Path:
    """Move whatever is at `path` into the folder `into` under a fresh name, and give the new path.

    If `into` is on another device it stays beside its old place instead, as `back_up` would name it.
    """
    atomic.make_dirs(into, sync=True)
    try:
        target = _move_to_fresh(path, dir_fd, os.fspath(into), None, aside_name(path.name), numbered=True)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return back_up(path, dir_fd=dir_fd)
    disk.sync_dir(into)
    atomic.sync_parent(os.fspath(path), dir_fd)
    return Path(target)


def back_up(path: Path, *, dir_fd: int | None = None) -> Path:
    """Rename `path` to `NAME.bak.TIMESTAMP` beside it (`.N` more if that is taken), and give the new path."""
    name, folder = backup_name(path.name), os.path.dirname(path)
    target = _move_to_fresh(path, dir_fd, folder, dir_fd, name, numbered=False)
    atomic.sync_parent(os.fspath(path), dir_fd)
    return Path(target)


def _move_to_fresh(
    path: Path, dir_fd: int | None, folder: str, folder_fd: int | None, name: str, *, numbered: bool
) -> str:
    is_dir = stat.S_ISDIR(os.stat(path, dir_fd=dir_fd, follow_symlinks=False).st_mode)
    target = _reserve(os.path.join(folder, name), folder_fd, is_dir=is_dir, numbered=numbered)
    try:
        disk.rename(os.fspath(path), target, source_dir=dir_fd, target_dir=folder_fd)
    except OSError:
        _release(target, folder_fd, is_dir=is_dir)
        raise
    return target


def _reserve(wanted: str, dir_fd: int | None, *, is_dir: bool, numbered: bool) -> str:
    for number in itertools.count(1):
        target = f"{wanted}.{number}" if numbered or number > 1 else wanted
        try:
            if is_dir:
                disk.mkdir(target, dir_fd=dir_fd)
            else:
                os.close(disk.open_file(target, disk.NEW_FILE, dir_fd=dir_fd))
        except FileExistsError:
            continue
        return target
    raise AssertionError("unreachable")


def _release(target: str, dir_fd: int | None, *, is_dir: bool) -> None:
    try:
        if is_dir:
            disk.rmdir(target, dir_fd=dir_fd)
        else:
            disk.unlink(target, dir_fd=dir_fd)
    except OSError:
        pass  # an empty reservation harms nobody; the first error is the one to show


def keep_bytes(data: bytes, into: Path, name: str) -> Path:
    """Keep bytes that have no file as `NAME.TIMESTAMP.N` in the folder `into`; gives the path."""
    atomic.make_dirs(into, sync=True)
    target = _reserve(os.path.join(into, aside_name(name)), None, is_dir=False, numbered=True)
    writer = disk.open_file(target, os.O_WRONLY)
    try:
        disk.write_all(writer, data, target)
    finally:
        os.close(writer)
    return Path(target)


def keep_copy(path: Path, into: Path, *, label: str) -> Path:
    """A second, durable copy of a file in `into` under a fresh name; the original stays where it is."""
    with readable.opened(path) as reader:
        return keep_open(reader, path.name, into, label=label)


def keep_open(reader: int, name: str, into: Path, *, label: str, start: int = 0) -> Path:
    """As `keep_copy`, of a file that we have open, from byte `start` on; it may have lost its name `name`."""
    atomic.make_dirs(into, sync=True)
    target = _reserve(os.path.join(into, aside_name(name, label)), None, is_dir=False, numbered=True)
    with _filling(target, None) as writer:
        atomic.copy_range(reader, start, os.fstat(reader).st_size, writer, target)
    return Path(target)


def copy_beside(name: str, *, dir_fd: int | None) -> str:
    """A second, durable copy of a file as `NAME.bak.TIMESTAMP` in its folder; gives the copy's name."""
    return os.fspath(write_beside(Path(name), readable.read_at(name, dir_fd=dir_fd), dir_fd=dir_fd))


def write_beside(path: Path, data: bytes, *, dir_fd: int | None = None) -> Path:
    """Keep these bytes, durably, as `NAME.bak.TIMESTAMP` beside the file they come from; gives the path."""
    wanted = path.with_name(backup_name(path.name))
    target = _reserve(os.fspath(wanted), dir_fd, is_dir=False, numbered=False)
    with _filling(target, dir_fd) as writer:
        disk.write_all(writer, data, target)
    return Path(target)


def cut_tail(fd: int, path: Path, keep: int, into: Path) -> Path:
    """Cut an open file to `keep` bytes after putting the rest into `into`; gives the path of the rest.

    A kill before the cut leaves a copy too many, never one too few.
    """
    kept_as = keep_open(fd, path.name, into, label=TAIL, start=keep)
    disk.truncate(fd, keep, os.fspath(path))
    disk.sync_file(fd, os.fspath(path))
    return kept_as


@contextmanager
def _filling(target: str, dir_fd: int | None) -> Iterator[int]:
    """The reserved file `target`, open for writing: durable after the block, and gone again if anything fails."""
    try:
        writer = disk.open_file(target, os.O_WRONLY, dir_fd=dir_fd)
        try:
            yield writer
            disk.sync_file(writer, target)
        finally:
            os.close(writer)
    except BaseException:
        temporaries.discard(target, dir_fd)
        raise
    atomic.sync_parent(target, dir_fd)


def aside_name(name: str, label: str = "", at: str = "") -> str:
    """What a file is called in quarantine, but for the number that makes it unique; `at` in place of the time."""
    return ".".join([aside_stem(name), *([label] if label else []), at or _stamp()])


def backup_name(name: str, at: str = "") -> str:
    """What a file is called that is kept beside itself."""
    return f"{aside_stem(name)}.bak.{at or _stamp()}"


def _stamp() -> str:
    return clock.iso(clock.now())[:19].replace("-", "").replace(":", "") + "Z"


def aside_stem(name: str) -> str:
    """How the name of a file begins that was set aside: as the file was called, unless that is too long."""
    raw = os.fsencode(name)
    return name if len(raw) <= temporaries.NAME_KEPT else raw[: temporaries.NAME_KEPT].decode("utf-8", "ignore")
