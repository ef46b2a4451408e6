"""The commands that start the engine, run and resume, and what people see of a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO, cast

import click
from click.core import ParameterSource

from holdfast import clock
from holdfast.cli.console import Console, PlainConsole
from holdfast.cli.options import (
    combined,
    complete_file,
    complete_run,
    complete_work,
    composed,
    json_option,
    params_option,
    project_options,
    run_argument,
)
from holdfast.cli.printing import can_be_redrawn, flush, print_json, say, say_all
from holdfast.cli.report import Tally, first_lines, last_lines
from holdfast.errors import UnprintableError
from holdfast.project import Project
from holdfast.signals import Stop
from holdfast.streams import Heedless, stdout_kept, unwrapped
from holdfast.wording import counted

if TYPE_CHECKING:
    from holdfast.engine.commit import Recorded
    from holdfast.project.run import Beginning, Question, RunResult
    from holdfast.views.picture import Picture

LATER = "later"

_engine_options = combined(
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
)


@click.command("run", short_help="Start a pipeline, or continue its run with the same parameters.")
@click.argument("file", metavar="FILE.py[:NAME]", shell_complete=complete_file)
@click.option(
    "--resume",
    metavar="RUN_ID",
    shell_complete=complete_run,
    help="Continue that run; -p then changes its parameters.",
)
@click.option("--force", is_flag=True, help="Always start a new run, and set aside what is in its way.")
@click.option("--run-id", metavar="ID", help="The id of the new run.  [default: made from the time]")
@_engine_options
def run_command(*, file: str, directory: str, as_json: bool, quiet: bool, **options: Any) -> int:
    """Start a pipeline, or continue the newest run of it that has the same parameters."""
    project = Project.open(directory)
    is_assumed = click.get_current_context().get_parameter_source("directory") is ParameterSource.DEFAULT
    showing = Showing(project, directory, as_json=as_json, quiet=quiet, tells_elsewhere=is_assumed and not quiet)
    return showing.carry_out(partial(project.run, file, **options))


@click.command("resume", short_help="Continue the newest unfinished run, or the one that is named.")
@run_argument
@_engine_options
def resume_command(*, run_id: str | None, directory: str, as_json: bool, quiet: bool, **options: Any) -> int:
    """Continue the newest unfinished run of this project, or the one that is named.

    If all are completed, the files of the newest are proved, and mended.
    """
    project = Project.open(directory)
    showing = Showing(project, directory, as_json=as_json, quiet=quiet)
    return showing.carry_out(partial(project.resume, run_id, **options))


class Showing:
    """Shows a run from its first line to its last; `carry_out` is its order.

    On a terminal, a person is asked what the run waits for once nothing else can go on; an answer continues the
    run, which is shown anew.
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
        """Call `run` with what shows it, print how it ended, and give the exit status."""
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
            say_all(first_lines(beginning))  # if they cannot be written, nothing is begun
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
        self._stack.close()
        if not self._as_json:
            seconds = clock.monotonic() - self._began
            say_all(last_lines(result, self._tally, self._project, self._directory, seconds))

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
    """Let steps print without ever failing at it.

    A full stdout fails no step, but its reader must not take its end for all: the run says so when all is done.
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


def can_ask() -> bool:
    """Whether a person can be asked: both ends are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


class Asker:
    """Asks a person on the terminal. Ctrl-C and the end of input mean "later", for all that is left."""

    def __init__(self) -> None:
        self._explained: set[str] = set()
        self._is_over = False

    def __call__(self, question: Question) -> str | None:
        """What the person chooses; None is "later"."""
        if self._is_over:
            return None
        say(f"{question.task}: {question.why}")
        for choice in question.choices:
            if choice not in self._explained:
                say(f"  {choice}: {question.meanings[choice]}")
        self._explained.update(question.choices)
        try:
            choice = _prompt(question.choices)
        except (click.Abort, EOFError):
            say()
            self._is_over = True
            return None
        return None if choice == LATER else choice


def _prompt(choices: tuple[str, ...]) -> str:
    options = click.Choice([*choices, LATER])
    with redirect_stdout(unwrapped(sys.stdout)):  # what click says are our own words: those of steps are over
        return str(click.prompt("  What shall be done?", type=options, default=LATER))
