"""Room behind the last line of a journal in use: it speeds up syncs, and costs nobody anything."""

import json
import os

import pytest

from holdfast.errors import CheckpointCorruptionError, StorageError
from holdfast.journal.lines import LINE_MAX
from holdfast.journal.log import LocalJournal
from holdfast.journal.preallocation import ROOM_MAX, room_after
from holdfast.journal.read import scan
from holdfast.journal.repair import repair

from .journal_lines import Appender, make_lines


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "events.jsonl"


@pytest.fixture
def log(path):
    with Appender(path, preallocates=True) as log:
        yield log


def seqs(path) -> list[int]:
    return [line.seq for line in scan(path)]


def swap(path, old: bytes, new: bytes) -> None:
    """Write over the same file, as its owner does; the time of its last change tells nothing."""
    data = path.read_bytes()
    assert old in data
    with open(path, "r+b") as file:
        file.write(data.replace(old, new, 1))


def test_every_line_is_an_object_at_every_moment(path, log):
    """Whoever reads line by line meets neither blank lines nor torn ones, however often room is made."""
    for number in range(1, 200):
        log.append({"event": "e", "pad": "x" * 1000})
        lines = path.read_bytes().splitlines()
        assert [json.loads(line)["seq"] for line in lines] == list(range(1, number + 1))


def test_lines_within_the_room_leave_the_size_alone(path, log):
    """That is what makes their syncs cheap."""
    log.append({"event": "first"})
    size = path.stat().st_size
    assert size > room_after(0)
    for _ in range(50):
        log.append({"event": "e"})
    assert path.stat().st_size == size
    assert seqs(path) == list(range(1, 52))


def test_room_given_back_leaves_the_very_lines(path, log):
    """The file is then what a log without room would have written; giving back twice is no harm."""
    for _ in range(3):
        log.append({"event": "e"})
    log.close()
    log.close()
    assert path.read_bytes() == b"".join(line.raw for line in scan(path))
    assert path.read_bytes().endswith(b"}\n")
    log.append({"event": "more"})
    assert seqs(path) == [1, 2, 3, 4]


def test_others_write_into_the_room_and_are_heard(path, log):
    """With or without room of their own; they leave one object a line behind."""
    log.append({"event": "mine"})
    with Appender(path) as other:
        other.append({"event": "theirs"})
    assert log.has_news()
    assert [json.loads(line)["event"] for line in path.read_bytes().splitlines()] == ["mine", "theirs"]
    batch = log.begin(log.position)
    assert [line.event()["event"] for line in batch.foreign] == ["theirs"]
    batch.abort()
    log.append({"event": "again"})
    assert not log.has_news()
    assert seqs(path) == [1, 2, 3]


@pytest.mark.parametrize("pad", [700, 701, 703])
def test_a_reader_who_is_overtaken_by_the_writer_meets_no_damage(path, log, pad):
    """It has read room where lines stand now, and then meets what was written behind the room."""
    log.append({"event": "e"})
    size = path.stat().st_size
    reading = scan(path)
    lines = iter(reading)
    read = [next(lines).seq]
    while path.stat().st_size == size:
        log.append({"event": "e", "pad": "x" * pad})
    log.append({"event": "last"})
    read += [line.seq for line in lines]
    assert read == list(range(1, log.position.seq + 1))
    assert (reading.damage, reading.torn, reading.position) == ([], 0, log.position)


def test_a_line_of_others_that_is_larger_than_the_room_stays_whole(path, log):
    """They make the file as long as they need."""
    log.append({"event": "mine"})
    with Appender(path) as other:
        other.append({"event": "theirs", "pad": "x" * 3 * ROOM_MAX})
    log.append({"event": "again"})
    assert seqs(path) == [1, 2, 3]
    assert not scan(path).torn


def test_a_killed_writer_leaves_room_that_the_next_one_uses(path):
    """Room is no torn tail: nothing is cut off, and nothing told."""
    dead = Appender(path, preallocates=True)
    dead.append({"event": "last words"})
    del dead
    size = path.stat().st_size
    with Appender(path, preallocates=True) as log:
        log.append({"event": "next"})
        assert (log.take_notices(), path.stat().st_size) == ([], size)
    assert seqs(path) == [1, 2]


def test_a_write_torn_at_any_byte_of_the_room_costs_only_itself(path):
    """The line before it stays; the rest is cut off, and the line there ends in its newline again."""
    first, second = make_lines(2)
    for part in range(1, len(second) - 1):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(first[:-1] + b"\n" + second[:part] + b" " * 500 + b"\n")
        with Appender(path) as log:
            assert log.append({"event": "next"}) == 2
            assert len(log.take_notices()) == 1
        assert seqs(path) == [1, 2]
        assert path.read_bytes().startswith(first)


@pytest.mark.parametrize("kept", [0b01, 0b10, 0b100, 0b110, 0b101, 0b1010, 0b1000])
def test_sectors_of_a_write_that_are_kept_without_the_first_cost_no_line_before_it(path, log, kept):
    """A power cut may leave the end of later lines on the line of the last one that was synced."""
    log.append({"event": "synced", "like": {"a": 1, "prev": "0" * 16, "sum": "0" * 16}})
    before = path.read_bytes()
    for _ in range(5):
        log.append({"event": "unsynced", "pad": "x" * 300})
    after = path.read_bytes()
    sectors = [
        (after if kept >> n & 1 else before)[n * 512 : n * 512 + 512] for n in range(len(before) // 512 + 1)
    ]
    path.write_bytes(b"".join(sectors))
    found = scan(path)
    assert [line.seq for line in found][:1] == [1]
    assert found.torn or found.damage
    repair(path, path.parent / "quarantine")
    assert seqs(path)[:1] == [1]
    assert not scan(path).damage


@pytest.mark.parametrize("spoiled", [b"\0" * 40, b"x", b"\xff\n\xff", b'{"seq":2', b"   y"])
def test_damage_in_the_room_costs_no_line(path, spoiled):
    """A flipped byte behind a whole line is cut off like a torn tail, and kept."""
    first, second = make_lines(2)
    path.parent.mkdir()
    path.write_bytes(first + second[:-1] + spoiled + b" " * 100 + b"\n")
    found = scan(path)
    assert [line.seq for line in found] == [1, 2]
    assert (found.damage, found.end.offset) == ([], len(first + second))
    assert found.torn
    assert repair(path, path.parent / "quarantine")
    assert path.read_bytes() == first + second


def test_a_position_means_the_same_with_room_and_without(path, log):
    """What a snapshot names is found, whoever wrote behind it since."""
    log.append({"event": "one"})
    marks = [log.position]
    log.append({"event": "two"})
    marks.append(log.position)
    for _ in range(2):
        rest = scan(path, marks[0])
        assert [line.position for line in rest] == marks[1:] and rest.anchored
        assert all(LocalJournal(path).is_whole(mark) for mark in marks)
        assert LocalJournal(path).last() == marks[-1]
        assert seqs(path) == [1, 2]
        log.close()


def test_a_repaired_journal_is_found_by_the_one_who_has_the_old_one_open(path, log, tmp_path):
    """Also if the damage lies before its last line, where it never looks."""
    for name in ("one", "two", "three"):
        log.append({"event": name})
    swap(path, b"one", b"eno")
    assert repair(path, tmp_path / "quarantine")
    log.append({"event": "after"})
    assert [line.event()["event"] for line in scan(path)] == ["two", "three", "journal_repaired", "after"]


def test_a_repair_leaves_a_second_name_of_the_damaged_journal_alone(path, log, tmp_path):
    """A backup made with a hard link keeps its bytes, and whoever has the old one open still finds the new one."""
    for name in ("one", "two"):
        log.append({"event": name})
    backup = tmp_path / "backup.jsonl"
    os.link(path, backup)
    swap(path, b"one", b"eno")
    damaged = backup.read_bytes()
    assert repair(path, tmp_path / "quarantine")
    assert backup.read_bytes() == damaged
    assert log.has_news()
    log.append({"event": "after"})
    assert [line.event()["event"] for line in scan(path)] == ["two", "journal_repaired", "after"]


@pytest.mark.parametrize("replacement", [b"", make_lines(1)[0]], ids=["nothing", "another"])
def test_a_journal_lost_in_use_is_missed_and_kept(path, log, replacement):
    """The quick look cannot see it; the next look for news does, and what we still have open is kept."""
    for name in ("one", "two"):
        log.append({"event": name})
    path.unlink()
    if replacement:
        path.write_bytes(replacement)
    log.has_news()
    with pytest.raises(CheckpointCorruptionError, match=r"kept as events\.jsonl\.lost") as raised:
        log.append({"event": "three"})
    (kept,) = path.with_name("events.jsonl.quarantine").iterdir()
    assert [line.event()["event"] for line in scan(kept)] == ["one", "two"]
    assert kept.name in str(raised.value)
    with pytest.raises(StorageError):
        log.append({"event": "three"})


def test_a_journal_cut_short_in_use_is_missed(path, log):
    """Our own lines are gone: that is never written over."""
    log.append({"event": "one"})
    log.append({"event": "two"})
    os.truncate(path, log.position.hint - 30)
    with pytest.raises(CheckpointCorruptionError, match="does not contain line 2"):
        log.append({"event": "three"})


@pytest.mark.parametrize("spaces", [0, 1, 2])
def test_room_that_is_all_but_used_up_is_no_torn_tail(path, spaces):
    """Whether the journal is read from its beginning or from where somebody had come."""
    first, second = make_lines(2)
    path.parent.mkdir()
    path.write_bytes(first + second[:-1] + b" " * spaces + b"\n")
    whole = scan(path)
    assert [line.seq for line in whole] == [1, 2]
    rest = scan(path, whole.position)
    assert list(rest) == []
    assert [(found.torn, found.damage, found.anchored) for found in (whole, rest)] == [(0, [], True)] * 2


def test_the_last_line_is_found_behind_the_largest_room(path, log):
    """It is looked for from the end."""
    for _ in range(4):
        log.append({"event": "e", "pad": "x" * 2 * ROOM_MAX})
        assert path.stat().st_size - log.position.hint in (0, ROOM_MAX)
        assert LocalJournal(path).last() == log.position


def test_a_last_line_without_its_newline_was_not_written_to_its_end(path):
    """Also for somebody who had read it when it was."""
    first, second = make_lines(2)
    path.parent.mkdir()
    path.write_bytes(first + second)
    whole = scan(path)
    assert [line.seq for line in whole] == [1, 2]
    os.truncate(path, len(first + second) - 1)
    rest = scan(path, whole.position)
    assert [line.seq for line in rest] == [1]
    assert not rest.anchored
    assert LocalJournal(path).last() is None


def test_room_of_any_size_is_filled_to_its_end(path):
    """However the lines fit into it, nothing is cut off."""
    for number in range(60):
        with Appender(path.with_name(f"{number}.jsonl"), preallocates=True) as log:
            log.append({"event": "e"})
            room = log._size - log.position.hint
            log.append({"event": "e", "pad": "x" * (room - 180 - number)})
            for _ in range(3):
                log.append({"event": "e"})
                assert not log.has_news()
            assert log.take_notices() == []
            assert seqs(log.path) == [1, 2, 3, 4, 5]


def test_who_appends_nothing_leaves_the_room_of_a_dead_one(path, log):
    """Looking at a journal, even for writing, does not change it."""
    log.append({"event": "e"})
    before = path.read_bytes()
    with Appender(path, preallocates=True) as other:
        other.begin().abort()
        other.close()
    assert path.read_bytes() == before and before.endswith(b" \n")


def test_a_line_that_was_synced_stands_before_a_long_one_that_lost_its_beginning(path, log):
    """A power cut keeps later sectors of a long line without the first: together they are too long for one."""
    log.append({"event": "synced", "pad": "x" * 8 * ROOM_MAX})
    begin = log.position.hint
    before = path.read_bytes()
    log.append({"event": "lost", "pad": "y" * (LINE_MAX - 200)})
    after = path.read_bytes()
    first_sector = before[: begin + 4096]
    path.write_bytes(first_sector + after[len(first_sector) :])
    found = scan(path)
    assert ([line.seq for line in found], found.damage) == ([1], [])
    with Appender(path) as reopened:
        assert reopened.append({"event": "next"}) == 2
    assert seqs(path) == [1, 2]
