"""The stores a project is kept in, as short protocols.

Each has a local implementation, one in memory and a failing one (`holdfast.testing`), and one conformance suite
that all of them pass (tests/stores).

What a store cannot do, it raises as StorageError (ForbiddenError: not permitted; it may be whole all the same).
Paths, byte offsets and errno end inside the implementations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from holdfast.journal.lines import Line


class Position(msgspec.Struct, frozen=True, array_like=True):
    """A place in a journal: after the line `seq`, whose event without its chain has this `hash`.

    So it survives a repair, which chains every line anew. `hint` helps the journal that gave it to find the line
    faster; nobody else reads it, and a wrong one does no harm.
    """

    seq: int
    hash: str
    hint: Any = None


START = Position(0, "")
"""Before the first line."""


class Reading(Protocol):
    """One pass over a journal: iterating yields its good lines; the findings are whole at its end."""

    begun: Position
    """Where it began to read: lines before it were not proved."""

    anchored: bool
    """Whether the line to read on from is there; if not, the pass begins with the first line."""

    damage: list[str]
    """What is wrong before the last good line, in words."""

    missing: list[tuple[int, int]]
    """First and last number of each gap."""

    late: list[Line]
    """Good lines that stand after one with a higher number; they are not yielded."""

    torn: int
    """How many bytes stand after the last line that counts."""

    repeated: int
    """How many of the lines behind it are repeated ones."""

    @property
    def position(self) -> Position:
        """After the last line that was yielded."""

    @property
    def tail(self) -> str:
        """What stands after the last line that counts, in words; empty if nothing does."""

    def __iter__(self) -> Iterator[Line]: ...


class Batch(Protocol):
    """Events appended together or not at all. The append lock is held until `commit` or `abort`."""

    @property
    def foreign(self) -> Sequence[Line]:
        """What stands in the journal after the position that the batch was begun with."""

    def add(self, body: bytes, ts: str) -> int:
        """Number and chain the event `body`, a JSON object; gives its number."""

    def commit(self) -> Position:
        """Append all that was added; gives the position after it. Durable after the journal's `sync`."""

    def abort(self) -> None:
        """Append nothing."""


class Journal(Protocol):
    """An append-only record of events, each chained to the one before it, for any number of appenders at once.

    After a failed `commit` or `sync` nobody knows what is kept, so everything is refused from then on.
    """

    def begin(self, after: Position | None = None) -> Batch:
        """Take the append lock and catch up: a torn tail is cut off and kept, and told in the notices.

        CheckpointCorruptionError if the line that `after` names is not there. None: what stands there is history.
        """

    def read(self, after: Position | None = None) -> Reading:
        """The lines after this position, or all; takes no lock and changes nothing."""

    def last(self) -> Position | None:
        """The position after the last line, found without reading the others; None if no good line is there."""

    def is_there(self) -> bool:
        """Whether there is such a journal, empty or damaged as it may be."""

    def has_begun(self) -> bool:
        """Whether a line was ever written to its end, good or not."""

    def is_whole(self, upto: Position) -> bool:
        """Whether every line up to there proves itself and continues the one before it. Cheaper than to read."""

    def has_news(self) -> bool:
        """Whether others have appended since the last batch. Only a hint, and takes no lock."""

    def sync(self) -> None:
        """Everything committed so far is durable when this returns. Callers share one sync."""

    def begin_sync(self) -> None:
        """A hint that a `sync` follows soon."""

    def repair(self, *, known_seq: int = 0) -> list[str]:
        """Mend it without losing a good line, durably; gives what was found and done, nothing if it was whole.

        `known_seq`: the last number known from elsewhere, a snapshot. No number up to it is given a second time.
        """

    def take_notices(self) -> list[str]:
        """What was found damaged while appending, and what was done about it, since this was asked last."""

    def close(self, *, untouched: bool = False) -> None:
        """Let go of everything that is held open; using the journal opens it again.

        `untouched`: by one who may not write any more.
        """


class Lease(Protocol):
    """The right to run the steps of a project: one process has it at a time, and a dead one loses it."""

    def hold(self, run_id: str) -> None:
        """Take it, or raise LockedError naming the holder within a fraction of a second."""

    def is_ours(self) -> bool:
        """Whether we still hold it: cheap enough to be asked before every append."""

    def release(self) -> None:
        """Give it back; harmless if it is not held."""

    def holder(self) -> dict[str, Any] | None:
        """Who holds it now (host, pid, since, run_id; {} if that is not said), or None. Changes nothing."""


FILE, FOLDER, LINK, OTHER = "file", "folder", "link", "other"


class Found(msgspec.Struct, frozen=True, gc=False):
    """What stands at a name; links are not followed."""

    kind: str
    size: int
    mark: str
    """What changes whenever a file is written to, or another put in its place. It goes on record."""

    changed: int = 0
    """Changes with the mark, and with whatever else is done to it, its name too."""

    @property
    def is_file(self) -> bool:
        return self.kind == FILE


class Staged(msgspec.Struct, frozen=True):
    """A file that is whole and ready to land at `path`."""

    path: str
    handle: str
    sync: bool
    found: Found


class Claimed(msgspec.Struct, frozen=True):
    """What is in a large file that a step wrote."""

    size: int
    sha256: str
    newline_added: bool


class Files(Protocol):
    """The files of one project by relative path, never through a link; those of its own folder like any other.

    What is at a name is a fact: None, a `Found`, or UnreadableError with its `why`. What stands on the way to it
    and is no folder is InTheWayError; what else goes wrong is the machine's, and StorageError. A path that leads
    out of the project is UsageError. What is set aside overwrites nothing.
    """

    root: Path
    """Where consumers read the files that they read themselves."""

    def look(self, path: str) -> Found | None:
        """What is there; None only if nothing is."""

    def names(self, folder: str) -> frozenset[str]:
        """All names in a folder ("": the project's); none if there is no such folder."""

    def read(self, path: str, limit: int | None = None) -> bytes:
        """The bytes of a file; UnreadableError if they are not to be had, or more than `limit`."""

    def tail(self, path: str, size: int) -> bytes:
        """The last `size` bytes of a file, or all."""

    def blocks(self, path: str | Path) -> Iterator[bytes]:
        """The bytes of a file one piece after the other; it may be of any size. A `Path` is a fresh one."""

    def fresh_path(self, name: str = "") -> Path:
        """Where a large file can be written, ending in `name`, on the project's disk; nothing is there yet."""

    def claim(self, path: Path, *, ends_line: bool = False) -> Claimed | None:
        """Take over what was written to a fresh path; None if no regular file is there.

        It shares its bytes with no other name from then on; with `ends_line`, a newline is put to its end.
        """

    def stage(self, path: str, body: bytes | Path, tail: bytes = b"", *, sync: bool) -> Staged:
        """Have a file of these bytes ready to land; with `sync`, they are durable. A `Path` is a claimed file."""

    def land(self, staged: Staged) -> None:
        """Give a staged file its place, replacing at once what is there. Durable if it was staged with `sync`."""

    def discard(self, what: Staged | Path) -> None:
        """Remove what does not land, staged or at a fresh path, if it is still there."""

    def append(self, path: str, data: bytes, *, size: int | None = None) -> int | None:
        """Append to a file, made if missing; gives its new size. None, and nothing done, if it has not `size`."""

    def sync(self, path: str) -> None:
        """A file that somebody else wrote is durable, with its name, when this returns."""

    def copy_aside(self, path: str, *, label: str = "") -> str:
        """Make a durable copy beside the file, or with a label in quarantine; gives where it is."""

    def set_aside(self, path: str, *, beside: bool = False) -> str:
        """Move whatever is there out of the way, durably; gives where it is.

        Into quarantine, as long as that is on the same device; `beside` its old place.
        """

    def keep(self, name: str, body: bytes | Path) -> str:
        """Keep in quarantine what was refused, and never had this name; gives where it is."""

    def rename(self, path: str, new: str, *, sync: bool = False) -> None:
        """Give a file another name, replacing what has it."""

    def remove(self, path: str, *, sync: bool = False) -> None:
        """Delete a file; one that is not there is fine."""

    def require_room(self, path: str) -> None:
        """StorageError if no file can be made there: whoever asks has not paid for it yet."""

    def room(self) -> tuple[int, int]:
        """Bytes that may still be written, and bytes that there are in all (0: nobody knows)."""

    def close(self) -> None:
        """Let go of what is held open; using the files opens it again."""


class Objects(Protocol):
    """Contents by their SHA-256, as one run sees them: found whole, or not at all. For any number of writers.

    After a failed write or sync nobody knows what is kept, so nothing more is taken.
    """

    damage: list[str]
    """What was found damaged, and what was done about it, in words."""

    def put(self, data: bytes, sha256: str | None = None) -> str:
        """Keep `data`; gives its hash (pass it if you have it). Durable after the next `sync`."""

    def put_blocks(self, blocks: Iterable[bytes], sha256: str = "") -> tuple[str, int] | None:
        """Keep what need not be in memory at once: its hash and size. None, and nothing kept, if not `sha256`."""

    def get(self, sha: str) -> bytes | None:
        """The object, hashed; None if it is nowhere whole."""

    def has(self, sha: str) -> bool:
        """Whether an object of this name is there; only `get` and `is_whole` prove it."""

    def is_whole(self, sha: str) -> bool:
        """Whether the object is somewhere, hashed in full; a large one is not held in memory."""

    def keeps(self, sha: str, *, prove: bool = False) -> bool:
        """Whether this run has it, whoever else does: theirs may be dropped. `prove` hashes a large one."""

    def copy_to(self, sha: str, dest: Path) -> bool:
        """Write the object to the new file `dest`; False, and no file, if it is nowhere whole."""

    def prove(self) -> Iterator[tuple[str, bool]]:
        """The hash of each small object of this run, and whether its bytes are what it says. Changes nothing."""

    def mend(self, *, prove: bool = True) -> None:
        """Put what is damaged of this run's out of the way; what is whole stays. `prove` hashes every object."""

    def sync(self) -> None:
        """Everything put so far is durable when this returns; costs nothing if nothing was."""

    def drop(self, run_id: str) -> None:
        """Remove all objects of a run; harmless if there are none."""

    def close(self) -> None:
        """Let go of what is held open. What was put and never synced may be dropped; nothing more is taken."""
