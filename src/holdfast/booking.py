"""Which reports of usage are on record already: what a replayed call cost is not booked again.

Reports are counted. In a step that does one thing after the other, a report belongs to the call before it, and
the n-th of a call is known if n are on record for it. Calls may also go on side by side, and come to their end in
another order when they are replayed. So a report belongs to what its own thread, or asyncio task, has asked for
last: one call, or several that were asked for while another was under way (asyncio.gather), which are counted
together. For whoever has asked for none, such as a thread that collects what others have fetched, all calls are.
"""

from __future__ import annotations

import contextvars
import threading


class Calls:
    """What one thread or task has asked for at a time."""

    __slots__ = ("before", "booking", "known", "last", "reports", "under_way")

    def __init__(self, booking: Booking, before: Calls | None) -> None:
        self.booking = booking
        self.before = before  # the nearest earlier ones of which something came
        self.under_way = 0
        self.known = 0  # reports on record
        self.reports = 0  # in this attempt
        self.last = ""  # the key of the one that ended last; "" while there is none


_asked: contextvars.ContextVar[Calls | None] = contextvars.ContextVar("holdfast_calls", default=None)


class Booking:
    """The reports of one attempt."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._known = 0
        self._reports = 0
        self._last = ""

    def ask(self, known: int) -> Calls:
        """A call is asked for, of which `known` reports are on record."""
        before = self._own()
        with self._mutex:
            calls = before if before is not None and before.under_way else self._next(before)
            calls.under_way += 1
            calls.known += known
            self._known += known
        return calls

    def end(self, calls: Calls, key: str = "") -> None:
        """One of these calls has ended; without a key it has failed."""
        with self._mutex:
            calls.under_way -= 1
            calls.last = key or calls.last
            self._last = key or self._last

    def report(self) -> tuple[str, bool]:
        """The key of the call that usage is reported of, if any, and whether this report is not on record yet."""
        calls = self._own()
        with self._mutex:
            while calls is not None and not calls.last:
                calls = calls.before
            if calls is None and not self._last:
                return "", True
            self._reports += 1
            if calls is None:
                return self._last, self._reports > self._known
            calls.reports += 1
            return calls.last, calls.reports > calls.known

    def _own(self) -> Calls | None:
        """What this thread or task has asked for; a thread may have worked for another attempt before."""
        calls = _asked.get()
        return calls if calls is not None and calls.booking is self else None

    def _next(self, before: Calls | None) -> Calls:
        calls = Calls(self, before if before is None or before.last else before.before)
        _asked.set(calls)
        return calls
