"""Why a task stands where it stands, in lines of plain text. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast import clock
from holdfast.errors import UsageError
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.names import did_you_mean, printable
from holdfast.state import COMPLETED, IN_PROGRESS, NEEDS_REVIEW, RunState, TaskState

if TYPE_CHECKING:
    from holdfast.decisions import Planned

_EVIDENCE = {
    "sealed": "adopted: its file was whole and sealed, only the record was missing",
    "marker": "adopted: its file ends in the plain completion marker",
    "exists": "adopted: its file is there and no marker is expected",
}


def tell(task: str, state: RunState, graph: Graph, planned: Planned | None) -> list[str]:
    """What is known of one task; UsageError if there is no such task."""
    if task not in graph.nodes and task not in state.tasks:
        near = did_you_mean(task, [node.id for node in graph.tasks()])
        raise UsageError(f"There is no task {printable(task)} in run {state.run_id}.", fix=near)
    record = state.tasks.get(task)
    lines = [f"{task}: {record.status if record is not None else 'not started'}"]
    if record is not None:
        lines += _past(record)
        lines += [f"  made from {name}: {value}" for name, value in record.inputs.items()]
        lines += [f"  made by version {record.version} of the step"] if record.version > 1 else []
    node = graph.nodes.get(task)
    if node is not None and node.parents:
        lines.append("  depends on " + ", ".join(parent.id for parent in node.parents))
    if planned is not None:
        lines.append(f"  next: {planned.action}, because: {planned.reason}")
    return lines


def _past(record: TaskState) -> Iterator[str]:
    if record.status == COMPLETED and record.completed_at is not None:
        how = _EVIDENCE.get(record.evidence) or f"ran in {record.duration:.3g} s, attempt {record.attempt}"
        yield f"  completed {clock.iso(record.completed_at)}: {how}"
    if record.status == IN_PROGRESS:
        yield f"  attempt {record.attempt} is running, or was cut off"
    if record.round:
        yield f"  round {record.round}: it ran before, and was done again"
    if record.redo_reason:
        yield f"  runs again because: {record.redo_reason}"
    if record.feedback:
        yield "  sent back with: " + "; ".join(record.feedback)
    if record.status == NEEDS_REVIEW:
        yield f"  needs a person after {record.failures} failed attempts ({record.kind})"
    if record.error:
        yield f"  last error: {record.error}"
    if record.cost_usd:
        yield f"  has cost ${record.cost_usd:.4f}"
