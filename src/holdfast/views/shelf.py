"""Writes all views of a run: each whole, each replaced atomically, none of them needed to continue."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.layout import ProjectLayout, RunLayout
from holdfast.picture import Picture
from holdfast.pipeline.graph import Graph
from holdfast.stores import atomic
from holdfast.views import checkpoint, progress, resume, summary

if TYPE_CHECKING:
    from holdfast.views.todos import TodosView


class ViewShelf:
    """The places of one run's views."""

    def __init__(self, layout: ProjectLayout, run: RunLayout) -> None:
        self._layout = layout
        self._run = run
        self._todos: TodosView | None = None

    def write(self, picture: Picture, graph: Graph, *, sync: bool) -> None:
        """Bring every view up to `picture`. `sync` at a stop, when they may be all that someone reads."""
        size = os.stat(self._run.journal).st_size
        self._put(self._run.summary, summary.encode_summary(picture, journal_bytes=size), sync)
        self._put(self._layout.checkpoint_view, checkpoint.render(picture).encode(), sync)
        self._put(self._layout.resume_view, resume.render(picture).encode(), sync)
        if picture.state.sections:
            self._put(self._run.progress, progress.render(picture).encode(), sync)
        self._todos_view().update(picture, lambda: _edges(graph))

    def close(self) -> None:
        if self._todos is not None:
            self._todos.close()

    def _todos_view(self) -> TodosView:
        if self._todos is None:
            from holdfast.views.todos import (
                TodosView,
            )  # SQLite is loaded with the first refresh, not at the start

            self._todos = TodosView(self._layout.todos_db, set_aside=self._set_aside)
        return self._todos

    def _put(self, path: Path, data: bytes, sync: bool) -> None:
        if path.is_dir() and not path.is_symlink():  # a rename replaces anything but a folder
            self._set_aside(path)
        atomic.write_file(path, data, sync=sync, tmp_dir=self._layout.tmp)

    def _set_aside(self, path: Path) -> object:
        return atomic.set_aside(path, self._run.quarantine)


def _edges(graph: Graph) -> Iterator[tuple[str, str]]:
    from holdfast.views.todos import graph_edges

    return graph_edges(graph)
