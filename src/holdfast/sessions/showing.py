"""Brings the views of a run up to its record, for whoever recorded something while no engine was at work."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from holdfast import events as ev
from holdfast.journal.log import EventLog
from holdfast.layout import ProjectLayout
from holdfast.pipeline.graph import Graph
from holdfast.runs.listing import read_run
from holdfast.runs.looking import draw_run_both
from holdfast.sessions.editing import kept_events, wanted
from holdfast.stores.lock import read_holder
from holdfast.views.picture import Picture
from holdfast.views.shelf import ViewShelf


def refresh_views(layout: ProjectLayout, run_id: str) -> None:
    """Write all views, unless an engine is at work: it refreshes them itself, and at once after a decision.

    What somebody wants who edited a view is recorded first.
    """
    if read_holder(layout.engine_lock) is not None:
        return
    shelf = ViewShelf(layout, layout.run(run_id))
    try:
        picture, graph = _drawn(layout, run_id)
        wishes = wanted(layout, shelf.edited(picture.spec), picture, picture.spec)
        if wishes:
            append(layout, run_id, wishes)
            picture, graph = _drawn(layout, run_id)
        kept = kept_events(layout, shelf.write(picture, graph, sync=True))
        if kept:
            append(layout, run_id, kept)
            shelf.write(*_drawn(layout, run_id), sync=True)  # they know of it too
    finally:
        shelf.close()


def append(layout: ProjectLayout, run_id: str, events: Sequence[ev.Event]) -> None:
    """Record these events, as anybody may at any time."""
    run = layout.run(run_id)
    if events:
        with EventLog(run.journal, lock_path=layout.append_lock, quarantine=run.quarantine) as log:
            for event in events:
                log.append(msgspec.to_builtins(event))
            found = tuple(f"the journal: {words}" for words in log.take_notices())
            if found:
                log.append(msgspec.to_builtins(ev.StateMended(findings=found)))


def _drawn(layout: ProjectLayout, run_id: str) -> tuple[Picture, Graph]:
    picture, graph = draw_run_both(layout, read_run(layout, run_id).state)
    return replace(picture, is_left=True), graph
