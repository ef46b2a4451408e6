import hashlib
import os
import resource
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from documented import READY
from holdfast import events as ev
from holdfast.pipeline.definition import Pipeline
from holdfast.views import todofile
from holdfast.views.todos import TodosView, _told, graph_edges

from .runs import Story, book, half_written_book, items


class Project:
    """A todos.db, and a place for what was in its way."""

    def __init__(self, folder):
        self.path = folder / "todos.db"
        self.aside = folder / "aside"
        self.edges_asked = 0
        self.view = TodosView(self.path, set_aside=self.set_aside, keep=self.keep)

    def set_aside(self, path):
        os.rename(path, self.aside)

    def keep(self, path, data):
        path.with_name(f"kept.{len(self.kept())}").write_bytes(data)

    def kept(self):
        return sorted(self.path.parent.glob("kept.*"))

    def update(self, story, extra=()):
        return self.view.update(story.picture(), lambda: self._edges(story, extra))

    def _edges(self, story, extra):
        self.edges_asked += 1
        return [*graph_edges(story.graph()), *extra]

    def query(self, sql):
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(sql).fetchall()

    def status(self):
        return dict(self.query("SELECT id, status FROM todos"))

    def listed(self):
        return {row[0] for row in self.query(READY)}


@pytest.fixture
def project(tmp_path):
    made = Project(tmp_path)
    yield made
    made.view.close()


def work(x): ...


def check(work): ...


def plan(): ...


def ordered():
    """Items in given batches, two phases, and a gate after each batch."""
    pipe = Pipeline("p")
    pipe.items("x", [{"id": "a", "batch": 1}, {"id": "b", "batch": 1}, {"id": "c", "batch": 2}])
    pipe.step(each="x", phase="Work")(work)
    pipe.step(each="x", phase="Review")(check)
    pipe.gate("look", each="x", phase="Work")
    return pipe


def test_the_tables_are_those_of_the_contract(project):
    """Columns, key and foreign keys are as promised, and no row breaks them."""
    assert project.update(half_written_book())
    columns = [row[1] for row in project.query("PRAGMA table_info(todos)")]
    assert columns == ["id", "title", "description", "status", "created_at", "updated_at"]
    assert [row[1] for row in project.query("PRAGMA table_info(todo_deps)")] == ["todo_id", "depends_on"]
    assert {row[3] for row in project.query("PRAGMA foreign_key_list(todo_deps)")} == {"todo_id", "depends_on"}
    assert project.query("PRAGMA foreign_key_check") == []


def test_the_umask_says_who_may_write_to_it(project):
    """In a project that a group shares, the next one to go on may be somebody else."""
    before = os.umask(0o002)
    try:
        project.update(half_written_book())
    finally:
        os.umask(before)
    assert project.path.stat().st_mode & 0o777 == 0o664


def test_rows_say_what_a_task_is_and_how_it_stands(project):
    """A row has the step's title and item, the error or the files, its status and its times."""
    project.update(half_written_book())
    now = "2026-01-09T14:30:38.000Z"
    rows = {row[0]: row[1:] for row in project.query("SELECT * FROM todos")}
    assert rows["research[ch01]"] == ("Research: ch01", "research/ch01.md", "done", now, now)
    assert rows["research[ch02]"] == ("Research: ch02", "no answer", "blocked", now, now)
    assert rows["outline"] == ("Outline", "outline.md", "done", now, now)


def test_every_status_has_its_word(project):
    """Done, going on, due again, waiting for a person: the four words of the contract."""
    story = half_written_book().tell(ev.TaskSkipped(step_id="draft[ch03]", reason="x"))
    project.update(story.fail("draft[ch01]"))
    status = project.status()
    assert status == {
        "outline": "done",
        "chapters": "done",
        "research[ch01]": "done",
        "draft[ch01]": "pending",
        "research[ch02]": "blocked",
        "draft[ch02]": "blocked",
        "research[ch03]": "in_progress",
        "draft[ch03]": "done",
        "assemble": "blocked",
    }


def test_what_a_stop_cut_off_can_start(project):
    """While the run goes on somebody works on it; once it has stopped nobody does."""
    story = half_written_book()
    project.update(story)
    assert (project.status()["research[ch03]"], "research[ch03]" in project.listed()) == ("in_progress", False)
    project.update(story.tell(ev.RunStopped(status="in_progress", reason="interrupted")))
    assert (project.status()["research[ch03]"], "research[ch03]" in project.listed()) == ("pending", True)


def test_what_a_kill_cut_off_and_is_asked_about_cannot_start():
    """Nobody works on it, and nothing happens to it until the question that a recovery has put is answered."""
    asked = ev.QuestionAsked(step_id="research[ch03]", about="partial", detail="ch03.md is half finished")
    picture = replace(half_written_book().tell(asked).picture(), is_left=True)
    assert _told(picture, "research[ch03]") == ("ch03.md is half finished", "blocked")


def test_a_new_run_lists_its_first_step(project):
    """At the start only what needs nothing can start; items not known are a row that is never pending."""
    story = Story(book())
    project.update(story)
    assert project.listed() == {"outline"} == set(story.picture().ready)
    assert project.status()["fanout:chapter"] == "blocked"
    story.finish("outline").finish("chapters", value=items("a", "b"))
    project.update(story)
    assert project.listed() == {"research[a]", "research[b]"} == set(story.picture().ready)
    assert "fanout:chapter" not in project.status()


def test_phases_gates_and_batches_hold_tasks_back(project):
    """Whatever holds a task, the query lists exactly what the engine would start."""
    story = Story(ordered())
    steps = [
        lambda: story.tell(ev.PhaseStarted(step_id="phase:Work")),
        lambda: story.finish("work[a]"),
        lambda: story.finish("work[b]").tell(ev.GateReached(step_id="look[batch-1]")),
        lambda: story.tell(ev.GateApproved(step_id="look[batch-1]")),
        lambda: story.finish("work[c]").tell(ev.GateReached(step_id="look[batch-2]")),
        lambda: story.tell(ev.GateApproved(step_id="look[batch-2]")),
        lambda: story.tell(ev.ChecklistRefused(step_id="phase:Review", reasons=("no",))),
        lambda: story.tell(ev.GateApproved(step_id="phase:Review")),
        lambda: story.finish("check[a]", "check[b]"),
    ]
    seen = []
    for step in steps:
        step()
        assert project.update(story)
        assert project.listed() == set(story.picture().ready)
        seen.append(sorted(project.listed()))
        rows = project.status()
        assert all(rows[name] != "pending" for name in rows if name.startswith(("phase:", "look")))
    assert seen == [
        ["work[a]", "work[b]"],
        ["work[b]"],
        [],
        ["work[c]"],
        [],
        ["check[a]", "check[b]"],
        [],
        ["check[a]", "check[b]"],
        ["check[c]"],
    ]


def test_a_dependency_that_names_nothing_is_not_done(project):
    """A dangling dependency keeps its task from being listed, and breaks no foreign key."""
    story = Story(ordered()).tell(ev.PhaseStarted(step_id="phase:Work"))
    assert project.update(story, extra=[("work[a]", "gone[a]"), ("work[b]", "gone[b]")])
    assert project.listed() == set()
    assert (project.status()["gone[a]"], project.status()["gone[b]"]) == ("blocked", "blocked")
    assert project.query("PRAGMA foreign_key_check") == []


def test_work_that_is_sent_back_is_not_done(project):
    """A task whose output was objected to can start again when nobody uses that output any more."""
    story = Story(book()).finish("outline").finish("chapters", value=items("a")).finish("research[a]")
    story.start("draft[a]").tell(ev.RewindRequested(step_id="", targets={"research[a]": "more"}))
    project.update(story)
    assert (project.status()["research[a]"], project.listed()) == ("blocked", set())
    story.finish("draft[a]")
    project.update(story)
    assert project.listed() == {"research[a]"} == set(story.picture().next_steps())
    story.tell(ev.TaskRewound(step_id="research[a]", feedback=("more",)))
    project.update(story)
    assert project.listed() == {"research[a]"}


def test_what_failed_and_waits_for_what_was_sent_back_cannot_start(project):
    """`status`, RESUME.md and the query name the same: the one that was sent back comes first."""
    story = Story(book()).finish("outline").finish("chapters", value=items("a")).finish("research[a]")
    happen(story.start("draft[a]"), "draft[a]", "fail")
    assert story.picture().next_steps() == ["draft[a]"]
    story.tell(ev.RewindRequested(step_id="", targets={"research[a]": "more"}))
    story.tell(ev.TaskRewound(step_id="research[a]", feedback=("more",)))
    project.update(story)
    assert project.listed() == {"research[a]"} == set(story.picture().next_steps())


def test_an_open_question_is_blocked(project):
    """Work that waits for an answer is not done, and nothing behind it can start."""
    story = Story(book()).finish("outline")
    story.tell(ev.QuestionAsked(step_id="outline", about="changed", detail="edited"))
    project.update(story)
    assert project.status()["outline"] == "blocked"
    assert project.listed() == set() == set(story.picture().ready)


ACTIONS = st.lists(
    st.tuples(st.integers(0, 8), st.sampled_from(["finish", "start", "fail", "review"])), max_size=12
)


@settings(max_examples=40, deadline=None)
@given(ACTIONS)
def test_the_query_lists_what_can_start_whatever_happened(tmp_path_factory, actions):
    """After any story the query gives what is ready; what failed and is due again is."""
    project = Project(tmp_path_factory.mktemp("todos"))
    story = Story(book())
    for number, kind in actions:
        ready = story.picture().ready
        if ready:
            happen(story, ready[number % len(ready)], kind)
        project.update(story)
    project.update(story)
    assert project.listed() == set(story.picture().ready)
    project.view.close()


def happen(story, task, kind):
    if kind == "finish":
        story.finish(task, value=items("a", "b", b=["a"]) if task == "chapters" else None)
    elif kind == "start":
        story.start(task)
    else:
        story.fail(task, status="failed" if kind == "fail" else "needs_review")


def test_only_changed_rows_are_written(project):
    """A second update touches the rows that changed: the others keep their time, and the edges are not asked."""
    story = half_written_book()
    project.update(story)
    asked = project.edges_asked
    story.finish("research[ch03]")
    project.update(story)
    times = dict(project.query("SELECT id, updated_at FROM todos"))
    later = {name for name, at in times.items() if at == "2026-01-09T14:30:40.000Z"}
    assert later == {"research[ch03]"}
    assert {at for (at,) in project.query("SELECT created_at FROM todos")} == {"2026-01-09T14:30:38.000Z"}
    assert project.edges_asked == asked


def test_added_tasks_bring_their_edges(project):
    """When items become known, their rows and dependencies are added."""
    story = Story(book()).finish("outline")
    project.update(story)
    story.finish("chapters", value=items("a"))
    project.update(story)
    assert ("draft[a]", "research[a]") in project.query("SELECT * FROM todo_deps")
    assert project.edges_asked == 2


def test_another_view_of_the_same_run_keeps_the_first_times(project):
    """A resumed engine finds the rows and changes only what differs."""
    story = half_written_book()
    project.update(story)
    project.view.close()
    story.finish("research[ch03]")
    again = TodosView(project.path, set_aside=project.set_aside, keep=project.keep)
    assert again.update(story.picture(), lambda: graph_edges(story.graph()))
    again.close()
    changed = project.query("SELECT id FROM todos WHERE updated_at != created_at")
    assert changed == [("research[ch03]",)]


def test_another_run_replaces_all_rows(project):
    """The database shows one run: what an older run left is gone."""
    project.update(half_written_book())
    project.view.close()
    pipe = Pipeline("p")
    pipe.step(plan)
    other = TodosView(project.path, set_aside=project.set_aside, keep=project.keep)
    story = Story(pipe, run_id="run-2")
    assert other.update(story.picture(), lambda: ())
    other.close()
    assert project.status() == {"plan": "pending"}
    assert project.query("SELECT run, seq FROM todo_view") == [("run-2", story.state.seq)]
    assert project.query("SELECT * FROM todo_deps") == []


def edit_and_tell(project, story, statement):
    """Somebody changes the database, and it is told."""
    project.update(story)
    with closing(sqlite3.connect(project.path)) as connection, connection:
        connection.execute(statement)
    return project.view.edited(story.spec)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO todos (id, status) VALUES ('buy milk', 'pending')",
        "UPDATE todos SET description = 'mine' WHERE id = 'outline'",
        "UPDATE todos SET title = 'mine' WHERE id = 'outline'",
        "INSERT INTO todo_deps VALUES ('outline', 'assemble')",
        "INSERT INTO todo_deps VALUES ('outline', x'00ff')",
        "DELETE FROM todos",
        "DELETE FROM todo_view",
    ],
)
def test_what_somebody_wrote_is_kept_before_it_is_written_over(project, statement):
    """Whatever they changed, the whole database as they left it is kept once, and then ours is right again."""
    story = half_written_book()
    assert edit_and_tell(project, story, statement) is not None
    theirs = project.query("SELECT * FROM todos") + project.query("SELECT * FROM todo_deps")
    assert project.update(story)
    assert project.update(story)
    (kept,) = project.kept()
    with closing(sqlite3.connect(kept)) as copy:
        found = [copy.execute(f"SELECT * FROM {table}").fetchall() for table in ("todos", "todo_deps")]
    assert theirs == found[0] + found[1]
    assert "buy milk" not in project.status()
    assert project.status()["outline"] == "done"


def with_an_earlier_stamp(project):
    """The stamp as it once was written: it covers ids and statuses alone."""
    lines = sorted(f"{name}\0{status}\n" for name, status in project.status().items())
    with closing(sqlite3.connect(project.path)) as connection, connection:
        connection.execute(
            "UPDATE todo_view SET sha256 = ?", [hashlib.sha256("".join(lines).encode()).hexdigest()]
        )


def test_what_an_earlier_version_wrote_is_no_edit(project):
    """Nobody changed it: nothing is told or kept, and it is drawn on."""
    story = half_written_book()
    project.update(story)
    with_an_earlier_stamp(project)
    assert project.view.edited(story.spec) is None
    assert project.update(story)
    assert project.kept() == []


def test_a_database_that_an_earlier_version_made_is_written_on(project):
    """Its tables said the same in other words: it stays where it is, with all that a person sees in it."""
    with closing(sqlite3.connect(project.path)) as connection, connection:
        for table, statement in (todofile.SCHEMA | todofile._EARLIER).items():
            assert table in statement
            connection.execute(statement)
    inode = project.path.stat().st_ino
    assert project.update(half_written_book())
    assert project.status()["outline"] == "done"
    assert project.path.stat().st_ino == inode
    assert not project.aside.exists()


def test_a_table_of_another_form_is_not_ours(project):
    """One that lets every word stand as a status is set aside, not trusted with rows."""
    with closing(sqlite3.connect(project.path)) as connection, connection:
        for statement in (todofile.SCHEMA | {"todos": "CREATE TABLE todos (id TEXT, status TEXT)"}).values():
            connection.execute(statement)
    assert project.update(half_written_book())
    assert project.status()["outline"] == "done"
    assert project.aside.exists()


def test_an_edit_of_what_an_earlier_version_wrote_is_told(project):
    """Its stamp gives away a changed status, as it always did."""
    story = half_written_book()
    project.update(story)
    with_an_earlier_stamp(project)
    with closing(sqlite3.connect(project.path)) as connection, connection:
        connection.execute("UPDATE todos SET status = 'pending' WHERE id = 'outline'")
    assert project.view.edited(story.spec) is not None


def test_one_change_is_kept_once_however_often_writing_fails(project):
    """A reader who stays in the way of the write does not fill the folder with copies."""
    story = half_written_book()
    edit_and_tell(project, story, "UPDATE todos SET description = 'mine' WHERE id = 'outline'")
    with closing(sqlite3.connect(project.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM todos").fetchone()
        assert not project.update(story)
        assert not project.update(story)
    assert project.update(story)
    assert len(project.kept()) == 1


def test_what_cannot_be_kept_is_not_written_over(project):
    """No room for the copy: the rows stay as somebody left them."""
    story = half_written_book()
    edit_and_tell(project, story, "UPDATE todos SET description = 'mine' WHERE id = 'outline'")

    def full(path, data):
        raise OSError(28, "No space left on device", str(path))

    project.view._keep = full
    assert not project.update(story)
    assert project.query("SELECT description FROM todos WHERE id = 'outline'") == [("mine",)]
    project.view._keep = project.keep
    assert project.update(story)


def fill(path, kind):
    if kind == "garbage":
        path.write_bytes(b"this is not a database, not even nearly one" * 100)
    elif kind == "old schema":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE todos (id INTEGER, text TEXT)")
    elif kind == "folder":
        path.mkdir()
    elif kind == "dangling link":
        path.symlink_to(path.parent / "nowhere")
    else:
        os.mkfifo(path)


@pytest.mark.parametrize("kind", ["garbage", "old schema", "folder", "dangling link", "pipe"])
def test_what_is_no_database_of_ours_is_set_aside(project, kind):
    """Garbage, another schema, or something that is no file is moved away, and the view is written anew."""
    fill(project.path, kind)
    assert project.update(half_written_book())
    assert os.path.lexists(project.aside)
    assert project.status()["outline"] == "done"


def test_a_damaged_page_is_found(project):
    """A database whose pages were overwritten is set aside, although its header is whole."""
    project.update(half_written_book())
    project.view.close()
    data = bytearray(project.path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    project.path.write_bytes(data)
    assert project.update(half_written_book())
    assert project.aside.exists()
    assert project.status()["outline"] == "done"


@pytest.mark.parametrize("content", [b"", b"garbage" * 1000])
@pytest.mark.parametrize("in_place", [True, False])
def test_damage_under_way_is_repaired(project, content, in_place):
    """A database that is emptied, overwritten or replaced while it is open is right after the next update."""
    story = half_written_book()
    project.update(story)
    if not in_place:
        project.path.unlink()
    project.path.write_bytes(content)
    story.finish("research[ch03]")
    assert project.update(story)
    assert project.status()["outline"] == project.status()["research[ch03]"] == "done"


def test_a_deleted_database_comes_back(project):
    """A view can be deleted at any time: the next update writes all of it."""
    story = half_written_book()
    project.update(story)
    project.path.unlink()
    assert project.update(story)
    assert len(project.status()) == 9


def test_a_locked_database_waits(project):
    """While someone holds a write lock the update is left for later, and then nothing is missing."""
    story = half_written_book()
    project.update(story)
    with closing(sqlite3.connect(project.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        story.finish("research[ch03]")
        assert not project.update(story)
        other.execute("ROLLBACK")
    assert not project.aside.exists()
    assert project.update(story)
    assert project.status()["research[ch03]"] == "done"


def test_a_database_locked_from_the_start_waits(project):
    """A lock held before the first update is no reason to set the file aside."""
    project.update(half_written_book())
    project.view.close()
    with closing(sqlite3.connect(project.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert not project.update(half_written_book())
    assert not project.aside.exists()
    assert project.update(half_written_book())


def test_a_database_that_nothing_is_left_to_open_it_with_waits(project):
    """Without a descriptor nobody can open it: that is nothing against the file, and it is not set aside."""
    project.update(half_written_book())
    project.view.close()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    story = half_written_book()
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        assert not project.update(story)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not project.aside.exists()
    story.finish("research[ch03]")
    assert project.update(story)
    assert project.status()["research[ch03]"] == "done"


def test_a_database_that_could_be_opened_for_reading_only_once_waits(project, monkeypatch):
    """SQLite makes do with that where the system refuses more: the next update opens it anew."""
    story, really = half_written_book(), sqlite3.connect
    project.update(story)
    project.view.close()

    def reading(path, **options):
        return really(f"file:{path}?mode=ro", uri=True, **options)

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", reading)
        story.finish("research[ch03]")
        assert not project.update(story)
    assert not project.aside.exists()
    assert project.update(story)
    assert project.status()["research[ch03]"] == "done"


def test_a_reader_is_not_in_the_way_between_updates(project):
    """Between updates no lock is held: a shell can read and even write."""
    project.update(half_written_book())
    with closing(sqlite3.connect(project.path, timeout=0, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        other.execute("ROLLBACK")


def test_no_place_to_write_is_no_error(tmp_path):
    """A folder that does not exist, or a file that cannot be moved away, gives False and never raises."""

    def refuse(path, data=b""):
        raise PermissionError(13, "no", str(path))

    picture = half_written_book().picture()
    assert not TodosView(tmp_path / "no" / "todos.db", set_aside=refuse, keep=refuse).update(picture, lambda: ())
    (tmp_path / "todos.db").mkdir()
    assert not TodosView(tmp_path / "todos.db", set_aside=refuse, keep=refuse).update(picture, lambda: ())


def test_hostile_text_is_stored_as_plain_text(project):
    """An error with control characters or surrogates can be stored, and printed by a shell."""
    story = Story(book()).fail("outline", "bad \x1b[2J\ud800 \u202e'); DROP TABLE todos;--")
    assert project.update(story)
    ((description,),) = project.query("SELECT description FROM todos WHERE id = 'outline'")
    assert description == "bad \\ud800 \\u202e'); DROP TABLE todos;--"


@pytest.mark.parametrize("item", ["caf\u00e9", "\u4e66", "12", "null"])
@pytest.mark.parametrize("title", ["Work", 'it\'s "so" \\n', "$[0]", "\U0001f4d5", "12", "null", "{}"])
def test_words_stand_in_their_rows_as_they_are(project, item, title):
    """Nothing in an id or a title is taken for a part of the language that brings it there."""
    pipe = Pipeline("p")
    pipe.items("x", [item])
    pipe.step(each="x", title=title)(work)
    pipe.step(each="x")(check)
    assert project.update(Story(pipe))
    (row,) = project.query(f"SELECT title, typeof(title), status FROM todos WHERE id = 'work[{item}]'")
    assert row == (f"{title}: {item}", "text", "pending")
    assert project.query("SELECT * FROM todo_deps") == [(f"check[{item}]", f"work[{item}]")]


def test_a_gather_shared_by_many_is_not_written_pair_by_pair(project):
    """Where every item takes all of another step, the edges stay few and the query stays exact."""
    pipe = Pipeline("p")
    pipe.items("x", [f"i{number}" for number in range(150)])
    pipe.items("y", [f"j{number}" for number in range(150)])
    pipe.step(each="x")(work)
    pipe.step(each="y", name="check")(check)
    story = Story(pipe)
    project.update(story)
    assert project.query("SELECT count(*) FROM todo_deps") == [(0,)]
    assert project.listed() == set(story.picture().ready) == {f"work[i{number}]" for number in range(150)}
    assert project.status()["check[j0]"] == "blocked"
