"""One run open for writing: engine lock, journal, objects and work tree; what `run`, `resume` and `recover` share.

Crash story. Opening proves the journal from its first line on, and repairs what a dead process left: litter in
tmp/, a torn or damaged journal, a torn pack. It records nothing by itself. A run of which nothing was recorded
leaves no folder behind.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

import holdfast
from holdfast import events as ev
from holdfast import threads
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.keeping import Artifacts
from holdfast.engine.attempt import Attempts
from holdfast.engine.commit import Committer, Entry
from holdfast.engine.recorder import Saying
from holdfast.errors import HoldfastError, UsageError
from holdfast.layout import ProjectLayout, RunLayout
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.spec import renamed_steps
from holdfast.recovery.judge import Judge
from holdfast.runs.choosing import Choice, Request
from holdfast.runs.history import History, encode_state
from holdfast.runs.listing import read_run, refuse_strange_run
from holdfast.runs.looking import as_recorded
from holdfast.runs.opening import open_files, open_journal, open_lease, open_objects
from holdfast.sessions.judging import judge_for
from holdfast.sessions.mending import mend_objects, mended_events
from holdfast.snapshots import next_number, rotate, snapshots, write_snapshot
from holdfast.state import RunState
from holdfast.stores import atomic, disk, readable, temporaries
from holdfast.stores.protocols import START, Files, Journal, Lease, Objects
from holdfast.views.picture import decode_spec
from holdfast.wording import writable


def make_folders(layout: ProjectLayout) -> None:
    """Make the project's folders."""
    atomic.make_dirs(layout.state, sync=True)
    for folder in (layout.runs, layout.objects, layout.tmp):
        atomic.make_dirs(folder, sync=False)
    disk.sync_dir(layout.state)  # also where they were there: an earlier process may have been killed before this


@contextmanager
def locked(layout: ProjectLayout, run_id: str) -> Iterator[Lease]:
    """The right to run this project; LockedError if another process has it."""
    lease = open_lease(layout)
    lease.hold(run_id)
    try:
        yield lease
    finally:
        lease.release()


class _Awaited(Entry):
    """An entry, and whether it is over with it."""

    def __init__(self, entry: Entry) -> None:
        self.durable = entry.durable
        self.over = threading.Event()
        self._entry = entry

    def ready(self) -> None:
        self._entry.ready()

    def apply(self) -> None:
        self._entry.apply()

    def done(self, error: BaseException | None) -> None:
        self._entry.done(error)
        self.over.set()


class OpenRun:
    """Journal, objects and work tree of one run, under the engine lock. A context manager."""

    def __init__(
        self,
        compiled: CompiledPipeline,
        layout: ProjectLayout,
        request: Request,
        choice: Choice,
        lease: Lease,
    ) -> None:
        self.compiled = compiled
        self.layout = layout
        self.request = request
        self.choice = choice
        self.run_layout = layout.run(choice.run_id)
        self.state = RunState()
        self.tail_events = 0  # journal lines read after the newest snapshot
        self.damage: list[str] = []  # what was wrong with journal and snapshots, and is mended
        self.mended: list[str] = []  # what was wrong with our own state, and what was done about it
        self._lost_calls: dict[str, tuple[str, ...]] = {}
        self._lease = lease
        self._stack = ExitStack()

    def __enter__(self) -> OpenRun:
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

    def _close_journal(self) -> None:
        """An engine that was replaced touches nothing any more."""
        is_ours = False
        with suppress(HoldfastError):
            is_ours = self._lease.is_ours()
        self.journal.close(untouched=not is_ours)

    def closing(self, resource: Any) -> Any:
        """`resource`, closed together with the run."""
        self._stack.callback(resource.close)
        return resource

    def _open(self) -> None:
        layout, run = self.layout, self.run_layout
        refuse_strange_run(layout, self.choice.run_id)
        temporaries.clear_litter(layout.tmp)
        self.journal: Journal = open_journal(run, for_engine=True)
        self._stack.callback(self._close_journal)
        position = START
        if not self.journal.is_there() and not snapshots(run.dir):
            atomic.make_dirs(run.dir, sync=True)
        else:
            history = self._read_history()
            self.state, position, self.tail_events = history.state, history.position, history.tail_events
            self.compiled = as_recorded(self.compiled, self.state)
        self.objects: Objects = self.closing(open_objects(layout, self.choice.run_id, quarantine=run.quarantine))
        self.tree: Files = self.closing(open_files(layout, quarantine=run.quarantine))
        self.artifacts = Artifacts(self.tree, self.objects, quick=self.request.quick)
        self.committer = Committer(self.journal, self.objects, self._lease, self.state, position)
        self._mend_objects()

    def _read_history(self) -> History:
        """The run as it is on record. One whose beginning is lost has no id yet: `started` gives it back."""
        read = partial(read_run, self.layout, self.choice.run_id, quarantine=True, must_begin=False)
        history = read()
        self.mended += history.damage
        self.damage = list(history.damage)
        if history.journal_damage or not self._is_proved(history):
            self._repair(known_seq=history.state.seq)
            history = read()
        elif history.tail:
            words = f"{history.tail} at the journal's end are kept in quarantine"
            self.mended.append(words)
            self.damage.append(words)
        return history

    def _is_proved(self, history: History) -> bool:
        """Whether the lines are whole that the snapshot spares us reading; `--quick` believes it."""
        return self.request.quick or self.journal.is_whole(history.begun)

    def _repair(self, *, known_seq: int) -> None:
        found = self.journal.repair(known_seq=known_seq)
        self.damage += found
        self.mended += found[-1:]  # all is in the journal

    def _mend_objects(self) -> None:
        if self.choice.is_new and not self.choice.found_again:  # there is no pack yet
            return
        mended, self._lost_calls = mend_objects(self.artifacts, self.state, prove=not self.request.quick)
        self.mended += mended

    def judge(self, inputs: Inputs, attempts: Attempts, claims: Mapping[str, str]) -> Judge:
        """Who decides about this run's tasks."""
        return judge_for(
            inputs, self.layout, self.request, self.choice, self.run_layout.quarantine, attempts, claims
        )

    # --- recording -----------------------------------------------------------------------------------------

    def submit(self, events: Iterable[ev.Event], *, durable: bool) -> None:
        """Put events into the inbox; somebody must pump."""
        self.committer.submit(Saying(self.committer, tuple(events), durable=durable))

    def record(self, entry: Entry) -> None:
        """Have an entry committed now; raises what the disk or the lock said.

        Another thread may be committing: then that one takes the entry along, and it is waited for.
        """
        awaited = _Awaited(entry)
        self.committer.commit(awaited)
        awaited.over.wait()
        if self.committer.failed is not None:
            raise self.committer.failed

    def say(self, events: Iterable[ev.Event], *, durable: bool) -> None:
        """Record these events now."""
        self.record(Saying(self.committer, tuple(events), durable=durable))

    @property
    def is_lost(self) -> bool:
        """Whether the evidence has to be gone through first: there is no record, or it begins in the middle."""
        lacks_beginning = bool(self.state.seq) and not self.state.run_id
        return self.choice.found_again or self.state.rebuilt or lacks_beginning

    @property
    def budget_usd(self) -> float | None:
        """As asked for now, else as the run was started with: a limit that a person set is not forgotten."""
        known = [self.request.settings.budget_usd, self.state.budget_usd, self.choice.budget_usd]
        return next((budget for budget in known if budget is not None), None)

    def started(self) -> Iterator[ev.Event]:
        """The first events of a new record."""
        yield ev.RunStarted(
            run_id=self.choice.run_id,
            pipeline=self.compiled.spec.name,
            ordinal=self.choice.ordinal,
            params=self.choice.params,
            file=self.file(),
            budget_usd=self.budget_usd,
            host=socket.gethostname(),
            pid=os.getpid(),
            holdfast=holdfast.__version__,
            rebuilt=self.is_lost,
            forced=self.choice.set_aside,
        )
        yield ev.PipelineDeclared(spec=encoded_spec(self.compiled))
        if self.choice.tags:
            yield ev.Tagged(step_id="", fields=dict(self.choice.tags))

    def told(self) -> Iterator[ev.Event]:
        """What was mended while the run was opened, if anything was."""
        yield from mended_events(self.mended, self._lost_calls)

    def declared(self) -> Iterator[ev.Event]:
        """The pipeline, if it is not the recorded one."""
        spec = encoded_spec(self.compiled)
        if bytes(self.state.spec) != bytes(spec):
            renamed = renamed_steps(decode_spec(self.state), self.compiled.spec)
            yield ev.PipelineDeclared(spec=spec, renamed=renamed)

    def file(self) -> str:
        """The pipeline's file as the next command can use it: relative to the project, wherever that is moved."""
        if self.compiled.file is None:
            return ""
        path = Path(self.compiled.file)
        try:
            text = str(path.relative_to(self.layout.root))
        except ValueError:  # `..` leads out of the real folder, whatever link leads into it
            folder = os.path.relpath(os.path.realpath(path.parent), os.path.realpath(self.layout.root))
            text = os.path.normpath(os.path.join(folder, path.name))
        if text != writable(text):
            raise UsageError(f"The pipeline's path {writable(text)} is not UTF-8.", fix="Rename it.")
        return text if self.compiled.variable is None else f"{text}:{self.compiled.variable}"

    def write_snapshot(self) -> None:
        """Save the fold of the journal as it is now."""
        with self.snapshot_beside():
            pass

    @contextmanager
    def snapshot_beside(self) -> Iterator[None]:
        """Save the fold of the journal as it is now, while something else is done, but nothing recorded."""
        number = next_number(self.run_layout.dir, self.state.snapshot_number)
        # Before it is written: its number is not used again, even if every snapshot is lost.
        self.submit((ev.SnapshotWritten(number=number),), durable=False)
        self.committer.pump()
        damaged: list[str] = []
        with threads.beside(lambda: self._keep_snapshot(number, damaged)):
            yield
        if damaged:
            self.submit((ev.StateMended(findings=tuple(damaged)),), durable=False)
            self.committer.pump()

    def _keep_snapshot(self, number: int, damaged: list[str]) -> None:
        """Write it, then drop the oldest; what is found to be wrong with those that stay goes into `damaged`."""
        payload = self.committer.exclusively(lambda: encode_state(self.state, self.committer.position))
        self.committer.make_durable()  # a snapshot never knows more than the journal keeps
        written = write_snapshot(self.run_layout.dir, number, payload, tmp_dir=self.layout.tmp)
        keep, quarantine = self.request.settings.snapshots, self.run_layout.quarantine
        rotate(self.run_layout.dir, keep, written=written, quarantine=quarantine, damaged=damaged)


def encoded_spec(compiled: CompiledPipeline) -> msgspec.Raw:
    """The pipeline as the journal records it."""
    return msgspec.Raw(msgspec.json.encode(compiled.spec))


def copied(state: RunState) -> RunState:
    """A picture's own tables: tasks are replaced, never changed, so copying the tables is enough."""
    return msgspec.structs.replace(
        state,
        tasks=dict(state.tasks),
        sections=dict(state.sections),
        gates=dict(state.gates),
        recalls=dict(state.recalls),
        phases=dict(state.phases),
        notes=list(state.notes),
        decisions=list(state.decisions),
        surprises=list(state.surprises),
        once={},
    )


def _remove_unbegun(run: RunLayout) -> None:
    """Take away the folder of a run of which nothing was recorded; anything else in it stays, and so does it."""
    try:
        if readable.is_there(run.journal) and os.lstat(run.journal).st_size == 0:
            disk.unlink(os.fspath(run.journal))
        disk.rmdir(os.fspath(run.dir))
    except OSError:
        pass  # not empty, or never made: it harms nobody, and the error that brought us here is the one to show
