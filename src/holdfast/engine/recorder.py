"""Where the hosts of a run record and keep what steps say. `check`s that are asked outside a body have others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from holdfast import events as ev
from holdfast.artifacts.keeping import LostValueError
from holdfast.artifacts.looks import HALF
from holdfast.artifacts.products import OutputRefusedError
from holdfast.engine.commit import Committer, Entry
from holdfast.errors import StorageError
from holdfast.host import Receipt
from holdfast.layout import PART_SUFFIX
from holdfast.stores.protocols import Files, Objects
from holdfast.values import digest

ROOM_TO_PAY = 16 << 20
ROOM_TO_PAY_PART = 16
"""So many bytes, or this part of a small disk, are free when a call is paid for."""


class Recorder(Protocol):
    """What the hosts of a run need of it."""

    def record(self, event: ev.Event) -> Receipt:
        """Record this durably; the receipt tells when."""

    def say(self, event: ev.Event) -> None:
        """Record this soon; it survives the process, and is synced with the next commit."""

    def store(self, data: bytes) -> str:
        """Keep the result of a paid call by hash."""

    def fetch(self, ref: str) -> bytes:
        """Bytes kept by hash."""

    def before_paying(self, task: str) -> None:
        """Refuse if the result of a call could not be kept."""

    def begin_stream(self, path: str, task: str) -> None:
        """Set aside what stands where a file of the work tree is going to grow."""

    def stream(self, path: str, data: bytes, size: int | None) -> int:
        """Append to a growing file of the work tree that has `size` bytes (None: any); gives its new size."""

    def fresh_path(self, name: str) -> Path:
        """A path for a large file, on the project's disk, not existing yet."""

    def halt(self, error: OSError | StorageError) -> None:
        """The machine failed under a step: that is no failure of the step, and the run stops."""


class NoRecorder:
    """For a `check` that is asked outside a run: what it says goes nowhere, what it keeps is not kept."""

    def __init__(self, objects: Objects, tree: Files) -> None:
        self._objects = objects
        self._tree = tree

    def record(self, event: ev.Event) -> Receipt:
        receipt = Receipt()
        receipt.over(None)
        return receipt

    def say(self, event: ev.Event) -> None:
        """Nothing is recorded."""

    def store(self, data: bytes) -> str:
        return digest(data)

    def fetch(self, ref: str) -> bytes:
        data = self._objects.get(ref)
        if data is None:
            raise LostValueError(f"the result {ref[:12]} of a paid call is missing from objects/ or damaged")
        return data

    def before_paying(self, task: str) -> None:
        """Nothing would be kept anyway."""

    def begin_stream(self, path: str, task: str) -> None:
        """Nothing is moved."""

    def stream(self, path: str, data: bytes, size: int | None) -> int:
        """Nothing is written."""
        return 0

    def fresh_path(self, name: str) -> Path:
        return self._tree.fresh_path(name.removesuffix(PART_SUFFIX))

    def halt(self, error: OSError | StorageError) -> None:
        """Nothing goes on that could be stopped."""


class LookingRecorder(NoRecorder):
    """For a `check` of what was found, asked within a commit: what it costs is booked, and nothing is kept.

    To wait for a commit there would be to wait for oneself; and what was paid for is about this look alone.
    """

    def __init__(self, objects: Objects, tree: Files, run: RunRecorder) -> None:
        super().__init__(objects, tree)
        self._run = run

    def say(self, event: ev.Event) -> None:
        self._run.say(event)

    def before_paying(self, task: str) -> None:
        self._run.before_paying(task)

    def halt(self, error: OSError | StorageError) -> None:
        self._run.halt(error)


class RunRecorder(NoRecorder):
    """Records in the journal, keeps in objects/, streams into the work tree.

    `call_committer` asks another thread to commit, for a coroutine that waits.
    """

    def __init__(
        self,
        committer: Committer,
        objects: Objects,
        tree: Files,
        call_committer: Callable[[], None],
        halt: Callable[[OSError | StorageError], object],
    ) -> None:
        super().__init__(objects, tree)
        self._committer = committer
        self._call_committer = call_committer
        self._halt = halt

    def record(self, event: ev.Event) -> Receipt:
        receipt = Receipt(self._committer.pump, self._call_committer)
        self._committer.submit(Saying(self._committer, (event,), durable=True, receipt=receipt))
        return receipt

    def say(self, event: ev.Event) -> None:
        self._committer.commit(Saying(self._committer, (event,), durable=False))

    def store(self, data: bytes) -> str:
        return self._objects.put(data)

    def before_paying(self, task: str) -> None:
        left, total = self._tree.room()
        wanted = min(ROOM_TO_PAY, total // ROOM_TO_PAY_PART)
        if total and left < wanted:
            raise StorageError(
                f"{task}: its paid call is not made, for its result might not be kept: "
                f"only {left:,} of {wanted:,} bytes are left on the disk of {self._tree.root}.",
                fix="What was recorded is safe: make room, then run the same command.",
            )

    def begin_stream(self, path: str, task: str) -> None:
        # A finished task that runs again is judged by its files, not by what an earlier stream may have left.
        to = self._tree.set_aside(path, beside=True) if self._tree.look(path) is not None else ""
        if to:
            self.say(ev.ArtifactSetAside(step_id=task, path=path, to=to, reason=HALF))

    def stream(self, path: str, data: bytes, size: int | None) -> int:
        grown = self._tree.append(path, data, size=size)
        if grown is None:  # removed and begun anew, cut, or added to
            raise OutputRefusedError(f"somebody else changed {path} while it grew")
        return grown

    def halt(self, error: OSError | StorageError) -> None:
        self._halt(error)


class Saying(Entry):
    """Events to record as they are."""

    def __init__(
        self,
        committer: Committer,
        events: tuple[ev.Event, ...],
        *,
        durable: bool,
        receipt: Receipt | None = None,
    ) -> None:
        self.durable = durable
        self._committer = committer
        self._events = events
        self._receipt = receipt

    def apply(self) -> None:
        for event in self._events:
            self._committer.record(event)

    def done(self, error: BaseException | None) -> None:
        if self._receipt is not None:
            self._receipt.over(error)
