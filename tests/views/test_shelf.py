import errno
import os
import sqlite3
from contextlib import closing

import pytest

from holdfast import events as ev
from holdfast.errors import StorageError
from holdfast.layout import ProjectLayout
from holdfast.views import checkpoint, shelf
from holdfast.views.edits import wishes
from holdfast.views.shelf import ViewShelf
from holdfast.views.stamp import read_json_stamp, read_stamp
from outside import OUTSIDE

from .runs import Story, book, half_written_book


class Project:
    """A project folder with a run that has begun, and one process that keeps its views."""

    def __init__(self, root):
        self.root = root
        self.layout = ProjectLayout(root)
        self.run = self.layout.run("run-1")
        self.run.dir.mkdir(parents=True)
        self.run.journal.write_text("")
        self.story = half_written_book()
        self.shelf = ViewShelf(self.layout, self.run)

    def write(self):
        return self.shelf.write(self.story.picture(), self.story.graph(), sync=False)

    def edited(self):
        return self.shelf.edited(self.story.spec)

    def restart(self):
        """Another process takes over."""
        self.shelf.close()
        self.shelf = ViewShelf(self.layout, self.run)

    def text(self, name="checkpoint.md"):
        return (self.root / name).read_text()

    def edit(self, old, new, name="checkpoint.md"):
        text = self.text(name)
        assert old in text
        (self.root / name).write_text(text.replace(old, new))

    def backups(self, name="checkpoint.md"):
        return sorted(path.name for path in self.root.glob(f"{name}.bak.*"))

    def sql(self, statement):
        with closing(sqlite3.connect(self.layout.todos_db)) as connection, connection:
            connection.execute(statement)


@pytest.fixture
def project(tmp_path):
    made = Project(tmp_path)
    yield made
    made.shelf.close()


def told(claims, project):
    return [
        (wish.source, wish.task, wish.wanted) for one in claims for wish in wishes(one, project.story.picture())
    ]


BACK = ("| ch01 | ✅ | ✅ |", "| ch01 | ✅ | — |")


@pytest.mark.parametrize("calls", [("lstat", "access"), ("open",)])
def test_a_page_that_cannot_be_looked_at_is_not_taken_for_missing(project, monkeypatch, calls):
    """Of a lost run it may be all that is left: whoever has no copy of it must not write over it."""
    project.write()
    page, copies = project.layout.resume_view, {}

    def failing(really):
        def call(path, *args, **named):
            if os.fspath(path) == str(page):
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(page))
            return really(path, *args, **named)

        return call

    with monkeypatch.context() as patch:
        for name in calls:
            patch.setattr(os, name, failing(getattr(os, name)))
        try:
            copies = project.shelf.copy_pages([page])
        except (OSError, StorageError) as error:
            copies = {page: error}
    assert list(copies) == [page]


def test_untouched_views_are_no_edits(project):
    """What this process or another one wrote is not an edit, however old it is."""
    assert project.edited() == []
    assert project.write() == []
    assert project.edited() == []
    project.restart()
    project.story.finish("research[ch03]")
    assert project.edited() == []
    assert project.write() == []
    assert project.backups() == []


def test_untouched_pages_are_not_even_read(project, monkeypatch):
    """As long as nobody has touched a page, looking for edits costs one look at its inode."""
    project.write()
    monkeypatch.setattr(shelf.readable, "read_file", None)
    assert project.edited() == []


def test_an_edit_is_told_once_then_kept_and_written_over(project):
    """A cell turned back is told before anything is written; then the edited page lies beside the fresh one."""
    project.write()
    project.edit(*BACK)
    edited = project.text()
    assert told(project.edited(), project) == [("checkpoint.md", "draft[ch01]", "redo")]
    assert project.edited() == []
    (kept,) = project.write()
    assert (kept.view, kept.why) == ("checkpoint.md", "edited")
    assert kept.kept_as.read_text() == edited
    assert project.backups() == [kept.kept_as.name]
    assert read_stamp(project.text()).fits
    assert project.write() == []


def test_an_edit_that_was_not_told_is_left_alone(project):
    """Between the last look and the write somebody may edit: the page stays until that has been told."""
    project.write()
    project.edit(*BACK)
    edited = project.text()
    assert project.write() == []
    assert project.text() == edited
    assert len(project.edited()) == 1
    assert len(project.write()) == 1


def test_an_edit_made_while_nothing_ran_is_told_by_its_stamp(project):
    """The next process finds an edit of the last one's page, with the moment it was drawn at."""
    project.write()
    project.restart()
    project.edit(*BACK)
    (claims,) = project.edited()
    assert (claims.run_id, claims.seq, claims.edited) == ("run-1", project.story.state.seq, True)


def test_an_edit_survives_a_kill_before_it_became_an_event(project):
    """If the process dies after it was told, the next one is told again."""
    project.write()
    project.edit(*BACK)
    assert len(project.edited()) == 1
    project.restart()
    assert len(project.edited()) == 1


def test_every_further_edit_is_told_and_kept(project):
    """Two edits, one after the other, are two backups."""
    for _ in range(2):
        project.write()
        project.edit(*BACK)
        assert len(project.edited()) == 1
        project.write()
    assert len(project.backups()) == 2


def test_a_page_that_was_there_before_is_kept(project):
    """Somebody's own checkpoint.md and RESUME.md without a stamp are kept before the first write."""
    for name in ("checkpoint.md", "RESUME.md"):
        (project.root / name).write_text("# Mine\n\n| chapter | Draft |\n| --- | --- |\n| ch03 | ✅ |\n")
    (claims,) = project.edited()
    assert not claims.is_stamped
    assert {kept.why for kept in project.write()} == {"not written by Holdfast"}
    (mine,) = project.backups("RESUME.md")
    assert project.text(mine).startswith("# Mine")
    assert len(project.backups()) == 1


def test_edited_letters_and_results_are_kept(project):
    """RESUME.md and progress.md claim nothing: they are kept at once, and told."""
    project.story.tell(ev.SectionWritten(step_id="draft[ch01]", title="One", text="It begins.", sources=()))
    project.write()
    progress = project.run.progress
    progress.write_text(progress.read_text() + "my remark\n")
    project.edit("# How to continue", "# My remark\n\n# How to continue", "RESUME.md")
    assert project.edited() == []
    assert [kept.view for kept in project.write()] == ["RESUME.md", "progress.md"]
    assert len(project.backups("RESUME.md")) == 1
    assert len(list(progress.parent.glob("progress.md.bak.*"))) == 1


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\0" * 4096])
def test_a_page_without_content_is_no_edit(project, content):
    """What a power cut leaves of an unsynced page is empty or zeros: there is nothing to keep."""
    project.write()
    (project.root / "checkpoint.md").write_bytes(content)
    assert project.edited() == []
    assert project.write() == []
    assert read_stamp(project.text()).fits


def test_a_page_that_is_no_text_is_kept(project):
    """Bytes that are no UTF-8 are an edit that claims little; they are kept as they are."""
    project.write()
    data = b"\xff\xfe garbage \x00\x80"
    (project.root / "checkpoint.md").write_bytes(data)
    (claims,) = project.edited()
    assert claims.tasks == {}
    (kept,) = project.write()
    assert kept.kept_as.read_bytes() == data


def put_in_the_way(path, kind):
    path.unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir()
        (path / "inside").write_text("x")
    elif kind == "link":
        path.symlink_to(OUTSIDE)
    elif kind == "dangling link":
        path.symlink_to(path.parent / "nowhere")
    elif kind == "pipe":
        os.mkfifo(path)


@pytest.mark.parametrize("kind", ["folder", "link", "dangling link", "pipe"])
@pytest.mark.parametrize("name", ["checkpoint.md", "RESUME.md", ".holdfast/runs/run-1/checkpoint.json"])
def test_what_is_no_file_is_set_aside(project, kind, name):
    """A folder, link or pipe in a view's place goes to quarantine, is never followed, and stops nothing."""
    project.write()
    put_in_the_way(project.root / name, kind)
    assert project.edited() == []
    (kept,) = project.write()
    assert kept.kept_as.parent == project.run.quarantine
    assert os.path.lexists(kept.kept_as)
    written = read_json_stamp((project.root / name).read_bytes()) or read_stamp(project.text(name))
    assert written.fits


def test_a_page_too_large_to_be_read_is_set_aside(project, monkeypatch):
    """No page fills the memory: beyond a limit it is moved away unread."""
    project.write()
    monkeypatch.setattr(shelf, "VIEW_BYTES_MAX", 10)
    project.edit(*BACK)
    assert project.edited() == []
    assert [kept.view for kept in project.write()] == ["checkpoint.md"]


def test_a_disk_that_cannot_be_read_is_no_missing_page(project, monkeypatch):
    """An I/O error is raised: a page that could not be read is never written over."""
    project.write()
    project.edit(*BACK)

    def broken(path, limit=None):
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(shelf.readable, "read_file", broken)
    for call in (project.edited, project.write):
        with pytest.raises(StorageError, match="Input/output"):
            call()


def test_a_page_of_a_run_that_is_not_on_record_is_kept(project):
    """It may be another project's, or this one's before its record was lost: it says which run it was of."""
    project.write()
    page = project.layout.checkpoint_view
    other = Story(book(), run_id="run-9")
    page.write_text(checkpoint.render(other.picture()))
    (kept,) = project.write()
    assert (kept.view, kept.why) == ("checkpoint.md", "written for run run-9, of which there is no record")
    assert "run-9" in kept.kept_as.read_text()


def test_rows_changed_by_hand_are_told_before_they_are_written_over(project):
    """A row set back while the run goes on is told once, stays until then, and is right again afterwards."""
    project.write()
    project.sql("UPDATE todos SET status = 'pending' WHERE id = 'draft[ch01]'")
    project.write()
    claims = project.edited()
    assert told(claims, project) == [("todos.db", "draft[ch01]", "redo")]
    assert project.edited() == []
    project.write()
    project.restart()
    assert project.edited() == []


def test_rows_changed_while_nothing_ran_are_told(project):
    """The stamp in the database gives an edit away to the next process."""
    project.write()
    project.restart()
    project.sql("UPDATE todos SET status = 'done' WHERE id = 'research[ch03]'")
    assert told(project.edited(), project) == [("todos.db", "research[ch03]", "done")]


def test_the_same_change_made_again_is_told_again(project):
    """Once it was written over, a change is a new one."""
    for _ in range(2):
        project.write()
        project.sql("UPDATE todos SET status = 'pending' WHERE id = 'outline'")
        assert told(project.edited(), project) == [("todos.db", "outline", "redo")]


def test_rows_of_their_own_are_told(project):
    """A todo that somebody added is named before it goes."""
    project.write()
    project.sql("INSERT INTO todos (id, status) VALUES ('buy milk', 'pending')")
    (claims,) = project.edited()
    assert claims.ignored == ("row buy milk",)


def test_a_changed_database_is_kept_beside_itself(project):
    """What somebody added to todos.db goes, but not before all of it is kept beside it, and told."""
    project.write()
    project.sql("INSERT INTO todos (id, status) VALUES ('buy milk', 'pending')")
    project.edited()
    (kept,) = project.write()
    assert (kept.view, kept.why) == ("todos.db", "edited")
    assert kept.kept_as.parent == project.layout.todos_db.parent
    assert kept.kept_as.name.startswith("todos.db.bak.")
    with closing(sqlite3.connect(kept.kept_as)) as copy:
        assert copy.execute("SELECT id FROM todos WHERE id = 'buy milk'").fetchall()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE todos SET title = CAST(x'ff41' AS TEXT) WHERE id = (SELECT min(id) FROM todos)",
        "INSERT INTO todos (id, status) VALUES (CAST(x'ff41' AS TEXT), 'pending')",
    ],
    ids=["title", "id"],
)
def test_bytes_that_are_no_text_are_an_edit_and_no_damage(project, change):
    """A cell that is no UTF-8 is told and kept like any other edit; then the rows are written anew."""
    project.write()
    project.sql(change)
    project.edited()
    (kept,) = project.write()
    assert (kept.view, kept.why) == ("todos.db", "edited")
    assert b"\xffA" in kept.kept_as.read_bytes()
    assert project.write() == []
    with closing(sqlite3.connect(project.layout.todos_db)) as written:
        assert written.execute("SELECT id, title FROM todos").fetchall()  # every cell is text, or this raises


def test_a_database_in_the_way_is_set_aside_and_told(project):
    """What was at todos.db and is no database of ours is in quarantine, and the caller knows."""
    project.layout.todos_db.write_text("garbage" * 100)
    assert project.edited() == []
    (kept,) = project.write()
    assert (kept.view, kept.why) == ("todos.db", "of no use")
    assert kept.kept_as.exists()


def test_what_is_told_is_what_the_page_says(project):
    """Claims of an edited page are those of its text."""
    project.write()
    project.edit(*BACK)
    assert project.edited() == [checkpoint.parse(project.text(), project.story.spec)]
