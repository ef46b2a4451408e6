"""An entry that records events as they are, for whoever has something to say."""

from __future__ import annotations

import threading

from holdfast import events as ev
from holdfast.engine.commit import Committer, Entry


class Saying(Entry):
    """Events to record as they are; `done` wakes whoever waits for them to be durable."""

    def __init__(self, committer: Committer, events: tuple[ev.Event, ...], *, durable: bool) -> None:
        self.durable = durable
        self.error: BaseException | None = None
        self._committer = committer
        self._events = events
        self._finished = threading.Event() if durable else None

    def apply(self) -> None:
        for event in self._events:
            self._committer.record(event)

    def done(self, error: BaseException | None) -> None:
        self.error = error
        if self._finished is not None:
            self._finished.set()

    def wait(self) -> None:
        assert self._finished is not None
        self._finished.wait()
        if self.error is not None:
            raise self.error
