"""What every lease promises: the kernel's lock, the one in memory, and one that may fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import LockedError, StorageError
from holdfast.stores.lock import LocalLease
from holdfast.stores.protocols import Lease
from holdfast.testing import NEVER, FailingLease, MemoryLease

HOLDER = """
import sys
from pathlib import Path
from holdfast.stores.lock import LocalLease
lease = LocalLease(Path(sys.argv[1]))
lease.hold("dead")
print("held", flush=True)
sys.stdin.read()
"""


class LocalWorld:
    """A lock file; another process may hold it and be killed, or the file be replaced."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "engine.lock"

    def open(self) -> Lease:
        return LocalLease(self.path)

    def let_one_die_that_holds_it(self) -> None:
        command = [sys.executable, "-c", HOLDER, str(self.path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        with pytest.raises(LockedError):
            self.open().hold("too early")
        process.kill()
        process.communicate()

    def take_away(self) -> None:
        self.path.unlink()


class MemoryWorld:
    def __init__(self, folder: Path) -> None:
        self.lease = MemoryLease()

    def open(self) -> Lease:
        return self.lease.another()

    def let_one_die_that_holds_it(self) -> None:
        self.open().hold("dead")
        self.lease.crash()

    def take_away(self) -> None:
        self.lease.crash()


class FailingWorld(MemoryWorld):
    def open(self) -> Lease:
        return FailingLease(super().open(), NEVER)


World = LocalWorld | MemoryWorld


@pytest.fixture(params=[LocalWorld, MemoryWorld, FailingWorld])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    made: World = request.param(tmp_path)
    return made


def test_one_holds_it_at_a_time(world: World) -> None:
    """The second is refused and told who has it, and gets it once it is given back."""
    first, second = world.open(), world.open()
    first.hold("r1")
    with pytest.raises(LockedError, match="r1"):
        second.hold("r2")
    assert (first.is_ours(), second.is_ours()) == (True, False)
    first.release()
    second.hold("r2")
    assert (first.is_ours(), second.is_ours()) == (False, True)
    second.release()


def test_anybody_may_ask_who_holds_it(world: World) -> None:
    """Asking changes nothing."""
    lease = world.open()
    assert world.open().holder() is None
    lease.hold("r1")
    for _ in range(2):
        told = world.open().holder()
        assert told is not None and told["run_id"] == "r1"
        assert set(told) == {"host", "pid", "since", "run_id"}
    lease.release()
    assert world.open().holder() is None


def test_it_is_free_when_its_holder_dies(world: World) -> None:
    """At once, whatever the dead one wrote down."""
    world.let_one_die_that_holds_it()
    lease = world.open()
    assert lease.holder() is None
    lease.hold("r2")
    assert lease.is_ours()
    lease.release()


def test_a_replaced_holder_finds_out(world: World) -> None:
    """It is asked before every append; what the old one gives back is not the new one's."""
    old, new = world.open(), world.open()
    old.hold("r1")
    world.take_away()
    assert not old.is_ours()
    new.hold("r2")
    assert (old.is_ours(), new.is_ours()) == (False, True)
    old.release()
    assert new.is_ours()
    told = world.open().holder()
    assert told is not None and told["run_id"] == "r2"
    new.release()


def test_to_give_back_what_is_not_held_is_harmless(world: World) -> None:
    """Also twice."""
    lease = world.open()
    lease.release()
    lease.hold("r1")
    lease.release()
    lease.release()
    assert not lease.is_ours() and lease.holder() is None


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_failure_is_a_storage_error_at_any_operation(number: int) -> None:
    """Whether it is held cannot be told: that is neither yes nor no."""
    lease = FailingLease(MemoryLease(), number)
    with pytest.raises(StorageError):
        lease.hold("r1")
        lease.is_ours()
        lease.holder()
