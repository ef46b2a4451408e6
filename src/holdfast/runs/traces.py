"""What the files tell of a run, by their seals: whose they are, and what they were made from. Read-only.

A run whose record is lost is found again by them. Before its files are taken over, two things are refused: a
pipeline older than what made them, and parameters that they were not made from. Either would pay again, unasked.
"""

from __future__ import annotations

import glob
import itertools
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.outside import matching
from holdfast.artifacts.parts import SHORT
from holdfast.errors import UsageError
from holdfast.layout import ProjectLayout
from holdfast.pipeline import templates
from holdfast.pipeline.graph import build_graph
from holdfast.pipeline.names import check_run_id
from holdfast.pipeline.nodes import Node, split_task_id, step_of, task_id
from holdfast.pipeline.spec import PipelineSpec, StepSpec
from holdfast.recovery.scan import tail_seal
from holdfast.runs.destinations import given_paths
from holdfast.seals import Seal
from holdfast.state import RunState
from holdfast.stores import readable
from holdfast.values import digest, digest_of_fields, encode_json

LOOKED_AT_MAX = 20
"""So many files of a fan-out tell which run they are of."""

_OTHER_WAYS = "Give the parameters it had, use another folder (--dir), or start over (--force)."


def of_known_items(spec: PipelineSpec, layout: ProjectLayout, params: Mapping[str, Any]) -> dict[str, Seal]:
    """Some seals that lie where this pipeline's tasks of known items would write: enough of each step to tell."""
    fields = templates.as_fields(params)
    found: dict[str, Seal] = {}
    for step in spec.steps:
        if step.writes is not None:
            found |= itertools.islice(_seals_of_step(spec, step, layout, fields), LOOKED_AT_MAX)
    return found


def _seals_of_step(
    spec: PipelineSpec, step: StepSpec, layout: ProjectLayout, fields: Mapping[str, str]
) -> Iterator[tuple[str, Seal]]:
    fan = spec.fan_path(step.each)
    wanted = [template for template in step.files.values() if "run_id" not in templates.fields(template)]
    is_there: dict[str, bool] = {}  # folder -> whether anything can be in it
    for path in given_paths(spec, step.each) if wanted else ():
        values = {**fields, **dict(zip(fan, path, strict=True))}
        for template in wanted:
            target = templates.render_path(template, values)
            folder = os.path.dirname(target)
            if folder not in is_there:
                is_there[folder] = _may_be_there(layout.root / folder)
            seal = _seal_at(layout, target) if is_there[folder] else None
            if seal is not None and seal.task in [task_id(name, path) for name in (step.name, *step.was)]:
                yield target, seal


def _may_be_there(folder: Path) -> bool:
    """Whether a folder is worth a look. OSError if the machine cannot say: a run's files may be in it."""
    try:
        return readable.is_there(folder)
    except OSError as error:
        if error.errno not in readable.UNREADABLE:
            raise
        return False  # into what we may not look, nobody's files were written


def of_made_items(spec: PipelineSpec, layout: ProjectLayout, params: Mapping[str, Any]) -> dict[str, Seal]:
    """Some seals of items that a function makes, whose ids only the files know now."""
    found: dict[str, Seal] = {}
    for step in spec.steps:
        if step.each is None:
            continue
        values = {name: glob.escape(value) for name, value in templates.as_fields(params).items()}
        values["run_id"] = "*"
        values |= dict.fromkeys(spec.fan_path(step.each), "*")
        for template in (*step.files.values(), *((step.appends,) if step.appends else ())):
            pattern = templates.render(template, values)
            # Into what we may not look, nobody's files were written: it is no part of any run.
            targets = matching(layout.root, pattern, passing_over=readable.UNREADABLE)
            for target in itertools.islice(targets, LOOKED_AT_MAX):
                seal = _seal_at(layout, target)
                if seal is not None and step_of(seal.task) in (step.name, *step.was):
                    found[target] = seal
    return found


def _seal_at(layout: ProjectLayout, path: str) -> Seal | None:
    """The seal of the file at `path`, if there is one to be read; whatever else lies there is looked at later."""
    return tail_seal(lambda rel: readable.open_regular(os.fspath(layout.root / rel)), path)


def runs_sealed(layout: ProjectLayout) -> list[str]:
    """The runs that sealed files of the project name, most first; LOOKED_AT_MAX of each folder are read."""
    found: Counter[str] = Counter()
    for folder, folders, names in os.walk(layout.root):
        folders[:] = [name for name in folders if not name.startswith((".", "__"))]
        for name in itertools.islice(sorted(names), LOOKED_AT_MAX):
            seal = _seal_at(layout, os.path.relpath(os.path.join(folder, name), layout.root))
            if seal is not None and check_run_id(seal.run) is None:
                found[seal.run] += 1
    return [run for run, _ in found.most_common()]


def run_id_in(found: Mapping[str, Seal], known: set[str]) -> str | None:
    """The run id that the artifacts carry, when all record of that run is gone."""
    ids = [seal.run for seal in found.values() if seal.run not in known and check_run_id(seal.run) is None]
    return Counter(ids).most_common(1)[0][0] if ids else None


def refuse_newer(spec: PipelineSpec, made_by: Iterable[tuple[str, int]], redo: Collection[str]) -> None:
    """Refuse a pipeline older than finished work (task, step version): it would pay again, for an older form.

    `redo` names the tasks and steps that are wanted again whatever they are.
    """
    versions = {name: step.version for step in spec.steps for name in (step.name, *step.was)}
    for task, version in made_by:
        step = step_of(task)
        if version > versions.get(step, version) and not {task, step} & {*redo}:
            raise UsageError(
                f"{task} was made by version {version} of its step, and this pipeline has version"
                f" {versions[step]}: it is left untouched.",
                fix="Give the newer pipeline file, or have it made again by this one:"
                f" holdfast run FILE.py --redo {step}",
            )


def refuse_newer_seals(spec: PipelineSpec, found: Mapping[str, Seal], redo: Collection[str]) -> None:
    """The same for files that no record speaks of."""
    refuse_newer(spec, ((seal.task, seal.step_version) for seal in found.values()), redo)


def refuse_other_inputs(
    spec: PipelineSpec, params: Mapping[str, Any], found: Mapping[str, Seal], way_on: str = ""
) -> None:
    """Refuse to take over a lost run's files with other parameters: it would pay for all of them again, unasked.

    `way_on` is the remedy that is named first, if one is known.

    Only tasks that take nothing from other tasks can be compared before anything has run. If one of them fits,
    the run is the same, and what does not fit is redone as usual.
    """
    named = [seal for seal in found.values() if seal.inputs]
    if named:
        _refuse_other_params(params, found, way_on)
        return
    graph = build_graph(_with_items(spec, found.values()), {})
    inputs = Inputs(graph, RunState(params=dict(params)), None, Path())
    seals_by_task = {seal.task: seal for seal in found.values()}
    roots = [node for node in graph.tasks() if node.id in seals_by_task and not _takes_from_others(node)]
    versions = {node.id: seals_by_task[node.id].step_version for node in roots}  # a raised one is no other wish
    if roots and not any(_is_made_from(seals_by_task[node.id], inputs, node, versions[node.id]) for node in roots):
        path, seal = next(iter(found.items()))
        raise UsageError(
            f"{path} belongs to run {seal.run}, whose record is lost and whose parameters were others.",
            fix=way_on + _OTHER_WAYS,
        )


def _takes_from_others(node: Node) -> bool:
    """Whether a task is made from outputs of others, a section's `sources` among them, or from files outside."""
    return bool(node.parents or node.material or node.spec.reads)


def _is_made_from(seal: Seal, inputs: Inputs, node: Node, version: int) -> bool:
    return inputs.is_made_from(seal.input_digest, node, inputs.parts(node, version))


def _refuse_other_params(params: Mapping[str, Any], found: Mapping[str, Seal], way_on: str) -> None:
    """Refuse parameters that no file of the lost run was made from, if the seals say what they were made from."""
    for name, value in params.items():
        # As it is put together now, and as earlier versions did.
        wanted = {digest_of_fields(value)[:SHORT], digest(encode_json(value))[:SHORT]}
        made = {path: seal.made_from.get(f"param {name}", "") for path, seal in found.items()}
        made = {path: part for path, part in made.items() if part}
        if made and wanted.isdisjoint(made.values()):
            path = next(iter(made))
            raise UsageError(
                f"{path} is of run {found[path].run}, whose record is lost, and was made with another {name}.",
                fix=way_on + _OTHER_WAYS,
            )


def _with_items(spec: PipelineSpec, found: Iterable[Seal]) -> PipelineSpec:
    """The pipeline with only those of its given items that the seals speak of, in no order."""
    named = {part for seal in found for part in split_task_id(seal.task)[1]}
    items = []
    for fan in spec.items:
        # Which fields an item has is part of what it is; whom it comes after is not, and may be left out here.
        kept = [
            item | ({"after": []} if "after" in item else {}) for item in fan.given or () if item["id"] in named
        ]
        items.append(msgspec.structs.replace(fan, given=tuple(kept)) if fan.given is not None else fan)
    return msgspec.structs.replace(spec, items=tuple(items))
