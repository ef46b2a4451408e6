"""Reading a regular file, and nothing else: no link is followed, and nobody is waited for.

"Cannot read" is not "absent". The sets of errors below say what stands at a name that could not be read; any other
error is the machine's, and stops us.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import FORBIDDEN as NOT_ALLOWED
from holdfast.errors import MISSING, STRANGE, TOO_LARGE, StorageError, UnreadableError
from holdfast.stores import disk

FORBIDDEN = frozenset({errno.EACCES, errno.EPERM})
"""It may not be read."""

NO_FILE = frozenset({errno.ELOOP, errno.EISDIR})
"""What stands there is no regular file."""

UNREADABLE = FORBIDDEN | NO_FILE
"""A file that cannot be read for these reasons is damaged."""

UNUSABLE = UNREADABLE | {errno.EFBIG}
"""These, and a file that has far more bytes than it can have: something stands there, and it is not ours."""

NOT_TO_BE_HAD = UNUSABLE | {errno.ENOENT}
"""These, and a file that is gone: its content is not to be had."""

Fingerprint = tuple[int, ...]

_NOT_REGULAR = "Not a regular file"  # said of a pipe or a device where a file should be
_WORDS = {
    os.strerror(errno.ELOOP): "it is a symbolic link",
    os.strerror(errno.EISDIR): "it is a folder",
    _NOT_REGULAR: "it is no regular file",
}
_BLOCK = 1 << 20
# A file that was blown up, perhaps with nothing in it, must not take the machine down with it.
HELD_MAX = max(1 << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4)


_WHY = {
    errno.ENOENT: MISSING,
    errno.ENOTDIR: MISSING,
    errno.EFBIG: TOO_LARGE,
    **dict.fromkeys(FORBIDDEN, NOT_ALLOWED),
    **dict.fromkeys(NO_FILE, STRANGE),
}


def unread(error: OSError, path: str) -> StorageError:
    """What to raise for a file that could not be read: what stands there says why, or the machine does."""
    why = _WHY.get(error.errno or 0)
    if why is not None:
        return UnreadableError(path, why, why_unreadable(error))
    error.filename = path
    return StorageError.from_os(error, "read")


def content(path: Path, limit: int | None = None) -> bytes:
    """As `Files.read`, of a file by its own path."""
    try:
        return read_file(path, limit)
    except OSError as error:
        raise unread(error, os.fspath(path)) from error


def part(path: Path, start: int, size: int) -> bytes:
    """As `content`, of so many bytes from `start` on; before the end, if `start` is negative."""
    try:
        with opened(path) as fd:
            begin = start if start >= 0 else max(0, os.fstat(fd).st_size + start)
            return os.pread(fd, size, begin)
    except OSError as error:
        raise unread(error, os.fspath(path)) from error


def why_unreadable(error: OSError) -> str:
    """Why a file cannot be read, for people: links are never followed, so the system's own words would mislead."""
    words = error.strerror or "cannot be read"
    return _WORDS.get(words, words)


def fingerprint(status: os.stat_result) -> Fingerprint:
    """What changes whenever somebody touches a file, or puts another in its place."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def is_there(path: str | os.PathLike[str]) -> bool:
    """Whether anything has this name, links not followed. If that cannot be seen it is an OSError, never False."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_no_file(path: Path) -> bool:
    """Whether anything but a regular file has this name, links not followed."""
    try:
        return not stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def read_file(path: Path, limit: int | None = None) -> bytes:
    """The bytes of a regular file. Links are ELOOP, other things EISDIR, over `limit` is EFBIG."""
    return read_at(os.fspath(path), dir_fd=None, limit=limit)


def read_at(path: str, *, dir_fd: int | None, limit: int | None = None) -> bytes:
    fd, size = _open_sized(path, dir_fd)
    try:
        if limit is not None and size > limit:
            raise OSError(errno.EFBIG, f"File is larger than {limit} bytes", path)
        if size > HELD_MAX:
            raise OSError(errno.ENOMEM, "File is too large to be held in memory", path)
        data = os.read(fd, size + 1)
        return data if len(data) == size else data + _read_rest(fd)
    except OSError as error:
        error.filename = path  # a call on a descriptor does not know it
        raise
    finally:
        os.close(fd)


def _read_rest(fd: int) -> bytes:
    """What one read did not give: the file grew meanwhile, or is over the 2 GiB cap of one read."""
    blocks = []
    while block := os.read(fd, _BLOCK):
        blocks.append(block)
    return b"".join(blocks)


def blocks(fd: int, size: int | None = None) -> Iterator[bytes]:
    """What an open file has from its first byte on, in pieces; at most `size` bytes of it."""
    offset = 0
    while size is None or offset < size:
        block = os.pread(fd, _BLOCK if size is None else min(_BLOCK, size - offset), offset)
        if not block:
            return
        yield block
        offset += len(block)


def open_regular(path: str, *, dir_fd: int | None = None) -> int:
    """A descriptor for reading a regular file; anything else is an OSError, never a wait."""
    return _open_sized(path, dir_fd)[0]


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[int]:
    """As `open_regular`, closed after the block; an OSError in it names the file."""
    fd = open_regular(os.fspath(path))
    try:
        with naming(path):
            yield fd
    finally:
        os.close(fd)


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """An OSError of a call on a descriptor, which does not know its file, names this one."""
    try:
        yield
    except OSError as error:
        name(error, path)
        raise


def name(error: OSError, path: str | os.PathLike[str]) -> None:
    """The same for an error that was caught: a context manager would cost every commit something."""
    if not isinstance(error.filename, str):  # nothing, or the number of the descriptor
        error.filename = os.fspath(path)


def open_followed(path: Path) -> int:
    """As `open_regular`, for a file that is somebody else's: a link leads to what they mean."""
    return _open_sized(os.fspath(path), None, disk.READ_FLAGS & ~os.O_NOFOLLOW)[0]


def _open_sized(path: str, dir_fd: int | None, flags: int = disk.READ_FLAGS) -> tuple[int, int]:
    """The descriptor, and the size of the file."""
    try:
        fd = os.open(path, flags, dir_fd=dir_fd)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise OSError(errno.EISDIR, _NOT_REGULAR, path) from None
        raise
    try:
        status = os.fstat(fd)
    except OSError as error:
        os.close(fd)
        error.filename = path
        raise
    if stat.S_ISREG(status.st_mode):
        return fd, status.st_size
    os.close(fd)
    is_folder = stat.S_ISDIR(status.st_mode)
    raise OSError(errno.EISDIR, os.strerror(errno.EISDIR) if is_folder else _NOT_REGULAR, path)
