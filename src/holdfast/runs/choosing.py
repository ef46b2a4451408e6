"""Which run a request means: a new one, or one that is continued. Reads, decides, creates nothing."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.errors import UnknownRunError, UsageError
from holdfast.layout import ProjectLayout
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.names import fold
from holdfast.recovery.sources import read_letter, read_views
from holdfast.runs import traces
from holdfast.runs.destinations import refuse_own_file, refuse_shared_path
from holdfast.runs.listing import RunInfo, checked_run_id, list_runs, read_run, run_ids, run_info, run_layout
from holdfast.settings import Settings
from holdfast.state import COMPLETED
from holdfast.values import encode_json


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
    is_named = request.force or request.run_id is not None  # else one of those that are there may be meant
    runs = list_runs(layout, strict=not is_named)
    if request.run_id is not None and any(info.run_id == request.run_id for info in _readable(runs)):
        return _named(compiled, layout, request, request.run_id, params)
    same = None if is_named else _same(runs, compiled.spec.name, params)
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
    try:
        info = _existing(layout, run_id)
    except UnknownRunError:
        lost = _lost(compiled, layout, request, run_id)
        if lost is None:
            raise
        return lost
    if info.problem:
        lost = _lost(compiled, layout, request, run_id)
        return lost or _continued(layout, info, compiled.params.parse(request.params))
    _check_pipeline(compiled, info.pipeline, run_id)
    params = compiled.params.parse(request.params, base=_declared(compiled, info.params))
    return _continued(layout, info, params)


def _lost(compiled: CompiledPipeline, layout: ProjectLayout, request: Request, run_id: str) -> Choice | None:
    """A run of which all record is lost, if RESUME.md, checkpoint.md or a seal still speaks of it."""
    letter = read_letter(layout)
    is_ours = letter.run_id == run_id and letter.pipeline == compiled.spec.name
    known = _declared(compiled, request.known_params or (letter.params if is_ours else {}))
    params = compiled.params.parse(request.params, base=known)
    seals_found = traces.of_known_items(compiled.spec, layout, params) or traces.of_made_items(
        compiled.spec, layout, params
    )
    views = read_views(layout, compiled.spec, run_id)
    is_in_view = any(view.run_id == run_id for view in views.claims)
    if not is_ours and not is_in_view and all(seal.run != run_id for seal in seals_found.values()):
        return None
    own = {path: seal for path, seal in seals_found.items() if seal.run == run_id}
    traces.refuse_newer_seals(compiled.spec, own, request.redo)
    if not request.params:  # they are RESUME.md's word, which anybody can change
        traces.refuse_other_inputs(compiled.spec, params, own)
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
    known = _readable(runs)
    again = None if request.force else _found_again(compiled, layout, request, params, known)
    return Choice(
        request.run_id or again or _fresh_id(layout, {info.run_id for info in known}),
        True,
        params,
        _next_ordinal(runs),
        found_again=again is not None,
        set_aside=request.force,
        take_over=compiled.spec.overwrite or request.force,
    )


def _found_again(
    compiled: CompiledPipeline,
    layout: ProjectLayout,
    request: Request,
    params: dict[str, Any],
    known: list[RunInfo],
) -> str | None:
    """The lost run whose files lie in this one's place, if that is meant; UsageError if a known one's do."""
    known_ids = {info.run_id for info in known}
    found = traces.of_known_items(compiled.spec, layout, params)
    rivals = {path: seal.run for path, seal in found.items() if seal.run in known_ids}
    _refuse_rivals(compiled, layout, request, params, known, rivals)
    found = found or traces.of_made_items(compiled.spec, layout, params)
    again = traces.run_id_in(found, known_ids)
    if again is None or request.run_id not in (None, again):
        return None
    own = {path: seal for path, seal in found.items() if seal.run == again}
    traces.refuse_newer_seals(compiled.spec, own, request.redo)
    traces.refuse_other_inputs(compiled.spec, params, own, _way_on(compiled, layout, again))
    return again


def _way_on(compiled: CompiledPipeline, layout: ProjectLayout, lost: str) -> str:
    """How a lost run is continued with the parameters that RESUME.md has; "" if that speaks of another."""
    letter = read_letter(layout)
    if letter.run_id != lost or letter.pipeline != compiled.spec.name or not letter.params:
        return ""
    return f"'holdfast resume {lost}{_where(layout)}' goes on with the parameters in RESUME.md. "


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
            others = (
                f"Finish it first with 'holdfast resume {run_id}{_where(layout)}', or start over with --force."
            )
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


def _fresh_id(layout: ProjectLayout, known: set[str]) -> str:
    base = time.strftime("%Y%m%d_%H%M%S")
    name, number = base, 1
    while name in known or os.path.lexists(layout.run(name).dir):
        number += 1
        name = f"{base}_{number}"
    return name
