"""Start a run or continue one: where definition, recovery, engine and views meet.

carry_out                one request in, one result out; what is asked meanwhile is answered, and the run goes on
  execute                the same without answers
  choose                 which run is meant: a new one, or one that is continued
  OpenRun                the run on disk: lock, journal, objects, work tree (sessions/session.py)
  _Session               what goes on while it runs: runner, keeper, views
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from holdfast import events as ev
from holdfast.artifacts.inputs import Inputs, known_items
from holdfast.engine.attempt import Attempts
from holdfast.engine.board import Board
from holdfast.engine.drawing import draw_both, draw_graph
from holdfast.engine.keeper import Keeper
from holdfast.engine.recorder import LookingRecorder, RunRecorder
from holdfast.engine.runner import Limits, Observer, Runner
from holdfast.engine.tasklogs import LogObserver, TaskLogs
from holdfast.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_WAITING,
    StorageError,
    UsageError,
)
from holdfast.folding import fold
from holdfast.host import ContextEndedError
from holdfast.layout import ProjectLayout
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.names import did_you_mean, printable
from holdfast.pipeline.nodes import split_task_id, task_id
from holdfast.pipeline.spec import renamed_steps
from holdfast.pipeline.unfolding import build_graph
from holdfast.project.people import MEANINGS, decide
from holdfast.project.recover import rebuild
from holdfast.runs.choosing import Choice, Request, begun_elsewhere, choose
from holdfast.runs.listing import list_runs, read_run
from holdfast.runs.looking import draw_run, loading
from holdfast.sessions.editing import kept_events, wanted
from holdfast.sessions.session import OpenRun, copied, encoded_spec, locked, make_folders
from holdfast.signals import Stop, heard
from holdfast.state import COMPLETED, FAILED, IN_PROGRESS, NEEDS_REVIEW, PAUSED, RunState
from holdfast.values import is_same
from holdfast.views.matrix import shown_status
from holdfast.views.picture import GONE, Picture, answers, decode_spec
from holdfast.views.shelf import ViewShelf
from holdfast.views.soundness import note_on_todos

if TYPE_CHECKING:
    from holdfast.project.results import RunDocument

# Drawing the graph only to name three tasks must not delay a large run.
_DRAWN_MAX = 20_000
_EXIT = {COMPLETED: EXIT_OK, FAILED: EXIT_FAILED, PAUSED: EXIT_WAITING, IN_PROGRESS: EXIT_INTERRUPTED}


class Beginning(msgspec.Struct, frozen=True):
    """What is started, or what is continued and from where; `state` is what the record said before."""

    compiled: CompiledPipeline
    layout: ProjectLayout
    request: Request
    choice: Choice
    state: RunState
    elsewhere: str = ""  # what to tell who begins anew what was begun where the pipeline's file lies

    @property
    def attempts(self) -> dict[str, int]:
        """Step -> how many attempts it has in all."""
        return {step.name: step.retries + 1 for step in self.compiled.spec.steps}

    def following(self) -> list[str]:
        """The tasks that will be worked on first: what was under way, then what can start, also once more."""
        if self.choice.was_completed:
            return []
        going = [task for task, record in self.state.tasks.items() if record.status in (IN_PROGRESS, FAILED)]
        if len(self.state.tasks) > _DRAWN_MAX:
            return going
        state = copied(self.state)
        again = ev.RunContinued(fresh_attempts=not self.request.no_retry)
        fold(state, again, state.seq, state.updated_at or 0.0)
        return sorted(draw_run(self.layout, state).next_steps(), key=lambda task: task not in going)


class Question(msgspec.Struct, frozen=True):
    """What a task waits for an answer with."""

    task: str
    why: str
    choices: tuple[str, ...]  # what is recommended first
    meanings: dict[str, str]  # of each choice


class Hooks(msgspec.Struct, frozen=True):
    """Whoever wants to see the run while it happens: the terminal, a test."""

    on_begin: Callable[[Beginning], None] = lambda beginning: None
    on_events: Observer = lambda recorded: None
    on_log: LogObserver | None = None
    on_open: Callable[[Callable[[], Picture]], None] = lambda picture: None
    on_end: Callable[[RunResult], None] = lambda result: None
    on_answer: Callable[[str], None] = lambda words: None  # what was made of an answer
    stop: Stop = msgspec.field(default_factory=Stop)


Answer = Callable[[Question], str | None]
"""One of the choices, or None: later."""


class RunResult(msgspec.Struct, frozen=True, dict=True):
    """How a run stands after `run`: also for failed and paused runs.

    `status` is "completed", "failed", "paused", or "in_progress" if a signal stopped it; `exit_code` is that of
    `holdfast run`. `needs_review` lists the tasks that wait for a person, `cost_usd` is all that was spent.
    """

    status: str
    run_id: str
    cost_usd: float
    needs_review: list[str]
    picture: Picture
    layout: ProjectLayout
    unread: int = 0  # files that were believed by size, time and inode, because --quick was asked for
    left_alone: tuple[str, ...] = ()  # what is missing, and nothing unfinished needs, with --only-needed

    def __repr__(self) -> str:
        """What a person would ask first; the picture is as large as the run."""
        told = ("status", "run_id", "cost_usd", "needs_review")
        return f"RunResult({', '.join(f'{name}={getattr(self, name)!r}' for name in told)})"

    @property
    def exit_code(self) -> int:
        return _EXIT[self.status]

    @property
    def outputs(self) -> Mapping[str, Any]:
        """Step -> its output; of a fanned-out step, an ordered dict by item. Read and verified when asked for."""
        from holdfast.project.outputs import Outputs

        return Outputs(self.picture, self.layout)

    @property
    def directory(self) -> Path:
        """The project's folder."""
        return self.layout.root

    @property
    def quarantine(self) -> Path:
        """The folder with what was set aside as damaged, or was refused."""
        return self.layout.run(self.run_id).quarantine

    @property
    def not_up_to_date(self) -> str:
        """The view that does not show the run as it is, and why; or ""."""
        return note_on_todos(self.layout, self.picture.state)

    @property
    def document(self) -> RunDocument:
        """What `--json` prints, with all values: it is made when it is asked for."""
        from holdfast.project.results import run_document

        return run_document(self)


def carry_out(
    compiled: CompiledPipeline, layout: ProjectLayout, request: Request, hooks: Hooks, answer: Answer | None = None
) -> RunResult:
    """Carry a request out; what waits for an answer then is asked, and if there was one, the run continues."""
    if request.redo:
        check_redo(compiled, layout, request)
    while True:
        result = execute(compiled, layout, request, hooks)
        hooks.on_end(result)
        may_ask = answer is not None and result.status in (PAUSED, FAILED)
        if answer is None or not may_ask or not _ask_all(result, layout, answer, hooks):
            return result
        # An answer about one task does not begin another's attempts anew: those were used up just now.
        request = replace(request, resume=result.run_id, run_id=None, force=False, redo=(), no_retry=True)


def _ask_all(result: RunResult, layout: ProjectLayout, answer: Answer, hooks: Hooks) -> bool:
    """Ask about every task that waits for an answer and record the answers; True if there was one."""
    answered = False
    for task, record in result.picture.state.tasks.items():
        choices = answers(record)
        if not choices:
            continue
        choice = answer(Question(task, record.error, choices, {name: MEANINGS[name] for name in choices}))
        if choice is None:
            continue
        try:
            hooks.on_answer(decide(layout, result.run_id, task, choice, by="a person at the terminal"))
            answered = True
        except UsageError as error:  # it would change nothing as the files are now; what else is asked is not
            hooks.on_answer(f"{error.message} {error.fix}")
    return answered


def check_redo(compiled: CompiledPipeline, layout: ProjectLayout, request: Request) -> None:
    """UsageError unless everything to redo is a step of the pipeline or a task of the run."""
    choice = choose(compiled, layout, request)
    picture = None if choice.is_new else _as_declared_now(compiled, layout, choice.run_id)
    known = [producer.name for producer in compiled.spec.producers] + list(picture.tasks if picture else ())
    for name in request.redo:
        if picture is not None and name in picture.orphans():
            raise UsageError(f"redo (--redo): {name} {GONE}.", fix="Its files are kept.")
        if name not in known:
            hint = did_you_mean(name, known)
            raise UsageError(f"redo (--redo): there is no step or task '{printable(name, 160)}'.{hint}")


def _as_declared_now(compiled: CompiledPipeline, layout: ProjectLayout, run_id: str) -> Picture:
    """A run's record seen through the pipeline as its file is now."""
    state = read_run(layout, run_id).state
    renamed = renamed_steps(decode_spec(state), compiled.spec)
    declared = ev.PipelineDeclared(spec=encoded_spec(compiled), renamed=renamed)
    fold(state, declared, state.seq, state.updated_at or 0.0)
    return draw_run(layout, state)


def execute(
    compiled: CompiledPipeline, layout: ProjectLayout, request: Request, hooks: Hooks | None = None
) -> RunResult:
    """Carry a request out. Raises HoldfastError for mistakes, locks and disks; a failed task is a result."""
    hooks = hooks or Hooks()
    try:
        runs = list_runs(layout)
        choice = choose(compiled, layout, request)  # mistakes are told before anything is created
        make_folders(layout)
        with heard(hooks.stop), locked(layout, choice.run_id) as lock:
            if list_runs(layout) != runs:  # another engine was at work until now
                choice = choose(compiled, layout, request)
            with OpenRun(compiled, layout, request, choice, lock) as opened:
                return _Session(opened, hooks).run()
    except OSError as error:
        raise StorageError.from_os(error, "work on") from error


class _Session:
    """Everything of one run that goes on while it runs."""

    def __init__(self, opened: OpenRun, hooks: Hooks) -> None:
        self.open = opened
        self.compiled = opened.compiled
        self.layout = opened.layout
        self.request = opened.request
        self.choice = opened.choice
        self.run_layout = opened.run_layout
        self.state = opened.state
        self.artifacts = opened.artifacts
        self.committer = opened.committer
        self.hooks = hooks
        self._build()
        self.keeper.start_from(opened.tail_events)

    def _build(self) -> None:
        settings = self.request.settings
        # Items known from before are drawn at once, so that they are seen also where something waits for a person.
        items = known_items(self.compiled.spec, self.state, self.artifacts)
        graph = build_graph(self.compiled.spec, items)
        self.inputs = inputs = Inputs(graph, self.state, self.artifacts, self.layout.root)
        board = Board(inputs, self.compiled, self.committer)
        recorder = RunRecorder(
            self.committer,
            self.open.objects,
            self.open.tree,
            self._call_committer,
            board.halt,
        )
        looking = LookingRecorder(self.open.objects, self.open.tree, recorder)
        attempts = Attempts(inputs, self.compiled, recorder, looking)
        self.judge = self.open.judge(inputs, attempts, claims={})
        self.keeper = Keeper(self._refresh_views, self.open.write_snapshot, lambda: len(self.state.tasks))
        self.runner = Runner(
            board,
            judge=self.judge,
            attempts=attempts,
            limits=Limits(settings.concurrency, self.open.budget_usd, settings.grace_s),
            reference=f"{self.compiled.file}:{self.compiled.variable or self.compiled.spec.name}",
            observers=(self.hooks.on_events,),
        )
        self.views: ViewShelf = self.open.closing(ViewShelf(self.layout, self.run_layout))

    def _call_committer(self) -> None:
        self.runner.bodies.call_committer()

    # --- running -------------------------------------------------------------------------------------------

    def run(self) -> RunResult:
        self.hooks.on_begin(self._beginning())
        wishes, is_lost = self._wishes(), self.open.is_lost  # by what is on record, before it begins anew
        self.open.submit([*self._opening_events(), *wishes], durable=False)
        if is_lost:
            rebuild(self.open, self.views)
            self.keeper.start_from(self.state.seq)
        again = self._redo_ids() if self.request.redo else ()
        if again:
            self.open.submit([ev.RedoRequested(step_ids=again)], durable=False)
        self.runner.observers.insert(0, self.keeper)  # the views belong to its thread from now on
        self.runner.board.on_order = self.keeper.hurry
        self.hooks.on_open(self.picture)
        self.hooks.stop.open(self.runner.stop)
        folder = self.run_layout.logs.relative_to(self.layout.root).as_posix()
        logs = TaskLogs(self.open.tree, folder, self.runner.bodies.context, self.hooks.on_log)
        with logs:
            try:
                status = self.runner.run()
            finally:
                self.keeper.close()
                self._last_words()
        self.committer.close(ContextEndedError("the run has ended"))
        if self.runner.board.trouble is not None:
            raise self.runner.board.trouble
        picture = self.picture()
        asked = picture.tasks if picture.counts.get(NEEDS_REVIEW) else ()
        review = [task for task in asked if shown_status(picture, task) == NEEDS_REVIEW]
        return RunResult(
            status,
            self.state.run_id,
            self.state.cost_usd,
            review,
            picture,
            self.layout,
            len(self.artifacts.files.unread),
            tuple(path for paths in self.judge.left_alone.values() for path in paths),
        )

    def _beginning(self) -> Beginning:
        """What is told of it first; of what was begun in another folder only who names no run need know."""
        request, is_named = self.request, bool(self.request.resume or self.request.force or self.request.run_id)
        elsewhere = "" if is_named else begun_elsewhere(self.compiled, self.layout, self.choice)
        return Beginning(self.compiled, self.layout, request, self.choice, self.state, elsewhere)

    def _opening_events(self) -> Iterator[ev.Event]:
        if not self.state.run_id:
            yield from self.open.started()
        yield from self.open.told()
        if not self.state.seq:
            return
        if self.state.run_id:
            yield from self.open.declared()
        changed = not is_same(self.choice.params, self.state.params)
        yield ev.RunContinued(
            params=self.choice.params if changed else None,
            file=self.open.file(),
            fresh_attempts=not self.request.no_retry,
            budget_usd=self.request.settings.budget_usd,
            host=socket.gethostname(),
            pid=os.getpid(),
        )

    def _redo_ids(self) -> tuple[str, ...]:
        """The tasks that `--redo` names, by task id or by step, as the pipeline calls them now.

        Of those that are not finished only the ones that would count again, or get the result of a paid call back:
        the others run.
        """
        renamed = renamed_steps(decode_spec(self.state), self.compiled.spec)
        found: list[str] = []
        for task, record in self.state.tasks.items():
            name, path = split_task_id(task)
            name = renamed.get(name, name)
            now = task_id(name, path)
            has_made = record.status == COMPLETED or record.before is not None or task in self.state.once
            if has_made and (name in self.request.redo or now in self.request.redo):
                found.append(now)
        return tuple(found)

    # --- keeping -------------------------------------------------------------------------------------------

    def picture(self) -> Picture:
        """The run as it is now, drawn while nothing moves."""
        return self._drawn()[0]

    def _drawn(self) -> tuple[Picture, Graph]:
        drawn: tuple[Picture, Graph] = self.committer.exclusively(self._draw)
        return drawn

    def _draw(self) -> tuple[Picture, Graph]:
        """Items whose function has yet to run again are those that tasks on record speak of, as for any reader."""
        graph, state = self.runner.graph, copied(self.state)
        if state.reason and state.status != COMPLETED:  # stopped: here a phase that could begin was not looked at
            return draw_both(state, loading(self.open.objects))
        picture = draw_graph(graph, state)
        unknown = sum(task not in graph.nodes for task in state.tasks)
        if not unknown or unknown == len(picture.orphans()):
            return picture, graph
        return draw_both(state, loading(self.open.objects))

    def _wishes(self) -> list[ev.Event]:
        """What somebody wants who edited a view. A lost run's views are evidence, and have been read as such."""
        edited = self.views.edited(self.compiled.spec)
        is_lost = self.state.rebuilt or (self.choice.found_again and not self.state.run_id)
        if not edited or is_lost:
            return []
        return wanted(self.layout, edited, self.picture(), self.compiled.spec)

    def _refresh_views(self) -> None:
        wishes = self._wishes()
        if wishes:
            self.runner.hear(wishes)
        kept = self._write_views(sync=False)
        if kept:
            self.runner.hear(kept)

    def _write_views(self, *, sync: bool) -> list[ev.ArtifactSetAside]:
        picture, graph = self._drawn()
        self.committer.make_durable()  # a view never knows more than the journal keeps
        return kept_events(self.layout, self.views.write(picture, graph, sync=sync))

    def _last_words(self) -> None:
        """Snapshot and views at the stop. If the disk is full, the journal has everything all the same."""
        if self.committer.failed is not None:
            return
        try:
            self._write_last_words()
        except (OSError, StorageError):
            if self.runner.board.trouble is None:  # else that is told: the machine had it before
                raise

    def _write_last_words(self) -> None:
        self.open.say(self._wishes(), durable=False)  # nothing starts any more: the next run takes them up
        with self.open.snapshot_beside():
            shown = self.state.seq
            kept = self._write_views(sync=True)
        if kept:
            self.open.say(kept, durable=False)
        if self.state.seq > shown:
            self._write_views(sync=True)  # no view is older than the journal after a stop
