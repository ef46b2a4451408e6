"""Brings the views of a run up to its record, for whoever recorded something while no engine was at work."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast import clock
from holdfast import events as ev
from holdfast.journal.lines import encode_event
from holdfast.layout import ProjectLayout
from holdfast.pipeline.graph import Graph
from holdfast.runs.listing import read_run
from holdfast.runs.looking import draw_run_both
from holdfast.runs.opening import open_journal, open_lease
from holdfast.sessions.editing import kept_events, wanted
from holdfast.views.picture import Picture
from holdfast.views.shelf import ViewShelf


def refresh_views(layout: ProjectLayout, run_id: str) -> None:
    """Write all views, unless an engine is at work: it refreshes them itself, and at once after a decision.

    What somebody wants who edited a view is recorded first.
    """
    if open_lease(layout).holder() is not None:
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
    if not events:
        return
    journal = open_journal(layout.run(run_id))
    try:
        batch = journal.begin()
        try:
            found = tuple(f"the journal: {words}" for words in journal.take_notices())
            ts = clock.iso(clock.now())
            for event in (*events, *([ev.StateMended(findings=found)] if found else [])):
                batch.add(encode_event(event), ts)
        except BaseException:
            batch.abort()
            raise
        batch.commit()
        journal.sync()
    finally:
        journal.close()


def _drawn(layout: ProjectLayout, run_id: str) -> tuple[Picture, Graph]:
    picture, graph = draw_run_both(layout, read_run(layout, run_id).state)
    return replace(picture, is_left=True), graph
