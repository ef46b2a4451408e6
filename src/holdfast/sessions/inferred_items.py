"""Items that are only inferred, from views and the names of files, and what proves that there are such items.

Rules. A sealed file proves its item. A task that left no file is believed if a view, the record or another file of
its item tells of it. What nothing proves is somebody's own file, and no item.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast import decisions
from holdfast.decisions import Decision
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.inferring import Items, is_inferred
from holdfast.pipeline.nodes import Node, split_task_id, task_id
from holdfast.recovery.judge import Judge


class InferredItems:
    """The inferred items of one graph; each look at a task may prove one."""

    def __init__(self, graph: Graph, judge: Judge, inferred: Items, sure: frozenset[tuple[str, ...]]) -> None:
        self.by_maker = inferred  # the items, by the function that would have made them
        self._graph = graph
        self._judge = judge
        self._sure = sure  # paths of items that a view or the record names
        self._proved: set[tuple[str, ...]] = set()  # paths of items that a sealed file proves

    def covers(self, node: Node) -> bool:
        """Whether the item of this task is only inferred."""
        return bool(self.by_maker) and is_inferred(self._graph, node, self.by_maker)

    def may_act(self, node: Node, decision: Decision) -> bool:
        """What is sealed proves its item; what left no file is believed if something else proves the item."""
        if node.id in self._judge.state.tasks:
            return True
        if decision.about == "sealed" and decision.action == decisions.ADOPT:
            self._proved.add(node.path)
            return True
        is_named = node.path in self._sure
        if decision.about in ("marker", "exists") and decision.action == decisions.ADOPT:
            return is_named
        return decision.about == "lost" and (is_named or self._is_proved(node))

    def _is_proved(self, node: Node) -> bool:
        """Whether a file of the same item proves that there is such an item."""
        if node.path not in self._proved:
            fan = self._graph.fan_of(node.spec.name)[-1]
            beside = (task_id(step.name, node.path) for step in self._graph.spec.steps if step.each == fan)
            if any(self._judge.is_proved(self._graph.nodes[task]) for task in beside):
                self._proved.add(node.path)
        return node.path in self._proved

    def _believed(self) -> set[tuple[str, ...]]:
        """The paths of inferred items that are more than a file's name."""
        paths = (*self._sure, *self._proved)
        return {path[:length] for path in paths for length in range(1, len(path) + 1)}

    def unproved(self, tasks: Iterable[str]) -> list[str]:
        """Which of these tasks are of no item: only a file's name suggested it."""
        if not self.by_maker:
            return []
        believed = self._believed()
        nodes = (self._graph.nodes[task] for task in tasks)
        return [node.id for node in nodes if node.path not in believed and self.covers(node)]

    def items(self) -> Items:
        """The inferred items that something proves or a view names; after the pass."""
        believed, found = self._believed(), {}
        for maker, listed in self.by_maker.items():
            parent = split_task_id(maker)[1]
            found[maker] = [item for item in listed if (*parent, item["id"]) in believed]
        return found
