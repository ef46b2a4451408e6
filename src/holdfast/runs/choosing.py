"""Which run a request means: a new one, or one that is continued. Reads, decides, creates nothing."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import StorageError, UnknownRunError, UsageError
from holdfast.layout import ProjectLayout
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.names import fold
from holdfast.recovery.sources import read_letter, read_views
from holdfast.runs import traces
from holdfast.runs.destinations import refuse_own_file, refuse_shared_path
from holdfast.runs.listing import RunInfo, checked_run_id, list_runs, read_run, run_ids, run_info, run_layout
from holdfast.runs.rivals import refuse_rivals, where
from holdfast.settings import Settings
from holdfast.state import COMPLETED
from holdfast.stores import readable
from holdfast.values import is_same


class Request(msgspec.Struct, frozen=True):
    """What was asked for."""

    params: Mapping[str, Any] = {}  # as they were given: text, or values of Python
    resume: str | None = None
    force: bool = False
    run_id: str | None = None
    redo: tuple[str, ...] = ()
    no_retry: bool = False
    settings: Settings = msgspec.field(default_factory=Settings)
    quick: bool = False  # believe files whose size, time and inode are unchanged
    only_needed: bool = False  # leave alone what is missing and not needed by anything unfinished
    known_params: Mapping[str, Any] = {}  # of a lost run, as RESUME.md has them


class Choice(msgspec.Struct, frozen=True):
    """Which run it is."""

    run_id: str
    is_new: bool
    params: dict[str, Any]
    ordinal: int = 0
    was_completed: bool = False
    found_again: bool = False  # a new record for a run whose artifacts are there: its id is in their seals
    set_aside: bool = False  # --force: what is in its way is set aside, nothing is adopted
    take_over: bool = False  # overwrite=True: another run's paths may be used
    budget_usd: float | None = None  # of a lost run, as RESUME.md has it
    tags: Mapping[str, Any] = {}  # the same


def choose(compiled: CompiledPipeline, layout: ProjectLayout, request: Request) -> Choice:
    """The run that `request` means; UsageError if it contradicts itself or the project."""
    choice = _Choosing(compiled, layout, request).choice()
    refuse_own_file(compiled, layout, choice.params)
    refuse_shared_path(compiled.spec, choice.params, choice.run_id)
    return _with_letter(choice, layout) if choice.found_again else choice


def _with_letter(choice: Choice, layout: ProjectLayout) -> Choice:
    """A limit that a person set is not lifted by losing the record of it; nor are the run's tags forgotten."""
    letter = read_letter(layout)
    if letter.run_id != choice.run_id:
        return choice
    return msgspec.structs.replace(choice, budget_usd=letter.budget_usd, tags=letter.tags)


def begun_elsewhere(compiled: CompiledPipeline, layout: ProjectLayout, choice: Choice) -> str:
    """What to tell who begins here what was begun where the pipeline's file lies: all of it is paid for again."""
    home = Path(compiled.file).parent if compiled.file else layout.root
    if not choice.is_new or choice.found_again or os.path.realpath(home) == os.path.realpath(layout.root):
        return ""
    there = _same(list_runs(ProjectLayout(home)), compiled.spec.name, choice.params)
    if there is None:
        return ""
    command = shlex.join(["holdfast", "resume", there.run_id, "--dir", os.path.relpath(home)])
    return f"Begun anew in this folder. The folder of the pipeline has a run with these parameters: {command}"


class _Choosing:
    """One request, for one pipeline, in one project."""

    def __init__(self, compiled: CompiledPipeline, layout: ProjectLayout, request: Request) -> None:
        self._compiled = compiled
        self._layout = layout
        self._request = request

    def choice(self) -> Choice:
        request = self._request
        if request.run_id is not None:
            checked_run_id(request.run_id)
        if request.resume is not None and (request.force or request.run_id):
            raise UsageError(
                "resume (--resume) continues a run; it cannot go with force, or with an id for a new one."
            )
        if request.resume is not None:
            return self._resumed(request.resume)
        params = self._params(request.known_params)
        is_named = request.force or request.run_id is not None  # else one of those that are there may be meant
        runs = list_runs(self._layout, strict=not is_named)
        if request.run_id is not None and any(info.run_id == request.run_id for info in _readable(runs)):
            return self._named(request.run_id, params)
        same = None if is_named else _same(runs, self._compiled.spec.name, params)
        return self._continued(same, params) if same is not None else self._new(params, runs)

    def _params(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters as they were given, else as they are known, if the pipeline still has them."""
        declared = self._compiled.params
        base = {name: value for name, value in known.items() if name in declared.names}
        return declared.parse(self._request.params, base=base)

    def _continued(self, info: RunInfo, params: dict[str, Any]) -> Choice:
        """The run as it is on record; one that lost its beginning begins anew, under its id, with what is left."""
        ordinal = info.ordinal or _next_ordinal(list_runs(self._layout))
        return Choice(info.run_id, info.lost, params, ordinal, info.status == COMPLETED, found_again=info.lost)

    # --- a run that is named ---------------------------------------------------------------------------------

    def _resumed(self, run_id: str) -> Choice:
        checked_run_id(run_id)
        try:
            info = _existing(self._layout, run_id)
        except UnknownRunError as unknown:
            lost = self._lost_if_known(run_id, unknown)
            if lost is None:
                raise
            return lost
        if info.problem:
            return self._lost(run_id) or self._continued(info, self._params({}))
        self._check_pipeline(info)
        return self._continued(info, self._params(info.params))

    def _lost_if_known(self, run_id: str, unknown: UnknownRunError) -> Choice | None:
        """The lost run of that id; without the parameters it had, nobody can tell, and the id is named first."""
        try:
            return self._lost(run_id)
        except UsageError as error:
            fix = f"{unknown.fix} If its record is lost: {error.message}"
            raise UnknownRunError(unknown.message, fix=fix) from None

    def _lost(self, run_id: str) -> Choice | None:
        """A run of which all record is lost, if RESUME.md, checkpoint.md or a seal still speaks of it."""
        spec, layout, request = self._compiled.spec, self._layout, self._request
        letter = read_letter(layout)
        is_ours = letter.run_id == run_id and letter.pipeline == spec.name
        params = self._params(request.known_params or (letter.params if is_ours else {}))
        found = traces.of_known_items(spec, layout, params) or traces.of_made_items(spec, layout, params)
        is_in_view = any(view.run_id == run_id for view in read_views(layout, spec, run_id).claims)
        own = {path: seal for path, seal in found.items() if seal.run == run_id}
        if not is_ours and not is_in_view and not own:
            return None
        traces.refuse_newer_seals(spec, own, request.redo)
        if not request.params:  # they are RESUME.md's word, which anybody can change, or bring from elsewhere
            known = {info.run_id for info in _readable(list_runs(layout))}
            left = own or {path: seal for path, seal in found.items() if seal.run not in known}
            traces.refuse_other_inputs(spec, params, left)
        return Choice(run_id, True, params, _next_ordinal(list_runs(layout)), found_again=True)

    def _named(self, run_id: str, params: dict[str, Any]) -> Choice:
        """`--run-id` of a run that exists: the same run, if nothing about it differs."""
        info = _existing(self._layout, run_id)
        if self._request.force:
            raise UsageError(f"There is a run {run_id} already.", fix="Give the new run another id.")
        self._check_pipeline(info)
        if not is_same(dict(info.params), params):
            raise UsageError(
                f"Run {run_id} has other parameters.",
                fix=f"Change them: holdfast run FILE.py --resume {run_id} -p NAME=VALUE",
            )
        return self._continued(info, params)

    def _check_pipeline(self, info: RunInfo) -> None:
        if info.pipeline != self._compiled.spec.name:
            raise UsageError(
                f"Run {info.run_id} belongs to the pipeline {info.pipeline}, not to {self._compiled.spec.name}.",
                fix="Give the file of that pipeline.",
            )

    # --- a new one ---------------------------------------------------------------------------------------------

    def _new(self, params: dict[str, Any], runs: list[RunInfo]) -> Choice:
        request = self._request
        if request.run_id is not None:
            _refuse_twin(self._layout, request.run_id)
        known = _readable(runs)
        again = None if request.force else self._found_again(params, known)
        return Choice(
            request.run_id or again or _fresh_id(self._layout, {info.run_id for info in known}),
            True,
            params,
            _next_ordinal(runs),
            found_again=again is not None,
            set_aside=request.force,
            take_over=self._compiled.spec.overwrite or request.force,
        )

    def _found_again(self, params: dict[str, Any], known: list[RunInfo]) -> str | None:
        """The lost run whose files lie in this one's place, if that is meant; UsageError if a known one's do."""
        spec, layout, request = self._compiled.spec, self._layout, self._request
        owners = {info.run_id: info for info in known}
        found = traces.of_known_items(spec, layout, params)
        rivals = {path: owners[seal.run] for path, seal in found.items() if seal.run in owners}
        refuse_rivals(rivals, self._compiled, layout, request.params, params)
        found = found or traces.of_made_items(spec, layout, params)
        again = traces.run_id_in(found, set(owners))
        if again is None or request.run_id not in (None, again):
            return None
        own = {path: seal for path, seal in found.items() if seal.run == again}
        traces.refuse_newer_seals(spec, own, request.redo)
        traces.refuse_other_inputs(spec, params, own, self._way_on(again))
        return again

    def _way_on(self, lost: str) -> str:
        """How a lost run is continued with the parameters that RESUME.md has; "" if that speaks of another."""
        letter = read_letter(self._layout)
        if letter.run_id != lost or letter.pipeline != self._compiled.spec.name or not letter.params:
            return ""
        return f"'holdfast resume {lost}{where(self._layout)}' goes on with the parameters in RESUME.md. "


def _readable(runs: list[RunInfo]) -> list[RunInfo]:
    """All but those of which nobody knows any more what they were."""
    return [info for info in runs if not (info.lost and info.problem)]


def _next_ordinal(runs: list[RunInfo]) -> int:
    return max((info.ordinal for info in runs), default=0) + 1


def _existing(layout: ProjectLayout, run_id: str) -> RunInfo:
    """How a run stands that must be there and readable, or have lost nothing but its beginning."""
    run_layout(layout, run_id)
    info = run_info(layout, run_id)
    if info.problem and not info.lost:
        read_run(layout, run_id)  # says what is wrong, with the right exit status
        info = run_info(layout, run_id)  # or nothing is, any more
        if info.problem and not info.lost:
            raise StorageError(info.problem)
    return info


def _same(runs: list[RunInfo], pipeline: str, params: Mapping[str, Any]) -> RunInfo | None:
    """The newest run of this pipeline with equal parameters."""
    for info in runs:
        if not info.problem and info.pipeline == pipeline and is_same(dict(info.params), dict(params)):
            return info
    return None


def _refuse_twin(layout: ProjectLayout, run_id: str) -> None:
    """Refuse an id that another run has but for its case: on some file systems both would have one folder.

    And one whose folder was moved, and a link left there: that run is not begun a second time.
    """
    if os.path.islink(layout.run(run_id).dir):
        run_layout(layout, run_id)
    for other in run_ids(layout):
        if other != run_id and fold(other) == fold(run_id):
            words = f"Run id {run_id}: differs from run {other} only in case."
            raise UsageError(words, fix="Give another id.")


def _fresh_id(layout: ProjectLayout, known: set[str]) -> str:
    base = time.strftime("%Y%m%d_%H%M%S")
    name, number = base, 1
    while name in known or readable.is_there(layout.run(name).dir):
        number += 1
        name = f"{base}_{number}"
    return name
