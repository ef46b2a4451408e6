"""What `run` and `resume` share: their options, and one run from its first line to its last.

Showing              what is seen of it, and how it ended
  Tally              what this session did, counted from its events
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

import click
import msgspec

from holdfast import clock
from holdfast import events as ev
from holdfast.cli.completion import complete_work
from holdfast.cli.console import Console, PlainConsole
from holdfast.cli.options import composed, json_option, params_option, project_options
from holdfast.cli.printing import can_be_redrawn, flush, print_json, say, say_all
from holdfast.errors import UnprintableError
from holdfast.layout import QUARANTINE_DIR, REFUSED_DIR
from holdfast.signals import Stop
from holdfast.streams import Heedless, stdout_kept, unwrapped
from holdfast.wording import counted

if TYPE_CHECKING:
    from holdfast.engine.commit import Recorded
    from holdfast.project import Project
    from holdfast.project.run import Beginning, RunResult
    from holdfast.views.picture import Picture

F = TypeVar("F", bound=Callable[..., Any])


def engine_options(function: F) -> F:
    """The options of whoever starts the engine, in the order in which --help shows them."""
    options = [
        params_option,
        project_options,
        click.option("--concurrency", metavar="N", help="How many steps may run at once.  [default: 8]"),
        click.option("--budget", "budget_usd", metavar="USD", help="Pause when the run has cost this much."),
        click.option(
            "--redo",
            multiple=True,
            callback=composed,
            metavar="TASK|STEP",
            shell_complete=complete_work,
            help="Do a finished task, or a step's tasks, again; may be given several times.",
        ),
        click.option("--no-retry", is_flag=True, help="Do not give failed tasks a fresh set of attempts."),
        click.option(
            "--on-partial",
            type=click.Choice(["redo", "continue", "ask"]),
            help="What to do about half-finished output.  [default: redo]",
        ),
        click.option(
            "--on-changed",
            type=click.Choice(["ask", "restore", "keep"]),
            help="What to do about files that someone edited.  [default: ask]",
        ),
        click.option(
            "--quick",
            is_flag=True,
            help="Believe finished files whose size, time and inode are unchanged, without reading them.",
        ),
        click.option(
            "--only-needed",
            is_flag=True,
            help="Leave missing files alone unless something unfinished needs them.",
        ),
        json_option,
        click.option("--quiet", is_flag=True, help="Print no progress, only how it ended."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


class Tally(msgspec.Struct):
    """What this session did."""

    is_new: bool = True  # nothing of the run is on record from before
    cost_usd: float = 0.0  # booked now: what was taken over from seals was paid before
    completed: set[str] = set()
    adopted: list[str] = []  # tasks whose files somebody else had made
    has_quarantined: bool = False  # something of the work tree was found damaged, and is kept
    has_refused: bool = False  # an output was refused, and is kept
    is_idle: bool = True  # nothing ran, was adopted, healed, kept, moved, migrated or set aside

    def count(self, event: Any) -> None:
        if isinstance(event, ev.NodeExited) and event.status == "completed":
            self.completed.add(event.step_id)
        if isinstance(event, ev.TaskAdopted) and event.evidence in ("marker", "exists"):
            self.adopted.append(event.step_id)
        if isinstance(event, ev.ArtifactSetAside) and event.to.startswith(f"{QUARANTINE_DIR}/"):
            is_refused = event.to.startswith(f"{QUARANTINE_DIR}/{REFUSED_DIR}/")
            self.has_refused = self.has_refused or is_refused
            self.has_quarantined = self.has_quarantined or not is_refused
        if isinstance(event, ev.UsageRecorded):
            self.cost_usd += event.cost_usd
        if isinstance(event, _DOES_SOMETHING):
            self.is_idle = False


_DOES_SOMETHING = (
    ev.NodeEntered,
    ev.TaskAdopted,
    ev.ArtifactHealed,
    ev.ArtifactSetAside,
    ev.TaskKept,
    ev.ValueMigrated,
    ev.ArtifactMoved,
)


class Showing:
    """Shows a run from its first line to its last; `carry_out` is its order.

    What waits for a person's answer is asked on a terminal, once nothing else can go on; then the run continues,
    and is shown anew.
    """

    def __init__(
        self, project: Project, directory: str, *, as_json: bool, quiet: bool, tells_elsewhere: bool = False
    ) -> None:
        self._project = project
        self._directory = directory
        self._as_json = as_json
        self._quiet = quiet or as_json
        self._tells_elsewhere = tells_elsewhere
        self._stack = ExitStack()
        self._tally = Tally()
        self.console = Console()
        self.grace_s = 0.0
        self._began = 0.0

    def carry_out(self, run: Callable[..., RunResult]) -> int:
        """Call `run` with what shows it, tell how it ended, and give the exit status."""
        from holdfast.cli.asking import Asker, can_ask

        stop = Stop(self.tell_stop)
        watch = {"on_begin": self._begin, "on_event": self._take, "on_log": self._log, "on_open": self._open}
        watch |= {"on_end": self._end, "on_answer": say}
        answer = Asker() if not self._quiet and can_ask() else None
        # With --json, stdout is for the one document: what a pipeline prints when it is loaded goes to stderr.
        with stdout_kept() if self._as_json else nullcontext(), self._stack:
            result = run(answer=answer, stop=stop, **watch)
        if self._as_json:
            print_json(result.document)
        return result.exit_code

    def _begin(self, beginning: Beginning) -> None:
        self._tally, self._began = Tally(is_new=beginning.choice.is_new), clock.monotonic()
        self.grace_s = beginning.request.settings.grace_s
        if self._tells_elsewhere and beginning.elsewhere:
            say(beginning.elsewhere, err=True)
        if not self._quiet:
            from holdfast.cli.beginning import beginning_lines

            say_all(beginning_lines(beginning))  # if they cannot be written, nothing is begun
            flush()
        self.console = make_console(beginning.attempts, quiet=self._quiet)
        self._stack.enter_context(_streams_of_steps())
        self._stack.callback(self.console.close)

    def _open(self, picture: Callable[[], Picture]) -> None:
        self.console.open(picture)

    def _log(self, task: str, level: str, message: str) -> None:
        self.console.log(task, level, message)

    def _take(self, recorded: Recorded) -> None:
        self._tally.count(recorded.event)
        self.console.events([recorded])

    def _end(self, result: RunResult) -> None:
        from holdfast.cli.ending import ending

        self._stack.close()
        if not self._as_json:
            seconds = clock.monotonic() - self._began
            say_all(ending(result, self._tally, self._project, self._directory, seconds))

    def tell_stop(self, number: int) -> None:
        """Say that the run stops; `number` is how often it was asked to."""
        self.console.stopping(partial(self._stopping, number))

    def _stopping(self, number: int, running: int) -> str:
        if number > 1:
            return "Stopping at once."
        if not running:
            return "Stopping."
        steps = counted(running, "running step")
        return f"Stopping: waiting up to {self.grace_s:g} s for {steps}; Ctrl-C again stops at once"


def make_console(attempts_of: Mapping[str, int], *, quiet: bool) -> Console:
    """The console that fits where stderr goes."""
    if quiet:
        return Console()
    if can_be_redrawn() and _takes_signs(sys.stderr):
        from holdfast.cli.live import LiveConsole

        return LiveConsole(attempts_of)
    return PlainConsole(attempts_of)


def _takes_signs(stream: TextIO) -> bool:
    """Whether our signs can be shown there: the letters in their place are wider, and would break the picture."""
    try:
        "⏳─…".encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def _streams_of_steps() -> Iterator[None]:
    """What steps print may go nowhere.

    A full stdout fails no step, but who reads it must not take its end for all: that is told when all is done.
    """
    is_kept = unwrapped(sys.stdout) is unwrapped(sys.stderr)  # for our own document
    err = Heedless(unwrapped(sys.stderr))
    out = err if is_kept else Heedless(unwrapped(sys.stdout))
    sys.stdout, sys.stderr = cast(TextIO, out), cast(TextIO, err)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out.end(), err.end()
    if out.failed is not None and not is_kept:
        raise UnprintableError.from_os(out.failed, "write to stdout") from out.failed
