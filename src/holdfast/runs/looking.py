"""A run that is only looked at: its objects and files open for reading, and its picture from the record alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import msgspec

from holdfast.artifacts.keeping import Artifacts
from holdfast.engine.drawing import LoadValue, draw, draw_both
from holdfast.layout import ProjectLayout
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.spec import with_names_on_record
from holdfast.runs.opening import open_files, open_objects
from holdfast.state import Accepted, RunState
from holdfast.stores.protocols import Objects
from holdfast.values import decode_json
from holdfast.views.picture import Picture, decode_spec


@contextmanager
def objects_of(layout: ProjectLayout, run_id: str) -> Iterator[Objects]:
    """The objects as a run sees them."""
    objects = open_objects(layout, run_id)
    try:
        yield objects
    finally:
        objects.close()


@contextmanager
def artifacts_of(layout: ProjectLayout, run_id: str, *, quick: bool = False) -> Iterator[Artifacts]:
    """The files and objects as a run sees them."""
    with closing(open_files(layout)) as tree, objects_of(layout, run_id) as objects:
        yield Artifacts(tree, objects, quick=quick)


def draw_run(layout: ProjectLayout, state: RunState) -> Picture:
    """A run as people see it."""
    with objects_of(layout, state.run_id) as objects:
        return draw(state, loading(objects))


def draw_run_both(layout: ProjectLayout, state: RunState) -> tuple[Picture, Graph]:
    """The same, and the graph it was drawn from."""
    with objects_of(layout, state.run_id) as objects:
        return draw_both(state, loading(objects))


def loading(objects: Objects) -> LoadValue:
    """Gives a recorded value, also if it is kept by hash; [] if that is lost (items: then unknown)."""

    def load(accepted: Accepted) -> Any:
        data = objects.get(accepted.value_ref) if accepted.value_ref else bytes(accepted.value)
        return decode_json(data) if data else []

    return load


def as_recorded(compiled: CompiledPipeline, state: RunState) -> CompiledPipeline:
    """The pipeline, its steps with the names that the record of a run knows them by."""
    spec = with_names_on_record(decode_spec(state), compiled.spec)
    return msgspec.structs.replace(compiled, spec=spec)
