"""Sync bodies in threads, made when needed and idle when there is nothing to do. They also run what blocks.

A body is one job; what else may block, such as what follows an outcome, is another. Bodies are let in as far as
the executor is wide; jobs of other kinds never wait for them. `_coming` counts the threads that were called and
have not looked yet, so that a job is never left to a thread that was called for another one.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable

from holdfast import threads
from holdfast.clock import monotonic
from holdfast.context import current_task
from holdfast.errors import StorageError
from holdfast.executors.deadlines import Deadline, Deadlines
from holdfast.executors.protocol import Call, CancelledCallError, Handle, Outcome
from holdfast.host import Host

Job = Callable[[], None]


class _Mine(threading.local):
    """What each thread knows of itself."""

    is_free = False  # its job is through but for what it now submits
    next: Job | None = None


class ThreadExecutor:
    """Threads over one queue of jobs. A thread that has done a job takes the next one itself."""

    def __init__(
        self,
        width: int,
        context: contextvars.Context | None = None,
        *,
        fail: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        self._width = width
        self._context = contextvars.Context() if context is None else context  # in which each thread begins
        self._fail = fail  # told if there is not one thread
        self._deadlines = Deadlines()
        self._wake = threading.Condition(threading.Lock())
        self._jobs: deque[Job] = deque()
        self._bodies: deque[_Body] = deque()  # to be let in when another has ended
        self._within = 0  # bodies that were let in, and have neither ended nor been given up
        self._idle = 0  # asleep, and not called yet
        self._coming = 0
        self._count = 0
        self._living = 0
        self._closed = False
        self._mine = _Mine()

    def submit(self, call: Call, host: Host | None = None) -> Handle:
        """Run the body in a thread. When its time is up it goes on, for Python cannot end a thread."""
        body = _Body(self, call)
        if self._closed:
            body.cancel()
            self.run(body.run)
            return body
        with self._wake:
            self._bodies.append(body)
            self._let_in()
        return body

    def run(self, job: Job) -> None:
        """Do something that may block, in some thread; it sees to its own errors.

        If the caller is one of these threads and its body has ended, it does this next. One may also submit from
        inside a body (`ctx.once` commits, and a commit starts tasks): that one is busy for who knows how long.
        """
        with self._wake:
            self._queue(job)

    def almost_done(self) -> None:
        """The calling job is through but for what it now submits, which its thread may as well do itself."""
        self._mine.is_free = True

    def close(self) -> None:
        """Let idle threads end. Those inside a body end when the body does: they are daemons."""
        self._deadlines.close()
        with self._wake:
            self._closed = True
            self._bodies.clear()
            self._wake.notify_all()

    # --- bodies --------------------------------------------------------------------------------------------

    def watch(self, seconds: float, expire: Callable[[], None]) -> Deadline:
        """Have `expire`, which must not take long, called after so many seconds, unless that is cancelled."""
        return self._deadlines.add(seconds, expire)

    def leave(self, body: _Body) -> None:
        """A body has ended, or is given up: another may come in."""
        with self._wake:
            if body.is_within:
                body.is_within = False
                self._within -= 1
                self._let_in()

    def take_back(self, body: _Body) -> bool:
        """Whether the body was still waiting to be let in, and now never will be."""
        with self._wake:
            if body not in self._bodies:
                return False
            self._bodies.remove(body)
            return True

    def _let_in(self) -> None:
        while self._bodies and self._within < self._width:
            body = self._bodies.popleft()
            body.is_within = True
            self._within += 1
            self._queue(body.run)

    # --- threads -------------------------------------------------------------------------------------------

    def _queue(self, job: Job) -> None:
        mine = self._mine
        if mine.is_free and mine.next is None:
            mine.next = job  # the common case, a chain: no other thread
            return
        self._jobs.append(job)
        self._call(len(self._jobs) - self._coming)

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
        mine = self._mine
        try:
            while (job := mine.next or self._next()) is not None:
                mine.next, mine.is_free = None, False
                job()
                job = None  # a thread that sleeps keeps nothing of it
        finally:
            with self._wake:
                self._living -= 1

    def _next(self) -> Job | None:
        with self._wake:
            while not self._jobs:
                if self._closed:
                    return None
                self._idle += 1
                self._wake.wait()
                self._coming -= 1
            return self._jobs.popleft()


class _Body(Handle):
    """One call in a thread."""

    def __init__(self, executor: ThreadExecutor, call: Call) -> None:
        super().__init__(executor.run)
        self.is_within = False
        self._executor = executor
        self._call: Call | None = call
        self._is_cancelled = False

    def cancel(self) -> None:
        """Give it up: another may come in. One that has begun goes on, for Python cannot end a thread."""
        self._is_cancelled = True
        if self._executor.take_back(self):
            self._executor.run(self.run)
        else:
            self._executor.leave(self)

    def run(self) -> None:
        call, self._call = self._call, None
        assert call is not None
        token = current_task.set(call.task)
        try:
            outcome = _not_begun() if self._is_cancelled else self._outcome_of(call)
        finally:
            current_task.reset(token)
        outcome.cancelled = self._is_cancelled
        self._executor.almost_done()
        self._executor.leave(self)
        self.end(outcome)

    def _outcome_of(self, call: Call) -> Outcome:
        started = monotonic()
        try:
            deadline = self._executor.watch(call.timeout, self.overdue) if call.timeout else None
        except StorageError as error:
            return Outcome(error=error, has_begun=False)
        try:
            value = call.fn(**call.arguments)
        except BaseException as error:  # other people's code: SystemExit and KeyboardInterrupt included
            return Outcome(error=error, duration=monotonic() - started)
        finally:
            if deadline is not None:
                deadline.cancel()
        return Outcome(value=value, duration=monotonic() - started)


def _not_begun() -> Outcome:
    return Outcome(error=CancelledCallError("cancelled before it began"))
