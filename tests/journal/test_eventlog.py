"""EventLog: durable appends from everywhere, and a record that reads whole whatever happened to a writer."""

import errno
import signal
import subprocess
import sys
import threading
import tracemalloc

import pytest
from tests.children import unsynced

from holdfast import EventLog
from holdfast.errors import FormatTooNewError, StorageError, ValueRefusedError
from holdfast.journal.lines import LINE_MAX
from holdfast.journal.read import scan
from holdfast.stores import disk

from .journal_lines import TS, make_lines

APPENDER = """
import sys
from holdfast import EventLog
with EventLog(sys.argv[1]) as log:
    for number in range(int(sys.argv[3])):
        print(log.append({"event": "e", "who": sys.argv[2], "number": number, "pad": "x" * 300}), flush=True)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "events.jsonl"


@pytest.fixture
def log(path):
    with EventLog(path) as log:
        yield log


def append_in_process(path, who: str, count: int, **environment: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", APPENDER, str(path), who, str(count)],
        stdout=subprocess.PIPE,
        env=unsynced(**environment),
    )


def names(path) -> list[str]:
    return [line.event()["event"] for line in scan(path)]


def test_what_was_appended_is_iterated(path, log):
    """Events come back with number and time, without the chain's own members."""
    assert [log.append({"event": "a", "n": 1}), log.append({"event": "b", "text": "ä\n"})] == [1, 2]
    first, second = log
    assert first == {"seq": 1, "ts": first["ts"], "event": "a", "n": 1}
    assert second["text"] == "ä\n"
    assert list(EventLog(path)) == [first, second]


def test_iterating_a_log_that_is_not_there_creates_nothing(path):
    """Looking leaves no trace."""
    assert list(EventLog(path)) == []
    assert not path.parent.exists()


def test_an_event_over_the_limit_is_refused_and_the_log_stays_usable(log):
    """A giant costs nothing but itself."""
    with pytest.raises(ValueRefusedError, match="larger than"):
        log.append({"event": "x" * LINE_MAX})
    assert log.append({"event": "small"}) == 1


@pytest.mark.parametrize(
    ("event", "where"),
    [
        ({"event": "a", "n": float("nan")}, "event.n"),
        ({"event": {"deep": [1, {2}]}}, "event.event.deep[1]"),
        ({"seq": 3}, "event.seq"),
        ({"prev": "x"}, "event.prev"),
    ],
)
def test_what_json_cannot_hold_is_refused_naming_the_field(path, log, event, where):
    """NaN, sets and the log's own names are a TypeError, and nothing is written."""
    with pytest.raises(ValueRefusedError) as caught:
        log.append(event)
    assert caught.value.where == where
    assert isinstance(caught.value, TypeError)
    assert not path.exists()


def test_an_append_is_one_write_and_one_sync(path, log):
    """The first append also makes folder and file durable; each later one costs a single sync."""
    log.append({"event": "a"})
    with disk.failing_at(0, 0) as operations:
        log.append({"event": "b"})
    assert operations == [f"write {path}", f"sync {path}"]


def test_iterating_repairs_a_damaged_middle_and_says_so(path):
    """All good events come, then one that tells what is missing."""
    path.parent.mkdir()
    lines = make_lines(4)
    path.write_bytes(lines[0] + b"rot\n" + lines[2] + lines[3])
    with EventLog(path) as log:
        events = list(log)
        assert [event["event"] for event in events] == ["e1", "e3", "e4", "journal_repaired"]
        assert events[-1]["missing"] == [[2, 2]]
        assert log.notices
        assert log.append({"event": "next"}) == 6
        assert list(log)[-1]["event"] == "next"


def test_a_journal_that_may_only_be_read_is_read(path, monkeypatch):
    """Where the lock cannot be taken for lack of permission, iterating gives the good lines all the same."""
    path.parent.mkdir()
    path.write_bytes(b"".join(make_lines(2)) + b"torn")
    with disk.failing_at(1, errno.EACCES):
        assert [event["event"] for event in EventLog(path)] == ["e1", "e2"]


def test_processes_and_threads_append_without_losing_or_mixing_lines(path, log):
    """Three processes and four threads at once: every line is there, whole, numbered without a gap."""
    processes = [append_in_process(path, f"p{number}", 40) for number in range(3)]

    def append_all(who: str) -> None:
        for number in range(40):
            log.append({"event": "e", "who": who, "number": number})

    threads = [threading.Thread(target=append_all, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in processes:
        process.communicate()
    found = scan(path)
    events = [line.event() for line in found]
    assert [event["seq"] for event in events] == list(range(1, 281))
    assert (found.damage, found.torn) == ([], 0)
    for who in ("p0", "p1", "p2", "t0", "t1", "t2", "t3"):
        assert [event["number"] for event in events if event["who"] == who] == list(range(40))


@pytest.mark.parametrize("how", ["", ":torn"])
def test_a_process_killed_at_every_operation_loses_nothing_it_reported(tmp_path, how):
    """Every number that was printed is in the journal, and the next process goes on after it."""
    number, status = 0, -signal.SIGKILL
    while status == -signal.SIGKILL:
        number += 1
        path = tmp_path / str(number) / "events.jsonl"
        process = append_in_process(path, "p", 2, HOLDFAST_KILL_AT=f"{number}{how}")
        reported = [int(line) for line in process.communicate()[0].split()]
        status = process.returncode
        with EventLog(path) as log:
            log.append({"event": "after"})
            seqs = [event["seq"] for event in log]
        assert set(reported) < set(seqs)
        assert seqs == list(range(1, len(seqs) + 1))
    assert status == 0
    assert number > 6


def test_a_whole_log_is_iterated_line_by_line(path, log):
    """However long it is, it is not held in memory."""
    path.parent.mkdir()
    path.write_bytes(b"".join(make_lines(20_000, extra=b',"text":"%b"' % (b"x" * 500))))
    tracemalloc.start()
    try:
        assert sum(1 for _ in log) == 20_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert path.stat().st_size > 10 << 20 and peak < 6 << 20


def test_a_failed_write_is_told_and_everything_after_it_refused(path, log):
    """The errno is in the message, the log stays closed; a new one cuts the torn line and goes on."""
    log.append({"event": "a"})
    with disk.failing_at(1, errno.ENOSPC, torn=True), pytest.raises(StorageError, match="No space left"):
        log.append({"event": "b"})
    with pytest.raises(StorageError, match="before"):
        log.append({"event": "c"})
    with EventLog(path) as again:
        again.append({"event": "d"})
    assert names(path) == ["a", "d"]


def test_a_failed_opening_can_be_tried_again(log):
    """No descriptors left is an error now and no damage later."""
    with disk.failing_at(3, errno.EMFILE), pytest.raises(StorageError, match="Too many open files"):
        log.append({"event": "a"})
    assert log.append({"event": "a"}) == 1


def test_a_newer_format_is_left_untouched(path):
    """A line of a later Holdfast stops reading and appending, and not a byte is changed."""
    from hashlib import sha256

    covered = b'{"seq":1,"ts":"%s","v":2,"event":"x","prev":"0000000000000000"' % TS.encode()
    content = covered + b',"sum":"%s"}\n' % sha256(covered).hexdigest()[:16].encode()
    path.parent.mkdir()
    path.write_bytes(content)
    with EventLog(path) as log:
        with pytest.raises(FormatTooNewError):
            log.append({"event": "a"})
        with pytest.raises(FormatTooNewError):
            list(log)
    assert path.read_bytes() == content
