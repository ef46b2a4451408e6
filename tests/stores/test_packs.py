"""Objects on this disk: what stands in a pack, and what is left of it after a kill, a power cut or damage."""

import errno
import hashlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import StorageError
from holdfast.stores import disk
from holdfast.stores.objects import PACKED_MAX, LocalObjects
from holdfast.stores.packs import Pack, encode_record


def sha_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def open_store(folder: Path, run_id: str = "r1", *, read_only: bool = False) -> LocalObjects:
    return LocalObjects(folder / "objects", run_id, folder / "tmp", folder / "quarantine", read_only=read_only)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalObjects]:
    store = open_store(tmp_path)
    yield store
    store.close()


def pack_of(folder: Path, number: int = 1) -> Path:
    return folder / "objects" / "r1" / f"{number:04d}.pack"


def packed(folder: Path, content: bytes) -> Path:
    """A pack that somebody left."""
    pack_of(folder).parent.mkdir(parents=True, exist_ok=True)
    pack_of(folder).write_bytes(content)
    return pack_of(folder)


def large(folder: Path, name: str) -> Path:
    return folder / "objects" / "r1" / name


def test_the_pack_is_the_documented_bytes(tmp_path: Path, store: LocalObjects) -> None:
    """A stranger can read it: header line, bytes, newline."""
    name = store.put(b"hello")
    store.sync()
    assert pack_of(tmp_path).read_bytes() == b'{"sha256":"%s","size":5}\nhello\n' % name.encode()


def test_a_large_object_is_a_file_named_by_its_hash(tmp_path: Path, store: LocalObjects) -> None:
    """`sha256sum` proves it; a small one makes no file of its own."""
    name = store.put(b"L" * (PACKED_MAX + 1))
    store.put(b"small")
    store.sync()
    assert sorted(path.name for path in (tmp_path / "objects" / "r1").iterdir()) == ["0001.pack", name]
    assert sha_of(large(tmp_path, name).read_bytes()) == name


def test_an_object_is_kept_once(tmp_path: Path, store: LocalObjects) -> None:
    """Putting the same bytes again, also from a new process, adds nothing."""
    store.put(b"same")
    store.sync()
    store.put(b"same")
    again = open_store(tmp_path)
    again.put(b"same")
    again.sync()
    again.close()
    assert [path.name for path in pack_of(tmp_path).parent.iterdir()] == ["0001.pack"]


def test_a_new_process_never_writes_to_an_old_pack(tmp_path: Path, store: LocalObjects) -> None:
    """Each has a pack of its own, whoever still writes to the others."""
    store.put(b"one")
    store.sync()
    before = pack_of(tmp_path).read_bytes()
    again = open_store(tmp_path)
    again.put(b"two")
    again.sync()
    again.close()
    assert pack_of(tmp_path).read_bytes() == before
    assert pack_of(tmp_path, 2).read_bytes() == encode_record(sha_of(b"two"), b"two")


def test_many_small_objects_go_out_in_one_write(tmp_path: Path, store: LocalObjects) -> None:
    """What was put is readable at once, also before it is written; one flush writes all of it."""
    names = [store.put(b"object %d" % number) for number in range(5)]
    before = disk.writes
    store.flush()
    assert disk.writes == before + 1
    later = store.put(b"not written yet")
    assert store.has(later) and store.get(later) == b"not written yet"
    assert [store.get(name) for name in names] == [b"object %d" % number for number in range(5)]


def test_syncing_is_free_when_nothing_was_put(store: LocalObjects) -> None:
    """One sync covers all puts before it; another costs nothing. The folder is synced once."""
    store.put(b"a")
    store.put(b"b")
    before = disk.syncs
    store.sync()
    assert disk.syncs == before + 2  # the pack, and its folder the first time
    store.sync()
    assert disk.syncs == before + 2
    store.put(b"c")
    store.sync()
    assert disk.syncs == before + 3


def test_what_an_earlier_process_left_unsynced_is_synced(tmp_path: Path, store: LocalObjects) -> None:
    """An object found in another pack is relied upon only after a sync of our own."""
    store.put(b"never synced")
    store.flush()
    again = open_store(tmp_path)
    again.put(b"never synced")
    before = disk.syncs
    again.sync()
    again.close()
    assert disk.syncs > before


def test_a_torn_tail_at_every_byte_is_no_object(tmp_path: Path) -> None:
    """However much of the last record is there, the others are found, and the next process goes on."""
    good, torn = encode_record(sha_of(b"good"), b"good"), encode_record(sha_of(b"torn"), b"torn")
    for cut in range(1, len(torn)):
        base = tmp_path / str(cut)
        packed(base, good + torn[:cut])
        store = open_store(base)
        store.put(b"next")
        store.put(b"torn")
        store.sync()
        store.close()
        again = open_store(base, read_only=True)
        assert [again.get(sha_of(data)) for data in (b"good", b"torn", b"next")] == [b"good", b"torn", b"next"]
        assert again.damage == []


def test_damage_at_every_byte_costs_one_object_and_is_told(tmp_path: Path) -> None:
    """A flipped byte anywhere in the middle record never gives wrong bytes and never hides the others."""
    texts = [b"first", b"second", b"third"]
    records = [encode_record(sha_of(text), text) for text in texts]
    for position in range(len(records[1])):
        damaged = bytearray(records[1])
        damaged[position] ^= 0x10
        packed(tmp_path, records[0] + damaged + records[2])
        store = open_store(tmp_path, read_only=True)
        got = [store.get(sha_of(text)) for text in texts]
        assert got == [b"first", None, b"third"], position
        changed_name = 11 <= position < 75 and 0x30 <= damaged[position] < 0x67
        assert store.damage or changed_name


def test_zeros_in_place_of_lost_blocks_are_not_an_object(tmp_path: Path) -> None:
    """A tail of zeros, as a power cut leaves it, hides nothing that was there before."""
    record = encode_record(sha_of(b"x" * 500), b"x" * 500)
    packed(tmp_path, record + record[:90] + b"\0" * 4000)
    store = open_store(tmp_path, read_only=True)
    assert store.get(sha_of(b"x" * 500)) == b"x" * 500 and store.damage == []


def test_a_damaged_pack_is_copied_without_what_is_rotten(tmp_path: Path) -> None:
    """What is whole is in our own pack before the damaged one, byte for byte, goes to quarantine."""
    texts = [b"first", b"second"]
    records = b"".join(encode_record(sha_of(text), text) for text in texts)
    damaged = records.replace(b"first", b"fir!!")
    packed(tmp_path, damaged)
    store = open_store(tmp_path)
    store.mend()
    store.close()
    assert pack_of(tmp_path, 2).read_bytes() == encode_record(sha_of(b"second"), b"second")
    assert [path.read_bytes() for path in (tmp_path / "quarantine").iterdir()] == [damaged]


def test_a_disk_that_fails_while_a_pack_is_mended_loses_nothing(tmp_path: Path) -> None:
    """Whatever operation fails: it is told, no temporary is left, and what was whole still is."""
    texts = [b"first", b"second", b"third"]
    records = b"".join(encode_record(sha_of(text), text) for text in texts)
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        packed(folder, records.replace(b"first", b"fir!!"))
        store = open_store(folder)
        with disk.failing_at(number, errno.EIO) as operations:
            try:
                store.mend()
            except StorageError as error:
                assert "Input/output error" in str(error), operations
        store.close()
        again = open_store(folder)
        again.mend()
        again.close()
        assert again.get(sha_of(b"third")) == b"third", operations
        assert not list((folder / "tmp").glob("*")), operations
        if len(operations) < number:
            break
    assert number > 5


def test_a_large_object_replaced_by_a_folder_is_a_damaged_one(tmp_path: Path, store: LocalObjects) -> None:
    """It is no copy to heal from, and no reason to stop; put again, the folder goes aside."""
    data = b"L" * (PACKED_MAX + 1)
    name = store.put(data)
    large(tmp_path, name).unlink()
    large(tmp_path, name).mkdir()
    assert not store.copy_to(name, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    again = open_store(tmp_path)
    again.put(data)
    again.close()
    assert again.get(name) == data


def test_a_damaged_large_object_is_set_aside_when_it_comes_again(tmp_path: Path, store: LocalObjects) -> None:
    """The rotten file is kept in quarantine, and the object is whole again."""
    data = b"L" * (PACKED_MAX + 1)
    name = store.put(data)
    large(tmp_path, name).write_bytes(b"rot")
    again = open_store(tmp_path)
    again.put(data)
    again.close()
    assert again.get(name) == data
    assert [entry.read_bytes() for entry in (tmp_path / "quarantine").iterdir()] == [b"rot"]


@pytest.mark.parametrize("torn", [False, True])
def test_a_failure_at_any_operation_loses_nothing_that_was_synced(tmp_path: Path, torn: bool) -> None:
    """After any failed operation the synced object is there, and a new process can go on."""
    for number in itertools.count(1):
        base = tmp_path / str(number)
        store = open_store(base)
        synced = store.put(b"synced")
        store.sync()
        failed = False
        with disk.failing_at(number, errno.ENOSPC, torn=torn):
            try:
                store.put(b"second")
                store.put(b"L" * (PACKED_MAX + 1))
                store.sync()
            except StorageError:
                failed = True
        store.close()
        again = open_store(base)
        assert again.get(synced) == b"synced"
        again.put(b"third")
        again.sync()
        again.close()
        assert open_store(base, read_only=True).get(sha_of(b"third")) == b"third"
        if not failed:
            break
    assert number > 5


def test_a_failed_sync_is_never_repeated(store: LocalObjects) -> None:
    """After fsync failed once, the store refuses to write and to sync: the pages may be lost."""
    store.put(b"a")
    with disk.failing_at(2, errno.EIO), pytest.raises(StorageError, match="Input/output error"):
        store.sync()
    with pytest.raises(StorageError, match="before"):
        store.sync()
    with pytest.raises(StorageError, match="before"):
        store.put(b"b")


def test_a_pack_that_vanished_is_not_called_durable(tmp_path: Path, store: LocalObjects) -> None:
    """Syncing a deleted file proves nothing."""
    store.put(b"a")
    pack_of(tmp_path).unlink()
    with pytest.raises(StorageError):
        store.sync()


def test_the_first_error_of_a_copy_is_shown_even_if_cleaning_up_fails_too(
    tmp_path: Path, store: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENOSPC on the write is reported although removing the half copy then fails with EIO."""
    sha = store.put(b"text")
    store.sync()

    def fail(op: str, path: str) -> None:
        if op in ("write", "unlink"):
            raise OSError(errno.ENOSPC if op == "write" else errno.EIO, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(disk, "hook", fail)
        with pytest.raises(StorageError, match="No space left"):
            store.copy_to(sha, tmp_path / "copy")


def test_a_pack_that_is_cut_while_it_is_read_holds_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader takes no lock, and somebody may change the pack meanwhile."""
    store = open_store(tmp_path)
    names = [store.put(b"%d" % number * 500) for number in range(3)]
    store.sync()
    store.close()
    read = os.pread

    def read_and_cut(descriptor: int, size: int, offset: int) -> bytes:
        data = read(descriptor, size, offset)
        os.truncate(pack_of(tmp_path), 0)
        return data

    monkeypatch.setattr(os, "pread", read_and_cut)
    pack = Pack(pack_of(tmp_path))
    pack.refresh()
    assert list(pack.objects) == names[:-1] and pack.damage == []
