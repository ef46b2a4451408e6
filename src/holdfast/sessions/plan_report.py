"""What a pass tells of each task: for every task the word, the reason, the evidence and the cost.

The words of `Planned` are for people and for `--json`; nothing is decided by them.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from holdfast import decisions
from holdfast.artifacts.looks import CHANGED, FOREIGN, MARKED, SEALED
from holdfast.decisions import BEHIND, MADE_FROM_IT, Decision, Planned, public_action
from holdfast.pipeline.deadlock import find_standstill, loop_told
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.nodes import SETTLE, Node, step_of
from holdfast.state import COMPLETED, SKIPPED, RunState

_TOLD = (decisions.WAIT, decisions.NEVER, decisions.PERHAPS)
_DONE = (decisions.ADOPT, decisions.HEAL)
_WORDS = {FOREIGN: "another task's", MARKED: "not sealed"}
_EVIDENCE = {
    "sealed": "sealed artifact",
    decisions.UNRECORDED: "seal",
    "marker": "plain marker",
    "exists": "file",
    "kept": "file",
}


class PlanReport:
    """What was decided about each task, in the order in which it was; `claims` is what views say is done."""

    def __init__(self, state: RunState, claims: Mapping[str, str]) -> None:
        self.planned: dict[str, Planned] = {}
        self._state = state
        self._claims = claims
        self._costs = _average_costs(state)

    def note(self, node: Node, decision: Decision) -> None:
        """Write down what was decided about a task; a later decision about it replaces an earlier one.

        What was done about it stays told if it is only trusted when it is looked at again.
        """
        action = public_action(decision.action)
        noted = self.planned.get(node.id)
        if noted is not None and noted.action in _DONE and action == decisions.TRUST:
            return
        cost = self._cost(node) if action in decisions.RUNS else None
        evidence = noted.evidence if noted is not None else self._evidence(node, decision)
        if decision.action == decisions.ADOPT:
            self.planned[node.id] = Planned(node.id, action, decision.reason, None, evidence)
            return
        problem, is_behind = _problem(decision), decision.about == BEHIND
        told_as = decision.about if decision.about in _TOLD else ""
        cost = 0.0 if told_as == decisions.NEVER else cost
        if decision.action == decisions.SKIP or self._state.task(node.id).status == SKIPPED:
            told_as = decisions.SKIP
        reason = decision.reason + _gives_way(decision)
        self.planned[node.id] = Planned(node.id, action, reason, cost, evidence, problem, is_behind, told_as)

    def _cost(self, node: Node) -> float | None:
        """What its step costs on average, without the calls that are on record and replayed."""
        average, record = self._costs.get(node.spec.name), self._state.task(node.id)
        if average is None or node.id not in self._state.once:
            return average
        return max(0.0, average - (record.round_cost_usd - record.loose_cost_usd))

    def counts(self) -> dict[str, int]:
        """How many tasks got which decision."""
        return dict(Counter([task.action for task in self.planned.values()]))

    def _evidence(self, node: Node, decision: Decision) -> str:
        if decision.about == "lost":
            return self._claims.get(node.id, MADE_FROM_IT)
        if node.kind == "items" and node.id not in self._state.tasks:
            return self._claims.get(node.id, "")
        if decision.action == decisions.ADOPT or decisions.is_unrecorded(decision):
            return _EVIDENCE[decision.about]
        return "journal" if node.id in self._state.tasks else ""

    def note_unreached(self, graph: Graph, wanted: Collection[Node]) -> None:
        """Of what is wanted, what was not reached stands behind something that waits for a person or for items."""
        unreached = [node for node in wanted if node.is_task and node.id not in self.planned]
        if not unreached:
            return
        held = _held_by(graph)
        unreached.sort(key=lambda node: node.order)
        loop = find_standstill(graph) if any(node.id not in held for node in unreached) else []
        for node in unreached:
            record = self._state.task(node.id)
            if record.status == COMPLETED:
                reason = _not_looked_at(held.get(node.id))
                self.note(node, Decision(decisions.TRUST, reason, about=decisions.WAIT))
            elif record.status == SKIPPED:
                self.note(node, Decision(decisions.SKIP, record.error or "skipped"))
            elif skipped := self._left_out_before(node):
                self.note(node, Decision(decisions.SKIP, f"{skipped} was skipped"))
            elif loop and node.id not in held:
                self.note(node, Decision(decisions.RUN, _in_a_loop(node, loop), about=decisions.NEVER))
            else:
                self.note(node, Decision(decisions.RUN, _once_through(held.get(node.id))))

    def _left_out_before(self, node: Node) -> str:
        """A task with which this one is left out; "" if there is none."""
        taken = (self.planned.get(before.id) for before in node.goes_with(is_finished=False))
        return next((task.id for task in taken if task is not None and task.told_as == decisions.SKIP), "")

    def send_back(self, wished: Mapping[str, str]) -> None:
        """Somebody wants these done again, although they are whole; each with the view that says so."""
        for task, source in wished.items():
            reason = f"{source} was edited: it is to be done again"
            self.planned[task] = replace(self.planned[task], action=decisions.REDO, reason=reason, told_as="")

    def tell_running(self, tasks: Iterable[str]) -> None:
        """An engine is at work on these: what is there of them now is not what a later run would find."""
        for task in tasks:
            if task in self.planned:
                self.planned[task] = replace(
                    self.planned[task], action=decisions.RUN, reason=decisions.RUNNING, problem="", told_as=""
                )


def _held_by(graph: Graph) -> dict[str, Node]:
    """What waits for a person before each node that cannot be reached: one of several is named."""
    found: dict[str, Node] = {}
    for held in [node for node in graph.nodes.values() if node.stuck]:
        stack = [held]
        while stack:
            for consumer, kind in stack.pop().consumers:
                if kind != SETTLE and consumer.id not in found:
                    found[consumer.id] = held
                    stack.append(consumer)
    return found


def _once_through(held: Node | None) -> str:
    """When a task comes on that is not reached yet."""
    if held is None:
        return "once what it depends on is through"
    if held.kind == "gate":
        return f"after gate {held.id} is approved: holdfast approve {shlex.quote(held.id)}"
    return f"after {held.id}, which needs a person"


def _in_a_loop(node: Node, loop: list[str]) -> str:
    """Why a task cannot be reached though nobody is waited for."""
    return loop_told(loop) if node.id in loop else f"behind {loop[0]}, which waits for itself"


def _not_looked_at(held: Node | None) -> str:
    """Why finished work was not looked at."""
    return f"finished; looked at after {held.id if held is not None else 'what it depends on'}"


def _problem(decision: Decision) -> str:
    """Which of the files that a decision is about are not whole."""
    if not decision.looks:
        return ""
    about = ((path, decision.looks[path].kind) for path in decision.paths if path in decision.looks)
    return ", ".join(f"{path} is {_WORDS.get(kind, kind)}" for path, kind in about if kind != SEALED)


def _gives_way(decision: Decision) -> str:
    """What a person wrote that a redo, for whatever reason, sets aside: whoever plans wants to know."""
    if decision.action != decisions.REDO:
        return ""
    edited = [path for path in decision.paths if path in decision.looks and decision.looks[path].kind == CHANGED]
    return f"; what you wrote into {', '.join(edited)} is set aside" if edited else ""


def _average_costs(state: RunState) -> dict[str, float]:
    """What a task of each step has cost so far, on average."""
    spent: dict[str, list[float]] = {}
    for task, record in state.tasks.items():
        if record.status == COMPLETED:
            spent.setdefault(step_of(task), []).append(record.round_cost_usd)
    return {step: sum(costs) / len(costs) for step, costs in spent.items()}
