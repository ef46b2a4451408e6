"""The record of a run read in full, line by line and snapshot by snapshot. Read-only, takes no lock.

Every line proves itself and its place; every snapshot proves itself, and the state in it must be the fold of the
journal up to the line that it names, if it was made by the same version of the fold. Memory: the fold, and one
snapshot at a time.

While an engine runs: an append that is under way looks like a torn tail, so a tail is looked at again before it
counts; a snapshot that is rotated away meanwhile is none. After a repair the journal lacks lines that an older
snapshot knows: a difference that such a gap explains is a note, and the snapshot's state is believed from there.
A journal that ends before the newest snapshot's line has lost its end: that is its own flaw, not the snapshot's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast import clock
from holdfast import events as ev
from holdfast.errors import CheckpointCorruptionError, ForbiddenError
from holdfast.folding import fold
from holdfast.journal.lines import Line, decode_event
from holdfast.layout import RunLayout
from holdfast.runs.history import Header, SavedState, decode_state, is_of_our_fold, read_header
from holdfast.runs.opening import open_journal
from holdfast.snapshots import examine_snapshot, snapshots
from holdfast.state import RunState
from holdfast.stores.protocols import Position, Reading

DAMAGED, TORN, DIFFERENT, UNREADABLE_LINE = "damaged", "torn", "different", "unreadable"
REPEATED, SHORTENED, FORBIDDEN = "repeated", "shortened", "forbidden"

_LOOKS_AT_A_TAIL = 5
_PAUSE_S = 0.02


class Flaw(msgspec.Struct, frozen=True):
    """Something wrong with one file of the record."""

    path: Path
    problem: str
    detail: str


class Audit(msgspec.Struct):
    """What was looked at, and what was wrong."""

    flaws: list[Flaw] = []
    notes: list[str] = []
    lines: int = 0
    snapshots: int = 0


class _Due(msgspec.Struct, frozen=True):
    """A whole snapshot that is compared when the fold reaches its line."""

    path: Path
    position: Position
    is_ours: bool  # of our fold; another's state is not what we make of the same journal


def audit(run: RunLayout, tell: Callable[[int], None] = lambda lines: None) -> Audit:
    """Read all of the record; `tell` hears how many lines were read."""
    found = Audit()
    due = _whole_snapshots(run, found)
    auditor = _Auditor(run, found, due, tell)
    try:
        auditor.read()
    except ForbiddenError:
        found.flaws.append(Flaw(run.journal, FORBIDDEN, "Permission denied"))
    return found


def _whole_snapshots(run: RunLayout, found: Audit) -> list[_Due]:
    """The snapshots that prove themselves, oldest first; the others are flaws."""
    due = []
    for _, path in reversed(snapshots(run.dir)):
        seen = examine_snapshot(path)
        if seen is None:
            continue  # rotated away while we looked
        found.snapshots += 1
        header = _header(seen.payload)
        is_ours = seen.payload is not None and is_of_our_fold(seen.payload)
        if header is None or (is_ours and _decoded(seen.payload) is None):
            found.flaws.append(
                Flaw(path, DAMAGED, "it does not prove itself; the next older one, or the journal, serves")
            )
            continue
        due.append(_Due(path, header.position, is_ours))
        if not is_ours:
            found.notes.append(f"{path.name} was saved by another version of Holdfast, and is not compared")
        if seen.sidecar:
            found.notes.append(
                f"{path.with_suffix('.sha256').name} is {seen.sidecar}; the snapshot proves itself without it"
            )
    return due


def _header(payload: bytes | None) -> Header | None:
    try:
        return read_header(payload) if payload is not None else None
    except msgspec.ValidationError:
        return None


def _decoded(payload: bytes | None) -> SavedState | None:
    try:
        return decode_state(payload) if payload is not None else None
    except msgspec.ValidationError:
        return None


class _Auditor:
    """One pass over the journal, folding it, with the snapshots compared on the way."""

    def __init__(self, run: RunLayout, found: Audit, due: list[_Due], tell: Callable[[int], None]) -> None:
        self._run = run
        self._journal = open_journal(run)
        self._found = found
        self._due = due
        self._tell = tell
        self._state = RunState()
        self._last: Line | None = None
        self._different: list[tuple[int, Flaw]] = []  # decided at the end, when all gaps are known
        self._gaps: list[int] = []  # where lines are missing: the first number of each gap

    def read(self) -> None:
        reading = self._pass_over(None)
        for _ in range(_LOOKS_AT_A_TAIL):
            if not reading.torn:
                break
            time.sleep(_PAUSE_S)  # an append may be under way
            reading = self._pass_over(reading.position)
        last = self._last.seq if self._last is not None else 0
        for snapshot in self._due:
            if snapshot.position.seq <= last:
                self._compare(snapshot)
        if reading.torn:
            detail = (
                f"{reading.torn} bytes after its last line that counts; the next run cuts them off and keeps them"
            )
            self._found.flaws.append(Flaw(self._run.journal, REPEATED if reading.repeated else TORN, detail))
        if self._due and self._due[-1].position.seq > last:
            self._found.flaws.append(Flaw(self._run.journal, SHORTENED, _lost_end(last, self._due[-1])))
        self._settle_differences()

    def _pass_over(self, after: Position | None) -> Reading:
        reading = self._journal.read(after)
        for line in reading:
            self._take(line)
        self._gaps += [first for first, _ in reading.missing]
        self._found.flaws += [Flaw(self._run.journal, DAMAGED, words) for words in reading.damage]
        return reading

    def _take(self, line: Line) -> None:
        while self._due and self._due[0].position.seq < line.seq:
            self._compare(self._due.pop(0))
        self._found.lines += 1
        self._tell(self._found.lines)
        self._last = line
        try:
            event = decode_event(line.raw)
            fold(self._state, event, line.seq, clock.parse_iso(line.ts))
        except (CheckpointCorruptionError, ValueError) as error:
            self._found.flaws.append(Flaw(self._run.journal, UNREADABLE_LINE, f"line {line.seq}: {error}"))
            return
        if isinstance(event, ev.JournalRepaired):
            self._gaps += [first for first, _ in event.missing]

    def _compare(self, snapshot: _Due) -> None:
        """Compare with the fold up to its line; where they differ, the snapshot is believed from here on."""
        seen = examine_snapshot(snapshot.path) if snapshot.is_ours else None
        saved = _decoded(seen.payload) if seen is not None else None
        if saved is None:
            return  # rotated away meanwhile, or not to be compared
        seq, last = saved.position.seq, self._last
        if last is None or last.seq < seq:
            self._differs(snapshot, f"the journal has no line {seq}, at which it was made")
        elif self._state != saved.state:
            names = [n for n in RunState.__struct_fields__ if getattr(self._state, n) != getattr(saved.state, n)]
            self._differs(snapshot, f"its state is not what the journal says up to line {seq}: {', '.join(names)}")
            self._state = saved.state
        elif last.hash != saved.position.hash:
            self._found.flaws.append(Flaw(snapshot.path, DIFFERENT, f"it names another line {seq}"))

    def _differs(self, snapshot: _Due, detail: str) -> None:
        self._different.append((snapshot.position.seq, Flaw(snapshot.path, DIFFERENT, detail)))

    def _settle_differences(self) -> None:
        """A snapshot that knows lines which the journal has lost is no flaw: that is what it is for."""
        for seq, flaw in self._different:
            if any(first <= seq for first in self._gaps):
                words = f"{flaw.path.name} covers lines that the journal has lost, so the two cannot be compared"
                self._found.notes.append(words)
            else:
                self._found.flaws.append(flaw)


def _lost_end(last: int, snapshot: _Due) -> str:
    """What is lost of a journal that ends before the line of a whole snapshot, and who knows it."""
    left = f"it ends at line {last}" if last else "nothing of it is left"
    return f"{left}; {snapshot.path.name} knows all up to line {snapshot.position.seq}, and stands in for it"
