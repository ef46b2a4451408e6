"""Two kernel locks: one engine a project, and one appender at a time.

Both are flock locks: the kernel frees them when the holder dies, however it dies, so there is no stale
lock and no pid to trust. What is written inside `engine.lock` only tells people who holds it.

Telling whether the lock is held without disturbing anyone: a reader tries a *shared* lock for an instant.
It never blocks another reader, and it fails exactly while an engine holds the exclusive one. It could be
in the way of an engine that starts in that instant; therefore `hold`, when refused, asks in the same
manner: if a shared lock is granted, only readers are in the way, and it tries again until they are gone.
The kernel's own lists (/proc/locks, F_OFD_GETLK) need no probe, but do not see other containers, and
macOS lacks them.

A flock belongs to the open file, which a forked child shares. Children close their copies at once, so that
a worker that outlives a killed engine does not keep the project locked.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast import clock
from holdfast.errors import LockedError, StorageError
from holdfast.stores import disk, readable

_READER_PATIENCE_S = 5.0
_HOLDER_PATIENCE_S = 0.1  # a killed engine may need a moment to be gone
_PAUSE_S = 0.001
_HOLDER_BYTES = 4096
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT
_HELD_ELSEWHERE = (errno.EAGAIN, errno.EACCES)
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


class LocalLease:
    """See `Lease`: the kernel's lock on a file, held for as long as the engine of a project runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = os.fspath(path)
        self._fd = -1
        self._held = (-1, -1)
        _locks.add(self)

    def hold(self, run_id: str) -> None:
        """Take the lock, or raise LockedError naming the holder within a fraction of a second."""
        with _telling("take the lock"):
            began = clock.monotonic()
            while not self._try():
                is_held = self.holder() is not None
                if clock.monotonic() - began > (_HOLDER_PATIENCE_S if is_held else _READER_PATIENCE_S):
                    raise _locked(self.path)
                time.sleep(_PAUSE_S)
            try:
                _write_holder(self._fd, self.path, run_id)
            except BaseException:
                self._forget()  # the error goes out, the lock does not stay behind
                raise

    def _try(self) -> bool:
        fd = disk.open_file(self._name, _LOCK_FLAGS)
        try:
            held = _identity(fd, self._name)
            if _flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, self.path) and _is_at(held, self._name):
                self._fd, self._held = fd, held
                return True
        finally:
            if self._fd != fd:
                os.close(fd)
        return False

    def is_ours(self) -> bool:
        """Whether the lock file at the path is still the one we hold: one stat."""
        try:
            return self._fd >= 0 and _is_at(self._held, self._name)
        except OSError as error:
            raise StorageError.from_os(error, "look at the lock") from error

    def release(self) -> None:
        """Give the lock back; harmless if it is not held."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        try:
            disk.truncate(fd, 0, os.fspath(self.path))
        except OSError:
            pass  # what the file says is for people; the lock itself is freed below
        os.close(fd)

    def holder(self) -> dict[str, Any] | None:
        """Who holds the lock now, asked for without disturbing anybody."""
        with _telling("look at the lock"):
            try:
                fd = os.open(self.path, disk.READ_FLAGS)
            except FileNotFoundError:
                return None
            try:
                free = _flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB, self.path)
            finally:
                os.close(fd)
            return None if free else _read_text(self.path)

    def _forget(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@contextmanager
def _telling(doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError.from_os(error, doing) from error


def _write_holder(fd: int, path: Path, run_id: str) -> None:
    holder = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": clock.iso(clock.now()),
        "run_id": run_id,
    }
    disk.truncate(fd, 0, os.fspath(path))
    disk.write_all(fd, json.dumps(holder).encode() + b"\n", os.fspath(path))


def _locked(path: Path) -> LockedError:
    holder = _read_text(path)
    who = "Another process"
    if holder:
        who = (
            f"Process {holder.get('pid')} on {holder.get('host')} (since {holder.get('since')}, "
            f"run {holder.get('run_id')})"
        )
    return LockedError(
        f"{who} runs this project.", fix="Wait for it, or stop that process; then run the same command."
    )


def _read_text(path: Path) -> dict[str, Any]:
    """What the lock file says; it decides nothing, so whatever cannot be read is simply not told."""
    try:
        fd = os.open(path, disk.READ_FLAGS)
        try:
            holder = json.loads(os.read(fd, _HOLDER_BYTES))
        finally:
            os.close(fd)
    except (OSError, ValueError, RecursionError):
        return {}
    return holder if isinstance(holder, dict) else {}


class AppendLock:
    """Held for one append, by any thread of any process; `with AppendLock(path): ...`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = os.fspath(path)
        self._fd = -1
        self._mutex = threading.Lock()
        _locks.add(self)

    def acquire(self) -> None:
        """Wait for the lock. A lock file that was replaced meanwhile is opened anew."""
        self._mutex.acquire()
        try:
            while True:
                if self._fd < 0:
                    self._fd = disk.open_file(self._name, _LOCK_FLAGS)
                _flock(self._fd, fcntl.LOCK_EX, self.path)
                if _stat(self._fd, self._name).st_nlink:  # else it was removed or replaced: nobody new can find it
                    return
                self._close()
        except BaseException:
            self._close()
            self._mutex.release()
            raise

    def release(self) -> None:
        """Give the lock back. Where the file system refuses that, to close the file does."""
        try:
            if self._fd >= 0:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        except OSError:
            self._close()
        finally:
            self._mutex.release()

    def close(self) -> None:
        """Close the descriptor; the next `acquire` opens it again."""
        with self._mutex:
            self._close()

    def __del__(self) -> None:
        self._close()

    def __enter__(self) -> AppendLock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _forget(self) -> None:
        self._close()
        self._mutex = threading.Lock()  # whoever held it is a thread of the parent


def _flock(fd: int, how: int, path: Path) -> bool:
    """False if someone else holds it; StorageError where the file system has no locks."""
    try:
        fcntl.flock(fd, how)
    except OSError as error:
        if error.errno in _HELD_ELSEWHERE:
            return False
        if error.errno in _NO_LOCKS:
            raise StorageError(
                f"The file system of {path} has no locks, so two engines could not be told apart.",
                fix="Keep the project on a local disk, or on a network file system with locking.",
            ) from None
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None
    return True


def _stat(fd: int, name: str) -> os.stat_result:
    try:  # with no more than that: every commit comes by
        return os.fstat(fd)
    except OSError as error:
        readable.name(error, name)
        raise


def _identity(fd: int, name: str) -> tuple[int, int]:
    held = _stat(fd, name)
    return (held.st_ino, held.st_dev)


def _is_at(identity: tuple[int, int], name: str) -> bool:
    """Whether the file of that identity is still the one at the path `name`: one stat, before every append."""
    try:
        there = os.lstat(name)
    except FileNotFoundError:
        return False
    return (there.st_ino, there.st_dev) == identity


_locks: weakref.WeakSet[LocalLease | AppendLock] = weakref.WeakSet()


def _forget_all_in_child() -> None:
    for lock in list(_locks):
        lock._forget()


os.register_at_fork(after_in_child=_forget_all_in_child)
