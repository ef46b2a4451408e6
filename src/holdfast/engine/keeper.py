"""Keeps snapshots and views fresh beside the run, never on a step's own path.

Views are refreshed soon after something changed, at once after a failure, a phase, a batch that others wait for, a
decision or a memory file, and take at most a twentieth of the time. A snapshot is written when the journal has
grown by as much as the state is large, so that its cost per step does not grow with the run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from holdfast import clock, threads
from holdfast import events as ev
from holdfast.engine.commit import Recorded
from holdfast.errors import HoldfastError, StorageError
from holdfast.state import COMPLETED

PAUSE_S = 0.4
SHARE = 0.05
SNAPSHOT_EVENTS_MIN = 2000

_URGENT = {
    ev.PhaseStarted,
    ev.ChecklistRefused,
    ev.GateReached,
    ev.GateApproved,
    ev.RewindRequested,
    ev.QuestionAsked,
    ev.MemoryWritten,
    ev.RetryRequested,
    ev.RedoRequested,
    ev.Decided,
    ev.DecisionMade,
}


class Keeper:
    """A thread that calls `refresh` and `snapshot` when they are due. An observer of the run."""

    def __init__(
        self, refresh: Callable[[], None], snapshot: Callable[[], None], tasks: Callable[[], int]
    ) -> None:
        self._refresh = refresh
        self._snapshot = snapshot
        self._tasks = tasks
        self._dirty = threading.Event()
        self._urgent = threading.Event()
        self._events = 0
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, recorded: Sequence[Recorded]) -> None:
        self._events += len(recorded)
        if not self._dirty.is_set() and recorded:
            self._dirty.set()
            if self._thread is None:
                self._start()
        for entry in recorded:
            kind = type(entry.event)
            if kind in _URGENT or (kind is ev.NodeExited and entry.event.status != COMPLETED):
                self._urgent.set()

    def _start(self) -> None:
        thread = threading.Thread(target=self._keep, name="holdfast-keeper", daemon=True)
        try:
            threads.start(thread)
        except StorageError:
            self._dirty.clear()  # no reason to stop a step: the next batch tries again
        else:
            self._thread = thread

    def hurry(self) -> None:
        """Something has come to an end that no event tells of."""
        self._urgent.set()

    def start_from(self, tail_events: int) -> None:
        """How much the journal had already grown since the last snapshot."""
        self._events = tail_events

    def close(self) -> None:
        """Stop the thread. The last refresh and snapshot are the caller's."""
        self._closed.set()
        self._dirty.set()
        self._urgent.set()
        if self._thread is not None:
            self._thread.join()

    def _keep(self) -> None:
        rest = PAUSE_S
        while True:
            self._dirty.wait()
            self._urgent.wait(rest)
            self._dirty.clear()
            self._urgent.clear()
            if self._closed.is_set():  # asked last: what `close` has set must not be cleared unseen
                return
            began = clock.monotonic()
            try:
                self._keep_once()
            except (OSError, HoldfastError):
                # No reason to stop a step. If it lasts, it is told: by the journal, which meets the same disk, or
                # by the last snapshot and views at the stop, which are not written here and raise.
                pass
            spent = clock.monotonic() - began
            self._rest_after(spent)
            rest = max(PAUSE_S - spent, 0.05)

    def _rest_after(self, spent: float) -> None:
        """Stay within our share of the time, however urgent."""
        self._closed.wait(min(30.0, spent * (1 / SHARE - 1)))

    def _keep_once(self) -> None:
        if self._events >= max(SNAPSHOT_EVENTS_MIN, 2 * self._tasks()):
            self._events = 0
            self._snapshot()
        self._refresh()
