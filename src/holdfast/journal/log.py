"""EventLog: a journal that several threads and processes append to, durable on return.

Appending. Take the append lock; one look tells whether anyone else appended or replaced the file; if so,
read that first, and cut off (into quarantine) what a dead appender left half done; write all lines of the
batch in one write; release. `sync` makes everything written so far durable; callers that arrive while
another syncs share the next one (group commit). With `makes_room`, lines are written over room made before
(see there), and the look is one at the byte behind our last line.

Crash story. A kill may leave a torn last line, which the next appender cuts off. After a failed write or
sync nobody knows what the disk holds, so the log refuses everything from then on: only a new process that
reads it again can tell. A failed fsync is never repeated, because a second one would lie.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from holdfast import clock
from holdfast.errors import CheckpointCorruptionError, StorageError, UsageError, ValueRefusedError
from holdfast.journal.codec import RESERVED, encode_line
from holdfast.journal.repair import cut, repair
from holdfast.journal.room import end_line, is_all_room, is_untouched, room_after
from holdfast.journal.scan import START, Line, Position, scan
from holdfast.pipeline.names import as_given, as_path
from holdfast.stores import asides, atomic, disk, readable
from holdfast.stores.lock import AppendLock
from holdfast.values import encode_json

_APPEND_FLAGS = os.O_RDWR | os.O_CREAT


class EventLog:
    """A journal open for appending and reading; the file and its folder are made when first needed.

    `lock_path`: the lock file appenders share (default: the journal itself). `quarantine`: where cut-off
    bytes go (default: `NAME.quarantine` beside it). `start`: the position the caller has read up to; what
    follows it is handed over by the first `begin`. Without it, only what others append from then on is.
    `makes_room`: for one who appends a lot, and gives the room back in the end.
    """

    _fd = -1

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        lock_path: Path | None = None,
        quarantine: Path | None = None,
        start: Position | None = None,
        makes_room: bool = False,
    ) -> None:
        self.path = as_path(path, "path")
        if not self.path.name:
            raise UsageError(f"path must name a file, not {as_given(path)}.")
        self.position = start or START
        self.notices: list[str] = []  # what was found damaged, and what was done about it
        self._quarantine = quarantine or self.path.with_name(self.path.name + ".quarantine")
        self._lock = AppendLock(lock_path or self.path)
        self._is_of_a_run = lock_path is not None  # else of somebody who uses nothing but this
        self._is_strict = start is not None
        self._is_first_read = True
        self._makes_room = makes_room
        self._size = 0  # of the file, as far as we know; what lies between the last line and that is room
        self._is_doubted = False  # something may have happened to the file that the quick look does not see
        self._name = os.fspath(self.path)
        self._commits = 0
        self._synced = -1  # commits known durable; -1: what was here before us may not be
        self._newest = (0, 0)  # where the last commit's bytes begin, and how many they are
        self._sync_mutex = threading.Lock()
        self._failure = ""

    # -- for everyone ---------------------------------------------------------------------------------

    def append(self, event: Mapping[str, Any]) -> int:
        """Append one event, a JSON object, and give its number. It is durable when this returns."""
        if not isinstance(event, Mapping):
            raise ValueRefusedError(f"An event is a dict, not {type(event).__name__}.", where="event")
        body = _encode(event)
        batch = self.begin()
        try:
            seq = batch.add(body, clock.iso(clock.now()))
        except BaseException:
            batch.abort()
            raise
        batch.commit()
        self.sync()
        return seq

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All events, as dicts with seq, ts and their own fields. Damage is mended first, if it can be."""
        try:
            if not readable.is_there(self.path):
                return
            self._mend()
            found = scan(self.path)
            for line in found:
                yield line.event()
            self.notices += found.damage  # only where mending was not permitted
        except OSError as error:
            raise StorageError.from_os(error, "read the journal") from error

    def __del__(self) -> None:
        self._close_file()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; everything appended is durable already. Using the log opens it again."""
        with self._sync_mutex:
            self._close_file()
        self._lock.close()

    # -- for the engine -------------------------------------------------------------------------------

    def begin(self) -> Batch:
        """Take the append lock and catch up; the batch must be committed or aborted."""
        if self._failure:
            raise self._refusal()
        try:
            if self._fd < 0:
                atomic.make_dirs(self.path.parent, sync=True)
            self._lock.acquire()
        except OSError as error:
            raise StorageError.from_os(error, "open the journal") from error
        try:
            return Batch(self, self._catch_up())
        except OSError as error:
            self._lock.release()
            readable.name(error, self._name)
            raise StorageError.from_os(error, "append to the journal") from error
        except BaseException:
            self._lock.release()
            raise

    def has_news(self) -> bool:
        """Whether others have appended since the last batch: two looks, without the lock. Only a hint."""
        if self._fd < 0:
            return False
        try:
            ours = os.fstat(self._fd)
            is_ours = self._is_ours(ours)
        except OSError:
            self._is_doubted = True  # the next batch meets the same trouble, and tells it
            return False
        if not is_ours:
            self._is_doubted = True
            return os.path.lexists(self._name)
        return not self._is_untouched() and ours.st_size != self.position.offset

    def take_notices(self) -> list[str]:
        """What was found damaged, and what was done about it, since this was asked last."""
        taken, self.notices = self.notices, []
        return taken

    def begin_sync(self) -> None:
        """For one who has something to do before `sync`: let the disk begin with the newest commit."""
        if self._fd >= 0:
            disk.begin_sync(self._fd, *self._newest)

    def sync(self) -> None:
        """Everything committed so far is durable when this returns."""
        goal = self._commits
        with self._sync_mutex:
            if self._failure:
                raise self._refusal()
            if self._synced >= goal or self._fd < 0:
                return
            covered = self._commits
            try:
                disk.sync_data(self._fd, self._name)
            except OSError as error:
                self._failure = str(error)
                raise StorageError.from_os(error, "sync the journal") from error
            self._synced = covered

    def give_room_back(self) -> None:
        """Let the file end with its last line. If we are killed, it ends in room, and that harms nobody.

        Who has appended nothing changes nothing, not even the room that a dead one left.
        """
        if self._fd < 0 or self._failure or not self._commits:
            return
        try:
            with self._lock:
                now = os.fstat(self._fd)
                if self._is_ours(now) and is_all_room(self._fd, self.position.offset, now.st_size):
                    end_line(self._fd, self.position.offset, self._name)
                    disk.truncate(self._fd, self.position.offset, self._name)
                    self._size = self.position.offset
        except OSError:
            pass  # the journal is whole, with room

    # -- inside ---------------------------------------------------------------------------------------

    def _refusal(self) -> StorageError:
        return StorageError(
            f"The journal {self._name} could not be written before: {self._failure}.",
            fix="What was recorded is safe: mend that, then run the same command.",
        )

    def _catch_up(self) -> list[Line]:
        """Lines that others appended since; in the common case none, found by one look."""
        if self._fd < 0:
            return self._open()
        if self._makes_room and not self._is_doubted and is_untouched(self._fd, self.position.offset):
            return []
        self._is_doubted = False
        now = os.fstat(self._fd)
        if not self._is_ours(now):
            return self._take_up()
        self._size = now.st_size
        if now.st_size == self.position.offset:
            return []
        return self._read_on()

    def _take_up(self) -> list[Line]:
        """Go on in another file that stands at the path: a repaired one, or a copy that somebody made.

        If it lacks lines of ours, or there is none, the one that we still have open is kept in quarantine.
        """
        with self._sync_mutex:
            old, self._fd = self._fd, -1
        try:
            if not readable.is_there(self._name):
                raise self._lost("was removed while in use")
            return self._open()
        except CheckpointCorruptionError as error:
            self._failure = error.message
            kept_as = asides.keep_open(old, self.path.name, self._quarantine, label="lost")
            words = f"{error.message} What was written to it until now is kept as {kept_as.name}."
            raise CheckpointCorruptionError(words, fix=error.fix) from None
        except OSError as error:
            self._failure = str(error)  # what was not synced of the old one, nobody can sync any more
            raise
        finally:
            os.close(old)

    def _is_ours(self, status: os.stat_result) -> bool:
        """Whether the file of that status, which we have open, is still the one at the path."""
        try:
            there = os.lstat(self._name)
        except FileNotFoundError:
            return False
        return (there.st_ino, there.st_dev) == (status.st_ino, status.st_dev)

    def _is_untouched(self) -> bool:
        return self._makes_room and is_untouched(self._fd, self.position.offset)

    def _open(self) -> list[Line]:
        self._fd = disk.open_file(self._name, _APPEND_FLAGS)
        try:
            self._synced = -1
            self._size = os.fstat(self._fd).st_size
            if self._size == 0:
                disk.sync_dir(self.path.parent)
            return self._read_on()
        except BaseException:
            self._close_file()
            raise

    def _read_on(self) -> list[Line]:
        """Read from our position to the end and cut off a torn tail; our own lines must still be there."""
        before = self.position
        found = scan(self.path, before)
        lines = [line for line in found if self._wanted(line)]
        if not found.anchored and (self._is_strict or found.position.seq < before.seq):
            raise self._lost(f"does not contain line {before.seq}, which was read before")
        if found.torn:
            kept_as = cut(self._fd, self.path, found.position.offset, self._quarantine)
            self._size = found.position.offset
            self.notices.append(f"{found.tail} at its end were cut off and kept as {kept_as.name}")
        self.notices += found.damage
        self.position = found.position
        self._is_first_read = False
        return lines

    def _lost(self, what: str) -> CheckpointCorruptionError:
        again = "run 'holdfast resume'" if self._is_of_a_run else "go on with a new EventLog"
        return CheckpointCorruptionError(
            f"The journal {self._name} {what}.", fix=f"Stop whoever changes it, then {again}."
        )

    def _wanted(self, line: Line) -> bool:
        """Without `start`, what was there when we came is history; what others append later is news."""
        return self._is_strict or (not self._is_first_read and line.seq > self.position.seq)

    def _mend(self) -> None:
        """Repair what iterating would stumble over; where nothing may be written, reading goes on without."""
        try:
            with self._lock:
                self.notices += repair(self.path, self._quarantine)
        except OSError as error:
            if not isinstance(error, PermissionError) and os.access(self.path.parent, os.W_OK):
                raise StorageError.from_os(error, "mend the journal") from error

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _write(self, data: bytes, seq: int, last_sum: str) -> None:
        before, size = self.position.offset, self._size
        position = Position(seq, last_sum, before + len(data))
        body = b"\n" + data[:-1] if before else data[:-1]  # the newline of a last line is written with the next
        if position.offset > size:
            room = room_after(position.offset) if self._makes_room else 0
            body += b" " * room + b"\n"
            size = position.offset + room
        start = max(0, before - 1)
        try:
            disk.write_at(self._fd, body, start, self._name)
        except BaseException as error:
            self._failure = str(error) or type(error).__name__
            if isinstance(error, OSError):
                raise StorageError.from_os(error, "append to the journal") from error
            raise
        self.position = position
        self._size = size
        self._newest = (start, len(body))
        self._commits += 1


class Batch:
    """Lines that are written together. Holds the append lock from `begin` to `commit` or `abort`."""

    __slots__ = ("_lines", "_log", "_seq", "_sum", "foreign")

    def __init__(self, log: EventLog, foreign: list[Line]) -> None:
        self.foreign = foreign
        self._log = log
        self._lines: list[bytes] = []
        self._seq, self._sum = log.position.seq, log.position.sum

    def add(self, body: bytes, ts: str) -> int:
        """Number and chain the event `body` (a JSON object without envelope); gives its number."""
        seq = self._seq + 1
        line, self._sum = encode_line(seq, ts, body, self._sum)
        self._lines.append(line)
        self._seq = seq
        return seq

    def commit(self) -> None:
        """Write all lines in one write. Durable after the log's `sync`."""
        try:
            if self._lines:
                self._log._write(b"".join(self._lines), self._seq, self._sum)
        finally:
            self._log._lock.release()

    def abort(self) -> None:
        """Write nothing."""
        self._log._lock.release()


def _encode(event: Mapping[str, Any]) -> bytes:
    for name in RESERVED:
        if name in event:
            raise ValueRefusedError(f"event.{name} is a name that the log itself gives.", where=f"event.{name}")
    return encode_json(dict(event), "event")
