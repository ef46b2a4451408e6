"""What a context and its host say to each other: data only, so that the host may be at the other end of a pipe.

The body of a step runs with a `Context`; its host is in the engine's process and outlives it. What must be known
after a worker's death stands there: what was booked, how long the stream is, which path was given out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from holdfast import events as ev
from holdfast.errors import HoldfastError


class ContextEndedError(HoldfastError):
    """The attempt this context belongs to is over."""

    code = "ended"


class Facts(msgspec.Struct, frozen=True):
    """What a step can read from its context without asking."""

    run_id: str
    task_id: str
    dir: Path
    item: dict[str, Any] = {}
    params: dict[str, Any] = {}
    attempt: int = 1
    round: int = 0
    feedback: tuple[str, ...] = ()
    partial: str | None = None
    streams: bool = False  # whether there is one file that `write` could grow


class KeptCall(msgspec.Struct, frozen=True):
    """A paid call that is on record: its result, and how many reports of usage are booked for it."""

    kind: str  # bytes | json
    data: bytes
    usages: int = 0
    awaited: bool = False


class PaidCall(msgspec.Struct, frozen=True):
    """A paid call that has been answered, to be kept."""

    key: str
    kind: str
    data: bytes
    spent: float = 0.0
    awaited: bool = False


class Receipt:
    """Tells when something is on record: a thread calls `wait`, a coroutine awaits it.

    `lead` may be called by a thread that waits, to do the work itself; `call` asks another thread for it.
    """

    def __init__(self, lead: Callable[[], None] = lambda: None, call: Callable[[], None] = lambda: None) -> None:
        self.check: Callable[[], None] = lambda: None  # raises what whoever waited is told all the same
        self._lead = lead
        self._call = call
        self._is_over = threading.Event()
        self._error: BaseException | None = None
        self._wake: Callable[[], None] = lambda: None

    def over(self, error: BaseException | None) -> None:
        """It is on record now, or has failed. Called once, by any thread."""
        self._error = error
        self._is_over.set()
        self._wake()

    def wait(self) -> None:
        """Return when it is on record; raises why it is not."""
        self._lead()
        self._is_over.wait()
        self._raise()

    def __await__(self) -> Generator[Any, None, None]:
        import asyncio  # loaded, or nobody could await

        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def resolve() -> None:
            if not future.done():
                future.set_result(None)

        def wake() -> None:
            with suppress(RuntimeError):  # the loop was closed at the end of the run, and the coroutine dropped
                loop.call_soon_threadsafe(resolve)

        self._wake = wake
        if self._is_over.is_set():  # before it could be heard of
            wake()
        self._call()
        yield from future
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
        self.check()


class Host(Protocol):
    """What a context may ask of it. Any of these raises ContextEndedError once the attempt is over."""

    def once_get(self, key: str) -> KeptCall | None:
        """The kept result of a paid call, or None: then it may be made, and its result can be kept."""

    def once_put(self, call: PaidCall) -> Receipt:
        """Keep the result of a paid call."""

    def usage(self, report: ev.UsageRecorded) -> None:
        """Book what was spent; on record soon, whatever becomes of the body."""

    def say(self, event: ev.Event) -> None:
        """Record this soon."""

    def stream(self, text: str) -> None:
        """Append to the growing output."""

    def fresh_path(self) -> Path:
        """A path for a large file, on the project's disk, not existing yet: the same one for all of an attempt."""

    def previous(self) -> Any:
        """What was sent back; None if nothing was."""


def used_twice(task: str, key: str) -> HoldfastError:
    """The refusal of a key that a paid call of this round has already."""
    return HoldfastError(
        f"{task}: ctx.once({key!r:.60}) was used twice in one round.", fix="Give each paid call its own key."
    )
