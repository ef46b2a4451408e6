"""The engine's side of a context: one host an attempt, which outlives the body, in whatever process that is."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from holdfast import events as ev
from holdfast.artifacts.products import OutputRefusedError
from holdfast.engine.recorder import Recorder
from holdfast.errors import StorageError, UnreadableError
from holdfast.executors.protocol import RemoteError
from holdfast.host import ContextEndedError, Facts, KeptCall, PaidCall, Receipt, used_twice
from holdfast.state import OnceRecord
from holdfast.stores import disk
from holdfast.stores.protocols import Files
from holdfast.values import INLINE_VALUE_MAX


class StepHost:
    """See `holdfast.host.Host`. After `end`, it refuses everything."""

    def __init__(
        self,
        recorder: Recorder,
        facts: Facts,
        *,
        once: Mapping[str, OnceRecord] | None = None,
        previous: Callable[[], Any] | None = None,
        part_path: str = "",
        input_digest: str = "",
    ) -> None:
        self.facts = facts
        self.booked_usd = 0.0  # by this attempt, also what is still on its way into the journal
        self.booked_tokens = 0
        self.streamed = False
        self.stream_size = None if facts.partial is not None else 0  # of NAME.part; None: as it was found
        self.given_out: Path | None = None
        self.hit: OSError | StorageError | None = None  # by the machine: nothing comes of this attempt
        self._recorder = recorder
        self._recorded = once or {}
        self._used: set[str] = set()
        self._previous = previous
        self._part_path = part_path
        self._input_digest = input_digest
        self._mutex = threading.Lock()  # a step may speak from several threads
        self._ended = ""
        self._keeps_calls = False

    # --- what a context asks -------------------------------------------------------------------------------

    def once_get(self, key: str) -> KeptCall | None:
        self._alive()
        if key in self._used:
            raise used_twice(self.facts.task_id, key)
        record = self._recorded.get(key)
        with self._machine():
            if record is None:
                self._recorder.before_paying(self.facts.task_id)
                return None
            data = self._recorder.fetch(record.result_ref) if record.result_ref else bytes(record.result)
        self._used.add(key)
        return KeptCall(record.kind, data, record.usages, record.awaited)

    def once_put(self, call: PaidCall) -> Receipt:
        self._alive(for_call=True)
        inline = call.kind == "json" and len(call.data) <= INLINE_VALUE_MAX
        with self._machine():
            ref = "" if inline else self._recorder.store(call.data)
        self._used.add(call.key)
        receipt = self._recorder.record(
            ev.OnceRecorded(
                step_id=self.facts.task_id,
                key=call.key,
                round=self.facts.round,
                kind=call.kind,
                result=msgspec.Raw(call.data) if inline else ev.NO_VALUE,
                result_ref=ref,
                spent=call.spent,
                input_digest=self._input_digest,
                awaited=call.awaited,
            )
        )
        receipt.check = self._alive  # kept for the next attempt, if nothing more comes of this one
        return receipt

    def usage(self, report: ev.UsageRecorded) -> None:
        self._alive(for_call=report.inside)
        with self._mutex:
            self.booked_usd += report.cost_usd
            self.booked_tokens += report.input_tokens + report.output_tokens
        self._recorder.say(report)

    def say(self, event: ev.Event) -> None:
        self._alive()
        self._recorder.say(event)

    def stream(self, text: str) -> None:
        self._alive()
        with self._mutex, self._machine():
            if not self.streamed and self.facts.partial is None:
                self._recorder.begin_stream(self._part_path, self.facts.task_id)
            self.streamed = True
            self.stream_size = self._recorder.stream(self._part_path, text.encode(), self.stream_size)

    def fresh_path(self) -> Path:
        self._alive()
        if self.given_out is None:
            self.given_out = self._recorder.fresh_path(self._part_path.rsplit("/", 1)[-1] or "out")
        return self.given_out

    def previous(self) -> Any:
        with self._machine():
            return self._previous() if self._previous is not None else None

    # --- the engine's --------------------------------------------------------------------------------------

    def end(self, why: str, *, keeps_calls: bool = False) -> None:
        """From now on this refuses everything; with `keeps_calls`, all but the end of calls under way."""
        self._keeps_calls = keeps_calls
        self._ended = why

    def require_whole(self) -> None:
        """Raise what cut this attempt off, if something did: then no check could look as it should."""
        if self.hit is not None:
            raise self.hit
        self._alive()

    def made(self, path: Path) -> bool:
        """Whether a path is `out`, or lies in the folder that the step made of it, on no way through a link."""
        if self.given_out is None:
            return False
        out = Path(os.path.realpath(self.given_out.parent), self.given_out.name)
        return Path(os.path.realpath(path)).is_relative_to(out)

    def is_linked_from_out(self, path: Path) -> bool:
        """Whether a path begins at `out`, by its name, and leads elsewhere through a link."""
        out = self.given_out
        named = out is not None and Path(os.path.abspath(path)).is_relative_to(os.path.abspath(out))
        return named and not self.made(path)

    def disk_failed(self, error: BaseException) -> StorageError | None:
        """What stops the run, if a body broke off because the disk could not take what it wrote to `ctx.out`.

        The system names a file where one cannot be opened, and none where one cannot be written to.
        """
        if type(error) is RemoteError:
            error = error.of_system or error
        if self.given_out is None or type(error) is not OSError or error.errno not in disk.MACHINES:
            return None
        if error.filename is not None and not self.made(Path(os.fsdecode(error.filename))):
            return None
        return StorageError.from_os(error, f"write the file of {self.facts.task_id}")

    @contextmanager
    def _machine(self) -> Iterator[None]:
        """Note what the machine does to this attempt: a body may take it for a failure of its own, and go on."""
        try:
            yield
        except (OSError, StorageError) as error:
            self.hit = self.hit or error
            self._recorder.halt(error)
            raise

    def _alive(self, *, for_call: bool = False) -> None:
        if self._ended and not (for_call and self._keeps_calls):
            raise ContextEndedError(
                f"{self.facts.task_id}: {self._ended}; this attempt can no longer write to the run."
            )


def read_stream(tree: Files, path: str, size: int | None) -> str:
    """The text that has grown at `path`. Somebody may have spoilt it: that is no failure of the disk."""
    try:
        data = tree.read(path)
        if size not in (len(data), None):
            raise OutputRefusedError(f"somebody else changed {path} after it was streamed")
        return data.decode()
    except UnicodeDecodeError:
        raise OutputRefusedError(f"what it streamed to {path} is no text any more") from None
    except UnreadableError as error:
        raise OutputRefusedError(f"what it streamed to {path} is gone: {error.words}") from None
