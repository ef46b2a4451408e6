"""Draws the picture of a run from its state: its graph, with the counters moved as the record says. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.engine.scheduler import Scheduler, made_from
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.inferring import infer_items, item_paths
from holdfast.pipeline.nodes import HELD, OK, OPEN, SKIPPED, Node, Path, as_items, split_task_id, step_of, task_id
from holdfast.pipeline.spec import PipelineSpec
from holdfast.pipeline.unfolding import build_graph
from holdfast.state import (
    BLOCKED,
    COMPLETED,
    FAILED,
    IN_PROGRESS,
    NEEDS_REVIEW,
    PENDING,
    Accepted,
    RunState,
    TaskState,
)
from holdfast.state import SKIPPED as STATUS_SKIPPED
from holdfast.views.picture import Picture, decode_spec, is_sent_back

LoadValue = Callable[[Accepted], Any]


def draw(state: RunState, load: LoadValue) -> Picture:
    """The picture of a run from its state alone."""
    spec = decode_spec(state)
    items = _recorded_items(spec, state, load)
    if state.status == COMPLETED:
        # Everything is through: the tasks on record are all there are, and no edge matters any more.
        return _finished(spec, state, items)
    return draw_graph(recorded_graph(spec, state, items), state)


def draw_both(state: RunState, load: LoadValue) -> tuple[Picture, Graph]:
    """The picture and the graph it was drawn from, which some views need too."""
    spec = decode_spec(state)
    graph = recorded_graph(spec, state, _recorded_items(spec, state, load))
    return draw_graph(graph, state), graph


def recorded_graph(spec: PipelineSpec, state: RunState, items: Mapping[str, Any]) -> Graph:
    """The graph with its conditions as the record says."""
    graph = build_graph(spec, items)
    _settle_as_recorded(Scheduler(graph), state)
    return graph


def draw_graph(graph: Graph, state: RunState) -> Picture:
    """The picture of a run whose graph is at hand, with its conditions as they are."""
    nodes = list(graph.tasks())
    tasks = tuple([node.id for node in nodes])
    blocked = frozenset([n.id for n in nodes if n.condition == HELD and not n.stuck])
    still_open = [n for n in nodes if n.condition == OPEN]
    ready = tuple([n.id for n in sorted([n for n in still_open if _could_start(n, state)], key=_urgency)])
    return _picture(graph.spec, state, dict(graph.items), tasks, blocked, ready)


def _urgency(node: Node) -> tuple[int, int]:
    return (-node.rank, node.order)


def _could_start(node: Node, state: RunState) -> bool:
    if node.unmet or node.stuck:
        return False
    if is_sent_back(state, node.id):
        return not any(state.task(user.id).status == IN_PROGRESS for user in made_from([node]))
    return state.task(node.id).status in (PENDING, FAILED)


def _finished(spec: PipelineSpec, state: RunState, items: Mapping[str, Any]) -> Picture:
    listed: dict[tuple[str, Path], list[dict[str, Any]]] = {}
    paths: dict[str | None, dict[Path, None]] = {None: {(): None}}  # of all items, in order; () is outside them
    for fan in sorted(spec.items, key=lambda fan: len(spec.fan_path(fan.var))):
        for parent in paths.get(fan.each, ()):
            found = fan.given if fan.given is not None else items.get(task_id(fan.name, parent))
            if found is not None:
                listed[fan.var, parent] = list(found)
                paths.setdefault(fan.var, {}).update({(*parent, item["id"]): None for item in found})
    places = {producer.name: paths.get(producer.each, {}) for producer in spec.producers}
    tasks = tuple(task for task in state.tasks if _is_there(task, places))
    return _picture(spec, state, listed, tasks, frozenset(), ())


def _is_there(task: str, places: Mapping[str, Mapping[Path, None]]) -> bool:
    """Whether the pipeline still has this task: its step, and its item."""
    name, path = split_task_id(task)
    return path in places.get(name, ())


def _picture(
    spec: PipelineSpec,
    state: RunState,
    items: Mapping[tuple[str, Path], list[dict[str, Any]]],
    tasks: tuple[str, ...],
    blocked: frozenset[str],
    ready: tuple[str, ...],
) -> Picture:
    expanded = {var for var, _ in items}
    unexpanded = tuple(fan.var for fan in spec.items if fan.var not in expanded)
    get = state.tasks.get
    nothing = TaskState()
    records = [get(task, nothing) for task in tasks]
    # What waits for an answer needs a person, whatever it was: an edited file is not verified.
    counts = Counter([NEEDS_REVIEW if record.question else record.status for record in records])
    known = set(tasks) if state.recalls else ()
    sent_back = [task for task in state.recalls if task in known and is_sent_back(state, task)]
    sent_back = [task for task in sent_back if not state.task(task).question]
    counts[COMPLETED] -= len(sent_back)
    counts[PENDING] += len(sent_back)
    held = sum(1 for task in blocked if _is_held(state.task(task)) or task in sent_back)
    counts[PENDING] -= held
    counts[BLOCKED] = held
    return Picture(state, spec, items, tasks, blocked, ready, unexpanded, {s: n for s, n in counts.items() if n})


def _is_held(record: TaskState) -> bool:
    return record.status == PENDING and not record.question


def _recorded_items(spec: PipelineSpec, state: RunState, load: LoadValue) -> dict[str, list[dict[str, Any]]]:
    """The items each completed items function made, by its task id."""
    makers = {fan.name for fan in spec.items if fan.given is None}
    found = {}
    if makers:
        for task, record in state.tasks.items():
            if step_of(task) in makers and record.status == COMPLETED and record.accepted is not None:
                found[task] = as_items(load(record.accepted))
        if state.status != COMPLETED:
            # A run that was found again has tasks on record whose items function has to run first.
            found |= infer_items(spec, found, [], item_paths(spec, state.tasks))
    return found


def _settle_as_recorded(scheduler: Scheduler, state: RunState) -> None:
    """Move the counters as the record says, without looking at any file."""
    while scheduler.to_consider:
        node = scheduler.to_consider.popleft()
        if node.unmet or node.condition != OPEN:
            continue
        condition = _recorded_condition(node, state)
        if condition == HELD:
            scheduler.hold(node)
        elif condition != OPEN:
            scheduler.settle(node, condition)


def _recorded_condition(node: Node, state: RunState) -> int:
    if node.is_virtual:
        return OK
    if node.kind == "gate":
        return OK if state.gates.get(node.id) == "approved" else HELD
    if node.kind == "phase":
        standing = state.phases.get(node.id, "")
        return HELD if standing.startswith("refused") else OK
    record = state.task(node.id)
    if record.question or record.status == NEEDS_REVIEW:
        return HELD
    if record.status == COMPLETED and node.id not in state.recalls:
        return OK
    return SKIPPED if record.status == STATUS_SKIPPED else OPEN
