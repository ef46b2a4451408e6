"""What a continued run finds before it starts anything: what is whole, and how far it rewinds. Pure."""

from __future__ import annotations

from collections import Counter

from holdfast import decisions
from holdfast import events as ev
from holdfast.decisions import Decision, public_action
from holdfast.engine.scheduler import real_consumers
from holdfast.pipeline.graph import Graph, Node

AGAIN_TOLD = 5
_AGAIN = (decisions.REDO, decisions.CONTINUE)


class Survey:
    """Counts decisions about tasks that were finished, or that proved to be."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._again: list[Node] = []

    @property
    def is_news(self) -> bool:
        """Whether anything is not as the record says."""
        return any(action != decisions.TRUST for action in self._counts)

    def add(self, node: Node, decision: Decision, was_completed: bool) -> None:
        action = public_action(decision.action)
        if was_completed or action == decisions.ADOPT:
            self._counts[action] += 1
        if was_completed and action in _AGAIN:
            self._again.append(node)

    def told(self, graph: Graph) -> ev.Recovered:
        """The event that tells it."""
        return ev.Recovered(
            counts=dict(self._counts),
            again=tuple(node.id for node in self._again[:AGAIN_TOLD]),
            behind=len(self._behind()),
        )

    def _behind(self) -> set[str]:
        """The tasks that stand behind those that run again."""
        seen = {node.id for node in self._again}
        stack, found = list(self._again), set()
        while stack:
            for consumer in real_consumers(stack.pop()):
                if consumer.id not in seen:
                    seen.add(consumer.id)
                    found.add(consumer.id)
                    stack.append(consumer)
        return found
