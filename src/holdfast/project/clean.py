"""Removing finished runs that are too old or too many. The work tree is never touched, nor an unfinished run.

Order, and what a kill leaves. A doomed run's folder is renamed to `.clean-ID` first, so that it is gone from
the list in one step; then go the large objects that only doomed runs refer to, and its pack; when that is durable,
the folder goes. A `.clean-` folder is therefore the record of an unfinished clean, and the next one finishes it.

A large ("loose") object is removed only with proof: a doomed run names it, and no file of any other run does.
If a remaining run cannot be read to its end, loose objects stay.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from holdfast import clock
from holdfast.errors import ForbiddenError, StorageError
from holdfast.layout import LOGS_DIR, LOOSE_DIR, ProjectLayout, RunLayout, loose_path, pack_path
from holdfast.pipeline.names import check_run_id
from holdfast.runs.listing import RunInfo, list_runs
from holdfast.runs.opening import open_journal, open_lease
from holdfast.state import COMPLETED
from holdfast.stores import disk, readable

TRASH_PREFIX = ".clean-"  # no run id begins with a dot
_DAY_S = 86_400.0
_HASH = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


class Doomed(msgspec.Struct, frozen=True):
    """A run that is to go, why, and how many bytes that frees."""

    run_id: str
    reason: str
    size: int


class Cleaned(msgspec.Struct, frozen=True):
    """What was removed, or would be."""

    runs: tuple[Doomed, ...]
    loose: int = 0  # large objects
    loose_size: int = 0
    finished: tuple[str, ...] = ()  # runs that an earlier, interrupted clean had begun to remove
    kept_because: str = ""  # why loose objects had to stay


class _UnprovenError(Exception):
    """What a remaining run refers to cannot be known for certain."""


def clean(layout: ProjectLayout, *, max_age_days: float, max_runs: int, dry_run: bool = False) -> Cleaned:
    """Remove completed runs older than `max_age_days` or beyond the newest `max_runs`.

    LockedError while an engine runs. A dry run changes nothing and needs no lock.
    """
    try:
        if dry_run or not readable.is_there(layout.runs):
            doomed = tuple(_doomed(layout, max_age_days, max_runs))
            leftovers = _trash(layout)
            loose, why_not = _removable_loose(layout, [*leftovers, *(layout.run(d.run_id).dir for d in doomed)])
            return _result(doomed, leftovers, loose, why_not)
        return _clean_locked(layout, max_age_days, max_runs)
    except OSError as error:
        raise StorageError.from_os(error, "clean") from error


def _clean_locked(layout: ProjectLayout, max_age_days: float, max_runs: int) -> Cleaned:
    lease = open_lease(layout)
    try:
        lease.hold("")
        leftovers = _trash(layout)
        _, why_not = _empty_trash(layout)
        doomed = tuple(_doomed(layout, max_age_days, max_runs))
        for run in doomed:
            target = layout.runs / f"{TRASH_PREFIX}{run.run_id}"
            disk.rename(os.fspath(layout.run(run.run_id).dir), os.fspath(target))
        if doomed:
            disk.sync_dir(layout.runs)
        loose, why_not_now = _empty_trash(layout)
        return _result(doomed, leftovers, loose, why_not or why_not_now)
    finally:
        lease.release()


def _result(doomed: tuple[Doomed, ...], leftovers: list[Path], loose: dict[str, int], why_not: str) -> Cleaned:
    finished = tuple(path.name.removeprefix(TRASH_PREFIX) for path in leftovers)
    return Cleaned(doomed, len(loose), sum(loose.values()), finished, why_not)


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
    files = [*_files(layout.run(run_id).dir, skip=""), pack_path(layout.objects, run_id)]
    return sum(os.lstat(path).st_size for path in files if readable.is_there(path))


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


def _empty_trash(layout: ProjectLayout) -> tuple[dict[str, int], str]:
    """Delete what was renamed away: loose objects, packs, folders; the folder last: it is the record."""
    trash = _trash(layout)
    loose, why_not = _removable_loose(layout, trash)
    # A run begun since under the same id would be using that pack.
    gone = [folder.name.removeprefix(TRASH_PREFIX) for folder in trash]
    packs = [pack_path(layout.objects, run_id) for run_id in gone if not readable.is_there(layout.run(run_id).dir)]
    objects = [
        *(loose_path(layout.objects, sha) for sha in loose),
        *(pack for pack in packs if readable.is_there(pack)),
    ]
    for path in objects:
        disk.unlink(os.fspath(path))
    for folder in {path.parent for path in objects}:
        disk.sync_dir(folder)
    for folder in trash:
        disk.remove_tree(os.fspath(folder))
    return loose, why_not


def _removable_loose(layout: ProjectLayout, going: list[Path]) -> tuple[dict[str, int], str]:
    """Loose objects, with their sizes, that only the folders `going` name; or why that cannot be known."""
    if not going or not readable.is_there(layout.objects / LOOSE_DIR):
        return {}, ""
    try:
        named = {sha for sha in _hashes(going) if readable.is_there(loose_path(layout.objects, sha))}
        if named:
            staying = [path for name in os.listdir(layout.runs) if (path := layout.runs / name) not in going]
            _require_whole(staying)
            named -= _hashes(staying)
    except (_UnprovenError, ForbiddenError) as error:
        return {}, str(error)
    except OSError as error:
        if error.errno not in readable.UNREADABLE:
            raise  # once the folders are gone, nobody would know any more whose objects these were
        return {}, str(error)
    return {sha: os.lstat(loose_path(layout.objects, sha)).st_size for sha in named}, ""


def _require_whole(folders: Iterable[Path]) -> None:
    """Every journal reads to its end and was never repaired: a lost line may have named an object."""
    for folder in folders:
        journal = open_journal(RunLayout(folder))
        if not journal.is_there():
            continue
        reading = journal.read()
        repaired = any(b'"event":"journal_repaired"' in line.raw for line in reading)
        if repaired or reading.damage or reading.torn:
            raise _UnprovenError(f"the journal of run {folder.name} is not whole")


def _hashes(folders: Iterable[Path]) -> set[str]:
    """Everything in the folders' files that looks like an object's hash: rather too much than too little."""
    return {sha for folder in folders for path in _files(folder, skip=LOGS_DIR) for sha in _hashes_in(path)}


def _hashes_in(path: Path) -> set[str]:
    with readable.opened(path) as fd:
        if os.fstat(fd).st_size == 0:
            return set()
        with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as content:
            return {match[0].decode() for match in _HASH.finditer(content)}


def _files(folder: Path, *, skip: str) -> Iterator[Path]:
    """All files below `folder`, links as themselves, except below its subfolder `skip`."""
    for parent, folders, names in os.walk(folder, onerror=_raise):
        if skip in folders and Path(parent) == folder:
            folders.remove(skip)
        yield from (Path(parent) / name for name in names)


def _raise(error: OSError) -> None:
    raise error
