"""The run on stderr while it goes on: nothing, plain lines, or (in `live.py`) a picture that is redrawn.

The committing thread and the signal handler only put something into a queue; a thread of the console's own
takes it out and prints. So a slow terminal never slows a step down, and nothing is printed in a handler.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from holdfast import clock, threads
from holdfast.cli.printing import hour, money, say
from holdfast.cli.progress import Progress, Told
from holdfast.state import IN_PROGRESS

if TYPE_CHECKING:
    from holdfast.views.picture import Picture

PictureOf = Callable[[], "Picture"]

LINES_MAX = 200  # of ordinary completions; a larger run is told in summary
SUMMARY_EVERY_S = 2.0
_LOUD = ("WARNING", "ERROR", "CRITICAL")


class Console:
    """Prints nothing: for --quiet and --json. The others add to it."""

    def open(self, picture: PictureOf) -> None:
        """The run begins; `picture` shows how it stands at any time."""

    def events(self, recorded: Sequence[Any]) -> None:
        """Called by the committing thread: cheap, never raises."""

    def log(self, task: str, level: str, message: str) -> None:
        """Something that a step logged."""

    def stopping(self, text: Callable[[int], str]) -> None:
        """Called by a signal handler; `text` is given the number of running steps."""

    def close(self) -> None:
        """The run has ended, one way or the other."""


class PlainConsole(Console):
    """One line per noteworthy event."""

    period_s: float | None = None  # how often `tick` is wanted

    def __init__(self, attempts_of: Mapping[str, int]) -> None:
        self.progress = Progress(attempts_of)
        self._picture: PictureOf | None = None
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="holdfast-console", daemon=True)
        self._lines = 0
        self._summary_due = 0.0

    # --- any thread ----------------------------------------------------------------------------------------

    def open(self, picture: PictureOf) -> None:
        self._picture = picture
        threads.start(self._thread)

    def events(self, recorded: Sequence[Any]) -> None:
        self._inbox.put(partial(self._take, list(recorded)))

    def log(self, task: str, level: str, message: str) -> None:
        self._inbox.put(partial(self.take_log, task, level, message, clock.now()))

    def stopping(self, text: Callable[[int], str]) -> None:
        self._inbox.put(lambda: self.show(Told(clock.now(), "yellow", text(len(self.progress.running)))))

    def close(self) -> None:
        if self._thread.ident is not None:
            self._inbox.put(None)
            self._thread.join()

    # --- the console's thread ------------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            self.begin()
            while self._next():
                pass
        except Exception as error:  # the run is worth more than its display
            say(f"The display failed ({type(error).__name__}: {error}); the run goes on.", err=True)
        finally:
            self.end()

    def _next(self) -> bool:
        try:
            message = self._inbox.get(timeout=self.period_s)
        except Empty:
            message = _nothing
        if message is None:
            return False
        message()
        self.tick()
        return True

    def _take(self, recorded: list[Any]) -> None:
        for one in recorded:
            told = self.progress.take(one.event, one.at)
            if told is not None:
                self.take_told(told)

    def begin(self) -> None:
        """Before the first message."""

    def tick(self) -> None:
        """After each message, and at least every `period_s`."""

    def end(self) -> None:
        """After the last message."""

    def take_log(self, task: str, level: str, message: str, at: float) -> None:
        self.progress.log(task, message)
        if level in _LOUD:
            style = "yellow" if level == "WARNING" else "red"
            self.show(Told(at, style, f"{task}  {message}"))

    def take_told(self, told: Told) -> None:
        if told.is_completion and self._lines >= LINES_MAX:
            self._summarise()
            return
        self._lines += told.is_completion
        self.show(told)

    def show(self, told: Told) -> None:
        say(f"{hour(told.at)}  {told.line}", err=True)

    def _summarise(self) -> None:
        """Instead of thousands of lines: how far it is, now and then, and never at a price that shows."""
        began = clock.monotonic()
        if began < self._summary_due or self._picture is None:
            return
        picture = self._picture()
        now = clock.monotonic()
        self._summary_due = now + max(SUMMARY_EVERY_S, 20 * (now - began))
        say(f"{hour(clock.now())}  {standing(picture)}", err=True)


def _nothing() -> None:
    """The message of a time in which nothing happened."""


def standing(picture: Picture) -> str:
    """How far it is, in one line, and of one moment: the events taken so far may be behind the picture."""
    running, cost = picture.counts.get(IN_PROGRESS, 0), money(picture.state.cost_usd)
    return f"{picture.done} of {picture.total} steps done, {running} running, cost {cost}"
