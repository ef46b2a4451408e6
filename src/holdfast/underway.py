"""Which paid calls of one attempt are under way, so that one that has failed can wait for their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio


class UnderWay:
    """The paid calls of one attempt that are under way, in threads and on event loops."""

    def __init__(self) -> None:
        self._calls: dict[object, asyncio.Task[Any] | None] = {}  # None: one that blocks a thread
        self._wake: Callable[[], None] | None = None

    @contextmanager
    def one(self, *, awaited: bool) -> Iterator[None]:
        """While this thread, or asyncio task, makes a call and waits for its record.

        Whoever asks within whether a call may be made still is seen by who forbids it and then settles.
        """
        call = object()
        self._calls[call] = _this_task() if awaited else None
        try:
            yield
        finally:
            del self._calls[call]
            if self._wake is not None:
                self._wake()

    async def settle(self) -> None:
        """Return when none is under way any more. Those that outlast whoever waits for them are cancelled.

        Their tasks are not waited for: one that takes work from a queue has no end of its own.
        """
        import asyncio  # loaded, or nobody could await

        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(changed.set)

        self._wake = wake
        try:
            while self._calls:
                await changed.wait()
                changed.clear()
        finally:
            for task in list(self._calls.values()):
                if task is not None:
                    task.get_loop().call_soon_threadsafe(task.cancel)


def _this_task() -> asyncio.Task[Any] | None:
    import asyncio  # loaded, or nobody could await

    return asyncio.current_task()
