"""Reading a journal, read-only: every good line, and what is wrong with the rest.

Rules. A line is good if it proves itself (`lines.check_line`). It *continues* the journal if its `prev` is
the sum of the last good line and its number is higher. A repaired journal has jumps in its numbers but is
chained without a break, so a jump alone is no damage; a broken chain is.

- A good line seen before is a duplicate: ignored, and counted with the bad ones, so that it is damage in the
  middle and part of the tail at the end. The same number with other bytes is damage.
- A good line with a lower number that was not seen before stands in the wrong place: it goes to `late`.
- Something that is no regular file is damage, and never followed.
- Bad lines followed by a good one are damage. Bad bytes with no good line after them are the torn tail. Where it
  begins, `position` ends: whoever appends cuts it off first.
- The line that a position names stands where its hint says, or is looked for: a repair moves and chains it anew.
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
import shlex
from array import array
from bisect import bisect_left
from codecs import BOM_UTF8
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec

from holdfast.errors import ForbiddenError, StorageError
from holdfast.journal.lines import (
    LINE_MAX,
    NO_SUM,
    Line,
    LineDamaged,
    check_line,
    hash_of,
    sum_after,
)
from holdfast.journal.preallocation import ROOM_MAX, is_room
from holdfast.stores import readable
from holdfast.stores.protocols import START, Position

_BLOCK = 1 << 20
_SECOND_LOOKS_MAX = 100
_DAMAGE_TOLD = 100  # a journal of garbage must not become a list of a million complaints
_LINE_END = re.compile(rb',"prev":"[0-9a-f]{16}"(,"sum":"([0-9a-f]{16})"\})')

Pread = Callable[[int, int], bytes]
"""So many bytes from there on, fewer only at the end: `os.pread` of an open file, or a slice."""


class End(msgspec.Struct, frozen=True):
    """Where a line ends: its number, its sum, and the byte after it."""

    seq: int
    sum: str
    offset: int


NOWHERE = End(0, NO_SUM, 0)


def scan(path: Path, after: Position | None = None) -> FileScan:
    """Iterate over the good lines after `after`; what was found stands in the result afterwards."""
    return FileScan(path, after)


class Scan:
    """One pass over a journal. `end` moves as lines are yielded; the findings are whole when it is over."""

    def __init__(self, after: Position | None = None) -> None:
        self._after = after or START
        self.begun = START
        self.anchored = not self._after.seq
        self.torn = 0  # bytes after the last line that counts
        self.repeated = 0  # duplicates among these
        self.damage: list[str] = []
        self.missing: list[tuple[int, int]] = []
        self.late: list[Line] = []
        self.end = NOWHERE
        self._last = b""
        self._late_sums: dict[int, int] = {}
        self._sums = array("Q")
        self._seqs = array("Q")
        self._bad: list[str] = []
        self._first = 0
        self._looked_again_at = -1
        self._second_looks = 0

    @property
    def position(self) -> Position:
        if not self._last:
            return self.begun
        return Position(self.end.seq, hash_of(self._last), self.end.offset)

    def lines(self, pread: Pread) -> Iterator[Line]:
        """The good lines after the position; from the first line on if that is not there."""
        if self._after.seq:
            anchor = find(pread, self._after)
            self.anchored = anchor is not None
            if anchor is not None:
                self.end = End(anchor.seq, anchor.sum, anchor.hint)
                self.begun = anchor.position
        self._first = self.end.seq
        while not (yield from self._pass(pread)):
            pass

    def _pass(self, pread: Pread) -> Generator[Line, None, bool]:
        """Yield what follows the position; False if what came then has to be read a second time."""
        last = self.end.offset
        pieces = _split(pread, max(0, last - 1))  # from the byte where the last line read has its newline, or room
        if last:
            last = self._behind(self.end.seq, last, *next(pieces, (b"\n", last)))
        for piece, end in pieces:
            if is_room(piece):
                continue
            raw = piece if end > len(piece) else self._without_mark(piece)
            line = self._judge(raw, end)
            if (line is None or line.prev != self.end.sum) and self._is_worth_a_second_look():
                return False
            if line is not None and self._place(line):
                yield line
            last = end if line is None else self._behind(line.seq, line.hint, raw[len(line.raw) - 1 :], end)
        self.torn = max(0, last - self.end.offset)
        return not (self.torn and self._is_worth_a_second_look())

    def _without_mark(self, first: bytes) -> bytes:
        if not first.startswith(BOM_UTF8):
            return first
        self._note_bad("a byte order mark stands before the first line")
        return first.removeprefix(BOM_UTF8)

    def _is_worth_a_second_look(self) -> bool:
        """Whether what does not fit may be a write under way, whose second half we met before its first."""
        if self._looked_again_at == self.end.offset or self._second_looks >= _SECOND_LOOKS_MAX:
            return False
        self._looked_again_at = self.end.offset
        self._second_looks += 1
        self.repeated = 0
        self._bad.clear()
        return True

    def _behind(self, seq: int, line_end: int, behind: bytes, end: int) -> int:
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
            return _good_line(raw, end)
        except LineDamaged as damaged:
            self._note_bad(f"the line ending at byte {end} is damaged: {damaged}")
            return None

    def _note_bad(self, words: str) -> None:
        if len(self._bad) < _DAMAGE_TOLD:
            self._bad.append(words)

    def _place(self, line: Line) -> bool:
        """Whether the line comes next; if not, what that means is noted."""
        seq, sum_ = line.seq, line.sum
        if seq <= self.end.seq and self._is_duplicate(line):
            self.repeated += 1
            self._note_bad(f"line {seq} stands there a second time")
            return False
        self.damage += self._bad
        self._bad.clear()
        self.repeated = 0
        if seq <= self.end.seq:
            self._place_late(line)
            self.end = End(self.end.seq, self.end.sum, line.hint)
            return False
        if line.prev != self.end.sum:
            self._note_break(seq)
        self._seqs.append(seq)
        self._sums.append(int(sum_, 16))
        self.end = End(seq, sum_, line.hint)
        self._last = line.raw
        return True

    def _note_break(self, seq: int) -> None:
        last = self.end.seq
        if seq > last + 1:
            self.missing.append((last + 1, seq - 1))
            self.damage.append(f"{lines_named(last + 1, seq - 1)} missing")
        else:
            self.damage.append(f"line {seq} does not continue line {last}")

    def _is_duplicate(self, line: Line) -> bool:
        # Of lines before `after` nothing is known here but that they were complete.
        return line.seq <= self._first or self._sum_of(line.seq) == int(line.sum, 16)

    def _place_late(self, line: Line) -> None:
        if self._sum_of(line.seq) is None:
            self.late.append(line)
            self._late_sums[line.seq] = int(line.sum, 16)
            self.damage.append(f"line {line.seq} stands after line {self.end.seq}")
        else:
            self.damage.append(f"there are two different lines {line.seq}; the first is kept")

    def _sum_of(self, seq: int) -> int | None:
        """The sum of the line `seq` if this pass met it."""
        index = bisect_left(self._seqs, seq)
        if index < len(self._seqs) and self._seqs[index] == seq:
            return self._sums[index]
        return self._late_sums.get(seq)


class FileScan(Scan):
    """The same over a file, which is opened when iterating begins. OSErrors come as StorageError."""

    def __init__(self, path: Path, after: Position | None = None) -> None:
        super().__init__(after)
        self.path = path

    def __iter__(self) -> Iterator[Line]:
        with telling(self.path):
            try:
                fd = readable.open_regular(os.fspath(self.path))
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno not in readable.NO_FILE:
                    raise  # a file that may not be read could be a journal; a link, a folder, a socket is nobody's
                self.damage.append("what stands there is no regular file")
                return
            try:
                yield from self.lines(partial(os.pread, fd))
            finally:
                os.close(fd)


@contextmanager
def telling(path: Path) -> Iterator[None]:
    """An OSError of reading the journal comes out as what people are told of it."""
    try:
        yield
    except OSError as error:
        readable.name(error, path)
        if error.errno not in readable.FORBIDDEN:
            raise StorageError.from_os(error, "read") from error
        # A journal is never set aside unread: it may be whole, and it is the truth.
        fix = f"What was recorded is safe. Let yourself read it: chmod u+rw {shlex.quote(os.fspath(path))}"
        raise ForbiddenError(f"Could not read {path}: {error.strerror}.", fix=fix) from error


def is_whole(pread: Pread, upto: Position) -> bool:
    """Whether every line up to there, where the hint must be right, proves itself and continues the one before it.

    Much cheaper than a scan, for those who know what the lines say; what is wrong, only a scan can tell.
    """
    if not upto.seq:
        return True
    last = NO_SUM.encode()
    for raw, end in _split(pread, 0):
        if end >= upto.hint:
            line = raw[: upto.hint - 1 - (end - len(raw))] + b"\n"
            return bool(sum_after(line, last)) and hash_of(line) == upto.hash
        last = sum_after(raw, last)
        if not last:
            return False
    return False


def find(pread: Pread, position: Position) -> Line | None:
    """The line that the position names: where its hint says, or anywhere else."""
    if isinstance(position.hint, int):
        line = line_ending_at(pread, position.hint)
        if line is not None and (line.seq, line.hash) == (position.seq, position.hash):
            return line
    begin = b'{"seq":%d,' % position.seq
    for raw, end in _split(pread, 0):
        if raw.startswith(begin):
            try:
                line = _good_line(raw, end)
            except LineDamaged:
                continue
            if line.hash == position.hash:
                return line
    return None


def lines_named(first: int, last: int) -> str:
    """`line 3 is`, `lines 3 to 5 are`."""
    return f"line {first} is" if first == last else f"lines {first} to {last} are"


def _good_line(raw: bytes, end: int) -> Line:
    """The good line that `raw`, which ends at byte `end`, is or begins with; else LineDamaged."""
    if not raw:
        raise LineDamaged(f"longer than {LINE_MAX} bytes")
    try:
        line, envelope = raw, check_line(raw)
    except LineDamaged:
        line = bytes(_framed(raw))
        if line == raw:
            raise
        envelope = check_line(line)
    return Line(envelope.seq, envelope.ts, line, end + len(line) - len(raw))


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


def _split(pread: Pread, offset: int) -> Iterator[tuple[bytes, int]]:
    """Each line with its newline, and the byte after it; the last may lack its newline.

    Of a line over LINE_MAX nothing is kept but the good line that it may begin with: the rest comes as no bytes.
    """
    held = bytearray()
    too_long = False
    while block := pread(_BLOCK, offset):
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


def line_ending_at(pread: Pread, end: int) -> Line | None:
    """The good line that ends at byte `end`; None if none does."""
    size = 4096
    while end > 0:
        start = max(0, end - size)
        block = pread(end - start, start)
        if len(block) < end - start:
            return None
        newline = block.rfind(b"\n", 0, len(block) - 1)
        if newline >= 0 or start == 0 or size >= LINE_MAX:
            return _checked(b"".join((memoryview(block)[newline + 1 : -1], b"\n")), end)
        size *= 8
    return None


def last_line(pread: Pread, size: int) -> Line | None:
    """The last line of a journal of `size` bytes, found from its end; None if no good one stands there."""
    begin = max(0, size - 2 * ROOM_MAX)
    written = pread(2 * ROOM_MAX, begin).rstrip(b" \n")
    return line_ending_at(pread, begin + len(written) + 1)


def _checked(raw: bytes, end: int) -> Line | None:
    try:
        envelope = check_line(raw)
    except LineDamaged:
        return None
    return Line(envelope.seq, envelope.ts, raw, end)
