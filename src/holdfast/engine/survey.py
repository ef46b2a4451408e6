"""What a continued run finds before it starts anything: what is whole, and how far it rewinds. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from holdfast import decisions
from holdfast import events as ev
from holdfast.decisions import Decision, public_action
from holdfast.engine.scheduler import made_from
from holdfast.pipeline.nodes import SETTLE, Node
from holdfast.state import COMPLETED, RunState

AGAIN_TOLD = 5


class Survey:
    """Counts decisions about tasks that were finished, or that proved to be."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._again: list[Node] = []
        self._asked: list[Node] = []

    @property
    def is_news(self) -> bool:
        """Whether anything is not as the record says."""
        return any(action != decisions.TRUST for action in self._counts)

    def add(self, node: Node, decision: Decision, was_completed: bool) -> None:
        action = public_action(decision.action)
        if was_completed or decision.action in (decisions.ADOPT, decisions.HEAL, decisions.ASK):
            self._counts[action] += 1
        if was_completed and action in decisions.RUNS:
            self._again.append(node)
        if decision.action == decisions.ASK:
            self._asked.append(node)

    def take(self, event: ev.Event) -> None:
        """Something of a memory file was put back with it, though its task had been found whole."""
        if isinstance(event, ev.ArtifactHealed) and self._counts[decisions.TRUST]:
            self._counts[decisions.TRUST] -= 1
            self._counts[decisions.HEAL] += 1

    def told(self, state: RunState) -> ev.Recovered:
        """The event that tells it; `state` is the run's."""
        return ev.Recovered(
            counts=dict(self._counts),
            again=tuple(node.id for node in self._again[:AGAIN_TOLD]),
            behind=_finished_behind(self._again, state, but=_is_section),
            waiting=_finished_held(self._asked, state),
        )


def _finished_behind(
    nodes: Iterable[Node], state: RunState, but: Callable[[Node], bool] = lambda node: False
) -> int:
    """How many finished tasks are made from these."""
    given = set(nodes)
    found = (node.id for node in made_from(given, but) if node not in given)
    return sum(1 for task in found if state.task(task).status == COMPLETED)


def _finished_held(asked: Iterable[Node], state: RunState) -> int:
    """How many finished tasks are not looked at before these are answered: also those that only come after one."""
    stack = list(asked)
    seen = set(stack)
    held = 0
    while stack:
        for consumer, kind in stack.pop().consumers:
            if consumer not in seen and kind != SETTLE:  # where an order is enough, a question holds nobody
                seen.add(consumer)
                stack.append(consumer)
                held += consumer.is_task and state.task(consumer.id).status == COMPLETED
    return held


def _is_section(node: Node) -> bool:
    """Whether it is a section of a memory file: one that is finished stands, whatever it was made from."""
    return node.is_task and node.spec.appends is not None
