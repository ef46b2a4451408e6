"""The journal in a file: what is written and synced when, and what happens to the file under a writer.

What every journal promises is in tests/stores/test_journal.py.
"""

import errno
import threading

import pytest

from holdfast.errors import CheckpointCorruptionError, StorageError
from holdfast.journal.lines import encode_line
from holdfast.journal.read import scan
from holdfast.stores import disk

from .journal_lines import TS, Appender, make_lines


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "events.jsonl"


@pytest.fixture
def log(path):
    with Appender(path) as log:
        yield log


def names(path) -> list[str]:
    return [line.event()["event"] for line in scan(path)]


def test_the_new_file_and_its_folder_are_durable_before_the_first_line(path):
    """Folder, file and line are each synced, in this order."""
    with (
        Appender(path, lock_path=path.parent.parent / "append.lock") as log,
        disk.failing_at(0, 0) as operations,
    ):
        log.append({"event": "a"})
    assert operations == [
        f"mkdir {path.parent}",
        f"sync {path.parent.parent}",
        f"open {path.parent.parent}/append.lock",
        f"open {path}",
        f"sync {path.parent}",
        f"write {path}",
        f"sync {path}",
    ]


def test_a_torn_tail_at_every_byte_is_cut_off_by_the_next_append(tmp_path):
    """However the last line was cut, the next append starts on a new line and the cut bytes are kept."""
    lines = make_lines(3)
    for cut in range(1, len(lines[2])):
        path = tmp_path / str(cut) / "events.jsonl"
        path.parent.mkdir()
        path.write_bytes(lines[0] + lines[1] + lines[2][:cut])
        with Appender(path) as log:
            assert log.append({"event": "next"}) == 3
        assert names(path) == ["e1", "e2", "next"]
        (kept,) = (path.parent / "events.jsonl.quarantine").iterdir()
        assert kept.read_bytes() == lines[2][:cut]


def test_a_journal_replaced_by_its_copy_is_continued(path, log):
    """A new file that contains our lines, and more, is read on; the lines go to the new file."""
    log.append({"event": "a"})
    more, _ = encode_line(2, TS, b'{"event":"more"}', path.read_bytes()[-19:-3].decode())
    replacement = path.with_name("copy")
    replacement.write_bytes(path.read_bytes() + more)
    replacement.rename(path)
    batch = log.begin(log.position)
    assert [line.event()["event"] for line in batch.foreign] == ["more"]
    batch.abort()
    log.append({"event": "b"})
    assert names(path) == ["a", "more", "b"]


def test_what_was_not_synced_before_a_journal_was_replaced_is_not_called_durable(path, tmp_path):
    """The new file cannot be opened, the old one is given up: whoever waits for a sync is told."""
    log = Appender(path, lock_path=tmp_path / "append.lock")
    log.append({"event": "a"})
    batch = log.begin()
    batch.add(b'{"event":"b"}', TS)
    batch.commit()
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.rename(path)
    with disk.failing_at(1, errno.EMFILE) as seen, pytest.raises(StorageError):
        log.begin()
    assert seen == [f"open {path}"]
    with pytest.raises(StorageError, match="could not be written before"):
        log.sync()


@pytest.mark.parametrize("content", [None, b""])
def test_a_journal_that_lost_our_lines_stops_the_writer(path, log, content):
    """Removed or emptied while in use: an error, never a journal that begins anew."""
    log.append({"event": "a"})
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointCorruptionError) as caught:
        log.append({"event": "b"})
    assert caught.value.fix == "Stop whoever changes it, then go on with a new EventLog."


def test_whoever_has_a_run_is_told_to_resume_it(path, tmp_path):
    """A journal of somebody's own has no run, and no command goes on with it."""
    with Appender(path, lock_path=tmp_path / "append.lock") as log:
        log.append({"event": "a"})
        path.unlink()
        with pytest.raises(CheckpointCorruptionError) as caught:
            log.append({"event": "b"})
    assert caught.value.fix == "Stop whoever changes it, then run 'holdfast resume'."


def test_a_failed_sync_is_never_repeated(log):
    """After EIO on fsync no later sync may claim success."""
    log.append({"event": "a"})
    batch = log.begin()
    batch.add(b'{"event":"b"}', TS)
    batch.commit()
    with disk.failing_at(1, errno.EIO), pytest.raises(StorageError):
        log.sync()
    with pytest.raises(StorageError):
        log.sync()
    with pytest.raises(StorageError):
        log.begin()


def test_a_folder_that_could_not_be_synced_is_synced_before_anything_is_called_durable(path, tmp_path):
    """The name of a new journal is not on the medium yet: an append that is tried again sees to that first."""
    log = Appender(path, lock_path=tmp_path / "append.lock")
    with disk.failing_at(5, errno.EIO) as seen, pytest.raises(StorageError, match="Input/output error"):
        log.append({"event": "a"})
    assert seen[-1] == f"sync {path.parent}"
    with disk.failing_at(0, 0) as again:
        log.append({"event": "a"})
    assert again.count(f"sync {path.parent}") == 1
    assert again.index(f"sync {path.parent}") < again.index(f"write {path}")


def test_one_sync_covers_all_that_was_committed_before_it(log):
    """Callers whose lines an earlier sync covered do not sync again."""
    for _ in range(3):
        batch = log.begin()
        batch.add(b'{"event":"a"}', TS)
        batch.commit()
    before = disk.syncs
    log.sync()
    log.sync()
    assert disk.syncs == before + 1


def test_callers_that_wait_share_one_sync(log, monkeypatch):
    """While one sync runs, five more callers arrive: together they cost one more."""
    log.append({"event": "first"})
    running, go_on = threading.Event(), threading.Event()
    real_sync = disk.sync_data
    calls = []

    def slow_sync(fd: int, path: str) -> None:
        calls.append(path)
        running.set()
        assert go_on.wait(60)
        real_sync(fd, path)

    monkeypatch.setattr(disk, "sync_data", slow_sync)
    committed = threading.Semaphore(0)

    def append() -> None:
        batch = log.begin()
        batch.add(b'{"event":"a"}', TS)
        batch.commit()
        committed.release()
        log.sync()

    threads = [threading.Thread(target=append, daemon=True) for _ in range(6)]
    threads[0].start()
    assert running.wait(60)
    for thread in threads[1:]:
        thread.start()
    for _ in threads:
        assert committed.acquire(timeout=60)
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(calls) == 2
