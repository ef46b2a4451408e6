"""The graph of tasks: a pipeline's spec and the items known so far, as nodes and edges. Pure.

Theory. Real nodes are steps, items functions, gates and phases. Two kinds of virtual nodes keep the number of
edges linear: a *gather* node means "all items of this step below this item", an *order* node for "this
item (or batch) is through with this phase"; memory steps have more (`barriers.py`). Three kinds of edges:

    DATA    the consumer takes the output: a skipped producer means a skipped consumer
    AFTER   order only (also into gathers, phases, gates): completed or skipped will do
    SETTLE  into order and page nodes: completed, skipped, or waiting for a person

`unfolding.py` builds it. Items that a function makes are added once they are a durable fact. Before that their
gather nodes wait for the items function itself, so that nothing can gather a part of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.pipeline.nodes import (
    AFTER,
    DATA,
    HELD,
    OPEN,
    SATISFIED,
    SETTLE,
    TAKEN,
    VIRTUAL,
    Node,
    Path,
    Producer,
    batch_numbers,
    before_id,
    gather_id,
    part_name,
    task_id,
)
from holdfast.pipeline.spec import (
    GateSpec,
    ItemsSpec,
    PipelineSpec,
    Source,
    StepSpec,
    blocking_gates,
    shared_depth,
    weights,
)


class _Mould(NamedTuple):
    """Holds what all tasks of one step, or of one items function, have in common."""

    kind: str
    part: str
    rank: int  # without the items that wait for a task's own
    fan: tuple[str, ...]
    taken: list[tuple[Source, bool]]  # outputs of other tasks, and whether those are of the same item
    gates: list[GateSpec]  # that hold it
    is_ordered: bool  # something but data and gates says what it comes after


class Graph:
    """Nodes by id, in the order in which a reader of the pipeline would list them."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec
        self.nodes: dict[str, Node] = {}
        self.items: dict[tuple[str, Path], list[dict[str, Any]]] = {}  # (var, parent path) -> items
        self.held_later: dict[tuple[str, Path], list[tuple[StepSpec, Node]]] = {}  # once these items are known
        self.fresh: list[Node] = []  # made since the caller last took them
        self.unlinked: list[Node] = []  # of the past, without edges as yet
        self.producers: dict[str, Producer] = {s.name: s for s in spec.producers}
        self.fans = {name: spec.fan_path(s.each) for name, s in self.producers.items()}
        self.fans |= {s.var: spec.fan_path(s.var) for s in spec.items}
        self.fan_specs = {s.var: s for s in spec.items}
        self.steps_of_fan: dict[str, list[StepSpec]] = {}
        self.steps_of_phase: dict[str, list[StepSpec]] = {}
        for step in spec.steps:
            if step.each:
                self.steps_of_fan.setdefault(step.each, []).append(step)
            if step.phase:
                self.steps_of_phase.setdefault(step.phase, []).append(step)
        self._moulds = self._make_moulds()

    def _make_moulds(self) -> dict[str, _Mould]:
        gated, heavy = blocking_gates(self.spec), weights(self.spec, self.fans)
        found = {}
        for spec in self.spec.producers:
            kind, is_ordered = "items", False
            if isinstance(spec, StepSpec):
                kind, is_ordered = "step", bool(spec.appends is not None or spec.after or spec.phase)
            part, rank, fan = part_name(spec.identity), heavy.get(spec.name, 0), self.fans[spec.name]
            sources = [source for source in spec.sources.values() if source.kind in TAKEN]
            taken = [(source, source.kind != "memory" and self.fans[source.name] == fan) for source in sources]
            found[spec.name] = _Mould(kind, part, rank, fan, taken, gated.get(spec.name, []), is_ordered)
        return found

    # --- looking ---------------------------------------------------------------------------------------

    def tasks(self) -> Iterator[Node]:
        """Steps and items functions: what runs."""
        return (node for node in self.nodes.values() if node.is_task)

    def fan_of(self, name: str) -> tuple[str, ...]:
        """The fan-out variables around a step, an items function, or a variable."""
        return self.fans.get(name, ())

    def maker(self, var: str) -> str:
        """The name of the function that makes the items of `var`."""
        return self.fan_specs[var].name

    def positions(self, var: str) -> dict[Path, tuple[int, ...]]:
        """The path of every known item of `var`, with its place among its siblings, and theirs, and so on."""
        found: dict[Path, tuple[int, ...]] = {(): ()}
        for level in self.fans[var]:
            found = {
                (*parent, item["id"]): (*place, index)
                for parent, place in found.items()
                for index, item in enumerate(self.items.get((level, parent), ()))
            }
        return found

    def related(self, producer: str, path: Path, consumer_fan: tuple[str, ...]) -> str:
        """The id of the node that a consumer at `path` takes from `producer`: a task, or a gather."""
        fan = self.fans[producer]
        common = shared_depth(fan, consumer_fan)
        if len(fan) == common:
            return task_id(producer, path[:common])
        return gather_id(producer, path[:common])

    def batches(self, var: str, parent: Path) -> dict[str, int]:
        """The batch of each known item of `var` below `parent`."""
        return batch_numbers(self.items.get((var, parent), ()))

    def item_fields(self, var: str, path: Path) -> dict[str, Any]:
        """All fields of the item at `path` (whose last part is an item of `var`)."""
        for item in self.items.get((var, path[:-1]), ()):
            if item["id"] == path[-1]:
                return item
        return {"id": path[-1]}

    # --- making ----------------------------------------------------------------------------------------

    def add_node(self, node_id: str, kind: str, spec: Any, path: Path) -> Node:
        """The node of that name, new or known."""
        return self.nodes.get(node_id) or self._add_other(node_id, kind, spec, path)

    def edge_after(self, producer: Node, consumer: Node) -> None:
        self.edge(producer, consumer, AFTER)

    def edge_settle(self, producer: Node, consumer: Node) -> None:
        self.edge(producer, consumer, SETTLE)

    def gather_edge(self, name: str, path: Path, gather: Node) -> None:
        inner = task_id(name, path) if len(self.fans[name]) == len(path) else gather_id(name, path)
        self.edge(self.reach(inner, name, path), gather, AFTER)

    def reach(self, node_id: str, name: str, path: Path) -> Node:
        """The node of that id; a gather is made when it is first asked for."""
        node = self.nodes.get(node_id)
        if node is None:
            node = self._add_gather(name, path)
        return node

    def _add_gather(self, name: str, path: Path) -> Node:
        var = self.fans[name][len(path)]
        node = self._add_other(gather_id(name, path), "gather", self.producers[name], path)
        known = self.items.get((var, path))
        if known is not None:
            for item in known:
                self.gather_edge(name, (*path, item["id"]), node)
        fan = self.fan_specs[var]
        if fan.given is None:
            self.edge(self.items_node(fan, path), node, AFTER)
        return node

    def items_node(self, fan: ItemsSpec, path: Path) -> Node:
        node = self.nodes.get(task_id(fan.name, path))
        # A root function may be asked for before it was added: declarations come in any order.
        return node if node is not None else self.add_task(fan, path, None)

    def _add(self, node: Node) -> None:
        self.nodes[node.id] = node
        self.fresh.append(node)

    def _add_other(self, node_id: str, kind: str, spec: Any, path: Path) -> Node:
        """A node that is no task."""
        is_virtual, part = kind in VIRTUAL, part_name(getattr(spec, "identity", ""))
        node = Node(node_id, kind, spec, path, None, part, False, is_virtual, len(self.nodes))
        self._add(node)
        return node

    def add_task(self, spec: Producer, path: Path, item: dict[str, Any] | None, held: int = 0) -> Node:
        nodes, name = self.nodes, spec.name
        node_id = task_id(name, path)
        known = nodes.get(node_id)
        if known is not None:
            return known
        mould = self._moulds[name]
        node = Node(node_id, mould.kind, spec, path, item, mould.part, True, False, len(nodes), mould.rank + held)
        nodes[node_id] = node
        self.fresh.append(node)
        if mould.taken:
            place, taken = node_id[len(name) :], []
            for source, is_beside in mould.taken:
                parent = nodes.get(source.name + place) if is_beside else None
                taken.append(parent if parent is not None else self._taken_from(source, path, mould.fan))
            node.parents = tuple(taken)
            for parent in taken:
                self.edge(parent, node, AFTER if parent.is_virtual else DATA)
        for gate in mould.gates:
            self.edge(self.named(gate.name, (), ()), node, AFTER)
        if mould.is_ordered:
            self._add_order_edges(node, mould.fan)
        return node

    def _taken_from(self, source: Source, path: Path, fan: tuple[str, ...]) -> Node:
        """The node behind a parameter of the task at `path`."""
        if source.kind == "memory":
            return self.sections_before(source.name, path[: len(self.fans[source.name])])
        return self.named(source.name, path, fan)

    def named(self, name: str, path: Path, fan: tuple[str, ...]) -> Node:
        """The node a task at `path` means by `name`, made if it is not there yet."""
        if name not in self.producers:
            gate = next(gate for gate in self.spec.gates if gate.name == name)
            return self._all_batches(gate) if gate.each else self.add_gate(gate)
        node_id = self.related(name, path, fan)
        node = self.nodes.get(node_id)
        if node is not None:
            return node
        common = path[: shared_depth(self.fans[name], fan)]
        if len(self.fans[name]) > len(common):
            return self._add_gather(name, common)
        item = self.item_fields(fan[len(common) - 1], common) if common else None
        return self.add_task(self.producers[name], common, item)

    def add_gate(self, gate: GateSpec) -> Node:
        """A gate after steps or after a phase, new or known."""
        if gate.name in self.nodes:
            return self.nodes[gate.name]
        node = self.add_node(gate.name, "gate", gate, ())
        in_phase = self.steps_of_phase.get(gate.phase, ()) if gate.phase and not gate.each else ()
        for name in (*gate.after, *[step.name for step in in_phase]):
            self.edge_after(self.named(name, (), ()), node)
        return node

    def _all_batches(self, gate: GateSpec) -> Node:
        """The node that is through when a gate with each= is, after every batch."""
        assert gate.each is not None
        node = self.nodes.get(all_batches_id(gate))
        if node is None:
            node = self.add_node(all_batches_id(gate), "order", gate, ())
            for var in self.fans[gate.each]:
                if self.fan_specs[var].given is None:  # else there are no others
                    self.edge_after(self.named(self.maker(var), (), ()), node)
            for known in [known for known in self.nodes.values() if known.kind == "gate" and known.spec is gate]:
                self.edge_after(known, node)
        return node

    def sections_before(self, name: str, path: Path) -> Node:
        """The node for the sections before an item; its edges come when all tasks of the fan-out are there."""
        known = self.nodes.get(before_id(name, path))
        if known is not None:
            return known
        node = self.add_node(before_id(name, path), "past", self.producers[name], path)
        self.unlinked.append(node)
        return node

    def _add_order_edges(self, node: Node, fan: tuple[str, ...]) -> None:
        spec = node.spec
        if spec.appends is not None:
            node.material = tuple(self.named(name, node.path, fan) for name in spec.material)
            opening = (self.named(spec.head, node.path, fan),) if spec.head else ()
            for producer in (*node.material, *opening):
                self.edge(producer, node, AFTER)
        for name in spec.after:
            self.edge(self.named(name, node.path, fan), node, AFTER)
        if spec.phase:
            self.edge(self.nodes[f"phase:{spec.phase}"], node, AFTER)

    def edge(self, producer: Node, consumer: Node, kind: int) -> None:
        producer.consumers.append((consumer, kind))
        condition = producer.condition
        # Items unfold while a run goes on: a producer may be through already, or held.
        if condition == OPEN or not SATISFIED[kind][condition]:
            consumer.unmet += 1
        if condition == HELD and kind != SETTLE:
            consumer.blockers += 1
            consumer.condition = HELD


def all_batches_id(gate: GateSpec) -> str:
    """The node that is through when the gate is, after every batch."""
    return f"order:{gate.name}[*]"


def in_order(graph: Graph) -> list[Node]:
    """All nodes, each after those it waits for."""
    unmet = [0] * len(graph.nodes)  # by their places in the graph
    for node in graph.nodes.values():
        for consumer, _ in node.consumers:
            unmet[consumer.order] += 1
    ordered = [node for node in graph.nodes.values() if not unmet[node.order]]
    for node in ordered:  # it grows meanwhile
        for consumer, _ in node.consumers:
            unmet[consumer.order] -= 1
            if not unmet[consumer.order]:
                ordered.append(consumer)
    return ordered


def all_before(graph: Graph, node: Node) -> set[Node]:
    """The node, and everything that has to be through before it, however far back."""
    before: dict[Node, list[Node]] = {}
    for producer in graph.nodes.values():
        for consumer, _ in producer.consumers:
            before.setdefault(consumer, []).append(producer)
    found, stack = {node}, [node]
    while stack:
        fresh = [producer for producer in before.get(stack.pop(), ()) if producer not in found]
        found.update(fresh)
        stack += fresh
    return found
