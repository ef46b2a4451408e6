"""How events become state: `fold` is the only place where an event changes it.

It does no I/O and asks no clock: the time of an event is given. The same events always give the same state, so a
snapshot is nothing but a saved fold.
"""

from __future__ import annotations

from typing import Any

from holdfast.folding import people, runs, tasks, words
from holdfast.folding.shared import REOPENED, Handler
from holdfast.state import RunState

__all__ = ["FOLD_VERSION", "REOPENED", "fold"]

FOLD_VERSION = 10
"""Raised whenever the same journal gives another state than before: no snapshot of another version is believed."""

_HANDLERS: dict[type, Handler] = {**runs.HANDLERS, **tasks.HANDLERS, **words.HANDLERS, **people.HANDLERS}


def fold(state: RunState, event: Any, seq: int, at: float) -> None:
    """Apply one event. An unknown one changes nothing but the sequence number."""
    state.seq = seq
    state.updated_at = at
    handler = _HANDLERS.get(type(event))
    if handler is not None:
        handler(state, event, at)
