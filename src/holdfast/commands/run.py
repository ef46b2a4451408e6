"""Start a run or continue one: where definition, recovery, engine and views meet.

run_pipeline             what `pipe.run` calls
execute                  what the command line calls: one request in, one result out
  choose                 which run is meant: a new one, or one that is continued
  OpenRun                the run on disk: lock, journal, objects, work tree (sessions/session.py)
  _Session               what goes on while it runs: runner, keeper, views
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import events as ev
from holdfast.artifacts.inputs import Inputs, known_items
from holdfast.commands.arguments import name_arguments
from holdfast.commands.recover import rebuild
from holdfast.engine.attempt import Attempts
from holdfast.engine.board import Board
from holdfast.engine.drawing import draw_both, draw_graph
from holdfast.engine.forked import have_children_take
from holdfast.engine.keeper import Keeper
from holdfast.engine.recorder import LookingRecorder, RunRecorder
from holdfast.engine.runner import Limits, Observer, Runner
from holdfast.engine.tasklogs import LogObserver, TaskLogs
from holdfast.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_WAITING,
    HoldfastError,
    StorageError,
    UsageError,
)
from holdfast.host import ContextEndedError
from holdfast.layout import ProjectLayout
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.graph import Graph, build_graph, in_order
from holdfast.pipeline.loader import locate
from holdfast.pipeline.names import as_given, as_path, printable
from holdfast.pipeline.nodes import split_task_id, task_id
from holdfast.pipeline.spec import renamed_steps
from holdfast.runs.choosing import Choice, Request, choose
from holdfast.runs.listing import list_runs, open_project
from holdfast.runs.looking import loading
from holdfast.sessions.editing import kept_events, wanted
from holdfast.sessions.session import OpenRun, copied, locked, make_folders
from holdfast.settings import load_settings
from holdfast.signals import to_be_heard
from holdfast.state import COMPLETED, FAILED, IN_PROGRESS, NEEDS_REVIEW, PAUSED, RunState
from holdfast.tuning import collect_what_was_kept, seldom
from holdfast.values import is_same
from holdfast.views.matrix import shown_status
from holdfast.views.picture import Picture, decode_spec
from holdfast.views.shelf import ViewShelf

if TYPE_CHECKING:
    from holdfast.pipeline.definition import Pipeline

_EXIT = {COMPLETED: EXIT_OK, FAILED: EXIT_FAILED, PAUSED: EXIT_WAITING, IN_PROGRESS: EXIT_INTERRUPTED}


class Hooks(msgspec.Struct, frozen=True):
    """Whoever wants to see the run while it happens: the terminal, a test."""

    on_begin: Callable[[Choice, RunState], None] = lambda choice, state: None
    on_events: Observer = lambda recorded: None
    on_log: LogObserver | None = None
    on_open: Callable[[Callable[[], Picture], Callable[[], None]], None] = lambda picture, stop: None
    signals: bool = True


class RunResult(msgspec.Struct, frozen=True):
    """How a run stands after `run`: also for failed and paused runs.

    `status` is "completed", "failed", "paused", or "in_progress" if a signal stopped it; `exit_code` is that of
    `holdfast run`. `needs_review` lists the tasks that wait for a person, `cost_usd` is all that was spent.
    """

    status: str
    run_id: str
    cost_usd: float
    needs_review: list[str]
    picture: Picture
    directory: Path = Path()
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
        from holdfast.commands.outputs import Outputs

        return Outputs(self.picture, self.directory)


def run_pipeline(
    pipeline: Pipeline,
    *,
    params: Mapping[str, Any] | None = None,
    dir: str | os.PathLike[str] = ".",
    concurrency: int | None = None,
    budget_usd: float | None = None,
    resume: str | None = None,
    force: bool = False,
    run_id: str | None = None,
) -> RunResult:
    """Run a pipeline, or continue it where it stopped."""
    if params is not None and not isinstance(params, Mapping):
        raise UsageError(f"params must be a dict, not {printable(params)}.")
    if not isinstance(force, bool):
        raise UsageError(f"force must be True or False, not {as_given(force)}.")
    try:
        layout = open_project(as_path(dir, "dir"))
        settings = load_settings(layout.root, {"concurrency": concurrency, "budget_usd": budget_usd})
        request = Request(params=dict(params or {}), resume=resume, force=force, run_id=run_id, settings=settings)
        return execute(locate(pipeline), layout, request)
    except HoldfastError as error:
        name_arguments(error)
        raise


def execute(
    compiled: CompiledPipeline, layout: ProjectLayout, request: Request, hooks: Hooks | None = None
) -> RunResult:
    """Carry a request out. Raises HoldfastError for mistakes, locks and disks; a failed task is a result."""
    hooks = hooks or Hooks()
    collect_what_was_kept()  # by an earlier run of this process
    try:
        runs = list_runs(layout)
        choice = choose(compiled, layout, request)  # mistakes are told before anything is created
        mended = make_folders(layout)
        with locked(layout, choice.run_id) as lock:
            if list_runs(layout) != runs:  # another engine was at work until now
                choice = choose(compiled, layout, request)
            with OpenRun(compiled, layout, request, choice, lock, mended) as opened:
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
        with seldom():
            graph = build_graph(self.compiled.spec, items)
        self.inputs = inputs = Inputs(graph, self.state, self.artifacts, self.layout.root)
        board = Board(inputs, self.compiled, self.committer)
        recorder = RunRecorder(
            self.committer,
            self.open.objects,
            self.open.tree,
            self.layout.tmp,
            self._call_committer,
            board.halt,
        )
        looking = LookingRecorder(self.open.objects, self.layout.tmp, recorder)
        attempts = Attempts(inputs, self.compiled, self.run_layout.quarantine, recorder, looking)
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
        self.hooks.on_begin(self.choice, self.state)
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
        self.hooks.on_open(self.picture, self.runner.stop)
        self.inputs.expect_files(in_order(self.inputs.graph), unrecorded=False)
        logs = TaskLogs(self.run_layout.logs, self.runner.bodies.context, self.hooks.on_log)
        with logs, _handled_signals(self.runner.stop, self.hooks.signals):
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
            self.layout.root,
            len(self.artifacts.files.unread),
            tuple(path for paths in self.judge.left_alone.values() for path in paths),
        )

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
        with seldom():  # nothing else is at work any more
            with self.open.snapshot_beside():
                shown = self.state.seq
                kept = self._write_views(sync=True)
            if kept:
                self.open.say(kept, durable=False)
            if self.state.seq > shown:
                self._write_views(sync=True)  # no view is older than the journal after a stop


@contextmanager
def _handled_signals(stop: Callable[[], None], wanted: bool) -> Iterator[None]:
    """SIGINT and SIGTERM stop the run kindly, if this is the main thread; else the caller has them."""
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop()) for number in to_be_heard()}
    have_children_take(before)
    try:
        yield
    finally:
        have_children_take({})
        for number, handler in before.items():
            signal.signal(number, handler)
