"""Async bodies, all on one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context

from holdfast.clock import monotonic
from holdfast.executors.base import Call, Outcome


class LoopExecutor:
    """Starts coroutines on its loop and reports each outcome by a callback, on the loop's thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._starting = threading.Lock()

    def start(self, call: Call, prepare: Callable[[Call], None], done: Callable[[Outcome], None]) -> None:
        """Run `call` on the loop. `prepare` fills in its arguments there; `done` gets the outcome, once."""
        loop = self._running_loop()
        loop.call_soon_threadsafe(self._spawn, call, prepare, done)

    def cancel_all(self) -> None:
        """Ask every running coroutine to stop."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel_all)

    def close(self) -> None:
        """Stop the loop. Coroutines that are still there are dropped with it."""
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5.0)
        self._loop = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._serve, name="holdfast-loop", daemon=True)
                self._thread.start()
            return self._loop

    def _serve(self) -> None:
        loop = self._loop
        assert loop is not None
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            self._cancel_all()
            loop.run_until_complete(asyncio.sleep(0))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def _spawn(self, call: Call, prepare: Callable[[Call], None], done: Callable[[Outcome], None]) -> None:
        assert self._loop is not None
        task = self._loop.create_task(self._run(call, prepare, done), context=copy_context())
        self._tasks[call.task_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(call.task_id, None))

    async def _run(self, call: Call, prepare: Callable[[Call], None], done: Callable[[Outcome], None]) -> None:
        started = monotonic()
        deadline = asyncio.timeout(call.timeout)
        try:
            prepare(call)
            async with deadline:
                value = await call.fn(**call.arguments)
            outcome = Outcome(value=value, duration=monotonic() - started)
        except asyncio.CancelledError as error:
            outcome = Outcome(error=error, duration=monotonic() - started, cancelled=True)
        except BaseException as error:
            timed_out = isinstance(error, TimeoutError) and deadline.expired()
            outcome = Outcome(error=error, duration=monotonic() - started, timed_out=timed_out)
        done(outcome)

    def _cancel_all(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
