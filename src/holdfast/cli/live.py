"""The run on a terminal: the matrix, what is running, the last log lines and the cost, redrawn."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping

from rich.console import Console as Screen
from rich.console import Group
from rich.live import Live
from rich.text import Text

from holdfast import clock
from holdfast.cli.console import PlainConsole, standing
from holdfast.cli.printing import hour
from holdfast.cli.progress import Told
from holdfast.escaping import terminal
from holdfast.views.matrix import text_matrix
from holdfast.views.picture import Picture
from holdfast.wording import span

REFRESH_S = 0.25
LOG_LINES = 6
RUNNING_LINES = 8
_LEVEL_STYLES = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red bold"}


class LiveConsole(PlainConsole):
    """Noteworthy lines scroll by above; the picture stays below."""

    period_s = REFRESH_S

    def __init__(self, attempts_of: Mapping[str, int]) -> None:
        super().__init__(attempts_of)
        self._screen = Screen(stderr=True, highlight=False)
        self._logs: deque[Text] = deque(maxlen=LOG_LINES)
        self._drawn_due = 0.0
        self._live = Live(
            console=self._screen,
            auto_refresh=False,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            vertical_overflow="crop",
        )

    def begin(self) -> None:
        self._live.start()

    def end(self) -> None:
        self._live.stop()

    def tick(self) -> None:
        self._redraw()

    def take_log(self, task: str, level: str, message: str, at: float) -> None:
        self.progress.log(task, message)
        line = f"{hour(at)} {level:<8} {task}  {message}"
        self._logs.append(Text(terminal(line), style=_LEVEL_STYLES.get(level, "dim")))

    def take_told(self, told: Told) -> None:
        """Completions are seen in the matrix; everything else is kept in the scroll-back too."""
        if not told.is_completion:
            self.show(told)

    def show(self, told: Told) -> None:
        self._screen.print(Text(terminal(f"{hour(told.at)}  {told.line}"), style=told.style))

    def _redraw(self) -> None:
        """Draw anew if it is time; a run so large that drawing takes long is drawn more seldom."""
        began = clock.monotonic()
        if began < self._drawn_due or self._picture is None:
            return
        self._live.update(self._frame(self._picture()), refresh=True)
        now = clock.monotonic()
        self._drawn_due = now + max(REFRESH_S, 20 * (now - began))

    def _frame(self, picture: Picture) -> Group:
        size = self._screen.size
        running = self._running_lines()
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


def _fitting(lines: list[str], room: int) -> list[Text]:
    if len(lines) > room:
        lines = [*lines[: room - 1], f"... {len(lines) - room + 1} more lines"]
    return [Text(line) for line in lines]
