"""Where the tasks of a run write, as far as that is known before it begins, and what is refused of that.

What the pipeline alone says was checked when it was loaded; here parameters, the run's id and the pipeline's own
file come in. Items that a function makes are compared when it has made them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.errors import UsageError
from holdfast.layout import ProjectLayout
from holdfast.pipeline import templates
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.inferring import FilePattern
from holdfast.pipeline.names import fold, printable
from holdfast.pipeline.nodes import task_id
from holdfast.pipeline.spec import PipelineSpec, StepSpec


def own_file(compiled: CompiledPipeline, layout: ProjectLayout) -> str:
    """The pipeline's own file, relative to the project; "" if it is not in there, or there is none."""
    path = os.path.relpath(os.path.realpath(compiled.file), os.path.realpath(layout.root)) if compiled.file else ""
    return "" if path.startswith("..") else path


def refuse_own_file(compiled: CompiledPipeline, layout: ProjectLayout, params: Mapping[str, Any]) -> None:
    """Refuse a step that would put its output where the pipeline stands."""
    own = own_file(compiled, layout)
    for step in compiled.spec.steps if own else ():
        if step.appends == own or _writes_to(compiled.spec, step, own, templates.as_fields(params)):
            raise UsageError(
                f"Step {step.name} would write to {own}, which is the file of the pipeline itself.",
                fix="Give it another path.",
            )


def refuse_shared_path(spec: PipelineSpec, params: Mapping[str, Any], run_id: str) -> None:
    """Refuse parameters that give two tasks one path. Without any in a path, that was told at load."""
    used = {name for step in spec.steps for path in _templates_of(step) for name in templates.fields(path)}
    if used.isdisjoint(params):
        return
    owners: dict[str, str] = {}
    for step in spec.steps:
        for path, name in _paths_of(spec, step, templates.as_fields(params) | {"run_id": run_id}):
            other = owners.setdefault(fold(path), name)
            if other != name:
                raise UsageError(
                    f"Step {step.name} would write to {printable(path)}, and so does {other.partition(' ')[0]}.",
                    fix=f"Change {' or '.join(sorted(used & params.keys()))}: the paths are made of it.",
                )


def _paths_of(spec: PipelineSpec, step: StepSpec, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Every path of a step that can be known now, each with a name for what is written there."""
    for item in given_paths(spec, step.each):
        known = {**values, **dict(zip(spec.fan_path(step.each), item, strict=True))}
        for key, template in step.files.items():
            yield templates.render(template, known), f"{task_id(step.name, item)} {key}"
        if step.appends is not None:  # one file for all items
            yield templates.render(step.appends, known), step.name


def _templates_of(step: StepSpec) -> list[str]:
    return [*step.files.values(), *([step.appends] if step.appends is not None else [])]


def _writes_to(spec: PipelineSpec, step: StepSpec, path: str, values: Mapping[str, str]) -> bool:
    """Whether a task of a known item writes to this path."""
    fan = spec.fan_path(step.each)
    for template in step.files.values():
        if "run_id" not in templates.fields(template):
            item = FilePattern(step, fan, template, values).item_at(path)
            if item is not None and item in given_paths(spec, step.each):
                return True
    return False


def given_paths(spec: PipelineSpec, var: str | None) -> Iterator[tuple[str, ...]]:
    """The paths of a fan-out's items that are given in the pipeline; none of one that a function makes."""
    if var is None:
        yield ()
        return
    fan = next(items for items in spec.items if items.var == var)
    for parent in given_paths(spec, fan.each):
        for item in fan.given or ():
            yield (*parent, item["id"])
