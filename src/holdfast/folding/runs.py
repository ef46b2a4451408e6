"""Events about the run as a whole: begun, continued, stopped, rebuilt, mended. Pure."""

from __future__ import annotations

import msgspec

from holdfast import events as ev
from holdfast.folding.shared import Handler, reopen, replace, surprise
from holdfast.state import FAILED, IN_PROGRESS, PENDING, SENDS_BACK, RunState, TaskState, rounds_key
from holdfast.wording import counted

_MADE_FROM_FILES = (
    "there was no record of this run, so it was made from the files and views; lost, if there were any: attempts,"
    " decisions, notes, and what steps without files have cost"
)


def _run_started(state: RunState, event: ev.RunStarted, at: float) -> None:
    state.run_id, state.pipeline, state.ordinal = event.run_id, event.pipeline, event.ordinal
    state.params, state.file, state.budget_usd = event.params, event.file, event.budget_usd
    state.host, state.pid = event.host, event.pid
    state.started_at = at
    state.status = IN_PROGRESS
    state.rebuilt, state.forced = event.rebuilt, event.forced
    state.lost = state.lost or event.rebuilt
    if event.rebuilt:
        surprise(state, "", _MADE_FROM_FILES, at)


def _recovered(state: RunState, event: ev.Recovered, at: float) -> None:
    state.rebuilt = False
    for words in event.disagreements:
        surprise(state, "", words, at)


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
    pairs = [(*key.rpartition(SENDS_BACK)[::2], times) for key, times in state.rounds.items()]
    state.rounds = {rounds_key(renamed(raiser), renamed(target)): times for raiser, target, times in pairs}
    for task_id, recall in state.recalls.items():
        state.recalls[task_id] = replace(recall, raisers=tuple(map(renamed, recall.raisers)))
    state.keeps = {kept: renamed(raiser) for kept, raiser in state.keeps.items()}
    state.memories = {path: renamed(step) for path, step in state.memories.items()}
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
            task = state.tasks[task_id] = replace(task, question="", error="")
        if task.status == IN_PROGRESS:
            state.tasks[task_id] = _cut_off(state, task)
        elif event.fresh_attempts and (task.status == FAILED or task.has_failed):
            state.tasks[task_id] = replace(task, status=PENDING, failures=0, kind="")


def _cut_off(state: RunState, task: TaskState) -> TaskState:
    """An attempt ended by a crash: not held against `retries`, but what it spent loosely is gone."""
    state.wasted_cost_usd += task.loose_cost_usd
    return replace(
        task,
        status=PENDING,
        attempt=max(0, task.attempt - 1),
        cut_off=True,
        round_cost_usd=task.round_cost_usd - task.loose_cost_usd,
        cut_off_cost_usd=task.loose_cost_usd,
        loose_cost_usd=0.0,
        started_at=None,
    )


def _run_stopped(state: RunState, event: ev.RunStopped, at: float) -> None:
    state.status, state.reason = event.status, event.reason
    if state.recalls:  # sent back while the engine was ending
        reopen(state)


def _snapshot_written(state: RunState, event: ev.SnapshotWritten, at: float) -> None:
    state.snapshot_number = event.number


def _repaired(state: RunState, event: ev.JournalRepaired, at: float) -> None:
    state.lost = state.lost or bool(event.missing_total) or not event.kept_as
    words = "the journal was missing and was written anew from a snapshot"
    if event.kept_as:
        lost = counted(event.missing_total, "line is lost", "lines are lost")
        words = f"the journal was damaged and was written anew; {lost}; the damaged one is kept as {event.kept_as}"
    surprise(state, "", words, at)


def _mended(state: RunState, event: ev.StateMended, at: float) -> None:
    for finding in event.findings:
        surprise(state, "", finding, at)
    for task_id, keys in event.lost_calls.items():
        for key in keys:
            state.once.get(task_id, {}).pop(key, None)


HANDLERS: dict[type, Handler] = {
    ev.RunStarted: _run_started,
    ev.Recovered: _recovered,
    ev.PipelineDeclared: _pipeline_declared,
    ev.RunContinued: _run_continued,
    ev.RunStopped: _run_stopped,
    ev.SnapshotWritten: _snapshot_written,
    ev.JournalRepaired: _repaired,
    ev.StateMended: _mended,
}
