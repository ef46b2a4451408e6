"""Objects by content hash: found again whole, or reported damaged, whatever happened to the pack."""

import errno
import hashlib
import itertools
import os
import threading
from pathlib import Path

import pytest

from holdfast.errors import StorageError
from holdfast.stores import disk
from holdfast.stores.objects import PACKED_MAX, ObjectStore
from holdfast.stores.packs import Pack, encode_record


def sha_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def open_store(tmp_path, run_id="r1", *, read_only=False):
    quarantine = tmp_path / "quarantine"
    return ObjectStore(tmp_path / "objects", run_id, tmp_path / "tmp", quarantine, read_only=read_only)


@pytest.fixture
def store(tmp_path):
    store = open_store(tmp_path)
    yield store
    store.flush()
    store.close()


def pack_of(tmp_path, run_id="r1"):
    return tmp_path / "objects" / f"{run_id}.pack"


def test_what_was_put_is_got_back_by_another_process(tmp_path, store):
    """Small, empty and large objects come back whole from a store that scans the disk anew."""
    objects = [b"", b"text\n", b'{"sha256":"', bytes(range(256)) * 10, b"x" * (PACKED_MAX + 1)]
    names = [store.put(data) for data in objects]
    store.sync()
    again = open_store(tmp_path, read_only=True)
    assert names == [sha_of(data) for data in objects]
    assert [again.get(name) for name in names] == objects
    assert again.damage == []
    assert again.get("0" * 64) is None
    assert not again.has("0" * 64)


def test_the_pack_is_the_documented_bytes(tmp_path, store):
    """A stranger can read it: header line, bytes, newline."""
    name = store.put(b"hello")
    store.flush()
    assert pack_of(tmp_path).read_bytes() == b'{"sha256":"%s","size":5}\nhello\n' % name.encode()


def test_an_object_is_kept_once(tmp_path, store):
    """Putting the same bytes again, also from a new process, adds nothing."""
    store.put(b"same")
    store.flush()
    size = pack_of(tmp_path).stat().st_size
    store.put(b"same")
    again = open_store(tmp_path)
    again.put(b"same")
    again.flush()
    again.close()
    assert pack_of(tmp_path).stat().st_size == size


def test_a_rotten_copy_is_not_relied_upon(tmp_path, store):
    """Putting bytes whose kept copy is damaged keeps them anew."""
    name = store.put(b"precious words")
    store.flush()
    raw = pack_of(tmp_path).read_bytes()
    pack_of(tmp_path).write_bytes(raw.replace(b"words", b"sword"))
    again = open_store(tmp_path)
    again.put(b"precious words")
    again.flush()
    again.close()
    assert open_store(tmp_path, read_only=True).get(name) == b"precious words"
    assert "damaged" in again.damage[0]


def test_many_small_objects_go_out_in_one_write(tmp_path, store):
    """What was put is readable at once, also before it is written; one flush writes all of it."""
    names = [store.put(b"object %d" % number) for number in range(5)]
    before = disk.writes
    store.flush()
    assert disk.writes == before + 1
    later = store.put(b"not written yet")
    assert store.has(later) and store.get(later) == b"not written yet"
    assert [store.get(name) for name in names] == [b"object %d" % number for number in range(5)]


def test_syncing_is_free_when_nothing_was_put(store):
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


def test_what_an_earlier_process_left_unsynced_is_synced(tmp_path, store):
    """An object found in the pack is relied upon only after a sync of our own."""
    store.put(b"never synced")
    again = open_store(tmp_path)
    again.put(b"never synced")
    before = disk.syncs
    again.sync()
    again.flush()
    again.close()
    assert disk.syncs > before


def test_a_torn_tail_at_every_byte_is_cut_off_and_kept(tmp_path):
    """However much of the last record is there, the others are found and the next append is whole."""
    good, torn = encode_record(sha_of(b"good"), b"good"), encode_record(sha_of(b"torn"), b"torn")
    for cut in range(1, len(torn)):
        base = tmp_path / str(cut)
        pack_of(base).parent.mkdir(parents=True)
        pack_of(base).write_bytes(good + torn[:cut])
        store = open_store(base)
        store.put(b"next")
        store.flush()
        store.close()
        assert pack_of(base).read_bytes() == good + encode_record(sha_of(b"next"), b"next")
        (kept,) = (base / "quarantine").iterdir()
        assert kept.read_bytes() == torn[:cut]


def test_reading_only_changes_nothing(tmp_path):
    """A torn tail stays where it is for a store that may not write."""
    pack_of(tmp_path).parent.mkdir()
    content = encode_record(sha_of(b"good"), b"good") + b'{"sha256":"'
    pack_of(tmp_path).write_bytes(content)
    store = open_store(tmp_path, read_only=True)
    assert store.get(sha_of(b"good")) == b"good"
    assert pack_of(tmp_path).read_bytes() == content
    assert not (tmp_path / "quarantine").exists()


def test_damage_at_every_byte_costs_one_object_and_is_told(tmp_path):
    """A flipped byte anywhere in the middle record never gives wrong bytes and never hides the others."""
    texts = [b"first", b"second", b"third"]
    records = [encode_record(sha_of(text), text) for text in texts]
    pack_of(tmp_path).parent.mkdir()
    for position in range(len(records[1])):
        damaged = bytearray(records[1])
        damaged[position] ^= 0x10
        pack_of(tmp_path).write_bytes(records[0] + damaged + records[2])
        store = open_store(tmp_path, read_only=True)
        got = [store.get(sha_of(text)) for text in texts]
        assert got == [b"first", None, b"third"], position
        changed_name = 11 <= position < 75 and 0x30 <= damaged[position] < 0x67
        assert store.damage or changed_name


def test_zeros_in_place_of_lost_blocks_are_not_an_object(tmp_path):
    """A tail of zeros, as a power cut leaves it, is cut off."""
    pack_of(tmp_path).parent.mkdir()
    record = encode_record(sha_of(b"x" * 500), b"x" * 500)
    pack_of(tmp_path).write_bytes(record + record[:90] + b"\0" * 4000)
    store = open_store(tmp_path)
    store.put(b"next")
    store.flush()
    store.close()
    assert pack_of(tmp_path).read_bytes().count(b"\0") == 0


def test_other_runs_objects_are_found_but_kept_again_in_our_own(tmp_path, store):
    """Healing looks everywhere; what this run accepts does not depend on another run's pack."""
    other = open_store(tmp_path, "r0")
    name = other.put(b"shared")
    other.flush()
    other.close()
    assert store.get(name) == b"shared"
    store.put(b"shared")
    store.flush()
    pack_of(tmp_path, "r0").unlink()
    assert open_store(tmp_path, read_only=True).get(name) == b"shared"


def test_a_reader_sees_what_is_appended_later(tmp_path, store):
    """A miss looks again at packs that grew."""
    reader = open_store(tmp_path, read_only=True)
    store.put(b"one")
    store.flush()
    assert reader.get(sha_of(b"one")) == b"one"
    store.put(b"two")
    store.flush()
    assert reader.get(sha_of(b"two")) == b"two"


def test_large_files_are_streamed_in_and_out(tmp_path, store):
    """put_file and copy_to give the same bytes, and a damaged one is refused without leaving a file."""
    source = tmp_path / "large"
    source.write_bytes(b"0123456789" * 300_000)
    name, size = store.put_file(source)
    assert (name, size) == (sha_of(source.read_bytes()), 3_000_000)
    assert store.copy_to(name, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == source.read_bytes()
    loose = tmp_path / "objects" / "loose" / name[:2] / name[2:]
    loose.write_bytes(b"rot")
    assert not store.copy_to(name, tmp_path / "out2")
    assert not (tmp_path / "out2").exists()
    assert store.get(name) is None
    assert list((tmp_path / "tmp").iterdir()) == []
    assert store.damage


def test_a_large_object_replaced_by_a_folder_is_a_damaged_one(tmp_path, store):
    """It is no copy to heal from, and no reason to stop."""
    source = tmp_path / "large"
    source.write_bytes(b"0123456789" * 300_000)
    name, _ = store.put_file(source)
    loose = tmp_path / "objects" / "loose" / name[:2] / name[2:]
    loose.unlink()
    loose.mkdir()
    assert not store.copy_to(name, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_small_files_go_to_the_pack(tmp_path, store):
    """put_file of a small file and copy_to from the pack are the same bytes."""
    (tmp_path / "small").write_bytes(b"few")
    name, _ = store.put_file(tmp_path / "small")
    assert store.copy_to(name, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"few"
    assert not (tmp_path / "objects" / "loose").exists()
    assert not store.copy_to("0" * 64, tmp_path / "none")


@pytest.mark.parametrize("torn", [False, True])
def test_a_failure_at_any_operation_loses_nothing_that_was_synced(tmp_path, torn):
    """After any failed operation the synced object is there, and a new store can go on."""
    number = 0
    while True:
        number += 1
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
            except OSError:
                failed = True
        store.flush()
        store.close()
        again = open_store(base)
        assert again.get(synced) == b"synced"
        again.put(b"third")
        again.sync()
        again.flush()
        again.close()
        assert open_store(base, read_only=True).get(sha_of(b"third")) == b"third"
        if not failed:
            break
    assert number > 5


def test_a_failed_sync_is_never_repeated(store):
    """After fsync failed once, the store refuses to write and to sync: the pages may be lost."""
    store.put(b"a")
    with disk.failing_at(1, errno.EIO), pytest.raises(OSError):
        store.sync()
    with pytest.raises(StorageError):
        store.sync()
    with pytest.raises(StorageError):
        store.put(b"b")


def test_a_pack_that_vanished_is_not_called_durable(tmp_path, store):
    """Syncing a deleted file proves nothing."""
    store.put(b"a")
    pack_of(tmp_path).unlink()
    with pytest.raises(OSError):
        store.sync()


def test_threads_put_without_mixing_records(tmp_path, store):
    """Eight threads at once leave a pack without damage that holds everything."""
    texts = [[f"{thread} {number}".encode() * 50 for number in range(40)] for thread in range(8)]

    def put_all(mine: list[bytes]) -> None:
        for text in mine:
            store.put(text)
            store.sync()

    threads = [threading.Thread(target=put_all, args=(mine,)) for mine in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = open_store(tmp_path, read_only=True)
    assert all(again.get(sha_of(text)) == text for mine in texts for text in mine)
    assert again.damage == []


def test_a_damaged_large_object_is_set_aside_when_it_comes_again(tmp_path, store):
    """The rotten file is kept in quarantine, and the object is whole again."""
    data = b"L" * (PACKED_MAX + 1)
    name = store.put(data)
    loose = tmp_path / "objects" / "loose" / name[:2] / name[2:]
    loose.write_bytes(b"rot")
    again = open_store(tmp_path)
    again.put(data)
    again.flush()
    again.close()
    assert again.get(name) == data
    assert [entry.read_bytes() for entry in (tmp_path / "quarantine").iterdir()] == [b"rot"]


def rotten(tmp_path: Path, *contents: bytes) -> ObjectStore:
    """A store whose pack holds these objects, the first with a flipped byte."""
    store = ObjectStore(tmp_path / "objects", "r", tmp_path / "tmp", tmp_path / "quarantine")
    for data in contents:
        store.put(data)
    store.sync()
    store.close()
    pack = tmp_path / "objects" / "r.pack"
    pack.write_bytes(pack.read_bytes().replace(contents[0], contents[0][:-1] + b"!"))
    return ObjectStore(tmp_path / "objects", "r", tmp_path / "tmp", tmp_path / "quarantine")


def test_a_pack_with_a_rotten_object_is_written_anew(tmp_path: Path) -> None:
    """The others stay, the rotten one is lacking, and the damaged pack is in quarantine."""
    (tmp_path / "tmp").mkdir()
    store = rotten(tmp_path, b"first", b"second", b"third")
    damaged = (tmp_path / "objects" / "r.pack").read_bytes()
    store.mend()
    shas = [hashlib.sha256(data).hexdigest() for data in (b"first", b"second", b"third")]
    assert [store.lacks(sha) for sha in shas] == [True, False, False]
    assert store.get(shas[2]) == b"third"
    (kept,) = (tmp_path / "quarantine").iterdir()
    assert kept.read_bytes() == damaged
    assert store.put(b"first") == shas[0]
    store.sync()
    store.close()
    again = ObjectStore(tmp_path / "objects", "r", tmp_path / "tmp", read_only=True)
    assert [again.get(sha) for sha in shas] == [b"first", b"second", b"third"]


def test_a_disk_that_fails_while_a_pack_is_mended_leaves_no_litter(tmp_path: Path) -> None:
    """Whatever operation fails: its errno is told, the store can be closed, and no temporary is left."""
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        store = rotten(folder, b"first", b"second", b"third")
        try:
            with disk.failing_at(number, errno.EIO) as operations:
                store.mend()
        except OSError as error:
            assert error.errno == errno.EIO, operations
        store.close()
        again = ObjectStore(folder / "objects", "r", folder / "tmp", read_only=True)
        assert again.get(sha_of(b"third")) == b"third", operations
        assert not list((folder / "tmp").glob("*")), operations
        if len(operations) < number:
            break
    assert number > 10


def test_the_first_error_of_a_copy_is_shown_even_if_cleaning_up_fails_too(tmp_path, store, monkeypatch):
    """ENOSPC on the write is reported although removing the half copy then fails with EIO."""
    sha = store.put(b"text")
    store.flush()

    def fail(op: str, path: str) -> None:
        if op in ("write", "unlink"):
            raise OSError(errno.ENOSPC if op == "write" else errno.EIO, op)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "hook", fail)
        with pytest.raises(OSError) as caught:
            store.copy_to(sha, tmp_path / "copy")
    assert caught.value.errno == errno.ENOSPC


def test_a_whole_pack_is_not_touched_by_mending(tmp_path: Path) -> None:
    """Mending what is whole writes nothing."""
    store = ObjectStore(tmp_path / "objects", "r", tmp_path / "tmp", tmp_path / "quarantine")
    store.put(b"first")
    store.sync()
    store.close()
    before = (tmp_path / "objects" / "r.pack").stat()
    store = ObjectStore(tmp_path / "objects", "r", tmp_path / "tmp", tmp_path / "quarantine")
    store.mend()
    after = (tmp_path / "objects" / "r.pack").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert store.damage == []


def test_a_tail_that_could_not_be_cut_off_is_not_appended_to(tmp_path: Path) -> None:
    """Whatever fails while a pack is taken up: what is put afterwards is refused, or found again."""
    for number in range(1, 100):
        folder = tmp_path / str(number)
        before = open_store(folder)
        before.put(b"first")
        before.sync()
        before.close()
        with pack_of(folder).open("ab") as file:
            file.write(b'{"sha256":"torn')
        store = open_store(folder)
        with disk.failing_at(number, errno.ENOSPC) as seen:
            try:
                store.put(b"second")
            except OSError:
                pass
        if len(seen) < number:
            return
        try:
            name = store.put(b"third")
            store.sync()
        except StorageError:
            continue
        assert store.get(name) == b"third"
    raise AssertionError("it never ends")


def test_a_pack_that_is_cut_while_it_is_read_holds_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader takes no lock, and whoever opens the pack may cut off its torn end meanwhile."""
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


@pytest.mark.parametrize("size", [10, PACKED_MAX + 1])
def test_bytes_that_are_not_what_they_should_be_are_not_kept(tmp_path, size):
    """A copy that is made again from a file is made only if the file still is what was accepted."""
    source, wanted = tmp_path / "file", sha_of(b"x" * size)
    source.write_bytes(b"y" * size)
    store = open_store(tmp_path)
    with source.open("rb") as file:
        assert not store.put_whole(file.fileno(), size, wanted)
    assert not store.has(wanted)
    assert os.listdir(tmp_path / "tmp") == []
