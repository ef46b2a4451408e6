"""The same for coroutines: this half needs an event loop."""

from __future__ import annotations

import asyncio

from holdfast import events as ev
from holdfast.engine.commit import Committer
from holdfast.engine.saying import Saying


class AsyncSaying(Saying):
    """For a coroutine: `done` resolves a future on its loop."""

    def __init__(self, committer: Committer, events: tuple[ev.Event, ...]) -> None:
        super().__init__(committer, events, durable=True)
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self._loop.create_future()

    def done(self, error: BaseException | None) -> None:
        def resolve() -> None:
            if self.future.cancelled():
                return
            if error is None:
                self.future.set_result(None)
            else:
                self.future.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(resolve)
        except RuntimeError:
            pass  # the loop was closed at the end of the run, and the coroutine dropped with it
