"""A journal that is damaged in the middle, made whole again without losing a good line.

The caller holds the append lock. Crash story: the original is first kept in quarantine under a fresh name,
then the new journal replaces it in one rename. A kill before the rename leaves the damaged journal and one
copy more in quarantine; the next repair starts over. A whole journal is left alone.
"""

from __future__ import annotations

import errno
import heapq
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path

from holdfast import clock
from holdfast.journal.lines import NO_SUM, PREV_BYTES, SUM_BYTES, Line, close_line, encode_line
from holdfast.journal.preallocation import end_line
from holdfast.journal.read import FileScan, lines_named, scan
from holdfast.stores import asides, atomic, disk, readable
from holdfast.stores.protocols import Reading
from holdfast.values import encode_json
from holdfast.wording import counted

# A line has its limit too; a journal with more holes than this is told by numbers.
_FINDINGS_TOLD = 100
_GAPS_TOLD = 10_000
_BLOCK = 1 << 20
_seq = attrgetter("seq")
_NONE_TO_WRITE_TO = readable.NOT_TO_BE_HAD | {errno.EROFS}
"""There is no journal, or none that anybody could write to."""


def repair(path: Path, quarantine: Path, *, known_seq: int = 0) -> list[str]:
    """Mend the journal; gives what was found and done, nothing if it was whole. Idempotent.

    `known_seq`: the last number known from elsewhere, a snapshot. No number up to it is given a second time.
    """
    found = scan(path)
    last_seq = examine(found, known_seq)
    if found.damage:
        return _rewrite(path, quarantine, found, last_seq)
    if found.torn:
        return [_cut(path, quarantine, found)]
    return []


def examine(found: Reading, known_seq: int) -> int:
    """Read to the end; gives the last number that was ever used."""
    last_seq = max((line.seq for line in found), default=0)  # a late line has a lower number than another
    if known_seq > last_seq:
        found.damage.append(f"{lines_named(last_seq + 1, known_seq)} gone from its end")
        found.missing.append((last_seq + 1, known_seq))
    return max(last_seq, known_seq)


def cut(fd: int, path: Path, offset: int, quarantine: Path) -> Path:
    """Cut off what stands after the line that ends at `offset`; gives where it is kept."""
    kept_as = asides.cut_tail(fd, path, offset, quarantine)
    end_line(fd, offset, os.fspath(path))
    return kept_as


def _cut(path: Path, quarantine: Path, found: FileScan) -> str:
    fd = disk.open_file(os.fspath(path), os.O_RDWR)
    try:
        kept_as = cut(fd, path, found.end.offset, quarantine)
    finally:
        os.close(fd)
    return f"{found.tail} at its end were cut off and kept as {kept_as.name}"


def _rewrite(path: Path, quarantine: Path, found: FileScan, last_seq: int) -> list[str]:
    kept_as = _kept(path, quarantine)
    # Read anew, and never held as a whole: a journal may be larger than memory.
    lines = written_anew(found, scan(path), last_seq, kept_as)
    with _retired(path):
        atomic.write_blocks(path, _in_blocks(lines), sync=True)
    return tell(found, kept_as)


def written_anew(found: Reading, lines: Iterable[Line], last_seq: int, kept_as: str) -> Iterator[bytes]:
    """All good lines in order, chained anew, and behind them the event that tells what is missing."""
    missing = _still_missing(found)
    body = encode_json(
        {
            "event": "journal_repaired",
            "findings": found.damage[:_FINDINGS_TOLD],
            "findings_total": len(found.damage),
            "missing": missing[:_GAPS_TOLD],
            "missing_total": _count(missing),
            "torn_bytes": found.torn,
            "kept_as": kept_as,
        }
    )
    good = heapq.merge(lines, sorted(found.late, key=_seq), key=_seq)
    return _chained_anew(good, last_seq + 1, body)


def tell(found: Reading, kept_as: str) -> list[str]:
    """What was found, and in one line what was done about it; the journal itself lists the findings, too."""
    missing = _still_missing(found)
    said = _lost(_count(missing)) if found.position.seq or found.late or missing else ""
    return [*found.damage, _told(found.damage, said, kept_as)]


def _count(missing: list[list[int]]) -> int:
    return sum(last - first + 1 for first, last in missing)


@contextmanager
def _retired(path: Path) -> Iterator[None]:
    """Within the block, the journal is replaced; afterwards, whoever still has the old one open finds it empty.

    An engine looks only at the byte behind its own last line, and would go on writing where nobody reads. One that
    somebody has under another name, too, is theirs, and left alone: the engine finds out a moment later.
    """
    try:
        old = disk.open_file(os.fspath(path), os.O_RDWR)
    except OSError as error:
        if error.errno not in _NONE_TO_WRITE_TO:
            raise
        yield
        return
    try:
        yield
        with readable.naming(path):
            if not os.fstat(old).st_nlink:
                disk.truncate(old, 0)
    finally:
        os.close(old)


def _lost(lines: int) -> str:
    return counted(lines, "line is lost", "lines are lost") if lines else "no line is lost"


def _told(damage: list[str], lost: str, kept_as: str) -> str:
    """One line for all of it; what was found is listed in the journal itself. `lost` is empty if nobody knows."""
    if not kept_as:
        return "the journal was missing and was written anew from a snapshot"
    others = f", and {len(damage) - 1} more" if len(damage) > 1 else ""
    words = f"the journal was damaged ({damage[0]}{others}) and was written anew"
    if not lost:
        return f"{words}: whatever it held is lost; what stood there is kept as {kept_as}"
    return f"{words}: {lost}; the damaged one is kept as {kept_as}"


def _kept(path: Path, quarantine: Path) -> str:
    """The name under which the damaged journal is kept; "" if there is none."""
    if not readable.is_there(path):
        return ""
    if readable.is_no_file(path):
        return asides.set_aside(path, quarantine).name
    return asides.keep_copy(path, quarantine, label="damaged").name


def _chained_anew(lines: Iterable[Line], next_seq: int, body: bytes) -> Iterator[bytes]:
    """Every line untouched except for `prev` and `sum`, and behind them the event that `body` tells."""
    last = NO_SUM
    for line in lines:
        raw, last = close_line(line.raw[: -SUM_BYTES - PREV_BYTES], last)
        yield raw
    told, _ = encode_line(next_seq, clock.iso(clock.now()), body, last)
    yield told


def _in_blocks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in larger pieces: each is one operation of the disk."""
    block = bytearray()
    for line in lines:
        block += line
        if len(block) >= _BLOCK:
            yield bytes(block)
            block.clear()
    yield bytes(block)


def _still_missing(found: Reading) -> list[list[int]]:
    """The gaps as [first, last], without the lines that were only in the wrong place."""
    gaps: list[list[int]] = []
    late = sorted(line.seq for line in found.late)
    for first, last in found.missing:
        start = first
        for seq in late[bisect_left(late, first) : bisect_right(late, last)]:
            if seq > start:
                gaps.append([start, seq - 1])
            start = seq + 1
        if start <= last:
            gaps.append([start, last])
    return gaps
