"""Tasks, gates and phases that wait for each other: nothing but another pipeline leads out of that. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.pipeline.graph import Graph, build_graph
from holdfast.pipeline.loops import find_loop
from holdfast.pipeline.nodes import SATISFIED
from holdfast.pipeline.ordering import is_ordered
from holdfast.pipeline.spec import PipelineSpec


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
