"""A run's state from its disk: the newest snapshot that proves itself, and the journal from there on. Read-only.

The journal is the truth; the snapshot only saves time. One whose line is not in the journal is not used, and set
aside where that is allowed, unless the journal itself is damaged before that line: then it covers the gap.

A snapshot is a fold, and a fold is only as good as the code that made it. One of another version of the fold is
passed over, untouched: the journal is folded anew, and the next snapshot is ours. Only for what the journal has
lost it is believed all the same, and that is told.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

import msgspec

from holdfast import clock
from holdfast import events as ev
from holdfast.errors import CheckpointCorruptionError, FormatTooNewError
from holdfast.folding import FOLD_VERSION, fold
from holdfast.journal.lines import Line, decode_event
from holdfast.layout import RunLayout
from holdfast.runs.opening import open_journal
from holdfast.snapshots import Loaded, newest_snapshot, put_away
from holdfast.state import RunState
from holdfast.stores.protocols import START, Position

FORMAT = 2


class SavedState(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The content of a run's snapshot."""

    format: int
    fold: int = 0  # as in those that were written before it was counted
    position: Position
    state: RunState


class Header(msgspec.Struct):
    """What stands before the state, also in a snapshot whose state does not read here."""

    format: int = 0
    fold: int = 0
    position: Position = START


class History(msgspec.Struct):
    """What was read, and what was wrong with it."""

    state: RunState
    position: Position
    tail_events: int = 0  # lines read after the snapshot
    tail: str = ""  # what stands behind the journal's last line, and is cut off by whoever appends
    begun: Position = START  # where reading began: lines before it were not proved
    damage: list[str] = []  # of snapshots
    journal_damage: list[str] = []


_decoder = msgspec.json.Decoder(SavedState)
_encoder = msgspec.json.Encoder()


_OURS = b'{"format":%d,"fold":%d,' % (FORMAT, FOLD_VERSION)
_headers = msgspec.json.Decoder(Header, strict=False)


def encode_state(state: RunState, position: Position) -> bytes:
    return _encoder.encode(SavedState(format=FORMAT, fold=FOLD_VERSION, position=position, state=state))


def decode_state(payload: bytes) -> SavedState:
    """The inverse of `encode_state`; msgspec.ValidationError if it is not that."""
    return _decoder.decode(payload)


def read_header(payload: bytes) -> Header:
    """Format, fold and position of a snapshot; msgspec.ValidationError if it is none of a run."""
    return _headers.decode(payload)


def is_of_our_fold(payload: bytes) -> bool:
    """Whether this code would have made the same of the journal: told by the first bytes."""
    return payload.startswith(_OURS)


def read_history(run: RunLayout, *, quarantine: Path | None = None) -> History:
    """The state of a run. With `quarantine` given, damaged snapshots are put there; else nothing is touched."""
    damage: list[str] = []
    path, saved = _newest(run, quarantine, damage)
    reading = open_journal(run).read(saved.position if saved is not None else None)
    lines = list(reading)
    history = History(RunState(), reading.position, len(lines), reading.tail, damage=damage)
    history.journal_damage += reading.damage
    if saved is not None and reading.anchored:
        history.state, history.begun = saved.state, reading.begun
    elif saved is not None and _stands_in(saved, lines, history):
        history.state = saved.state
        lines = [line for line in lines if line.seq > saved.position.seq]
    elif path is not None and saved is not None:
        damage.append(put_away(path, quarantine, "names a line that the journal does not have"))
    else:
        lines = _after_another_fold(run, lines, history)
    for line in lines:
        fold(history.state, decode_event(line.raw), line.seq, clock.parse_iso(line.ts))
    return history


def _stands_in(saved: SavedState, lines: list[Line], history: History) -> bool:
    """Whether the snapshot is one of this journal, although the line that it names is not there.

    If the journal is damaged, or was repaired since, the line may be lost with the damage, and the snapshot knows
    what else was: repairing keeps the numbers, so the lines after the snapshot's own follow it. Otherwise it
    belongs to another journal.
    """
    seq = saved.position.seq
    if not lines or lines[-1].seq < seq:  # a snapshot is written only after the journal is synced
        history.journal_damage.append(f"the journal lost its end, up to line {seq} at least")
    if history.journal_damage:
        return True
    return any(isinstance(decode_event(line.raw), ev.JournalRepaired) for line in lines)


def _after_another_fold(run: RunLayout, lines: list[Line], history: History) -> list[Line]:
    """The lines still to be folded: a snapshot of another fold stands in for what the journal has lost."""
    loaded = newest_snapshot(run.dir, quarantine=None)
    try:
        saved = decode_state(loaded.payload) if loaded is not None else None
    except msgspec.ValidationError:
        saved = None
    if loaded is None or saved is None or not _lacks_lines(lines, saved.position.seq, history):
        return lines
    told = f"what the journal lost is taken from {loaded.path.name}, which another version of Holdfast saved"
    history.damage.append(told)
    history.state = saved.state
    return [line for line in lines if line.seq > saved.position.seq]


def _lacks_lines(lines: list[Line], upto: int, history: History) -> bool:
    """Whether the journal has lost any line up to there: now, or before it was repaired."""
    if not lines or lines[-1].seq < upto:
        history.journal_damage.append(f"the journal lost its end, up to line {upto} at least")
    repairs = [decode_event(line.raw) for line in lines if b'"journal_repaired"' in line.raw]
    gaps = [first for event in repairs if isinstance(event, ev.JournalRepaired) for first, _ in event.missing]
    return bool(history.journal_damage) or any(first <= upto for first in gaps)


def _newest(
    run: RunLayout, quarantine: Path | None, damage: list[str]
) -> tuple[Path, SavedState] | tuple[None, None]:
    """The newest snapshot of our fold that proves itself; those of another one are left as they are."""
    below: int | None = None
    while loaded := newest_snapshot(run.dir, quarantine=quarantine, damaged=damage, below=below):
        below = loaded.number
        try:
            if is_of_our_fold(loaded.payload):
                return loaded.path, decode_state(loaded.payload)
            _refuse_newer(loaded)
        except msgspec.ValidationError as error:
            damage.append(put_away(loaded.path, quarantine, f"does not read: {error}"))
    return None, None


def _refuse_newer(loaded: Loaded) -> None:
    """A snapshot of a newer format is never passed over."""
    found = read_header(loaded.payload)
    if found.format > FORMAT:
        raise FormatTooNewError(
            f"{loaded.path.name} was written by a newer Holdfast: format {found.format}, not {FORMAT}.",
            fix="Upgrade Holdfast; nothing was touched.",
        )


def damage_before(run: RunLayout, history: History) -> list[str]:
    """What is wrong with the lines that a snapshot spared us reading."""
    journal = open_journal(run)
    if journal.is_whole(history.begun):
        return []
    reading = journal.read()
    deque(reading, maxlen=0)
    return reading.damage


def name_pipeline(run_id: str) -> str:
    """The advice where nothing that can be read says which pipeline a run is of."""
    return f"Name its pipeline: holdfast run FILE.py --resume {run_id}"


def require_run(state: RunState, run: RunLayout) -> RunState:
    """`state`, if the journal had a beginning."""
    if not state.run_id:
        raise CheckpointCorruptionError(
            f"{run.journal.name} of run {run.dir.name} has no readable beginning.",
            fix=name_pipeline(run.dir.name),
        )
    return state
