"""Where the sources of a run's state contradict each other, and who was believed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from holdfast import decisions
from holdfast.decisions import Planned
from holdfast.layout import TODOS_DB
from holdfast.recovery.sources import Views
from holdfast.state import COMPLETED, PENDING, SKIPPED

_DONE = (decisions.TRUST, decisions.HEAL, decisions.ADOPT)
_NOTHING = "nothing that proves it"


class Disagreement(msgspec.Struct, frozen=True):
    """Sources that say different things of one task."""

    task: str
    said: dict[str, str]  # source -> what it says
    believed: str  # a source; "" while a person has to decide
    is_wish: bool = False  # somebody edited the view: what it says is wanted, not claimed

    def words(self) -> str:
        said = ", ".join(f"{source}: {what}" for source, what in self.said.items())
        if self.is_wish:
            return f"{self.task}: {said}; taken as a wish: {self.believed} was edited, so it is done again"
        return f"{self.task}: {said}; " + (f"believed: {self.believed}" if self.believed else "a person decides")


def disagreements(
    planned: Mapping[str, Planned],
    recorded: Mapping[str, str],
    views: Views,
    wished: Mapping[str, str],
) -> Iterator[Disagreement]:
    """Every task of which journal, files and views do not all say the same.

    `recorded` is the journal's status, `wished` the view in which somebody turned a task back.
    """
    denied = {task for view in views.claims for task, status in view.tasks.items() if status != COMPLETED}
    for task, plan in planned.items():
        if plan.action in _DONE and not plan.problem and task not in denied and plan.told_as != decisions.SKIP:
            continue  # whoever speaks of it says that it is done
        said = _said(task, plan, recorded.get(task, ""), views, is_wished=task in wished)
        if len(said) > 1 and task in wished:
            yield Disagreement(task, said, wished[task], is_wish=True)
        elif len(said) > 1:
            yield Disagreement(task, said, _believed(plan))


def _said(task: str, plan: Planned, journal: str, views: Views, *, is_wished: bool) -> dict[str, str]:
    """What the sources say of a task, if they do not agree; else at most one entry."""
    said: dict[str, str] = {}
    standing = _standing(plan, journal, is_wished=is_wished)
    for view in views.claims:
        status = view.tasks.get(task)
        if view.source == plan.evidence or status is None or plan.action == decisions.ASK:
            continue
        if not _fits(status, standing, view.source):
            said[view.source] = _words(status)
    if journal and (said or (plan.problem and journal == COMPLETED)):
        said["journal"] = _words(journal)
    if plan.problem and said:
        said["files"] = plan.problem
    elif said and not journal:
        said["files"] = plan.evidence or _NOTHING
    return said


def _standing(plan: Planned, journal: str, *, is_wished: bool) -> str:
    """How a task stands by all that is believed: completed, skipped, or to be done."""
    if plan.told_as == decisions.SKIP:
        return SKIPPED
    is_done = plan.action in _DONE or is_wished or (journal == COMPLETED and not plan.problem)
    is_proved = plan.evidence not in ("", "journal")  # if it is redone, then for a reason of its own
    return COMPLETED if is_done or is_proved else PENDING


def _fits(status: str, standing: str, source: str) -> bool:
    """Whether a view's word agrees with how a task stands; what is to be done may be failed, too, or blocked."""
    if source == TODOS_DB and status == COMPLETED and standing == SKIPPED:
        return True  # it has no other word for it
    settled = (COMPLETED, SKIPPED)
    return status == standing or (status not in settled and standing not in settled)


def _believed(plan: Planned) -> str:
    if plan.action == decisions.ASK:
        return ""
    if plan.action == decisions.ADOPT:
        return plan.evidence
    return "files" if plan.problem and plan.action not in _DONE else plan.evidence or "files"


def _words(status: str) -> str:
    return status.replace("_", " ")
