"""Stores in memory, whole and small, that lose what was not synced when told to `crash()`; and failing ones."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast import clock
from holdfast.errors import CheckpointCorruptionError, LockedError, StorageError
from holdfast.journal.lines import Line, encode_line, hash_of
from holdfast.journal.read import End, Pread, Scan, is_whole, last_line
from holdfast.journal.repair import examine, tell, written_anew
from holdfast.stores.protocols import START, Batch, Journal, Lease, Position, Reading

NEVER = 0


class MemoryFile:
    """What all appenders of one journal in memory share."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.synced = 0
        self.lock = threading.Lock()
        self.cut_off: list[bytes] = []  # what repairs and appenders took away

    def pread(self, length: int, offset: int) -> bytes:
        return bytes(self.content[offset : offset + length])

    def cut(self, offset: int) -> None:
        self.cut_off.append(bytes(self.content[offset:]))
        del self.content[offset:]
        self.synced = min(self.synced, offset)


class MemoryScan(Scan):
    """One pass over a journal in memory."""

    def __init__(self, pread: Pread, after: Position | None) -> None:
        super().__init__(after)
        self._pread = pread

    def __iter__(self) -> Iterator[Line]:
        return self.lines(self._pread)


class MemoryJournal:
    """See `Journal`. `another()` is one more appender of the same journal."""

    def __init__(self, file: MemoryFile | None = None) -> None:
        self.file = file or MemoryFile()
        self._position: Position | None = None
        self._notices: list[str] = []

    def another(self) -> MemoryJournal:
        return MemoryJournal(self.file)

    def crash(self) -> None:
        """Lose what was not synced; whoever held the lock is dead."""
        del self.file.content[self.file.synced :]
        self.file.lock = threading.Lock()

    def begin(self, after: Position | None = None) -> Batch:
        self.file.lock.acquire()
        try:
            found = self.read(after or self._position)
            foreign = list(found)
            if after is not None and not found.anchored:
                raise CheckpointCorruptionError(f"The journal does not contain line {after.seq}.")
            if found.torn:
                self.file.cut(found.end.offset)
                self._notices.append(f"{found.tail} at its end were cut off")
            self._notices += found.damage
            self._position = found.position
        except BaseException:
            self.file.lock.release()
            raise
        return MemoryBatch(self, foreign if after is not None else [], found.end)

    def append(self, data: bytes, last: bytes, end: End) -> Position:
        """For a batch: `data`, of which `last` is the last line."""
        self.file.content += data
        self._position = Position(end.seq, hash_of(last), end.offset)
        return self._position

    def read(self, after: Position | None = None) -> MemoryScan:
        return MemoryScan(self.file.pread, after)

    def last(self) -> Position | None:
        line = last_line(self.file.pread, len(self.file.content))
        return line.position if line is not None else None

    def is_there(self) -> bool:
        return bool(self.file.content)

    def has_begun(self) -> bool:
        return b"\n" in self.file.content

    def is_whole(self, upto: Position) -> bool:
        return is_whole(self.file.pread, upto)

    def has_news(self) -> bool:
        known = self._position
        return known is not None and len(self.file.content) != (known.hint or 0)

    def sync(self) -> None:
        self.file.synced = len(self.file.content)

    def begin_sync(self) -> None:
        """There is nothing to begin."""

    def repair(self, *, known_seq: int = 0) -> list[str]:
        with self.file.lock:
            found = self.read()
            last_seq = examine(found, known_seq)
            if found.damage:
                kept_as = f"copy {len(self.file.cut_off) + 1}"
                lines = b"".join(written_anew(found, self.read(), last_seq, kept_as))
                self.file.cut(0)
                self.file.content += lines
                self.sync()
                return tell(found, kept_as)
            if found.torn:
                self.file.cut(found.end.offset)
                return [f"{found.tail} at its end were cut off"]
            return []

    def take_notices(self) -> list[str]:
        taken, self._notices = self._notices, []
        return taken

    def close(self, *, untouched: bool = False) -> None:
        """There is nothing to close."""


class MemoryBatch:
    """See `Batch`."""

    def __init__(self, journal: MemoryJournal, foreign: Sequence[Line], end: End) -> None:
        self.foreign = foreign
        self._journal = journal
        self._end = end
        self._lines: list[bytes] = []

    def add(self, body: bytes, ts: str) -> int:
        end = self._end
        line, sum_ = encode_line(end.seq + 1, ts, body, end.sum)
        self._end = End(end.seq + 1, sum_, end.offset + len(line))
        self._lines.append(line)
        return self._end.seq

    def commit(self) -> Position:
        journal = self._journal
        if self._lines:
            journal.append(b"".join(self._lines), self._lines[-1], self._end)
        journal.file.lock.release()
        return journal._position or START

    def abort(self) -> None:
        self._journal.file.lock.release()


class MemoryLease:
    """See `Lease`. `another()` is one more process that wants the same."""

    def __init__(self, shared: list[MemoryLease] | None = None) -> None:
        self._holders = shared if shared is not None else []  # who holds it, if anybody does
        self._run_id = ""

    def another(self) -> MemoryLease:
        return MemoryLease(self._holders)

    def hold(self, run_id: str) -> None:
        held_by = self.holder()
        if held_by is not None:
            raise LockedError(f"Run {held_by['run_id']} holds this project.", fix="Wait for it.")
        self._run_id = run_id
        self._holders.append(self)

    def is_ours(self) -> bool:
        return self._holders == [self]

    def release(self) -> None:
        if self.is_ours():
            self._holders.clear()

    def holder(self) -> dict[str, Any] | None:
        if not self._holders:
            return None
        since = clock.iso(clock.now())
        return {"host": "memory", "pid": os.getpid(), "since": since, "run_id": self._holders[0]._run_id}

    def crash(self) -> None:
        """Whoever holds it dies, or it is taken away."""
        self._holders.clear()


class _Countdown:
    """Raises StorageError at the operation of that number, and with `for_good` at every one after it."""

    def __init__(self, at: int, errno_: int, *, for_good: bool) -> None:
        self.operations = 0
        self._at, self._errno, self._for_good = at, errno_, for_good

    def count(self, doing: str) -> None:
        self.operations += 1
        if self.operations == self._at or (self._for_good and 0 < self._at < self.operations):
            raise StorageError.from_os(OSError(self._errno, os.strerror(self._errno)), doing)


class FailingJournal:
    """A journal that answers its `at`-th operation with an errno, and with `for_good` all after it (NEVER: none).

    `keeps`: whether a commit that fails has been kept all the same, which nobody can know.
    """

    def __init__(
        self, inner: Journal, at: int, *, error: int = errno.EIO, for_good: bool = True, keeps: bool = False
    ) -> None:
        self.inner = inner
        self._countdown = _Countdown(at, error, for_good=for_good)
        self._keeps = keeps
        self._failure: StorageError | None = None

    @property
    def operations(self) -> int:
        """How many there were."""
        return self._countdown.operations

    def begin(self, after: Position | None = None) -> Batch:
        self._refuse()
        self._countdown.count("open the journal")
        return _FailingBatch(self, self.inner.begin(after))

    def read(self, after: Position | None = None) -> Reading:
        self._countdown.count("read")
        return self.inner.read(after)

    def last(self) -> Position | None:
        self._countdown.count("read")
        return self.inner.last()

    def is_there(self) -> bool:
        self._countdown.count("read")
        return self.inner.is_there()

    def has_begun(self) -> bool:
        return self.inner.has_begun()

    def is_whole(self, upto: Position) -> bool:
        self._countdown.count("read")
        return self.inner.is_whole(upto)

    def has_news(self) -> bool:
        return self.inner.has_news()

    def sync(self) -> None:
        self._refuse()
        self.fatally("sync the journal")
        self.inner.sync()

    def begin_sync(self) -> None:
        self.inner.begin_sync()

    def repair(self, *, known_seq: int = 0) -> list[str]:
        self._countdown.count("mend the journal")
        return self.inner.repair(known_seq=known_seq)

    def take_notices(self) -> list[str]:
        return self.inner.take_notices()

    def close(self, *, untouched: bool = False) -> None:
        self.inner.close(untouched=untouched)

    def fatally(self, doing: str) -> None:
        """Count an operation after whose failure nothing more is recorded."""
        try:
            self._countdown.count(doing)
        except StorageError as error:
            self._failure = error
            raise

    def commit(self, batch: Batch) -> Position:
        """For a batch."""
        try:
            self.fatally("append to the journal")
        except StorageError:
            if self._keeps:
                batch.commit()
            else:
                batch.abort()
            raise
        return batch.commit()

    def _refuse(self) -> None:
        if self._failure is not None:
            raise StorageError(f"The journal could not be written before: {self._failure}")


class _FailingBatch:
    def __init__(self, journal: FailingJournal, inner: Batch) -> None:
        self.foreign = inner.foreign
        self._journal, self._inner = journal, inner
        self.add = inner.add
        self.abort = inner.abort

    def commit(self) -> Position:
        return self._journal.commit(self._inner)


class FailingLease:
    """A lease that answers its `at`-th operation with an errno, and with `for_good` all after it (NEVER: none)."""

    def __init__(self, inner: Lease, at: int, *, error: int = errno.EIO, for_good: bool = True) -> None:
        self.inner = inner
        self._countdown = _Countdown(at, error, for_good=for_good)

    def hold(self, run_id: str) -> None:
        self._countdown.count("take the lock")
        self.inner.hold(run_id)

    def is_ours(self) -> bool:
        self._countdown.count("look at the lock")
        return self.inner.is_ours()

    def release(self) -> None:
        self.inner.release()

    def holder(self) -> dict[str, Any] | None:
        self._countdown.count("look at the lock")
        return self.inner.holder()
