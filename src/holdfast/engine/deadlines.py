"""When the time of each body in a thread is up. Worker threads add to it as they begin one; one thread asks."""

from __future__ import annotations

import heapq
import itertools
import threading
import weakref

from holdfast.engine.attempt import Attempt


class Deadlines:
    """The attempts that have a timeout, the next to expire first.

    One that is through before its deadline is not kept till then, with all that it took and gave.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, weakref.ref[Attempt]]] = []
        self._numbers = itertools.count()  # of two with one deadline, the first
        self._mutex = threading.Lock()

    def add(self, at: float, attempt: Attempt) -> None:
        with self._mutex:
            heapq.heappush(self._heap, (at, next(self._numbers), weakref.ref(attempt)))

    def next_at(self) -> float | None:
        with self._mutex:
            return self._heap[0][0] if self._heap else None

    def take(self, now: float) -> Attempt | None:
        """One whose time is up, taken out; None if there is none."""
        with self._mutex:
            while self._heap and self._heap[0][0] <= now:
                attempt = heapq.heappop(self._heap)[2]()
                if attempt is not None:
                    return attempt
            return None
