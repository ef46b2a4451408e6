"""What every journal promises: the one in a file, the one in memory, and one that may fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.errors import CheckpointCorruptionError, StorageError
from holdfast.journal.lines import NO_SUM, check_line
from holdfast.journal.log import LocalJournal
from holdfast.stores.protocols import START, Batch, Journal, Position
from holdfast.testing import NEVER, FailingJournal, MemoryJournal

TS = "2026-01-09T14:30:22.123Z"


class LocalWorld:
    """A journal in a file. Its process may die; what was written outlives that."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "run" / "events.jsonl"
        self._lock = folder / "append.lock"
        self._opened: list[LocalJournal] = []

    def open(self) -> Journal:
        journal = LocalJournal(self.path, lock_path=self._lock, preallocates=not self._opened)
        self._opened.append(journal)
        return journal

    def content(self) -> bytes:
        return self.path.read_bytes() if self.path.exists() else b""

    def put(self, content: bytes) -> None:
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_bytes(content)

    def crash(self) -> None:
        self._opened.clear()

    def kept_aside(self) -> list[bytes]:
        folder = self.path.with_name("events.jsonl.quarantine")
        return [path.read_bytes() for path in folder.iterdir()] if folder.exists() else []


class MemoryWorld:
    """A journal in memory, which loses what was not synced."""

    def __init__(self, folder: Path) -> None:
        self.journal = MemoryJournal()

    def open(self) -> Journal:
        return self.journal.another()

    def content(self) -> bytes:
        return bytes(self.journal.file.content)

    def put(self, content: bytes) -> None:
        self.journal.file.content[:] = content
        self.journal.sync()

    def crash(self) -> None:
        self.journal.crash()

    def kept_aside(self) -> list[bytes]:
        return self.journal.file.cut_off


class FailingWorld(MemoryWorld):
    """One that could fail, and does not: the wrapper changes nothing else."""

    def open(self) -> Journal:
        return FailingJournal(super().open(), NEVER)


World = LocalWorld | MemoryWorld


@pytest.fixture(params=[LocalWorld, MemoryWorld, FailingWorld])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    made: World = request.param(tmp_path)
    return made


@pytest.fixture
def journal(world: World) -> Iterator[Journal]:
    opened = world.open()
    yield opened
    opened.close()


def add(batch: Batch, *names: str) -> list[int]:
    return [batch.add(b'{"event":"%b"}' % name.encode(), TS) for name in names]


def append(journal: Journal, *names: str, after: Position | None = None) -> Position:
    """One batch, durable."""
    batch = journal.begin(after)
    add(batch, *names)
    position = batch.commit()
    journal.sync()
    return position


def names(journal: Journal, after: Position | None = None) -> list[str]:
    return [line.event()["event"] for line in journal.read(after)]


def foreign(journal: Journal, after: Position) -> list[str]:
    """What the next batch hands over; it is aborted."""
    batch = journal.begin(after)
    batch.abort()
    return [line.event()["event"] for line in batch.foreign]


def harm(world: World, journal: Journal, change: Callable[[list[bytes]], object]) -> None:
    """Let something happen to the lines while nobody has the journal open."""
    journal.close()
    lines = world.content().splitlines(keepends=True)
    change(lines)
    world.put(b"".join(lines))
    world.crash()


# --- appending -----------------------------------------------------------------------------------------------


def test_nothing_is_there_before_the_first_line(journal: Journal) -> None:
    """A journal that nobody appended to reads as empty, and reading does not make one."""
    assert names(journal) == []
    assert (journal.is_there(), journal.has_begun(), journal.last()) == (False, False, None)
    assert journal.is_whole(START) and not journal.has_news()
    assert not journal.is_there()


def test_what_was_committed_is_read_with_numbers_and_times(journal: Journal) -> None:
    """Numbers begin with 1 and have no gap; the event is what was added."""
    batch = journal.begin(START)
    assert add(batch, "a", "b") == [1, 2]
    batch.commit()
    lines = list(journal.read())
    assert [line.event() for line in lines] == [
        {"seq": 1, "ts": TS, "event": "a"},
        {"seq": 2, "ts": TS, "event": "b"},
    ]
    assert journal.is_there() and journal.has_begun()


def test_every_line_is_chained_to_the_one_before_it(journal: Journal) -> None:
    """Each names the sum of its predecessor and proves itself."""
    append(journal, "a", "b")
    append(journal, "c")
    last = NO_SUM
    for line in journal.read():
        envelope = check_line(line.raw)
        assert envelope.prev == last
        last = envelope.sum


def test_an_aborted_batch_leaves_nothing(world: World, journal: Journal) -> None:
    """Not a byte, not a number, and the lock is free."""
    append(journal, "a")
    before = world.content()
    batch = journal.begin()
    add(batch, "never", "ever")
    batch.abort()
    assert world.content() == before
    assert append(journal, "b").seq == 2
    assert names(journal) == ["a", "b"]


def test_a_batch_without_events_leaves_nothing(world: World, journal: Journal) -> None:
    """It says where the journal ends."""
    position = append(journal, "a")
    before = world.content()
    assert journal.begin(position).commit() == position
    assert world.content() == before


def test_another_appender_sees_what_it_has_not_read(world: World, journal: Journal) -> None:
    """Those lines come with the batch, and are numbered before its own."""
    other = world.open()
    ours = append(journal, "a")
    assert not journal.has_news()
    theirs = append(other, "b", "c", after=ours)
    assert journal.has_news()
    batch = journal.begin(ours)
    assert [(line.seq, line.event()["event"]) for line in batch.foreign] == [(2, "b"), (3, "c")]
    assert add(batch, "d") == [4]
    ours = batch.commit()
    assert not journal.has_news()
    assert foreign(journal, ours) == []
    assert foreign(other, theirs) == ["d"]
    assert foreign(other, START) == ["a", "b", "c", "d"]


def test_without_a_position_what_stands_there_is_history(world: World, journal: Journal) -> None:
    """One who only appends is handed nothing over."""
    append(world.open(), "a", "b")
    batch = journal.begin()
    assert list(batch.foreign) == []
    assert add(batch, "c") == [3]
    batch.commit()


def test_twenty_appenders_at_once_lose_and_mix_nothing(world: World) -> None:
    """Every batch stands there whole, each appender's in its own order."""

    def work(who: int) -> None:
        journal = world.open()
        position = START
        for number in range(5):
            position = append(journal, f"{who}.{number}.x", f"{who}.{number}.y", after=position)
        journal.close()

    threads = [threading.Thread(target=work, args=(who,)) for who in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reading = world.open().read()
    lines = list(reading)
    assert [line.seq for line in lines] == list(range(1, 201))
    assert (reading.damage, reading.torn) == ([], 0)
    found = [line.event()["event"] for line in lines]
    assert [a.removesuffix("x") for a in found[::2]] == [b.removesuffix("y") for b in found[1::2]]
    for who in range(20):
        assert [name for name in found[::2] if name.startswith(f"{who}.")] == [f"{who}.{n}.x" for n in range(5)]


# --- positions -----------------------------------------------------------------------------------------------


def test_reading_goes_on_after_a_position(journal: Journal) -> None:
    """All lines after it, and no other; the end of one reading is where the next begins."""
    append(journal, "a", "b")
    first = journal.read()
    assert [line.seq for line in first] == [1, 2]
    append(journal, "c")
    rest = journal.read(first.position)
    assert [line.seq for line in rest] == [3]
    assert (rest.anchored, rest.begun) == (True, first.position)
    assert journal.last() == rest.position == list(journal.read())[-1].position
    assert journal.is_whole(rest.position)


def test_a_position_without_its_hint_is_found_all_the_same(journal: Journal) -> None:
    """The hint belongs to the journal that gave it."""
    position = append(journal, "a", "b")
    append(journal, "c")
    bare = Position(position.seq, position.hash)
    assert names(journal, bare) == ["c"]
    assert foreign(journal, bare) == ["c"]
    assert names(journal, Position(position.seq, position.hash, "elsewhere")) == ["c"]


def test_a_position_in_another_journal_is_not_anchored(journal: Journal) -> None:
    """Reading starts over; appending is refused, since it would continue what was never there."""
    append(journal, "a", "b")
    stranger = Position(2, "ab" * 8)
    reading = journal.read(stranger)
    assert [line.seq for line in reading] == [1, 2]
    assert (reading.anchored, reading.begun) == (False, START)
    with pytest.raises(CheckpointCorruptionError, match="line 2"):
        journal.begin(stranger)
    append(journal, "c")
    assert names(journal) == ["a", "b", "c"]


@pytest.mark.parametrize("kind", ["lost", "swapped"])
def test_a_position_survives_a_repair(world: World, journal: Journal, kind: str) -> None:
    """Though every line is chained anew, a place behind the damage is the same place."""
    append(journal, "a", "b", "c")
    position = append(journal, "d")
    append(journal, "e")

    def change(lines: list[bytes]) -> None:
        if kind == "lost":
            lines[1] = b"rot\n"
        else:
            lines[1:3] = reversed(lines[1:3])

    harm(world, journal, change)
    journal = world.open()
    assert journal.repair()
    assert names(journal, position) == ["e", "journal_repaired"]
    assert foreign(journal, position) == ["e", "journal_repaired"]
    assert journal.is_whole(journal.read(position).position)


def test_an_appender_goes_on_in_a_repaired_journal(world: World, journal: Journal) -> None:
    """It has the old one open, and its own last line is still there."""
    append(journal, "a")
    position = append(journal, "b")
    content = world.content()
    world.put(content.replace(b'"a"', b'"A"'))
    assert world.open().repair()
    batch = journal.begin(position)
    assert [line.event()["event"] for line in batch.foreign] == ["journal_repaired"]
    add(batch, "c")
    batch.commit()
    assert names(journal) == ["b", "journal_repaired", "c"]


# --- durability ----------------------------------------------------------------------------------------------


def test_what_was_synced_outlives_a_crash(world: World, journal: Journal) -> None:
    """What was only committed is there whole, or not at all; and the lock of the dead is free."""
    append(journal, "a", "b")
    batch = journal.begin()
    add(batch, "c", "d")
    batch.commit()
    world.crash()
    after = world.open()
    assert names(after) in (["a", "b"], ["a", "b", "c", "d"])
    append(after, "e")
    assert names(after)[:2] == ["a", "b"] and names(after)[-1] == "e"


def test_a_hint_of_a_sync_promises_nothing(journal: Journal) -> None:
    """At any time, also before the first line."""
    journal.begin_sync()
    append(journal, "a")
    journal.begin_sync()
    journal.sync()
    assert names(journal) == ["a"]


def test_a_closed_journal_can_be_used_again(journal: Journal) -> None:
    """Closing lets go of what is open, and of nothing else."""
    position = append(journal, "a")
    journal.close()
    journal.close()
    assert append(journal, "b", after=position).seq == 2
    assert names(journal, position) == ["b"]


# --- damage --------------------------------------------------------------------------------------------------


def test_a_torn_tail_is_told_by_readers_and_cut_off_by_the_next_appender(world: World, journal: Journal) -> None:
    """It is kept, and told once; a word of it reaches those who read before."""
    append(journal, "a", "b")
    harm(world, journal, lambda lines: lines.append(b'{"seq":3,"ts"'))
    journal = world.open()
    reading = journal.read()
    assert len(list(reading)) == 2
    assert (reading.torn, reading.damage, reading.tail) == (13, [], "13 bytes of a torn line")
    assert journal.begin(reading.position).commit().seq == 2
    (told,) = journal.take_notices()
    assert told.startswith("13 bytes of a torn line at its end were cut off")
    assert journal.take_notices() == []
    assert b'{"seq":3,"ts"' in world.kept_aside()
    append(journal, "c")
    assert names(journal) == ["a", "b", "c"]


def test_a_torn_first_line_is_no_beginning(world: World, journal: Journal) -> None:
    """Nothing was recorded; the next line is the first."""
    world.put(b'{"seq":1,"ts"')
    assert journal.is_there() and not journal.has_begun()
    assert append(journal, "a").seq == 1


@pytest.mark.parametrize(
    ("change", "left", "missing"),
    [
        (lambda lines: lines.__setitem__(1, lines[1].replace(b'"b"', b'"x"')), "acd", [(2, 2)]),
        (lambda lines: lines.pop(1), "acd", [(2, 2)]),
        (lambda lines: lines.__setitem__(slice(1, 3), [lines[2], lines[1]]), "acd", [(2, 2)]),
        (lambda lines: lines.insert(2, lines[1]), "abcd", []),
        (lambda lines: lines.insert(2, b"what is this\n"), "abcd", []),
    ],
    ids=["changed", "lost", "swapped", "doubled", "inserted"],
)
def test_damage_is_told_and_a_repair_keeps_every_good_line(
    world: World,
    journal: Journal,
    change: Callable[[list[bytes]], object],
    left: str,
    missing: list[tuple[int, int]],
) -> None:
    """Readers pass it over and tell it; the repair says what is gone for good, and a second one finds nothing."""
    position = append(journal, "a", "b", "c", "d")
    journal.close()
    good = set(world.content().splitlines())
    harm(world, journal, change)
    journal = world.open()
    reading = journal.read()
    lines = list(reading)
    assert "".join(line.event()["event"] for line in lines) == left
    assert reading.damage and reading.missing == missing and not reading.torn
    assert {line.raw.rstrip() for line in [*lines, *reading.late]} <= good
    assert not journal.is_whole(position)
    *told, summary = journal.repair()
    assert told == reading.damage and "was written anew" in summary
    events = [line.event() for line in journal.read()]
    kept = sorted([*left, *(line.event()["event"] for line in reading.late)])
    assert [event["event"] for event in events] == [*kept, "journal_repaired"]
    assert len(events) - 1 + events[-1]["missing_total"] == 4
    assert events[-1]["seq"] == 5
    assert len(world.kept_aside()) == 1
    assert journal.repair() == []
    last = journal.last()
    assert last is not None and journal.is_whole(last)


def test_a_repair_gives_no_known_number_a_second_time(world: World, journal: Journal) -> None:
    """The journal lost its end, which a snapshot still knows."""
    append(journal, "a", "b", "c")
    harm(world, journal, lambda lines: lines.__delitem__(slice(1, None)))
    journal = world.open()
    assert journal.repair(known_seq=3)
    assert [(line.seq, line.event()["event"]) for line in journal.read()] == [(1, "a"), (4, "journal_repaired")]
    assert append(journal, "d").seq == 5


def test_a_whole_journal_is_not_repaired(world: World, journal: Journal) -> None:
    """Not a byte of it changes."""
    append(journal, "a", "b")
    journal.close()
    before = world.content()
    assert journal.repair() == []
    assert world.content() == before
    assert world.kept_aside() == []


# --- failing -------------------------------------------------------------------------------------------------


def story(journal: Journal, reported: list[str]) -> None:
    """Three durable batches; what was made durable is in `reported`."""
    position = START
    for name in ("a", "b", "c"):
        batch = journal.begin(position)
        try:
            add(batch, name, name.upper())
        except BaseException:
            batch.abort()
            raise
        position = batch.commit()
        journal.sync()
        reported += [name, name.upper()]
    assert names(journal) == reported


@pytest.mark.parametrize("for_good", [True, False], ids=["for good", "once"])
@pytest.mark.parametrize("keeps", [True, False], ids=["kept", "not kept"])
def test_a_journal_that_fails_at_any_operation_loses_nothing_it_reported(keeps: bool, for_good: bool) -> None:
    """Whoever fails is told with a StorageError; the next process goes on after all that was durable."""
    memory = MemoryJournal()
    whole = FailingJournal(memory, NEVER)
    story(whole, [])
    assert whole.operations > 6
    for number in range(1, whole.operations + 1):
        memory, reported = MemoryJournal(), list[str]()
        failing = FailingJournal(memory.another(), number, for_good=for_good, keeps=keeps)
        with pytest.raises(StorageError, match="Input/output error"):
            story(failing, reported)
        memory.crash()
        after = memory.another()
        assert names(after)[: len(reported)] == reported
        append(after, "next")
        reading = after.read()
        assert [line.seq for line in reading][-1] % 2 == 1  # no batch is there by half
        assert (reading.damage, reading.torn) == ([], 0)


@pytest.mark.parametrize("number", [2, 3], ids=["commit", "sync"])
def test_after_a_failed_commit_or_sync_everything_is_refused(number: int) -> None:
    """Nobody knows what is kept: a second sync must not claim success."""
    failing = FailingJournal(MemoryJournal(), number, for_good=False)
    with pytest.raises(StorageError):
        append(failing, "a")
    with pytest.raises(StorageError, match="before"):
        failing.sync()
    with pytest.raises(StorageError, match="before"):
        failing.begin()
