"""What every object store promises: the one on disk, the one in memory, and one that may fail."""

from __future__ import annotations

import errno
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import StorageError
from holdfast.stores.objects import PACKED_MAX, LocalObjects
from holdfast.stores.protocols import Objects
from holdfast.testing import FailingObjects, MemoryObjects

LARGE = b"0123456789" * (PACKED_MAX // 10 + 1)
NOWHERE = "0" * 64


def sha_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class LocalWorld:
    """A folder; every `open` is another process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened: list[LocalObjects] = []

    def open(self, run_id: str = "r1") -> Objects:
        objects = LocalObjects(self.folder / "objects", run_id, self.folder / "tmp", self.folder / "quarantine")
        self._opened.append(objects)
        return objects

    def spoil(self, data: bytes) -> None:
        """Let every kept copy rot."""
        for path in (self.folder / "objects").rglob("*"):
            if path.is_file():
                path.write_bytes(path.read_bytes().replace(data, b"?" * len(data)))

    def crash(self) -> None:
        """The processes are gone; what they had not written out goes with them."""
        for objects in self._opened:
            objects.close()


class MemoryWorld:
    """A dict."""

    def __init__(self, folder: Path) -> None:
        self.objects = MemoryObjects("r1")

    def open(self, run_id: str = "r1") -> Objects:
        return self.objects.another(run_id)

    def spoil(self, data: bytes) -> None:
        for kept in self.objects.kept.values():
            if sha_of(data) in kept:
                kept[sha_of(data)] = b"?" * len(data)

    def crash(self) -> None:
        self.objects.crash()


class FailingWorld(MemoryWorld):
    """One that could fail, and does not: the wrapper changes nothing else."""

    def open(self, run_id: str = "r1") -> Objects:
        return FailingObjects(super().open(run_id), 0)


World = LocalWorld | MemoryWorld


@pytest.fixture(params=[LocalWorld, MemoryWorld, FailingWorld])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = request.param(tmp_path)
    yield made
    if isinstance(made, LocalWorld):
        made.crash()


def test_what_was_put_is_got_back_by_another_process(world: World) -> None:
    """Small, empty and large objects come back whole."""
    contents = [b"", b"text\n", b'{"sha256":"', bytes(range(256)) * 10, LARGE]
    objects = world.open()
    names = [objects.put(data) for data in contents]
    objects.sync()
    again = world.open()
    assert names == [sha_of(data) for data in contents]
    assert [again.get(name) for name in names] == contents
    assert all(again.has(name) and again.is_whole(name) and again.keeps(name, prove=True) for name in names)
    assert again.damage == []


def test_what_was_never_put_is_nowhere(world: World) -> None:
    """No object of that name is there, and asking for it changes nothing."""
    objects = world.open()
    objects.put(b"something else")
    assert objects.get(NOWHERE) is None
    assert not (objects.has(NOWHERE) or objects.is_whole(NOWHERE) or objects.keeps(NOWHERE))


@pytest.mark.parametrize("data", [b"few", LARGE])
def test_blocks_and_files_are_the_same_bytes(world: World, tmp_path: Path, data: bytes) -> None:
    """What was put in pieces is got whole, and copied into a new file."""
    objects = world.open()
    assert objects.put_blocks([data[:2], data[2:]]) == (sha_of(data), len(data))
    assert objects.get(sha_of(data)) == data
    assert objects.copy_to(sha_of(data), tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == data


@pytest.mark.parametrize("data", [b"few", LARGE])
def test_bytes_that_are_not_what_they_should_be_are_not_kept(world: World, data: bytes) -> None:
    """A copy is made again from a file only if that still is what was accepted."""
    objects = world.open()
    assert objects.put_blocks([data, b"!"], sha_of(data)) is None
    assert not objects.has(sha_of(data)) and not objects.has(sha_of(data + b"!"))


def test_a_copy_of_nothing_is_no_file(world: World, tmp_path: Path) -> None:
    """Where no whole object is, no file is left."""
    assert not world.open().copy_to(NOWHERE, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("data", [b"precious words", LARGE])
def test_a_rotten_object_is_never_given(world: World, tmp_path: Path, data: bytes) -> None:
    """It is told, it heals nothing, and putting the bytes again makes it whole."""
    objects = world.open()
    name = objects.put(data)
    objects.sync()
    world.crash()
    world.spoil(data[:14])
    again = world.open()
    if isinstance(world, MemoryWorld):
        world.spoil(data)
    assert again.get(name) is None and again.damage
    assert not again.is_whole(name)
    assert not again.copy_to(name, tmp_path / "copy") and not (tmp_path / "copy").exists()
    last = world.open()
    last.put(data)
    last.sync()
    assert world.open().get(name) == data


def test_mending_puts_the_rotten_out_of_the_way(world: World) -> None:
    """What is whole stays; what is not is no longer kept, until it is put again."""
    objects = world.open()
    names = [objects.put(data) for data in (b"first", b"second", b"third")]
    objects.sync()
    world.crash()
    world.spoil(b"second")
    again = world.open()
    assert dict(again.prove()) == {names[0]: True, names[1]: False, names[2]: True}
    mending = world.open()
    mending.mend()
    assert [mending.keeps(name) for name in names] == [True, False, True]
    assert mending.damage
    mending.put(b"second")
    mending.sync()
    last = world.open()
    assert [last.get(name) for name in names] == [b"first", b"second", b"third"]
    assert all(whole for _, whole in last.prove())


def test_mending_what_is_whole_changes_nothing(world: World) -> None:
    """No damage is told, and everything is still there."""
    objects = world.open()
    name = objects.put(b"whole")
    objects.sync()
    again = world.open()
    again.mend()
    assert again.damage == [] and again.keeps(name) and again.get(name) == b"whole"


def test_other_runs_objects_are_found_but_not_relied_upon(world: World) -> None:
    """Healing looks everywhere; what this run accepts does not depend on another run's objects."""
    other = world.open("r0")
    names = [other.put(b"shared"), other.put(LARGE)]
    other.sync()
    ours = world.open()
    assert [ours.get(name) for name in names] == [b"shared", LARGE]
    assert not any(ours.keeps(name) for name in names)
    ours.put(b"shared")
    ours.sync()
    ours.drop("r0")
    again = world.open()
    assert again.get(names[0]) == b"shared" and again.get(names[1]) is None


def test_dropping_a_run_that_is_not_there_is_harmless(world: World) -> None:
    """Whoever cleans twice changes nothing the second time."""
    objects = world.open()
    name = objects.put(b"ours")
    objects.sync()
    objects.drop("nobody")
    assert world.open().get(name) == b"ours"


def test_what_was_synced_survives_a_crash(world: World) -> None:
    """And whoever comes next can go on."""
    objects = world.open()
    names = [objects.put(b"synced"), objects.put(LARGE)]
    objects.sync()
    objects.put(b"perhaps lost")
    world.crash()
    again = world.open()
    assert [again.get(name) for name in names] == [b"synced", LARGE]
    again.put(b"next")
    again.sync()
    world.crash()
    assert world.open().get(sha_of(b"next")) == b"next"


def test_a_reader_sees_what_is_put_later(world: World) -> None:
    """A miss looks again."""
    writer, reader = world.open(), world.open()
    for data in (b"one", b"two", LARGE):
        assert not reader.has(sha_of(data))
        writer.put(data)
        writer.sync()
        assert reader.get(sha_of(data)) == data


def test_writers_at_once_do_not_mix_their_objects(world: World) -> None:
    """Four processes of one run with two threads each leave everything whole."""
    texts = [[f"{thread} {number}".encode() * 50 for number in range(20)] for thread in range(8)]
    stores = [world.open() for _ in range(4)]

    def put_all(objects: Objects, mine: list[bytes]) -> None:
        for text in mine:
            objects.put(text)
            objects.sync()

    threads = [threading.Thread(target=put_all, args=(stores[n % 4], mine)) for n, mine in enumerate(texts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = world.open()
    assert all(again.get(sha_of(text)) == text for mine in texts for text in mine)
    assert again.damage == [] and all(whole for _, whole in again.prove())


@pytest.mark.parametrize("at", [1, 2, 3])
def test_after_a_failure_nothing_more_is_taken(at: int) -> None:
    """A failed write or sync is told as what the machine said, and never repeated; what was synced is there."""
    inner = MemoryObjects()
    inner.put(b"synced")
    inner.sync()
    objects = FailingObjects(inner, at, error=errno.ENOSPC)
    with pytest.raises(StorageError, match="No space left"):
        for data in (b"one", b"two", b"three"):
            objects.put(data)
    with pytest.raises(StorageError):
        objects.sync()
    inner.crash()
    assert inner.get(sha_of(b"synced")) == b"synced"
