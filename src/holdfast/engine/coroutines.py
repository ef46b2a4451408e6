"""Attempts whose bodies are coroutines: begun on one event loop, handed in by a worker once they have ended.

Nothing is judged or committed on the loop: a sync there would hold up every other coroutine.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.context import current_task
from holdfast.engine.attempt import Attempt
from holdfast.engine.workers import Workers
from holdfast.errors import StorageError
from holdfast.executors.base import Call, Outcome
from holdfast.pipeline.compiling import CompiledPipeline

if TYPE_CHECKING:
    from holdfast.executors.loop import LoopExecutor, Start


class Coroutines:
    """The async attempts of one run. The loop is made when the first of them starts."""

    def __init__(
        self,
        compiled: CompiledPipeline,
        workers: Workers,
        context: contextvars.Context,
        *,
        prepare: Callable[[Attempt], Call],
        hand_in: Callable[[Sequence[Attempt]], None],
        halt: Callable[[OSError | StorageError, str], StorageError],
    ) -> None:
        self._compiled = compiled
        self._workers = workers
        self._context = context
        self._prepare = prepare
        self._hand_in = hand_in
        self._halt = halt
        self._loop: LoopExecutor | None = None
        self._through: list[Attempt] = []  # on their way to a worker
        self._is_handing_in = False
        self._mutex = threading.Lock()

    def start(self, attempts: Sequence[Attempt]) -> None:
        """Begin these, with one wake-up of the loop for all of them. If there can be no loop, the run stops."""
        try:
            self._start(attempts)
        except (OSError, StorageError) as error:
            told = self._halt(error, "start an event loop")
            for attempt in attempts:
                attempt.outcome = Outcome(error=told)
            self._workers.add([lambda: self._hand_in(attempts)])

    def _start(self, attempts: Sequence[Attempt]) -> None:
        if self._loop is None:
            from holdfast.executors.loop import LoopExecutor  # asyncio is loaded only where steps use it

            self._loop = LoopExecutor(self._context)
        self._loop.start([self._start_of(attempt) for attempt in attempts])

    def cancel_all(self) -> None:
        """Ask every one that runs to stop."""
        if self._loop is not None:
            self._loop.cancel_all()

    def close(self) -> None:
        """Stop the loop."""
        if self._loop is not None:
            self._loop.close()

    def _start_of(self, attempt: Attempt) -> Start:
        from holdfast.executors.loop import Start

        node = attempt.node
        call = Call(self._compiled.functions[node.spec.name], {}, node.spec.timeout)

        def prepare(call: Call) -> None:
            current_task.set(node.id)
            call.arguments = self._prepare(attempt).arguments
            if attempt.ctx is not None:
                call.settle = attempt.ctx.settle

        return Start(call, prepare, lambda outcome: self._ended(attempt, outcome))

    def _ended(self, attempt: Attempt, outcome: Outcome) -> None:
        """One is through. One worker hands in all that end meanwhile; a slow check is left to another."""
        attempt.outcome = outcome
        if self._compiled.checks.get(attempt.node.spec.name):
            self._workers.add([lambda: self._hand_in([attempt])])
            return
        with self._mutex:
            self._through.append(attempt)
            called, self._is_handing_in = self._is_handing_in, True
        if not called:
            self._workers.add([self._hand_in_all])

    def _hand_in_all(self) -> None:
        while True:
            with self._mutex:
                through, self._through = self._through, []
                if not through:
                    self._is_handing_in = False
                    return
            self._hand_in(through)
