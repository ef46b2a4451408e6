"""The graph of tasks: a pipeline's spec and the items known so far, as nodes and edges. Pure.

Theory. Real nodes are steps, items functions, gates and phases. Two kinds of virtual nodes keep the number of
edges linear: a *gather* node stands for "all items of this step below this item", an *order* node for "this
item (or batch) is through with this phase"; memory steps have two more (`past.py`). Three kinds of edges:

    DATA    the consumer takes the output: a skipped producer means a skipped consumer
    AFTER   order only (also into gathers, phases, gates): completed or skipped will do
    SETTLE  into order and page nodes: completed, skipped, or waiting for a person

Items that a function makes are added by `expand`, once they are a durable fact. Before that their gather
nodes wait for the items function itself, so that nothing can gather a part of them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from holdfast.pipeline import past
from holdfast.pipeline.batches import batch_numbers, waiting_items
from holdfast.pipeline.reach import blocking_gates, weights
from holdfast.pipeline.spec import GateSpec, ItemsSpec, PhaseSpec, PipelineSpec, Source, StepSpec

DATA, AFTER, SETTLE = 0, 1, 2

OPEN, HELD, OK, SKIPPED = 0, 1, 2, 3
"""A node's condition; `engine/scheduler.py` has the theory."""

SATISFIED = (
    (False, False, True, True),  # DATA
    (False, False, True, True),  # AFTER
    (False, True, True, True),  # SETTLE
)
"""Whether an edge of this kind is satisfied by a producer in that condition."""

TAKEN = ("step", "items", "memory")
"""The kinds of sources that are outputs of other tasks: a node has a parent for each of them, in their order."""

Path = tuple[str, ...]
Producer = StepSpec | ItemsSpec


class Node:
    """One node. The scheduler keeps its counters here, so that an event costs a few attribute writes."""

    __slots__ = (
        "blockers",
        "condition",
        "consumers",
        "digest",
        "id",
        "identity",
        "is_task",
        "is_virtual",
        "item",
        "kind",
        "material",
        "order",
        "parents",
        "path",
        "queued",
        "rank",
        "recalled",
        "running",
        "spec",
        "stuck",
        "unmet",
    )

    def __init__(self, node_id: str, kind: str, spec: Any, path: Path, item: dict[str, Any] | None) -> None:
        self.id = node_id
        self.kind = kind  # step | items | gate | phase | gather | order | past | until | page
        self.is_task = kind in ("step", "items")
        self.is_virtual = kind in ("gather", "order", "past", "until", "page")
        self.spec = spec
        self.identity: str = getattr(spec, "identity", "")  # the name by which digests know its output
        self.path = path
        self.item = item
        self.order = 0
        self.rank = 0
        self.parents: tuple[Node, ...] = ()  # what it takes, in the order of the parameters
        self.material: tuple[Node, ...] = ()  # of a memory step: what its section may be made from, the best first
        self.consumers: list[tuple[Node, int]] = []
        # --- the scheduler's ---
        self.unmet = 0
        self.blockers = 0
        self.condition = 0
        self.stuck = False
        self.queued = False
        self.running = False
        self.recalled = False
        self.digest = ""

    def __repr__(self) -> str:
        return f"<{self.kind} {self.id}>"

    @property
    def names(self) -> tuple[str, ...]:
        """Its id, and the ids it had under the step's earlier names: seals may carry those."""
        was = getattr(self.spec, "was", ())
        return (self.id, *[task_id(name, self.path) for name in was]) if was else (self.id,)


def task_id(name: str, path: Path) -> str:
    """`draft[ch05]`, `scrape[st-1/u3]`, `outline`."""
    return f"{name}[{'/'.join(path)}]" if path else name


def split_task_id(text: str) -> tuple[str, Path]:
    name, bracket, rest = text.partition("[")
    return name, tuple(rest[:-1].split("/")) if bracket else ()


class Graph:
    """Nodes by id, in the order in which a reader of the pipeline would list them."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec
        self.nodes: dict[str, Node] = {}
        self.items: dict[tuple[str, Path], list[dict[str, Any]]] = {}  # (var, parent path) -> items
        self.fresh: list[Node] = []  # made since the caller last took them
        self.unlinked: list[Node] = []  # of the past, without edges as yet
        self.gated: dict[str, list[GateSpec]] = blocking_gates(spec)
        self._fans = {s.name: spec.fan_path(s.each) for s in spec.producers}
        self._fans |= {s.var: spec.fan_path(s.var) for s in spec.items}
        self._producers: dict[str, Producer] = {s.name: s for s in spec.producers}
        self._fan_specs = {s.var: s for s in spec.items}
        self._taken = {s.name: [t for t in s.sources.values() if t.kind in TAKEN] for s in spec.producers}
        self._steps_of_fan: dict[str, list[StepSpec]] = {}
        self._steps_of_phase: dict[str, list[StepSpec]] = {}
        for step in spec.steps:
            if step.each:
                self._steps_of_fan.setdefault(step.each, []).append(step)
            if step.phase:
                self._steps_of_phase.setdefault(step.phase, []).append(step)
        self._weights = weights(spec, self._fans)
        self._build()

    # --- looking ---------------------------------------------------------------------------------------

    def tasks(self) -> Iterator[Node]:
        """Steps and items functions: what runs."""
        return (node for node in self.nodes.values() if node.is_task)

    def fan_of(self, name: str) -> tuple[str, ...]:
        """The fan-out variables around a step, an items function, or a variable."""
        return self._fans.get(name, ())

    def producer(self, name: str) -> Producer | None:
        return self._producers.get(name)

    def maker(self, var: str) -> str:
        """The name of the function that makes the items of `var`."""
        return self._fan_specs[var].name

    def paths(self, var: str) -> list[Path]:
        """The full paths of all known items of `var`, in order."""
        *_, last = fan = self._fans[var]
        found = []
        for (name, parent), items in self.items.items():
            if name == last and len(parent) == len(fan) - 1:
                found += [(*parent, item["id"]) for item in items]
        return found

    def positions(self, var: str) -> dict[Path, tuple[int, ...]]:
        """The path of every known item of `var`, with its place among its siblings, and theirs, and so on."""
        found: dict[Path, tuple[int, ...]] = {(): ()}
        for level in self._fans[var]:
            found = {
                (*parent, item["id"]): (*place, index)
                for parent, place in found.items()
                for index, item in enumerate(self.items.get((level, parent), ()))
            }
        return found

    def related(self, producer: str, path: Path, consumer_fan: tuple[str, ...]) -> str:
        """The id of the node that a consumer at `path` takes from `producer`: a task, or a gather."""
        fan = self._fans[producer]
        common = _common(fan, consumer_fan)
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

    # --- for past.py -----------------------------------------------------------------------------------

    def add_node(self, node_id: str, kind: str, spec: Any, path: Path) -> Node:
        """A virtual node of that name, new or known."""
        return self.nodes.get(node_id) or self._add(Node(node_id, kind, spec, path, None))

    def edge_after(self, producer: Node, consumer: Node) -> None:
        self._edge(producer, consumer, AFTER)

    def edge_settle(self, producer: Node, consumer: Node) -> None:
        self._edge(producer, consumer, SETTLE)

    # --- building --------------------------------------------------------------------------------------

    def _build(self) -> None:
        for phase in self.spec.phases:
            self._add_phase(phase)
        for producer in self.spec.producers:
            if not producer.each and not (isinstance(producer, ItemsSpec) and producer.given is not None):
                self._add_task(producer, (), None)
        for gate in self.spec.gates:
            if not gate.each:
                self._add_gate(gate, gate.name, ())
        for step in self.spec.memories:
            if step.head and len(self._fans[step.name]) == 1:
                self._add_head(step, ())
        for fan in self.spec.items:
            if fan.given is not None and not fan.each:
                self.expand(fan.var, (), fan.given)

    def expand(self, var: str, parent: Path, items: Sequence[Mapping[str, Any]]) -> None:
        """Add the tasks of these items; the caller settles the items function's node afterwards."""
        self._unfold(var, parent, items)
        past.link_before(self)

    def _unfold(self, var: str, parent: Path, items: Sequence[Mapping[str, Any]]) -> None:
        listed = [dict(item) for item in items]
        self.items[var, parent] = listed
        batches = batch_numbers(listed)
        held = waiting_items(listed)
        maker = self._maker(var, parent)
        for item in listed:
            path = (*parent, item["id"])
            for step in self._steps_of_fan.get(var, ()):
                self._made_by(maker, self._add_task(step, path, item, held[item["id"]]))
            self._expand_inner(var, path, item, maker)
        self._close_gathers(var, parent, listed)
        self._order_items(var, parent, listed, batches)
        for step in self.spec.memories:
            if step.each == var:
                past.add_pages(self, step, parent, listed)

    def _expand_inner(self, var: str, path: Path, item: dict[str, Any], maker: Node | None) -> None:
        for fan in self.spec.items:
            if fan.each != var:
                continue
            if fan.given is not None:
                self._unfold(fan.var, path, fan.given)
            else:
                self._made_by(maker, self._add_task(fan, path, item))
            for step in self.spec.memories:
                if step.each == fan.var and step.head:
                    self._add_head(step, path)

    def _add_head(self, step: StepSpec, parent: Path) -> None:
        """The moment at which a memory file is opened."""
        assert step.head is not None
        page = self.add_node(past.page_id(step.name, parent, None), "page", step, parent)
        self._edge(self._named(step.head, parent, self._fans[step.name][:-1]), page, AFTER)

    def _maker(self, var: str, parent: Path) -> Node | None:
        """The items function's node behind these items; None for given ones."""
        fan = self._fan_specs[var]
        return None if fan.given is not None else self.nodes[task_id(fan.name, parent)]

    def _made_by(self, maker: Node | None, node: Node) -> None:
        """A task of an item waits for the function that made the item: it may make others, when it runs again."""
        if maker is not None:
            self._edge(maker, node, AFTER)

    def _close_gathers(self, var: str, parent: Path, items: list[dict[str, Any]]) -> None:
        """Give every gather that waits for these items its edges from them."""
        for name, fan in self._fans.items():
            if var not in fan or name not in self._producers:
                continue
            waiting = self.nodes.get(gather_id(name, parent))
            if waiting is None:
                continue
            for item in items:
                self._gather_edge(name, (*parent, item["id"]), waiting)

    def _gather_edge(self, name: str, path: Path, gather: Node) -> None:
        inner = task_id(name, path) if len(self._fans[name]) == len(path) else gather_id(name, path)
        self._edge(self._reach(inner, name, path), gather, AFTER)

    def _reach(self, node_id: str, name: str, path: Path) -> Node:
        """The node of that id; a gather is made when it is first asked for."""
        node = self.nodes.get(node_id)
        if node is None:
            node = self._add_gather(name, path)
        return node

    def _add_gather(self, name: str, path: Path) -> Node:
        var = self._fans[name][len(path)]
        node = self._add(Node(gather_id(name, path), "gather", self._producers[name], path, None))
        known = self.items.get((var, path))
        if known is not None:
            for item in known:
                self._gather_edge(name, (*path, item["id"]), node)
        fan = self._fan_specs[var]
        if fan.given is None:
            self._edge(self._items_node(fan, path), node, AFTER)
        return node

    def _items_node(self, fan: ItemsSpec, path: Path) -> Node:
        node = self.nodes.get(task_id(fan.name, path))
        # A root function may be asked for before it was added: declarations come in any order.
        return node if node is not None else self._add_task(fan, path, None)

    def _add(self, node: Node) -> Node:
        node.order = len(self.nodes)
        self.nodes[node.id] = node
        self.fresh.append(node)
        return node

    def _add_task(self, spec: Producer, path: Path, item: dict[str, Any] | None, held: int = 0) -> Node:
        node_id = task_id(spec.name, path)
        if node_id in self.nodes:
            return self.nodes[node_id]
        kind = "step" if isinstance(spec, StepSpec) else "items"
        node = self._add(Node(node_id, kind, spec, path, item))
        node.rank = self._weights.get(spec.name, 0) + held
        fan = self._fans[spec.name]
        place = node_id[len(spec.name) :]
        parents = [self._taken_from(source, path, fan, place) for source in self._taken[spec.name]]
        if parents:
            node.parents = tuple(parents)
        for parent in parents:
            self._edge(parent, node, AFTER if parent.is_virtual else DATA)
        for gate in self.gated.get(spec.name, ()):
            self._edge(self._named(gate.name, (), ()), node, AFTER)
        if isinstance(spec, StepSpec):
            self._add_order_edges(node, spec, fan)
        return node

    def _taken_from(self, source: Source, path: Path, fan: tuple[str, ...], place: str) -> Node:
        """The node behind a parameter of the task at `path`, whose id ends in `place`."""
        if source.kind == "memory":
            return self._past(source.name, path)
        if self._fans[source.name] == fan:  # the common case: the same item's
            known = self.nodes.get(source.name + place)
            if known is not None:
                return known
        return self._named(source.name, path, fan)

    def _past(self, name: str, path: Path) -> Node:
        """The node for the sections of memory step `name` that the item around `path` comes after."""
        return past.add_before(self, name, path[: len(self._fans[name])])

    def _named(self, name: str, path: Path, fan: tuple[str, ...]) -> Node:
        """The node a task at `path` means by `name`, made if it is not there yet."""
        if name not in self._producers:
            gate = next(gate for gate in self.spec.gates if gate.name == name)
            return self._all_batches(gate) if gate.each else self._add_gate(gate, name, ())
        node_id = self.related(name, path, fan)
        node = self.nodes.get(node_id)
        if node is not None:
            return node
        common = path[: _common(self._fans[name], fan)]
        if len(self._fans[name]) > len(common):
            return self._add_gather(name, common)
        item = self.item_fields(fan[len(common) - 1], common) if common else None
        return self._add_task(self._producers[name], common, item)

    def _add_order_edges(self, node: Node, spec: StepSpec, fan: tuple[str, ...]) -> None:
        if spec.appends is not None:
            node.material = tuple(self._named(name, node.path, fan) for name in spec.material)
            opening = (self._named(spec.head, node.path, fan),) if spec.head else ()
            for producer in (*node.material, *opening):
                self._edge(producer, node, AFTER)
        for name in spec.after:
            self._edge(self._named(name, node.path, fan), node, AFTER)
        if spec.phase:
            self._edge(self.nodes[f"phase:{spec.phase}"], node, AFTER)

    def _edge(self, producer: Node, consumer: Node, kind: int) -> None:
        producer.consumers.append((consumer, kind))
        # Items unfold while a run goes on: a producer may be through already, or held.
        if not SATISFIED[kind][producer.condition]:
            consumer.unmet += 1
        if producer.condition == HELD and kind != SETTLE:
            consumer.blockers += 1
            consumer.condition = HELD

    # --- phases, gates, order of items -----------------------------------------------------------------

    def _add_phase(self, phase: PhaseSpec) -> None:
        """A phase waits for the whole phase before it; edges come when the tasks are there: see `link`."""
        self._add(Node(f"phase:{phase.name}", "phase", phase, (), None))

    def link_phases(self) -> None:
        """Once, after building: every phase waits for the phase before it, its tasks and its gates."""
        for phase in self.spec.phases:
            self._link_checklist(phase, self.nodes[f"phase:{phase.name}"])
        names = [phase.name for phase in self.spec.phases]
        for index, name in enumerate(names[1:], start=1):
            before, node = names[index - 1], self.nodes[f"phase:{name}"]
            self._edge(self.nodes[f"phase:{before}"], node, AFTER)
            for step in self._steps_of_phase.get(before, ()):
                self._edge(self._named(step.name, (), ()), node, AFTER)
            for gate in self.spec.gates:
                if gate.phase == before and gate.blocking and not gate.each:
                    self._edge(self._named(gate.name, (), ()), node, AFTER)

    def _link_checklist(self, phase: PhaseSpec, node: Node) -> None:
        """What a checklist looks at must be there before it is asked."""
        names = {source.name for sources in phase.checklist_sources for source in sources.values()}
        for name in sorted(names & self._producers.keys()):
            self._edge(self._named(name, (), ()), node, AFTER)

    def _add_gate(self, gate: GateSpec, node_id: str, path: Path) -> Node:
        if node_id in self.nodes:
            return self.nodes[node_id]
        node = self._add(Node(node_id, "gate", gate, path, None))
        for name in gate.after:
            self._edge(self._named(name, path, ()), node, AFTER)
        if gate.phase and not gate.each:
            for step in self._steps_of_phase.get(gate.phase, ()):
                self._edge(self._named(step.name, (), ()), node, AFTER)
        return node

    def _all_batches(self, gate: GateSpec) -> Node:
        """The node that is through when a gate with each= is, after every batch."""
        assert gate.each is not None
        node = self.nodes.get(_all_batches_id(gate))
        if node is None:
            node = self._add(Node(_all_batches_id(gate), "order", gate, (), None))
            for var in self._fans[gate.each]:
                if self._fan_specs[var].given is None:  # else there are no others
                    self._edge(self._named(self._fan_specs[var].name, (), ()), node, AFTER)
            for known in [known for known in self.nodes.values() if known.kind == "gate" and known.spec is gate]:
                self._edge(known, node, AFTER)
        return node

    def _order_items(self, var: str, parent: Path, items: list[dict[str, Any]], batches: dict[str, int]) -> None:
        phases = list(dict.fromkeys(step.phase for step in self._members(var) if step.phase))
        given = any("batch" in item for item in items)
        for phase in phases:
            members = [step for step in self._members(var) if step.phase == phase]
            if given:
                self._order_batches(phase, var, parent, batches, members)
            self._order_after(phase, var, parent, items, members)
        for gate in self.spec.gates:
            if gate.each == var:
                self._gate_batches(gate, var, parent, batches, phases)

    def _members(self, var: str) -> list[StepSpec]:
        """Steps that run once per item of `var`, or deeper inside it."""
        return [step for step in self.spec.steps if var in self._fans[step.name]]

    def _order_after(
        self, phase: str, var: str, parent: Path, items: list[dict[str, Any]], members: list[StepSpec]
    ) -> None:
        for item in items:
            for before in item.get("after", ()):
                barrier = self._order_node(f"{phase}:{var}", (*parent, before), [before], parent, members)
                self._hold(members, (*parent, item["id"]), barrier)

    def _order_batches(
        self, phase: str, var: str, parent: Path, batches: dict[str, int], members: list[StepSpec]
    ) -> None:
        numbers = sorted(set(batches.values()))
        for before, number in pairwise(numbers):
            done = [name for name, batch in batches.items() if batch == before]
            barrier = self._order_node(f"{phase}:{var}", (*parent, f"batch {before}"), done, parent, members)
            for name in (name for name, batch in batches.items() if batch == number):
                self._hold(members, (*parent, name), barrier)

    def _gate_batches(
        self, gate: GateSpec, var: str, parent: Path, batches: dict[str, int], phases: list[str]
    ) -> None:
        phase = gate.phase or (phases[0] if phases else None)
        members = [step for step in self._members(var) if step.phase == phase]
        numbers = sorted(set(batches.values()))
        for index, number in enumerate(numbers):
            names = [name for name, batch in batches.items() if batch == number]
            node = self._batch_gate(gate, (*parent, f"batch-{number}"), names, members)
            following = numbers[index + 1] if index + 1 < len(numbers) else None
            for name in (name for name, batch in batches.items() if batch == following and gate.blocking):
                self._hold(members, (*parent, name), node)
            if gate.blocking and phase:
                self._hold_next_phase(phase, node)

    def _batch_gate(self, gate: GateSpec, path: Path, names: list[str], members: list[StepSpec]) -> Node:
        """The gate after a batch: after its tasks in the phase, or of steps it names, and what else it names."""
        assert gate.each is not None
        node = self._add(Node(task_id(gate.name, path), "gate", gate, path, None))
        parent = path[:-1]
        named = [step for step in self._members(gate.each) if step.name in gate.after]
        for name in names:
            for step in named or members:
                self._edge(self._below(step, (*parent, name)), node, AFTER)
        for other in [name for name in gate.after if name not in {step.name for step in named}]:
            self._edge(self._named(other, parent, self._fans[gate.each][:-1]), node, AFTER)
        through = self.nodes.get(_all_batches_id(gate))
        if through is not None:
            self._edge(node, through, AFTER)
        return node

    def _hold_next_phase(self, phase: str, gate: Node) -> None:
        names = [spec.name for spec in self.spec.phases]
        index = names.index(phase) + 1
        if index < len(names):
            self._edge(gate, self.nodes[f"phase:{names[index]}"], AFTER)

    def _order_node(
        self, label: str, path: Path, names: Iterable[str], parent: Path, members: list[StepSpec]
    ) -> Node:
        node_id = f"order:{label}[{'/'.join(path)}]"
        node = self.nodes.get(node_id)
        if node is None:
            node = self._add(Node(node_id, "order", None, path, None))
            for name in names:
                for step in members:
                    self._edge(self._below(step, (*parent, name)), node, SETTLE)
        return node

    def _below(self, step: StepSpec, path: Path) -> Node:
        """The step's task at `path`, or the gather of all its tasks below it."""
        if len(self._fans[step.name]) == len(path):
            return self.nodes[task_id(step.name, path)]
        return self._reach(gather_id(step.name, path), step.name, path)

    def _hold(self, members: list[StepSpec], path: Path, barrier: Node) -> None:
        """Make the tasks of the item at `path` wait for `barrier`."""
        for step in members:
            if len(self._fans[step.name]) == len(path):
                self._edge(barrier, self.nodes[task_id(step.name, path)], AFTER)
            else:
                self._hold_inner(step, path, barrier)

    def _hold_inner(self, step: StepSpec, path: Path, barrier: Node) -> None:
        """Deeper tasks may not exist yet: hold the items function that makes them, and those that do."""
        var = self._fans[step.name][len(path)]
        fan = self._fan_specs[var]
        if fan.given is None:
            self._edge(barrier, self._items_node(fan, path), AFTER)
            return
        for item in self.items.get((var, path), ()):
            self._hold([step], (*path, item["id"]), barrier)


def build_graph(spec: PipelineSpec, items: Mapping[str, Sequence[Mapping[str, Any]]]) -> Graph:
    """The graph of `spec` with every fan-out whose items function is in `items` (by task id) expanded."""
    graph = Graph(spec)
    graph.link_phases()
    makers = {fan.name: fan for fan in spec.items if fan.given is None}
    grown = True
    done: set[str] = set()
    while grown:
        grown = False
        for node_id in [n for n in items if n not in done and n in graph.nodes]:
            name, path = split_task_id(node_id)
            graph.expand(makers[name].var, path, items[node_id])
            done.add(node_id)
            grown = True
    return graph


def in_order(graph: Graph) -> Iterator[Node]:
    """All nodes, each after those it waits for."""
    unmet = Counter([consumer for node in graph.nodes.values() for consumer, _ in node.consumers])
    ready = deque([node for node in graph.nodes.values() if node not in unmet])
    while ready:
        node = ready.popleft()
        yield node
        for consumer, _ in node.consumers:
            unmet[consumer] -= 1
            if not unmet[consumer]:
                ready.append(consumer)


def as_items(value: Any) -> list[dict[str, Any]]:
    """What an items function returned, in one form: a dict with "id" for each."""
    return [item if isinstance(item, dict) else {"id": item} for item in value]


def gather_id(name: str, path: Path) -> str:
    return f"{name}[{'/'.join((*path, '*'))}]"


def _all_batches_id(gate: GateSpec) -> str:
    return f"order:{gate.name}[*]"


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    if one == other:
        return len(one)
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return length
