"""What the views of a run claim, read back where its own record may be lost. Read-only; a claim proves nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from holdfast.errors import MISSING, UnreadableError
from holdfast.layout import CHECKPOINT_VIEW, RESUME_VIEW, ProjectLayout
from holdfast.pipeline.spec import PipelineSpec
from holdfast.state import COMPLETED, SKIPPED
from holdfast.stores import readable
from holdfast.views import checkpoint, letter, reading
from holdfast.views.claims import Claims
from holdfast.views.letter import Letter
from holdfast.views.stamp import VIEW_BYTES_MAX


class Views(msgspec.Struct, frozen=True):
    """The claims about one run, the most trusted first, and what was not read as one, or not understood."""

    claims: tuple[Claims, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def done(self) -> dict[str, str]:
        """Task -> the view that says it was done; todos.db says so also of what checkpoint.md calls skipped."""
        found: dict[str, str] = {}
        left_out: set[str] = set()
        for view in self.claims:
            for task, status in view.tasks.items():
                if status == COMPLETED and task not in left_out:
                    found.setdefault(task, view.source)
            left_out |= {task for task, status in view.tasks.items() if status == SKIPPED}
        return found

    def newer_than(self, seq: int) -> Views:
        """Without those that the journal has left behind: a view that is merely old contradicts nothing."""
        is_old = {view.source for view in self.claims if view.is_stamped and not view.edited and view.seq <= seq}
        return Views(tuple(view for view in self.claims if view.source not in is_old), self.problems)

    @property
    def listed(self) -> list[dict[str, list[tuple[str, ...]]]]:
        """The items that each view lists."""
        return [view.items for view in self.claims]


NO_VIEWS = Views()


def read_views(layout: ProjectLayout, spec: PipelineSpec, run_id: str) -> Views:
    """What checkpoint.md and todos.db say of this run; those of another run or pipeline are only told of."""
    return sort_out(_read(layout, spec), spec, run_id)


def sort_out(found: Iterable[Claims], spec: PipelineSpec, run_id: str) -> Views:
    """The views that speak of this run. Pure."""
    claims, problems = [], []
    for view in found:
        problem = view.problem or _other(view, spec, run_id)
        if problem:
            problems.append(f"{view.source}: {problem}")
        else:
            claims.append(view)
            problems += [f"{view.source} says two things of {words}" for words in view.contradictions]
            problems += [f"{view.source}: not understood: {words}" for words in view.ignored]
    return Views(tuple(claims), tuple(problems))


def _other(view: Claims, spec: PipelineSpec, run_id: str) -> str:
    if view.run_id and run_id and view.run_id != run_id:
        return f"it is of run {view.run_id}, not of this one"
    if view.pipeline and view.pipeline != spec.name:
        return f"it is of the pipeline {view.pipeline}, not of {spec.name}"
    return ""


def read_letter(layout: ProjectLayout) -> Letter:
    """What RESUME.md says of the run it was written for; nothing if there is none, or it cannot be read."""
    text, problem = _text(layout.resume_view)
    return letter.parse(text) if text is not None else Letter(problem=problem)


def read_unfinished(layout: ProjectLayout, spec: PipelineSpec) -> Claims | None:
    """The tasks that RESUME.md lists as unfinished, at its stamp; None if it was edited, or does not list all."""
    text, _ = _text(layout.resume_view)
    if text is None or letter.CUT_SHORT in text:
        return None
    claims = reading.read(text, spec, RESUME_VIEW)
    return claims if claims.is_stamped and not claims.edited else None


def _read(layout: ProjectLayout, spec: PipelineSpec) -> Iterator[Claims]:
    text, problem = _text(layout.checkpoint_view)
    if text is not None:
        yield checkpoint.parse(text, spec)
    elif problem:
        yield Claims(CHECKPOINT_VIEW, problem=problem)
    if readable.is_there(layout.todos_db):
        from holdfast.views.todofile import read_claims  # SQLite is loaded only where there is a database

        yield read_claims(layout.todos_db, spec)


def _text(path: Path) -> tuple[str | None, str]:
    """A view's text, or why it cannot be read; neither if it is not there."""
    try:
        return readable.content(path, VIEW_BYTES_MAX).decode(errors="replace"), ""
    except UnreadableError as error:
        return None, "" if error.why == MISSING else f"it cannot be read ({error.words})"
