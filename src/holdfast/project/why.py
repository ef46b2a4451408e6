"""Why a task stands where it stands, in lines of plain text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast import clock
from holdfast.decisions import NEVER, PERHAPS, RUNNING, SKIP, WAIT
from holdfast.errors import UsageError
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.names import printable, which_task
from holdfast.pipeline.nodes import SETTLE, Node
from holdfast.state import BLOCKED, COMPLETED, IN_PROGRESS, NEEDS_REVIEW, PENDING, SENT_BACK, RunState, TaskState
from holdfast.views.picture import is_sent_back
from holdfast.wording import counted, span

if TYPE_CHECKING:
    from holdfast.decisions import Planned
    from holdfast.views.picture import Need

_NEXT = {
    "run": "it runs",
    "redo": "it runs again",
    "continue": "it goes on from its half-finished text",
    "heal": "it is put back, or sealed anew",
    "adopt": "it is adopted",
    "ask": "it waits for a person",
}
_NAMED_MAX = 5
_EVIDENCE = {
    "sealed": "adopted: its file was whole and sealed, only the record was missing",
    "marker": "adopted: its file ends in the plain completion marker",
    "exists": "adopted: its file is there and no marker is expected",
    "kept": "kept as it was, as a person decided",
}


def tell(
    task: str, state: RunState, graph: Graph, planned: Planned | None, needs: Sequence[Need] = ()
) -> list[str]:
    """What is known of one task, gate or phase; UsageError if there is none of that name."""
    commands = {need.task: need.command for need in needs}
    node = graph.nodes.get(task)
    if node is not None and node.kind in ("gate", "phase"):
        return list(_tell_barrier(node, state, graph, commands))
    if task not in graph.nodes and task not in state.tasks:
        barriers = [node for node in graph.nodes.values() if node.kind in ("gate", "phase")]
        near = which_task(task, [node.id for node in (*graph.tasks(), *barriers)]).strip()
        fix = (
            near or "A step that was renamed since has its old name until the next run; holdfast plan shows both."
        )
        raise UsageError(f"There is no task {printable(task)} in run {state.run_id}.", fix=fix)
    record = state.tasks.get(task)
    waited_for = _waited_for(task, graph, state)
    lines = [f"{task}: {_status(task, record, state, waited_for)}"]
    if record is not None:
        lines += _past(record, is_running=planned is not None and planned.reason == RUNNING)
        inputs = {name: part.removeprefix("?") or "not known" for name, part in record.inputs.items()}
        called = {parent.part: parent.spec.name for parent in node.parents} if node is not None else {}
        lines += [f"  made from {called.get(name, name)}: {part}" for name, part in inputs.items()]
        lines += [f"  made by version {record.version} of the step"] if record.version > 1 else []
    if node is not None and node.parents:
        lines.append("  depends on " + ", ".join(parent.id for parent in node.parents))
    if node is not None and node.material:
        lines.append("  its source is the first that is whole of " + ", ".join(one.id for one in node.material))
    return lines + list(_next(task, record, planned, waited_for, commands))


def _tell_barrier(node: Node, state: RunState, graph: Graph, commands: Mapping[str, str]) -> Iterator[str]:
    """How a gate or a phase stands, and what leads on."""
    standing = state.gates.get(node.id, "") if node.kind == "gate" else state.phases.get(node.id, "")
    yield f"{node.id}: {_BARRIERS.get(standing) or standing.replace('refused: ', 'its checklist says: ', 1)}"
    if node.id in commands:
        if getattr(node.spec, "ask", ""):
            yield f"  asks: {node.spec.ask}"
        yield f"  next: {commands[node.id]}"
    elif not standing:
        yield from _waits(_waited_for(node.id, graph, state), commands)


_BARRIERS = {
    "": "not reached yet",
    "reached": "waits for approval",
    SENT_BACK: "work was sent back in its name; it asks again when that is there",
}


def _next(
    task: str,
    record: TaskState | None,
    planned: Planned | None,
    waited_for: Sequence[str],
    commands: Mapping[str, str],
) -> Iterator[str]:
    """What happens to a task from here, and who has to do something for it."""
    if waited_for and (record is None or record.status != COMPLETED):
        yield from _waits(waited_for, commands)
    elif task in commands:
        yield f"  next: it waits for a person: {commands[task]}"
    elif planned is not None and planned.group in _STAYING:
        yield f"  next: {_STAYING[planned.group]}: {planned.reason}"
    elif planned is not None and planned.action == "trust":
        yield f"  next: nothing, it is used as it is ({planned.reason})"
    elif planned is not None and planned.if_different:  # the reason begins with "if"
        yield f"  next: {_NEXT.get(planned.action, planned.action)} only {planned.reason}"
    elif planned is not None and planned.reason != RUNNING:  # of which the record tells
        yield f"  next: {_NEXT.get(planned.action, planned.action)}, because: {planned.reason}"


_STAYING = {
    SKIP: "it is left out",
    WAIT: "nothing before a person has answered",
    NEVER: "it never starts",
    PERHAPS: "it is used as it is, or asked about",
}


def _waits(names: Sequence[str], commands: Mapping[str, str]) -> Iterator[str]:
    for name in names[:_NAMED_MAX]:
        yield f"  next: waits for {name}: {commands.get(name, 'it needs a person')}"
    if len(names) > _NAMED_MAX:
        yield f"  and for {len(names) - _NAMED_MAX} more"


def _status(task: str, record: TaskState | None, state: RunState, waited_for: list[str]) -> str:
    if record is not None and record.question:
        return "needs review"
    if is_sent_back(state, task):
        return SENT_BACK
    if waited_for and (record is None or record.status == PENDING):
        return BLOCKED
    return record.status.replace("_", " ") if record is not None else "not started"


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


def _after(record: TaskState) -> str:
    """What had happened when a task was left to a person."""
    if record.kind == "rounds":
        return ": it has sent work back as often as it may"
    last = _FAILURES.get(record.kind, "")
    return f" after {counted(record.failures, 'failed attempt')}{last}"


_FAILURES = {"timeout": ", the last one out of time", "refused": ", the output of the last one refused"}


def _past(record: TaskState, *, is_running: bool) -> Iterator[str]:
    if record.status == COMPLETED and record.completed_at is not None:
        how = _EVIDENCE.get(record.evidence) or f"ran in {span(record.duration)}, attempt {record.attempt}"
        yield f"  completed {clock.iso(record.completed_at)}: {how}"
    if record.status == IN_PROGRESS:
        yield f"  attempt {record.attempt} {'is running now' if is_running else 'was cut off'}"
    if record.round:
        verb = "was" if record.status == COMPLETED else "is"
        yield f"  round {record.round}: it ran before, and {verb} done again"
    if record.redo_reason:
        verb = "ran" if record.status == COMPLETED else "runs"
        yield f"  {verb} again because: {record.redo_reason}"
    if record.feedback:
        yield "  sent back with: " + "; ".join(record.feedback)
    if record.status == NEEDS_REVIEW:
        yield f"  needs a person{_after(record)}"
    if record.error:
        yield f"  question: {record.error}" if record.question else f"  last error: {record.error}"
    if record.cost_usd:
        yield f"  has cost ${record.cost_usd:.4f}"
