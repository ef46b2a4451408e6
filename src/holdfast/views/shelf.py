"""Writes all views of a run: each whole, each replaced atomically, none of them needed to continue.

Nobody's edit is written over unseen. A page that somebody changed, or that was there before Holdfast, is kept
beside itself as `NAME.bak.TIMESTAMP`; something that is no readable file goes to quarantine. checkpoint.md and
todos.db can say what somebody wants, so `write` leaves them alone until `edited` has told what they claim: the
caller makes events of that first, and a kill in between loses nothing, since the edit is still there and its stamp
still does not fit. A change in the instant between our last look and the rename is lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast import threads
from holdfast.errors import MISSING, UnreadableError
from holdfast.layout import ProjectLayout, RunLayout
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.spec import PipelineSpec
from holdfast.stores import asides, atomic, readable
from holdfast.views import checkpoint, progress, resume, summary
from holdfast.views.claims import Claims
from holdfast.views.picture import Picture
from holdfast.views.stamp import VIEW_BYTES_MAX, read_stamp

if TYPE_CHECKING:
    from holdfast.views.todos import TodosView

_NO_FILE = "no regular file"

Mark = tuple[int, int, int, int]  # inode, size, time of change of content and of anything


class Kept(msgspec.Struct, frozen=True):
    """Something that was in a view's place, and where it is now."""

    view: str  # checkpoint.md, for example
    kept_as: Path
    why: str


class Obstacle(msgspec.Struct, frozen=True):
    """Something that stands in a view's place and has to be kept elsewhere."""

    path: Path
    why: str
    is_damage: bool = False  # it goes to quarantine, everything else stays beside its place
    is_wish: bool = False  # an edit, that must have been told before


def is_page(path: Path) -> bool:
    """Whether a file is there that can be read; whatever else is in its place is set aside when it is written.

    If that cannot be seen it is a StorageError, never False: the page would be written over.
    """
    try:
        readable.part(path, 0, 0)
    except UnreadableError:
        return False
    return True


class ViewShelf:
    """The places of one run's views. Calls come from one thread at a time."""

    def __init__(self, layout: ProjectLayout, run: RunLayout) -> None:
        self._layout = layout
        self._run = run
        self._todos: TodosView | None = None
        self._checkpoint = _Page(layout.checkpoint_view)
        self._pages = (self._checkpoint, _Page(layout.resume_view), _Page(run.progress))
        self._kept: list[Kept] = []
        self._kept_beside: list[Kept] = []  # by the thread that writes todos.db

    def edited(self, spec: PipelineSpec) -> list[Claims]:
        """What checkpoint.md and todos.db claim, if somebody changed them since they were written; each edit once.

        The stamp tells, whoever wrote them. A checkpoint.md without a stamp counts too, with an empty `run_id`.
        """
        found = [self._edited_checkpoint(spec)]
        if self._todos is not None or os.path.exists(self._layout.todos_db):
            found.append(self._todos_view().edited(spec))
        return [claims for claims in found if claims is not None]

    def _edited_checkpoint(self, spec: PipelineSpec) -> Claims | None:
        page = self._checkpoint
        try:
            text = page.edit()
        except UnreadableError:
            return None  # `write` moves it away
        if text is None or page.seen == page.reported:
            return None
        page.reported = page.seen
        return checkpoint.parse(text, spec)

    def write(
        self, picture: Picture, graph: Graph, *, sync: bool, first: Callable[[], object] = lambda: None
    ) -> list[Kept]:
        """Bring every view up to `picture`, and say what was moved out of the way for it.

        `sync` at a stop, when they may be all that someone reads. Nothing is written before `first` is through.
        """
        self._kept, self._kept_beside = [], []
        if sync:
            todos = self._todos_view()
            drawn = todos.draw(picture, lambda: _edges(graph))  # now: little but SQLite is left to do beside
            first()
            with threads.beside(lambda: todos.store(lambda: drawn)):
                drawn.digest  # noqa: B018 - found here, while SQLite is at work, and needed there at its end
                self._write_pages(picture, sync)
        else:  # it may be killed at any moment, and then it is RESUME.md that somebody needs
            first()
            self._write_pages(picture, sync)
            self._todos_view().update(picture, lambda: _edges(graph))
        return self._kept + self._kept_beside

    def _write_pages(self, picture: Picture, sync: bool) -> None:
        self._make_room(self._run.summary)
        self._put(self._run.summary, summary.encode_summary(picture), sync)
        checkpoint_page, resume_page, progress_page = self._pages
        if self._is_free(checkpoint_page, wait=True):
            self._turn(checkpoint_page, checkpoint.render(picture), sync)
        if self._is_free(resume_page):
            self._turn(resume_page, resume.render(picture), sync)
        if picture.state.sections and self._is_free(progress_page):
            self._turn(progress_page, progress.render(picture), sync)

    def copy_pages(self, paths: Sequence[Path]) -> dict[Path, Path]:
        """Copies of these pages beside themselves: a kill after the recovery is on record must not cost them."""
        return {path: Path(asides.copy_beside(os.fspath(path), dir_fd=None)) for path in paths if is_page(path)}

    def keep_pages(self, copies: Mapping[Path, Path]) -> list[Kept]:
        """Put these pages in the place of their copies: of a lost run they may be all that is left."""
        self._kept = []
        for path, copy in copies.items():
            if is_page(path):
                atomic.move_file(path, os.fspath(copy), sync=True)
            stamp = read_stamp(readable.read_file(copy, VIEW_BYTES_MAX).decode("utf-8", "replace"))
            of_other = stamp.run if stamp is not None and stamp.run != self._run.dir.name else ""
            self._keep(
                path, copy, f"written for run {of_other}" if of_other else "all that was left of the record"
            )
        return self._kept

    def close(self) -> None:
        if self._todos is not None:
            self._todos.close()

    # --- pages -------------------------------------------------------------------------------------------

    def _is_free(self, page: _Page, *, wait: bool = False) -> bool:
        """Whether the page may be written now; what is in its place is kept elsewhere.

        With `wait`, an edit that has not been told yet stays until it has.
        """
        found = self._obstacle(page)
        if found is None:
            return True
        if wait and found.is_wish and page.seen != page.reported:
            return False
        kept_as = self._set_aside(page.path) if found.is_damage else asides.back_up(page.path)
        self._keep(page.path, kept_as, found.why)
        return True

    def _obstacle(self, page: _Page) -> Obstacle | None:
        """What is in a page's place that must not be written over."""
        try:
            edit = page.edit()
        except UnreadableError:
            return Obstacle(page.path, "no file that can be read", is_damage=True)
        if edit is not None:
            why = "edited" if read_stamp(edit) else "not written by Holdfast"
            return Obstacle(page.path, why, is_wish=True)
        if page.run_id and not self._is_known(page.run_id):
            return Obstacle(page.path, f"written for run {page.run_id}, of which there is no record")
        return None

    def _is_known(self, run_id: str) -> bool:
        """Whether this project has such a run, so that its pages may be drawn over."""
        return run_id == self._run.dir.name or readable.is_there(self._layout.run(run_id).dir)

    def _turn(self, page: _Page, text: str, sync: bool) -> None:
        self._put(page.path, text.encode(), sync)
        page.written, page.run_id = _mark(page.path), ""

    def _put(self, path: Path, data: bytes, sync: bool) -> None:
        atomic.write_file(path, data, sync=sync, tmp_dir=self._layout.tmp)

    def _make_room(self, path: Path) -> None:
        if readable.is_no_file(path):
            self._keep(path, self._set_aside(path), _NO_FILE)

    def _keep(self, path: Path, kept_as: Path, why: str) -> None:
        self._kept.append(Kept(path.name, kept_as, why))

    def _set_aside(self, path: Path) -> Path:
        return asides.set_aside(path, self._run.quarantine)

    # --- todos.db ----------------------------------------------------------------------------------------

    def _todos_view(self) -> TodosView:
        if self._todos is None:
            from holdfast.views.todos import TodosView  # SQLite is loaded with the first refresh, not at the start

            self._todos = TodosView(self._layout.todos_db, set_aside=self._set_todos_aside, keep=self._keep_todos)
        return self._todos

    def _set_todos_aside(self, path: Path) -> None:
        self._kept_beside.append(Kept(path.name, self._set_aside(path), "of no use"))

    def _keep_todos(self, path: Path, data: bytes) -> None:
        self._kept_beside.append(Kept(path.name, asides.write_beside(path, data), "edited"))


class _Page:
    """One Markdown view: what we wrote there, and what of others we have seen."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written: Mark | None = None
        self.seen: Mark | None = None  # of the edit that `edit` gave last
        self.reported: Mark | None = None  # of the edit that was told
        self.run_id = ""  # that an unedited page names which others have put here

    def edit(self) -> str | None:
        """The text that somebody else left here; None if the page is ours, untouched, empty or missing.

        Costs one look as long as nobody has touched it. UnreadableError if it cannot be read.
        """
        mark = _mark(self.path)
        self.run_id = ""
        if mark is None or mark == self.written:
            return None
        try:
            data = readable.content(self.path, VIEW_BYTES_MAX)
        except UnreadableError as error:
            if error.why != MISSING:
                raise
            return None
        if not data.strip(b"\0 \t\r\n"):  # also what a power cut leaves of an unsynced page
            return None
        text = data.decode("utf-8", "replace")
        stamp = read_stamp(text)
        if stamp is not None and stamp.fits:
            self.run_id = stamp.run
            return None
        self.seen = mark
        return text


def _mark(path: Path) -> Mark | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _edges(graph: Graph) -> Iterator[tuple[str, str]]:
    from holdfast.views.todos import graph_edges

    return graph_edges(graph)
