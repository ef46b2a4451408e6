"""The file todos.db: its tables, its stamp, and what its rows claim when they are read back.

Its stamp is the table `todo_view`: run, sequence number and a hash of all rows and dependencies, so that whatever
somebody changed shows without any other source. `read_claims` only reads: it makes no file and waits for no one.
A trap: SQLite's locks are lost when a process closes any descriptor of the database. Do not call `read_claims`
while another thread of this process is within `TodosView.update`.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import sqlite3
import stat
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import msgspec

from holdfast import layout
from holdfast.errors import FORBIDDEN, MISSING, STRANGE, TOO_LARGE, StorageError, UnreadableError
from holdfast.escaping import terminal
from holdfast.pipeline.names import printable
from holdfast.pipeline.nodes import step_of
from holdfast.pipeline.spec import PipelineSpec
from holdfast.state import COMPLETED, IN_PROGRESS, PENDING
from holdfast.stores import readable
from holdfast.views.claims import Claims, Told
from holdfast.views.reading import Items

TODO, GOING, DONE, WAITING = "pending", "in_progress", "done", "blocked"
BUSY_S = 0.05

SCHEMA = {
    # Not `IN (...)`: SQLite would make a table of those four words for each row.
    "todos": "CREATE TABLE todos (id TEXT NOT NULL PRIMARY KEY, title TEXT, description TEXT, status TEXT NOT NULL"
    " CHECK (status = 'done' OR status = 'pending' OR status = 'blocked' OR status = 'in_progress'),"
    " created_at TEXT, updated_at TEXT)",
    "todo_deps": "CREATE TABLE todo_deps (todo_id TEXT NOT NULL REFERENCES todos (id),"
    " depends_on TEXT NOT NULL REFERENCES todos (id), PRIMARY KEY (todo_id, depends_on))",
    # Which moment the rows show: what a reader needs to tell an edit from age.
    "todo_view": "CREATE TABLE todo_view (run TEXT NOT NULL, seq INTEGER NOT NULL, sha256 TEXT NOT NULL)",
}
_EARLIER = {  # as earlier versions made it: just as good
    "todos": "CREATE TABLE todos (id TEXT NOT NULL PRIMARY KEY, title TEXT, description TEXT,"
    " status TEXT NOT NULL CHECK (status IN ('pending', 'in_progress', 'done', 'blocked')),"
    " created_at TEXT, updated_at TEXT)",
}
_PASSING = frozenset(
    [
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
    ]
)
# The machine could not read it: what it claims is not known, which is not the same as nothing.
_FAILED_READS = (
    sqlite3.SQLITE_IOERR_READ,
    sqlite3.SQLITE_IOERR_CORRUPTFS,
    sqlite3.SQLITE_IOERR_FSTAT,
    sqlite3.SQLITE_IOERR_NOMEM,
    sqlite3.SQLITE_NOMEM,
)
_CLAIMED = {TODO: PENDING, WAITING: PENDING, GOING: IN_PROGRESS, DONE: COMPLETED}
_NO_TASKS = ("phase:", "fanout:")
_ID_MAX = 4096
_WAL = b"\x02\x02"  # bytes 18 and 19 of a database whose changes are in a file beside it
_NOT_OURS = "it is no database of ours"
_UNREADABLE = {
    FORBIDDEN: "it cannot be read: permission denied",
    MISSING: "there is none",
    STRANGE: _NOT_OURS,
    TOO_LARGE: _NOT_OURS,
}


class UnusableError(Exception):
    """What lies at this path is not a database of ours."""


Edge = tuple[str, str]
Row = tuple[str, str, str]  # title, description, status


class Found(msgspec.Struct, frozen=True):
    """What is on file: its stamp, its rows and dependencies, and the hash that would fit them."""

    run: str
    seq: int
    sha256: str
    rows: dict[str, Row]
    deps: set[Edge]
    digest: str

    @property
    def is_edited(self) -> bool:
        """Whether it holds something that is not as we wrote it; rows without a stamp were not."""
        if not (self.run or self.rows) or self.digest == self.sha256:
            return False
        return not self.sha256 or _earlier_digest(self.rows) != self.sha256

    @property
    def is_garbled(self) -> bool:
        """Whether a name is no UTF-8, as far as we can tell: then no statement of ours reaches that row."""
        names = (*self.rows, *itertools.chain.from_iterable(self.deps))
        return any("\ufffd" in name for name in names if isinstance(name, str))


def identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise UnusableError
    return found.st_dev, found.st_ino


def read_claims(path: Path, spec: PipelineSpec) -> Claims:
    """What a todos.db claims, whoever uses it meanwhile; why it claims nothing is in `problem`."""
    try:
        if identity(path) is None:
            return _unreadable("there is none")
        with closing(open_to_read(path)) as connection:
            return claims_of(look(connection), spec)
    except UnusableError:
        return _unreadable(_NOT_OURS)
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) in _FAILED_READS:
            told = OSError(0, terminal(str(error)), os.fspath(path))
            raise StorageError.from_os(told, "read") from error
        return _unreadable(_in_words(error))
    except UnreadableError as error:
        return _unreadable(_UNREADABLE[error.why])


def read_moment(path: Path) -> tuple[str, int, str]:
    """The run and the sequence number that a todos.db shows; or what keeps it from being read."""
    try:
        with closing(open_to_read(path)) as connection:
            marks = connection.execute("SELECT run, seq FROM todo_view LIMIT 2").fetchall()
    except sqlite3.Error as error:
        return "", 0, _in_words(error)
    run, seq = marks[0] if len(marks) == 1 else ("", 0)
    return str(run), seq if isinstance(seq, int) else 0, ""


def _in_words(error: sqlite3.Error) -> str:
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_ROLLBACK:
        return "whoever wrote to it was cut off; the next run puts that right"
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "another program keeps it locked"
    return terminal(str(error))


def _unreadable(problem: str) -> Claims:
    return Claims(layout.TODOS_DB, problem=problem)


def open_to_read(path: Path) -> sqlite3.Connection:
    """A connection that writes nothing, not even the files that SQLite keeps beside a database."""
    is_wal = readable.part(path, 18, 2) == _WAL
    # A write-ahead log that is not there would be made; if it is there, nothing else has to be made either.
    alone = is_wal and not os.path.exists(f"{path}-wal")
    uri = f"file:{quote(os.fsencode(path))}?mode=ro" + ("&immutable=1" if alone else "")
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    connection.text_factory = text_of
    return connection


def text_of(data: bytes) -> str:
    """What a cell says: a person's tool may have written bytes into it that are no UTF-8."""
    return data.decode("utf-8", "replace")


def look(connection: sqlite3.Connection) -> Found:
    """The stamp and the rows of one moment."""
    connection.execute("BEGIN")
    try:
        if not _is_ours(connection):
            raise UnusableError
        return rows_found(connection)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def rows_found(connection: sqlite3.Connection) -> Found:
    """The stamp and the rows. Text that is no UTF-8 is rare and slow to allow for: only if the quick way fails."""
    connection.text_factory = str
    try:
        return _rows_found(connection)
    except sqlite3.OperationalError as error:
        if "decode" not in str(error):
            raise
        connection.text_factory = text_of
        return _rows_found(connection)
    finally:
        connection.text_factory = text_of


def _rows_found(connection: sqlite3.Connection) -> Found:
    marks = connection.execute("SELECT run, seq, sha256 FROM todo_view LIMIT 2").fetchall()
    run, seq, sha256 = marks[0] if len(marks) == 1 else ("", 0, "")
    listed = connection.execute("SELECT id, title, description, status FROM todos ORDER BY rowid")
    rows = {name: (title, description, status) for name, title, description, status in listed}
    deps = set(connection.execute("SELECT todo_id, depends_on FROM todo_deps").fetchall())
    return Found(str(run), seq if isinstance(seq, int) else 0, str(sha256), rows, deps, digest(rows, deps))


def digest(rows: Mapping[str, Row], deps: Iterable[Edge]) -> str:
    """The hash of all rows and dependencies, each a line, sorted: a change of any, or of their number, shows."""
    lines = [f"{name}\0{title}\0{text}\0{status}\n" for name, (title, text, status) in rows.items()]
    lines += [f"{task}\0{named}\n" for task, named in deps]
    lines.sort()
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def _earlier_digest(rows: Mapping[str, Row]) -> str:
    """The hash as it once was: of ids and statuses alone."""
    lines = sorted([f"{name}\0{status}\n" for name, (_, _, status) in rows.items()])
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def claims_of(found: Found, spec: PipelineSpec) -> Claims:
    items, ignored = Items(spec), Told()
    gate_names = {gate.name for gate in spec.gates}
    tasks: dict[str, str] = {}
    listed = [(str(name), status) for name, (_, _, status) in found.rows.items()]  # a person's may be a blob
    for name, status in listed:
        if len(name) > _ID_MAX:
            continue
        task = items.task(name)
        if task is not None:
            tasks[task] = _CLAIMED.get(status, PENDING)
        elif step_of(name) not in gate_names and not name.startswith(_NO_TASKS):
            ignored.add(f"row {printable(name)}")
    return Claims(
        layout.TODOS_DB,
        run_id=found.run,
        seq=found.seq,
        edited=bool(found.run) and found.is_edited,
        tasks=tasks,
        items=items.listed(),
        ignored=ignored.lines(),
    )


def data_version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def _is_ours(connection: sqlite3.Connection) -> bool:
    """Whether it has our tables, exactly, and no page of it is damaged."""
    found = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall())
    ours = all(found.get(table) in (sql, _EARLIER.get(table, sql)) for table, sql in SCHEMA.items())
    return ours and connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)


def is_passing(error: Exception, path: Path) -> bool:
    """Whether nothing is wrong with the file itself: another time will do."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_READONLY:  # what it cannot open for writing, SQLite tries to open for reading
        return os.access(path, os.R_OK | os.W_OK)
    return code in _PASSING or (code == sqlite3.SQLITE_CANTOPEN and not _is_closed_to_us(path))


def _is_closed_to_us(path: Path) -> bool:
    """Whether what could not be opened is no file for us to read. Else there was no descriptor for it, say."""
    try:
        readable.part(path, 0, 0)
    except UnreadableError as error:
        return error.why != MISSING
    except StorageError:
        return False
    return False


def _has_tables(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' LIMIT 1").fetchone() is not None


def prepare(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty database; one with other tables, or damage, is not ours to use."""
    if not _has_tables(connection):
        connection.executescript(";\n".join(["BEGIN IMMEDIATE", *SCHEMA.values(), "COMMIT"]))
    elif not _is_ours(connection):
        raise UnusableError
