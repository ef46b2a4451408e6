"""Why a task stands where it stands, in lines of plain text. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast import clock
from holdfast.errors import UsageError
from holdfast.pipeline.graph import SETTLE, Graph, Node
from holdfast.pipeline.names import did_you_mean, printable
from holdfast.state import BLOCKED, COMPLETED, IN_PROGRESS, NEEDS_REVIEW, PENDING, RunState, TaskState

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
    waited_for = _waited_for(task, graph, state)
    lines = [f"{task}: {_status(record, waited_for)}"]
    if record is not None:
        lines += _past(record)
        inputs = {name: part.removeprefix("?") or "not known" for name, part in record.inputs.items()}
        lines += [f"  made from {name}: {part}" for name, part in inputs.items()]
        lines += [f"  made by version {record.version} of the step"] if record.version > 1 else []
    node = graph.nodes.get(task)
    if node is not None and node.parents:
        lines.append("  depends on " + ", ".join(parent.id for parent in node.parents))
    lines += [f"  waits for {name}, which needs a person" for name in waited_for]
    if planned is not None:
        lines.append(f"  next: {planned.action}, because: {planned.reason}")
    return lines


def _status(record: TaskState | None, waited_for: list[str]) -> str:
    if waited_for and (record is None or record.status == PENDING):
        return BLOCKED
    return record.status if record is not None else "not started"


def _waited_for(task: str, graph: Graph, state: RunState) -> list[str]:
    """What a person has to see to before this task can start, however far upstream; also gates and phases."""
    producers: dict[str, list[Node]] = {}
    for node in graph.nodes.values():
        for consumer, kind in node.consumers:
            if kind != SETTLE:  # such an edge lets through what waits for a person
                producers.setdefault(consumer.id, []).append(node)
    seen, todo, found = {task}, [task], list[str]()
    while todo:
        for node in producers.get(todo.pop(), ()):
            if node.id not in seen:
                seen.add(node.id)
                todo.append(node.id)
                if _needs_person(node, state):
                    found.append(node.id)
    return sorted(found)


def _needs_person(node: Node, state: RunState) -> bool:
    if node.kind == "gate":
        return state.gates.get(node.id) == "reached"
    if node.kind == "phase":
        return state.phases.get(node.id, "").startswith("refused")
    record = state.tasks.get(node.id)
    return record is not None and (bool(record.question) or record.status == NEEDS_REVIEW)


def _past(record: TaskState) -> Iterator[str]:
    if record.status == COMPLETED and record.completed_at is not None:
        how = _EVIDENCE.get(record.evidence) or f"ran in {record.duration:.3g} s, attempt {record.attempt}"
        yield f"  completed {clock.iso(record.completed_at)}: {how}"
    if record.status == IN_PROGRESS:
        yield f"  attempt {record.attempt} is running, or was cut off"
    if record.round:
        yield f"  round {record.round}: it ran before, and was done again"
    if record.redo_reason:
        verb = "ran" if record.status == COMPLETED else "runs"
        yield f"  {verb} again because: {record.redo_reason}"
    if record.feedback:
        yield "  sent back with: " + "; ".join(record.feedback)
    if record.status == NEEDS_REVIEW:
        yield f"  needs a person after {record.failures} failed attempts ({record.kind})"
    if record.error:
        yield f"  last error: {record.error}"
    if record.cost_usd:
        yield f"  has cost ${record.cost_usd:.4f}"
