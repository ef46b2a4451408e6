"""What a step sees: its place in the run, its feedback, paid calls, usage, and words for people.

What it says, it says to its host, which may be in another process. A context dies with its attempt: after a
timeout or a stop the host refuses everything, so that a body that goes on by itself can no longer write anything
into the run.
"""

from __future__ import annotations

import contextvars
import inspect
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from msgspec.structs import replace

from holdfast import events as ev
from holdfast.errors import HoldfastError, ValueRefusedError
from holdfast.host import ContextEndedError, Facts, Host, KeptCall, PaidCall, used_twice
from holdfast.journal.lines import checked_event
from holdfast.pipeline.declared import is_async
from holdfast.pipeline.names import words_of
from holdfast.usage import Booking, Calls, CallsInFlight
from holdfast.values import decode_json, encode_json
from holdfast.wording import writable

NAME_MAX = 1 << 20
"""Characters of a key or a model's name: a line of the journal holds them, also if each has to be escaped."""

TOKENS_MAX = 10**15  # of one report: any sum of them is still exact in every reader of JSON
USD_MAX = 1e12

P = ParamSpec("P")
T = TypeVar("T")

_NOT_ASKED: Any = object()

_inside_once: contextvars.ContextVar[str] = contextvars.ContextVar("holdfast_once", default="")
current_task: contextvars.ContextVar[str] = contextvars.ContextVar("holdfast_task", default="")


class Context:
    """Given to a step as its parameter `ctx`. In a test, `holdfast.testing.context()` makes one in memory.

    `run_id`, `task_id`, `params` and `dir` say where it is; `item` has the item's fields; `attempt` counts from 1
    in each `round`, `round` from 0. `feedback` and `previous` are why the work was sent back, and what it was;
    `partial` is half-finished text to go on from.
    """

    def __init__(self, host: Host, facts: Facts) -> None:
        self.run_id = facts.run_id
        self.task_id = facts.task_id
        self.item: dict[str, Any] = dict(facts.item)
        self.params: dict[str, Any] = dict(facts.params)
        self.dir = facts.dir
        self.attempt = facts.attempt
        self.round = facts.round
        self.feedback: list[str] = list(facts.feedback)
        self.partial = facts.partial
        self._facts = facts
        self._told = host
        self._previous: Any = _NOT_ASKED
        self._used: set[str] = set()
        self._in_flight = CallsInFlight()
        self._has_failed = False
        self._booking = Booking()
        self._spent: dict[str, float] = {}
        self._pid = os.getpid()

    @property
    def _host(self) -> Host:
        if os.getpid() != self._pid:  # there, nobody could record what it says, or pays for
            raise ContextEndedError(f"{self.task_id}: a process that the step has forked cannot write to the run.")
        return self._told

    # --- where am I ----------------------------------------------------------------------------------------

    @property
    def previous(self) -> Any:
        """What was sent back, as consumers received it; None in the first round."""
        if self._previous is _NOT_ASKED:
            self._previous = self._host.previous()
        return self._previous

    @property
    def out(self) -> Path:
        """A fresh path for a large file: write it there and return the path."""
        return self._host.fresh_path()

    # --- paid calls ----------------------------------------------------------------------------------------

    def once(self, key: str, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `fn(*args, **kwargs)`, called at most once per round however often the step is retried.

        For an async `fn`, or one that gives an awaitable, so does this. A recorded result is returned without
        calling `fn`.
        """
        host = self._host
        if not isinstance(key, str) or not key or key != writable(key):
            raise HoldfastError(f"{self.task_id}: the key of ctx.once must be text, not {_shown(key)}.")
        if len(key) > NAME_MAX:  # told before anything is paid that could not be recorded
            raise HoldfastError(
                f"{self.task_id}: the key of ctx.once has {len(key)} characters, more than {NAME_MAX}.",
                fix="Give a hash of it as the key.",
            )
        if key in self._used:
            raise used_twice(self.task_id, key)
        if not callable(fn):
            raise HoldfastError(
                f"{self.task_id}: ctx.once({key!r:.60}) needs a function to call, not {_shown(fn)}.",
                fix="Give the function itself, and its arguments after it.",
            )
        kept = host.once_get(key)
        self._used.add(key)
        calls = self._booking.ask(kept.usages if kept is not None else 0, within=_inside_once.get())
        if (kept is not None and kept.awaited) or is_async(fn):
            return cast(T, self._once_async(key, calls, kept, fn, args, kwargs))
        if kept is not None:
            return cast(T, self._replay(key, calls, kept))
        with self._in_flight.one(awaited=False):
            self._refuse_after_failure()
            with self._calling(key, calls):
                result = fn(*args, **kwargs)
            if inspect.isawaitable(result):
                return cast(T, self._finish_async(key, calls, result))
            call = self._paid(key, result)
            host.once_put(call).wait()
        self._booking.end(calls, key)
        return cast(T, _result(call))

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
        self, key: str, calls: Calls, kept: KeptCall | None, fn: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        if kept is not None:
            return self._replay(key, calls, kept)
        with self._in_flight.one(awaited=True):
            self._refuse_after_failure()
            with self._calling(key, calls):
                pending = fn(*args, **kwargs)
            return await self._finish_async(key, calls, pending)

    async def _finish_async(self, key: str, calls: Calls, pending: Awaitable[Any]) -> Any:
        with self._in_flight.one(awaited=True):
            with self._calling(key, calls):
                result = await pending
            call = self._paid(key, result, awaited=True)
            await self._host.once_put(call)
        self._booking.end(calls, key)
        return _result(call)

    def _replay(self, key: str, calls: Calls, kept: KeptCall) -> Any:
        self._booking.end(calls, key)
        return _result(kept)

    def _paid(self, key: str, result: Any, *, awaited: bool = False) -> PaidCall:
        kind = "bytes" if isinstance(result, bytes) else "json"
        data = result if isinstance(result, bytes) else encode_json(result, f"the result of ctx.once({key!r:.60})")
        return PaidCall(key, kind, data, self._spent.pop(key, 0.0), awaited)

    def _refuse_after_failure(self) -> None:
        if self._has_failed and not _inside_once.get():  # what a call that is kept asks for belongs to it
            raise ContextEndedError(f"{self.task_id}: the step has failed, and makes no more paid calls.")

    def usage(
        self, *, input_tokens: int = 0, output_tokens: int = 0, cost_usd: float = 0.0, model: str = ""
    ) -> None:
        """Book what was spent. After a replayed call, what was booked before is not booked again."""
        host, inside = self._host, _inside_once.get()
        event = ev.UsageRecorded(  # what cannot be booked is refused here, before anything is counted
            step_id=self.task_id,
            round=self.round,
            once=inside,
            inside=bool(inside),
            input_tokens=_count(input_tokens, "input_tokens"),
            output_tokens=_count(output_tokens, "output_tokens"),
            cost_usd=_amount(cost_usd),
            model=writable(str(model))[:NAME_MAX],
        )
        if inside:
            self._spent[inside] = self._spent.get(inside, 0.0) + event.cost_usd
        else:
            key, is_new = self._booking.report()
            if not is_new:
                return
            event = replace(event, once=key)
        host.usage(event)

    # --- output while it grows -----------------------------------------------------------------------------

    def write(self, text: str) -> None:
        """Append to `NAME.part`. Returning None from the step then makes all of it the output."""
        if not self._facts.streams:
            raise HoldfastError(f"{self.task_id}: ctx.write needs a step with writes= naming one file.")
        _refuse_no_text("write", text=text)
        self._host.stream(text)

    # --- words ---------------------------------------------------------------------------------------------

    def section(self, text: str, title: str = "", sources: Sequence[str] = ()) -> None:
        """This item's part of progress.md."""
        _refuse_no_text("section", text=text, title=title)
        if issubclass(type(sources), str) or not hasattr(type(sources), "__iter__"):
            raise _refused("section", f"sources must be a list of texts, not {_shown(sources)}")
        named = tuple(sources)
        _refuse_no_text("section", **{f"sources[{number}]": source for number, source in enumerate(named)})
        self._say(ev.SectionWritten(step_id=self.task_id, title=title, text=text, sources=named))

    def note(self, text: str, impact: str = "") -> None:
        """Something whoever continues should know; in RESUME.md under known issues."""
        _refuse_no_text("note", text=text, impact=impact)
        self._say(ev.NoteAdded(step_id=self.task_id, text=text, impact=impact))

    def decision(self, what: str, why: str, outcome: str = "") -> None:
        """A choice and its reason; in RESUME.md."""
        _refuse_no_text("decision", what=what, why=why, outcome=outcome)
        self._say(ev.DecisionMade(step_id=self.task_id, what=what, why=why, outcome=outcome))

    def log(self, event: str, **fields: Any) -> None:
        """A line shown beside the running step, and kept."""
        _refuse_no_text("log", event=event)
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
        self._host.say(checked_event(event))

    # --- the executor's ------------------------------------------------------------------------------------

    @property
    def facts(self) -> Facts:
        """What a context in another process is made from."""
        return self._facts

    async def settle(self) -> None:
        """The body has failed: no more paid calls begin, and those that are in flight come to their end."""
        self._has_failed = True
        await self._in_flight.settle()


def _result(call: KeptCall | PaidCall) -> Any:
    """The result of a paid call, as a replay gives it, too."""
    return call.data if call.kind == "bytes" else decode_json(call.data)


def _refuse_no_text(method: str, **given: Any) -> None:
    for name, value in given.items():
        if not issubclass(type(value), str):
            raise _refused(method, f"{name} must be text, not {_shown(value)}")


def _refused(method: str, problem: str) -> ValueRefusedError:
    return ValueRefusedError(f"ctx.{method}: {problem}.", where=method)


def _shown(value: Any) -> str:
    return f"{words_of(value):.40}"


def _count(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= TOKENS_MAX:
        raise HoldfastError(f"ctx.usage: {name} must be a whole number of tokens, not {_shown(value)}.")
    return value


def _amount(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= USD_MAX:
        raise HoldfastError(f"ctx.usage: cost_usd must be an amount, not {_shown(value)}.")
    return float(value)
