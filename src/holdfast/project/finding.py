"""Which run, pipeline and parameters a command means: the record says, else, where that is lost, RESUME.md."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.errors import CheckpointCorruptionError, HoldfastError, UnknownRunError, UsageError
from holdfast.layout import ProjectLayout
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.definition import Pipeline
from holdfast.pipeline.loader import load_pipeline, locate
from holdfast.recovery.sources import read_letter
from holdfast.runs.history import name_pipeline
from holdfast.runs.listing import list_runs, newest, read_run, run_ids, run_info, run_layout
from holdfast.runs.traces import runs_sealed
from holdfast.views.letter import Letter
from holdfast.wording import addressed


class Meant(NamedTuple):
    """What a command works on."""

    compiled: CompiledPipeline
    run_id: str | None  # a run that is on record
    known_params: dict[str, Any]  # of one that is not
    lost_run: str | None = None  # its id, if RESUME.md has it


def find_meant(
    layout: ProjectLayout, file: str | Pipeline | None, params: Mapping[str, Any], *, command: str
) -> Meant:
    """The pipeline of FILE, else of the newest run on record, else the one that RESUME.md names.

    `command` is the one that was typed: where FILE is gone, it is told how to give another.
    """
    run_id = _recorded(layout)
    if file is not None:
        compiled = load(layout, file)
        return Meant(compiled, *of_pipeline(layout, compiled, params))
    if run_id is not None:
        fix = f"Say where it is: holdfast {command} FILE.py"
        return Meant(load_recorded(layout, run_id, fix=fix), run_id, {})
    letter = read_letter(layout)
    return Meant(load_named(layout, letter), None, letter.params, letter.run_id or None)


def find_planned(
    layout: ProjectLayout, source: str | Pipeline | None, run_id: str | None
) -> tuple[CompiledPipeline, str | None, dict[str, Any]]:
    """The pipeline, the run it would continue if that is settled, and parameters if its record is lost.

    Without FILE a run must name it, or RESUME.md.
    """
    lost = find_lost(layout, run_id) if run_id is not None or source is None else None
    if lost is None and (run_id is not None or source is None):
        run_id = pick_run(layout, run_id)
    if source is not None:
        compiled = load(layout, source)
        known = lost.params if lost is not None else {}
        return compiled, run_id, known if run_id is not None else of_pipeline(layout, compiled, {})[1]
    if lost is not None:
        return load_named(layout, lost), lost.run_id, lost.params
    assert run_id is not None
    fix = f"Say where it is: holdfast plan FILE.py --resume {run_id}"
    return load_recorded(layout, run_id, fix=fix), run_id, {}


def find_resumed(layout: ProjectLayout, run_id: str | None) -> tuple[CompiledPipeline, str]:
    """The run that `resume` means, and its pipeline."""
    lost = find_lost(layout, run_id)
    if lost is not None:
        return load_named(layout, lost), lost.run_id
    chosen = pick_run(layout, run_id)
    return load_recorded(layout, chosen), chosen


def pick_damaged(layout: ProjectLayout, run_id: str | None) -> str:
    """As other commands pick; where no run can be read, the newest is the one to look at."""
    if run_id is None:
        runs = list_runs(layout)
        if runs and all(info.problem for info in runs):
            return runs[0].run_id
    return pick_run(layout, run_id)


def typing_of(layout: ProjectLayout, directory: str, run_id: str | None) -> Callable[[str], str]:
    """How to type a command about that run: `resume` names it, others mean the newest unfinished one."""
    other = run_id if run_id and not _is_meant(layout, run_id) else ""

    def typed(text: str) -> str:
        return addressed(text, directory, "" if "holdfast resume" in text else other)

    return typed


def _is_meant(layout: ProjectLayout, run_id: str) -> bool:
    """Whether a command that names no run means this one."""
    try:
        meant = newest(list_runs(layout, strict=True))
    except HoldfastError:  # another cannot be read just now
        return False
    return meant is not None and meant.run_id == run_id


def load(layout: ProjectLayout, source: str | Pipeline) -> CompiledPipeline:
    """A pipeline that is given: itself, or as FILE.py[:NAME]."""
    if isinstance(source, Pipeline):
        return locate(source)
    return load_pipeline(source, base=find_file(source, layout))


def pick_run(layout: ProjectLayout, run_id: str | None) -> str:
    """The run that is named, if it exists; without a name the newest unfinished one, else the newest."""
    lost = find_lost(layout, run_id)
    if lost is not None:
        raise _is_gone_from_record(layout, lost)
    if run_id is not None:
        run_layout(layout, run_id)
        return run_id
    runs = list_runs(layout, strict=True)
    meant = newest(runs)
    if meant is not None:
        return meant.run_id
    if runs:
        raise CheckpointCorruptionError(
            f"No run of this project can be read: {runs[0].problem}",
            fix=name_pipeline(runs[0].run_id),
        )
    raise no_run(layout)


def no_run(layout: ProjectLayout) -> UnknownRunError:
    """What to say of a project without a run on record: there may have been one, or another folder is meant."""
    lost = find_lost(layout, None)
    if lost is not None:
        return _is_gone_from_record(layout, lost)
    sealed = runs_sealed(layout)
    if sealed:
        return UnknownRunError(
            f"No run is on record here, but files of run {', '.join(sealed)} are.",
            fix="Bring it back with its file and parameters: holdfast run FILE.py -p NAME=VALUE",
        )
    left = views_left(layout)
    if left:
        return UnknownRunError(
            f"No run is on record here, but a view of one is left: {', '.join(left)}.",
            fix="Rebuild it from that and the files: holdfast recover FILE.py",
        )
    above = next((folder for folder in layout.root.parents if os.path.isdir(ProjectLayout(folder).runs)), None)
    if above is not None:
        there = shlex.quote(os.path.relpath(above))
        return UnknownRunError("This folder has no runs.", fix=f"One above it has: give --dir {there}")
    return UnknownRunError("This project has no runs yet.", fix="Start one: holdfast run FILE.py")


def _is_gone_from_record(layout: ProjectLayout, letter: Letter) -> UnknownRunError:
    """What to say of a run that only RESUME.md knows: `clean` removes records too, of completed runs."""
    fix = "'holdfast recover' (or 'holdfast resume') rebuilds it from the files."
    if letter.is_complete and os.path.isdir(layout.runs):
        words = f"The record of run {letter.run_id}, which was completed, is gone: cleaned, or lost."
        return UnknownRunError(words, fix=fix)
    return UnknownRunError(f"The record of run {letter.run_id} is lost.", fix=fix)


def find_lost(layout: ProjectLayout, run_id: str | None) -> Letter | None:
    """RESUME.md, if the run that is meant has lost its folder and the letter is of it.

    Without `run_id` only if nothing at all is on record: else one of the runs there is meant.
    """
    known = run_ids(layout)
    if run_id in known or (run_id is None and known):
        return None
    letter = read_letter(layout)
    return letter if letter.run_id and run_id in (None, letter.run_id) else None


def views_left(layout: ProjectLayout) -> list[str]:
    """What is there of a run that is on record nowhere else: not enough to know its pipeline by."""
    views = (layout.checkpoint_view, layout.resume_view, layout.todos_db)
    return [os.path.relpath(view, layout.root) for view in views if os.path.isfile(view)]


def _recorded(layout: ProjectLayout) -> str | None:
    """The newest unfinished run that can be read, else the newest."""
    meant = newest(list_runs(layout, strict=True))
    return meant.run_id if meant is not None else None


def of_pipeline(
    layout: ProjectLayout, compiled: CompiledPipeline, params: Mapping[str, Any]
) -> tuple[str | None, dict[str, Any]]:
    """The newest run of this pipeline, if no parameters are given that could mean another; else RESUME.md's."""
    for info in list_runs(layout, strict=True):
        if not info.problem and info.pipeline == compiled.spec.name and not params:
            return info.run_id, {}
    letter = read_letter(layout)
    return None, letter.params if letter.pipeline == compiled.spec.name else {}


def load_named(layout: ProjectLayout, letter: Letter) -> CompiledPipeline:
    """The pipeline whose file RESUME.md names."""
    fix = "Say which pipeline it is: give FILE.py."
    if not letter.file:
        raise UsageError("Neither a run on record nor RESUME.md names the pipeline's file.", fix=fix)
    file = _file_of(letter.file)
    if os.path.isabs(file) or ".." in file.split("/"):
        # Anybody can write a RESUME.md; what it names would be executed.
        raise UsageError("RESUME.md names a pipeline outside this project, which is not loaded unasked.", fix=fix)
    if _is_gone(layout, file):
        raise UsageError(f"{file}, the pipeline that RESUME.md names, is gone.", fix=fix)
    return load_pipeline(letter.file, base=layout.root)


def load_recorded(layout: ProjectLayout, run_id: str, *, fix: str = "") -> CompiledPipeline:
    """The pipeline of a run, from the file that its record names; `fix` says what to do if that is gone."""
    info = run_info(layout, run_id)
    reference = read_run(layout, run_id).state.file if info.problem else info.file
    fix = fix or f"Say where it is: holdfast run FILE.py --resume {run_id}"
    if not reference:
        raise UsageError(f"Run {run_id} was started from Python: its record names no file.", fix=fix)
    file = _file_of(reference)
    if _is_gone(layout, file):
        raise UsageError(f"{file}, the pipeline of run {run_id}, is gone.", fix=fix)
    is_outside = file.startswith(os.pardir)
    return load_pipeline(reference, base=Path(os.path.realpath(layout.root)) if is_outside else layout.root)


def _file_of(reference: str) -> str:
    """The file of FILE.py[:NAME]."""
    return reference if reference.endswith(".py") else reference.rpartition(":")[0]


def _is_gone(layout: ProjectLayout, file: str) -> bool:
    """Whether the project has no such file; an OSError if nobody can tell."""
    try:
        os.lstat(layout.root / file)
    except (FileNotFoundError, NotADirectoryError):
        return True
    return False


def find_file(reference: str, layout: ProjectLayout) -> Path:
    """The folder that FILE.py[:NAME] is relative to: where the command was typed, else the project's."""
    file = _file_of(reference)
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was deleted
        return layout.root
    try:
        is_in_project = not os.path.lexists(here / file) and os.path.lexists(layout.root / file)
    except ValueError:  # a NUL in the name; the loader says so
        return here
    return layout.root if is_in_project else here
