"""What the views of a run claim, read back where its own record may be lost. Read-only; a claim proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.artifacts import UNREADABLE
from holdfast.layout import CHECKPOINT_VIEW, ProjectLayout
from holdfast.pipeline.spec import PipelineSpec
from holdfast.state import COMPLETED
from holdfast.stores import atomic
from holdfast.views import checkpoint
from holdfast.views.claims import Claims

VIEW_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class Views:
    """The claims about one run, the most trusted first, and what was not read as one."""

    claims: tuple[Claims, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def done(self) -> dict[str, str]:
        """Task -> the view that says it was done."""
        found: dict[str, str] = {}
        for view in self.claims:
            for task, status in view.tasks.items():
                if status == COMPLETED:
                    found.setdefault(task, view.source)
        return found

    @property
    def listed(self) -> list[dict[str, list[tuple[str, ...]]]]:
        """The items that each view lists."""
        return [view.items for view in self.claims]


NO_VIEWS = Views()


def read_views(layout: ProjectLayout, spec: PipelineSpec, run_id: str) -> Views:
    """What checkpoint.md and todos.db say of this run; those of another run or pipeline are only told of."""
    return sort_out(_read(layout, spec), spec, run_id)


def sort_out(found: Sequence[Claims], spec: PipelineSpec, run_id: str) -> Views:
    """The views that speak of this run. Pure."""
    claims, problems = [], []
    for view in found:
        problem = view.problem or _other(view, spec, run_id)
        if problem:
            problems.append(f"{view.source}: {problem}")
        else:
            claims.append(view)
    return Views(tuple(claims), tuple(problems))


def _other(view: Claims, spec: PipelineSpec, run_id: str) -> str:
    if view.run_id and view.run_id != run_id:
        return f"it is of run {view.run_id}, not of this one"
    if view.pipeline and view.pipeline != spec.name:
        return f"it is of the pipeline {view.pipeline}, not of {spec.name}"
    return ""


def _read(layout: ProjectLayout, spec: PipelineSpec) -> list[Claims]:
    try:
        data = atomic.read_file(layout.checkpoint_view, limit=VIEW_BYTES_MAX)
    except FileNotFoundError:
        return []
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        return [Claims(CHECKPOINT_VIEW, problem=f"it cannot be read ({error.strerror})")]
    return [checkpoint.parse(data.decode(errors="replace"), spec)]
