"""The run as one JSON document: checkpoint.json, small, and `status --json`, with every task. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from holdfast.clock import iso
from holdfast.pipeline.nodes import split_task_id
from holdfast.pipeline.spec import StepSpec
from holdfast.state import (
    BLOCKED,
    COMPLETED,
    FAILED,
    IN_PROGRESS,
    NEEDS_REVIEW,
    PENDING,
    SKIPPED,
    WAITS_FOR_PERSON,
    Accepted,
    TaskState,
)
from holdfast.values import decode_json
from holdfast.views.matrix import is_expanded
from holdfast.views.picture import READY, Picture
from holdfast.views.stamp import stamp_json

INTERRUPTED = "interrupted"
UNFINISHED = "not finished"

_TOTALS = (COMPLETED, FAILED, NEEDS_REVIEW, BLOCKED, SKIPPED, PENDING, IN_PROGRESS)

Json = dict[str, Any]
Kept = Callable[[str], bytes | None]  # an object by its hash


def summary(picture: Picture) -> Json:
    """The content of checkpoint.json, without its stamp; parameters and tags also at the top level."""
    state = picture.state
    document: Json = {
        "run_id": state.run_id,
        "pipeline": state.pipeline,
        "file": state.file,
        "ordinal": state.ordinal,
        "params": state.params,
        "tags": state.tags,
        "status": state.status,
        "started_at": _time(state.started_at),
        "updated_at": _time(state.updated_at),
        "totals": totals(picture),
        "completed_steps": _steps(picture),
        **_standing(picture),
    }
    for key, value in (state.tags | state.params).items():
        if key != "stamp":
            document.setdefault(key, value)
    return document


def encode_summary(picture: Picture) -> bytes:
    """checkpoint.json as it is written, stamp last."""
    document = summary(picture)
    return stamp_json(document, picture.state.run_id, picture.state.seq)


class TaskStatus(Struct, frozen=True, gc=False):
    """How one task stands."""

    id: str
    step: str
    item: str | None
    status: str
    attempts: int
    round: int
    started_at: str | None
    completed_at: str | None
    duration_seconds: float
    outputs: list[Json]
    value: Any
    metrics: Json
    error: str | None


class Status(Struct, frozen=True):
    """How a run stands: what `status --json` prints."""

    run_id: str
    pipeline: str
    params: dict[str, Any]
    tags: dict[str, Any]
    status: str
    running: bool
    holder: Json | None
    started_at: str | None
    updated_at: str | None
    phase: str | None
    batch: int | None
    totals: dict[str, int]
    next: list[str]
    last_completed_step: str | None
    next_step: str | None
    total_cost_usd: float
    wasted_cost_usd: float
    total_tokens: int
    error: str | None
    tasks: list[TaskStatus]


def status_of(picture: Picture, holder: Mapping[str, Any] | None, kept: Kept) -> Status:
    """How the run stands; `holder` says who runs it now, if anyone does, `kept` gives large values."""
    state = picture.state
    return Status(
        run_id=state.run_id,
        pipeline=state.pipeline,
        params=state.params,
        tags=state.tags,
        status=state.status,
        running=holder is not None,
        holder=None if holder is None else dict(holder),
        started_at=_time(state.started_at),
        updated_at=_time(state.updated_at),
        phase=picture.phase,
        batch=picture.batch,
        totals=totals(picture),
        next=picture.next_steps(),
        **_standing(picture),
        tasks=[_task(picture, task, kept) for task in picture.tasks],
    )


def shown_status(status: str, error: str | None, *, running: bool) -> str:
    """A run's status as people see it; both words are those of its documents.

    One in progress that nobody runs was interrupted. One that stopped, and whose reason a person has dealt with
    since, wholly or in part, is just not finished.
    """
    if running or status == COMPLETED:
        return status
    if status == IN_PROGRESS:
        return INTERRUPTED if error in (None, INTERRUPTED) else UNFINISHED
    is_answered = error is None or (status == FAILED and error == WAITS_FOR_PERSON)
    return UNFINISHED if is_answered else status


def error_of(picture: Picture) -> str | None:
    """Why the run stopped, if that still stands in its way."""
    return None if picture.reason == READY else picture.reason or None


def totals(picture: Picture) -> dict[str, int]:
    """How many tasks there are, and how many in each status."""
    return {"tasks": picture.total} | {status: picture.counts.get(status, 0) for status in _TOTALS}


def cost_line(picture: Picture) -> str:
    """What it has cost so far, in one sentence."""
    state = picture.state
    tokens = state.input_tokens + state.output_tokens
    # A seal has only their sum: of a run that was lost nobody knows how many went which way.
    ways = "" if state.lost and tokens else f" ({state.input_tokens:,} in, {state.output_tokens:,} out)"
    return (
        f"${state.cost_usd:,.4f} in total, of which ${state.wasted_cost_usd:,.4f} was thrown away; "
        f"{tokens:,} tokens{ways}"
    )


def _standing(picture: Picture) -> Json:
    """Where it stands, what it cost, and what is wrong: the same in both documents."""
    state = picture.state
    return {
        "last_completed_step": state.last_completed or None,
        "next_step": next(iter(picture.next_steps()), None),
        "total_cost_usd": _money(state.cost_usd),
        "wasted_cost_usd": _money(state.wasted_cost_usd),
        "total_tokens": state.input_tokens + state.output_tokens,
        "error": error_of(picture),
    }


# --- one entry per step ----------------------------------------------------------------------------------


def _steps(picture: Picture) -> list[Json]:
    """The steps that have begun, in the pipeline's order."""
    entries, known, nothing = [], picture.state.tasks, TaskState()
    for step in picture.spec.steps:
        tasks = picture.by_step.get(step.name, [])
        records = [known.get(task, nothing) for task in tasks]
        if not any(_has_begun(record) for record in records):
            continue
        if step.each is None:
            entries.append(_single_step(picture, step, records[0]))
        else:
            entries.append(_fanned_out(picture, step, tasks, records))
    return entries


def _has_begun(record: TaskState) -> bool:
    return record.status != PENDING or bool(record.attempt or record.round or record.cut_off)


def _single_step(picture: Picture, step: StepSpec, record: TaskState) -> Json:
    status = picture.status(step.name)
    finished = status in (COMPLETED, SKIPPED)
    return {
        "step": step.name,
        "status": _shown(record, status),
        "started_at": _time(record.started_at),
        "completed_at": _time(record.completed_at) if finished else None,
        "duration_seconds": round(record.duration, 3),
        "outputs": _files(record) if finished else [],
        "metrics": {
            "input_tokens": record.input_tokens,
            "output_tokens": record.output_tokens,
            "cost_usd": _money(record.cost_usd),
        },
        "error": record.error or None,
    }


def _fanned_out(picture: Picture, step: StepSpec, tasks: Sequence[str], records: Sequence[TaskState]) -> Json:
    assert step.each is not None
    settled = picture.settled
    statuses = [COMPLETED] * len(tasks)
    if not settled.issuperset(tasks):
        statuses = [
            COMPLETED if task in settled else _shown(record, picture.status(task))
            for task, record in zip(tasks, records, strict=True)
        ]
    finished = {*statuses} <= {COMPLETED, SKIPPED} and is_expanded(picture, step.each)
    started = [record.started_at for record in records if record.started_at is not None]
    ended = [record.completed_at for record in records if record.completed_at is not None]
    return {
        "step": step.name,
        "status": _step_status(statuses, finished),
        "started_at": _time(min(started, default=None)),
        "completed_at": _time(max(ended, default=None) if finished else None),
        # Work, not wall time: clocks jump, and a run may lie still for days between two items.
        "duration_seconds": round(sum([record.duration for record in records]), 3),
        "outputs": {
            "total": len(records),
            "completed": statuses.count(COMPLETED),
            "failed": len([record for record in records if record.status in (FAILED, NEEDS_REVIEW)]),
            "skipped": statuses.count(SKIPPED),
        },
        "metrics": _metrics(records),
        "error": next((record.error for record in records if record.error), None),
    }


def _step_status(statuses: Sequence[str], finished: bool) -> str:
    """A fanned-out step's status: going on while anything of it can, else what is wrong with it."""
    if finished:
        return SKIPPED if {*statuses} == {SKIPPED} else COMPLETED
    for status in (IN_PROGRESS, NEEDS_REVIEW, FAILED):
        if status in statuses:
            return status
    return IN_PROGRESS


def _shown(record: TaskState, status: str) -> str:
    """What waits for an answer needs a person, whatever it was: as its symbol says."""
    return NEEDS_REVIEW if record.question else status


# --- one entry per task ----------------------------------------------------------------------------------


def _task(picture: Picture, task: str, kept: Kept) -> TaskStatus:
    step, path = split_task_id(task)
    record, status = picture.state.task(task), picture.status(task)
    return TaskStatus(
        id=task,
        step=step,
        item="/".join(path) if path else None,
        status=_shown(record, status),
        attempts=record.attempt or record.failures,  # a refused output begins a round with no attempt yet
        round=record.round,
        started_at=_time(record.started_at),
        completed_at=_time(record.completed_at),
        duration_seconds=round(record.duration, 3),
        outputs=_files(record) if status == COMPLETED else [],
        value=_value(record.accepted, kept) if status == COMPLETED else None,
        metrics=_metrics([record]),
        error=record.error or None,
    )


def _files(record: TaskState) -> list[Json]:
    """What the task gave; what was accepted before it was sent back no longer counts."""
    if record.status != COMPLETED or record.accepted is None:
        return []
    return [{"path": file.path, "bytes": file.size, "sha256": file.sha256} for file in record.accepted.files]


def _value(accepted: Accepted | None, kept: Kept) -> Any:
    """The value itself, wherever it is kept; None if there is none, or it is lost."""
    if accepted is None:
        return None
    data = kept(accepted.value_ref) if accepted.value_ref else bytes(accepted.value)
    return decode_json(data) if data else None


def _metrics(records: Sequence[TaskState]) -> Json:
    return {
        "input_tokens": sum([record.input_tokens for record in records]),
        "output_tokens": sum([record.output_tokens for record in records]),
        "cost_usd": _money(sum([record.cost_usd for record in records])),
    }


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else iso(seconds)


def _money(usd: float) -> float:
    """Sums of cents carry noise in the last digits; nobody pays that."""
    return round(usd, 9)
