"""How a run stands when nothing more can be done: its status, and why it is not completed."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engine.board import Board
from holdfast.pipeline.deadlock import find_standstill, loop_told
from holdfast.pipeline.nodes import OK, SKIPPED, Node
from holdfast.state import COMPLETED, FAILED, PAUSED, USED_UP, WAITS_FOR_PERSON, TaskState

_SPOILED = "was spoiled again after it had been made good: a step of this run does that"


def standing(board: Board, *, budget_usd: float | None, looked_after: bool) -> tuple[str, str]:
    """The status of a run that was not interrupted, and the reason for it.

    `looked_after`: files that were touched during the run were made good once; now they are looked at again.
    """
    tasks = (board.state.task(node.id) for node in board.graph.tasks())
    if board.overruns or any(_failed(task, is_over=not board.over_budget) for task in tasks):
        return FAILED, USED_UP
    if board.over_budget:
        return PAUSED, f"the budget of ${budget_usd:g} is used up"
    unsettled = [n for n in board.graph.nodes.values() if n.condition not in (OK, SKIPPED) and not n.is_virtual]
    if any(node.stuck for node in unsettled):
        return PAUSED, WAITS_FOR_PERSON
    if unsettled:
        return FAILED, _stopped_by(find_standstill(board.graph), unsettled)
    spoiled = board.spoiled() if looked_after else []
    return (FAILED, f"{spoiled[0]} {_SPOILED}") if spoiled else (COMPLETED, "")


def _failed(task: TaskState, *, is_over: bool) -> bool:
    """Whether it used up its attempts; unless all `is_over`, one that failed has another attempt before it."""
    return is_over if task.status == FAILED else task.has_failed


def _stopped_by(loop: Sequence[str], unsettled: Sequence[Node]) -> str:
    """Why nothing can start although nobody is waited for."""
    if loop:
        return loop_told(loop)
    names = ", ".join(node.id for node in unsettled[:5])
    return f"nothing can start, though nothing waits for a person: see why {names}"
