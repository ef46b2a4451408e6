"""The durable write of a whole file, and moving things out of the way without losing them.

`write_file` is the one commit primitive: a fresh temporary file, a full write, fsync, rename over the
target, fsync of the directory. At any instant the target is the old file or the new one. On an error the
first errno is raised, the temporary is gone and the target untouched; after a kill only a `.hf-tmp-`
file may be left, which `clear_litter` knows by its name.

Setting aside never overwrites: the new name is reserved first (an empty file, or an empty directory for
a directory) and the rename replaces that reservation. A kill in between leaves an empty reservation.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import stat
from pathlib import Path

from holdfast import clock
from holdfast.stores import disk

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_LITTER = re.compile(r"\.hf-tmp-(\d+)-(?:[0-9a-f]{8}-)?\d+|out-(\d+)-(?:[0-9a-f]{8}-)?\d+-.+", re.DOTALL)
_OURS = _OUR_OUTPUTS = ""  # how the names of this process's temporaries begin
_COPY_BLOCK = 1 << 20
# A file that was blown up, perhaps with nothing in it, must not take the machine down with it.
_HELD_MAX = max(1 << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4)
# Room for `.bak.TIMESTAMP.N` within the 255 bytes that file systems allow a name.
_NAME_KEPT = 200
_counter = itertools.count(1)

TAIL = "tail"
"""What the cut-off end of a file is labelled with in quarantine."""
NOT_REGULAR = "Not a regular file"
"""What is said of a pipe or a device where a file should be."""


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


def write_file(path: Path, data: bytes, *, sync: bool, tmp_dir: Path | None = None) -> None:
    """Replace `path` by a file holding `data`; the folder must exist."""
    write_at(os.fspath(path), data, dir_fd=None, sync=sync, tmp_dir=tmp_dir)


def write_at(path: str, data: bytes, *, dir_fd: int | None, sync: bool, tmp_dir: Path | None) -> os.stat_result:
    """As `write_file`, with `path` relative to the open directory `dir_fd`, if one is given; what was written."""
    status = _write_via_tmp(tmp_dir, path, data, dir_fd, sync) if tmp_dir is not None else None
    if status is None:
        temp, fd = create_temp(os.path.dirname(path), dir_fd=dir_fd)
        try:
            status = _fill(fd, temp, data, sync)
            disk.rename(temp, path, source_dir=dir_fd, target_dir=dir_fd)
        except BaseException:
            discard(temp, dir_fd)
            raise
    if sync:
        _sync_parent(path, dir_fd)
    return status


def _write_via_tmp(tmp_dir: Path, path: str, data: bytes, dir_fd: int | None, sync: bool) -> os.stat_result | None:
    """None if `tmp_dir` is on another device, so that the temporary must be beside the target."""
    try:
        temp, fd = create_temp(os.fspath(tmp_dir))
    except FileNotFoundError:
        make_dirs(tmp_dir, sync=False)
        temp, fd = create_temp(os.fspath(tmp_dir))
    try:
        status = _fill(fd, temp, data, sync)
        disk.rename(temp, path, target_dir=dir_fd)
    except BaseException as error:
        discard(temp)
        if isinstance(error, OSError) and error.errno == errno.EXDEV:
            return None
        raise
    return status


def _fill(fd: int, temp: str, data: bytes, sync: bool) -> os.stat_result:
    try:
        disk.write_all(fd, data, temp)
        if sync:
            disk.sync_file(fd, temp)
        return os.fstat(fd)
    finally:
        os.close(fd)


def create_temp(folder: str, *, dir_fd: int | None = None) -> tuple[str, int]:
    """A new empty file of our temporary pattern, open for writing: its path and descriptor."""
    while True:
        temp = os.path.join(folder, f"{_OURS}{next(_counter)}")
        try:
            return temp, disk.open_file(temp, _NEW_FILE, dir_fd=dir_fd)
        except FileExistsError:
            continue  # somebody made one of that very name


def fresh_output(folder: Path, name: str) -> Path:
    """A path in `folder` that was never used before, and ends in `name`: where a step writes a file itself."""
    end = os.fsencode(name)[-_NAME_KEPT:].decode("utf-8", "ignore")
    return folder / f"{_OUR_OUTPUTS}{next(_counter)}-{end}"


def discard_output(path: Path) -> None:
    """Remove what a step left there, a file or a folder. What cannot be removed now, the next start may."""
    try:
        _remove(os.fspath(path))
    except OSError:
        pass


def extend(path: Path, data: bytes) -> None:
    """Write behind the last byte of a file that is not in its place yet."""
    descriptor = disk.open_file(os.fspath(path), os.O_WRONLY | os.O_APPEND)
    try:
        disk.write_all(descriptor, data, os.fspath(path))
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    if stat.S_ISDIR(os.lstat(path).st_mode):
        disk.remove_tree(path)
    else:
        disk.unlink(path)


def discard(path: str, dir_fd: int | None = None) -> None:
    """Remove a temporary of ours, if it is still there. What cannot be removed now, the next start may."""
    try:
        disk.unlink(path, dir_fd=dir_fd)
    except OSError:
        pass  # the error that brought us here, if one did, is the one to show


def _sync_parent(path: str, dir_fd: int | None) -> None:
    if dir_fd is not None:
        disk.sync_dir(dir_fd)
    else:
        disk.sync_dir(os.path.dirname(path) or ".")


def move_file(source: Path, path: str, *, dir_fd: int | None = None, sync: bool) -> None:
    """Move a finished regular file to `path`, replacing it; copied first if it is on another device."""
    if sync:
        fd = os.open(source, disk.READ_FLAGS)
        try:
            disk.sync_file(fd, os.fspath(source))
        finally:
            os.close(fd)
    try:
        disk.rename(os.fspath(source), path, target_dir=dir_fd)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy_over(source, path, dir_fd=dir_fd, sync=sync)
        disk.unlink(os.fspath(source))
    if sync:
        _sync_parent(path, dir_fd)


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
        block = os.pread(reader, min(_COPY_BLOCK, end - start), start)
        if not block:
            return
        disk.write_all(writer, block, path)
        start += len(block)


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


def read_file(path: Path, limit: int | None = None) -> bytes:
    """The bytes of a regular file. Links are ELOOP, other things EISDIR, over `limit` is EFBIG."""
    return read_at(os.fspath(path), dir_fd=None, limit=limit)


def read_at(path: str, *, dir_fd: int | None, limit: int | None = None) -> bytes:
    fd, size = _open_sized(path, dir_fd)
    try:
        if limit is not None and size > limit:
            raise OSError(errno.EFBIG, f"File is larger than {limit} bytes", path)
        if size > _HELD_MAX:
            raise OSError(errno.ENOMEM, "File is too large to be held in memory", path)
        data = os.read(fd, size + 1)
        return data if len(data) == size else data + _read_rest(fd)
    finally:
        os.close(fd)


def _read_rest(fd: int) -> bytes:
    """What one read did not give: the file grew meanwhile, or is over the 2 GiB cap of one read."""
    blocks = []
    while block := os.read(fd, _COPY_BLOCK):
        blocks.append(block)
    return b"".join(blocks)


def open_regular(path: str, *, dir_fd: int | None = None) -> int:
    """A descriptor for reading a regular file; anything else is an OSError, never a wait."""
    return _open_sized(path, dir_fd)[0]


def open_followed(path: Path) -> int:
    """As `open_regular`, for a file that is somebody else's: a link leads to what they mean."""
    return _open_sized(os.fspath(path), None, disk.READ_FLAGS & ~os.O_NOFOLLOW)[0]


def _open_sized(path: str, dir_fd: int | None, flags: int = disk.READ_FLAGS) -> tuple[int, int]:
    """The descriptor, and the size of the file."""
    try:
        fd = os.open(path, flags, dir_fd=dir_fd)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise OSError(errno.EISDIR, NOT_REGULAR, path) from None
        raise
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode):
        return fd, status.st_size
    os.close(fd)
    is_folder = stat.S_ISDIR(status.st_mode)
    raise OSError(errno.EISDIR, os.strerror(errno.EISDIR) if is_folder else NOT_REGULAR, path)


def set_aside(path: Path, into: Path, *, label: str = "", dir_fd: int | None = None) -> Path:
    """Move whatever is at `path` into the folder `into` under a fresh name, and give the new path.

    If `into` is on another device it stays beside its old place instead, as `back_up` would name it.
    """
    make_dirs(into, sync=True)
    target = _move_to_fresh(path, dir_fd, os.fspath(into), None, aside_name(path.name, label), numbered=True)
    if target is None:
        return back_up(path, dir_fd=dir_fd)
    disk.sync_dir(into)
    _sync_parent(os.fspath(path), dir_fd)
    return Path(target)


def back_up(path: Path, *, dir_fd: int | None = None) -> Path:
    """Rename `path` to `NAME.bak.TIMESTAMP` beside it (`.N` more if that is taken), and give the new path."""
    name = backup_name(path.name)
    target = _move_to_fresh(path, dir_fd, os.path.dirname(path), dir_fd, name, numbered=False)
    assert target is not None, "one folder is one device"
    _sync_parent(os.fspath(path), dir_fd)
    return Path(target)


def _move_to_fresh(
    path: Path, dir_fd: int | None, folder: str, folder_fd: int | None, name: str, *, numbered: bool
) -> str | None:
    """The new path, or None if `folder` is on another device."""
    is_dir = stat.S_ISDIR(os.stat(path, dir_fd=dir_fd, follow_symlinks=False).st_mode)
    target = _reserve(os.path.join(folder, name), folder_fd, is_dir=is_dir, numbered=numbered)
    try:
        disk.rename(os.fspath(path), target, source_dir=dir_fd, target_dir=folder_fd)
    except OSError as error:
        _release(target, folder_fd, is_dir=is_dir)
        if error.errno == errno.EXDEV:
            return None
        raise
    return target


def _reserve(wanted: str, dir_fd: int | None, *, is_dir: bool, numbered: bool) -> str:
    for number in itertools.count(1):
        target = f"{wanted}.{number}" if numbered or number > 1 else wanted
        try:
            if is_dir:
                disk.mkdir(target, dir_fd=dir_fd)
            else:
                os.close(disk.open_file(target, _NEW_FILE, dir_fd=dir_fd))
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


def fresh_file(folder: Path, name: str, label: str = "") -> tuple[Path, int]:
    """A new file `NAME[.LABEL].TIMESTAMP.N` in `folder` that collides with nothing: its path and descriptor."""
    make_dirs(folder, sync=True)
    target = _reserve(os.path.join(folder, aside_name(name, label)), None, is_dir=False, numbered=True)
    return Path(target), disk.open_file(target, os.O_WRONLY)


def keep_copy(path: Path, into: Path, *, label: str) -> Path:
    """A second, durable copy of a file in `into` under a fresh name; the original stays where it is."""
    reader = open_regular(os.fspath(path))
    try:
        return keep_open(reader, path.name, into, label=label)
    finally:
        os.close(reader)


def keep_open(reader: int, name: str, into: Path, *, label: str) -> Path:
    """As `keep_copy`, of a file that we have open, and that may have lost its name `name`."""
    return _copy_aside(reader, 0, name, label, into)


def copy_beside(name: str, *, dir_fd: int | None) -> str:
    """A second, durable copy of a file as `NAME.bak.TIMESTAMP` in its folder; gives the copy's name."""
    return os.fspath(write_beside(Path(name), read_at(name, dir_fd=dir_fd), dir_fd=dir_fd))


def write_beside(path: Path, data: bytes, *, dir_fd: int | None = None) -> Path:
    """Keep these bytes, durably, as `NAME.bak.TIMESTAMP` beside the file they come from; gives the path."""
    wanted = path.with_name(backup_name(path.name))
    target = _reserve(os.fspath(wanted), dir_fd, is_dir=False, numbered=False)
    try:
        writer = disk.open_file(target, os.O_WRONLY, dir_fd=dir_fd)
        try:
            disk.write_all(writer, data, target)
            disk.sync_file(writer, target)
        finally:
            os.close(writer)
    except BaseException:
        discard(target, dir_fd)
        raise
    _sync_parent(target, dir_fd)
    return Path(target)


def cut_tail(fd: int, path: Path, keep: int, into: Path) -> Path:
    """Cut an open file to `keep` bytes after putting the rest into `into`; gives the path of the rest.

    A kill before the cut leaves a copy too many, never one too few.
    """
    kept_as = _copy_aside(fd, keep, path.name, TAIL, into)
    disk.truncate(fd, keep, os.fspath(path))
    disk.sync_file(fd, os.fspath(path))
    return kept_as


def _copy_aside(reader: int, start: int, name: str, label: str, into: Path) -> Path:
    target, writer = fresh_file(into, name, label)
    try:
        try:
            copy_range(reader, start, os.fstat(reader).st_size, writer, os.fspath(target))
            disk.sync_file(writer, os.fspath(target))
        finally:
            os.close(writer)
    except BaseException:
        discard(os.fspath(target))
        raise
    disk.sync_dir(into)
    return target


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
    return name if len(raw) <= _NAME_KEPT else raw[:_NAME_KEPT].decode("utf-8", "ignore")


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
