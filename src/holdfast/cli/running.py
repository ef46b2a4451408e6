"""What `run` and `resume` share: their options, and one run from its first line to its last.

carry_out            checks what can be checked before anything is created, then runs and tells the end
  Stopper            Ctrl-C once: stop kindly; twice: at once
  Tally              what this session did, counted from its events
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

import click
import msgspec
from msgspec.structs import replace

from holdfast import clock
from holdfast.cli.completion import complete_work
from holdfast.cli.options import composed, json_option, params_option, project_options
from holdfast.cli.printing import can_be_redrawn, flush, print_json, say_all
from holdfast.errors import UnprintableError
from holdfast.layout import QUARANTINE_DIR, REFUSED_DIR
from holdfast.streams import Heedless, descriptor_kept, stdout_kept, unwrapped

if TYPE_CHECKING:
    from holdfast.cli.console import Console
    from holdfast.cli.stopping import Stopper
    from holdfast.commands.run import RunResult
    from holdfast.layout import ProjectLayout
    from holdfast.pipeline.compiling import CompiledPipeline
    from holdfast.runs.choosing import Choice, Request
    from holdfast.state import RunState
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


class Manner(msgspec.Struct, frozen=True):
    """How the run is shown."""

    directory: str
    as_json: bool = False
    quiet: bool = False


class Tally(msgspec.Struct):
    """What this session did."""

    choice: Choice | None = None
    cost_usd: float = 0.0  # booked now: what was taken over from seals was paid before
    completed: set[str] = set()
    adopted: list[str] = []  # tasks whose files somebody else had made
    has_quarantined: bool = False  # something of the work tree was found damaged, and is kept
    has_refused: bool = False  # an output was refused, and is kept
    is_idle: bool = True  # nothing ran, was adopted, healed, kept, moved, migrated or set aside

    def count(self, recorded: Sequence[Any]) -> None:
        from holdfast import events as ev

        for one in recorded:
            event = one.event
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
            if isinstance(event, ev.NodeEntered | ev.TaskAdopted | ev.ArtifactHealed | ev.ArtifactSetAside):
                self.is_idle = False
            if isinstance(event, ev.TaskKept | ev.ValueMigrated | ev.ArtifactMoved):
                self.is_idle = False


def make_request(
    layout: ProjectLayout,
    *,
    concurrency: str | None,
    budget_usd: str | None,
    on_partial: str | None,
    on_changed: str | None,
    **wishes: Any,
) -> Request:
    """The options of `engine_options`, but for how the run is shown: some are settings, the others wishes."""
    from holdfast.runs.choosing import Request
    from holdfast.settings import load_settings

    given = {"concurrency": concurrency, "budget_usd": budget_usd}
    given |= {"on_partial": on_partial, "on_changed": on_changed}
    return Request(settings=load_settings(layout.root, given), **wishes)


def carry_out(compiled: CompiledPipeline, layout: ProjectLayout, request: Request, manner: Manner) -> int:
    """Run, show it, tell how it ended, and give the exit status.

    What waits for a person's answer is asked on a terminal, once nothing else can go on; then the run continues.
    """
    from holdfast.cli.asking import ask_all, can_ask

    result = _run_once(compiled, layout, request, manner)
    may_ask = not manner.as_json and not manner.quiet and can_ask()
    while may_ask and result.status in ("paused", "failed") and ask_all(result.picture, layout):
        # An answer about one task does not begin another's attempts anew: those were used up just now.
        again = replace(request, resume=result.run_id, run_id=None, force=False, redo=(), no_retry=True)
        result = _run_once(compiled, layout, again, manner)
    return result.exit_code


def _run_once(compiled: CompiledPipeline, layout: ProjectLayout, request: Request, manner: Manner) -> RunResult:
    from holdfast.cli.ending import ending
    from holdfast.cli.status import document
    from holdfast.cli.stopping import Stopper
    from holdfast.commands.run import execute

    if request.redo:
        check_redo(compiled, layout, request)
    console = make_console(_attempts_of(compiled), quiet=manner.quiet or manner.as_json)
    tally, began = Tally(), clock.monotonic()
    with Stopper(console, request.settings.grace_s) as stopper:
        hooks = _hooks(
            pipeline=compiled.spec.name,
            request=request,
            console=console,
            stopper=stopper,
            tally=tally,
            layout=layout,
            manner=manner,
        )
        with _streams_of_steps(as_json=manner.as_json):
            try:
                result = execute(compiled, layout, request, hooks)
            finally:
                console.close()
    if manner.as_json:
        print_json(
            {**document(layout, result.picture), **_unproved(result, layout), "exit_code": result.exit_code}
        )
    else:
        say_all(ending(result, tally, manner.directory, layout, clock.monotonic() - began))
    return result


def make_console(attempts_of: Mapping[str, int], *, quiet: bool) -> Console:
    """The console that fits where stderr goes."""
    from holdfast.cli.console import Console, PlainConsole

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


def words_at_load(*, as_json: bool) -> AbstractContextManager[None]:
    """Where what a pipeline prints when it is loaded goes: with --json, stdout is for the one document."""
    return stdout_kept() if as_json else nullcontext()


@contextmanager
def _streams_of_steps(*, as_json: bool) -> Iterator[None]:
    """What steps print may go nowhere; with --json, stdout is for the one document, and it goes to stderr.

    A full stdout fails no step, but who reads it must not take its end for all: that is told when all is done.
    """
    out, err = Heedless(unwrapped(sys.stdout)), Heedless(unwrapped(sys.stderr))
    sys.stdout, sys.stderr = cast(TextIO, err if as_json else out), cast(TextIO, err)
    try:
        with descriptor_kept(out.stream) if as_json else nullcontext():
            yield
    finally:
        sys.stdout, sys.stderr = out.end(), err.end()
    if out.failed is not None:
        raise UnprintableError.from_os(out.failed, "write to stdout") from out.failed


def _unproved(result: RunResult, layout: ProjectLayout) -> dict[str, Any]:
    """What --quick believed, --only-needed left alone and is not up to date: a reader must be told that, too."""
    from holdfast.views.soundness import note_on_todos

    facts = {
        "unread": result.unread,
        "left_alone": list(result.left_alone),
        "not_up_to_date": note_on_todos(layout, result.picture.state),
    }
    return {name: fact for name, fact in facts.items() if fact}


def _hooks(
    *,
    pipeline: str,
    request: Request,
    console: Console,
    stopper: Stopper,
    tally: Tally,
    layout: ProjectLayout,
    manner: Manner,
) -> Any:
    from holdfast.cli.beginning import beginning
    from holdfast.commands.run import Hooks

    out = sys.stdout

    def on_begin(choice: Choice, state: RunState) -> None:
        tally.choice = choice
        if not manner.quiet and not manner.as_json:
            with redirect_stdout(out):  # our own words: if they cannot be written, nothing is begun
                say_all(beginning(choice, pipeline, state, layout, fresh_attempts=not request.no_retry))
                flush()

    def on_events(recorded: Sequence[Any]) -> None:
        tally.count(recorded)
        console.events(recorded)

    def on_open(picture: Any, stop: Callable[[], None]) -> None:
        console.open(picture)
        stopper.open(stop)

    return Hooks(on_begin, on_events, console.log, on_open, signals=False)


def _attempts_of(compiled: CompiledPipeline) -> dict[str, int]:
    return {step.name: step.retries + 1 for step in compiled.spec.steps}


def check_redo(compiled: CompiledPipeline, layout: ProjectLayout, request: Request) -> None:
    """UsageError unless every --redo names a step of the pipeline or a task of the run."""
    from holdfast.errors import UsageError
    from holdfast.pipeline.names import did_you_mean, printable
    from holdfast.runs.choosing import choose
    from holdfast.views.picture import GONE

    choice = choose(compiled, layout, request)
    picture = None if choice.is_new else _as_declared_now(compiled, layout, choice.run_id)
    known = [producer.name for producer in compiled.spec.producers] + list(picture.tasks if picture else ())
    for name in request.redo:
        if picture is not None and name in picture.orphans():
            raise UsageError(f"--redo: {name} {GONE}.", fix="Its files are kept.")
        if name not in known:
            hint = did_you_mean(name, known)
            raise UsageError(f"--redo: there is no step or task '{printable(name, 160)}'.{hint}")


def _as_declared_now(compiled: CompiledPipeline, layout: ProjectLayout, run_id: str) -> Picture:
    """A run's record seen through the pipeline as its file is now."""
    from holdfast.events import PipelineDeclared
    from holdfast.folding import fold
    from holdfast.pipeline.spec import renamed_steps
    from holdfast.runs.listing import read_run
    from holdfast.runs.looking import draw_run
    from holdfast.sessions.session import encoded_spec
    from holdfast.views.picture import decode_spec

    state = read_run(layout, run_id).state
    renamed = renamed_steps(decode_spec(state), compiled.spec)
    fold(state, PipelineDeclared(spec=encoded_spec(compiled), renamed=renamed), state.seq, state.updated_at or 0.0)
    return draw_run(layout, state)
