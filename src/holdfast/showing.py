"""Brings the views of a run up to its record, for whoever recorded something while no engine was at work."""

from __future__ import annotations

from holdfast.engine.drawing import draw_both
from holdfast.layout import ProjectLayout
from holdfast.runs import load_value, read_run
from holdfast.stores.lock import read_holder
from holdfast.stores.objects import ObjectStore
from holdfast.views.shelf import ViewShelf


def refresh_views(layout: ProjectLayout, run_id: str) -> None:
    """Write all views, unless an engine is at work: it refreshes them itself, and at once after a decision."""
    if read_holder(layout.engine_lock) is not None:
        return
    state = read_run(layout, run_id).state
    objects = ObjectStore(layout.objects, run_id, layout.tmp, read_only=True)
    shelf = ViewShelf(layout, layout.run(run_id))
    try:
        picture, graph = draw_both(state, lambda accepted: load_value(objects, accepted))
        shelf.write(picture, graph, sync=True)
    finally:
        shelf.close()
        objects.close()
