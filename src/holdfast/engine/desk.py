"""The engine's side of a context: what steps say goes into the journal, what they stream to the work tree."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from holdfast import events as ev
from holdfast.artifacts.keeping import LostValueError
from holdfast.artifacts.looks import HALF
from holdfast.artifacts.products import OutputRefusedError
from holdfast.context import Context
from holdfast.engine.commit import Committer
from holdfast.engine.saying import Saying
from holdfast.errors import StorageError
from holdfast.layout import PART_SUFFIX
from holdfast.stores import disk, readable, temporaries
from holdfast.stores.protocols import Objects
from holdfast.stores.tree import WorkTree
from holdfast.values import digest

T = TypeVar("T")

ROOM_TO_PAY = 16 << 20
ROOM_TO_PAY_PART = 16
"""So many bytes, or this part of a small disk, are free when a call is paid for."""


class DeafDesk:
    """For a `check` that is asked outside a run: what it says goes nowhere, what it keeps is not kept."""

    def __init__(self, objects: Objects, tmp: Path) -> None:
        self._objects = objects
        self._tmp = tmp

    def commit(self, *events: ev.Event) -> None:
        """Nothing is recorded."""

    async def commit_async(self, *events: ev.Event) -> None:
        """Nothing is recorded."""

    def say(self, event: ev.Event) -> None:
        """Nothing is recorded."""

    def store(self, data: bytes) -> str:
        return digest(data)

    def fetch(self, ref: str) -> bytes:
        return _fetched(self._objects, ref)

    def read_back(self, load: Callable[[], T]) -> T:
        return load()

    def before_paying(self, task: str) -> None:
        """Nothing would be kept anyway."""

    def begin_stream(self, path: str, task: str) -> None:
        """Nothing is moved."""

    def stream(self, path: str, data: bytes, size: int | None) -> int:
        """Nothing is written."""
        return 0

    def fresh_path(self, name: str) -> Path:
        return temporaries.fresh_output(self._tmp, name)


class LookingDesk(DeafDesk):
    """For a `check` of what was found, asked within a commit: it is booked what it costs, and nothing is kept.

    To wait for a commit there would be to wait for oneself; and what was paid for is about this look alone.
    """

    def __init__(self, objects: Objects, tmp: Path, desk: EngineDesk) -> None:
        super().__init__(objects, tmp)
        self._desk = desk

    def say(self, event: ev.Event) -> None:
        self._desk.say(event)

    def before_paying(self, task: str) -> None:
        self._desk.before_paying(task)


class EngineDesk:
    """See `desk.Desk`. `call_committer` asks a worker thread to pump on behalf of a coroutine."""

    def __init__(
        self,
        committer: Committer,
        objects: Objects,
        tree: WorkTree,
        tmp: Path,
        call_committer: Callable[[], None],
        halt: Callable[[OSError | StorageError], object],
    ) -> None:
        self._committer = committer
        self._objects = objects
        self._tree = tree
        self._tmp = tmp
        self._call_committer = call_committer
        self._halt = halt

    def commit(self, *events: ev.Event) -> None:
        saying = Saying(self._committer, events, durable=True)
        self._committer.commit(saying)
        saying.wait()

    async def commit_async(self, *events: ev.Event) -> None:
        from holdfast.engine.saying_async import AsyncSaying  # asyncio is loaded only where steps use it

        saying = AsyncSaying(self._committer, events)
        self._committer.submit(saying)
        self._call_committer()
        await saying.future

    def say(self, event: ev.Event) -> None:
        self._committer.commit(Saying(self._committer, (event,), durable=False))

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """A disk that fails under a step is no failure of the step: the run stops, whatever the body does."""
        try:
            yield
        except (OSError, StorageError) as error:
            self._halt(error)
            raise

    def store(self, data: bytes) -> str:
        with self._disk():
            return self._objects.put(data)

    def fetch(self, ref: str) -> bytes:
        with self._disk():
            return _fetched(self._objects, ref)

    def read_back(self, load: Callable[[], T]) -> T:
        with self._disk():
            return load()

    def before_paying(self, task: str) -> None:
        with self._disk():
            left, total = disk.room_left(self._tmp.parent)
            wanted = min(ROOM_TO_PAY, total // ROOM_TO_PAY_PART)
            if total and left < wanted:
                raise StorageError(
                    f"{task}: its paid call is not made, for its result might not be kept: "
                    f"only {left:,} of {wanted:,} bytes are left on the disk of {self._tmp.parent}.",
                    fix="What was recorded is safe: make room, then run the same command.",
                )

    def begin_stream(self, path: str, task: str) -> None:
        # A finished task that runs again is judged by its files, not by what an earlier stream may have left.
        with self._disk():
            to = self._tree.back_up(path) if self._tree.exists(path) else ""
        if to:
            self.say(ev.ArtifactSetAside(step_id=task, path=path, to=to, reason=HALF))

    def stream(self, path: str, data: bytes, size: int | None) -> int:
        with self._disk():
            descriptor = self._tree.append_open(path)
            try:
                with readable.naming(path):
                    found = os.fstat(descriptor).st_size
                if size not in (found, None):  # removed and begun anew, cut, or added to
                    raise OutputRefusedError(f"somebody else changed {path} while it grew")
                disk.write_all(descriptor, data, path)
                return found + len(data)
            finally:
                os.close(descriptor)

    def fresh_path(self, name: str) -> Path:
        return temporaries.fresh_output(self._tmp, name.removesuffix(PART_SUFFIX))


def _fetched(objects: Objects, ref: str) -> bytes:
    data = objects.get(ref)
    if data is None:
        raise LostValueError(f"the result {ref[:12]} of a paid call is missing from objects/ or damaged")
    return data


def disk_failed_under(ctx: Context | None, error: BaseException) -> StorageError | None:
    """What stops the run, if a body broke off because the disk could not take what it wrote to `ctx.out`.

    The system names a file where one cannot be opened, and none where one cannot be written to.
    """
    if ctx is None or ctx.given_out is None or type(error) is not OSError or error.errno not in disk.MACHINES:
        return None
    if error.filename is not None and not ctx.made(Path(os.fsdecode(error.filename))):
        return None
    return StorageError.from_os(error, f"write the file of {ctx.task_id}")
