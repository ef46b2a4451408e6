"""A run's state from its disk: the newest snapshot that proves itself, and the journal from there on. Read-only.

The journal is the truth; the snapshot only saves time. One whose line is not in the journal is not used, and set
aside where that is allowed, unless the journal itself is damaged before that line: then it covers the gap.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from holdfast import clock
from holdfast import events as ev
from holdfast.errors import CheckpointCorruptionError, FormatTooNewError
from holdfast.folding import fold
from holdfast.journal.scan import START, Line, Position, is_whole, scan
from holdfast.layout import RunLayout
from holdfast.snapshots import newest_snapshot, put_away
from holdfast.state import RunState

FORMAT = 1


class SavedState(msgspec.Struct, omit_defaults=True):
    """The content of a run's snapshot."""

    format: int
    position: Position
    state: RunState


@dataclass
class History:
    """What was read, and what was wrong with it."""

    state: RunState
    position: Position | None
    tail_events: int = 0  # lines read after the snapshot
    tail: str = ""  # what stands behind the journal's last line, and is cut off by whoever appends
    begun: Position = START  # where reading began: lines before it were not proved
    damage: list[str] = field(default_factory=list)  # of snapshots
    journal_damage: list[str] = field(default_factory=list)


_decoder = msgspec.json.Decoder(SavedState)
_encoder = msgspec.json.Encoder()


class _FormatOnly(msgspec.Struct):
    format: int = 0


def encode_state(state: RunState, position: Position) -> bytes:
    return _encoder.encode(SavedState(FORMAT, position, state))


def decode_state(payload: bytes) -> SavedState:
    """The inverse of `encode_state`; msgspec.ValidationError if it is not that."""
    return _decoder.decode(payload)


def read_history(run: RunLayout, *, quarantine: Path | None = None) -> History:
    """The state of a run. With `quarantine` given, damaged snapshots are put there; else nothing is touched."""
    damage: list[str] = []
    path, saved = _newest(run, quarantine, damage)
    reading = scan(run.journal, saved.position if saved is not None else None)
    lines = list(reading)
    history = History(RunState(), reading.position, len(lines), reading.tail, damage=damage)
    history.journal_damage += reading.damage
    if saved is not None and reading.anchored:
        history.state, history.begun = saved.state, saved.position
    elif saved is not None and _stands_in(saved, lines, history):
        history.state = saved.state
        lines = [line for line in lines if line.seq > saved.position.seq]
    elif path is not None and saved is not None:
        damage.append(put_away(path, quarantine, "names a line that the journal does not have"))
    for line in lines:
        fold(history.state, ev.decode(line.raw), line.seq, clock.parse_iso(line.ts))
    return history


def _stands_in(saved: SavedState, lines: list[Line], history: History) -> bool:
    """Whether the snapshot is one of this journal, although the line that it names is not in its place.

    It may be at another one, moved by what was put in or taken out before it. If the journal is damaged, or was
    repaired since, the snapshot knows what was lost with the damage: repairing keeps the numbers, so the lines
    after the snapshot's own follow it. Otherwise it belongs to another journal.
    """
    seq, sum_ = saved.position.seq, saved.position.sum
    if not lines or lines[-1].seq < seq:  # a snapshot is written only after the journal is synced
        history.journal_damage.append(f"the journal lost its end, up to line {seq} at least")
    if history.journal_damage or any((line.seq, line.sum) == (seq, sum_) for line in lines):
        return True
    return any(isinstance(ev.decode(line.raw), ev.JournalRepaired) for line in lines)


def _newest(
    run: RunLayout, quarantine: Path | None, damage: list[str]
) -> tuple[Path, SavedState] | tuple[None, None]:
    loaded = newest_snapshot(run.dir, quarantine=quarantine, damaged=damage)
    if loaded is None:
        return None, None
    try:
        return loaded.path, decode_state(loaded.payload)
    except msgspec.ValidationError as error:
        _refuse_newer(loaded.payload, loaded.number)
        damage.append(put_away(loaded.path, quarantine, f"does not read: {error}"))
        return None, None


def _refuse_newer(payload: bytes, number: int) -> None:
    """A snapshot that proves itself but does not read may be from a newer version: that is never passed over."""
    found = msgspec.json.decode(payload, type=_FormatOnly, strict=False)
    if found.format > FORMAT:
        raise FormatTooNewError(
            f"checkpoint_{number:04d}.json was written by a newer Holdfast: format {found.format}, not {FORMAT}.",
            fix="Upgrade Holdfast; nothing was touched.",
        )


def damage_before(run: RunLayout, history: History) -> list[str]:
    """What is wrong with the lines that a snapshot spared us reading."""
    if is_whole(run.journal, history.begun):
        return []
    reading = scan(run.journal)
    deque(reading, maxlen=0)
    return reading.damage


def require_run(state: RunState, run: RunLayout) -> RunState:
    """`state`, if the journal had a beginning."""
    if not state.run_id:
        raise CheckpointCorruptionError(
            f"{run.journal.name} of run {run.dir.name} has no readable beginning.",
            fix=f"Name its pipeline: holdfast run FILE.py --resume {run.dir.name}",
        )
    return state
