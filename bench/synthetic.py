"""A finished run of any size, made without running it: events through the real journal, fold and snapshot."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

import workloads
from holdfast import clock
from holdfast import events as ev
from holdfast.engine.drawing import draw
from holdfast.folding import fold
from holdfast.journal.lines import encode_event
from holdfast.layout import ProjectLayout, RunLayout
from holdfast.runs.history import encode_state
from holdfast.runs.looking import loading
from holdfast.runs.opening import open_journal
from holdfast.snapshots import write_snapshot
from holdfast.state import COMPLETED, RunState
from holdfast.stores import atomic
from holdfast.stores.objects import LocalObjects
from holdfast.stores.protocols import START, Journal, Position
from holdfast.views.summary import encode_summary

RUN_ID = "synthetic"
_BATCH = 1000
_VALUE = msgspec.Raw(b"1")


def finished_run(project: Path, tasks: int) -> None:
    """A project with one completed run of about `tasks` tasks, as `long_run` would leave it."""
    layout = ProjectLayout(project)
    run = layout.run(RUN_ID)
    for folder in (run.dir, layout.objects, layout.tmp):
        atomic.make_dirs(folder, sync=False)
    state = RunState()
    journal = open_journal(run)
    position = _record(journal, state, list(_events(tasks)))
    journal.close()
    write_snapshot(run.dir, 1, encode_state(state, position), tmp_dir=layout.tmp)
    _write_summary(layout, run, state)


def _record(journal: Journal, state: RunState, events: list[ev.Event]) -> Position:
    position = START
    for first in range(0, len(events), _BATCH):
        batch = journal.begin(position)
        at = clock.now()
        for event in events[first : first + _BATCH]:
            fold(state, event, batch.add(encode_event(event), clock.iso(at)), at)
        position = batch.commit()
    journal.sync()
    return position


def _events(tasks: int) -> Iterator[ev.Event]:
    items = tasks // workloads.STEPS
    pipe = workloads.long_run(items)
    yield ev.RunStarted(run_id=RUN_ID, pipeline=pipe.name, ordinal=1)
    yield ev.PipelineDeclared(spec=msgspec.Raw(msgspec.json.encode(pipe.compile().spec)))
    yield from _task("s0", "s0", "")
    for number in range(1, workloads.STEPS + 1):
        for item in workloads.item_ids(items):
            parent = f"s{number - 1}[{item}]" if number > 1 else "s0"
            yield from _task(f"s{number}[{item}]", f"s{number}", parent)
    yield ev.RunStopped(status=COMPLETED)


def _task(task: str, step: str, parent: str) -> Iterator[ev.Event]:
    parents = (parent,) if parent else ()
    yield ev.NodeEntered(step_id=task, node=step, parent_id=parent, parents=parents)
    digest = hashlib.sha256(task.encode()).hexdigest()
    yield ev.NodeExited(
        step_id=task,
        node=step,
        status=COMPLETED,
        parent_id=parent,
        duration=0.001,
        input_digest=digest,
        inputs={parent.partition("[")[0]: digest[:12]} if parent else {},
        output_digest=digest,
        value=_VALUE,
    )


def _write_summary(layout: ProjectLayout, run: RunLayout, state: RunState) -> None:
    """checkpoint.json, which tells `status` that this is the run it means; the other views are not read."""
    objects = LocalObjects(layout.objects, RUN_ID, layout.tmp, read_only=True)
    picture = draw(state, loading(objects))
    objects.close()
    atomic.write_file(run.summary, encode_summary(picture), sync=False)
