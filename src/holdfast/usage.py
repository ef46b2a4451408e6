"""Paid calls as one body makes them: whom usage belongs to, and which of them are in flight.

What a replayed call cost is not booked again.

Reports are counted. In a step that does one thing after the other, a report belongs to the call before it, and as
many of a call are known as are on record for it. Calls may also go on side by side, and come to their end in
another order when they are replayed. So a report belongs to what its own thread, or asyncio task, has asked for
last: one call, or all of them from the first on that it asked for while another was under way (asyncio.gather):
nobody knows which of those it is about. For whoever has asked for none, such as a thread that collects what others
have fetched, all calls are.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio


class Calls:
    """What one thread or task has asked for at a time."""

    __slots__ = ("before", "booking", "known", "last", "overlap", "under_way", "who")

    def __init__(self, booking: Booking, who: object = None, before: Calls | None = None) -> None:
        self.booking = booking
        self.who = who
        self.before = before  # the nearest earlier ones of which something came, while nothing has come of these
        self.under_way = 0
        self.overlap = False
        self.known = 0  # reports on record that have not been met again
        self.last = ""  # the key of the one that ended last; "" while there is none


_asked: contextvars.ContextVar[Calls | None] = contextvars.ContextVar("holdfast_calls", default=None)


class Booking:
    """The reports of one attempt."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._all = Calls(self)

    def ask(self, known: int, *, within: str = "") -> Calls:
        """A call is asked for, `within` another one perhaps; `known` reports of it are on record."""
        before, who = self._own(), _who()
        with self._mutex:
            calls = before
            if calls is None or calls.who != who or not (calls.under_way or calls.overlap):
                calls = self._next(who, before)
            calls.overlap = calls.overlap or (calls.under_way > 0 and not within)
            calls.under_way += 1
            calls.known += known
            self._all.known += known
        return calls

    def end(self, calls: Calls, key: str = "") -> None:
        """One of these calls has ended; without a key it has failed."""
        with self._mutex:
            calls.under_way -= 1
            if key:
                calls.last = self._all.last = key
                calls.before = None

    def report(self) -> tuple[str, bool]:
        """The key of the call that usage is reported of, if any, and whether this report is not on record yet."""
        calls = self._own()
        with self._mutex:
            while calls is not None and not calls.last:
                calls = calls.before
            calls = calls or self._all
            is_known = bool(calls.last) and calls.known > 0
            for counted in {calls, self._all} if is_known else ():
                counted.known -= 1
            return calls.last, not is_known

    def _own(self) -> Calls | None:
        """What this thread or task, or who began it, has asked for; a thread may have had another attempt."""
        calls = _asked.get()
        return calls if calls is not None and calls.booking is self else None

    def _next(self, who: object, before: Calls | None) -> Calls:
        calls = Calls(self, who, before if before is None or before.last else before.before)
        _asked.set(calls)
        return calls


def _who() -> object:
    """This asyncio task, else this thread: a task inherits what whoever made it has asked for."""
    asyncio = sys.modules.get("asyncio")  # of whoever does without it, nobody loads it
    try:
        task = asyncio.current_task() if asyncio is not None else None
    except RuntimeError:  # no loop runs in this thread
        task = None
    return weakref.ref(task) if task is not None else threading.get_ident()


class CallsInFlight:
    """The paid calls of one body that are in flight: one that has failed waits for their answers."""

    def __init__(self) -> None:
        self._calls: dict[object, asyncio.Task[Any] | None] = {}  # None: one that blocks a thread
        self._wake: Callable[[], None] | None = None

    @contextmanager
    def one(self, *, awaited: bool) -> Iterator[None]:
        """While this thread, or asyncio task, makes a call and waits for its record.

        Whoever asks within whether a call may be made still is seen by who forbids it and then settles.
        """
        call = object()
        self._calls[call] = _this_task() if awaited else None
        try:
            yield
        finally:
            del self._calls[call]
            if self._wake is not None:
                self._wake()

    async def settle(self) -> None:
        """Return when none is under way any more. Those that outlast whoever waits for them are cancelled.

        Their tasks are not waited for: one that takes work from a queue has no end of its own.
        """
        import asyncio  # loaded, or nobody could await

        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(changed.set)

        self._wake = wake
        try:
            while self._calls:
                await changed.wait()
                changed.clear()
        finally:
            for task in list(self._calls.values()):
                if task is not None:
                    task.get_loop().call_soon_threadsafe(task.cancel)


def _this_task() -> asyncio.Task[Any] | None:
    import asyncio  # loaded, or nobody could await

    return asyncio.current_task()
