"""Calls back when time is up: one thread for all deadlines, started with the first."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

from holdfast import threads
from holdfast.clock import monotonic


class Deadline:
    """One of them. Cancelled, it keeps nothing alive till then."""

    __slots__ = ("expire",)

    def __init__(self, expire: Callable[[], None]) -> None:
        self.expire: Callable[[], None] | None = expire

    def cancel(self) -> None:
        self.expire = None


class Deadlines:
    """The deadlines of one executor, the next to expire first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Deadline]] = []
        self._numbers = itertools.count()  # of two at one time, the first
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, seconds: float, expire: Callable[[], None]) -> Deadline:
        """Have `expire`, which must not take long, called then. StorageError if no thread can mind the time."""
        deadline = Deadline(expire)
        with self._wake:
            self._start()
            entry = (monotonic() + seconds, next(self._numbers), deadline)
            heapq.heappush(self._heap, entry)
            if self._heap[0] is entry:
                self._wake.notify()
        return deadline

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._watch, name="holdfast-deadlines", daemon=True)
            threads.start(thread)
            self._thread = thread

    def _watch(self) -> None:
        while (expire := self._next()) is not None:
            expire()

    def _next(self) -> Callable[[], None] | None:
        """What to call, once its time has come; None at the end."""
        with self._wake:
            while not self._closed:
                while self._heap and self._heap[0][2].expire is None:
                    heapq.heappop(self._heap)
                left = self._heap[0][0] - monotonic() if self._heap else None
                if left is not None and left <= 0:
                    expire = heapq.heappop(self._heap)[2].expire
                    if expire is not None:
                        return expire
                    continue
                self._wake.wait(left)
            return None
