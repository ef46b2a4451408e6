"""What the engine and its executors say to each other: a call goes in, an outcome comes back, once."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

from holdfast.host import Host
from holdfast.pipeline.rewind import Rewind


class Call(msgspec.Struct, eq=False):
    """One body to run."""

    fn: Callable[..., Any]
    arguments: Mapping[str, Any]
    timeout: float | None = None
    function_name: str = ""  # by which a worker process finds the function
    task: str = ""  # whose log it is that the body writes to
    settle: Callable[[], Awaitable[None]] | None = None  # wait for what a body that has failed is paying for


class Outcome(msgspec.Struct, eq=False):
    """How a body ended: with a value, or with an exception."""

    value: Any = None
    error: BaseException | None = None
    duration: float = 0.0
    timed_out: bool = False
    cancelled: bool = False  # stopped by us: says nothing about the step
    has_begun: bool = True  # False: the system had no thread, process or loop for it, and `error` says so

    @property
    def broke_off(self) -> bool:
        """Whether a body failed by itself: not stopped by us, not out of time, and nothing was sent back."""
        if self.error is None or self.cancelled or self.timed_out:
            return False
        return not issubclass(type(self.error), Rewind)  # without asking it: other people's class


class RemoteError(Exception):
    """What a body in a worker process raised; its type's name and message, as text."""

    def __init__(
        self,
        message: str,
        kinds: tuple[str, ...] = (),
        retry_after: float | None = None,
        of_system: OSError | None = None,
    ) -> None:
        super().__init__(f"{kinds[0]}: {message}" if kinds else message)
        self.kinds = kinds  # the names of its type and of that type's bases, for retry_on
        self.retry_after = retry_after
        self.of_system = of_system  # which of the system's errors it was, and about which file


class CancelledCallError(Exception):
    """The call was cancelled before its body had ended."""


def _nothing() -> None:
    return None


class Handle:
    """A call that was submitted."""

    def __init__(self, in_a_thread: Callable[[Callable[[], None]], None]) -> None:
        self._in_a_thread = in_a_thread  # one that may block
        self._mutex = threading.Lock()
        self._outcome: Outcome | None = None
        self._done: Callable[[Outcome], None] | None = None
        self._late: Callable[[], None] = _nothing
        self._is_late = False

    def done(self, callback: Callable[[Outcome], None], late: Callable[[], None] = _nothing) -> None:
        """Have `callback` called with the outcome, once, on a thread that may block. Asked for once.

        What it submits may be run by that thread next. Where a body cannot be ended, `late` is called when its
        time is up, on a thread that may block, too; `callback` still follows when it has ended.
        """
        with self._mutex:
            outcome, is_late = self._outcome, self._is_late
            if outcome is None:
                self._done, self._late = callback, late
        if outcome is not None:
            self._in_a_thread(lambda: callback(outcome))
        elif is_late:
            self._in_a_thread(late)

    def cancel(self) -> None:
        """Have it end soon. A body that cannot be ended goes on, and its outcome is `cancelled`."""
        raise NotImplementedError

    def end(self, outcome: Outcome) -> None:
        """For executors, on a thread that may block: the call has this outcome. The first one counts."""
        with self._mutex:
            if self._outcome is not None:
                return
            self._outcome, callback = outcome, self._done
            self._done, self._late = None, _nothing  # what they hold may be large
        if callback is not None:
            callback(outcome)

    def overdue(self) -> None:
        """For executors: its time is up, and its body goes on."""
        with self._mutex:
            if self._outcome is not None:
                return
            self._is_late, late = True, self._late
        self._in_a_thread(late)


class Executor(Protocol):
    """Runs calls, so many at a time as it is wide. Says nothing of what a body did but in its outcome."""

    def submit(self, call: Call, host: Host | None) -> Handle:
        """Run the body. Its context, if it takes one, speaks to `host`, wherever it runs."""

    def close(self) -> None:
        """Cancel what runs, and let go of threads and processes."""
