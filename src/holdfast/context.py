"""What a step sees: its place in the run, its feedback, paid calls, usage, and words for people.

A context dies with its attempt: after a timeout or a stop, every method raises ContextEndedError, so that a
body that goes on by itself can no longer write anything into the run.
"""

from __future__ import annotations

import contextvars
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import msgspec
from msgspec.structs import replace

from holdfast import events as ev
from holdfast.booking import Booking, Calls
from holdfast.desk import Desk
from holdfast.errors import HoldfastError, StorageError
from holdfast.given import amount, count, refuse_no_text, refused, shown
from holdfast.journal.lines import checked_event
from holdfast.pipeline.declared import is_async
from holdfast.state import OnceRecord
from holdfast.underway import UnderWay
from holdfast.values import INLINE_VALUE_MAX, decode_json, encode_json
from holdfast.wording import writable

NAME_MAX = 1 << 20
"""Characters of a key or a model's name: a line of the journal holds them, also if each has to be escaped."""

P = ParamSpec("P")
T = TypeVar("T")

_inside_once: contextvars.ContextVar[str] = contextvars.ContextVar("holdfast_once", default="")
current_task: contextvars.ContextVar[str] = contextvars.ContextVar("holdfast_task", default="")


class ContextEndedError(HoldfastError):
    """The attempt this context belongs to is over."""

    code = "ended"


class Context:
    """Given to a step as its parameter `ctx`. In a test, `holdfast.testing.context()` makes one in memory.

    `run_id`, `task_id`, `params` and `dir` say where it is; `item` has the item's fields; `attempt` counts from 1
    in each `round`, `round` from 0. `feedback` and `previous` are why the work was sent back, and what it was;
    `partial` is half-finished text to go on from.
    """

    def __init__(
        self,
        desk: Desk,
        *,
        run_id: str,
        task_id: str,
        item: Mapping[str, Any] | None,
        params: Mapping[str, Any],
        directory: Path,
        attempt: int = 1,
        round: int = 0,
        feedback: Sequence[str] = (),
        previous: Callable[[], Any] | Any = None,
        partial: str | None = None,
        once: Mapping[str, OnceRecord] | None = None,
        part_path: str = "",
        input_digest: str = "",
    ) -> None:
        self.run_id = run_id
        self.task_id = task_id
        self.item: dict[str, Any] = dict(item) if item else {}
        self.params: dict[str, Any] = dict(params)
        self.dir = directory
        self.attempt = attempt
        self.round = round
        self.feedback: list[str] = list(feedback)
        self.partial = partial
        self._desk = desk
        self._previous = previous
        self._recorded = once or {}
        self._input_digest = input_digest
        self._used: set[str] = set()
        self._under_way = UnderWay()
        self._has_failed = False
        self._booking = Booking()
        self._spent: dict[str, float] = {}
        self.booked_usd = 0.0  # by this attempt, also what is still on its way into the journal
        self.booked_tokens = 0
        self._part_path = part_path
        self._streaming = threading.Lock()  # a step may write from several threads
        self.stream_size = None if partial is not None else 0  # of NAME.part; None: as it was found
        self._streamed = False
        self._out: Path | None = None
        self._pid = os.getpid()
        self._ended = ""
        self._keeps_calls = False
        self.hit: OSError | StorageError | None = None  # by the machine: nothing comes of this attempt

    # --- where am I ----------------------------------------------------------------------------------------

    @property
    def previous(self) -> Any:
        """What was sent back, as consumers received it; None in the first round."""
        if callable(self._previous):
            with self._machine():
                self._previous = self._previous()
        return self._previous

    @property
    def out(self) -> Path:
        """A fresh path for a large file: write it there and return the path."""
        self._alive()
        if self._out is None:
            self._out = self._desk.fresh_path(self._part_path.rsplit("/", 1)[-1] or "out")
        return self._out

    @property
    def given_out(self) -> Path | None:
        """`out`, if the step has asked for it."""
        return self._out

    def made(self, path: Path) -> bool:
        """Whether a path is `out`, or lies in the folder that the step made of it, on no way through a link."""
        if self._out is None:
            return False
        out = Path(os.path.realpath(self._out.parent), self._out.name)
        return Path(os.path.realpath(path)).is_relative_to(out)

    def is_linked_from_out(self, path: Path) -> bool:
        """Whether a path begins at `out`, by its name, and leads elsewhere through a link."""
        named = self._out is not None and Path(os.path.abspath(path)).is_relative_to(os.path.abspath(self._out))
        return named and not self.made(path)

    # --- paid calls ----------------------------------------------------------------------------------------

    def once(self, key: str, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `fn(*args, **kwargs)`, called at most once per round however often the step is retried.

        For an async `fn`, or one that gives an awaitable, so does this. A recorded result is returned without
        calling `fn`.
        """
        self._alive()
        if not isinstance(key, str) or not key or key != writable(key):
            raise HoldfastError(f"{self.task_id}: the key of ctx.once must be text, not {shown(key)}.")
        if len(key) > NAME_MAX:  # told before anything is paid that could not be recorded
            raise HoldfastError(
                f"{self.task_id}: the key of ctx.once has {len(key)} characters, more than {NAME_MAX}.",
                fix="Give a hash of it as the key.",
            )
        if key in self._used:
            raise HoldfastError(
                f"{self.task_id}: ctx.once({key!r:.60}) was used twice in one round.",
                fix="Give each paid call its own key.",
            )
        if not callable(fn):
            raise HoldfastError(
                f"{self.task_id}: ctx.once({key!r:.60}) needs a function to call, not {shown(fn)}.",
                fix="Give the function itself, and its arguments after it.",
            )
        self._used.add(key)
        record = self._recorded.get(key)
        known = record.usages if record is not None else 0
        calls = self._booking.ask(known, within=_inside_once.get())
        if (record is not None and record.awaited) or is_async(fn):
            return cast(T, self._once_async(key, calls, record, fn, args, kwargs))
        if record is not None:
            return cast(T, self._replay(key, calls, record))
        with self._under_way.one(awaited=False):
            self._before_paying()
            with self._calling(key, calls):
                result = fn(*args, **kwargs)
            if inspect.isawaitable(result):
                return cast(T, self._finish_async(key, calls, result))
            event, stored = self._once_event(key, result)
            self._desk.commit(event)
        self._alive()  # kept for the next attempt: nothing more comes of this one
        self._booking.end(calls, key)
        return cast(T, stored)

    @contextmanager
    def _calling(self, key: str, calls: Calls) -> Iterator[None]:
        """While a paid call goes on, usage is its own; if it raises, it did not happen: the key is free again."""
        token = _inside_once.set(key)
        try:
            yield
        except BaseException:
            self._used.discard(key)
            self._spent.pop(key, None)
            self._booking.end(calls)
            raise
        finally:
            with suppress(ValueError):  # a coroutine that nobody awaits any more is closed by whoever comes by
                _inside_once.reset(token)

    async def _once_async(
        self, key: str, calls: Calls, record: OnceRecord | None, fn: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        if record is not None:
            return self._replay(key, calls, record)
        with self._under_way.one(awaited=True):
            self._before_paying()
            with self._calling(key, calls):
                pending = fn(*args, **kwargs)
            return await self._finish_async(key, calls, pending)

    async def _finish_async(self, key: str, calls: Calls, pending: Awaitable[Any]) -> Any:
        with self._under_way.one(awaited=True):
            with self._calling(key, calls):
                result = await pending
            event, stored = self._once_event(key, result, awaited=True)
            await self._desk.commit_async(event)
        self._booking.end(calls, key)
        return stored

    def _replay(self, key: str, calls: Calls, record: OnceRecord) -> Any:
        self._booking.end(calls, key)
        with self._machine():
            data = self._desk.fetch(record.result_ref) if record.result_ref else bytes(record.result)
        return data if record.kind == "bytes" else decode_json(data)

    def _once_event(self, key: str, result: Any, *, awaited: bool = False) -> tuple[ev.OnceRecorded, Any]:
        """The record of a paid call, and its result as a replay would give it."""
        self._alive(for_call=True)
        kind = "bytes" if isinstance(result, bytes) else "json"
        data = result if isinstance(result, bytes) else encode_json(result, f"the result of ctx.once({key!r:.60})")
        inline = kind == "json" and len(data) <= INLINE_VALUE_MAX
        with self._machine():
            ref = "" if inline else self._desk.store(data, self.task_id)
        event = ev.OnceRecorded(
            step_id=self.task_id,
            key=key,
            round=self.round,
            kind=kind,
            result=msgspec.Raw(data) if inline else ev.NO_VALUE,
            result_ref=ref,
            spent=self._spent.pop(key, 0.0),
            input_digest=self._input_digest,
            awaited=awaited,
        )
        return event, (data if kind == "bytes" else decode_json(data))

    def usage(
        self, *, input_tokens: int = 0, output_tokens: int = 0, cost_usd: float = 0.0, model: str = ""
    ) -> None:
        """Book what was spent. After a replayed call, what was booked before is not booked again."""
        inside = _inside_once.get()
        self._alive(for_call=bool(inside))
        event = ev.UsageRecorded(  # what cannot be booked is refused here, before anything is counted
            step_id=self.task_id,
            round=self.round,
            once=inside,
            inside=bool(inside),
            input_tokens=count(input_tokens, "input_tokens"),
            output_tokens=count(output_tokens, "output_tokens"),
            cost_usd=amount(cost_usd),
            model=writable(str(model))[:NAME_MAX],
        )
        if inside:
            self._spent[inside] = self._spent.get(inside, 0.0) + event.cost_usd
        else:
            key, is_new = self._booking.report()
            if not is_new:
                return
            event = replace(event, once=key)
        self.booked_usd += event.cost_usd
        self.booked_tokens += event.input_tokens + event.output_tokens
        self._desk.say(event)

    # --- output while it grows -----------------------------------------------------------------------------

    def write(self, text: str) -> None:
        """Append to `NAME.part`. Returning None from the step then makes all of it the output."""
        self._alive()
        if not self._part_path:
            raise HoldfastError(f"{self.task_id}: ctx.write needs a step with writes= naming one file.")
        refuse_no_text("write", text=text)
        with self._streaming, self._machine():
            if not self._streamed and self.partial is None:
                self._desk.begin_stream(self._part_path, self.task_id)
            self._streamed = True
            self.stream_size = self._desk.stream(self._part_path, text.encode(), self.stream_size)

    # --- words ---------------------------------------------------------------------------------------------

    def section(self, text: str, title: str = "", sources: Sequence[str] = ()) -> None:
        """This item's part of progress.md."""
        refuse_no_text("section", text=text, title=title)
        if issubclass(type(sources), str) or not hasattr(type(sources), "__iter__"):
            raise refused("section", f"sources must be a list of texts, not {shown(sources)}")
        named = tuple(sources)
        refuse_no_text("section", **{f"sources[{number}]": source for number, source in enumerate(named)})
        self._say(ev.SectionWritten(step_id=self.task_id, title=title, text=text, sources=named))

    def note(self, text: str, impact: str = "") -> None:
        """Something whoever continues should know; in RESUME.md under known issues."""
        refuse_no_text("note", text=text, impact=impact)
        self._say(ev.NoteAdded(step_id=self.task_id, text=text, impact=impact))

    def decision(self, what: str, why: str, outcome: str = "") -> None:
        """A choice and its reason; in RESUME.md."""
        refuse_no_text("decision", what=what, why=why, outcome=outcome)
        self._say(ev.DecisionMade(step_id=self.task_id, what=what, why=why, outcome=outcome))

    def log(self, event: str, **fields: Any) -> None:
        """A line shown beside the running step, and kept."""
        refuse_no_text("log", event=event)
        encode_json(fields, "log")
        self._say(ev.Logged(step_id=self.task_id, name=event, fields=fields))
        import logging  # loaded by whoever logs; a pipeline that never does need not wait for it

        words = " ".join([event, *(f"{name}={value}" for name, value in fields.items())])
        logging.getLogger("holdfast.step").info("%s", words)

    def tag(self, **fields: Any) -> None:
        """Fields of the run, shown by `list` and `status`."""
        encode_json(fields, "tag")
        self._say(ev.Tagged(step_id=self.task_id, fields=fields))

    def _say(self, event: ev.Event) -> None:
        self._alive()
        self._desk.say(checked_event(event))

    @contextmanager
    def _machine(self) -> Iterator[None]:
        """Note what the machine does to this attempt: a body may take it for a failure of its own, and go on."""
        try:
            yield
        except (OSError, StorageError) as error:
            self.hit = self.hit or error
            raise

    def _before_paying(self) -> None:
        if self._has_failed and not _inside_once.get():  # what a call that is kept asks for belongs to it
            raise ContextEndedError(f"{self.task_id}: the step has failed, and makes no more paid calls.")
        with self._machine():
            self._desk.before_paying(self.task_id)

    # --- the engine's --------------------------------------------------------------------------------------

    @property
    def streamed(self) -> bool:
        return self._streamed

    async def settle(self) -> None:
        """The body has failed: no more paid calls begin, and those that are under way come to their end."""
        self._has_failed = True
        await self._under_way.settle()

    def end(self, why: str, *, keeps_calls: bool = False) -> None:
        """From now on this context refuses everything; with `keeps_calls`, all but the end of calls under way."""
        self._keeps_calls = keeps_calls
        self._ended = why

    def require_whole(self) -> None:
        """Raise what cut this attempt off, if something did: then no check could look as it should."""
        if self.hit is not None:
            raise self.hit
        self._alive()

    def _alive(self, *, for_call: bool = False) -> None:
        if os.getpid() != self._pid:  # there, nobody could record what it says, or pays for
            raise ContextEndedError(f"{self.task_id}: a process that the step has forked cannot write to the run.")
        if self._ended and not (for_call and self._keeps_calls):
            raise ContextEndedError(f"{self.task_id}: {self._ended}; this attempt can no longer write to the run.")
