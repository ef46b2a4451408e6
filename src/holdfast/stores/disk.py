"""The only module that changes the disk: every mutating system call of Holdfast goes through here.

That makes one place for two things: counting syncs, and failing on purpose. A `hook` is called before each
operation with its name and path; it may raise an OSError, raise `TornWrite`, or kill the process.
`HOLDFAST_KILL_AT=N` kills any process before its N-th operation (`N:torn`: a write is half done first), which is
how crash tests stop real processes everywhere.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Hook = Callable[[str, str], None]

hook: Hook | None = None
syncs = 0
writes = 0

# Opening for reading waits for nobody, follows nothing and leaks into no child.
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SYNC_DATA: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
# macOS answers fsync before the drive has the data; only this command, which it alone has, waits for the drive.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
# "Not needed any more": what of it is not on the medium yet, Linux begins to write at once. macOS lacks it.
_BEGIN_WRITING: int | None = getattr(os, "POSIX_FADV_DONTNEED", None)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MACHINES = (*FULL, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What goes wrong with the machine, and is no mistake in what it was asked."""
_NO_FULL_SYNC = (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY)  # as on a network share


class TornWrite(Exception):  # noqa: N818 - a request to `write_all`, not an error
    """Raised by a hook: half of the data is written, then `then` is called (to kill, or to raise)."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__("torn write")
        self.then = then


def room_left(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Bytes that may still be written to the disk of `path`, and bytes that it has in all (0: it does not say)."""
    try:
        told = os.statvfs(path)
    except OSError:
        return 0, 0
    return told.f_bavail * told.f_frsize, told.f_blocks * told.f_frsize


def open_file(path: str, flags: int, *, dir_fd: int | None = None) -> int:
    """A descriptor opened without following a link at the end of `path`."""
    if hook is not None:
        hook("open", path)
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=dir_fd)


def write_all(fd: int, data: bytes | memoryview, path: str = "") -> None:
    """Write all of `data`; a short write is legal and simply continued."""
    torn = _about_to_write(path)
    if torn is not None:
        os.write(fd, data[: len(data) // 2])
        torn.then()
    try:
        done = os.write(fd, data)
        while done < len(data):
            done += os.write(fd, memoryview(data)[done:])
    except OSError as error:
        raise _named(error, path) from None


def write_at(fd: int, data: bytes, offset: int, path: str = "") -> None:
    """As `write_all`, from byte `offset` on."""
    torn = _about_to_write(path)
    if torn is not None:
        os.pwrite(fd, data[: len(data) // 2], offset)
        torn.then()
    try:
        done = os.pwrite(fd, data, offset)
        while done < len(data):
            done += os.pwrite(fd, memoryview(data)[done:], offset + done)
    except OSError as error:
        raise _named(error, path) from None


def _about_to_write(path: str) -> TornWrite | None:
    """Count a write and ask the hook; gives its request that only half of it be done."""
    global writes
    writes += 1
    if hook is not None:
        try:
            hook("write", path)
        except TornWrite as torn:
            return torn
    return None


def begin_sync(fd: int, offset: int, length: int) -> None:
    """Have these bytes set out for the medium: a sync that comes a little later has less to wait for.

    A hint that promises nothing: it changes no byte, and what goes wrong on the way is told by that sync.
    """
    if _BEGIN_WRITING is None:
        return
    try:
        os.posix_fadvise(fd, offset, length, _BEGIN_WRITING)
    except OSError:
        pass


def sync_file(fd: int, path: str = "") -> None:
    """Data and metadata of the file are on the medium when this returns."""
    _sync(fd, path, os.fsync)


def sync_data(fd: int, path: str = "") -> None:
    """As `sync_file`, without metadata that reading the data back does not need."""
    _sync(fd, path, _SYNC_DATA)


def sync_dir(target: str | os.PathLike[str] | int) -> None:
    """The directory's entries are on the medium when this returns."""
    if isinstance(target, int):
        _sync(target, "", os.fsync)
        return
    path = os.fspath(target)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _sync(fd, path, os.fsync)
    finally:
        os.close(fd)


def _sync(fd: int, path: str, call: Callable[[int], None]) -> None:
    global syncs
    syncs += 1
    if hook is not None:
        hook("sync", path)
    try:
        if _FULL_SYNC is None or not _synced_fully(fd, _FULL_SYNC):
            call(fd)
    except OSError as error:
        raise _named(error, path) from None


def _synced_fully(fd: int, command: int) -> bool:
    """False where the file system does not know the command: then fsync is the most that can be asked for."""
    try:
        fcntl.fcntl(fd, command)
    except OSError as error:
        if error.errno not in _NO_FULL_SYNC:
            raise
        return False
    return True


def _named(error: OSError, path: str) -> OSError:
    """The error with the file's name in it, which a call on a descriptor cannot know."""
    return OSError(error.errno, error.strerror, path) if path else error


def set_mode(fd: int, mode: int, path: str = "") -> None:
    """Give an open file these permissions."""
    if hook is not None:
        hook("chmod", path)
    try:
        os.fchmod(fd, mode)
    except OSError as error:
        raise _named(error, path) from None


def rename(source: str, target: str, *, source_dir: int | None = None, target_dir: int | None = None) -> None:
    if hook is not None:
        hook("rename", target)
    try:
        os.rename(source, target, src_dir_fd=source_dir, dst_dir_fd=target_dir)
    except OSError as error:
        # A temporary's name would tell nobody anything.
        raise OSError(error.errno, error.strerror, target) from None


def unlink(path: str, *, dir_fd: int | None = None) -> None:
    if hook is not None:
        hook("unlink", path)
    os.unlink(path, dir_fd=dir_fd)


def mkdir(path: str, *, dir_fd: int | None = None) -> None:
    if hook is not None:
        hook("mkdir", path)
    os.mkdir(path, 0o777, dir_fd=dir_fd)


def rmdir(path: str, *, dir_fd: int | None = None) -> None:
    if hook is not None:
        hook("rmdir", path)
    os.rmdir(path, dir_fd=dir_fd)


def truncate(fd: int, size: int, path: str = "") -> None:
    if hook is not None:
        hook("truncate", path)
    try:
        os.ftruncate(fd, size)
    except OSError as error:
        raise _named(error, path) from None


def remove_tree(path: str) -> None:
    """Delete a folder and all in it; one operation to the hook, since nobody relies on its parts."""
    if hook is not None:
        hook("remove_tree", path)
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None  # it names a part of it by its last name only


def kill_at(number: int, *, torn: bool = False) -> None:
    """Install a hook that kills this process before its `number`-th operation from now."""
    global hook
    counter = itertools.count(1)

    def kill(op: str, path: str) -> None:
        if next(counter) != number:
            return
        if torn and op == "write":
            raise TornWrite(_kill_self)
        _kill_self()

    hook = kill


@contextmanager
def failing_at(number: int, error: int, *, torn: bool = False) -> Iterator[list[str]]:
    """Within the block, the `number`-th operation fails with the errno `error` (0: none does).

    Gives the list of operations, `OP PATH`, as they come: its length tells how many there are to fail.
    """
    global hook
    seen: list[str] = []

    def fail(op: str, path: str) -> None:
        seen.append(f"{op} {path}")
        if len(seen) != number:
            return
        if torn and op == "write":
            raise TornWrite(lambda: _fail(error, path))
        _fail(error, path)

    before, hook = hook, fail
    try:
        yield seen
    finally:
        hook = before


def _fail(error: int, path: str) -> None:
    raise OSError(error, os.strerror(error), path)


def _kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_as_environment_says() -> None:
    number, _, how = os.environ.get("HOLDFAST_KILL_AT", "").partition(":")
    if number.isdigit() and int(number) > 0:
        kill_at(int(number), torn=how == "torn")


_kill_as_environment_says()
