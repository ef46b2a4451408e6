"""What somebody wants who changed a view: the difference between its claims and the moment it was drawn at. Pure.

A task turned back from done is to be done again, one turned back from skipped after all; one turned to done is
claimed to be, which has to be verified.
Every other difference is nobody's wish: `failed` instead of `in progress` asks for nothing. A page without a stamp
has no moment to differ from: it may be old, or a plan, and so it can claim what is done and turn nothing back.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast import layout
from holdfast.state import BLOCKED, COMPLETED, FAILED, IN_PROGRESS, PENDING, SKIPPED
from holdfast.views import matrix
from holdfast.views.claims import Claims
from holdfast.views.picture import Picture

WANTED_DONE, WANTED_REDO = "done", "redo"

TURNED_BACK = frozenset([PENDING, IN_PROGRESS, FAILED, BLOCKED])


class Wish(msgspec.Struct, frozen=True):
    """One task that somebody wants otherwise, and how: `said` in the view `source`, where it `was`."""

    task: str
    source: str
    wanted: str  # done | redo
    said: str
    was: str


def wishes(claims: Claims, then: Picture) -> list[Wish]:
    """What the view asks for; `then` is the run at the view's sequence number, or now if it has no stamp."""
    return list(_wishes(claims, then)) if _concerns(claims, then) else []


def _concerns(claims: Claims, then: Picture) -> bool:
    """Whether somebody changed a view of this very run, or wrote one for its pipeline."""
    if claims.is_stamped and not (claims.edited and claims.run_id == then.state.run_id):
        return False
    return claims.pipeline in ("", then.spec.name)


def _wishes(claims: Claims, then: Picture) -> Iterator[Wish]:
    known = set(then.tasks)
    for task, said in claims.tasks.items():
        if task not in known:
            continue
        was = _was(claims.source, then, task)
        if said == COMPLETED and was != COMPLETED:
            yield Wish(task, claims.source, WANTED_DONE, said, was)
        elif was in (COMPLETED, SKIPPED) and said in TURNED_BACK and claims.is_stamped:
            yield Wish(task, claims.source, WANTED_REDO, said, was)


def _was(source: str, then: Picture, task: str) -> str:
    """The status that this view showed of the task."""
    if source != layout.TODOS_DB:
        return matrix.shown_status(then, task)
    return COMPLETED if matrix.is_row_done(then, task) else PENDING
