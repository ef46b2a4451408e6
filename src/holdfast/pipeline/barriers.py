"""Holds tasks back by phases, gates, and the order of items and batches; links memory steps to their items. Pure.

An *order* node means "this item (or batch) is through with this phase": every task of a later item waits for
one node, instead of for every task of the item before it. Memory steps have three kinds of nodes of their own:

    glossary[before ch03]     every section that ch03 comes after: through it, consumers inside the fan-out wait
    glossary[until 2]         every section of batch 2 and of those before it, where batches are given
    page:glossary[batch 2]    through when each section of the batch is there, skipped or waiting for a person:
                              then the file is written; page:glossary[head] is through when the head is there
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from holdfast.pipeline.graph import Graph, all_batches_id
from holdfast.pipeline.nodes import Node, Path, batch_numbers, gather_id, given_batches, page_id, task_id
from holdfast.pipeline.spec import GateSpec, PhaseSpec, StepSpec

Items = Sequence[Mapping[str, Any]]


def link_phases(graph: Graph) -> None:
    """Called once, after building: every phase waits for the phase before it, its tasks and its gates."""
    for phase in graph.spec.phases:
        _link_checklist(graph, phase, graph.nodes[f"phase:{phase.name}"])
    names = [phase.name for phase in graph.spec.phases]
    for index, name in enumerate(names[1:], start=1):
        before, node = names[index - 1], graph.nodes[f"phase:{name}"]
        graph.edge_after(graph.nodes[f"phase:{before}"], node)
        for step in graph.steps_of_phase.get(before, ()):
            graph.edge_after(graph.named(step.name, (), ()), node)
        for gate in graph.spec.gates:
            if gate.phase == before and gate.blocking and not gate.each:
                graph.edge_after(graph.named(gate.name, (), ()), node)


def _link_checklist(graph: Graph, phase: PhaseSpec, node: Node) -> None:
    """Make the phase wait for what its checklist looks at."""
    names = {source.name for sources in phase.checklist_sources for source in sources.values()}
    for name in sorted(names & graph.producers.keys()):
        graph.edge_after(graph.named(name, (), ()), node)


def order_items(
    graph: Graph, var: str, parent: Path, items: list[dict[str, Any]], batches: dict[str, int]
) -> None:
    """Hold the tasks of these items until the items and batches they come after are through with the phase."""
    phases = list(dict.fromkeys(step.phase for step in _members(graph, var) if step.phase))
    for phase in phases:
        members = [step for step in _members(graph, var) if step.phase == phase]
        if given_batches(items):
            _order_batches(graph, phase, var, parent, batches, members)
        _order_after(graph, phase, var, parent, items, members)
    for gate in graph.spec.gates:
        if gate.each == var:
            _gate_batches(graph, gate, var, parent, batches, phases)


def _members(graph: Graph, var: str) -> list[StepSpec]:
    """Steps that run once per item of `var`, or deeper inside it."""
    return [step for step in graph.spec.steps if var in graph.fans[step.name]]


def _order_after(
    graph: Graph, phase: str, var: str, parent: Path, items: list[dict[str, Any]], members: list[StepSpec]
) -> None:
    for item in items:
        for before in item.get("after", ()):
            barrier = _order_node(graph, f"{phase}:{var}", (*parent, before), [before], parent, members)
            _hold(graph, members, (*parent, item["id"]), barrier, goes_along=True)


def _order_batches(
    graph: Graph, phase: str, var: str, parent: Path, batches: dict[str, int], members: list[StepSpec]
) -> None:
    numbers = sorted(set(batches.values()))
    for before, number in pairwise(numbers):
        done = [name for name, batch in batches.items() if batch == before]
        barrier = _order_node(graph, f"{phase}:{var}", (*parent, f"batch {before}"), done, parent, members)
        for name in (name for name, batch in batches.items() if batch == number):
            _hold(graph, members, (*parent, name), barrier)


def _gate_batches(
    graph: Graph, gate: GateSpec, var: str, parent: Path, batches: dict[str, int], phases: list[str]
) -> None:
    named = [step.phase for step in _members(graph, var) if step.name in gate.after and step.phase]
    last = max(named, key=[spec.name for spec in graph.spec.phases].index, default=None)
    phase = gate.phase or last or (phases[0] if phases else None)
    members = [step for step in _members(graph, var) if step.phase == phase]
    numbers = sorted(set(batches.values()))
    for index, number in enumerate(numbers):
        names = [name for name, batch in batches.items() if batch == number]
        node = _batch_gate(graph, gate, (*parent, f"batch-{number}"), names, members)
        following = numbers[index + 1] if index + 1 < len(numbers) else None
        for name in (name for name, batch in batches.items() if batch == following and gate.blocking):
            _hold(graph, members, (*parent, name), node)
        if gate.blocking and phase:
            _hold_next_phase(graph, phase, node)


def _batch_gate(graph: Graph, gate: GateSpec, path: Path, names: list[str], members: list[StepSpec]) -> Node:
    """The gate after a batch: after its tasks in the phase, or of steps it names, and what else it names."""
    assert gate.each is not None
    node = graph.add_node(task_id(gate.name, path), "gate", gate, path)
    parent = path[:-1]
    named = [step for step in _members(graph, gate.each) if step.name in gate.after]
    for name in names:
        for step in named or members:
            graph.edge_after(_below(graph, step, (*parent, name)), node)
    for other in [name for name in gate.after if name not in {step.name for step in named}]:
        graph.edge_after(graph.named(other, parent, graph.fans[gate.each][:-1]), node)
    through = graph.nodes.get(all_batches_id(gate))
    if through is not None:
        graph.edge_after(node, through)
    return node


def _hold_next_phase(graph: Graph, phase: str, gate: Node) -> None:
    names = [spec.name for spec in graph.spec.phases]
    index = names.index(phase) + 1
    if index < len(names):
        graph.edge_after(gate, graph.nodes[f"phase:{names[index]}"])


def _order_node(
    graph: Graph, label: str, path: Path, names: Iterable[str], parent: Path, members: list[StepSpec]
) -> Node:
    node_id = task_id(f"order:{label}", path)
    node = graph.nodes.get(node_id)
    if node is None:
        node = graph.add_node(node_id, "order", None, path)
        node.material = tuple([_below(graph, step, (*parent, name)) for name in names for step in members])
        for before in node.material:
            graph.edge_settle(before, node)
    return node


def _below(graph: Graph, step: StepSpec, path: Path) -> Node:
    """The step's task at `path`, or the gather of all its tasks below it."""
    if len(graph.fans[step.name]) == len(path):
        return graph.nodes[task_id(step.name, path)]
    return graph.reach(gather_id(step.name, path), step.name, path)


def _hold(graph: Graph, members: list[StepSpec], path: Path, barrier: Node, *, goes_along: bool = False) -> None:
    """Make the tasks of the item at `path` wait for `barrier`; those that go along are left out with it, too."""
    for step in members:
        if len(graph.fans[step.name]) == len(path):
            node = graph.nodes[task_id(step.name, path)]
            graph.edge_after(barrier, node)
            if goes_along:
                node.comes_after = (*node.comes_after, barrier)
        else:
            _hold_inner(graph, step, path, barrier)


def _hold_inner(graph: Graph, step: StepSpec, path: Path, barrier: Node) -> None:
    """Deeper tasks may not exist yet: hold the items function that makes them, or them as soon as they are there.

    The function is held with the first phase that needs it: a later one must not keep it from an earlier one.
    """
    var = graph.fans[step.name][len(path)]
    fan = graph.fan_specs[var]
    if fan.given is None and step.phase == _first_phase(graph, var):
        graph.edge_after(barrier, graph.items_node(fan, path))
        return
    if (var, path) not in graph.items:
        graph.held_later.setdefault((var, path), []).append((step, barrier))
    for item in graph.items.get((var, path), ()):
        _hold(graph, [step], (*path, item["id"]), barrier)


def hold_unfolded(graph: Graph, var: str, parent: Path) -> None:
    """Items were made: hold what was to be held of them."""
    for step, barrier in graph.held_later.pop((var, parent), ()):
        for item in graph.items[var, parent]:
            _hold(graph, [step], (*parent, item["id"]), barrier)


def _first_phase(graph: Graph, var: str) -> str | None:
    """The first phase of the steps inside a fan-out; None if one of them has none, and waits for no phase."""
    used = {step.phase for step in _members(graph, var)}
    return None if None in used else next(phase.name for phase in graph.spec.phases if phase.name in used)


def link_sections(graph: Graph) -> None:
    """Link the new nodes for the sections before an item: to sections, and to the like nodes of items before."""
    orders: dict[tuple[str, Path], _Order] = {}
    while graph.unlinked:
        node = graph.unlinked.pop()
        name, (*above, item) = node.spec.name, node.path
        parent = tuple(above)
        order = orders.get((name, parent))
        if order is None:
            order = orders[name, parent] = _ordered(graph, name, parent, graph.items[node.spec.each, parent])
        for earlier in order.after[item]:
            graph.edge_after(graph.nodes[task_id(name, (*parent, earlier))], node)
            graph.edge_after(graph.sections_before(name, (*parent, earlier)), node)
        if item in order.lower:
            graph.edge_after(order.lower[item], node)


class _Order(msgspec.Struct, frozen=True):
    """What each item of one fan-out comes after."""

    after: dict[str, Sequence[str]]
    lower: dict[str, Node]  # item -> the node of all batches below its own; only where batches are given


def _ordered(graph: Graph, name: str, parent: Path, items: Items) -> _Order:
    after = {entry["id"]: entry.get("after", ()) for entry in items}
    if not given_batches(items):
        return _Order(after, {})
    batches = batch_numbers(items)
    below = _link_batches(graph, name, parent, batches)
    return _Order(after, {item: below[number] for item, number in batches.items() if number in below})


def _link_batches(graph: Graph, name: str, parent: Path, batches: Mapping[str, int]) -> dict[int, Node]:
    """Batch -> the node of all batches below it, each behind the one before: linear, however many items."""
    numbers = sorted(set(batches.values()))
    known = task_id(name, (*parent, f"until {numbers[0]}")) in graph.nodes
    spec = graph.producers[name]
    nodes = {n: graph.add_node(task_id(name, (*parent, f"until {n}")), "until", spec, parent) for n in numbers}
    for item, number in () if known else batches.items():
        graph.edge_after(graph.nodes[task_id(name, (*parent, item))], nodes[number])
    for lower, higher in () if known else pairwise(numbers):
        graph.edge_after(nodes[lower], nodes[higher])
    return {higher: nodes[lower] for lower, higher in pairwise(numbers)}


def add_pages(graph: Graph, step: StepSpec, parent: Path, items: Items) -> None:
    """The batches of one memory step below `parent`, each with its sections."""
    batches = batch_numbers(items)
    pages = {n: graph.add_node(page_id(step.name, parent, n), "page", step, parent) for n in batches.values()}
    for item, number in batches.items():
        graph.edge_settle(graph.nodes[task_id(step.name, (*parent, item))], pages[number])
