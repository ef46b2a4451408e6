"""The runs of a project: which there are, how each stands, and which one a command means."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast import clock
from holdfast.errors import (
    CheckpointCorruptionError,
    ForbiddenError,
    FormatTooNewError,
    HoldfastError,
    StorageError,
    UnknownRunError,
    UnreadableError,
    UsageError,
)
from holdfast.layout import ProjectLayout, RunLayout, objects_path
from holdfast.pipeline.names import check_run_id, printable
from holdfast.recovery.sources import read_letter
from holdfast.runs.history import History, read_history, require_run
from holdfast.runs.looking import draw_run
from holdfast.runs.opening import open_journal, open_lease
from holdfast.snapshots import snapshots
from holdfast.state import COMPLETED, IN_PROGRESS
from holdfast.stores import readable
from holdfast.stores.protocols import Position
from holdfast.views.picture import Picture
from holdfast.views.stamp import VIEW_BYTES_MAX, read_json_stamp
from holdfast.views.summary import error_of


class RunInfo(msgspec.Struct, frozen=True):
    """One line of `holdfast list`."""

    run_id: str
    ordinal: int = 0
    pipeline: str = ""
    params: Mapping[str, Any] = {}
    tags: Mapping[str, Any] = {}
    status: str = ""
    done: int = 0
    total: int = 0
    cost_usd: float = 0.0
    started_at: str = ""
    updated_at: str = ""
    file: str = ""  # the pipeline's, as the record names it
    error: str | None = None  # why it stopped, if that still stands in its way
    skipped: int = 0
    problem: str = ""  # why it cannot be read, if it cannot
    lost: bool = False  # the beginning of its record is: what is known of it comes from a view, or nothing is


def open_project(directory: str | os.PathLike[str]) -> ProjectLayout:
    """The layout of an existing folder; UsageError in one line otherwise. Creates nothing."""
    try:
        root = Path(os.path.abspath(directory))
    except FileNotFoundError:
        fix = "Go to one that is there, or give all of the path."
        raise UsageError("The current folder was deleted.", fix=fix) from None
    try:
        mode = os.stat(root).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"No such directory: {printable(str(directory))}.", fix="Give an existing one.") from None
    except OSError as error:
        raise StorageError.from_os(error, "open") from error
    except ValueError:
        raise UsageError(f"Not a path: {printable(str(directory))}.") from None
    if not stat.S_ISDIR(mode):
        raise UsageError(f"Not a directory: {printable(str(directory))}.")
    layout = ProjectLayout(root)
    folders = (layout.state, layout.runs, layout.objects, layout.tmp)
    _refuse_strange(layout, folders, (layout.engine_lock, layout.append_lock))
    return layout


def refuse_strange_run(layout: ProjectLayout, run_id: str) -> None:
    """Stop where anything else stands in the place of a folder that a run writes to."""
    run = layout.run(run_id)
    _refuse_strange(layout, (run.dir, run.quarantine, run.logs, objects_path(layout.objects, run_id)), ())


def _refuse_strange(layout: ProjectLayout, folders: Sequence[Path], files: Sequence[Path]) -> None:
    """Nothing is looked for, or written, through a link, a socket, or a folder where a file belongs."""
    for path in (*folders, *files):
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError.from_os(error, "look at") from error
        kind, is_right = ("folder", stat.S_ISDIR) if path in folders else ("file", stat.S_ISREG)
        name = path.relative_to(layout.root)
        if stat.S_ISLNK(mode):
            fix = (
                f"Put the {kind} itself in its place. If it is gone, move the link away and run the same command."
            )
            raise CheckpointCorruptionError(f"{name} is a symbolic link, and is not followed.", fix=fix)
        if not is_right(mode):
            fix = "Move it away, and run the same command: what can be is made again from the files."
            raise CheckpointCorruptionError(f"{name} is not a {kind}.", fix=fix)


def checked_run_id(run_id: str) -> str:
    """`run_id`, if it is safe as a name."""
    problem = check_run_id(run_id)
    if problem:
        raise UsageError(f"Run id {printable(run_id)}: {problem}.")
    return run_id


def run_ids(layout: ProjectLayout) -> list[str]:
    """The ids of all runs that have a folder of a legal name, or a link in its place: it may have been moved."""
    try:
        with os.scandir(layout.runs) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False) or entry.is_symlink()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError.from_os(error, "list") from error
    return sorted(name for name in names if check_run_id(name) is None)


def list_runs(layout: ProjectLayout, *, but: str = "", strict: bool = False) -> list[RunInfo]:
    """All runs (`but` one), newest first by ordinal. A run that cannot be read is listed with its problem.

    With `strict` that is raised: whoever chooses among them must not take such a run for absent, as it may be the
    one that is meant. What is damaged beyond reading is listed all the same.
    """
    read = _read_info if strict else run_info
    found = [read(layout, run_id) for run_id in run_ids(layout) if run_id != but]
    found = [info for info in found if not info.problem or _has_begun(layout.run(info.run_id))]
    return sorted(found, key=lambda info: (info.ordinal, info.run_id), reverse=True)


def run_info(layout: ProjectLayout, run_id: str) -> RunInfo:
    """How one run stands; if it cannot be read, why."""
    try:
        return _read_info(layout, run_id)
    except HoldfastError as error:
        return RunInfo(run_id, problem=error.message)


def _read_info(layout: ProjectLayout, run_id: str) -> RunInfo:
    """How one run stands: from its summary if that is up to date, else from its journal.

    One command asks several times (which run is meant, is it finished, where is its file); what was read is
    remembered for as long as the journal stays the very same file.
    """
    try:
        run = run_layout(layout, run_id)
        mark = _mark(run)
        known = _remembered.get(run.dir)
        if known is not None and known[0] == mark:
            return known[1]
        info = _from_summary(run, run_id, mark) or describe(read_picture(layout, run_id))
    except CheckpointCorruptionError as error:
        return identify(layout, run_id) or RunInfo(run_id, problem=error.message, lost=True)
    except UnknownRunError as error:  # removed since it was listed
        return RunInfo(run_id, problem=error.message)
    if mark is not None:
        _remembered[run.dir] = (mark, info)
    return info


_remembered: dict[Path, tuple[Position, RunInfo]] = {}
_UNREADABLE = Position(-1, "")


def _mark(run: RunLayout) -> Position | None:
    """What changes whenever the journal does: its last line, whose sum rests on all lines before it."""
    try:
        return open_journal(run).last()
    except (ForbiddenError, FormatTooNewError):
        return _UNREADABLE
    except StorageError:
        return None


def _has_begun(run: RunLayout) -> bool:
    """Whether anything was ever recorded: a process killed before its first line leaves a folder, but no run."""
    try:
        if os.path.islink(run.dir) or snapshots(run.dir):
            return True
    except OSError:
        return True  # cannot read is not absent
    return open_journal(run).has_begun()


def is_bare(layout: ProjectLayout, run_id: str) -> bool:
    """Whether nothing, in its folder or beside it, says that there ever was such a run."""
    run = layout.run(run_id)
    is_empty = not _has_begun(run) and set(os.listdir(run.dir)) <= {run.journal.name}
    return is_empty and identify(layout, run_id) is None


def begin_again(run_id: str) -> str:
    """The advice where a run is bare."""
    return f"Begin it again: holdfast run FILE.py --run-id {run_id}"


def identify(layout: ProjectLayout, run_id: str) -> RunInfo | None:
    """Which run it was whose journal lost its beginning: as its summary says, else an unedited RESUME.md."""
    summary = _read_summary(layout.run(run_id), run_id)
    if summary is not None:
        # How it stands now, only the next run can tell.
        return replace(_summarised(summary), status=IN_PROGRESS, lost=True)
    letter = read_letter(layout)
    if letter.run_id != run_id or not letter.fits or letter.problem or not letter.pipeline:
        return None
    return RunInfo(run_id, 0, letter.pipeline, letter.params, status=IN_PROGRESS, file=letter.file, lost=True)


def describe(picture: Picture) -> RunInfo:
    state = picture.state
    return RunInfo(
        state.run_id,
        state.ordinal,
        state.pipeline,
        state.params,
        state.tags,
        state.status,
        picture.done,
        picture.total,
        state.cost_usd,
        clock.iso(state.started_at or 0.0),
        clock.iso(state.updated_at or 0.0),
        state.file,
        error_of(picture),
        picture.skipped,
    )


class _Stamp(msgspec.Struct):
    seq: int


class _Summary(msgspec.Struct):
    """The part of checkpoint.json that a listing needs."""

    run_id: str
    ordinal: int
    pipeline: str
    status: str
    totals: dict[str, int]
    total_cost_usd: float
    stamp: _Stamp
    params: dict[str, Any] = {}
    tags: dict[str, Any] = {}
    started_at: str | None = None
    updated_at: str | None = None
    file: str = ""
    error: str | None = None


def _from_summary(run: RunLayout, run_id: str, last: Position | None) -> RunInfo | None:
    """The summary, if it was written after the journal's last line, or as long as we may not read that."""
    try:
        summary = _read_summary(run, run_id)
    except StorageError:
        return None  # the journal says the same
    if summary is None or last is None or (last.seq != summary.stamp.seq and last != _UNREADABLE):
        return None
    return _summarised(summary)


def _read_summary(run: RunLayout, run_id: str) -> _Summary | None:
    """checkpoint.json as it was written: one that was edited or damaged says nothing."""
    try:
        data = readable.content(run.summary, VIEW_BYTES_MAX)
        stamp = read_json_stamp(data)
        if stamp is None or not stamp.fits:
            return None
        summary = msgspec.json.decode(data, type=_Summary)
    except (UnreadableError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return summary if summary.run_id == run_id else None


def _summarised(summary: _Summary) -> RunInfo:
    return RunInfo(
        summary.run_id,
        summary.ordinal,
        summary.pipeline,
        summary.params,
        summary.tags,
        summary.status,
        summary.totals.get("completed", 0),
        summary.totals.get("tasks", 0),
        summary.total_cost_usd,
        summary.started_at or "",
        summary.updated_at or "",
        summary.file,
        summary.error,
        summary.totals.get("skipped", 0),
    )


def run_layout(layout: ProjectLayout, run_id: str) -> RunLayout:
    """The layout of an existing run; an unknown id is an error, never a fresh start."""
    checked_run_id(run_id)
    run = layout.run(run_id)
    try:
        mode = os.lstat(run.dir).st_mode
    except FileNotFoundError:
        known = run_ids(layout)
        fix = f"There are: {', '.join(known[-5:])}." if known else "This project has no runs yet."
        raise UnknownRunError(f"There is no run {run_id}.", fix=fix) from None
    except OSError as error:
        raise StorageError.from_os(error, "look at") from error
    if stat.S_ISLNK(mode):
        raise UsageError(f"The folder of run {run_id} is a symbolic link, and is not followed.", fix=_LINK_FIX)
    if not stat.S_ISDIR(mode):
        raise UsageError(
            f"The folder of run {run_id} is not a folder.",
            fix="Move it away; 'holdfast run FILE.py' finds the run again by its files.",
        )
    return run


_LINK_FIX = (
    "Put the folder itself in its place. If it is gone, move the link away: 'holdfast run FILE.py' finds the run"
    " again by its files."
)


def read_run(layout: ProjectLayout, run_id: str, *, quarantine: bool = False, must_begin: bool = True) -> History:
    """A run's state from disk; read-only unless `quarantine`. With `must_begin`, a lost beginning is an error."""
    run = run_layout(layout, run_id)
    try:
        history = read_history(run, quarantine=run.quarantine if quarantine else None)
    except FileNotFoundError as error:
        raise UnknownRunError(f"Run {run_id} has no journal.", fix=f"Look at {run.dir}.") from error
    except OSError as error:
        raise StorageError.from_os(error, "read") from error
    if must_begin and not history.state.run_id and is_bare(layout, run_id):
        words = f"Nothing is on record of run {run_id}: it was stopped before its first line, or that is lost."
        raise UnknownRunError(words, fix=begin_again(run_id))
    if must_begin:
        require_run(history.state, run)
    return history


def read_picture(layout: ProjectLayout, run_id: str) -> Picture:
    """A run as people see it, from its record alone."""
    return draw_run(layout, read_run(layout, run_id).state)


def newest(runs: Sequence[RunInfo]) -> RunInfo | None:
    """The run that a command means when none is named: the newest unfinished one that reads, else the newest."""
    readable = [info for info in runs if not info.problem]
    unfinished = [info for info in readable if info.status != COMPLETED]
    return next(iter(unfinished or readable), None)


def holder_of(layout: ProjectLayout, run_id: str) -> dict[str, Any] | None:
    """Who runs this very run now, or None. A project has one engine, which may be busy with another run."""
    holder = open_lease(layout).holder()
    if holder is None or holder.get("run_id") != run_id:
        return None
    return {name: holder.get(name) for name in ("host", "pid", "since")}
