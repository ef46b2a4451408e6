"""Opens the stores of a project: here it is decided which implementation keeps them. Touches nothing."""

from __future__ import annotations

from pathlib import Path

from holdfast.journal.log import LocalJournal
from holdfast.layout import ProjectLayout, RunLayout
from holdfast.stores.lock import LocalLease
from holdfast.stores.objects import LocalObjects
from holdfast.stores.protocols import Files, Journal, Lease, Objects
from holdfast.stores.tree import LocalFiles


def open_journal(run: RunLayout, *, for_engine: bool = False) -> Journal:
    """The journal of a run, to read and to append to; `for_engine`: by one who appends a lot."""
    return LocalJournal(run.journal, lock_path=run.append_lock, quarantine=run.quarantine, preallocates=for_engine)


def open_lease(layout: ProjectLayout) -> Lease:
    """The right to run the steps of this project."""
    return LocalLease(layout.engine_lock)


def open_objects(layout: ProjectLayout, run_id: str, *, quarantine: Path | None = None) -> Objects:
    """The objects as a run sees them; without a place for what is damaged, to read only."""
    return LocalObjects(layout.objects, run_id, layout.tmp, quarantine, read_only=quarantine is None)


def open_files(layout: ProjectLayout, *, quarantine: Path | None = None) -> Files:
    """The files of this project; without a place for what is damaged, nothing is set aside there."""
    return LocalFiles(layout.root, layout.tmp, quarantine)
