"""Opens the stores of a project: here it is decided which implementation keeps them. Touches nothing."""

from __future__ import annotations

from holdfast.journal.log import LocalJournal
from holdfast.layout import ProjectLayout, RunLayout
from holdfast.stores.lock import LocalLease
from holdfast.stores.protocols import Journal, Lease


def open_journal(run: RunLayout, *, for_engine: bool = False) -> Journal:
    """The journal of a run, to read and to append to; `for_engine`: by one who appends a lot."""
    return LocalJournal(run.journal, lock_path=run.append_lock, quarantine=run.quarantine, preallocates=for_engine)


def open_lease(layout: ProjectLayout) -> Lease:
    """The right to run the steps of this project."""
    return LocalLease(layout.engine_lock)
