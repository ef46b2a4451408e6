"""What is wrong with the views of a run, if anything is: missing, edited, outdated, not what their name says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.artifacts.looks import UNREADABLE
from holdfast.layout import ProjectLayout
from holdfast.state import RunState
from holdfast.stores import atomic
from holdfast.views.stamp import Stamp, read_json_stamp, read_stamp

_VIEW_MAX = 64 << 20
_SQLITE = b"SQLite format 3\0"


def notes_on(layout: ProjectLayout, state: RunState) -> Iterator[str]:
    """Views are derived: whatever is wrong with one is worth a word, and no more."""
    run = layout.run(state.run_id)
    pages = [layout.checkpoint_view, layout.resume_view, run.summary, *([run.progress] if state.sections else [])]
    problems = {path: _view_problem(path, state.run_id, state.seq) for path in pages}
    problems[layout.todos_db] = _database_problem(layout.todos_db)
    for path, words in problems.items():
        if words:
            yield f"{os.path.relpath(path, layout.root)} {words}; the next run writes it anew"


def _database_problem(path: Path) -> str:
    try:
        fd = atomic.open_regular(os.fspath(path))
    except OSError as error:
        return _why_unread(error)
    try:
        return "" if os.read(fd, len(_SQLITE)) == _SQLITE else "is no database"
    finally:
        os.close(fd)


def _view_problem(path: Path, run_id: str, seq: int) -> str:
    try:
        data = atomic.read_file(path, limit=_VIEW_MAX)
    except OSError as error:
        return _why_unread(error)
    stamp = _stamp_of(path, data)
    if stamp is None:
        return "carries no stamp"
    if stamp.run != run_id:
        return ""  # another run's turn was later
    if not stamp.fits:
        return "was edited"
    return "is older than the journal" if stamp.seq < seq else ""


def _why_unread(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "is missing"
    if error.errno not in UNREADABLE:
        raise error
    return "is no file that can be read"


def _stamp_of(path: Path, data: bytes) -> Stamp | None:
    if path.suffix == ".json":
        return read_json_stamp(data)
    return read_stamp(data.decode("utf-8", "surrogateescape"))
