"""The run on a terminal: plain lines that stay, and below them matrix, running tasks, last log lines and cost."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.ansi import AnsiDecoder
from rich.console import Console as Screen
from rich.console import Group
from rich.live import Live
from rich.text import Text

from holdfast import clock
from holdfast.cli.console import BAD, DONE, INFO, LINES_MAX, WARN, Line, PlainConsole, standing
from holdfast.cli.printing import hour
from holdfast.escaping import terminal
from holdfast.views.matrix import text_matrix
from holdfast.wording import span

if TYPE_CHECKING:
    from holdfast.views.picture import Picture

REFRESH_S = 0.25
LOG_LINES = 6
RUNNING_LINES = 8
BEGUN_LINES = 3
_STYLES = {DONE: "green", INFO: "cyan", WARN: "yellow", BAD: "red"}


class LiveConsole(PlainConsole):
    """Prints what a plain console prints, above a picture that is redrawn and goes with the run."""

    period_s = REFRESH_S

    def __init__(self, attempts_of: Mapping[str, int]) -> None:
        super().__init__(attempts_of)
        self._screen = Screen(stderr=True, highlight=False)
        self._logs: deque[Text] = deque(maxlen=LOG_LINES)
        self._drawn_due = 0.0
        self._is_summarised = False
        # Whoever writes on the screen has it: rich finds out where the picture stands, and only then draws.
        self._turn = threading.RLock()
        self._printed: list[Printed] = []
        self._streams = sys.stdout, sys.stderr
        self._live = Live(
            console=self._screen,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )

    def begin(self) -> None:
        with self._turn:
            self._streams = sys.stdout, sys.stderr
            self._screen.file = sys.stderr
            if sys.stdout.isatty():
                sys.stdout = self._above(sys.stdout)
            sys.stderr = self._above(sys.stderr)
            self._live.start()

    def end(self) -> None:
        with self._turn:
            for printed in self._printed:
                printed.end()
            self._live.stop()
            sys.stdout, sys.stderr = self._streams

    def _above(self, stream: TextIO) -> TextIO:
        self._printed.append(Printed(stream, self._turn, self._screen.print))
        return cast(TextIO, self._printed[-1])

    def tick(self) -> None:
        self._redraw()

    def take_log(self, task: str, level: str, message: str, at: float) -> None:
        super().take_log(task, level, message, at)
        self._logs.append(Text(terminal(f"{hour(at)} {level:<8} {task}  {message}"), style="dim"))

    def show(self, line: Line) -> None:
        self._print(str(line), _STYLES[line.level])

    def summarise(self) -> None:
        """Say once that the other tasks are only counted: the picture does that all the time."""
        if not self._is_summarised:
            words = f"{LINES_MAX} finished tasks are listed; the rest are only counted"
            self._print(f"{hour(clock.now())}  {words}", "dim")
            self._is_summarised = True

    def _print(self, text: str, style: str) -> None:
        with self._turn:
            self._screen.print(Text(terminal(text), style=style))

    def _redraw(self) -> None:
        """Draw anew if it is time; a run so large that drawing takes long is drawn more seldom."""
        began = clock.monotonic()
        if began < self._drawn_due or self._picture is None:
            return
        frame = self._frame(self._picture())
        with self._turn:
            self._live.update(frame, refresh=True)
        now = clock.monotonic()
        self._drawn_due = now + max(REFRESH_S, 20 * (now - began))

    def _frame(self, picture: Picture) -> Group:
        size = self._screen.size
        running = self._running_lines() + self._begun_lines(size.width)
        logs = list(self._logs)
        room = max(3, size.height - len(running) - len(logs) - 5)
        parts = [*_fitting(text_matrix(picture, size.width, rows_max=max(2, room - 4)), room), Text()]
        parts += running
        if logs:
            parts += [Text("─" * min(size.width, 60), style="dim"), *logs]
        parts.append(Text(terminal(f"{picture.state.run_id}: {standing(picture)}"), style="bold"))
        for part in parts:
            part.truncate(size.width, overflow="ellipsis")
        return Group(*parts)

    def _running_lines(self) -> list[Text]:
        now = clock.now()
        tasks = sorted(self.progress.running.items(), key=lambda pair: pair[1].since)
        lines = []
        for task, running in tasks[:RUNNING_LINES]:
            again = f" (attempt {running.attempt})" if running.attempt > 1 else ""
            text = f"⏳ {task}{again}  {span(now - running.since)}  {running.last_log}"
            lines.append(Text(terminal(text).rstrip(), style="cyan"))
        if len(tasks) > RUNNING_LINES:
            lines.append(Text(f"   and {len(tasks) - RUNNING_LINES} more", style="cyan"))
        return lines

    def _begun_lines(self, width: int) -> list[Text]:
        """The ends of lines that steps have begun to print: a question, a bar, a text that is streamed."""
        with self._turn:
            begun = [terminal(text.rstrip("\r")) for one in self._printed for text in one.begun.values()]
        return [Text(text[-width:]) for text in begun[:BEGUN_LINES]]


class Printed:
    """A stream for what steps print while the picture stands: whole lines, above it.

    Rich has one, too, but it does not wait for its turn, and takes a word in brackets for a command of its own:
    one that it does not know would fail the step.
    """

    def __init__(self, stream: TextIO, turn: threading.RLock, show: Callable[[Text], None]) -> None:
        self.begun: dict[int, str] = {}  # thread -> its line, as far as that is printed
        self._stream = stream
        self._turn = turn
        self._show = show
        self._decoder = AnsiDecoder()
        self._process = os.getpid()

    def write(self, text: str) -> int:
        if self._is_apart:
            return self._stream.write(text)
        with self._turn:
            mine = threading.get_ident()
            *lines, rest = (self.begun.pop(mine, "") + text).split("\n")
            self._show_lines(lines)
            if rest:
                self.begun[mine] = _overwritten(rest)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        """A line that is only begun is part of the picture."""
        if self._is_apart:
            self._stream.flush()

    def end(self) -> None:
        """Show what is left; from now on, all goes to the stream itself."""
        self._show_lines(list(self.begun.values()))
        self.begun.clear()
        self._process = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def _is_apart(self) -> bool:
        """Whether there is no picture here: it is over, or this is a forked process, which never has its turn."""
        return os.getpid() != self._process

    def _show_lines(self, lines: Sequence[str]) -> None:
        if lines:
            self._show(Text("\n").join(self._decoder.decode_line(line.rstrip("\r")) for line in lines))


def _overwritten(line: str) -> str:
    """What a carriage return leaves of a line: a progress bar is drawn over and over."""
    return line[line.rstrip("\r").rfind("\r") + 1 :]


def _fitting(lines: list[str], room: int) -> list[Text]:
    if len(lines) > room:
        lines = [*lines[: room - 1], f"... {len(lines) - room + 1} more lines"]
    return [Text(line) for line in lines]
