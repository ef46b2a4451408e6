"""The journal in a file: several threads and processes append to it.

Appending. Take the append lock; one look tells whether anyone else appended or replaced the file; if so,
read that first, and cut off (into quarantine) what a dead appender left half done; write all lines of the
batch in one write; release. `sync` makes everything written so far durable; callers that arrive while
another syncs share the next one (group commit). With `preallocates`, lines are written over room made before
(see there), and the look is one at the byte behind our last line.

Crash story. A kill may leave a torn last line, which the next appender cuts off. After a failed write or
sync nobody knows what the disk holds, so the journal refuses everything from then on: only a new process that
reads it again can tell. A failed fsync is never repeated, because a second one would lie.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from functools import partial
from pathlib import Path

from holdfast.errors import CheckpointCorruptionError, ForbiddenError, StorageError
from holdfast.journal.lines import Line, encode_line, hash_of
from holdfast.journal.preallocation import end_line, is_all_room, is_untouched, room_after
from holdfast.journal.read import NOWHERE, End, FileScan, is_whole, last_line, scan, telling
from holdfast.journal.repair import cut, repair
from holdfast.stores import asides, atomic, disk, readable
from holdfast.stores.lock import AppendLock
from holdfast.stores.protocols import START, Position

_APPEND_FLAGS = os.O_RDWR | os.O_CREAT
_NOT_PERMITTED = (errno.EACCES, errno.EPERM, errno.EROFS)
_BEGINNING = 1 << 20  # bytes that hold a first line, if there is one


class LocalJournal:
    """See `Journal`. The file and its folder are made when first needed.

    `lock_path`: the lock file appenders share (default: the journal itself). `quarantine`: where cut-off
    bytes go (default: `NAME.quarantine` beside it). `preallocates`: for one who appends a lot, and gives the
    room back when it closes.
    """

    _fd = -1

    def __init__(
        self,
        path: Path,
        *,
        lock_path: Path | None = None,
        quarantine: Path | None = None,
        preallocates: bool = False,
    ) -> None:
        self.path = path
        self._notices: list[str] = []
        self._quarantine = quarantine or path.with_name(path.name + ".quarantine")
        self._lock = AppendLock(lock_path or path)
        self._is_of_a_run = lock_path is not None  # else of somebody who uses nothing but this
        self._preallocates = preallocates
        self._position: Position | None = None  # after the last line that we know; None: nothing was read yet
        self._end = NOWHERE  # the same place in the file
        self._size = 0  # of the file, as far as we know; what lies between the last line and that is room
        self._is_doubted = False  # something may have happened to the file that the quick look does not see
        self._name = os.fspath(path)
        self._commits = 0
        self._synced = -1  # commits known durable; -1: what was here before us may not be
        self._newest = (0, 0)  # where the last commit's bytes begin, and how many they are
        self._sync_mutex = threading.Lock()
        self._failure = ""

    # -- reading --------------------------------------------------------------------------------------

    def read(self, after: Position | None = None) -> FileScan:
        """Every good line after `after`, read while iterating."""
        return scan(self.path, after)

    def last(self) -> Position | None:
        """Found from the end of the file."""
        with telling(self.path):
            try:
                with readable.opened(self.path) as fd:
                    line = last_line(partial(os.pread, fd), os.fstat(fd).st_size)
            except FileNotFoundError:
                return None
        return line.position if line is not None else None

    def is_there(self) -> bool:
        """Whatever it is that stands there."""
        with telling(self.path):
            return readable.is_there(self.path)

    def has_begun(self) -> bool:
        """A process killed before the end of its first line leaves a file, but no record."""
        try:
            with readable.opened(self.path) as fd:
                beginning = os.read(fd, _BEGINNING)
        except FileNotFoundError:
            return False
        except OSError:
            return True  # cannot read is not absent
        return b"\n" in beginning or len(beginning) == _BEGINNING

    def is_whole(self, upto: Position) -> bool:
        """Sums alone are compared."""
        if not upto.seq:
            return True
        with telling(self.path), readable.opened(self.path) as fd:
            return is_whole(partial(os.pread, fd), upto)

    # -- appending ------------------------------------------------------------------------------------

    def begin(self, after: Position | None = None) -> LocalBatch:
        """Take the append lock and catch up; the batch must be committed or aborted."""
        if self._failure:
            raise self._refusal()
        try:
            if self._fd < 0:
                atomic.make_dirs(self.path.parent, sync=True)
            self._lock.acquire()
        except OSError as error:
            raise _told(error, "open the journal") from error
        try:
            return LocalBatch(self, self._catch_up(after))
        except OSError as error:
            self._lock.release()
            readable.name(error, self._name)
            raise _told(error, "append to the journal") from error
        except BaseException:
            self._lock.release()
            raise

    def has_news(self) -> bool:
        """Two looks, without the lock."""
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
        return not self._is_untouched() and ours.st_size != self._end.offset

    def take_notices(self) -> list[str]:
        """What was found damaged, and what was done about it, since this was asked last."""
        taken, self._notices = self._notices, []
        return taken

    def begin_sync(self) -> None:
        """Let the disk begin with the newest commit."""
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

    def repair(self, *, known_seq: int = 0) -> list[str]:
        """Under the append lock."""
        try:
            with self._lock:
                return repair(self.path, self._quarantine, known_seq=known_seq)
        except OSError as error:
            raise _told(error, "mend the journal") from error

    def close(self, *, untouched: bool = False) -> None:
        """Give the room back and close the files; using the journal opens them again."""
        if not untouched:
            self._give_room_back()
        with self._sync_mutex:
            self._close_file()
        self._lock.close()

    def __del__(self) -> None:
        self._close_file()

    # -- inside ---------------------------------------------------------------------------------------

    def _give_room_back(self) -> None:
        """Let the file end with its last line. If we are killed, it ends in room, and that harms nobody.

        Who has appended nothing changes nothing, not even the room that a dead one left.
        """
        if self._fd < 0 or self._failure or not self._commits or not self._preallocates:
            return
        offset = self._end.offset
        try:
            with self._lock:
                now = os.fstat(self._fd)
                if self._is_ours(now) and is_all_room(self._fd, offset, now.st_size):
                    end_line(self._fd, offset, self._name)
                    disk.truncate(self._fd, offset, self._name)
                    self._size = offset
        except (OSError, StorageError):
            pass  # the journal is whole, with room

    def _refusal(self) -> StorageError:
        return StorageError(
            f"The journal {self._name} could not be written before: {self._failure}.",
            fix="What was recorded is safe: mend that, then run the same command.",
        )

    def _catch_up(self, after: Position | None) -> list[Line]:
        """Bring our end to that of the journal; gives the lines after `after`.

        In the common case, none: that is found by one look.
        """
        known = self._position if self._position is not None else after or START
        if self._fd < 0:
            return self._open(known, after)
        if self._is_untouched() and not self._is_doubted:
            return self._since(known, after)
        self._is_doubted = False
        now = os.fstat(self._fd)
        if not self._is_ours(now):
            return self._take_up(known, after)
        self._size = now.st_size
        if now.st_size == self._end.offset:
            return self._since(known, after)
        return self._read_on(known, after)

    def _since(self, known: Position, after: Position | None) -> list[Line]:
        """The lines after `after`, where nothing is new after `known`."""
        if after is None or after == known:
            return []
        found = self.read(after)
        lines = list(found)
        if not found.anchored:
            raise self._lost(_lacks(after))
        return lines

    def _take_up(self, known: Position, after: Position | None) -> list[Line]:
        """Go on in another file that stands at the path: a repaired one, or a copy that somebody made.

        If it lacks lines of ours, or there is none, the one that we still have open is kept in quarantine.
        """
        with self._sync_mutex:
            old, self._fd = self._fd, -1
        try:
            if not readable.is_there(self._name):
                raise self._lost("was removed while in use")
            return self._open(known, after)
        except CheckpointCorruptionError as error:
            self._failure = error.message
            kept_as = asides.keep_open(old, self.path.name, self._quarantine, label="lost")
            words = f"{error.message} What was written to it until now is kept as {kept_as.name}."
            raise CheckpointCorruptionError(words, fix=error.fix) from None
        except (OSError, StorageError) as error:
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
        return self._preallocates and is_untouched(self._fd, self._end.offset)

    def _open(self, known: Position, after: Position | None) -> list[Line]:
        self._fd = disk.open_file(self._name, _APPEND_FLAGS)
        try:
            self._synced = -1
            self._size = os.fstat(self._fd).st_size
            if self._size == 0:
                disk.sync_dir(self.path.parent)
            return self._read_on(known, after)
        except BaseException:
            self._close_file()
            raise

    def _read_on(self, known: Position, after: Position | None) -> list[Line]:
        """Read from `known` to the end and cut off a torn tail; the lines known must still be there."""
        found = scan(self.path, known)
        if after == known:
            lines = list(found)
        else:
            lines = []
            deque(found, maxlen=0)
        if not found.anchored and (after is not None or found.end.seq < known.seq):
            raise self._lost(_lacks(known))
        if found.torn:
            kept_as = cut(self._fd, self.path, found.end.offset, self._quarantine)
            self._size = found.end.offset
            self._notices.append(f"{found.tail} at its end were cut off and kept as {kept_as.name}")
        self._notices += found.damage
        self._position, self._end = found.position, found.end
        return lines if after == known else self._since(self._position, after)

    def _lost(self, what: str) -> CheckpointCorruptionError:
        again = "run 'holdfast resume'" if self._is_of_a_run else "go on with a new EventLog"
        return CheckpointCorruptionError(
            f"The journal {self._name} {what}.", fix=f"Stop whoever changes it, then {again}."
        )

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _write(self, data: bytes, last: bytes, end: End) -> None:
        """Append `data`, whose last line is `last`; that ends at `end`."""
        before, size = self._end.offset, self._size
        body = b"\n" + data[:-1] if before else data[:-1]  # the newline of a last line is written with the next
        if end.offset > size:
            room = room_after(end.offset) if self._preallocates else 0
            body += b" " * room + b"\n"
            size = end.offset + room
        start = max(0, before - 1)
        try:
            disk.write_at(self._fd, body, start, self._name)
        except BaseException as error:
            self._failure = str(error) or type(error).__name__
            if isinstance(error, OSError):
                raise StorageError.from_os(error, "append to the journal") from error
            raise
        self._position = Position(end.seq, hash_of(last), end.offset)
        self._end = end
        self._size = size
        self._newest = (start, len(body))
        self._commits += 1


class LocalBatch:
    """See `Batch`: all lines in one write."""

    __slots__ = ("_journal", "_lines", "_seq", "_sum", "foreign")

    def __init__(self, journal: LocalJournal, foreign: list[Line]) -> None:
        self.foreign = foreign
        self._journal = journal
        self._lines: list[bytes] = []
        self._seq, self._sum = journal._end.seq, journal._end.sum

    def add(self, body: bytes, ts: str) -> int:
        """Number and chain the event; gives its number."""
        seq = self._seq + 1
        line, self._sum = encode_line(seq, ts, body, self._sum)
        self._lines.append(line)
        self._seq = seq
        return seq

    def commit(self) -> Position:
        """Write all lines in one write. Durable after the journal's `sync`."""
        journal = self._journal
        try:
            if self._lines:
                data = b"".join(self._lines)
                end = End(self._seq, self._sum, journal._end.offset + len(data))
                journal._write(data, self._lines[-1], end)
            return journal._position or START
        finally:
            journal._lock.release()

    def abort(self) -> None:
        """Write nothing."""
        self._journal._lock.release()


def _lacks(position: Position) -> str:
    return f"does not contain line {position.seq}, which was read before"


def _told(error: OSError, doing: str) -> StorageError:
    told = StorageError.from_os(error, doing)
    return ForbiddenError(told.message, fix=told.fix) if error.errno in _NOT_PERMITTED else told
