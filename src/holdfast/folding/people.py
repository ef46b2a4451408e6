"""Events about what is sent back, approved, decided and asked for, mostly by people. Pure."""

from __future__ import annotations

from typing import Any

from holdfast import events as ev
from holdfast.folding.shared import Handler, by, forget_rounds, new_round, person, reopen, replace, surprise
from holdfast.folding.tasks import invalidated
from holdfast.state import (
    COMPLETED,
    FAILED,
    IN_PROGRESS,
    NEEDS_REVIEW,
    PENDING,
    SENT_BACK,
    SKIPPED,
    Recall,
    RunState,
    rounds_key,
)

_OUTCOMES = {
    "keep": "what is there is accepted as it is",
    "restore": "the accepted version is put back",
    "redo": "it is done again",
    "continue": "the half-finished text is continued",
    "skip": "it is left out",
}


def _rewind_requested(state: RunState, event: ev.RewindRequested, at: float) -> None:
    raiser = event.step_id
    reopen(state)
    if state.task(raiser).status != IN_PROGRESS:  # a step objects while it runs; else a person does
        _told_by_person(state, event, at)
    _take_back(state, raiser)
    for target, feedback in event.targets.items():
        key = rounds_key(raiser, target)
        state.rounds[key] = state.rounds.get(key, 0) + 1
        recall = state.recalls.get(target, Recall())
        state.recalls[target] = Recall((*recall.feedback, feedback), (*recall.raisers, raiser))
        _withdraw_question(state, target)
    for kept in event.keep:
        state.keeps[kept] = raiser
    task = state.tasks.get(raiser)
    if task is not None and task.status != COMPLETED:
        # What went wrong before it objected is over.
        over = {"error": "", "kind": ""} if not task.question else {}
        new_round(
            state,
            raiser,
            task,
            status=PENDING,
            failures=0,
            duration=event.duration,
            completed_at=None,
            **over,
        )


def _withdraw_question(state: RunState, target: str) -> None:
    """What is done again needs no answer about the file that it replaces."""
    task = state.tasks.get(target)
    if task is not None and task.question:
        state.tasks[target] = replace(task, question="", error="")


def _take_back(state: RunState, barrier: str) -> None:
    """Whoever rejects in the name of a gate, or a phase, does not let it pass: it is asked again."""
    if barrier in state.gates:
        state.gates[barrier] = SENT_BACK
    state.phases.pop(barrier, None)


def _rewound(state: RunState, event: ev.TaskRewound, at: float) -> None:
    task = state.task(event.step_id)
    state.recalls.pop(event.step_id, None)
    new_round(
        state,
        event.step_id,
        task,
        status=PENDING,
        failures=0,
        completed_at=None,
        previous=task.accepted,
        feedback=event.feedback,
        evidence="",
        redo_reason=": ".join(filter(None, ["sent back", "; ".join(filter(None, event.feedback))])),
    )


def _told_by_person(state: RunState, event: ev.RewindRequested, at: float) -> None:
    what = f"sent back in the name of {event.step_id}" if event.step_id else "sent back by a person"
    for target, feedback in event.targets.items():
        person(state, what, target, at, why=feedback, outcome="it is done again")


def _gate_reached(state: RunState, event: ev.GateReached, at: float) -> None:
    if state.gates.get(event.step_id) != "approved":
        state.gates[event.step_id] = "reached"


def _gate_approved(state: RunState, event: ev.GateApproved, at: float) -> None:
    person(state, f"approved {by(event.by)}", event.step_id, at, outcome="what stands behind it may start")
    if event.step_id.startswith("phase:"):
        state.phases[event.step_id] = "approved"
    else:
        state.gates[event.step_id] = "approved"


def _checklist_refused(state: RunState, event: ev.ChecklistRefused, at: float) -> None:
    state.phases[event.step_id] = "refused: " + "; ".join(event.reasons)


def _phase_started(state: RunState, event: ev.PhaseStarted, at: float) -> None:
    state.phases[event.step_id] = "started"


def _retry_requested(state: RunState, event: ev.RetryRequested, at: float) -> None:
    alone = event.step_ids[0] if len(event.step_ids) == 1 else ""
    what = "retry" if alone else f"retry of {len(event.step_ids)} tasks"
    person(state, f"{what}, asked for by a person", alone, at, outcome="a fresh set of attempts")
    for task_id in event.step_ids:
        task = state.task(task_id)
        if task.status not in (COMPLETED, IN_PROGRESS):
            reopen(state)
            state.tasks[task_id] = replace(task, status=PENDING, failures=0, kind="", error="", question="")
            forget_rounds(state, task_id)


def _redo_requested(state: RunState, event: ev.RedoRequested, at: float) -> None:
    for task_id in event.step_ids:
        reopen(state)
        person(state, "asked for with --redo", task_id, at, outcome="it is done again")
        invalidated(state, ev.TaskInvalidated(step_id=task_id, reason="asked for with --redo"), at)


def _decided(state: RunState, event: ev.Decided, at: float) -> None:
    """An answer ends the question; `redo` and `skip` act at once, the others when the files are looked at."""
    task = state.task(event.step_id)
    outcome = _OUTCOMES.get(event.choice, "")
    person(state, f"decided {by(event.by)}: {event.choice}", event.step_id, at, outcome=outcome)
    if event.choice != "skip":
        reopen(state)
    if not any(state.recalls.get(event.step_id, Recall()).raisers):  # a person's redo that has not begun
        state.recalls.pop(event.step_id, None)
    if event.choice == "redo":
        forget_rounds(state, event.step_id)
        invalidated(state, ev.TaskInvalidated(step_id=event.step_id, reason="a person decided so"), at)
        state.tasks[event.step_id] = replace(state.tasks[event.step_id], decided="redo")
    elif event.choice == "skip":
        state.recalls.pop(event.step_id, None)
        state.tasks[event.step_id] = replace(
            task, status=SKIPPED, question="", kind="", error="skipped by a person"
        )
    else:
        waits = task.status in (NEEDS_REVIEW, FAILED, SKIPPED)
        changes: dict[str, Any] = {"status": PENDING, "failures": 0, "kind": ""} if waits else {}
        state.tasks[event.step_id] = replace(task, decided=event.choice, question="", error="", **changes)


def _view_edited(state: RunState, event: ev.ViewEdited, at: float) -> None:
    task = state.task(event.step_id)
    if event.wanted == "done" and task.status != COMPLETED:
        state.tasks[event.step_id] = replace(task, evidence=event.source)
    words = "says that it is done; that counts only if a file proves it"
    if event.wanted != "done":
        words = "was turned back by hand, so it is done again"
    surprise(state, event.step_id, f"{event.source} {words}", at)


HANDLERS: dict[type, Handler] = {
    ev.RewindRequested: _rewind_requested,
    ev.TaskRewound: _rewound,
    ev.GateReached: _gate_reached,
    ev.GateApproved: _gate_approved,
    ev.ChecklistRefused: _checklist_refused,
    ev.PhaseStarted: _phase_started,
    ev.RetryRequested: _retry_requested,
    ev.RedoRequested: _redo_requested,
    ev.Decided: _decided,
    ev.ViewEdited: _view_edited,
}
