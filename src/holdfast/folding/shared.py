"""What the handlers of events share. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.events import NO_VALUE
from holdfast.state import COMPLETED, IN_PROGRESS, DecisionRecord, Note, RunState, TaskState, rounds_key

Handler = Callable[[RunState, Any, float], None]

SURPRISES_MAX = 200
"""RESUME.md tells the latest; the journal has them all."""

REOPENED = "something is to be done again"
"""Why a run that was complete is not any more."""

replace = msgspec.structs.replace


def own(raw: msgspec.Raw) -> msgspec.Raw:
    """A value decoded from a line is a view of that line: keep only the value's own bytes."""
    return msgspec.Raw(bytes(raw)) if raw else NO_VALUE


def new_round(state: RunState, task_id: str, task: TaskState, **changes: Any) -> None:
    """Begin a new round: nothing is replayed, and what the old one cost is wasted."""
    state.wasted_cost_usd += task.round_cost_usd
    state.once.pop(task_id, None)
    state.tasks[task_id] = replace(
        task,
        round=task.round + 1,
        attempt=0,
        round_cost_usd=0.0,
        loose_cost_usd=0.0,
        cut_off_cost_usd=0.0,
        before=None,
        **changes,
    )


def surprise(state: RunState, task_id: str, text: str, at: float, impact: str = "") -> None:
    state.surprises.append(Note(text, impact, task_id, at))
    del state.surprises[:-SURPRISES_MAX]


def reopen(state: RunState) -> None:
    """Somebody wants something of a complete run: it is not complete until that is done."""
    if state.status == COMPLETED:
        state.status, state.reason = IN_PROGRESS, REOPENED


def person(state: RunState, what: str, task_id: str, at: float, *, why: str = "", outcome: str = "") -> None:
    state.decisions.append(DecisionRecord(what, why, outcome, task_id, at))


def by(who: str) -> str:
    return f"by {who}" if who else "by a person"


def forget_rounds(state: RunState, raiser: str) -> None:
    prefix = rounds_key(raiser, "")
    for key in [key for key in state.rounds if key.startswith(prefix)]:
        del state.rounds[key]
