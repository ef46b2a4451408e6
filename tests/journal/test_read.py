"""Reading a journal: all good lines, in order, and the truth about the rest."""

import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.journal.lines import LINE_MAX, NO_SUM, encode_line
from holdfast.journal.log import LocalJournal
from holdfast.journal.read import scan
from holdfast.stores.protocols import START, Position

from .journal_lines import TS, make_lines


def scanned(path, content: bytes, after: Position | None = None):
    path.write_bytes(content)
    found = scan(path, after)
    return [line.seq for line in found], found


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


def test_a_whole_journal_is_read_without_findings(path):
    """Every line comes with its number, time and end; the position is after the last."""
    lines = make_lines(5)
    seqs, found = scanned(path, b"".join(lines))
    assert seqs == [1, 2, 3, 4, 5]
    assert (found.torn, found.damage) == (0, [])
    assert found.end.offset == path.stat().st_size
    assert [line.event() for line in scan(path)][1] == {"seq": 2, "ts": TS, "event": "e2"}


def test_a_missing_file_is_an_empty_journal(path):
    """Nothing there means no lines; a position in it is then not anchored."""
    found = scan(path, Position(3, "a" * 16, 100))
    assert list(found) == []
    assert (found.position, found.anchored) == (START, False)


def test_a_journal_torn_at_every_byte_of_its_last_line_keeps_all_others(path):
    """However the last line is cut, the lines before it are whole and the rest is counted as torn."""
    lines = make_lines(3)
    for cut in range(len(lines[2])):
        seqs, found = scanned(path, lines[0] + lines[1] + lines[2][:cut])
        assert seqs == [1, 2]
        assert (found.torn, found.damage) == (cut, [])


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"\n\n\n", b"garbage\nmore garbage\n", b"\xff" * 100])
def test_a_garbage_tail_is_torn_not_damage(path, tail):
    """Zeros and garbage with no good line after them are the tail."""
    seqs, found = scanned(path, b"".join(make_lines(2)) + tail)
    assert seqs == [1, 2]
    assert (found.torn, found.damage) == (len(tail), [])


def test_a_bad_line_in_the_middle_costs_only_itself(path):
    """The lines around it are read, and both the bad line and the gap are told."""
    lines = make_lines(5)
    lines[2] = lines[2].replace(b"e3", b"e9")
    seqs, found = scanned(path, b"".join(lines))
    assert seqs == [1, 2, 4, 5]
    assert found.missing == [(3, 3)]
    assert "checksum" in found.damage[0]
    assert found.torn == 0


def test_a_bom_and_crlf_cost_no_line(path):
    """What an editor puts before the first line, or behind any, is told, and does not spoil it."""
    lines = make_lines(4)
    lines[2] = lines[2].replace(b"\n", b"\r\n")
    seqs, found = scanned(path, b"\xef\xbb\xbf" + b"".join(lines))
    assert seqs == [1, 2, 3, 4] and not found.missing
    assert found.damage[0] == "a byte order mark stands before the first line"
    assert any("behind line 3" in words for words in found.damage)


def test_a_bom_is_forgiven_only_before_the_first_line(path):
    """Elsewhere nothing but damage puts one there."""
    lines = make_lines(3)
    seqs, found = scanned(path, lines[0] + b"\xef\xbb\xbf" + b"".join(lines[1:]))
    assert seqs == [1, 3] and found.missing == [(2, 2)]


def test_duplicates_are_ignored_and_told(path):
    """The same line again, at once or later, changes nothing, and is told."""
    lines = make_lines(4)
    seqs, found = scanned(path, lines[0] + lines[1] * 2 + lines[2] + lines[0] + lines[3])
    assert seqs == [1, 2, 3, 4]
    assert found.damage == ["line 2 stands there a second time", "line 1 stands there a second time"]


@pytest.mark.parametrize("torn", [b"", b'{"seq":'])
def test_duplicates_at_the_end_are_part_of_the_tail(path, torn):
    """The position is that of the last line that counts: one can go on from there."""
    lines = make_lines(4)
    whole = b"".join(lines)
    seqs, found = scanned(path, whole + lines[1] + lines[3] + torn)
    assert (seqs, found.damage) == ([1, 2, 3, 4], [])
    assert (found.torn, found.repeated) == (len(lines[1] + lines[3] + torn), 2)
    assert found.end.offset == len(whole)
    rest = scan(path, found.position)
    assert list(rest) == [] and rest.anchored
    assert found.tail.endswith("bytes of repeated lines")


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: lines.__setitem__(1, lines[1].replace(b"e2", b"e9")),
        lambda lines: lines.__setitem__(slice(1, 3), [lines[2], lines[1]]),
        lambda lines: lines.insert(2, lines[1]),
        lambda lines: lines.pop(2),
        lambda lines: lines.pop(0),
        lambda lines: lines.insert(2, b"\n"),
    ],
)
def test_a_journal_is_whole_only_without_any_damage(path, damage):
    """The quick proof sees a flipped byte, swapped, repeated and lost lines, and a blank one."""
    lines = make_lines(6)
    path.write_bytes(b"".join(lines))
    upto = list(scan(path))[4].position
    assert LocalJournal(path).is_whole(upto) and LocalJournal(path).is_whole(START)
    damage(lines)
    path.write_bytes(b"".join(lines))
    assert not LocalJournal(path).is_whole(upto)
    assert LocalJournal(path).is_whole(START)


def test_a_journal_that_ends_early_is_not_whole(path):
    """Lines that were there before, and are not any more, are missed."""
    lines = make_lines(6)
    path.write_bytes(b"".join(lines))
    upto = list(scan(path))[4].position
    path.write_bytes(b"".join(lines[:3]))
    assert not LocalJournal(path).is_whole(upto)


def test_swapped_lines_are_told_and_none_is_lost(path):
    """The one that comes too late is kept in `late`."""
    lines = make_lines(4)
    seqs, found = scanned(path, lines[0] + lines[2] + lines[1] + lines[3])
    assert seqs == [1, 3, 4]
    assert [line.seq for line in found.late] == [2]
    assert found.damage


def test_a_forked_journal_is_told(path):
    """Two different lines of one number, as two writers without lock would make, are damage."""
    lines = make_lines(3)
    other, _ = encode_line(3, TS, b'{"event":"other"}', NO_SUM)
    seqs, found = scanned(path, b"".join(lines) + other)
    assert seqs == [1, 2, 3]
    assert "two different lines 3" in found.damage[0]


def test_a_line_rewritten_with_a_fitting_sum_breaks_the_chain(path):
    """Changing a line and its sum is noticed by the next line."""
    lines = make_lines(3)
    lines[1], _ = encode_line(2, TS, b'{"event":"forged"}', lines[0][-19:-3].decode())
    seqs, found = scanned(path, b"".join(lines))
    assert seqs == [1, 2, 3]
    assert found.damage == ["line 3 does not continue line 2"]


def test_a_line_of_20_mb_is_damage_and_costs_only_itself(path):
    """It is passed over, and the line after it is read."""
    lines = make_lines(2)
    seqs, found = scanned(path, lines[0] + b"x" * (LINE_MAX + (4 << 20)) + b"\n" + lines[1])
    assert seqs == [1, 2]
    assert "longer than" in found.damage[0]


def test_scanning_goes_on_after_a_position(path):
    """With a position that fits only what follows is read, and its end is the same."""
    lines = make_lines(6)
    path.write_bytes(b"".join(lines))
    everything = list(scan(path))
    found = scan(path, everything[2].position)
    assert [line.seq for line in found] == [4, 5, 6]
    assert found.anchored
    assert found.position == everything[-1].position


@pytest.mark.parametrize("wrong", [Position(2, "f" * 16), Position(9, NO_SUM, 10**6)])
def test_a_position_that_does_not_fit_starts_over(path, wrong):
    """A journal that does not have the named line there is read from its beginning."""
    lines = make_lines(3)
    after = Position(wrong.seq, wrong.hash, wrong.hint or len(lines[0]) + len(lines[1]))
    seqs, found = scanned(path, b"".join(lines), after)
    assert seqs == [1, 2, 3]
    assert not found.anchored


@pytest.mark.parametrize("hint", [None, 0, 7, 10**6, "page 3"])
def test_a_position_is_found_whatever_its_hint_says(path, hint):
    """The hint only saves time: without a right one the line is looked for."""
    lines = make_lines(6)
    path.write_bytes(b"".join(lines))
    third = list(scan(path))[2].position
    found = scan(path, Position(third.seq, third.hash, hint))
    assert [line.seq for line in found] == [4, 5, 6]
    assert (found.anchored, found.begun) == (True, third)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_damage_never_invents_or_hides_a_line(tmp_path_factory, data):
    """Whatever is cut, doubled, swapped or overwritten: lines read are lines written, and a loss is told."""
    path = tmp_path_factory.mktemp("scan") / "events.jsonl"
    lines = make_lines(8)
    content = bytearray(b"".join(lines))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(start, min(len(content), start + 300)))
        content[start:end] = data.draw(st.binary(max_size=50) | st.sampled_from(lines))
    seqs, found = scanned(path, bytes(content))
    good = {line.raw for line in scan(path)} | {line.raw for line in found.late}
    assert good <= set(lines)
    assert seqs == sorted(set(seqs))
    lost_inside = set(range(1, max(seqs, default=0))) - set(seqs)
    assert not lost_inside or found.damage
    assert found.torn <= len(content)


def test_the_end_of_a_line_of_any_length_is_looked_for_in_bounded_memory(tmp_path: Path) -> None:
    """Of a journal that has lost its newlines no more is held than twice the longest line that counts."""
    path = tmp_path / "events.jsonl"
    with path.open("wb") as file:
        file.truncate(60 << 20)
    tracemalloc.start()
    try:
        found = scan(path, Position(7, "ab" * 8, 60 << 20))
        assert not list(found) and not found.anchored
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 2 * LINE_MAX + (4 << 20)


def test_the_longest_line_is_found_from_its_end(tmp_path: Path) -> None:
    """A line of just the greatest length is one: it begins where the look back ends."""
    first, last = encode_line(1, "2026-01-01T00:00:00.000Z", b'{"event":"note"}', NO_SUM)
    shortest, _ = encode_line(2, "2026-01-01T00:00:00.000Z", b'{"event":"note","text":""}', last)
    text = b"x" * (LINE_MAX - len(shortest))
    longest, _ = encode_line(2, "2026-01-01T00:00:00.000Z", b'{"event":"note","text":"%b"}' % text, last)
    assert len(longest) == LINE_MAX
    path = tmp_path / "events.jsonl"
    path.write_bytes(first + longest)
    found = LocalJournal(path).last()
    assert found is not None and (found.seq, found.hint) == (2, len(first) + LINE_MAX)


def test_a_line_of_any_length_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """Of a line of 100 MB no more is held than twice the longest line that counts."""
    path = tmp_path / "events.jsonl"
    good, _ = encode_line(1, "2026-01-01T00:00:00.000Z", b'{"event":"note"}', NO_SUM)
    with path.open("wb") as file:
        file.write(good)
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(b"\n")
    tracemalloc.start()
    try:
        found = scan(path)
        assert [line.seq for line in found] == [1]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.torn == 100 * (1 << 20) + 1
    assert peak <= 2 * LINE_MAX + (4 << 20)


def test_lines_in_the_wrong_place_cost_each_the_same(path):
    """Of a journal whose halves have changed places, each late line is looked up, not looked for among all."""

    def steps(count: int) -> int:
        lines = make_lines(count)
        path.write_bytes(b"".join(lines[count // 2 :] + lines[: count // 2]))
        counted = 0

        def count_line(frame: Any, event: str, _: Any) -> Any:
            nonlocal counted
            counted += event == "line"
            return count_line

        sys.settrace(count_line)
        try:
            found = scan(path)
            assert len(list(found)) == len(found.late) == count // 2
        finally:
            sys.settrace(None)
        return counted

    assert steps(800) < 3 * steps(400)
