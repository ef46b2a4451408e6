"""Events about tasks: begun, ended, adopted, kept, invalidated, and what was found about their files. Pure."""

from __future__ import annotations

from holdfast import events as ev
from holdfast.events import NO_VALUE
from holdfast.folding.shared import Handler, new_round, own, replace, surprise
from holdfast.state import COMPLETED, IN_PROGRESS, LEFT_OUT, PENDING, SKIPPED, Accepted, RunState, TaskState


def _entered(state: RunState, event: ev.NodeEntered, at: float) -> None:
    task = state.task(event.step_id)
    if event.round != task.round or task.before is not None:  # other inputs: there is no way back any more
        state.once.pop(event.step_id, None)
    state.tasks[event.step_id] = replace(
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
        before=None,
    )
    if event.partial_chars:
        text = f"{event.partial_chars:,} characters of half-finished text were there; it went on from them"
        surprise(state, event.step_id, text, at)


def _exited(state: RunState, event: ev.NodeExited, at: float) -> None:
    task = state.task(event.step_id)
    if event.cost_usd or event.input_tokens or event.output_tokens:
        task = state.tasks[event.step_id] = _with_lost_spend(state, task, event)
    if event.status != COMPLETED:
        _not_completed(state, event)
        return
    state.tasks[event.step_id] = replace(
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
        accepted=Accepted(event.files, own(event.value), event.value_ref),
        error="",
        kind="",
        cut_off=False,
        evidence="",
        value_lost=False,
    )
    if state.keeps and not _objects_still(state, state.keeps.get(event.step_id, "")):
        state.keeps.pop(event.step_id, None)
    state.last_completed = event.step_id


def _with_lost_spend(state: RunState, task: TaskState, event: ev.NodeExited) -> TaskState:
    """The task with all that was spent on it, also where a line that told of it is missing."""
    more_usd = max(0.0, event.cost_usd - task.cost_usd)
    more_in = max(0, event.input_tokens - task.input_tokens)
    more_out = max(0, event.output_tokens - task.output_tokens)
    if not (more_usd or more_in or more_out):
        return task
    state.cost_usd += more_usd
    state.input_tokens += more_in
    state.output_tokens += more_out
    return replace(
        task,
        input_tokens=task.input_tokens + more_in,
        output_tokens=task.output_tokens + more_out,
        cost_usd=task.cost_usd + more_usd,
        round_cost_usd=task.round_cost_usd + more_usd,
        loose_cost_usd=task.loose_cost_usd + more_usd,
    )


def _objects_still(state: RunState, raiser: str) -> bool:
    """Whether what it sent back has not been taken back yet: whoever completes now did so with the old input."""
    return any(raiser in recall.raisers for recall in state.recalls.values())


def _not_completed(state: RunState, event: ev.NodeExited) -> None:
    task = state.task(event.step_id)
    state.wasted_cost_usd += task.loose_cost_usd
    task = replace(
        task,
        status=event.status,
        attempt=event.attempt,
        failures=task.failures + 1,
        failed_on=event.failed_on,
        duration=event.duration,
        error=event.error,
        kind=event.kind,
        round_cost_usd=task.round_cost_usd - task.loose_cost_usd,
        loose_cost_usd=0.0,
    )
    state.tasks[event.step_id] = task
    if event.new_round:
        new_round(state, event.step_id, task)


def _adopted(state: RunState, event: ev.TaskAdopted, at: float) -> None:
    task = state.tasks.get(event.step_id)
    if task is None:
        _adopted_unknown(state, event, at)
        return
    same_round = event.round == task.round
    saved = _saved(state, task) if same_round and task.cut_off_cost_usd else 0.0
    more_usd = event.cost_usd - task.cost_usd if event.cost_usd > task.cost_usd else 0.0
    more_tokens = event.tokens - task.input_tokens - task.output_tokens if event.tokens else 0
    more_tokens = more_tokens if more_tokens > 0 else 0
    if not same_round:  # the record is an older copy, or lost what led to this round
        state.wasted_cost_usd += task.round_cost_usd
    round_cost = (task.round_cost_usd if same_round else 0.0) + saved + more_usd
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
        input_tokens=task.input_tokens + more_tokens,
        output_tokens=task.output_tokens,
        cost_usd=event.cost_usd if more_usd else task.cost_usd,
        round_cost_usd=round_cost,
        loose_cost_usd=more_usd + saved,
        evidence=event.evidence,
        value_lost=event.value_lost,
    )
    state.cost_usd += more_usd
    state.input_tokens += more_tokens
    if not same_round:
        state.once.pop(event.step_id, None)
    state.last_completed = event.step_id


def _adopted_unknown(state: RunState, event: ev.TaskAdopted, at: float) -> None:
    """The same for a task of which nothing is on record: of a lost run there are thousands."""
    state.tasks[event.step_id] = TaskState(
        status=COMPLETED,
        round=event.round,
        completed_at=at,
        version=event.version,
        input_digest=event.input_digest,
        inputs=event.inputs,
        output_digest=event.output_digest,
        accepted=Accepted(event.files, NO_VALUE, event.value_ref),
        input_tokens=event.tokens,
        cost_usd=event.cost_usd,
        round_cost_usd=event.cost_usd,
        loose_cost_usd=event.cost_usd,
        evidence=event.evidence,
        value_lost=event.value_lost,
    )
    state.cost_usd += event.cost_usd
    state.input_tokens += event.tokens
    if event.round:
        state.once.pop(event.step_id, None)
    state.last_completed = event.step_id


def _saved(state: RunState, task: TaskState) -> float:
    """What was counted as lost, but was not in vain: the output of that attempt is the one that was found."""
    state.wasted_cost_usd = max(0.0, state.wasted_cost_usd - task.cut_off_cost_usd)
    return task.cut_off_cost_usd


def invalidated(state: RunState, event: ev.TaskInvalidated, at: float) -> None:
    task = state.task(event.step_id)
    before = task if event.stale and task.status == COMPLETED else None
    calls = state.once.get(event.step_id)
    state.keeps.pop(event.step_id, None)
    if event.damaged:
        _lose_loose_spend(state, event.step_id, task)
    else:
        if task.status == COMPLETED:  # other work than the one that was sent back then
            task = replace(task, previous=None, feedback=())
        new_round(state, event.step_id, task)
    if before is not None and calls:
        state.once[event.step_id] = calls
    state.tasks[event.step_id] = replace(
        state.task(event.step_id),
        status=PENDING,
        failures=event.failures,
        completed_at=None,
        error="",
        kind="",
        question="",
        decided="",
        evidence="",
        value_lost=False,
        redo_reason=event.reason,
        before=before,
    )


def _reinstated(state: RunState, event: ev.TaskReinstated, at: float) -> None:
    """As if it had never been invalidated; an answer that a person gave meanwhile holds."""
    task = state.task(event.step_id)
    if task.before is not None:
        state.wasted_cost_usd = max(0.0, state.wasted_cost_usd - task.before.round_cost_usd)
        state.tasks[event.step_id] = replace(task.before, decided=task.decided)


def _lose_loose_spend(state: RunState, task_id: str, task: TaskState) -> None:
    """The same work once more: its paid calls are replayed, what was spent beside them is spent again."""
    state.wasted_cost_usd += task.loose_cost_usd
    state.tasks[task_id] = replace(
        task,
        round_cost_usd=task.round_cost_usd - task.loose_cost_usd,
        cut_off_cost_usd=task.loose_cost_usd,
        loose_cost_usd=0.0,
    )


def _kept(state: RunState, event: ev.TaskKept, at: float) -> None:
    task = state.task(event.step_id)
    accepted = task.accepted or Accepted()
    state.tasks[event.step_id] = replace(
        task,
        status=COMPLETED,
        question="",
        decided="",
        error="",
        input_digest=event.input_digest or task.input_digest,
        inputs=event.inputs or task.inputs,
        output_digest=event.output_digest or task.output_digest,
        accepted=replace(accepted, files=event.files or accepted.files),
    )
    state.keeps.pop(event.step_id, None)


def _migrated(state: RunState, event: ev.ValueMigrated, at: float) -> None:
    state.tasks[event.step_id] = replace(
        state.task(event.step_id),
        version=event.version,
        input_digest=event.input_digest,
        inputs=event.inputs,
        accepted=Accepted(event.files, own(event.value), event.value_ref),
    )


def _skipped(state: RunState, event: ev.TaskSkipped, at: float) -> None:
    task = state.task(event.step_id)
    state.tasks[event.step_id] = replace(task, status=SKIPPED, kind=LEFT_OUT, error=event.reason, before=None)


def _taken_up(state: RunState, event: ev.TaskTakenUp, at: float) -> None:
    state.tasks[event.step_id] = replace(state.task(event.step_id), status=PENDING, kind="", error="")


def _memory_written(state: RunState, event: ev.MemoryWritten, at: float) -> None:
    """The sections named are in the file from now on; until then only objects/ had them."""
    state.memories = {**state.memories, event.path: event.step_id}
    for task_id in event.sections:
        task = state.task(task_id)
        if task.accepted is not None:
            files = tuple(replace(file, kind="section") for file in task.accepted.files)
            state.tasks[task_id] = replace(task, accepted=replace(task.accepted, files=files))


def _question(state: RunState, event: ev.QuestionAsked, at: float) -> None:
    task = state.task(event.step_id)
    state.tasks[event.step_id] = replace(task, question=event.about, error=event.detail, decided="")
    surprise(state, event.step_id, event.detail, at)


def _healed(state: RunState, event: ev.ArtifactHealed, at: float) -> None:
    task = state.tasks.get(event.step_id)
    if task is not None and task.decided:
        state.tasks[event.step_id] = replace(task, decided="")
    done = "sealed anew" if event.resealed else f"put back from {event.source or 'objects/'}"
    surprise(state, event.step_id, f"{event.path} was {event.problem}; {done}", at, "none")


def _set_aside(state: RunState, event: ev.ArtifactSetAside, at: float) -> None:
    surprise(state, event.step_id, f"{event.path} was {event.reason}; set aside as {event.to}", at)


def _moved(state: RunState, event: ev.ArtifactMoved, at: float) -> None:
    task = state.tasks.get(event.step_id)
    if task is not None and task.accepted is not None:
        state.tasks[event.step_id] = replace(task, accepted=replace(task.accepted, files=event.files))


def _overran(state: RunState, event: ev.Overran, at: float) -> None:
    surprise(state, event.step_id, f"went on after its timeout of {event.timeout:g} s", at)


HANDLERS: dict[type, Handler] = {
    ev.NodeEntered: _entered,
    ev.NodeExited: _exited,
    ev.TaskAdopted: _adopted,
    ev.TaskInvalidated: invalidated,
    ev.TaskReinstated: _reinstated,
    ev.TaskKept: _kept,
    ev.ValueMigrated: _migrated,
    ev.TaskSkipped: _skipped,
    ev.TaskTakenUp: _taken_up,
    ev.MemoryWritten: _memory_written,
    ev.QuestionAsked: _question,
    ev.ArtifactHealed: _healed,
    ev.ArtifactSetAside: _set_aside,
    ev.ArtifactMoved: _moved,
    ev.Overran: _overran,
}
