"""What is wrong with the views of a run, if anything is: missing, edited, outdated, not what their name says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import MISSING, UnreadableError
from holdfast.layout import ProjectLayout
from holdfast.state import RunState
from holdfast.stores import readable
from holdfast.views.stamp import VIEW_BYTES_MAX, Stamp, read_json_stamp, read_stamp

_SQLITE = b"SQLite format 3\0"


def notes_on(layout: ProjectLayout, state: RunState) -> Iterator[str]:
    """Views are derived: whatever is wrong with one is worth a word, and no more."""
    run = layout.run(state.run_id)
    pages = [layout.checkpoint_view, layout.resume_view, run.summary, *([run.progress] if state.sections else [])]
    problems = {path: _view_problem(path, state.run_id, state.seq) for path in pages}
    problems[layout.todos_db] = _database_problem(layout.todos_db, state)
    for path, words in problems.items():
        if words:
            yield f"{path.relative_to(layout.root)} {words}; the next run writes it anew"


def pages_behind(layout: ProjectLayout, run_id: str, seq: int) -> list[str]:
    """The pages that are older than the journal; none, if somebody edited one: that is told elsewhere."""
    pages = (layout.checkpoint_view, layout.resume_view)
    words = {page.name: _view_problem(page, run_id, seq) for page in pages}
    if "was edited" in words.values():
        return []
    return [name for name, problem in words.items() if problem == "is older than the journal"]


def note_on_todos(layout: ProjectLayout, state: RunState) -> str:
    """Why todos.db does not show the run as it is after a command that writes views, or ""."""
    words = _database_problem(layout.todos_db, state)
    path = layout.todos_db.relative_to(layout.root)
    return f"{path} {words}; the next command that changes the run writes it anew" if words else ""


def _database_problem(path: Path, state: RunState) -> str:
    try:
        if readable.part(path, 0, len(_SQLITE)) != _SQLITE:
            return "is no database"
    except UnreadableError as error:
        return _why_unread(error)
    from holdfast.views.todofile import read_moment  # SQLite is loaded only where there is a database

    run_id, seq, problem = read_moment(path)
    if problem:
        return f"cannot be read ({problem})"
    return "is older than the journal" if run_id == state.run_id and seq < state.seq else ""


def _view_problem(path: Path, run_id: str, seq: int) -> str:
    try:
        data = readable.content(path, VIEW_BYTES_MAX)
    except UnreadableError as error:
        return _why_unread(error)
    stamp = _stamp_of(path, data)
    if stamp is None:
        return "carries no stamp"
    if stamp.run != run_id:
        return ""  # another run's turn was later
    if not stamp.fits:
        return "was edited"
    return "is older than the journal" if stamp.seq < seq else ""


def _why_unread(error: UnreadableError) -> str:
    return "is missing" if error.why == MISSING else "is no file that can be read"


def _stamp_of(path: Path, data: bytes) -> Stamp | None:
    if path.suffix == ".json":
        return read_json_stamp(data)
    return read_stamp(data.decode("utf-8", "surrogateescape"))
