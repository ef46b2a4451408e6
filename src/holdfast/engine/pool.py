"""The worker processes of a run, made when the first step needs one."""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.executors.base import Call, Executor, Outcome


class Pool:
    """The one pool of this run: of another, made by two threads at once, nobody would end the workers."""

    def __init__(self, make: Callable[[], Executor]) -> None:
        self._make = make
        self._made: Executor | None = None
        self._making = threading.Lock()

    def run(self, call: Call) -> Outcome:
        with self._making:
            if self._made is None:
                self._made = self._make()
        return self._made.run(call)

    def close(self) -> None:
        if self._made is not None:
            self._made.close()
