"""Somebody changed a view by hand: what they want becomes events before the view is written again.

Crash story. The edited view stays as it is until its wishes are in the journal; then it is kept beside itself as
NAME.bak.TIMESTAMP and written anew. Killed in between, the edit is found again, and what it asks for is on record
already: a task that is being sent back, or has been done again since, is not sent back twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast import clock
from holdfast import events as ev
from holdfast.folding import fold
from holdfast.journal.lines import decode_event
from holdfast.layout import CHECKPOINT_VIEW, ProjectLayout, RunLayout
from holdfast.pipeline.nodes import split_task_id, task_id
from holdfast.pipeline.spec import PipelineSpec, renamed_steps
from holdfast.recovery.sources import Views, read_unfinished
from holdfast.runs.looking import draw_run
from holdfast.runs.opening import open_journal
from holdfast.state import COMPLETED, SKIPPED, RunState
from holdfast.views.claims import Claims
from holdfast.views.edits import TURNED_BACK, WANTED_REDO, Wish, wishes
from holdfast.views.picture import Picture, decode_spec
from holdfast.views.shelf import Kept, ViewShelf


def wanted(layout: ProjectLayout, edited: Sequence[Claims], now: Picture, spec: PipelineSpec) -> list[ev.Event]:
    """What the edited views ask for that has not happened yet; `now` is the run as it is.

    The views were read by the names of `spec`: the record may have steps under earlier ones.
    """
    found: list[Wish] = []
    for claims in edited:
        if _is_of(claims, now):
            run = layout.run(now.state.run_id)
            state = _state_at(run, claims.seq)
            names = renamed_steps(decode_spec(state), spec)
            then, heard = draw_run(layout, _called(state, names, spec)), _heard(run, claims, names)
        else:
            then, heard = now, set()
        found += [wish for wish in wishes(claims, then) if (wish.task, wish.wanted) not in heard]
    names = renamed_steps(decode_spec(now.state), spec)
    return list(_events(found, _called(msgspec.structs.replace(now.state), names, spec)))


def _called(state: RunState, names: Mapping[str, str], spec: PipelineSpec) -> RunState:
    """The state with its tasks under the names that `spec` gives them."""
    if names:
        declared = ev.PipelineDeclared(spec=msgspec.Raw(msgspec.json.encode(spec)), renamed=dict(names))
        fold(state, declared, state.seq, state.updated_at or 0.0)
    return state


def foreseen_wishes(layout: ProjectLayout, spec: PipelineSpec, state: RunState) -> list[ev.Event]:
    """What the edited views of a run on record ask for, and a run of it would record first. Read-only."""
    if not state.run_id or state.rebuilt:
        return []  # the views of a lost run are evidence, and are read as such
    shelf = ViewShelf(layout, layout.run(state.run_id))
    try:
        edited = shelf.edited(spec)
        return wanted(layout, edited, draw_run(layout, state), spec) if edited else []
    finally:
        shelf.close()


def lost_wishes(layout: ProjectLayout, spec: PipelineSpec, state: RunState, views: Views) -> list[ev.Event]:
    """What somebody wants who turned tasks back in checkpoint.md before all record of the run was lost. Read-only.

    What the page showed before, no journal tells any more. But RESUME.md is drawn at the same moment, and lists
    all that was unfinished then: what it does not list was done. Without such a RESUME.md nobody can tell an edit
    from age, and the page asks for nothing.
    """
    page = next((view for view in views.claims if view.source == CHECKPOINT_VIEW and view.edited), None)
    then = read_unfinished(layout, spec) if page is not None else None
    if page is None or then is None or (then.run_id, then.seq) != (page.run_id, page.seq):
        return []
    back = {task: said for task, said in page.tasks.items() if said in TURNED_BACK and task not in then.tasks}
    found = [Wish(task, page.source, WANTED_REDO, said, COMPLETED) for task, said in back.items()]
    return list(_events([wish for wish in found if state.task(wish.task).status == COMPLETED], state))


def turned_back(events: Iterable[ev.Event]) -> dict[str, str]:
    """Task -> the view in which somebody asked to have it done again."""
    edits = [event for event in events if isinstance(event, ev.ViewEdited)]
    return {event.step_id: event.source for event in edits if event.wanted == WANTED_REDO}


def kept_events(layout: ProjectLayout, kept: Sequence[Kept]) -> list[ev.ArtifactSetAside]:
    """Where the edited views themselves were kept."""
    return [
        ev.ArtifactSetAside(step_id="", path=one.view, to=_relative(layout, one.kept_as), reason=one.why)
        for one in kept
    ]


def _is_of(claims: Claims, now: Picture) -> bool:
    return claims.is_stamped and claims.run_id == now.state.run_id


def _events(found: Iterable[Wish], state: RunState) -> Iterator[ev.Event]:
    """Each view is heard, also where another asks for the same: it may be there still when that has been done."""
    sent_back = set(state.recalls)
    for wish in found:
        record = state.task(wish.task)
        is_done = record.status == COMPLETED
        if wish.wanted == WANTED_REDO or not (is_done or record.claimed == wish.source):
            yield ev.ViewEdited(
                source=wish.source, step_id=wish.task, wanted=wish.wanted, said=wish.said, was=wish.was
            )
        if wish.wanted != WANTED_REDO or wish.task in sent_back:
            continue
        if is_done:
            yield ev.RewindRequested(step_id="", targets={wish.task: ""})
        elif record.status == SKIPPED:
            yield ev.RetryRequested(step_ids=(wish.task,))
        sent_back.add(wish.task)


def _heard(run: RunLayout, claims: Claims, names: Mapping[str, str]) -> set[tuple[str, str]]:
    """What this page was heard to ask for: a kill came before it was written anew, or a power cut undid that."""
    later = (decode_event(line.raw) for line in open_journal(run).read() if line.seq > claims.seq)
    edits = [event for event in later if isinstance(event, ev.ViewEdited) and event.source == claims.source]
    asked = [(*split_task_id(event.step_id), event.wanted) for event in edits if event.wanted == WANTED_REDO]
    return {(task_id(names.get(name, name), path), wish) for name, path, wish in asked}


def _state_at(run: RunLayout, seq: int) -> RunState:
    state = RunState()
    for line in open_journal(run).read():
        if line.seq > seq:
            break
        fold(state, decode_event(line.raw), line.seq, clock.parse_iso(line.ts))
    return state


def _relative(layout: ProjectLayout, path: Path) -> str:
    whole = path if path.is_absolute() else layout.root / path
    return os.path.relpath(whole, layout.root)
