"""How events become state: `fold` is the only place where an event changes it.

It does no I/O and asks no clock: the time of an event is given. The same events always give the same state, so a
snapshot is nothing but a saved fold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast import events as ev
from holdfast.events import NO_VALUE
from holdfast.state import (
    COMPLETED,
    FAILED,
    IN_PROGRESS,
    NEEDS_REVIEW,
    PENDING,
    SENT_BACK,
    SKIPPED,
    Accepted,
    Decision,
    Note,
    OnceRecord,
    Recall,
    RunState,
    Section,
    TaskState,
    rounds_key,
)
from holdfast.wording import counted

FOLD_VERSION = 2
"""Raised whenever the same journal gives another state than before: no snapshot of another version is believed."""

SURPRISES_MAX = 200
"""RESUME.md tells the latest; the journal has them all."""

_MADE_FROM_FILES = (
    "there was no record of this run, so it was made from the files and views; lost, if there were any: attempts,"
    " decisions, notes, and what steps without files have cost"
)

REOPENED = "something is to be done again"
"""Why a run that was complete is not any more."""

_replace = msgspec.structs.replace


def fold(state: RunState, event: Any, seq: int, at: float) -> None:
    """Apply one event. An unknown one changes nothing but the sequence number."""
    state.seq = seq
    state.updated_at = at
    handler = _HANDLERS.get(type(event))
    if handler is not None:
        handler(state, event, at)


# --- the run ---------------------------------------------------------------------------------------------


def _run_started(state: RunState, event: ev.RunStarted, at: float) -> None:
    state.run_id, state.pipeline, state.ordinal = event.run_id, event.pipeline, event.ordinal
    state.params, state.file, state.budget_usd = event.params, event.file, event.budget_usd
    state.host, state.pid = event.host, event.pid
    state.started_at = at
    state.status = IN_PROGRESS
    state.rebuilt = event.rebuilt
    if event.rebuilt:
        _surprise(state, "", _MADE_FROM_FILES, at)


def _recovered(state: RunState, event: ev.Recovered, at: float) -> None:
    state.rebuilt = False
    for words in event.disagreements:
        _surprise(state, "", words, at)


def _pipeline_declared(state: RunState, event: ev.PipelineDeclared, at: float) -> None:
    state.spec = msgspec.Raw(bytes(event.spec))
    for old, new in event.renamed.items():
        _rename_step(state, old, new)


def _rename_step(state: RunState, old: str, new: str) -> None:
    def renamed(task_id: str) -> str:
        name, bracket, rest = task_id.partition("[")
        return new + bracket + rest if name == old else task_id

    for field in ("tasks", "once", "recalls", "keeps", "sections"):
        table = getattr(state, field)
        setattr(state, field, {renamed(key): value for key, value in table.items()})
    state.last_completed = renamed(state.last_completed)


def _run_continued(state: RunState, event: ev.RunContinued, at: float) -> None:
    state.status, state.reason = IN_PROGRESS, ""
    state.host, state.pid = event.host, event.pid
    if event.params is not None:
        state.params = event.params
    if event.file:
        state.file = event.file
    if event.budget_usd is not None:
        state.budget_usd = event.budget_usd
    for task_id, known in state.tasks.items():
        task = known
        if task.question:  # asked anew, if the reason is still there
            task = state.tasks[task_id] = _replace(task, question="", error="")
        if task.status == IN_PROGRESS:
            state.tasks[task_id] = _cut_off(state, task)
        elif event.fresh_attempts and (task.status == FAILED or _failed_for_good(task)):
            state.tasks[task_id] = _replace(task, status=PENDING, failures=0, kind="")


def _cut_off(state: RunState, task: TaskState) -> TaskState:
    """An attempt ended by a crash: not held against `retries`, but what it spent loosely is gone."""
    state.wasted_cost_usd += task.loose_cost_usd
    return _replace(
        task,
        status=PENDING,
        attempt=max(0, task.attempt - 1),
        cut_off=True,
        round_cost_usd=task.round_cost_usd - task.loose_cost_usd,
        cut_off_cost_usd=task.loose_cost_usd,
        loose_cost_usd=0.0,
        started_at=None,
    )


def _failed_for_good(task: TaskState) -> bool:
    return task.status == NEEDS_REVIEW and task.kind != "rounds"


def _run_stopped(state: RunState, event: ev.RunStopped, at: float) -> None:
    state.status, state.reason = event.status, event.reason
    if state.recalls:  # sent back while the engine was ending
        _reopen(state)


def _snapshot_written(state: RunState, event: ev.SnapshotWritten, at: float) -> None:
    state.snapshot_number = event.number


# --- tasks -----------------------------------------------------------------------------------------------


def _entered(state: RunState, event: ev.NodeEntered, at: float) -> None:
    task = state.task(event.step_id)
    state.tasks[event.step_id] = _replace(
        task,
        status=IN_PROGRESS,
        round=event.round,
        attempt=event.attempt,
        started_at=at,
        completed_at=None,
        question="",
        decided="",
        evidence="",
        loose_cost_usd=0.0,
        cut_off_cost_usd=0.0,
    )
    if event.partial_chars:
        text = f"{event.partial_chars:,} characters of half-finished text were there; it went on from them"
        _surprise(state, event.step_id, text, at)


def _exited(state: RunState, event: ev.NodeExited, at: float) -> None:
    if event.status == COMPLETED:
        _completed(state, event, at)
    else:
        _not_completed(state, event)


def _completed(state: RunState, event: ev.NodeExited, at: float) -> None:
    task = state.task(event.step_id)
    state.tasks[event.step_id] = _replace(
        task,
        status=COMPLETED,
        round=event.round,
        attempt=event.attempt,
        failures=0,
        completed_at=at,
        duration=event.duration,
        version=event.version,
        input_digest=event.input_digest,
        inputs=event.inputs,
        output_digest=event.output_digest,
        accepted=Accepted(event.files, _own(event.value), event.value_ref),
        loose_cost_usd=0.0,
        error="",
        kind="",
        cut_off=False,
        evidence="",
        value_lost=False,
    )
    # The journal keeps the paid calls; a completed task never replays them.
    if state.once:
        state.once.pop(event.step_id, None)
    if state.keeps and not _objects_still(state, state.keeps.get(event.step_id, "")):
        state.keeps.pop(event.step_id, None)
    state.last_completed = event.step_id


def _objects_still(state: RunState, raiser: str) -> bool:
    """Whether what it sent back has not been taken back yet: whoever completes now did so with the old input."""
    return any(raiser in recall.raisers for recall in state.recalls.values())


def _own(raw: msgspec.Raw) -> msgspec.Raw:
    """A value decoded from a line is a view of that line: keep only the value's own bytes."""
    return msgspec.Raw(bytes(raw)) if raw else NO_VALUE


def _not_completed(state: RunState, event: ev.NodeExited) -> None:
    task = state.task(event.step_id)
    state.wasted_cost_usd += task.loose_cost_usd
    task = _replace(
        task,
        status=event.status,
        attempt=event.attempt,
        failures=task.failures + 1,
        duration=event.duration,
        error=event.error,
        kind=event.kind,
        round_cost_usd=task.round_cost_usd - task.loose_cost_usd,
        loose_cost_usd=0.0,
    )
    state.tasks[event.step_id] = task
    if event.new_round:
        _new_round(state, event.step_id, task)


def _new_round(state: RunState, task_id: str, task: TaskState, **changes: Any) -> None:
    """Begin a new round: nothing is replayed, and what the old one cost is wasted."""
    state.wasted_cost_usd += task.round_cost_usd
    state.once.pop(task_id, None)
    state.tasks[task_id] = _replace(
        task, round=task.round + 1, attempt=0, round_cost_usd=0.0, cut_off_cost_usd=0.0, **changes
    )


def _adopted(state: RunState, event: ev.TaskAdopted, at: float) -> None:
    task = state.task(event.step_id)
    state.cost_usd += max(0.0, event.cost_usd - task.cost_usd)
    state.input_tokens += max(0, event.tokens - task.input_tokens - task.output_tokens)
    same_round = event.round == task.round
    # What is left out here is as in a fresh task: no failures, no question.
    state.tasks[event.step_id] = TaskState(
        status=COMPLETED,
        round=event.round,
        attempt=task.attempt,
        started_at=task.started_at,
        completed_at=at,
        duration=task.duration,
        version=event.version,
        input_digest=event.input_digest,
        inputs=event.inputs,
        output_digest=event.output_digest,
        accepted=Accepted(event.files, NO_VALUE, event.value_ref),
        previous=task.previous if same_round else None,
        feedback=task.feedback if same_round else (),
        input_tokens=max(event.tokens - task.output_tokens, task.input_tokens),
        output_tokens=task.output_tokens,
        cost_usd=max(event.cost_usd, task.cost_usd),
        round_cost_usd=max(event.cost_usd, _not_wasted(state, task, event)),
        evidence=event.evidence,
        value_lost=event.value_lost,
    )
    state.once.pop(event.step_id, None)
    state.last_completed = event.step_id


def _not_wasted(state: RunState, task: TaskState, event: ev.TaskAdopted) -> float:
    """What its round has cost, with its cut-off attempt, if that attempt's output is the one that was found."""
    if event.round != task.round:
        return task.round_cost_usd
    state.wasted_cost_usd = max(0.0, state.wasted_cost_usd - task.cut_off_cost_usd)
    return task.round_cost_usd + task.cut_off_cost_usd


def _invalidated(state: RunState, event: ev.TaskInvalidated, at: float) -> None:
    task = state.task(event.step_id)
    state.keeps.pop(event.step_id, None)
    if task.status == COMPLETED and not event.damaged:  # other work than the one that was sent back then
        task = _replace(task, previous=None, feedback=())
    _new_round(
        state,
        event.step_id,
        task,
        status=PENDING,
        failures=0,
        completed_at=None,
        error="",
        kind="",
        question="",
        decided="",
        evidence="",
        value_lost=False,
        redo_reason=event.reason,
    )


def _kept(state: RunState, event: ev.TaskKept, at: float) -> None:
    task = state.task(event.step_id)
    accepted = task.accepted or Accepted()
    state.tasks[event.step_id] = _replace(
        task,
        status=COMPLETED,
        question="",
        decided="",
        error="",
        input_digest=event.input_digest or task.input_digest,
        inputs=event.inputs or task.inputs,
        output_digest=event.output_digest or task.output_digest,
        accepted=_replace(accepted, files=event.files or accepted.files),
    )
    state.keeps.pop(event.step_id, None)


def _migrated(state: RunState, event: ev.ValueMigrated, at: float) -> None:
    state.tasks[event.step_id] = _replace(
        state.task(event.step_id),
        version=event.version,
        input_digest=event.input_digest,
        inputs=event.inputs,
        accepted=Accepted(event.files, _own(event.value), event.value_ref),
    )


def _skipped(state: RunState, event: ev.TaskSkipped, at: float) -> None:
    task = state.task(event.step_id)
    state.tasks[event.step_id] = _replace(task, status=SKIPPED, error=event.reason)


def _memory_written(state: RunState, event: ev.MemoryWritten, at: float) -> None:
    """The sections named are in the file from now on; until then only objects/ had them."""
    state.memories = {**state.memories, event.path: event.step_id}
    for task_id in event.sections:
        task = state.task(task_id)
        if task.accepted is not None:
            files = tuple(_replace(file, kind="section") for file in task.accepted.files)
            state.tasks[task_id] = _replace(task, accepted=_replace(task.accepted, files=files))


def _question(state: RunState, event: ev.QuestionAsked, at: float) -> None:
    task = state.task(event.step_id)
    state.tasks[event.step_id] = _replace(task, question=event.about, error=event.detail, decided="")
    _surprise(state, event.step_id, event.detail, at)


def _healed(state: RunState, event: ev.ArtifactHealed, at: float) -> None:
    task = state.tasks.get(event.step_id)
    if task is not None and task.decided:
        state.tasks[event.step_id] = _replace(task, decided="")
    _surprise(state, event.step_id, f"{event.path} was {event.problem}; put back from objects/", at, "none")


def _set_aside(state: RunState, event: ev.ArtifactSetAside, at: float) -> None:
    _surprise(state, event.step_id, f"{event.path} was {event.reason}; set aside as {event.to}", at)


def _overran(state: RunState, event: ev.Overran, at: float) -> None:
    _surprise(state, event.step_id, f"went on after its timeout of {event.timeout:g} s", at)


def _repaired(state: RunState, event: ev.JournalRepaired, at: float) -> None:
    words = "the journal was missing and was written anew from a snapshot"
    if event.kept_as:
        lost = counted(event.missing_total, "line is lost", "lines are lost")
        words = f"the journal was damaged and was written anew; {lost}; the damaged one is kept as {event.kept_as}"
    _surprise(state, "", words, at)


def _mended(state: RunState, event: ev.StateMended, at: float) -> None:
    for finding in event.findings:
        _surprise(state, "", finding, at)
    for task_id, keys in event.lost_calls.items():
        for key in keys:
            state.once.get(task_id, {}).pop(key, None)


def _surprise(state: RunState, task_id: str, text: str, at: float, impact: str = "") -> None:
    state.surprises.append(Note(text, impact, task_id, at))
    del state.surprises[:-SURPRISES_MAX]


# --- sending back ----------------------------------------------------------------------------------------


def _rewind_requested(state: RunState, event: ev.RewindRequested, at: float) -> None:
    raiser = event.step_id
    _reopen(state)
    if state.task(raiser).status != IN_PROGRESS:  # a step objects while it runs; else a person does
        _told_by_person(state, event, at)
    _take_back(state, raiser)
    for target, feedback in event.targets.items():
        key = rounds_key(raiser, target)
        state.rounds[key] = state.rounds.get(key, 0) + 1
        recall = state.recalls.get(target, Recall())
        state.recalls[target] = Recall((*recall.feedback, feedback), (*recall.raisers, raiser))
    for kept in event.keep:
        state.keeps[kept] = raiser
    task = state.tasks.get(raiser)
    if task is not None and task.status != COMPLETED:
        _new_round(state, raiser, task, status=PENDING, duration=event.duration, completed_at=None)


def _take_back(state: RunState, barrier: str) -> None:
    """Whoever rejects in the name of a gate, or a phase, does not let it pass: it is asked again."""
    if barrier in state.gates:
        state.gates[barrier] = SENT_BACK
    state.phases.pop(barrier, None)


def _rewound(state: RunState, event: ev.TaskRewound, at: float) -> None:
    task = state.task(event.step_id)
    state.recalls.pop(event.step_id, None)
    _new_round(
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
        _person(state, what, target, at, why=feedback, outcome="it is done again")


# --- paid calls, spend and words -------------------------------------------------------------------------


def _once(state: RunState, event: ev.OnceRecorded, at: float) -> None:
    if event.round != state.task(event.step_id).round:
        return
    records = state.once.setdefault(event.step_id, {})
    records[event.key] = OnceRecord(event.kind, _own(event.result), event.result_ref)
    if event.spent:
        task = state.task(event.step_id)
        loose = max(0.0, task.loose_cost_usd - event.spent)
        state.tasks[event.step_id] = _replace(task, loose_cost_usd=loose)


def _usage(state: RunState, event: ev.UsageRecorded, at: float) -> None:
    state.cost_usd += event.cost_usd
    state.input_tokens += event.input_tokens
    state.output_tokens += event.output_tokens
    task = state.task(event.step_id)
    kept = bool(event.once) and not event.inside
    loose = 0.0 if kept else event.cost_usd
    current = event.round == task.round
    if not current:
        state.wasted_cost_usd += event.cost_usd
    state.tasks[event.step_id] = _replace(
        task,
        input_tokens=task.input_tokens + event.input_tokens,
        output_tokens=task.output_tokens + event.output_tokens,
        cost_usd=task.cost_usd + event.cost_usd,
        round_cost_usd=task.round_cost_usd + (event.cost_usd if current else 0.0),
        loose_cost_usd=task.loose_cost_usd + (loose if current else 0.0),
    )
    record = state.once.get(event.step_id, {}).get(event.once) if kept and current else None
    if record is not None:
        state.once[event.step_id][event.once] = _replace(record, usages=record.usages + 1)


def _section(state: RunState, event: ev.SectionWritten, at: float) -> None:
    state.sections[event.step_id] = Section(event.title, event.text, event.sources)


def _note(state: RunState, event: ev.NoteAdded, at: float) -> None:
    state.notes.append(Note(event.text, event.impact, event.step_id, at))


def _decision(state: RunState, event: ev.DecisionMade, at: float) -> None:
    state.decisions.append(Decision(event.what, event.why, event.outcome, event.step_id, at))


def _tagged(state: RunState, event: ev.Tagged, at: float) -> None:
    state.tags = {**state.tags, **event.fields}


# --- people ----------------------------------------------------------------------------------------------


def _reopen(state: RunState) -> None:
    """Somebody wants something of a complete run: it is not complete until that is done."""
    if state.status == COMPLETED:
        state.status, state.reason = IN_PROGRESS, REOPENED


def _person(state: RunState, what: str, task_id: str, at: float, *, why: str = "", outcome: str = "") -> None:
    state.decisions.append(Decision(what, why, outcome, task_id, at))


def _by(who: str) -> str:
    return f"by {who}" if who else "by a person"


def _gate_reached(state: RunState, event: ev.GateReached, at: float) -> None:
    if state.gates.get(event.step_id) != "approved":
        state.gates[event.step_id] = "reached"


def _gate_approved(state: RunState, event: ev.GateApproved, at: float) -> None:
    _person(state, f"approved {_by(event.by)}", event.step_id, at, outcome="what stands behind it may start")
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
    _person(state, f"{what}, asked for by a person", alone, at, outcome="a fresh set of attempts")
    for task_id in event.step_ids:
        task = state.task(task_id)
        if task.status not in (COMPLETED, IN_PROGRESS):
            _reopen(state)
            state.tasks[task_id] = _replace(task, status=PENDING, failures=0, kind="", error="", question="")
            _forget_rounds(state, task_id)


def _forget_rounds(state: RunState, raiser: str) -> None:
    prefix = rounds_key(raiser, "")
    for key in [key for key in state.rounds if key.startswith(prefix)]:
        del state.rounds[key]


def _redo_requested(state: RunState, event: ev.RedoRequested, at: float) -> None:
    for task_id in event.step_ids:
        _reopen(state)
        _person(state, "asked for with --redo", task_id, at, outcome="it is done again")
        _invalidated(state, ev.TaskInvalidated(step_id=task_id, reason="asked for with --redo"), at)


_OUTCOMES = {
    "keep": "what is there is accepted as it is",
    "restore": "the accepted version is put back",
    "redo": "it is done again",
    "continue": "the half-finished text is continued",
    "skip": "it is left out",
}


def _decided(state: RunState, event: ev.Decided, at: float) -> None:
    """An answer ends the question; `redo` and `skip` act at once, the others when the files are looked at."""
    task = state.task(event.step_id)
    outcome = _OUTCOMES.get(event.choice, "")
    _person(state, f"decided {_by(event.by)}: {event.choice}", event.step_id, at, outcome=outcome)
    if event.choice != "skip":
        _reopen(state)
    if event.choice == "redo":
        _forget_rounds(state, event.step_id)
        _invalidated(state, ev.TaskInvalidated(step_id=event.step_id, reason="a person decided so"), at)
        state.tasks[event.step_id] = _replace(state.tasks[event.step_id], decided="redo")
    elif event.choice == "skip":
        state.recalls.pop(event.step_id, None)
        state.tasks[event.step_id] = _replace(task, status=SKIPPED, question="", error="skipped by a person")
    else:
        waits = task.status in (NEEDS_REVIEW, FAILED, SKIPPED)
        changes: dict[str, Any] = {"status": PENDING, "failures": 0, "kind": ""} if waits else {}
        state.tasks[event.step_id] = _replace(task, decided=event.choice, question="", error="", **changes)


def _view_edited(state: RunState, event: ev.ViewEdited, at: float) -> None:
    task = state.task(event.step_id)
    if event.wanted == "done" and task.status != COMPLETED:
        state.tasks[event.step_id] = _replace(task, evidence=event.source)
    words = "says that it is done; that counts only if a file proves it"
    if event.wanted != "done":
        words = "was turned back by hand, so it is done again"
    _surprise(state, event.step_id, f"{event.source} {words}", at)


_HANDLERS: dict[type, Callable[[RunState, Any, float], None]] = {
    ev.RunStarted: _run_started,
    ev.PipelineDeclared: _pipeline_declared,
    ev.RunContinued: _run_continued,
    ev.RunStopped: _run_stopped,
    ev.Recovered: _recovered,
    ev.SnapshotWritten: _snapshot_written,
    ev.NodeEntered: _entered,
    ev.NodeExited: _exited,
    ev.TaskAdopted: _adopted,
    ev.TaskInvalidated: _invalidated,
    ev.TaskKept: _kept,
    ev.ValueMigrated: _migrated,
    ev.TaskSkipped: _skipped,
    ev.ArtifactHealed: _healed,
    ev.ArtifactSetAside: _set_aside,
    ev.MemoryWritten: _memory_written,
    ev.QuestionAsked: _question,
    ev.Overran: _overran,
    ev.JournalRepaired: _repaired,
    ev.StateMended: _mended,
    ev.RewindRequested: _rewind_requested,
    ev.TaskRewound: _rewound,
    ev.OnceRecorded: _once,
    ev.UsageRecorded: _usage,
    ev.SectionWritten: _section,
    ev.NoteAdded: _note,
    ev.DecisionMade: _decision,
    ev.Tagged: _tagged,
    ev.GateReached: _gate_reached,
    ev.GateApproved: _gate_approved,
    ev.ChecklistRefused: _checklist_refused,
    ev.PhaseStarted: _phase_started,
    ev.RetryRequested: _retry_requested,
    ev.RedoRequested: _redo_requested,
    ev.Decided: _decided,
    ev.ViewEdited: _view_edited,
}
