"""Start a run or continue one: where definition, recovery, engine and views meet.

run_pipeline             what `pipe.run` calls
execute                  what the command line calls: one request in, one result out
  choose                 which run is meant: a new one, or one that is continued
  _Session               everything of one run that is open: journal, objects, lock, runner, keeper
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import holdfast
from holdfast import events as ev
from holdfast.artifacts import Artifacts
from holdfast.choosing import Choice, Request, choose
from holdfast.context import ContextEndedError
from holdfast.engine.attempt import Attempts
from holdfast.engine.board import Board
from holdfast.engine.commit import Committer, Recorded
from holdfast.engine.desk import EngineDesk, Saying
from holdfast.engine.drawing import draw_graph
from holdfast.engine.keeper import Keeper
from holdfast.engine.runner import Limits, Runner
from holdfast.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_WAITING,
    StorageError,
    UsageError,
)
from holdfast.executors.base import Executor
from holdfast.history import encode_state
from holdfast.inputs import Inputs, known_items
from holdfast.journal.log import EventLog
from holdfast.journal.repair import repair
from holdfast.layout import ProjectLayout, RunLayout
from holdfast.picture import Picture, decode_spec
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.graph import Node, build_graph
from holdfast.pipeline.spec import renamed_steps
from holdfast.recovery.evidence import Policy
from holdfast.recovery.judge import Judge
from holdfast.runs import list_runs, open_project, read_run
from holdfast.settings import load_settings
from holdfast.snapshots import next_number, rotate, write_snapshot
from holdfast.state import COMPLETED, FAILED, IN_PROGRESS, NEEDS_REVIEW, PAUSED, RunState
from holdfast.stores import atomic, disk
from holdfast.stores.lock import AppendLock, EngineLock
from holdfast.stores.objects import ObjectStore
from holdfast.stores.tree import WorkTree
from holdfast.tasklogs import LogObserver, TaskLogs
from holdfast.views.shelf import ViewShelf

if TYPE_CHECKING:
    from holdfast.pipeline.definition import Pipeline

_EXIT = {COMPLETED: EXIT_OK, FAILED: EXIT_FAILED, PAUSED: EXIT_WAITING, IN_PROGRESS: EXIT_INTERRUPTED}

Observer = Callable[[Sequence[Recorded]], None]


@dataclass(frozen=True, slots=True)
class Hooks:
    """Whoever wants to see the run while it happens: the terminal, a test."""

    on_begin: Callable[[Choice, RunState], None] = lambda choice, state: None
    on_events: Observer = lambda recorded: None
    on_log: LogObserver | None = None
    on_open: Callable[[Callable[[], Picture], Callable[[], None]], None] = lambda picture, stop: None
    signals: bool = True


@dataclass(frozen=True)
class RunResult:
    """How a run stands after `run`: also for failed and paused runs."""

    status: str
    run_id: str
    cost_usd: float
    needs_review: list[str]
    picture: Picture = field(repr=False)
    directory: Path = field(repr=False, default=Path())
    unread: int = 0  # files that were believed by size, time and inode, because --quick was asked for

    @property
    def exit_code(self) -> int:
        return _EXIT[self.status]

    @property
    def outputs(self) -> Mapping[str, Any]:
        """Step -> its output; of a fanned-out step, an ordered dict by item. Read and verified when asked for."""
        from holdfast.outputs import Outputs

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
    layout = open_project(dir)
    settings = load_settings(layout.root, {"concurrency": concurrency, "budget_usd": budget_usd})
    request = Request(params=dict(params or {}), resume=resume, force=force, run_id=run_id, settings=settings)
    return execute(pipeline.compile(), layout, request)


def execute(
    compiled: CompiledPipeline, layout: ProjectLayout, request: Request, hooks: Hooks | None = None
) -> RunResult:
    """Carry a request out. Raises HoldfastError for mistakes, locks and disks; a failed task is a result."""
    hooks = hooks or Hooks()
    try:
        runs = list_runs(layout)
        choice = choose(compiled, layout, request)  # mistakes are told before anything is created
        _make_folders(layout)
        with _locked(layout, choice.run_id) as lock:
            if list_runs(layout) != runs:  # another engine was at work until now
                choice = choose(compiled, layout, request)
            with _Session(compiled, layout, request, choice, lock, hooks) as session:
                return session.run()
    except OSError as error:
        raise StorageError.from_os(error, "work on") from error


def _make_folders(layout: ProjectLayout) -> None:
    for folder in (layout.state, layout.runs, layout.objects, layout.tmp):
        atomic.make_dirs(folder, sync=True)


@contextmanager
def _locked(layout: ProjectLayout, run_id: str) -> Iterator[EngineLock]:
    lock = EngineLock(layout.engine_lock)
    lock.acquire(run_id)
    try:
        yield lock
    finally:
        lock.release()


class _Session:
    """Everything of one run that is open while it goes on."""

    def __init__(
        self,
        compiled: CompiledPipeline,
        layout: ProjectLayout,
        request: Request,
        choice: Choice,
        lock: EngineLock,
        hooks: Hooks,
    ) -> None:
        self.compiled = compiled
        self.layout = layout
        self.request = request
        self.choice = choice
        self.hooks = hooks
        self.run_layout = layout.run(choice.run_id)
        self.state = RunState()
        self._lock = lock
        self._stack = ExitStack()

    # --- opening -------------------------------------------------------------------------------------------

    def __enter__(self) -> _Session:
        try:
            self._open()
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stack.close()
        if self.choice.is_new and kind is not None:
            _remove_unbegun(self.run_layout)

    def _open(self) -> None:
        layout, run = self.layout, self.run_layout
        atomic.clear_litter(layout.tmp)
        if self.choice.is_new:
            atomic.make_dirs(run.dir, sync=True)
            position, tail = None, 0
        else:
            history = self._read_history()
            self.state, position, tail = history.state, history.position, history.tail_events
        self.journal = self._closing(
            EventLog(run.journal, lock_path=layout.append_lock, quarantine=run.quarantine, start=position)
        )
        self.objects = self._closing(ObjectStore(layout.objects, self.choice.run_id, layout.tmp, run.quarantine))
        self.tree = self._closing(WorkTree(layout.root, layout.tmp))
        self.artifacts = Artifacts(self.tree, self.objects, quick=self.request.quick)
        self.committer = Committer(self.journal, self.objects, self._lock.check, self.state)
        self._build()
        self.keeper.start_from(tail)

    def _read_history(self) -> Any:
        history = read_run(self.layout, self.choice.run_id, quarantine=True)
        if history.journal_damage:
            with AppendLock(self.layout.append_lock):
                repair(self.run_layout.journal, self.run_layout.quarantine, known_seq=history.state.seq)
            history = read_run(self.layout, self.choice.run_id, quarantine=True)
        return history

    def _closing(self, resource: Any) -> Any:
        self._stack.callback(resource.close)
        return resource

    def _build(self) -> None:
        settings = self.request.settings
        # Items known from before are drawn at once, so that they are seen also where something waits for a person.
        items = known_items(self.compiled.spec, self.state, self.artifacts)
        graph = build_graph(self.compiled.spec, items)
        inputs = Inputs(graph, self.state, self.artifacts, self.layout.root)
        desk = EngineDesk(self.committer, self.objects, self.tree, self.layout.tmp, self._call_committer)
        attempts = Attempts(self.state, inputs, self.artifacts, self.compiled, self.run_layout.quarantine, desk)
        judge = self._judge(inputs, attempts)
        self.keeper = Keeper(self._refresh_views, self._write_snapshot, lambda: len(self.state.tasks))
        self.runner = Runner(
            Board(self.state, graph, self.compiled, inputs, self.committer),
            judge=judge,
            attempts=attempts,
            limits=Limits(settings.concurrency, self._budget_usd(), settings.grace_s),
            process_executor=self._process_executor,
            observers=(self.keeper, self.hooks.on_events),
        )
        self.views = self._closing(ViewShelf(self.layout, self.run_layout))

    def _budget_usd(self) -> float | None:
        """As asked for now, else as the run was started with: a limit that a person set is not forgotten."""
        wanted = self.request.settings.budget_usd
        return wanted if wanted is not None else self.state.budget_usd

    def _call_committer(self) -> None:
        self.runner.call_committer()

    def _judge(self, inputs: Inputs, attempts: Attempts) -> Judge:
        request, checks = self.request, self.compiled.checks

        def checker(node: Node, output: Any) -> str:
            return attempts.check_again(checks.get(node.spec.name, ()), node, output)

        # Runs that can still be read: a folder whose record is lost owns nothing any more.
        others = frozenset(info.run_id for info in list_runs(self.layout)) - {self.choice.run_id}
        take_over = self.choice.take_over or self.compiled.spec.overwrite
        return Judge(
            self.state,
            inputs,
            self.artifacts,
            policy=Policy(
                request.settings.on_changed,
                request.settings.on_partial,
                adopt=not self.choice.set_aside,
                only_needed=request.only_needed,
            ),
            quarantine=self.run_layout.quarantine,
            checker=checker,
            migrations=self.compiled.migrations,
            living_runs=frozenset() if take_over else others,
            take_over=take_over,
        )

    def _process_executor(self) -> Executor:
        from holdfast.executors.processes import ProcessExecutor

        if self.compiled.file is None:
            raise UsageError("executor='process' needs the pipeline in a file.")
        reference = self.compiled.file + (f":{self.compiled.variable or self.compiled.spec.name}")
        return ProcessExecutor(reference, self.layout.root)

    # --- running -------------------------------------------------------------------------------------------

    def run(self) -> RunResult:
        self.hooks.on_begin(self.choice, self.state)
        self.committer.submit(Saying(self.committer, tuple(self._opening_events()), durable=False))
        self.hooks.on_open(self.picture, self.runner.stop)
        with TaskLogs(self.run_layout.logs, self.hooks.on_log), self._signals():
            try:
                status = self.runner.run()
            finally:
                self.keeper.close()
                self._last_words()
        self.committer.close(ContextEndedError("the run has ended"))
        picture = self.picture()
        review = [task for task, record in self.state.tasks.items() if record.status == NEEDS_REVIEW]
        unread = len(self.artifacts.unread)
        return RunResult(status, self.state.run_id, self.state.cost_usd, review, picture, self.layout.root, unread)

    def _opening_events(self) -> Iterator[ev.Event]:
        host, pid = socket.gethostname(), os.getpid()
        spec = msgspec.json.encode(self.compiled.spec)
        if self.choice.is_new:
            yield ev.RunStarted(
                run_id=self.choice.run_id,
                pipeline=self.compiled.spec.name,
                ordinal=self.choice.ordinal,
                params=self.choice.params,
                file=self._file(),
                budget_usd=self.request.settings.budget_usd,
                host=host,
                pid=pid,
                holdfast=holdfast.__version__,
                rebuilt=self.choice.found_again,
            )
            yield ev.PipelineDeclared(spec=msgspec.Raw(spec))
            return
        if bytes(self.state.spec) != spec:
            renamed = renamed_steps(decode_spec(self.state), self.compiled.spec)
            yield ev.PipelineDeclared(spec=msgspec.Raw(spec), renamed=renamed)
        changed = self.choice.params != self.state.params
        yield ev.RunContinued(
            params=self.choice.params if changed else None,
            file=self._file(),
            fresh_attempts=not self.request.no_retry,
            budget_usd=self.request.settings.budget_usd,
            host=host,
            pid=pid,
        )
        if self.request.redo:
            yield ev.RedoRequested(step_ids=self._redo_ids())

    def _redo_ids(self) -> tuple[str, ...]:
        """The finished tasks that `--redo` names, by task id or by step."""
        found: list[str] = []
        for wanted in self.request.redo:
            hits = [
                t
                for t, r in self.state.tasks.items()
                if r.status == COMPLETED and wanted in (t, t.partition("[")[0])
            ]
            found += hits
        return tuple(dict.fromkeys(found))

    def _file(self) -> str:
        """The pipeline's file as the next command can use it: relative to the project where possible."""
        if self.compiled.file is None:
            return ""
        path = Path(self.compiled.file)
        try:
            text = str(path.relative_to(self.layout.root))
        except ValueError:
            text = str(path)
        return text if self.compiled.variable is None else f"{text}:{self.compiled.variable}"

    def _signals(self) -> AbstractContextManager[None]:
        return _handled_signals(self.runner.stop, self.hooks.signals)

    # --- keeping -------------------------------------------------------------------------------------------

    def picture(self) -> Picture:
        """The run as it is now, drawn while nothing moves."""
        picture: Picture = self.committer.exclusively(self._draw)
        return picture

    def _draw(self) -> Picture:
        return draw_graph(self.runner.graph, _copied(self.state))

    def _refresh_views(self, *, sync: bool = False) -> None:
        picture = self.picture()
        self.journal.sync()  # a view never knows more than the journal keeps
        self.views.write(picture, self.runner.graph, sync=sync)

    def _write_snapshot(self) -> None:
        def encode() -> tuple[int, bytes]:
            number = next_number(self.run_layout.dir, self.state.snapshot_number)
            return number, encode_state(self.state, self.journal.position)

        number, payload = self.committer.exclusively(encode)
        self.journal.sync()  # nor does a snapshot
        write_snapshot(self.run_layout.dir, number, payload, tmp_dir=self.layout.tmp)
        # So that the number is not used again, even if every snapshot is lost.
        self.committer.submit(Saying(self.committer, (ev.SnapshotWritten(number=number),), durable=False))
        self.committer.pump()
        rotate(self.run_layout.dir, self.request.settings.snapshots)

    def _last_words(self) -> None:
        """Snapshot and views at the stop. If the disk is full, the journal has everything all the same."""
        if self.committer.failed is not None:
            return
        self._write_snapshot()
        self._refresh_views(sync=True)


def _remove_unbegun(run: RunLayout) -> None:
    """Take away the folder of a run of which nothing was recorded; anything else in it stays, and so does it."""
    try:
        if run.journal.stat().st_size == 0:
            disk.unlink(os.fspath(run.journal))
    except FileNotFoundError:
        pass
    try:
        disk.rmdir(os.fspath(run.dir))
    except OSError:
        pass  # not empty, or never made: it harms nobody


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _handled_signals(stop: Callable[[], None], wanted: bool) -> Iterator[None]:
    """SIGINT and SIGTERM stop the run kindly, if this is the main thread; else the caller has them."""
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    # What is ignored stays ignored: nohup, or a shell that runs us in the background, said so.
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda *_: stop()) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _copied(state: RunState) -> RunState:
    """A picture's own tables: tasks are replaced, never changed, so copying the tables is enough."""
    return msgspec.structs.replace(
        state,
        tasks=dict(state.tasks),
        sections=dict(state.sections),
        gates=dict(state.gates),
        phases=dict(state.phases),
        notes=list(state.notes),
        decisions=list(state.decisions),
        surprises=list(state.surprises),
        once={},
    )
