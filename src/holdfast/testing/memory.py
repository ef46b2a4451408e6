"""A desk that keeps in memory what a step hands in, and the context that sits at it."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast import events as ev
from holdfast.context import Context
from holdfast.layout import PART_SUFFIX
from holdfast.state import OnceRecord
from holdfast.values import encode_json

T = TypeVar("T")


class MemoryDesk:
    """See `holdfast.desk.Desk`. Everything a step says is in `events`, what it streams in `written`."""

    def __init__(self) -> None:
        self.events: list[ev.Event] = []
        self.written = ""
        self._kept: dict[str, bytes] = {}
        self._folder: Path | None = None

    def commit(self, *events: ev.Event) -> None:
        self.events += events

    async def commit_async(self, *events: ev.Event) -> None:
        self.events += events

    def say(self, event: ev.Event) -> None:
        self.events.append(event)

    def store(self, data: bytes) -> str:
        ref = hashlib.sha256(data).hexdigest()
        self._kept[ref] = data
        return ref

    def fetch(self, ref: str) -> bytes:
        return self._kept[ref]

    def read_back(self, load: Callable[[], T]) -> T:
        return load()

    def before_paying(self, task: str) -> None:
        """There is always room."""

    def begin_stream(self, path: str, task: str) -> None:
        """Nothing stands in the way."""

    def stream(self, path: str, data: bytes, size: int | None) -> int:
        self.written += data.decode()
        return (size or 0) + len(data)

    def fresh_path(self, name: str) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="holdfast-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder / name.removesuffix(PART_SUFFIX)


class MemoryContext(Context):
    """A Context whose desk is within reach of the test."""

    desk: MemoryDesk

    @property
    def events(self) -> list[ev.Event]:
        """What the step has said so far, in order."""
        return self.desk.events

    @property
    def written(self) -> str:
        """What the step has streamed with `write`."""
        return self.desk.written


def context(
    *,
    task_id: str = "step",
    run_id: str = "test",
    item: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    dir: Path | str = ".",
    attempt: int = 1,
    round: int = 0,
    feedback: Sequence[str] = (),
    previous: Any = None,
    partial: str | None = None,
    once: Mapping[str, Any] | None = None,
) -> MemoryContext:
    """A Context in memory, to call a step directly in a test.

        ctx = holdfast.testing.context(item={"id": "ch01"}, feedback=["name your sources"])
        assert "sources" in draft(ctx, chapter="ch01")
        assert [e.cost_usd for e in ctx.events if isinstance(e, UsageRecorded)] == [0.02]

    `ctx.events` lists what the step reported, `ctx.written` what it streamed; `ctx.out` is a path in a temporary
    folder that goes away with the context. `once={"key": result}` are paid calls of an earlier attempt: they are
    replayed, all others are made.
    """
    desk = MemoryDesk()
    made = MemoryContext(
        desk,
        run_id=run_id,
        task_id=task_id,
        item=item,
        params=params or {},
        directory=Path(dir),
        attempt=attempt,
        round=round,
        feedback=feedback,
        previous=(lambda: previous),
        partial=partial,
        once={key: _recorded(desk, key, result) for key, result in (once or {}).items()},
        part_path=f"out{PART_SUFFIX}",
    )
    made.desk = desk
    return made


def _recorded(desk: MemoryDesk, key: str, result: Any) -> OnceRecord:
    if isinstance(result, bytes):
        return OnceRecord("bytes", result_ref=desk.store(result))
    return OnceRecord("json", msgspec.Raw(encode_json(result, f"once[{key!r}]")))
