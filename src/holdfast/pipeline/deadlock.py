"""Finds loops between declarations, and between tasks, and checks that take what is not there yet. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast.pipeline.declared import Mistakes
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.names import find_loop, reachable
from holdfast.pipeline.namespace import Namespace
from holdfast.pipeline.nodes import SATISFIED
from holdfast.pipeline.spec import GateSpec, ItemsSpec, PhaseSpec, PipelineSpec, Source, blocking_gates
from holdfast.pipeline.unfolding import build_graph

LOOPS_TOLD_MAX = 10
LOOP_FIX = "Remove one of the dependencies."
GATE_FIX = "A blocking gate holds whatever depends on the steps it comes after: change that, or blocking=."

Edges = dict[str, list[str]]


def waits_of(spec: PipelineSpec) -> Edges:
    """Name -> the names it waits for.

    A phase is a node `phase NAME`: its steps wait for it, and it waits for the phase before it.
    """
    edges: Edges = {}
    for step in spec.steps:
        edges[step.name] = [*_inputs(step.sources), *step.after, *_fan_makers(step.each, spec), *step.material]
        if step.head is not None:
            edges[step.name].append(step.head)
        if step.phase is not None:
            edges[step.name].append(_phase_node(step.phase))
    for items in spec.items:
        if items.given is None:
            edges[items.name] = [*_inputs(items.sources), *_fan_makers(items.each, spec)]
    for gate in spec.gates:
        edges[gate.name] = _gate_waits(gate, spec)
    for index, phase in enumerate(spec.phases):
        earlier = spec.phases[index - 1] if index else None
        edges[_phase_node(phase.name)] = [*_phase_waits(earlier, spec), *_listed(phase, spec)]
    return edges


def with_gates(edges: Edges, spec: PipelineSpec) -> Edges:
    """Add that what a blocking gate holds waits for it; `edges` must have no loop."""
    held = blocking_gates(spec)
    return {name: [*waits, *[gate.name for gate in held.get(name, ())]] for name, waits in edges.items()}


def check_loops(edges: Edges, names: Namespace, mistakes: Mistakes, *, fix: str = LOOP_FIX) -> None:
    """Tell every loop; each is cut after it was told, to find the next."""
    for _ in range(LOOPS_TOLD_MAX):
        loop = find_loop(edges)
        if loop is None:
            return
        told = _rotated(loop, names)
        owner = names.steps.get(told[0]) or names.makers.get(told[0]) or names.gates.get(told[0])
        if owner is None:
            return
        mistakes.add(owner.where, f"these wait for each other: {' -> '.join(told)}. {fix}")
        edges[loop[-2]] = [name for name in edges[loop[-2]] if name != loop[-1]]


def not_upstream(step: str, sources: Mapping[str, Source], edges: Edges) -> list[str]:
    """The steps and items functions in `sources` that need not have run before `step`."""
    return [name for name in _inputs(sources) if name not in reachable(step, edges)]


def not_taken(sources: Mapping[str, Source], taken: Mapping[str, Source]) -> list[str]:
    """The memory steps in `sources` whose sections the step itself does not take, and so does not wait for."""
    return [source.name for source in sources.values() if source.kind == "memory" and source not in taken.values()]


def not_before(phase: str, sources: Mapping[str, Source], spec: PipelineSpec) -> list[str]:
    """The steps in `sources` that belong to `phase` or to one after it, and so cannot run before it."""
    order = [each.name for each in spec.phases]
    late = set(order[order.index(phase) :])
    steps = {step.name: step for step in spec.steps}
    return [name for name in _inputs(sources) if name in steps and steps[name].phase in late]


def held_up_items(spec: PipelineSpec, edges: Edges) -> list[tuple[str, str]]:
    """The steps that would wait for ever where given items are ordered, each with the step that feeds it.

    Such a step waits for one outside its fan-out, which gathers a step of the same fan-out and phase: the
    first item then waits for the last, and the last, by order, for the first.
    """
    found = []
    for items in spec.items:
        if not is_ordered(items):
            continue
        inside = {step.name: step for step in spec.steps if items.var in spec.fan_path(step.each)}
        for step in inside.values():
            siblings = {name for name, other in inside.items() if other.phase == step.phase is not None}
            found += [
                (step.name, name)
                for name in _inputs(step.sources)
                if name not in inside and siblings & reachable(name, edges)
            ]
    return found


def never_there(spec: PipelineSpec, edges: Mapping[str, list[str]]) -> Iterator[tuple[str, str, str]]:
    """Consumers of earlier sections that would wait for themselves: (consumer, memory step, what is between).

    Inside the fan-out an item waits for the sections of items before it. If such a section waits for something
    outside, which in turn waits for the consumer's step as a whole, the first item would wait for the last.
    """
    for consumer in spec.producers:
        for source in consumer.sources.values():
            if source.kind != "memory":
                continue
            inside = _inside(spec, source.name)
            behind = reachable(source.name, edges)
            for name in sorted(behind - inside):
                if consumer.name in reachable(name, edges):
                    yield consumer.name, source.name, name
                    break


def _inside(spec: PipelineSpec, memory: str) -> set[str]:
    var = next(step.each for step in spec.steps if step.name == memory)
    return {producer.name for producer in spec.producers if var in spec.fan_path(producer.each)}


def standstill_of(spec: PipelineSpec) -> list[str]:
    """One loop among given items: their order, or batches, and a gate make one that names alone do not show."""
    holds_order = any(gate.blocking for gate in spec.gates) and any(map(is_ordered, spec.items))
    if not holds_order and not any(gate.each for gate in spec.gates):
        return []
    return find_standstill(build_graph(spec, {}))


def loop_told(loop: Sequence[str]) -> str:
    """A loop in words, and the way out of it."""
    return f"these wait for each other: {' -> '.join(loop)}; change the pipeline so that they do not"


def find_standstill(graph: Graph) -> list[str]:
    """Names along one loop of what still waits, each followed by what it waits for; empty if there is none."""
    waits: dict[str, list[str]] = {}
    for producer in graph.nodes.values():
        for consumer, kind in producer.consumers:
            if not SATISFIED[kind][producer.condition]:
                waits.setdefault(consumer.id, []).append(producer.id)
    loop = find_loop(waits) or []
    named = [name for name in loop[:-1] if not graph.nodes[name].is_virtual]
    return [*named, *named[:1]]


def is_ordered(items: ItemsSpec) -> bool:
    """Whether given items come one after another."""
    return any("after" in item or item.get("batch", 1) > 1 for item in items.given or ())


def _inputs(sources: Mapping[str, Source]) -> list[str]:
    return [source.name for source in sources.values() if source.kind in ("step", "items")]


def _fan_makers(each: str | None, spec: PipelineSpec) -> list[str]:
    path = spec.fan_path(each)
    return [items.name for items in spec.items if items.var in path and items.given is None]


def _gate_waits(gate: GateSpec, spec: PipelineSpec) -> list[str]:
    """The names that a gate waits for: no step as a whole with each=, as it then comes after every batch."""
    waits = list(gate.after)
    if gate.phase is not None and gate.each is None:
        waits += [step.name for step in spec.steps if step.phase == gate.phase]
    return waits


def _phase_waits(earlier: PhaseSpec | None, spec: PipelineSpec) -> list[str]:
    if earlier is None:
        return []
    steps = [step.name for step in spec.steps if step.phase == earlier.name]
    gates = [gate.name for gate in spec.gates if gate.phase == earlier.name and gate.blocking]
    return [_phase_node(earlier.name), *steps, *gates]


def _listed(phase: PhaseSpec, spec: PipelineSpec) -> list[str]:
    """The names that the phase's checklist takes; `not_before` has those that cannot come before the phase."""
    found = []
    for sources in phase.checklist_sources:
        late = not_before(phase.name, sources, spec)
        found += [name for name in _inputs(sources) if name not in late]
    return found


def _phase_node(name: str) -> str:
    return f"phase {name}"  # the space keeps it apart from every identifier


def _rotated(loop: Sequence[str], names: Namespace) -> list[str]:
    """The same loop, beginning at a step, else at something else that has a place in the source."""
    body = list(loop[:-1])
    start = next((n for n, name in enumerate(body) if name in names.steps), None)
    if start is None:
        start = next((n for n, name in enumerate(body) if not name.startswith("phase ")), 0)
    turned = body[start:] + body[:start]
    return [*turned, turned[0]]
