"""Async bodies, all on one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from holdfast import threads
from holdfast.clock import monotonic
from holdfast.executors.base import Call, Outcome


class Start(msgspec.Struct, frozen=True):
    """One call for the loop: `prepare` fills in its arguments there, `done` gets the outcome there, once."""

    call: Call
    prepare: Callable[[Call], None]
    done: Callable[[Outcome], None]


class LoopExecutor:
    """Starts coroutines on its loop and reports each outcome by a callback, on the loop's thread."""

    def __init__(self, context: contextvars.Context) -> None:
        self._context = context  # in which each of the coroutines begins
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = threading.Lock()
        self._stopped = False

    def start(self, starts: Sequence[Start]) -> None:
        """Run these calls on the loop, with one wake-up for all of them."""
        loop = self._running_loop()
        loop.call_soon_threadsafe(self._spawn_all, list(starts))

    def cancel_all(self) -> None:
        """Ask every running coroutine to stop."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel_all)

    def close(self) -> None:
        """Stop the loop. Coroutines that are still there are dropped with it."""
        if self._loop is None or self._thread is None:
            return
        self._stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5.0)
        self._loop = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._serve, args=(loop,), name="holdfast-loop", daemon=True
                )
                try:
                    threads.start(self._thread)
                except BaseException:
                    loop.close()
                    raise
                self._loop = loop
            return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            self._serve_all(loop)
            self._cancel_all()
            loop.run_until_complete(asyncio.sleep(0))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def _serve_all(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop until it is stopped: a task of a body's own that exits ends only itself."""
        while not self._stopped:
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                pass  # whoever awaits that task is given it, too

    def _spawn_all(self, starts: Sequence[Start]) -> None:
        assert self._loop is not None
        for start in starts:
            # Not in the context of whoever asked: that may be another body, in the middle of a paid call.
            task = self._loop.create_task(self._run(start), context=self._context.copy())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, start: Start) -> None:
        call = start.call
        started = monotonic()
        deadline = asyncio.timeout(call.timeout)
        try:
            start.prepare(call)
            async with deadline:
                value = await call.fn(**call.arguments)
            if deadline.expired():  # it swallowed its cancellation: what it gives comes too late all the same
                raise TimeoutError
            outcome = Outcome(value=value, duration=monotonic() - started)
        except asyncio.CancelledError as error:
            outcome = Outcome(error=error, duration=monotonic() - started, cancelled=True)
        except BaseException as error:
            late = deadline.expired()
            told = error if isinstance(error, TimeoutError) or not late else TimeoutError()
            outcome = Outcome(error=told, duration=monotonic() - started, timed_out=late)
        if outcome.broke_off:
            await _settle(call, deadline.when())
        # After a stop it is dropped, perhaps by the ending interpreter, where no thread begins any more.
        if not self._stopped:
            start.done(outcome)

    def _cancel_all(self) -> None:
        for task in list(self._tasks):
            task.cancel()


async def _settle(call: Call, until: float | None) -> None:
    """Wait for other calls of a failed body that go on, as those that it has gathered do, while its time lasts.

    A retry that began earlier would pay for them again.
    """
    with suppress(TimeoutError, asyncio.CancelledError):  # out of time, or the run is being stopped: it has failed
        async with asyncio.timeout_at(until):
            if call.settle is not None:
                await call.settle()
