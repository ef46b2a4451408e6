"""What lies downstream of what, step by step: how much a step holds up, and which gates hold it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.pipeline.spec import GateSpec, PipelineSpec


def step_edges(spec: PipelineSpec) -> dict[str, set[str]]:
    """Producer -> consumers, by name: data, order, and membership in a fan-out made by a function.

    Sections of earlier items are left out: by name alone they would make loops that the items do not have.
    """
    makers = {fan.var: fan.name for fan in spec.items if fan.given is None}
    edges: dict[str, set[str]] = {s.name: set() for s in spec.producers}
    for consumer in spec.producers:
        for source in consumer.sources.values():
            if source.kind in ("step", "items") and source.name in edges:
                edges[source.name].add(consumer.name)
        if consumer.each in makers:
            edges[makers[consumer.each]].add(consumer.name)
    for gate in spec.gates:
        edges[gate.name] = set()
    for step in spec.steps:
        for name in (*step.after, *step.material, *((step.head,) if step.head else ())):
            edges[name].add(step.name)
    for gate in spec.gates:
        for name in gate.after:
            edges[name].add(gate.name)
    return edges


def before_a_phase(spec: PipelineSpec) -> set[str]:
    """The names of steps that a later phase waits for."""
    used = [p.name for p in spec.phases if any(step.phase == p.name for step in spec.steps)]
    return {step.name for step in spec.steps if step.phase in used[:-1]}


class Reach:
    """Everything downstream of each name, as bit sets: a thousand steps stay cheap."""

    def __init__(self, edges: Mapping[str, Iterable[str]]) -> None:
        self.position = {name: index for index, name in enumerate(edges)}
        self.bits: dict[str, int] = {}
        for name in _leaves_first(edges):
            mine = 0
            for consumer in edges.get(name, ()):
                mine |= self.bits[consumer] | 1 << self.position[consumer]
            self.bits[name] = mine

    def mask(self, names: Iterable[str]) -> int:
        return sum(1 << self.position[name] for name in set(names) if name in self.position)


def _leaves_first(edges: Mapping[str, Iterable[str]]) -> list[str]:
    order: list[str] = []
    seen: set[str] = set()
    for root in reversed(list(edges)):  # most are declared after what they take: then nothing has to be gone down
        stack: list[tuple[str, bool]] = [(root, False)]
        while stack:
            name, leaving = stack.pop()
            if leaving:
                order.append(name)
            elif name not in seen:
                seen.add(name)
                stack.append((name, True))
                stack += [(consumer, False) for consumer in edges.get(name, ()) if consumer not in seen]
    return order


def weights(spec: PipelineSpec, fans: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """How much each step holds up: its descendants, one that fans out further counting as many."""
    reach = Reach(step_edges(spec))
    depths = {name: len(fans.get(name, ())) for name in reach.bits}
    deeper = {depth: reach.mask(name for name in depths if depths[name] > depth) for depth in set(depths.values())}
    return {
        name: bits.bit_count() + 99 * (bits & deeper[depths[name]]).bit_count()
        for name, bits in reach.bits.items()
    }


def blocking_gates(spec: PipelineSpec) -> dict[str, list[GateSpec]]:
    """Step or items function -> the gates that hold it: behind what it takes, comes after, or is made by."""
    held: dict[str, list[GateSpec]] = {}
    gates = [gate for gate in spec.gates if gate.blocking and gate.after and gate.each is None]
    if not gates:
        return held
    edges = step_edges(spec)
    reach = Reach(edges)
    passing = {gate.name for gate in spec.gates}
    for gate in gates:
        watched = reach.mask(gate.after)
        ahead = {name for name, bits in reach.bits.items() if bits & watched} | set(gate.after)
        behind = {consumer for name in gate.after for consumer in edges.get(name, ())} - ahead
        told_so = {step.name for step in spec.steps if gate.name in step.after}
        for name in behind - told_so - passing:
            held.setdefault(name, []).append(gate)
    return held
