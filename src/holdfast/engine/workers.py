"""The threads that run sync bodies and lead commits: made when needed, idle when there is nothing to do.

Two kinds of work come in: jobs (bodies to run) and mail (an inbox that somebody must commit). A thread looks for
mail first, since a job may take hours. `_coming` counts the threads that were called and have not looked yet, so
that no job is left to a thread that was called for something else, and none is called twice.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from holdfast import threads
from holdfast.errors import StorageError

Job = Callable[[], None]


class Workers:
    """Threads over one queue of jobs. A thread that has done a job takes the next one itself."""

    def __init__(
        self,
        pump: Callable[[], None],
        has_mail: Callable[[], bool],
        context: contextvars.Context,
        *,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._pump = pump
        self._has_mail = has_mail
        self._context = context  # in which each of the threads begins
        self._fail = fail  # told if there is not one thread
        self._jobs: deque[Job] = deque()
        self._wake = threading.Condition(threading.Lock())
        self._idle = 0  # asleep, and not called yet
        self._coming = 0
        self._count = 0
        self._living = 0
        self._closed = False
        self._mine = threading.local()

    def add(self, jobs: list[Job]) -> None:
        """Queue jobs. If the caller is a worker whose body has ended, it takes one of them itself.

        A worker may also commit from inside a body (`ctx.once`): that one is busy for who knows how long.
        """
        mine = self._mine.__dict__
        if jobs and mine.get("free") and mine.get("next") is None:
            mine["next"] = jobs.pop(0)  # the common case, a chain: no lock, no other thread
        if not jobs:
            return
        with self._wake:
            self._jobs.extend(jobs)
            self._call(len(self._jobs) - self._coming)

    def body_ended(self) -> None:
        """The calling thread's job is all but done: it only hands in what came of it."""
        self._mine.free = True

    def call_committer(self) -> None:
        """Have some thread look into the inbox."""
        with self._wake:
            self._call(1)

    def close(self) -> None:
        """Let idle threads end. Those inside a body end when the body does: they are daemons."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()

    def _call(self, wanted: int) -> None:
        for _ in range(wanted):
            if self._idle:
                self._idle -= 1
                self._wake.notify()
            elif not self._begin():
                return
            self._coming += 1

    def _begin(self) -> bool:
        """Start one more thread; False if the system has none left: those that are there do the work in turn."""
        self._count += 1
        name, begin = f"holdfast-worker-{self._count}", self._context.copy().run
        try:
            threads.start(threading.Thread(target=begin, args=(self._work,), name=name, daemon=True))
        except StorageError as error:
            if not self._living:
                self._fail(error)
            return False
        self._living += 1
        return True

    def _work(self) -> None:
        with self._wake:
            self._coming -= 1
        try:
            self._work_on_jobs(self._mine.__dict__)
        finally:
            with self._wake:
                self._living -= 1

    def _work_on_jobs(self, mine: dict[str, Any]) -> None:
        while True:
            job = mine.pop("next", None) or self._next(mine)
            if job is None:
                return
            mine["free"] = False
            job()

    def _next(self, mine: dict[str, Any]) -> Job | None:
        mine["free"] = True
        while True:
            if self._has_mail():
                with self._wake:  # it may lead for long, and then do what it has started: jobs are others' now
                    self._call(len(self._jobs) - self._coming)
                self._pump()
                job: Job | None = mine.pop("next", None)
                if job is not None:  # the commit that was just led started something, and left it to this thread
                    return job
            with self._wake:
                if self._jobs:
                    return self._jobs.popleft()
                if self._closed:
                    return None
                if not self._has_mail():
                    self._sleep()

    def _sleep(self) -> None:
        self._idle += 1
        self._wake.wait()
        self._coming -= 1
