"""Removing finished runs that are too old or too many. The work tree is never touched, nor an unfinished run.

Order, and what a kill leaves. A doomed run's folder is renamed to `.clean-ID` first, so that it is gone from
the list in one step; then go its objects; when that is durable, the folder goes. A `.clean-` folder is therefore
the record of an unfinished clean, and the next one finishes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from holdfast import clock
from holdfast.errors import StorageError
from holdfast.layout import ProjectLayout, objects_path
from holdfast.pipeline.names import check_run_id
from holdfast.runs.listing import RunInfo, list_runs
from holdfast.runs.opening import open_lease
from holdfast.state import COMPLETED
from holdfast.stores import disk, readable
from holdfast.stores.objects import drop_run

TRASH_PREFIX = ".clean-"  # no run id begins with a dot
_DAY_S = 86_400.0


class Doomed(msgspec.Struct, frozen=True):
    """A run that is to go, why, and how many bytes that frees."""

    run_id: str
    reason: str
    size: int


class Cleaned(msgspec.Struct, frozen=True):
    """What was removed, or would be."""

    runs: tuple[Doomed, ...]
    finished: tuple[str, ...] = ()  # runs that an earlier, interrupted clean had begun to remove


def clean(layout: ProjectLayout, *, max_age_days: float, max_runs: int, dry_run: bool = False) -> Cleaned:
    """Remove completed runs older than `max_age_days` or beyond the newest `max_runs`.

    LockedError while an engine runs. A dry run changes nothing and needs no lock.
    """
    try:
        if dry_run or not readable.is_there(layout.runs):
            return _result(tuple(_doomed(layout, max_age_days, max_runs)), _trash(layout))
        return _clean_locked(layout, max_age_days, max_runs)
    except OSError as error:
        raise StorageError.from_os(error, "clean") from error


def _clean_locked(layout: ProjectLayout, max_age_days: float, max_runs: int) -> Cleaned:
    lease = open_lease(layout)
    try:
        lease.hold("")
        leftovers = _trash(layout)
        _empty_trash(layout)
        doomed = tuple(_doomed(layout, max_age_days, max_runs))
        for run in doomed:
            target = layout.runs / f"{TRASH_PREFIX}{run.run_id}"
            disk.rename(os.fspath(layout.run(run.run_id).dir), os.fspath(target))
        if doomed:
            disk.sync_dir(layout.runs)
        _empty_trash(layout)
        return _result(doomed, leftovers)
    finally:
        lease.release()


def _result(doomed: tuple[Doomed, ...], leftovers: list[Path]) -> Cleaned:
    return Cleaned(doomed, tuple(path.name.removeprefix(TRASH_PREFIX) for path in leftovers))


def _doomed(layout: ProjectLayout, max_age_days: float, max_runs: int) -> Iterator[Doomed]:
    """Completed runs that are due, judged newest first by ordinal. One that cannot be read stays."""
    oldest = clock.now() - max_age_days * _DAY_S
    readable = [info for info in list_runs(layout) if not info.problem]
    for rank, info in enumerate(readable):
        reason = _reason(info, rank, oldest, max_age_days, max_runs)
        if info.status == COMPLETED and reason:
            yield Doomed(info.run_id, reason, _size_of(layout, info.run_id))


def _reason(info: RunInfo, rank: int, oldest: float, max_age_days: float, max_runs: int) -> str:
    if rank >= max_runs:
        return f"beyond the newest {max_runs}"
    try:
        is_old = clock.parse_iso(info.updated_at) < oldest
    except ValueError:
        return ""  # of unknown age
    return f"older than {max_age_days:g} days" if is_old else ""


def _size_of(layout: ProjectLayout, run_id: str) -> int:
    folders = (layout.run(run_id).dir, objects_path(layout.objects, run_id))
    return sum(os.lstat(path).st_size for folder in folders for path in _files(folder))


def _trash(layout: ProjectLayout) -> list[Path]:
    try:
        names = sorted(os.listdir(layout.runs))
    except FileNotFoundError:
        return []
    return [
        layout.runs / name
        for name in names
        if name.startswith(TRASH_PREFIX) and check_run_id(name.removeprefix(TRASH_PREFIX)) is None
    ]


def _empty_trash(layout: ProjectLayout) -> None:
    """Delete what was renamed away: the objects, then the folder, which is the record of it."""
    for folder in _trash(layout):
        run_id = folder.name.removeprefix(TRASH_PREFIX)
        if not readable.is_there(layout.run(run_id).dir):  # a run begun since under the same id uses them
            drop_run(layout.objects, run_id)
        disk.remove_tree(os.fspath(folder))


def _files(folder: Path) -> Iterator[Path]:
    """All files below `folder`, links as themselves."""
    for parent, _, names in os.walk(folder):
        yield from (Path(parent) / name for name in names)
