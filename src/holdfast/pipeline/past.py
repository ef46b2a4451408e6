"""The nodes of memory steps: the sections before an item, and the moments at which sections are written. Pure.

Three kinds of nodes, each with as few edges as can be:

    glossary[before ch03]     every section that ch03 comes after: through it, consumers inside the fan-out wait
    glossary[until 2]         every section of batch 2 and of those before it, where batches are given
    page:glossary[batch 2]    through when each section of the batch is there, skipped or waiting for a person:
                              then the file is written; page:glossary[head] is through when the head is there
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.pipeline.batches import batch_numbers, given_batches
from holdfast.pipeline.nodes import Node, Path, task_id

if TYPE_CHECKING:
    from holdfast.pipeline.graph import Graph
    from holdfast.pipeline.spec import StepSpec

Items = Sequence[Mapping[str, Any]]


def before_id(name: str, path: Path) -> str:
    """The node that stands for all sections which the item at `path` comes after."""
    return task_id(name, (*path[:-1], f"before {path[-1]}"))


def page_id(name: str, parent: Path, batch: int | None) -> str:
    """The node that is through when a batch (None: the head) can be written."""
    return task_id(f"page:{name}", (*parent, "head" if batch is None else f"batch {batch}"))


def add_before(graph: Graph, name: str, path: Path) -> Node:
    """The node for the sections before an item; its edges come when all tasks of the fan-out are there."""
    known = graph.nodes.get(before_id(name, path))
    if known is not None:
        return known
    node = graph.add_node(before_id(name, path), "past", graph.producers[name], path)
    graph.unlinked.append(node)
    return node


def link_before(graph: Graph) -> None:
    """Give every new node of that kind its edges: from sections, and from the same of the items before."""
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
            graph.edge_after(add_before(graph, name, (*parent, earlier)), node)
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


def batch_of(page: Node) -> int | None:
    """The batch that a page stands for; None for the head."""
    last = page.id.rpartition("[")[2].rpartition("/")[2]
    return None if last == "head]" else int(last[len("batch ") : -1])
