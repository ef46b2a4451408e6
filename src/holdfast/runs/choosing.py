"""Which run a request means: a new one, or one that is continued. Reads, decides, creates nothing."""

from __future__ import annotations

import glob
import itertools
import os
import shlex
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from holdfast.artifacts.inputs import SHORT, Inputs
from holdfast.errors import UsageError
from holdfast.layout import ProjectLayout
from holdfast.pipeline import templates
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.graph import build_graph
from holdfast.pipeline.names import check_run_id, fold
from holdfast.pipeline.nodes import split_task_id, task_id
from holdfast.pipeline.spec import PipelineSpec, StepSpec
from holdfast.recovery.scan import tail_seal
from holdfast.recovery.sources import read_letter, read_views
from holdfast.runs.destinations import fields_of, known_items, refuse_own_file, refuse_shared_path
from holdfast.runs.listing import RunInfo, checked_run_id, list_runs, read_run, run_ids, run_info, run_layout
from holdfast.seals import Seal
from holdfast.settings import Settings
from holdfast.state import COMPLETED, RunState
from holdfast.stores import atomic
from holdfast.values import digest, encode_json

LOOKED_AT_MAX = 20
"""So many files of a fan-out tell which run they are of."""


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for."""

    params: Mapping[str, Any] = field(default_factory=dict)  # as they were given: text, or values of Python
    resume: str | None = None
    force: bool = False
    run_id: str | None = None
    redo: tuple[str, ...] = ()
    no_retry: bool = False
    settings: Settings = field(default_factory=Settings)
    quick: bool = False  # believe files whose size, time and inode are unchanged
    only_needed: bool = False  # leave alone what is missing and not needed by anything unfinished
    known_params: Mapping[str, Any] = field(default_factory=dict)  # of a lost run, as RESUME.md has them


@dataclass(frozen=True, slots=True)
class Choice:
    """Which run it is."""

    run_id: str
    is_new: bool
    params: dict[str, Any]
    ordinal: int = 0
    was_completed: bool = False
    found_again: bool = False  # a new record for a run whose artifacts are there: its id is in their seals
    set_aside: bool = False  # --force: what is in its way is set aside, nothing is adopted
    take_over: bool = False  # overwrite=True: another run's paths may be used


def choose(compiled: CompiledPipeline, layout: ProjectLayout, request: Request) -> Choice:
    """The run that `request` means; UsageError if it contradicts itself or the project."""
    choice = _chosen(compiled, layout, request)
    refuse_own_file(compiled, layout, choice.params)
    refuse_shared_path(compiled.spec, choice.params, choice.run_id)
    return choice


def _chosen(compiled: CompiledPipeline, layout: ProjectLayout, request: Request) -> Choice:
    if request.run_id is not None:
        checked_run_id(request.run_id)
    if request.resume is not None and (request.force or request.run_id):
        raise UsageError("--resume continues a run; it cannot go with --force or --run-id.")
    if request.resume is not None:
        return _resumed(compiled, layout, request, request.resume)
    params = compiled.params.parse(request.params, base=_declared(compiled, request.known_params))
    runs = list_runs(layout)
    if request.run_id is not None and any(info.run_id == request.run_id for info in _readable(runs)):
        return _named(compiled, layout, request, request.run_id, params)
    same = None if request.force or request.run_id else _same(runs, compiled.spec.name, params)
    if same is not None:
        return _continued(layout, same, params)
    return _new(compiled, layout, request, params, runs)


def begun_elsewhere(compiled: CompiledPipeline, layout: ProjectLayout, request: Request) -> str:
    """What to tell who begins here what was begun where the pipeline's file lies: all of it is paid for again."""
    home = Path(compiled.file).parent if compiled.file else layout.root
    if os.path.realpath(home) == os.path.realpath(layout.root):
        return ""
    choice = choose(compiled, layout, request)
    there = _same(list_runs(ProjectLayout(home)), compiled.spec.name, choice.params)
    if not choice.is_new or choice.found_again or there is None:
        return ""
    command = shlex.join(["holdfast", "resume", there.run_id, "--dir", os.path.relpath(home)])
    return f"Begun anew in this folder. The folder of the pipeline has a run with these parameters: {command}"


def _continued(layout: ProjectLayout, info: RunInfo, params: dict[str, Any]) -> Choice:
    """The run as it is on record; one that lost its beginning is begun anew, under its id, with what is left."""
    ordinal = info.ordinal or _next_ordinal(list_runs(layout))
    return Choice(info.run_id, info.lost, params, ordinal, info.status == COMPLETED, found_again=info.lost)


def _readable(runs: list[RunInfo]) -> list[RunInfo]:
    """All but those of which nobody knows any more what they were."""
    return [info for info in runs if not (info.lost and info.problem)]


def _declared(compiled: CompiledPipeline, params: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the parameters that the pipeline still has."""
    return {name: value for name, value in params.items() if name in compiled.params.names}


def _resumed(compiled: CompiledPipeline, layout: ProjectLayout, request: Request, run_id: str) -> Choice:
    checked_run_id(run_id)
    if not os.path.lexists(layout.run(run_id).dir):
        lost = _lost(compiled, layout, request, run_id)
        if lost is not None:
            return lost
    info = _existing(layout, run_id)
    if info.problem:
        return _continued(layout, info, compiled.params.parse(request.params))
    _check_pipeline(compiled, info.pipeline, run_id)
    params = compiled.params.parse(request.params, base=_declared(compiled, info.params))
    return _continued(layout, info, params)


def _lost(compiled: CompiledPipeline, layout: ProjectLayout, request: Request, run_id: str) -> Choice | None:
    """A run of which all record is lost, if RESUME.md, checkpoint.md or a seal still speaks of it."""
    letter = read_letter(layout)
    is_ours = letter.run_id == run_id and letter.pipeline == compiled.spec.name
    known = _declared(compiled, request.known_params or (letter.params if is_ours else {}))
    params = compiled.params.parse(request.params, base=known)
    seals_found = _sealed_paths(compiled, layout, params) or _seals_of_made_items(
        compiled.spec, layout, fields_of(params)
    )
    views = read_views(layout, compiled.spec, run_id)
    is_in_view = any(view.run_id == run_id for view in views.claims)
    if not is_ours and not is_in_view and all(seal.run != run_id for seal in seals_found.values()):
        return None
    own = {path: seal for path, seal in seals_found.items() if seal.run == run_id}
    refuse_newer(compiled.spec, _made_by(own), request.redo)
    if not request.params:  # they are RESUME.md's word, which anybody can change
        _refuse_other_inputs(compiled.spec, params, own)
    return Choice(run_id, True, params, _next_ordinal(list_runs(layout)), found_again=True)


def _next_ordinal(runs: list[RunInfo]) -> int:
    return max((info.ordinal for info in runs), default=0) + 1


def _existing(layout: ProjectLayout, run_id: str) -> RunInfo:
    """How a run stands that must be there and readable, or have lost nothing but its beginning."""
    run_layout(layout, run_id)
    info = run_info(layout, run_id)
    if info.problem and not info.lost:
        read_run(layout, run_id)  # says what is wrong, with the right exit status
    return info


def _check_pipeline(compiled: CompiledPipeline, recorded: str, run_id: str) -> None:
    if recorded != compiled.spec.name:
        raise UsageError(
            f"Run {run_id} belongs to the pipeline {recorded}, not to {compiled.spec.name}.",
            fix="Give the file of that pipeline.",
        )


def _named(
    compiled: CompiledPipeline, layout: ProjectLayout, request: Request, run_id: str, params: dict[str, Any]
) -> Choice:
    """`--run-id` of a run that exists: the same run, if nothing about it differs."""
    info = _existing(layout, run_id)
    if request.force:
        raise UsageError(f"There is a run {run_id} already.", fix="Give --force another --run-id.")
    _check_pipeline(compiled, info.pipeline, run_id)
    if dict(info.params) != params:
        raise UsageError(
            f"Run {run_id} has other parameters.", fix=f"Change them with --resume {run_id} -p NAME=VALUE."
        )
    return _continued(layout, info, params)


def _same(runs: list[RunInfo], pipeline: str, params: Mapping[str, Any]) -> RunInfo | None:
    """The newest run of this pipeline with equal parameters."""
    for info in runs:
        if not info.problem and info.pipeline == pipeline and dict(info.params) == dict(params):
            return info
    return None


def _new(
    compiled: CompiledPipeline,
    layout: ProjectLayout,
    request: Request,
    params: dict[str, Any],
    runs: list[RunInfo],
) -> Choice:
    if request.run_id is not None:
        _refuse_twin(layout, request.run_id)
    ordinal = _next_ordinal(runs)
    known = {info.run_id for info in _readable(runs)}
    found = _sealed_paths(compiled, layout, params)
    rivals = {path: seal.run for path, seal in found.items() if seal.run in known}
    take_over = compiled.spec.overwrite
    if not request.force:
        _refuse_rivals(compiled, layout, request, params, [info for info in runs if info.run_id in known], rivals)
    again = None
    if not request.force:
        found = found or _seals_of_made_items(compiled.spec, layout, fields_of(params))
        again = _id_in_seals(found, known)
        again = again if request.run_id in (None, again) else None
    if again is not None:
        own = {path: seal for path, seal in found.items() if seal.run == again}
        refuse_newer(compiled.spec, _made_by(own), request.redo)
        _refuse_other_inputs(compiled.spec, params, own)
    run_id = request.run_id or again or _fresh_id(layout, known)
    return Choice(
        run_id,
        True,
        params,
        ordinal,
        found_again=again is not None,
        set_aside=request.force,
        take_over=take_over or request.force,
    )


def _refuse_rivals(
    compiled: CompiledPipeline,
    layout: ProjectLayout,
    request: Request,
    params: Mapping[str, Any],
    runs: Iterable[RunInfo],
    rivals: Mapping[str, str],
) -> None:
    """Refuse to write over the artifacts of another run; with `overwrite` only over those of an unfinished one."""
    owners = {info.run_id: info for info in runs}
    for path, run_id in rivals.items():
        owner, words = owners[run_id], f"This would write over {path}, which belongs to run {run_id}"
        change = _change_words(compiled, layout, request, owner, params)
        if not compiled.spec.overwrite:
            others = "Use another --dir, start over with --force, or declare Pipeline(..., overwrite=True)."
            raise UsageError(f"{words}.", fix=others + change)
        if owner.status != COMPLETED:
            others = f"Finish it first: holdfast resume {run_id}{_where(layout)}. Or start over with --force."
            raise UsageError(f"{words}, and that is not finished.", fix=others + change)


def _where(layout: ProjectLayout) -> str:
    """The option by which a command that is typed here finds the project; "" if it needs none."""
    return "" if _is_here(layout.root) else f" --dir {shlex.quote(os.fspath(layout.root))}"


def _refuse_twin(layout: ProjectLayout, run_id: str) -> None:
    """Refuse an id that another run has but for its case: on some file systems both would have one folder."""
    for other in run_ids(layout):
        if other != run_id and fold(other) == fold(run_id):
            words = f"Run id {run_id}: differs from run {other} only in case."
            raise UsageError(words, fix="Give another --run-id.")


def _change_words(
    compiled: CompiledPipeline,
    layout: ProjectLayout,
    request: Request,
    owner: RunInfo,
    params: Mapping[str, Any],
) -> str:
    """How to give a run of this very pipeline the parameters that were asked for; "" for one of another."""
    changed = [name for name, value in params.items() if owner.params.get(name) != value]
    if owner.problem or owner.pipeline != compiled.spec.name or not changed:
        return ""
    words = ["holdfast", "run", _file_from_here(compiled), "--resume", owner.run_id]
    for name in changed:
        words += ["-p", f"{name}={_as_typed(compiled, request, name, params[name])}"]
    return f" Or change that run: {shlex.join(words)}{_where(layout)}"


def _as_typed(compiled: CompiledPipeline, request: Request, name: str, value: Any) -> str:
    """The text that gives this parameter this value: as it was typed, or a text itself, or JSON."""
    for text in (request.params.get(name), value, encode_json(value).decode()):
        if isinstance(text, str) and compiled.params.takes(name, text) == [value]:
            return text
    return "VALUE"


def _file_from_here(compiled: CompiledPipeline) -> str:
    """The pipeline as a command takes it that is typed in this folder."""
    if compiled.file is None:
        return "FILE.py"
    path = os.path.relpath(compiled.file)
    path = compiled.file if path.startswith(os.pardir) else path
    return path if compiled.variable is None else f"{path}:{compiled.variable}"


def _is_here(folder: Path) -> bool:
    return os.path.realpath(folder) == os.path.realpath(os.curdir)


def _sealed_paths(compiled: CompiledPipeline, layout: ProjectLayout, params: Mapping[str, Any]) -> dict[str, Seal]:
    """Some seals that lie where this pipeline's tasks of known items would write: enough of each step to tell."""
    fields = fields_of(params)
    found: dict[str, Seal] = {}
    for step in compiled.spec.steps:
        found |= itertools.islice(_seals_of_step(compiled.spec, step, layout, fields), LOOKED_AT_MAX)
    return found


def _seals_of_step(
    spec: PipelineSpec, step: StepSpec, layout: ProjectLayout, fields: Mapping[str, str]
) -> Iterator[tuple[str, Seal]]:
    fan = spec.fan_path(step.each)
    wanted = [template for template in step.files.values() if "run_id" not in templates.fields(template)]
    is_there: dict[str, bool] = {}  # folder -> whether anything can be in it
    for path in known_items(spec, step.each) if wanted else ():
        values = {**fields, **dict(zip(fan, path, strict=True))}
        for template in wanted:
            target = templates.render_path(template, values)
            folder = os.path.dirname(target)
            if folder not in is_there:
                is_there[folder] = os.path.lexists(layout.root / folder)
            seal = _seal_at(layout, target) if is_there[folder] else None
            if seal is not None and seal.task == task_id(step.name, path):
                yield target, seal


def _seals_of_made_items(spec: PipelineSpec, layout: ProjectLayout, fields: Mapping[str, str]) -> dict[str, Seal]:
    """Some seals of items that a function makes, whose ids only the files know now."""
    found: dict[str, Seal] = {}
    for step in spec.steps:
        if step.each is None:
            continue
        values = {**{name: glob.escape(value) for name, value in fields.items()}, "run_id": "*"}
        values |= dict.fromkeys(spec.fan_path(step.each), "*")
        for template in (*step.files.values(), *((step.appends,) if step.appends else ())):
            pattern = templates.render(template, values)
            for target in itertools.islice(glob.iglob(pattern, root_dir=layout.root), LOOKED_AT_MAX):
                seal = _seal_at(layout, target)
                if seal is not None and seal.task.startswith(f"{step.name}["):
                    found[target] = seal
    return found


def refuse_newer(spec: PipelineSpec, made_by: Iterable[tuple[str, int]], redo: Collection[str]) -> None:
    """Refuse a pipeline older than finished work (task, step version): it would pay again, for an older form.

    `redo` names the tasks and steps that are wanted again whatever they are.
    """
    versions = {name: step.version for step in spec.steps for name in (step.name, *step.was)}
    for task, version in made_by:
        step = task.partition("[")[0]
        if version > versions.get(step, version) and not {task, step} & {*redo}:
            raise UsageError(
                f"{task} was made by version {version} of its step, and this pipeline has version"
                f" {versions[step]}: it is left untouched.",
                fix=f"Give the newer pipeline file, or have it made again by this one with --redo {step}.",
            )


def _made_by(found: Mapping[str, Seal]) -> Iterator[tuple[str, int]]:
    return ((seal.task, seal.step_version) for seal in found.values())


def _refuse_other_inputs(spec: PipelineSpec, params: Mapping[str, Any], found: Mapping[str, Seal]) -> None:
    """Refuse to take over a lost run's files with other parameters: it would pay for all of them again, unasked.

    Only tasks that take nothing from other tasks can be compared before anything has run. If one of them fits,
    the run is the same, and what does not fit is redone as usual.
    """
    named = [seal for seal in found.values() if seal.inputs]
    if named:
        _refuse_other_params(params, found)
        return
    graph = build_graph(_with_items(spec, found.values()), {})
    inputs = Inputs(graph, RunState(params=dict(params)), None, Path())
    seals_by_task = {seal.task: seal for seal in found.values()}
    roots = [
        n for n in graph.tasks() if n.id in seals_by_task and not n.parents and not getattr(n.spec, "reads", ())
    ]
    versions = {node.id: seals_by_task[node.id].step_version for node in roots}  # a raised one is no other wish
    digests = {node.id: inputs.digest(node, inputs.parts(node, versions[node.id])) for node in roots}
    if digests and not any(seals_by_task[task].input_digest == digest for task, digest in digests.items()):
        path, seal = next(iter(found.items()))
        raise UsageError(
            f"{path} belongs to run {seal.run}, whose record is lost and whose parameters were others.",
            fix="Give the parameters it had, use another --dir, or start over with --force.",
        )


def _refuse_other_params(params: Mapping[str, Any], found: Mapping[str, Seal]) -> None:
    """Refuse parameters that no file of the lost run was made from, if the seals say what they were made from."""
    for name, value in params.items():
        wanted = digest(encode_json(value))[:SHORT]
        made = {path: seal.made_from.get(f"param {name}", "") for path, seal in found.items()}
        made = {path: part for path, part in made.items() if part}
        if made and wanted not in made.values():
            path = next(iter(made))
            raise UsageError(
                f"{path} is of run {found[path].run}, whose record is lost, and was made with another {name}.",
                fix="Give the parameters it had, use another --dir, or start over with --force.",
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


def _seal_at(layout: ProjectLayout, path: str) -> Seal | None:
    """The seal of the file at `path`, if there is one to be read; whatever else lies there is looked at later."""
    return tail_seal(lambda rel: atomic.open_regular(os.fspath(layout.root / rel)), path)


def _id_in_seals(found: Mapping[str, Seal], known: set[str]) -> str | None:
    """The run id that the artifacts carry, when all record of that run is gone."""
    ids = [seal.run for seal in found.values() if seal.run not in known and check_run_id(seal.run) is None]
    return Counter(ids).most_common(1)[0][0] if ids else None


def _fresh_id(layout: ProjectLayout, known: set[str]) -> str:
    base = time.strftime("%Y%m%d_%H%M%S")
    name, number = base, 1
    while name in known or os.path.lexists(layout.run(name).dir):
        number += 1
        name = f"{base}_{number}"
    return name
