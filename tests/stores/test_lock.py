"""Locks that the kernel frees, that name their holder, and that a probe never disturbs.

What every lease promises is in test_lease.py.
"""

import errno
import fcntl
import os
import socket
import subprocess
import sys
import threading

import pytest

from holdfast.errors import LockedError, StorageError
from holdfast.stores import lock as lock_module
from holdfast.stores.lock import AppendLock, LocalLease

HOLDER = """
import sys
from pathlib import Path
from holdfast.stores.lock import LocalLease
lock = LocalLease(Path(sys.argv[1]))
lock.hold("r7")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "engine.lock"


@pytest.fixture
def holder(path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_held_lock_is_refused_naming_the_holder(path, holder):
    """The message has process, host and run, and says what to do."""
    with pytest.raises(LockedError) as caught:
        LocalLease(path).hold("r8")
    text = str(caught.value)
    assert f"Process {holder.pid} on {socket.gethostname()}" in text
    assert "run r7" in text
    assert "Wait for it" in text
    told = LocalLease(path).holder()
    assert told is not None
    assert (told["pid"], told["run_id"]) == (holder.pid, "r7")


def test_a_forked_child_does_not_keep_its_parents_lock(path):
    """The lock is free when the parent lets go, even while a child of it lives."""
    lock = LocalLease(path)
    lock.hold("r1")
    pipe_out, pipe_in = os.pipe()
    ready_out, ready_in = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(pipe_in)
        os.write(ready_in, b"!")
        os.read(pipe_out, 1)
        os._exit(0)
    os.read(ready_out, 1)
    os.close(lock._fd)  # as the death of this process would
    lock._fd = -1
    try:
        other = LocalLease(path)
        other.hold("r2")
        other.release()
    finally:
        for fd in (pipe_in, pipe_out, ready_in, ready_out):
            os.close(fd)
        os.waitpid(child, 0)


def test_probing_all_the_time_never_makes_an_acquire_fail(path):
    """While readers ask who holds it, engines take and release the lock without a refusal."""
    path.touch()
    stop = threading.Event()

    def probe() -> None:
        while not stop.is_set():
            LocalLease(path).holder()

    threads = [threading.Thread(target=probe) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            lock = LocalLease(path)
            lock.hold("r1")
            lock.release()
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_reader_needs_no_write_permission(path):
    """The holder is told where the lock file may only be read, and nothing is created where there is none."""
    assert LocalLease(path).holder() is None
    assert not path.exists()
    lock = LocalLease(path)
    lock.hold("r1")
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        assert LocalLease(path).holder()["run_id"] == "r1"
    finally:
        path.parent.chmod(0o755)
        lock.release()
    assert LocalLease(path).holder() is None


def test_a_file_system_without_locks_is_refused(path, monkeypatch):
    """ENOLCK is a StorageError that says so."""

    def no_locks(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock_module.fcntl, "flock", no_locks)
    with pytest.raises(StorageError, match="has no locks"):
        LocalLease(path).hold("r1")
    with path.open() as file:  # descriptors are given out from the lowest on: none was kept
        first = file.fileno()
    with pytest.raises(StorageError, match="has no locks"):
        LocalLease(path).hold("r1")
    with path.open() as file:
        assert file.fileno() == first


def test_a_link_as_lock_file_is_not_followed(path, tmp_path):
    """Nothing is written to what a link named engine.lock points to."""
    (tmp_path / "victim").write_text("precious")
    path.symlink_to(tmp_path / "victim")
    with pytest.raises(StorageError):
        LocalLease(path).hold("r1")
    assert (tmp_path / "victim").read_text() == "precious"


def test_the_append_lock_excludes_threads(tmp_path):
    """A counter that is read and written under the lock by many threads misses no step."""
    append_lock, count = AppendLock(tmp_path / "append.lock"), tmp_path / "count"
    count.write_text("0")

    def add() -> None:
        for _ in range(100):
            with append_lock:
                count.write_text(str(int(count.read_text()) + 1))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    append_lock.close()
    assert count.read_text() == "400"


def test_the_append_lock_follows_a_replaced_file(tmp_path):
    """After the lock file was replaced, the lock is held on the file that others see."""
    path = tmp_path / "append.lock"
    lock = AppendLock(path)
    with lock:
        pass
    path.unlink()
    with lock:
        fd = os.open(path, os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)
    lock.close()


def test_an_append_lock_that_cannot_be_given_back_keeps_nobody_waiting(tmp_path, monkeypatch):
    """Where the file system refuses to unlock, closing the file does: for others, and for ourselves."""
    path = tmp_path / "append.lock"
    lock = AppendLock(path)
    real = fcntl.flock

    def refused(fd: int, how: int) -> None:
        if how == fcntl.LOCK_UN:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", refused)
    with lock:
        pass
    fd = os.open(path, os.O_RDWR)
    real(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)
    with lock:
        pass
    lock.close()


def test_a_lock_that_fails_is_named(path, monkeypatch):
    """The call knows a descriptor only; people are told the file."""

    def failed(fd: int, how: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", failed)
    for take in (lambda: LocalLease(path).hold("r1"), AppendLock(path).acquire, lambda: LocalLease(path).holder()):
        with pytest.raises(
            (StorageError, OSError), match=rf"{path}.*Input/output error|Input/output error.*{path}"
        ):
            take()
