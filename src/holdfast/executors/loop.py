"""Async bodies, all on one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress

from holdfast import threads
from holdfast.clock import monotonic
from holdfast.context import current_task
from holdfast.errors import StorageError
from holdfast.executors.protocol import Call, CancelledCallError, Handle, Outcome
from holdfast.executors.threads import ThreadExecutor
from holdfast.host import Host

_DROP_S = 0.2  # how long a cancelled body may take when the loop is closed


class LoopExecutor:
    """Coroutines on one loop. Their outcomes are told by a thread of `pool`: nothing may hold up the loop.

    One thread tells all that end meanwhile, one after the other; then `told` is called there.
    """

    def __init__(
        self,
        pool: ThreadExecutor,
        context: contextvars.Context | None = None,
        *,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        self._pool = pool
        self._context = contextvars.Context() if context is None else context  # in which each coroutine begins
        self._told = told
        self._mutex = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._submitted: list[tuple[_Coroutine, Call]] = []
        self._ended: list[tuple[_Coroutine, Outcome]] = []
        self._is_telling = False
        self.running: set[_Coroutine] = set()  # a loop keeps its tasks only weakly
        self._stopped = False

    def submit(self, call: Call, host: Host | None = None) -> Handle:
        """Run the coroutine on the loop, with one wake-up for all that are submitted meanwhile."""
        coroutine = _Coroutine(self)
        if self._stopped:
            self._pool.run(coroutine.never_began)
            return coroutine
        try:
            with self._mutex:
                loop = self._running_loop()
                self._submitted.append((coroutine, call))
                if len(self._submitted) == 1:
                    loop.call_soon_threadsafe(self._spawn)
        except (OSError, StorageError) as error:
            self.tell(coroutine, Outcome(error=error, has_begun=False))
        return coroutine

    def close(self) -> None:
        """Stop the loop. Coroutines that are still there are dropped with it."""
        if self._loop is None or self._thread is None:
            return
        self._stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5.0)
        self._loop = None

    def soon(self, job: Callable[[], object]) -> None:
        """Do this on the loop, if there is one."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it was closed meanwhile
                self._loop.call_soon_threadsafe(job)

    def tell(self, coroutine: _Coroutine, outcome: Outcome) -> None:
        """A coroutine has this outcome."""
        # After a stop it is dropped, perhaps by the ending interpreter, where no thread begins any more.
        if self._stopped:
            return
        with self._mutex:
            self._ended.append((coroutine, outcome))
            is_telling, self._is_telling = self._is_telling, True
        if not is_telling:
            self._pool.run(self._tell_all)

    def _tell_all(self) -> None:
        while True:
            with self._mutex:
                ended, self._ended = self._ended, []
            if not ended:
                break
            for coroutine, outcome in ended:
                coroutine.end(outcome)
        self._pool.almost_done()
        self._told()
        with self._mutex:
            self._is_telling = bool(self._ended)
            if not self._is_telling:
                return
        self._pool.run(self._tell_all)  # after what was submitted just now

    # --- the loop ------------------------------------------------------------------------------------------

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._serve, args=(loop,), name="holdfast-loop", daemon=True)
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
            loop.run_until_complete(self._drop())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    async def _drop(self) -> None:
        """Cancel what is still there, twice: after the first time it may wait for its calls in flight."""
        for _ in range(2):
            tasks = [coroutine.task for coroutine in self.running if coroutine.task is not None]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=_DROP_S)

    def _serve_all(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop until it is stopped: a task of a body's own that exits ends only itself."""
        while not self._stopped:
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                pass  # whoever awaits that task is given it, too

    def _spawn(self) -> None:
        assert self._loop is not None
        with self._mutex:
            submitted, self._submitted = self._submitted, []
        for coroutine, call in submitted:
            # Not in the context of whoever asked: that may be another body, in the middle of a paid call.
            coroutine.begin(self._loop, call, self._context.copy())


class _Coroutine(Handle):
    """One call on the loop. Everything but `cancel` happens there."""

    def __init__(self, executor: LoopExecutor) -> None:
        super().__init__(executor._pool.run)
        self._executor = executor
        self.task: asyncio.Task[None] | None = None
        self._is_cancelled = False
        self._is_told = False

    def cancel(self) -> None:
        self._is_cancelled = True
        self._executor.soon(self.cancel_task)

    def never_began(self) -> None:
        self.end(Outcome(error=CancelledCallError("cancelled before it began"), cancelled=True))

    def cancel_task(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def begin(self, loop: asyncio.AbstractEventLoop, call: Call, context: contextvars.Context) -> None:
        context.run(current_task.set, call.task)
        self.task = loop.create_task(self._run(call), context=context)
        self.task.add_done_callback(self._is_through)
        self._executor.running.add(self)
        if self._is_cancelled:
            self.task.cancel()

    def _is_through(self, task: asyncio.Task[None]) -> None:
        self.task = None
        self._executor.running.discard(self)
        if not self._is_told:  # cancelled before its first step: nothing of `_run` was done
            error = CancelledCallError("cancelled before it began")
            self._executor.tell(self, Outcome(error=error, cancelled=True))

    async def _run(self, call: Call) -> None:
        started = monotonic()
        deadline = asyncio.timeout(call.timeout)
        try:
            async with deadline:
                value = await call.fn(**call.arguments)
            if deadline.expired():  # it swallowed its cancellation: what it gives comes too late all the same
                raise TimeoutError
            outcome = Outcome(value=value, duration=monotonic() - started)
        except GeneratorExit:  # dropped with the loop: nothing may be awaited any more
            raise
        except asyncio.CancelledError as error:
            outcome = Outcome(error=error, duration=monotonic() - started, cancelled=True)
        except BaseException as error:
            late = deadline.expired()
            told = error if isinstance(error, TimeoutError) or not late else TimeoutError()
            outcome = Outcome(error=told, duration=monotonic() - started, timed_out=late)
        if outcome.broke_off:
            await _settle(call, deadline.when())
        self._is_told = True
        self._executor.tell(self, outcome)


async def _settle(call: Call, until: float | None) -> None:
    """Wait for other calls of a failed body that go on, as those that it has gathered do, while its time lasts.

    A retry that began earlier would pay for them again.
    """
    with suppress(TimeoutError, asyncio.CancelledError):  # out of time, or the run is being stopped: it has failed
        async with asyncio.timeout_at(until):
            if call.settle is not None:
                await call.settle()
