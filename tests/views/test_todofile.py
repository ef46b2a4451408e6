import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from holdfast import events as ev
from holdfast.errors import StorageError
from holdfast.pipeline.definition import Pipeline
from holdfast.views import todofile
from holdfast.views.todofile import read_claims
from holdfast.views.todos import TodosView, graph_edges

from .runs import Story, half_written_book, items


@pytest.fixture
def path(tmp_path):
    """A todos.db as a run has left it."""
    write(tmp_path / "todos.db", half_written_book())
    return tmp_path / "todos.db"


def write(path, story):
    view = TodosView(path, set_aside=lambda path: None, keep=lambda path, data: None)
    assert view.update(story.picture(), lambda: graph_edges(story.graph()))
    view.close()


def read(path):
    return read_claims(path, half_written_book().spec)


def folder(path):
    """Everything that is in the folder: names, contents, and when they were changed."""
    return {
        entry.name: (entry.lstat().st_mtime_ns, entry.read_bytes() if entry.is_file() else b"")
        for entry in path.parent.iterdir()
    }


def change(path, statement):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def test_rows_are_read_back_as_statuses(path):
    """Each task has a status, gates and rows that are no tasks are told apart, and the stamp says which moment."""
    claims = read(path)
    assert claims.tasks == {
        "outline": "completed",
        "chapters": "completed",
        "assemble": "pending",
        "research[ch01]": "completed",
        "draft[ch01]": "completed",
        "research[ch02]": "pending",
        "draft[ch02]": "pending",
        "research[ch03]": "in_progress",
        "draft[ch03]": "pending",
    }
    assert claims.items == {"chapter": [("ch01",), ("ch02",), ("ch03",)]}
    assert (claims.run_id, claims.seq, claims.edited) == ("run-1", half_written_book().state.seq, False)
    assert (claims.source, claims.problem, claims.ignored) == ("todos.db", "", ())


def work(x): ...


def test_gates_phases_and_unknown_fan_outs_are_no_tasks(tmp_path):
    """Gates, phases and items not yet known claim nothing, and are not called unknown."""
    pipe = Pipeline("p")
    pipe.items("x")(find)
    pipe.step(each="x", phase="Work")(work)
    pipe.gate("look", each="x", phase="Work")
    story = Story(pipe).tell(ev.PhaseStarted(step_id="phase:Work"))
    write(tmp_path / "todos.db", story)
    assert read_claims(tmp_path / "todos.db", story.spec).tasks == {"find": "pending"}
    story.finish("find", value=items("a")).tell(ev.GateApproved(step_id="look[batch-1]"))
    write(tmp_path / "todos.db", story)
    claims = read_claims(tmp_path / "todos.db", story.spec)
    assert claims.tasks == {"find": "completed", "work[a]": "pending"}
    assert claims.ignored == ()


def find(): ...


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE todos SET status = 'done' WHERE id = 'research[ch03]'",
        "INSERT INTO todos (id, status) VALUES ('buy milk', 'pending')",
        "DELETE FROM todos WHERE id = 'assemble'",
        "UPDATE todos SET description = 'ask Kim' WHERE id = 'assemble'",
        "DELETE FROM todo_deps WHERE todo_id = 'assemble'",
    ],
)
def test_changed_rows_show_by_the_stamp(path, statement):
    """A row changed, added or taken away, or a dependency: the hash in the stamp no longer fits."""
    change(path, statement)
    assert read(path).edited


def make_missing(path):
    path.unlink()


def make_empty(path):
    path.write_bytes(b"")


def make_garbage(path):
    path.write_bytes(b"this is not a database, not even nearly one" * 100)


def make_truncated(path):
    path.write_bytes(path.read_bytes()[:5000])


def make_other(path):
    path.unlink()
    change(path, "CREATE TABLE todos (id INTEGER, text TEXT)")


def make_endless(path):
    """A view in the place of the table that would never stop giving rows."""
    change(path, "ALTER TABLE todos RENAME TO hidden")
    change(
        path,
        "CREATE VIEW todos AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n)"
        " SELECT id, 'done' AS status FROM n",
    )


def make_folder(path):
    path.unlink()
    path.mkdir()


def make_link(path):
    path.rename(path.with_name("real.db"))
    path.symlink_to("real.db")


def make_pipe(path):
    path.unlink()
    os.mkfifo(path)


DAMAGES = [
    make_missing,
    make_empty,
    make_garbage,
    make_truncated,
    make_other,
    make_endless,
    make_folder,
    make_link,
    make_pipe,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_what_cannot_be_read_claims_nothing_and_says_why(path, damage):
    """Whatever lies there, reading it raises nothing, changes nothing and follows nothing."""
    damage(path)
    before = folder(path)
    claims = read(path)
    assert claims.problem
    assert (claims.tasks, claims.edited) == ({}, False)
    assert folder(path) == before


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_CORRUPTFS, sqlite3.SQLITE_NOMEM])
def test_a_read_that_fails_is_no_word_about_what_it_claims(path, monkeypatch, code):
    """A bad sector is the machine's: whoever asks stops, and does not go on as if nothing were claimed."""

    def failing(connection):
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = code
        raise error

    monkeypatch.setattr(todofile, "look", failing)
    with pytest.raises(StorageError, match="disk I/O error") as caught:
        read(path)
    assert str(path) in caught.value.message


def test_a_locked_database_says_so(path):
    """While someone holds it exclusively there is nothing to read, and no waiting."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert "locked" in read(path).problem


def test_it_can_be_read_while_someone_is_about_to_write(path):
    """A writer that has not committed yet is not in the way, and not believed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE todos SET status = 'pending'")
        claims = read(path)
    assert claims.tasks["outline"] == "completed"
    assert not claims.edited


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_reading_leaves_no_trace(path, mode):
    """No file is made, changed or touched, also if a shell has put the database into another mode."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
    before = folder(path)
    assert read(path).tasks["outline"] == "completed"
    assert folder(path) == before


def test_what_is_still_in_the_log_beside_it_counts(path):
    """In write-ahead mode the newest rows are in another file: they are read from there."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = wal")
        other.execute("UPDATE todos SET status = 'pending' WHERE id = 'outline'")
        claims = read(path)
    assert claims.tasks["outline"] == "pending"
    assert claims.edited


CUT_OFF = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
connection.executemany("INSERT INTO todos (id, title, status) VALUES (?, ?, 'done')",
                       [(str(n), "x" * 500) for n in range(2000)])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_writer_cut_off_is_put_right_by_the_next_one(path):
    """Half a change on file is not read, and not repaired by a reader; the next update takes it back."""
    done = subprocess.run([sys.executable, "-c", CUT_OFF, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    before = folder(path)
    assert "cut off" in read(path).problem
    assert folder(path) == before
    write(path, half_written_book())
    assert not read(path).edited
    assert "1999" not in read(path).tasks


def test_rows_that_are_no_text_are_passed_over(path):
    """A blob, invalid UTF-8 and a name of a megabyte are no tasks, and no error."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO todos (id, status) VALUES (x'00ff', 'done')")
        connection.execute("INSERT INTO todos (id, status) VALUES (CAST(x'ff41' AS TEXT), 'done')")
        connection.execute("INSERT INTO todos (id, status) VALUES (?, 'done')", ("x" * 1_000_000,))
    claims = read(path)
    assert set(claims.tasks) == set(half_written_book().picture().tasks)
    assert len(claims.ignored) == 2


@pytest.mark.parametrize("name", [b"caf\xe9", b"what? #1 100%"])
def test_the_folder_may_have_any_name(tmp_path, name):
    """Also one that is no UTF-8, or means something in an address."""
    folder = tmp_path / os.fsdecode(name)
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this disk allows no such name")
    write(folder / "todos.db", half_written_book())
    assert read(folder / "todos.db").tasks["outline"] == "completed"
