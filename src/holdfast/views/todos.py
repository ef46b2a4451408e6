"""todos.db: the run as SQL rows, so that one query lists what can start.

It is a cache: nothing that happens to it may stop a run. A file that cannot be used is set aside and written
anew; one that is locked, or a disk that is full, waits for the next time. What somebody changed is not written
over before `edited` has told it, and a copy of the whole file is kept: until then `update` waits, and a kill in
between leaves it, and the stamp that gives it away.

Two traps. The contract's query joins a dependency with its row, so that one which names no row would count as
done: here every dependency has a row, an unknown one a blocked row of its own. And the picture knows more
than data and `after` (the order of items, a phase's checklist): a task is `pending` only if it can start, or
if a dependency that is on file holds it; if anything else does, it is `blocked`.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path

import msgspec

from holdfast.clock import iso
from holdfast.errors import HoldfastError
from holdfast.escaping import terminal, terminal_all
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.nodes import SETTLE, Node, step_of
from holdfast.pipeline.spec import PipelineSpec
from holdfast.state import COMPLETED, FAILED, IN_PROGRESS, NEEDS_REVIEW, PENDING, SKIPPED, TaskState
from holdfast.stores import disk, readable
from holdfast.views import matrix, todofile
from holdfast.views.claims import Claims
from holdfast.views.picture import Picture, is_sent_back
from holdfast.views.todofile import DONE, GOING, TODO, WAITING, Edge, Found, Row, UnusableError

Edges = Callable[[], Iterable[Edge]]  # (task, what it depends on)

# One statement for all rows, which come as JSON: other threads can go on meanwhile, unlike with `executemany`.
# Its values have names: numbers (`?1`) are a mistake to Python 3.12.0 to 3.12.3, which takes them for names.
_INSERT_TODOS = (
    "INSERT INTO todos (created_at, updated_at, id, title, description, status) SELECT :at, :at, key,"
    " json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')"
    " FROM json_each(:rows) WHERE true ON CONFLICT (id) DO UPDATE SET title = excluded.title,"
    " description = excluded.description, status = excluded.status, updated_at = excluded.updated_at"
)
_INSERT_DEPS = (
    "INSERT INTO todo_deps (todo_id, depends_on)"
    " SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:deps) ORDER BY 1, 2"
)
_STATUS = {
    PENDING: TODO,
    FAILED: TODO,  # another attempt is due
    IN_PROGRESS: GOING,
    COMPLETED: DONE,
    SKIPPED: DONE,
    NEEDS_REVIEW: WAITING,
}
_GATHERED_MAX = 10_000


class Drawn(msgspec.Struct, frozen=True, dict=True):
    """All rows and dependencies as they should stand, at one moment of a run."""

    run_id: str
    seq: int
    at: str
    rows: dict[str, Row]
    deps: set[Edge]

    @cached_property
    def digest(self) -> str:
        """The hash of all that: needed last, and another thread may find it meanwhile."""
        return todofile.digest(self.rows, self.deps)


class _Change(msgspec.Struct, frozen=True):
    """What has to be written to an open database, in the transaction that was begun."""

    connection: sqlite3.Connection
    rows: dict[str, Row]
    gone: Sequence[tuple[str]]
    deps: set[Edge]
    old_deps: set[Edge]


class _EditedError(Exception):
    """Somebody changed rows, and nobody has been told of it yet."""


class TodosView:
    """todos.db of one project. Calls come from one thread at a time, and none of them raises."""

    def __init__(
        self, path: Path, *, set_aside: Callable[[Path], object], keep: Callable[[Path, bytes], object]
    ) -> None:
        self.path = path
        self._set_aside = set_aside
        self._keep = keep  # a copy of the file, which has these bytes
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and inode of what is open
        self._rows: dict[str, Row] | None = None  # as they stand in the file; None: not looked at yet
        self._deps: set[Edge] = set()
        self._drawn = 0  # a hash of the names of the rows that `_edges` was made for
        self._edges: set[Edge] = set()
        self._version = -1  # SQLite's count of changes by others, when `_rows` were read or written
        self._reported = ""  # the digest of what somebody changed and `edited` has told
        self._kept = ""  # the digest of what somebody changed and a copy was kept of

    def update(self, picture: Picture, edges: Edges) -> bool:
        """Write what has changed since the last time; False if it has to wait for the next."""
        return self.store(lambda: self.draw(picture, edges))

    def draw(self, picture: Picture, edges: Edges) -> Drawn:
        """What should be there, for `store`; no file is looked at."""
        rows, deps = self._wanted(picture, edges)
        now = iso(picture.state.updated_at or 0.0)
        return Drawn(picture.state.run_id, picture.state.seq, now, rows, deps)

    def store(self, draw: Callable[[], Drawn]) -> bool:
        """Write what of it is not there yet; False if it has to wait for the next time.

        What should be there is asked for when the file is open.
        """
        for _ in range(2):
            try:
                connection = self._opened()
                drawn = draw()
                self._finish(self._begin(connection, drawn), drawn)
            except _EditedError:
                self._roll_back()
                return False
            except (sqlite3.Error, UnusableError) as error:
                self.close()  # also what could be opened for reading only
                if todofile.is_passing(error, self.path) or not self._cleared_away():
                    return False
            except (OSError, HoldfastError):
                self.close()
                return False
            else:
                return True
        return False

    def edited(self, spec: PipelineSpec) -> Claims | None:
        """What the rows claim, if somebody changed them since they were written; the same change is told once."""
        try:
            found = self._changed_rows()
        except (sqlite3.Error, UnusableError, OSError):
            return None  # `update` meets the same trouble, and deals with it
        if found is None or not found.is_edited or found.digest == self._reported:
            return None
        self._reported = found.digest
        return todofile.claims_of(found, spec)

    def _changed_rows(self) -> Found | None:
        """What is on file, if it may be other than what we wrote."""
        here = todofile.identity(self.path)
        if here is None:
            return None
        if self._connection is None or here != self._file:
            with closing(todofile.open_to_read(self.path)) as connection:
                return todofile.look(connection)
        if todofile.data_version(self._connection) == self._version:
            return None
        return todofile.look(self._connection)

    def close(self) -> None:
        """Let go of the file; the next update looks at all of it."""
        connection, self._connection = self._connection, None
        self._file = self._rows = None
        self._version = -1
        if connection is not None:
            connection.close()

    # --- the file ----------------------------------------------------------------------------------------

    def _opened(self) -> sqlite3.Connection:
        """The open database; another file at its path, or none, means beginning anew."""
        here = todofile.identity(self.path)
        if self._connection is None or here is None or here != self._file:
            self.close()
            if here is None:  # SQLite would make a file that nobody else may write to, whatever the umask says
                os.close(disk.open_file(os.fspath(self.path), os.O_WRONLY | os.O_CREAT))
            self._connection = sqlite3.connect(
                self.path, timeout=todofile.BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._connection.text_factory = todofile.text_of
            self._connection.execute("PRAGMA synchronous = OFF")
            todofile.prepare(self._connection)
            self._file = todofile.identity(self.path)
        return self._connection

    def _roll_back(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            self._connection.rollback()

    def _cleared_away(self) -> bool:
        """Whether the path is free now."""
        try:
            if not readable.is_there(self.path):
                return False  # the trouble is not the file: there is none
            self._set_aside(self.path)
        except (OSError, HoldfastError):
            return False
        return True

    def _begin(self, connection: sqlite3.Connection, drawn: Drawn) -> _Change:
        rows = drawn.rows
        connection.execute("BEGIN IMMEDIATE")
        old, old_deps = self._on_file(connection, drawn.run_id)
        connection.execute("DELETE FROM todo_view")
        return _Change(
            connection,
            rows={name: row for name, row in rows.items() if old.get(name) != row} if old else rows,
            gone=[(name,) for name in old if name not in rows],
            deps=drawn.deps - old_deps,
            old_deps=old_deps - drawn.deps,
        )

    def _finish(self, change: _Change, drawn: Drawn) -> None:
        connection = change.connection
        if change.old_deps:
            connection.executemany("DELETE FROM todo_deps WHERE todo_id = ? AND depends_on = ?", change.old_deps)
        if change.gone:
            connection.executemany("DELETE FROM todos WHERE id = ?", change.gone)
        if change.rows:
            connection.execute(_INSERT_TODOS, {"at": drawn.at, "rows": _json(change.rows)})
        if change.deps:
            connection.execute(_INSERT_DEPS, {"deps": _json(change.deps)})
        connection.execute("INSERT INTO todo_view VALUES (?, ?, ?)", (drawn.run_id, drawn.seq, drawn.digest))
        connection.execute("COMMIT")
        self._rows, self._deps, self._reported, self._kept = drawn.rows, drawn.deps, "", ""
        self._version = todofile.data_version(connection)

    def _on_file(self, connection: sqlite3.Connection, run_id: str) -> tuple[dict[str, Row], set[Edge]]:
        """The rows and dependencies as they stand; read only if others may have changed them."""
        if self._rows is not None and todofile.data_version(connection) == self._version:
            return self._rows, self._deps
        found = todofile.rows_found(connection)
        if found.is_edited:
            self._keep_edited(connection, found)
        if found.run == run_id and not found.is_garbled:
            return found.rows, found.deps
        connection.execute("DELETE FROM todo_deps")
        connection.execute("DELETE FROM todos")
        return {}, set()

    def _keep_edited(self, connection: sqlite3.Connection, found: Found) -> None:
        """Have a copy kept before anything is written over; once, however often writing fails behind it."""
        if found.digest != self._reported:
            raise _EditedError
        if found.digest != self._kept:
            # Not by opening the file: that would lose our locks when it is closed.
            self._keep(self.path, connection.serialize())
            self._kept = found.digest

    # --- what should be there ------------------------------------------------------------------------------

    def _wanted(self, picture: Picture, edges: Edges) -> tuple[dict[str, Row], set[Edge]]:
        rows = _own_rows(picture)
        drawn = hash(frozenset(rows))
        if drawn != self._drawn or self._rows is None:
            self._edges = set(edges())
            if not rows.keys() >= {task for task, _ in self._edges}:
                self._edges = {edge for edge in self._edges if edge[0] in rows}
            self._drawn = drawn
        unknown = {named for _, named in self._edges} - rows.keys()
        rows |= dict.fromkeys(sorted(unknown), ("unknown", "a dependency that names nothing", WAITING))
        not_done = {name for name, row in rows.items() if row[2] != DONE}
        if not not_done:
            return rows, self._edges
        ready = {*picture.ready, *_cut_off(picture)}
        open_edges = {edge for edge in self._edges if edge[1] in not_done}
        # The picture knows of orders that are satisfied otherwise: what it calls ready shall be listed.
        satisfied = {edge for edge in open_edges if edge[0] in ready and edge[1] not in unknown}
        held = ready | {task for task, _ in open_edges}
        for task in not_done - held:
            title, description, status = rows[task]
            if status == TODO:
                rows[task] = (title, description, WAITING)
        return rows, self._edges - satisfied if satisfied else self._edges


def graph_edges(graph: Graph) -> Iterator[Edge]:
    """(task, what it depends on) by data and `after`, for `update`; gathers are passed through.

    A gather that many tasks share would need a row for each pair; above a limit its edges are left out, and
    those tasks show as blocked until they can start.
    """
    nodes = list(graph.nodes.values())
    if any(node.is_virtual for node in nodes):
        virtual = [taker.id for node in nodes for taker, _ in node.consumers if taker.is_virtual]
        members = Counter(virtual)
        yield from [(one.id, node.id) for node in nodes if not node.is_virtual for one in _behind(node, members)]
    else:  # whoever takes from a node does so directly
        yield from [(taker.id, node.id) for node in nodes for taker, kind in node.consumers if kind != SETTLE]
    for fan in graph.spec.items:
        if fan.given is None and not any(var == fan.var for var, _ in graph.items):
            yield f"fanout:{fan.var}", fan.name if fan.each is None else f"fanout:{fan.each}"


def _behind(node: Node, members: Counter[str]) -> Iterator[Node]:
    """The tasks, gates and phases that wait for a node, by data or `after`."""
    stack = [node]
    while stack:
        for consumer, kind in stack.pop().consumers:
            if consumer.kind == "gather":
                if members[consumer.id] * len(consumer.consumers) <= _GATHERED_MAX:
                    stack.append(consumer)
            elif consumer.kind == "past":  # sections further back are waited for by the ones in between
                yield from (reader for reader, _ in consumer.consumers if not reader.is_virtual)
            elif kind != SETTLE and not consumer.is_virtual:
                yield consumer


# --- rows ------------------------------------------------------------------------------------------------


def _own_rows(picture: Picture) -> dict[str, Row]:
    """Phases, tasks, gates and fan-outs not yet expanded; only tasks can be `pending`."""
    state = picture.state
    rows: dict[str, Row] = {}
    for phase in picture.spec.phases:
        standing = state.phases.get(f"phase:{phase.name}", "")
        status = DONE if standing in ("started", "approved") else WAITING
        rows[f"phase:{phase.name}"] = (phase.name, terminal(standing), status)
    titles = {step.name: terminal(step.title) for step in picture.spec.steps}
    of_tasks: dict[str, Row] = {}
    for step, tasks in picture.by_step.items():
        of_tasks |= _rows_of_step(picture, step, titles.get(step, step), tasks)
    rows |= {task: of_tasks[task] for task in picture.tasks}
    asks = {gate.name: gate.ask for gate in picture.spec.gates}
    for gate, standing in matrix.gates(picture).items():
        ask = asks.get(step_of(gate), "")
        rows[gate] = (gate, terminal(ask), DONE if standing == "approved" else WAITING)
    for var in picture.unexpanded:
        rows[f"fanout:{var}"] = (f"items of {var}", "not known yet", WAITING)
    return rows


def _rows_of_step(picture: Picture, step: str, title: str, tasks: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """The tasks of one step, each with its row."""
    begin = len(step) + 1
    titles = [f"{title}: {task[begin:-1]}" if len(task) > begin else title for task in tasks]
    if picture.settled.issuperset(tasks):  # mostly: there may be very many
        statuses: Iterator[str] = itertools.repeat(DONE)
        texts = [_description(record) for record in map(picture.state.tasks.__getitem__, tasks)]
    else:
        told = [_told(picture, task) for task in tasks]
        statuses, texts = iter([status for _, status in told]), [text for text, _ in told]
    return zip(tasks, zip(titles, terminal_all(texts), statuses, strict=False), strict=True)


def _json(rows: object) -> str:
    return msgspec.json.encode(rows).decode()


def _cut_off(picture: Picture) -> list[str]:
    """Tasks that a stop ended: the record has them in progress until the run goes on, but nobody works on them."""
    if not picture.is_at_rest or not picture.counts.get(IN_PROGRESS):
        return []
    return [task for task in picture.tasks if picture.state.task(task).status == IN_PROGRESS]


def _told(picture: Picture, task: str) -> tuple[str, str]:
    """What the row of a task says of it, not escaped yet, and its status."""
    record = picture.state.tasks.get(task)
    if record is None:
        return "", WAITING if task in picture.blocked else TODO
    if task in picture.settled:
        return _description(record), DONE
    if picture.state.recalls and is_sent_back(picture.state, task):
        feedback = [text for text in picture.state.recalls[task].feedback if text]
        words = f"sent back: {'; '.join(feedback)}" if feedback else "sent back"
        return words, WAITING if task in picture.blocked else TODO
    if record.status == IN_PROGRESS and picture.is_at_rest and not record.question:
        return "an earlier attempt was cut off", TODO
    held = bool(record.question) or (record.status in (PENDING, FAILED) and task in picture.blocked)
    return _description(record), WAITING if held else _STATUS[record.status]


def _description(record: TaskState) -> str:
    """What went wrong or why it is done again; else what it wrote."""
    if record.error:
        return record.error
    accepted = record.accepted
    if accepted is not None and record.status == COMPLETED:
        files = accepted.files
        return files[0].path if len(files) == 1 else ", ".join([file.path for file in files])
    return record.redo_reason
