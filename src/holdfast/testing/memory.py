"""A recorder that keeps in memory what a step says, and a context whose host records there."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast import events as ev
from holdfast.context import Context
from holdfast.engine.host import StepHost
from holdfast.errors import StorageError
from holdfast.host import Facts, Receipt
from holdfast.layout import PART_SUFFIX
from holdfast.state import OnceRecord
from holdfast.values import digest, encode_json


class MemoryRecorder:
    """See `holdfast.engine.recorder`. Everything a step says is in `events`, what it streams in `written`."""

    def __init__(self) -> None:
        self.events: list[ev.Event] = []
        self.written = ""
        self._kept: dict[str, bytes] = {}
        self._folder: Path | None = None

    def record(self, event: ev.Event) -> Receipt:
        self.events.append(event)
        receipt = Receipt()
        receipt.over(None)
        return receipt

    def say(self, event: ev.Event) -> None:
        self.events.append(event)

    def store(self, data: bytes) -> str:
        ref = digest(data)
        self._kept[ref] = data
        return ref

    def fetch(self, ref: str) -> bytes:
        return self._kept[ref]

    def before_paying(self, task: str) -> None:
        """There is always room."""

    def begin_stream(self, path: str, task: str) -> None:
        """Nothing stands in the way."""

    def stream(self, path: str, data: bytes, size: int | None) -> int:
        self.written += data.decode()
        return (size or 0) + len(data)

    def halt(self, error: OSError | StorageError) -> None:
        """Nothing goes on that could be stopped."""

    def fresh_path(self, name: str) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="holdfast-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder / name.removesuffix(PART_SUFFIX)


class MemoryContext(Context):
    """A Context whose recorder is within reach of the test."""

    recorder: MemoryRecorder

    @property
    def events(self) -> list[ev.Event]:
        """What the step has said so far, in order."""
        return self.recorder.events

    @property
    def written(self) -> str:
        """What the step has streamed with `write`."""
        return self.recorder.written


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
    recorder = MemoryRecorder()
    facts = Facts(
        run_id=run_id,
        task_id=task_id,
        dir=Path(dir),
        item=dict(item or {}),
        params=dict(params or {}),
        attempt=attempt,
        round=round,
        feedback=tuple(feedback),
        partial=partial,
        streams=True,
    )
    host = StepHost(
        recorder,
        facts,
        once={key: _recorded(recorder, key, result) for key, result in (once or {}).items()},
        previous=lambda: previous,
        part_path=f"out{PART_SUFFIX}",
    )
    made = MemoryContext(host, facts)
    made.recorder = recorder
    return made


def _recorded(recorder: MemoryRecorder, key: str, result: Any) -> OnceRecord:
    if isinstance(result, bytes):
        return OnceRecord("bytes", result_ref=recorder.store(result))
    return OnceRecord("json", msgspec.Raw(encode_json(result, f"once[{key!r}]")))
