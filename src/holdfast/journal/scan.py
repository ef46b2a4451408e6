"""Reading a journal, read-only: every good line, and what is wrong with the rest.

Rules. A line is good if it proves itself (`codec.check_line`). It *continues* the journal if its `prev` is
the sum of the last good line and its number is higher. A repaired journal has jumps in its numbers but is
chained without a break, so a jump alone is no damage; a broken chain is.

- A good line seen before is a duplicate: ignored, and counted with the bad ones, so that it is damage in the
  middle and part of the tail at the end. The same number with other bytes is damage.
- A good line with a lower number that was not seen before stands in the wrong place: it goes to `late`.
- Something that is no regular file is damage, and never followed.
- Bad lines followed by a good one are damage. Bad bytes with no good line after them are the torn tail. Where it
  begins, `position` ends: whoever appends cuts it off first.
- Readers take no lock, and lines are written over room that they may have read before. So whatever
  does not continue a good line is read a second time, together with the room before it.
- What stands behind a good line on the same line is judged by itself: room (see there) is nothing, anything else
  is bad. A byte order mark before the first line, which some editors leave, is damage too, and does not spoil it.

Memory: one block, one line of at most LINE_MAX, sixteen bytes for each line (its number and its sum, to know
duplicates), and the lines in the wrong place.
"""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_left
from codecs import BOM_UTF8
from collections.abc import Generator, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from holdfast.journal.codec import LINE_MAX, NO_SUM, SUM_BYTES, Envelope, LineDamaged, check_line, sum_after
from holdfast.journal.room import ROOM_MAX, is_room
from holdfast.journal.upgrade import upgrade
from holdfast.stores import readable

_BLOCK = 1 << 20
_SECOND_LOOKS_MAX = 100
_DAMAGE_TOLD = 100  # a journal of garbage must not become a list of a million complaints
_LINE_END = re.compile(rb',"prev":"[0-9a-f]{16}"(,"sum":"([0-9a-f]{16})"\})')
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Position(msgspec.Struct, frozen=True, array_like=True):
    """A place in a journal: after the line `seq`, whose sum is `sum`, at byte `offset`."""

    seq: int
    sum: str
    offset: int


START = Position(0, NO_SUM, 0)


class Line(msgspec.Struct, frozen=True, gc=False):
    """One good line: `raw` with its newline, `end` the byte after it."""

    seq: int
    ts: str
    raw: bytes
    end: int
    sum: str

    def event(self) -> dict[str, Any]:
        """The event in today's format: seq, ts and its own fields, without v, prev and sum."""
        event = _decode(self.raw)
        v = event.pop("v")
        del event["prev"], event["sum"]
        return upgrade(event, v)

    @property
    def position(self) -> Position:
        return Position(self.seq, self.sum, self.end)


def scan(path: Path, after: Position | None = None) -> Scan:
    """Iterate over the good lines after `after`; what was found stands in the result afterwards."""
    return Scan(path, after)


class Scan:
    """One pass over a journal. `position` moves as lines are yielded; the findings are whole at the end."""

    def __init__(self, path: Path, after: Position | None = None) -> None:
        self.path = path
        self.position = after or START
        self.anchored = True  # the line that `after` names is there; if not, the pass starts at byte 0
        self.torn = 0  # bytes after the last line that counts
        self.repeated = 0  # duplicates among these
        self.damage: list[str] = []
        self.missing: list[tuple[int, int]] = []  # first and last number of each gap in the chain
        self.late: list[Line] = []  # good lines that stand after one with a higher number
        self._late_sums: dict[int, int] = {}
        self._sums = array("Q")
        self._seqs = array("Q")
        self._bad: list[str] = []
        self._first = 0
        self._looked_again_at = -1
        self._second_looks = 0

    def __iter__(self) -> Iterator[Line]:
        try:
            fd = readable.open_regular(os.fspath(self.path))
        except FileNotFoundError:
            self._start_over()
            return
        except OSError as error:
            if error.errno not in readable.NO_FILE:
                raise  # a file that may not be read could be a journal; a link, a folder, a socket is nobody's
            self._start_over()
            self.damage.append("what stands there is no regular file")
            return
        try:
            with readable.naming(self.path):
                yield from self._lines(fd)
        finally:
            os.close(fd)

    def _start_over(self) -> None:
        self.anchored = self.position == START
        self.position = START

    def _lines(self, fd: int) -> Iterator[Line]:
        if self.position != START and line_ending_at(fd, self.position.offset) != self.position:
            self.anchored = False
            self.position = START
        self._first = self.position.seq
        while not (yield from self._pass(fd)):
            pass

    def _pass(self, fd: int) -> Generator[Line, None, bool]:
        """Yield what follows the position; False if what came then has to be read a second time."""
        last = self.position.offset
        pieces = _split(fd, max(0, last - 1))  # from the byte where the last line read has its newline, or room
        if last:
            last = self._after(self.position.seq, last, *next(pieces, (b"\n", last)))
        for piece, end in pieces:
            if is_room(piece):
                continue
            raw = piece if end > len(piece) else self._without_mark(piece)
            line = self._judge(raw, end)
            if (line is None or _prev(line) != self.position.sum) and self._is_worth_a_second_look():
                return False
            if line is not None and self._place(line):
                yield line
            last = end if line is None else self._after(line.seq, line.end, raw[len(line.raw) - 1 :], end)
        self.torn = max(0, last - self.position.offset)
        return not (self.torn and self._is_worth_a_second_look())

    def _without_mark(self, first: bytes) -> bytes:
        if not first.startswith(BOM_UTF8):
            return first
        self._note_bad("a byte order mark stands before the first line")
        return first.removeprefix(BOM_UTF8)

    def _is_worth_a_second_look(self) -> bool:
        """Whether what does not fit may be a write under way, whose second half we met before its first."""
        if self._looked_again_at == self.position.offset or self._second_looks >= _SECOND_LOOKS_MAX:
            return False
        self._looked_again_at = self.position.offset
        self._second_looks += 1
        self.repeated = 0
        self._bad.clear()
        return True

    def _after(self, seq: int, line_end: int, behind: bytes, end: int) -> int:
        """Where that ends which counts of a good line and of what stands behind it on the same line."""
        if behind == b"\n" or is_room(behind):
            return line_end
        self._note_bad(f"what stands behind line {seq}, up to byte {end}, is no line of a journal")
        return end

    @property
    def tail(self) -> str:
        """What stands after the last line that counts, in words; empty if nothing does."""
        if not self.torn:
            return ""
        return f"{self.torn} bytes of " + ("repeated lines" if self.repeated else "a torn line")

    def _judge(self, raw: bytes, end: int) -> Line | None:
        """The line if it proves itself; a bad one waits until a good one shows that it is no tail."""
        try:
            if not raw:
                raise LineDamaged(f"longer than {LINE_MAX} bytes")
            line, envelope = _first_line(raw)
        except LineDamaged as damaged:
            self._note_bad(f"the line ending at byte {end} is damaged: {damaged}")
            return None
        end += len(line) - len(raw)
        return Line(envelope.seq, envelope.ts, line, end, envelope.sum)

    def _note_bad(self, words: str) -> None:
        if len(self._bad) < _DAMAGE_TOLD:
            self._bad.append(words)

    def _place(self, line: Line) -> bool:
        """Whether the line comes next; if not, what that means is noted."""
        if line.seq <= self.position.seq and self._is_duplicate(line):
            self.repeated += 1
            self._note_bad(f"line {line.seq} stands there a second time")
            return False
        self.damage += self._bad
        self._bad.clear()
        self.repeated = 0
        if line.seq <= self.position.seq:
            self._place_late(line)
            self.position = Position(self.position.seq, self.position.sum, line.end)
            return False
        if _prev(line) != self.position.sum:
            self._note_break(line.seq)
        self._seqs.append(line.seq)
        self._sums.append(int(line.sum, 16))
        self.position = line.position
        return True

    def _note_break(self, seq: int) -> None:
        if seq > self.position.seq + 1:
            self.missing.append((self.position.seq + 1, seq - 1))
            self.damage.append(f"{lines_named(self.position.seq + 1, seq - 1)} missing")
        else:
            self.damage.append(f"line {seq} does not continue line {self.position.seq}")

    def _is_duplicate(self, line: Line) -> bool:
        # Of lines before `after` nothing is known here but that they were complete.
        return line.seq <= self._first or self._sum_of(line.seq) == int(line.sum, 16)

    def _place_late(self, line: Line) -> None:
        if self._sum_of(line.seq) is None:
            self.late.append(line)
            self._late_sums[line.seq] = int(line.sum, 16)
            self.damage.append(f"line {line.seq} stands after line {self.position.seq}")
        else:
            self.damage.append(f"there are two different lines {line.seq}; the first is kept")

    def _sum_of(self, seq: int) -> int | None:
        """The sum of the line `seq` if this pass met it."""
        index = bisect_left(self._seqs, seq)
        if index < len(self._seqs) and self._seqs[index] == seq:
            return self._sums[index]
        return self._late_sums.get(seq)


def is_whole(path: Path, upto: Position) -> bool:
    """Whether every line up to there proves itself and continues the one before it.

    Much cheaper than a scan, for those who know what the lines say; what is wrong, only a scan can tell.
    """
    if upto == START:
        return True
    last = NO_SUM.encode()
    with readable.opened(path) as fd:
        for raw, end in _split(fd, 0):
            if end >= upto.offset:
                begin = end - len(raw)
                return sum_after(raw[: upto.offset - 1 - begin] + b"\n", last) == upto.sum.encode()
            last = sum_after(raw, last)
            if not last:
                return False
    return False


def lines_named(first: int, last: int) -> str:
    """`line 3 is`, `lines 3 to 5 are`."""
    return f"line {first} is" if first == last else f"lines {first} to {last} are"


def _first_line(raw: bytes) -> tuple[bytes, Envelope]:
    """The good line that `raw` is, or begins with."""
    try:
        return raw, check_line(raw)
    except LineDamaged:
        line = bytes(_framed(raw))
        if line == raw:
            raise
        return line, check_line(line)


def _framed(raw: bytes | bytearray) -> bytes | bytearray:
    """The line in front of room, or of what a later write left behind it; `raw` itself if there is none.

    That may be the end of another line: a power cut can keep the second sector of a write without the first. So
    the first end whose sum fits counts. One that nothing follows was not written to its end.
    """
    covered, upto = sha256(), 0
    for end in _LINE_END.finditer(raw):
        covered.update(memoryview(raw)[upto : end.start(1)])
        upto = end.start(1)
        if covered.hexdigest()[:16].encode() == end[2] and end.end() < len(raw):
            return raw[: end.end()] + b"\n"
    return raw


def _prev(line: Line) -> str:
    return line.raw[-SUM_BYTES - 17 : -SUM_BYTES - 1].decode("ascii")


def _split(fd: int, offset: int) -> Iterator[tuple[bytes, int]]:
    """Each line with its newline, and the byte after it; the last may lack its newline.

    Of a line over LINE_MAX nothing is kept but the good line that it may begin with: the rest comes as no bytes.
    """
    held = bytearray()
    too_long = False
    while block := os.pread(fd, _BLOCK, offset):
        begin = 0
        while (end := block.find(b"\n", begin) + 1) > 0:
            piece = block[begin:end]
            if held or too_long:
                piece = b"" if too_long else bytes(held + piece)
                held, too_long = bytearray(), False
            yield piece, offset + end
            begin = end
        held += block[begin:]
        offset += len(block)
        if len(held) > LINE_MAX + ROOM_MAX:
            line = b"" if too_long else _in_front(held)
            if line:
                yield line, offset - len(held) + len(line)
            held, too_long = bytearray(), True
    if held or too_long:
        yield (b"" if too_long else bytes(held)), offset


def _in_front(held: bytearray) -> bytes:
    """The good line in front of what is too long to be one, if there is any.

    A power cut may keep much of a long line without its first sector, and with that the newline before it.
    """
    line = _framed(held)
    return bytes(line) if len(line) < len(held) else b""


def line_ending_at(fd: int, end: int) -> Position | None:
    """The position after the good line that ends at byte `end`; None if none does."""
    size = 4096
    while end > 0:
        start = max(0, end - size)
        block = os.pread(fd, end - start, start)
        if len(block) < end - start:
            return None
        newline = block.rfind(b"\n", 0, len(block) - 1)
        if newline >= 0 or start == 0 or size >= LINE_MAX:
            return _position_of(b"".join((memoryview(block)[newline + 1 : -1], b"\n")), end)
        size *= 8
    return None


def last_position(path: Path) -> Position | None:
    """The position after the last line, found from the end; None if what stands there is no good line."""
    with readable.opened(path) as fd:
        begin = max(0, os.fstat(fd).st_size - 2 * ROOM_MAX)
        written = os.pread(fd, 2 * ROOM_MAX, begin).rstrip(b" \n")
        return line_ending_at(fd, begin + len(written) + 1)


def _position_of(raw: bytes, end: int) -> Position | None:
    try:
        envelope = check_line(raw)
    except LineDamaged:
        return None
    return Position(envelope.seq, envelope.sum, end)
