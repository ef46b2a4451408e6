"""What holds tasks back besides the outputs they take: phases, gates, and the order of items and batches. Pure.

An *order* node stands for "this item (or batch) is through with this phase": every task of a later item waits for
one node, instead of for every task of the item before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from holdfast.pipeline.batches import given_batches
from holdfast.pipeline.nodes import Node, Path, gather_id, task_id
from holdfast.pipeline.spec import GateSpec, PhaseSpec, StepSpec

if TYPE_CHECKING:
    from holdfast.pipeline.graph import Graph


def add_phase(graph: Graph, phase: PhaseSpec) -> None:
    """A phase waits for the whole phase before it; edges come when the tasks are there: see `link_phases`."""
    graph.add_node(f"phase:{phase.name}", "phase", phase, ())


def link_phases(graph: Graph) -> None:
    """Once, after building: every phase waits for the phase before it, its tasks and its gates."""
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
    """What a checklist looks at must be there before it is asked."""
    names = {source.name for sources in phase.checklist_sources for source in sources.values()}
    for name in sorted(names & graph.producers.keys()):
        graph.edge_after(graph.named(name, (), ()), node)


def add_gate(graph: Graph, gate: GateSpec) -> Node:
    """A gate after steps or after a phase, new or known."""
    if gate.name in graph.nodes:
        return graph.nodes[gate.name]
    node = graph.add_node(gate.name, "gate", gate, ())
    for name in gate.after:
        graph.edge_after(graph.named(name, (), ()), node)
    if gate.phase and not gate.each:
        for step in graph.steps_of_phase.get(gate.phase, ()):
            graph.edge_after(graph.named(step.name, (), ()), node)
    return node


def all_batches(graph: Graph, gate: GateSpec) -> Node:
    """The node that is through when a gate with each= is, after every batch."""
    assert gate.each is not None
    node = graph.nodes.get(_all_batches_id(gate))
    if node is None:
        node = graph.add_node(_all_batches_id(gate), "order", gate, ())
        for var in graph.fans[gate.each]:
            if graph.fan_specs[var].given is None:  # else there are no others
                graph.edge_after(graph.named(graph.maker(var), (), ()), node)
        for known in [known for known in graph.nodes.values() if known.kind == "gate" and known.spec is gate]:
            graph.edge_after(known, node)
    return node


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
    through = graph.nodes.get(_all_batches_id(gate))
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


def _all_batches_id(gate: GateSpec) -> str:
    return f"order:{gate.name}[*]"
