"""What the engine and its executors say to each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

from holdfast.clock import monotonic
from holdfast.pipeline.rewind import Rewind


class Call(msgspec.Struct, eq=False):
    """One body to run."""

    fn: Callable[..., Any]
    arguments: Mapping[str, Any]
    timeout: float | None = None
    function_name: str = ""  # by which a worker process finds the function
    settle: Callable[[], Awaitable[None]] | None = None  # wait for what a body that has failed is paying for


class Outcome(msgspec.Struct, eq=False):
    """How a body ended: with a value, or with an exception."""

    value: Any = None
    error: BaseException | None = None
    duration: float = 0.0
    timed_out: bool = False
    cancelled: bool = False  # stopped by us: says nothing about the step

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


class Executor(Protocol):
    """Runs one call in the calling thread's time. Never raises for what the body did."""

    def run(self, call: Call) -> Outcome: ...

    def close(self) -> None: ...


class InlineExecutor:
    """Runs the body in the thread that asks: the engine's own workers are the threads."""

    def run(self, call: Call) -> Outcome:
        started = monotonic()
        try:
            value = call.fn(**call.arguments)
        except BaseException as error:  # other people's code: SystemExit and KeyboardInterrupt included
            return Outcome(error=error, duration=monotonic() - started)
        return Outcome(value=value, duration=monotonic() - started)
