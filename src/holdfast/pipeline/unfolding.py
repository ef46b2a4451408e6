"""Builds the graph of a pipeline, and adds the tasks of items as they become known. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.pipeline import barriers
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.nodes import (
    Node,
    Path,
    batch_numbers,
    gather_id,
    page_id,
    split_task_id,
    task_id,
    waiting_items,
)
from holdfast.pipeline.spec import ItemsSpec, PipelineSpec, StepSpec

Items = Sequence[Mapping[str, Any]]


def build_graph(spec: PipelineSpec, items: Mapping[str, Items]) -> Graph:
    """The graph of `spec` with every fan-out whose items function is in `items` (by task id) expanded."""
    graph = Graph(spec)
    _add_roots(graph)
    barriers.link_phases(graph)
    makers = {fan.name: fan for fan in spec.items if fan.given is None}
    grown = True
    done: set[str] = set()
    while grown:
        grown = False
        for node_id in [n for n in items if n not in done and n in graph.nodes]:
            name, path = split_task_id(node_id)
            expand(graph, makers[name].var, path, items[node_id])
            done.add(node_id)
            grown = True
    return graph


def expand(graph: Graph, var: str, parent: Path, items: Items) -> None:
    """Add the tasks of these items; the caller settles the items function's node afterwards."""
    _unfold(graph, var, parent, items)
    barriers.link_sections(graph)


def _add_roots(graph: Graph) -> None:
    """Everything outside all fan-outs, and the tasks of given items."""
    spec = graph.spec
    for phase in spec.phases:
        graph.add_node(f"phase:{phase.name}", "phase", phase, ())
    for producer in spec.producers:
        if not producer.each and not (isinstance(producer, ItemsSpec) and producer.given is not None):
            graph.add_task(producer, (), None)
    for gate in spec.gates:
        if not gate.each:
            graph.add_gate(gate)
    for step in spec.memories:
        if step.head and len(graph.fans[step.name]) == 1:
            _add_head(graph, step, ())
    for fan in spec.items:
        if fan.given is not None and not fan.each:
            expand(graph, fan.var, (), fan.given)


def _unfold(graph: Graph, var: str, parent: Path, items: Items) -> None:
    listed = [dict(item) for item in items]
    graph.items[var, parent] = listed
    held = waiting_items(listed)
    maker, steps = _maker(graph, var, parent), graph.steps_of_fan.get(var, ())
    for item in listed:
        path = (*parent, item["id"])
        for step in steps:
            node = graph.add_task(step, path, item, held[item["id"]])
            if maker is not None:
                graph.edge_after(maker, node)  # it may make other items, when it runs again
        _unfold_inner(graph, var, path, item, maker)
    _close_gathers(graph, var, parent, listed)
    barriers.hold_unfolded(graph, var, parent)
    barriers.order_items(graph, var, parent, listed, batch_numbers(listed))
    for step in graph.spec.memories:
        if step.each == var:
            barriers.add_pages(graph, step, parent, listed)


def _unfold_inner(graph: Graph, var: str, path: Path, item: dict[str, Any], maker: Node | None) -> None:
    for fan in graph.spec.items:
        if fan.each != var:
            continue
        if fan.given is not None:
            _unfold(graph, fan.var, path, fan.given)
        else:
            node = graph.add_task(fan, path, item)
            if maker is not None:
                graph.edge_after(maker, node)
        for step in graph.spec.memories:
            if step.each == fan.var and step.head:
                _add_head(graph, step, path)


def _add_head(graph: Graph, step: StepSpec, parent: Path) -> None:
    """The moment at which a memory file is opened."""
    assert step.head is not None
    page = graph.add_node(page_id(step.name, parent, None), "page", step, parent)
    graph.edge_after(graph.named(step.head, parent, graph.fans[step.name][:-1]), page)


def _maker(graph: Graph, var: str, parent: Path) -> Node | None:
    """The items function's node behind these items; None for given ones."""
    fan = graph.fan_specs[var]
    return None if fan.given is not None else graph.nodes[task_id(fan.name, parent)]


def _close_gathers(graph: Graph, var: str, parent: Path, items: list[dict[str, Any]]) -> None:
    """Give every gather that waits for these items its edges from them."""
    for name, fan in graph.fans.items():
        if var not in fan or name not in graph.producers:
            continue
        waiting = graph.nodes.get(gather_id(name, parent))
        if waiting is None:
            continue
        for item in items:
            graph.gather_edge(name, (*parent, item["id"]), waiting)
