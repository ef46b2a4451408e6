"""The durable write of a whole file, and the folders on the way to it.

`write_file` is the one commit primitive: a fresh temporary file, a full write, fsync, rename over the
target, fsync of the directory. At any instant the target is the old file or the new one. On an error the
first errno is raised, the temporary is gone and the target untouched; after a kill only a temporary may be
left (`temporaries.py`). A file that replaces one of ours keeps its permissions: whoever closed it meant it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from holdfast.stores import disk, readable
from holdfast.stores.temporaries import create_temp, discard

_BLOCK = 1 << 20


def write_file(path: Path, data: bytes, *, sync: bool, tmp_dir: Path | None = None) -> None:
    """Replace `path` by a file holding `data`; the folder must exist."""
    write_at(os.fspath(path), data, dir_fd=None, sync=sync, tmp_dir=tmp_dir)


def write_blocks(path: Path, blocks: Iterable[bytes], *, sync: bool) -> None:
    """As `write_file`, for what need not be in memory all at once."""
    _write_beside(os.fspath(path), blocks, None, sync)
    if sync:
        sync_parent(os.fspath(path), None)


def write_at(path: str, data: bytes, *, dir_fd: int | None, sync: bool, tmp_dir: Path | None) -> os.stat_result:
    """As `write_file`, with `path` relative to the open directory `dir_fd`, if one is given; what was written."""
    status = _write_via_tmp(tmp_dir, path, data, dir_fd, sync) if tmp_dir is not None else None
    if status is None:
        status = _write_beside(path, (data,), dir_fd, sync)
    if sync:
        sync_parent(path, dir_fd)
    return status


def _write_beside(path: str, blocks: Iterable[bytes], dir_fd: int | None, sync: bool) -> os.stat_result:
    temp, fd = create_temp(os.path.dirname(path), dir_fd=dir_fd)
    try:
        status = _fill(fd, temp, blocks, sync, mode_of(path, dir_fd))
        disk.rename(temp, path, source_dir=dir_fd, target_dir=dir_fd)
    except BaseException:
        discard(temp, dir_fd)
        raise
    return status


def _write_via_tmp(tmp_dir: Path, path: str, data: bytes, dir_fd: int | None, sync: bool) -> os.stat_result | None:
    """None if `tmp_dir` is on another device, so that the temporary must be beside the target."""
    temp, status = stage(tmp_dir, data, sync=sync, mode=mode_of(path, dir_fd))
    try:
        disk.rename(temp, path, target_dir=dir_fd)
    except BaseException as error:
        discard(temp)
        if isinstance(error, OSError) and error.errno == errno.EXDEV:
            return None
        raise
    return status


def stage(tmp_dir: Path, data: bytes, *, sync: bool, mode: int | None) -> tuple[str, os.stat_result]:
    """Write `data` to a fresh file in `tmp_dir`, to be renamed later; gives its path, and what was written."""
    try:
        temp, fd = create_temp(os.fspath(tmp_dir))
    except FileNotFoundError:
        make_dirs(tmp_dir, sync=False)
        temp, fd = create_temp(os.fspath(tmp_dir))
    try:
        return temp, _fill(fd, temp, (data,), sync, mode)
    except BaseException:
        discard(temp)
        raise


def mode_of(path: str, dir_fd: int | None) -> int | None:
    """The permissions of the file at `path`; None if there is none, or another user's: that one sees our umask."""
    try:
        found = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    return stat.S_IMODE(found.st_mode) & 0o777 if is_ours else None


def _fill(fd: int, temp: str, blocks: Iterable[bytes], sync: bool, mode: int | None) -> os.stat_result:
    try:
        with readable.naming(temp):
            if mode is not None and mode != stat.S_IMODE(os.fstat(fd).st_mode):
                disk.set_mode(fd, mode, temp)
            for block in blocks:
                disk.write_all(fd, block, temp)
            if sync:
                disk.sync_file(fd, temp)
            return os.fstat(fd)
    finally:
        os.close(fd)


def move_file(source: Path, path: str, *, dir_fd: int | None = None, sync: bool) -> None:
    """Move a finished regular file to `path`, replacing it; copied first if it is on another device."""
    if sync:
        sync_content(source)
    land(source, path, dir_fd=dir_fd, sync=sync)


def sync_content(source: Path) -> None:
    """The bytes of a finished file are on the medium when this returns."""
    fd = os.open(source, disk.READ_FLAGS)
    try:
        disk.sync_file(fd, os.fspath(source))
    finally:
        os.close(fd)


def land(source: Path, path: str, *, dir_fd: int | None = None, sync: bool) -> None:
    """As `move_file`, of a file whose bytes are synced already if they need be: `sync` is about its new name."""
    try:
        disk.rename(os.fspath(source), path, target_dir=dir_fd)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy_over(source, path, dir_fd=dir_fd, sync=sync)
        disk.unlink(os.fspath(source))
    if sync:
        sync_parent(path, dir_fd)


def copy_over(source: Path, path: str, *, dir_fd: int | None = None, sync: bool) -> None:
    """Put a copy of the regular file `source` at `path`, replacing it."""
    temp, fd = create_temp(os.path.dirname(path), dir_fd=dir_fd)
    try:
        try:
            reader = os.open(source, disk.READ_FLAGS)
            try:
                copy_range(reader, 0, os.fstat(reader).st_size, fd, temp)
            finally:
                os.close(reader)
            if sync:
                disk.sync_file(fd, temp)
        finally:
            os.close(fd)
        disk.rename(temp, path, source_dir=dir_fd, target_dir=dir_fd)
    except BaseException:
        discard(temp, dir_fd)
        raise


def copy_range(reader: int, start: int, end: int, writer: int, path: str) -> None:
    """Copy the bytes from `start` to `end` block by block; `path` is the name of the copy."""
    while start < end:
        block = os.pread(reader, min(_BLOCK, end - start), start)
        if not block:
            return
        disk.write_all(writer, block, path)
        start += len(block)


def extend(path: Path, data: bytes) -> None:
    """Write behind the last byte of a file that is not in its place yet."""
    descriptor = disk.open_file(os.fspath(path), os.O_WRONLY | os.O_APPEND)
    try:
        disk.write_all(descriptor, data, os.fspath(path))
    finally:
        os.close(descriptor)


def sync_parent(path: str, dir_fd: int | None) -> None:
    """The name of `path` is on the medium when this returns."""
    if dir_fd is not None:
        disk.sync_dir(dir_fd)
    else:
        disk.sync_dir(os.path.dirname(path) or ".")


def make_dirs(path: Path, *, sync: bool) -> None:
    """Create `path` and what is missing above it, each entry durable before the next is made.

    The parent is synced even where `path` exists: an earlier process may have been killed in between.
    """
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        if path.parent == path:
            break
        path = path.parent
    for folder in reversed(missing):
        try:
            disk.mkdir(os.fspath(folder))
        except FileExistsError:
            if not os.path.isdir(folder):
                raise
        if sync:
            disk.sync_dir(folder.parent)
    if sync and not missing:
        disk.sync_dir(path.parent)
