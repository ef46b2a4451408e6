"""Group commit: many finished steps, one append, one sync; whoever finds nobody committing does it.

The thread that finished a body puts its report into the inbox and pumps. If nobody leads, it leads: it stores
the small files of all reports in the inbox, applies them to the state, writes all events with one append, syncs
once, and delivers. Reports that arrive meanwhile are the next batch. Nothing is handed to another thread, so a
chain of steps costs one sync each; and of many threads that end at once one works and the others sleep, instead of
all asking for the interpreter after every write.

Crash story: objects are synced before the events that name them are appended. A crash before the append loses
only what nobody was told; between append and sync, a power cut may cut the tail; after the sync, nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast import clock
from holdfast import events as ev
from holdfast.errors import HoldfastError, LockLostError, StorageError
from holdfast.folding import fold
from holdfast.journal.lines import Line, decode_event, encode_event
from holdfast.state import RunState
from holdfast.stores.protocols import Batch, Journal, Lease, Objects, Position

SYNCS_WORTH = 10
BATCH_MIN = 4
"""A batch of more entries than that is made ready for no longer than so many syncs take."""

QUICK_SYNC_S = 0.005


class Entry:
    """Something to record; whoever leads the commit calls these."""

    durable = True

    def ready(self) -> None:
        """Before the batch is opened. Must not raise."""

    def apply(self) -> None:
        """While it is open: record."""

    def done(self, error: BaseException | None) -> None:
        """Once it is durable, or has failed."""


class Recorded(msgspec.Struct, eq=False):
    """An event and its time, as observers see it."""

    at: float
    event: Any


class Committer:
    """The one place where this process appends to its run's journal."""

    def __init__(
        self, journal: Journal, objects: Objects, lease: Lease, state: RunState, position: Position
    ) -> None:
        self.state = state
        self.position = position
        """In the journal: all up to there is folded into the state."""
        self.failed: BaseException | None = None
        self.on_batch: Callable[[], None] = _nothing
        self.on_foreign: Callable[[Any], None] = _nothing
        self.on_written: Callable[[], None] = _nothing
        self.on_durable: Callable[[list[Recorded]], None] = _nothing
        self._journal = journal
        self._objects = objects
        self._lease = lease
        self._inbox: deque[Entry] = deque()
        self._leader = threading.Lock()
        self._batch: Batch | None = None
        self._has_begun = False
        self._recorded: list[Recorded] = []
        self._at = 0.0
        self._ts = ""
        self._sync_s = 1.0  # how long a sync takes

    # --- anyone --------------------------------------------------------------------------------------------

    def submit(self, entry: Entry) -> None:
        """Put an entry into the inbox. Somebody must pump."""
        self._inbox.append(entry)

    def commit(self, entry: Entry) -> None:
        """Have an entry committed: now, or by the thread that is committing already."""
        self._inbox.append(entry)
        self.pump()

    def pump(self) -> None:
        """Commit until the inbox is empty, unless another thread is already doing so."""
        while self._inbox:
            if not self._leader.acquire(blocking=False):
                return  # the leader looks into the inbox again after it lets go
            try:
                while self._inbox:
                    self._commit_some()
            finally:
                self._leader.release()

    @property
    def pending(self) -> bool:
        """Whether something lies in the inbox, whoever will commit it."""
        return bool(self._inbox)

    def has_mail(self) -> bool:
        """Whether something lies in the inbox that nobody is committing."""
        return bool(self._inbox) and not self._leader.locked()

    def has_time(self) -> bool:
        """Whether entries may leave it to the leader to make them ready.

        Not on a slow disk: many threads wait for that sooner than one.
        """
        return self._sync_s < QUICK_SYNC_S

    def begin_sync(self) -> None:
        """Within `on_written`: what is done from here on is done while the disk is already at work."""
        self._journal.begin_sync()

    def exclusively(self, look: Callable[[], Any]) -> Any:
        """The result of `look` while nothing is being applied: for snapshots and pictures of the state."""
        try:
            with self._leader:
                return look()
        finally:
            self.pump()  # what arrived while the lock was held, also by one who could not look

    def make_durable(self) -> None:
        """For whoever keeps what the state said: all of it is durable when this returns, or an error is raised.

        A batch that failed was folded, perhaps, and never written: then the state knows more than the journal.
        """
        if isinstance(self.failed, HoldfastError):
            raise self.failed
        if self.failed is not None:
            raise HoldfastError("The run has failed; nothing more is kept.") from self.failed
        self._journal.sync()

    def has_news(self) -> bool:
        """Whether another process has recorded something that nobody here has read."""
        return self._journal.has_news()

    def close(self, why: BaseException) -> None:
        """Nothing is recorded from now on; whoever still tries is told why."""
        with self._leader:
            self.failed = self.failed or why
        self.pump()  # whoever submitted something meanwhile waits to be told

    def fail(self, error: BaseException) -> None:
        """Something went wrong outside a commit: nothing more is recorded, and this is what everyone is told."""
        self.failed = self.failed or _told(error)

    # --- inside a batch ------------------------------------------------------------------------------------

    def record(self, event: ev.Event) -> None:
        """Append an event to the open batch and fold it into the state."""
        batch, at = self._batch, self._at
        assert batch is not None, "record outside a batch"
        seq = batch.add(encode_event(event), self._ts)
        fold(self.state, event, seq, at)
        self._recorded.append(Recorded(at, event))

    def _commit_some(self) -> None:
        entries = self._take()
        try:
            if self.failed is not None:
                raise self.failed
            if self._append(entries):
                self.on_written()
                self._sync()
        except BaseException as error:
            self.failed = self.failed or _told(error)
            for entry in entries:
                entry.done(self.failed)
            self._recorded = []
            self.on_durable([])
            return
        recorded, self._recorded = self._recorded, []
        for entry in entries:
            entry.done(None)
        self.on_durable(recorded)

    def _take(self) -> list[Entry]:
        """What is in the inbox, made ready: no more of it than is worth waiting for.

        Those who are in the batch go on together. If storing for all took much longer than the sync that they
        share, they would all be idle, then all at work, then all here at once again.
        """
        entries: list[Entry] = []
        enough_at = clock.monotonic() + self._sync_s * SYNCS_WORTH
        while self._inbox:
            entry = self._inbox.popleft()
            entry.ready()
            entries.append(entry)
            if len(entries) >= BATCH_MIN and clock.monotonic() > enough_at:
                break
        return entries

    def _sync(self) -> None:
        began = clock.monotonic()
        self._journal.sync()
        # One that took long may have waited for the interpreter; many in a row did not.
        self._sync_s = min(clock.monotonic() - began, self._sync_s * 1.5)

    def _append(self, entries: list[Entry]) -> bool:
        """Write what these entries record, in one append; tells whether anybody waits for it to be durable."""
        is_awaited = False
        if not self._lease.is_ours():
            raise LockLostError(
                "The engine lock was replaced or removed: another process may run this project now.",
                fix="See who does with 'holdfast status', then 'holdfast resume'.",
            )
        self._objects.sync()
        batch = self._batch = self._journal.begin(self.position)
        self._at = clock.now()  # one time for the batch: its events became true together
        self._ts = clock.iso(self._at)
        try:
            for line in batch.foreign:
                self._take_in(line)
            self._tell_mended(self._journal.take_notices())
            for entry in entries:
                entry.apply()
                is_awaited = is_awaited or entry.durable
            self.on_batch()
            self._objects.sync()  # what the batch itself stored
        except BaseException:
            batch.abort()
            raise
        finally:
            self._batch = None
        self.position = batch.commit()
        self._has_begun = True
        return is_awaited

    def _tell_mended(self, found: Sequence[str]) -> None:
        """Record what a dead appender left, and the journal cut off; of the first look whoever opened it tells."""
        if found and self._has_begun:
            self.record(ev.StateMended(findings=tuple(f"the journal: {words}" for words in found)))

    def _take_in(self, line: Line) -> None:
        """An event that another process recorded: `approve`, `note`, `retry`."""
        event = decode_event(line.raw)
        at = clock.parse_iso(line.ts)
        fold(self.state, event, line.seq, at)
        self._recorded.append(Recorded(at, event))
        self.on_foreign(event)


def _told(error: BaseException) -> BaseException:
    if isinstance(error, OSError) and not isinstance(error, HoldfastError):
        told = StorageError.from_os(error, "work on")
        told.__cause__ = error
        return told
    return error


def _nothing(*_: Any) -> None:
    return None
