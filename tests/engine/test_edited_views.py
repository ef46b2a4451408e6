"""A view edited by hand: a wish to redo, or a claim to verify; told, recorded, and never silently written over."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from harness import Harness, RunResult
from holdfast import Context, Pipeline


class Book:
    """Two chapters, draft and final each; `made` lists what ran."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.made: list[str] = []
        self.fails: set[str] = set()
        self.run_id = ""
        self.during: Callable[[], None] = lambda: None  # while the final texts are written

    def run(self) -> RunResult:
        self.made.clear()
        result = self.pipeline().run(dir=self.root)
        self.run_id = result.run_id
        return result

    def pipeline(self) -> Pipeline:
        pipe = Pipeline("book")
        pipe.items("chapter", ["ch01", "ch02"])

        @pipe.step(each="chapter", writes="{chapter}-draft.md", title="Draft")
        def draft(chapter: str) -> str:
            self.made.append(f"draft[{chapter}]")
            if chapter in self.fails:
                raise ValueError("no")
            return f"draft of {chapter}\n"

        @pipe.step(each="chapter", writes="{chapter}.md", title="Final")
        def final(chapter: str, draft: str) -> str:
            self.made.append(f"final[{chapter}]")
            self.during()
            return f"final of {chapter}\n"

        return pipe

    def edit(self, row: str, old: str, new: str) -> None:
        """Change the cells of one row of checkpoint.md."""
        path = self.root / "checkpoint.md"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line.replace(old, new) if line.startswith(f"| {row}") else line for line in lines))

    def sql(self, statement: str) -> None:
        connection = sqlite3.connect(self.root / ".holdfast" / "todos.db")
        with connection:
            connection.execute(statement)
        connection.close()


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path)


def test_a_cell_turned_back_is_a_request_to_redo(book: Book) -> None:
    """✅ turned to — : that task runs again; equal bytes end it there; the edited page is kept beside."""
    book.run()
    book.edit("ch01", "| ✅ | ✅ |", "| — | ✅ |")
    assert (book.run().status, book.made) == ("completed", ["draft[ch01]"])
    (edited,) = Harness(book.root).events("view_edited")
    assert (edited["source"], edited["step_id"], edited["wanted"]) == ("checkpoint.md", "draft[ch01]", "redo")
    (kept,) = book.root.glob("checkpoint.md.bak.*")
    assert "| ch01 | — | ✅ |" in kept.read_text()
    assert "| ch01 | ✅ | ✅ |" in (book.root / "checkpoint.md").read_text()
    assert (book.run().status, book.made) == ("completed", [])


def test_a_row_of_todos_turned_back_is_a_request_to_redo(book: Book) -> None:
    """The same by SQL."""
    book.run()
    book.sql("UPDATE todos SET status = 'pending' WHERE id = 'final[ch02]'")
    assert (book.run().status, book.made) == ("completed", ["final[ch02]"])
    (edited,) = Harness(book.root).events("view_edited")
    assert (edited["source"], edited["wanted"]) == ("todos.db", "redo")


@pytest.mark.parametrize("view", ["checkpoint.md", "todos.db"])
def test_what_was_left_out_and_is_turned_back_is_done(book: Book, view: str) -> None:
    """Told as a wish, and carried out as one; done already, the same edit asks for nothing."""
    book.fails = {"ch02"}
    book.run()
    Harness(book.root).decide("draft[ch02]", "skip", run_id=book.run_id)
    book.fails = set()
    assert (book.run().status, book.made) == ("completed", [])
    if view == "todos.db":
        book.sql("UPDATE todos SET status = 'pending' WHERE id LIKE '%[ch02]'")
    else:
        book.edit("ch02", "— skipped | — skipped", "— | —")
    told = Harness(book.root).recover(book.pipeline(), dry_run=True).disagreements
    assert [one.task for one in told if one.is_wish] == ["draft[ch02]", "final[ch02]"]
    assert told[0].said == {view: "pending", "journal": "skipped"}
    assert (book.run().status, book.made) == ("completed", ["draft[ch02]", "final[ch02]"])
    assert (book.run().status, book.made) == ("completed", [])


def test_two_views_that_ask_for_the_same_are_both_heard_once(book: Book) -> None:
    """Whichever of them is there still after a kill, or again after a power cut, asks for nothing new."""
    book.run()
    book.edit("ch01", "| ✅ | ✅ |", "| — | ✅ |")
    book.sql("UPDATE todos SET status = 'pending' WHERE id = 'draft[ch01]'")
    edited = {name: (book.root / name).read_bytes() for name in ("checkpoint.md", ".holdfast/todos.db")}
    assert (book.run().status, book.made) == ("completed", ["draft[ch01]"])
    assert [event["source"] for event in Harness(book.root).events("view_edited")] == ["checkpoint.md", "todos.db"]
    for name, data in edited.items():
        (book.root / name).write_bytes(data)
        assert (book.run().status, book.made) == ("completed", []), name


def test_a_remark_in_todos_is_kept_and_told(book: Book) -> None:
    """A description written by hand asks for nothing; it is kept in a copy, which is on record."""
    book.run()
    book.sql("UPDATE todos SET description = 'ask Kim' WHERE id = 'final[ch02]'")
    assert (book.run().status, book.made) == ("completed", [])
    (kept,) = (book.root / ".holdfast").glob("todos.db.bak.*")
    assert b"ask Kim" in kept.read_bytes()
    assert [(e["path"], e["to"]) for e in Harness(book.root).events("artifact_set_aside")] == [
        ("todos.db", f".holdfast/{kept.name}")
    ]


def test_a_cell_turned_to_done_without_a_file_is_refuted(book: Book) -> None:
    """The claim is recorded and told; the task runs all the same."""
    book.fails = {"ch01"}
    assert book.run().status == "failed"
    book.fails = set()
    book.edit("ch01", "⚠️", "✅")
    assert book.run().status == "completed"
    assert "draft[ch01]" in book.made
    (edited,) = Harness(book.root).events("view_edited")
    assert (edited["step_id"], edited["wanted"]) == ("draft[ch01]", "done")


def test_a_cell_turned_to_done_over_a_file_without_marker_is_asked_about(book: Book) -> None:
    """Somebody wrote the draft by hand and ticked it: whether it counts, they are asked."""
    book.fails = {"ch01"}
    book.run()
    (book.root / "ch01-draft.md").write_text("My own draft, written by hand. " * 8 + "\n")
    book.edit("ch01", "⚠️", "✅")
    assert book.run().status == "paused"
    (need,) = Harness(book.root).picture(book.run_id).needs()
    assert need.task == "draft[ch01]"
    assert "checkpoint.md says that it is done" in need.why


def test_a_decision_does_not_write_over_an_edit(book: Book) -> None:
    """`note` refreshes the views: the wish is on record before, and the next run carries it out."""
    book.run()
    book.edit("ch01", "| ✅ | ✅ |", "| — | ✅ |")
    Harness(book.root).note("looked at it", run_id=book.run_id)
    assert [e["step_id"] for e in Harness(book.root).events("view_edited")] == ["draft[ch01]"]
    assert (book.run().status, book.made) == ("completed", ["draft[ch01]"])


def test_recovery_takes_an_edit_up(book: Book) -> None:
    """`recover` records the wish and plans it, like any other start."""
    book.run()
    book.edit("ch01", "| ✅ | ✅ |", "| — | ✅ |")
    found = Harness(book.root).recover(book.pipeline())
    assert next(task.id for task in found.tasks if task.action == "redo") == "draft[ch01]"
    assert [e["step_id"] for e in Harness(book.root).events("view_edited")] == ["draft[ch01]"]
    assert (book.run().status, book.made) == ("completed", ["draft[ch01]"])


def test_text_added_by_hand_is_kept_beside(book: Book) -> None:
    """Not a wish, but somebody's words: the page is kept, and that is told."""
    book.run()
    path = book.root / "checkpoint.md"
    path.write_text(path.read_text() + "\nRemember the milk.\n")
    assert (book.run().status, book.made) == ("completed", [])
    (kept,) = book.root.glob("checkpoint.md.bak.*")
    assert "Remember the milk." in kept.read_text()
    assert not Harness(book.root).events("view_edited")
    assert "checkpoint.md" in [event["path"] for event in Harness(book.root).events("artifact_set_aside")]


def test_an_old_untouched_view_asks_for_nothing(book: Book) -> None:
    """A page of an earlier moment whose stamp fits is only old."""
    book.fails = {"ch02"}
    book.run()
    old = (book.root / "checkpoint.md").read_text()
    book.fails = set()
    book.run()
    (book.root / "checkpoint.md").write_text(old)
    assert (book.run().status, book.made) == ("completed", [])
    assert not Harness(book.root).events("view_edited")


def test_a_view_of_another_project_asks_for_nothing(book: Book, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Its run is not this one: it is kept beside, and nothing is redone or claimed."""
    other = Book(tmp_path_factory.mktemp("other"))
    other.fails = {"ch01", "ch02"}
    other.run()
    foreign = (other.root / "checkpoint.md").read_text().replace("run=", "run=x")
    book.run()
    (book.root / "checkpoint.md").write_text(foreign)
    assert (book.run().status, book.made) == ("completed", [])
    assert not Harness(book.root).events("view_edited")


def test_a_cell_turned_back_before_a_total_loss_is_a_request_to_redo(book: Book) -> None:
    """RESUME.md says what was unfinished when the page was drawn: the rest was done, so it was turned back."""
    book.run()
    book.edit("ch01", "| ✅ | ✅ |", "| — | ✅ |")
    shutil.rmtree(book.root / ".holdfast")
    planned = Harness(book.root).plan(book.pipeline()).tasks
    assert {task.id for task in planned if task.action == "redo"} == {"draft[ch01]"}
    assert (book.run().status, book.made) == ("completed", ["draft[ch01]"])
    (edited,) = Harness(book.root).events("view_edited")
    assert (edited["source"], edited["step_id"], edited["wanted"]) == ("checkpoint.md", "draft[ch01]", "redo")
    assert list(book.root.glob("checkpoint.md.bak.*"))
    assert (book.run().status, book.made) == ("completed", [])


def test_recovery_after_a_total_loss_records_the_wish(book: Book) -> None:
    """The dry run says it, `recover` records it, and the next run carries it out."""
    book.run()
    book.edit("ch02", "| ✅ | ✅ |", "| ✅ | ❌ |")
    shutil.rmtree(book.root / ".holdfast")
    for dry_run in (True, False):
        found = Harness(book.root).recover(book.pipeline(), dry_run=dry_run)
        assert [task.id for task in found.tasks if task.action == "redo"] == ["final[ch02]"]
        assert [(one.task, one.is_wish) for one in found.disagreements] == [("final[ch02]", True)]
    assert (book.run().status, book.made) == ("completed", ["final[ch02]"])


@pytest.mark.parametrize("letter", ["gone", "edited", "older"])
def test_without_a_resume_md_of_the_same_moment_nothing_is_turned_back(book: Book, letter: str) -> None:
    """Nobody can tell an edit from age then: whole files are believed, and the disagreement is told."""
    book.run()
    path = book.root / "RESUME.md"
    older = path.read_bytes()
    Harness(book.root).note("looked at it", run_id=book.run_id)
    book.edit("ch01", "| ✅ | ✅ |", "| — | ✅ |")
    shutil.rmtree(book.root / ".holdfast")
    {"gone": path.unlink, "older": lambda: path.write_bytes(older)}.get(letter, lambda: None)()
    if letter == "edited":
        path.write_text(path.read_text().replace("# ", "# My ", 1))
    found = Harness(book.root).recover(book.pipeline())
    assert {task.action for task in found.tasks} == {"adopt"}
    assert [(one.task, one.is_wish) for one in found.disagreements] == [("draft[ch01]", False)]


def test_what_was_finished_after_the_page_was_drawn_is_not_turned_back(book: Book) -> None:
    """A page that is edited elsewhere, and older than a file: RESUME.md lists that task as unfinished."""
    book.fails = {"ch02"}
    book.run()
    pages = {name: (book.root / name).read_bytes() for name in ("checkpoint.md", "RESUME.md")}
    book.fails = set()
    book.run()
    for name, data in pages.items():
        (book.root / name).write_bytes(data)
    book.edit("ch01", "| ✅ | ✅ |", "| — | ✅ |")
    shutil.rmtree(book.root / ".holdfast")
    assert (book.run().status, book.made) == ("completed", ["draft[ch01]"])


def test_an_edit_while_a_lost_run_is_continued_is_heard(book: Book) -> None:
    """Only what the page said before the loss was evidence; what is changed in it later is a wish."""
    book.fails = {"ch02"}
    book.run()
    shutil.rmtree(book.root / ".holdfast")
    book.fails = set()
    book.during = lambda: book.edit("ch01", "| ✅ | ✅ |", "| — | ✅ |")
    assert book.run().status in ("completed", "in_progress")
    assert [event["step_id"] for event in Harness(book.root).events("view_edited")] == ["draft[ch01]"]


@pytest.mark.parametrize("view", ["checkpoint.md", "todos.db"])
def test_a_wish_is_heard_although_its_step_was_renamed_meanwhile(tmp_path: Path, view: str) -> None:
    """The view has the old name, the pipeline the new one: what is turned back is done again, once."""
    made: list[str] = []

    def pipeline(name: str, *was: str) -> Pipeline:
        pipe = Pipeline("p")
        pipe.items("part", ["a", "b"])

        @pipe.step(name=name, was=was, each="part", writes="{part}.md")
        def write(part: str) -> str:
            made.append(f"{name}[{part}]")
            return f"{part}\n"

        return pipe

    pipeline("draft").run(dir=tmp_path)
    if view == "checkpoint.md":
        page = tmp_path / view
        page.write_text(page.read_text().replace("| a | ✅ |", "| a | — |"))
    else:
        with closing(sqlite3.connect(tmp_path / ".holdfast" / view)) as connection, connection:
            connection.execute("UPDATE todos SET status = 'pending' WHERE id = 'draft[a]'")
    made.clear()
    for _ in range(2):
        assert pipeline("text", "draft").run(dir=tmp_path).status == "completed"
        assert made == ["text[a]"]


def test_what_is_claimed_and_half_finished_can_be_continued(tmp_path: Path) -> None:
    """The claim is asked about once: an answer is not met with the same question."""
    pipe, partial = Pipeline("p"), list[str | None]()

    @pipe.step(writes="text.md", retries=0)
    def text(ctx: Context) -> str:
        partial.append(ctx.partial)
        if len(partial) == 1:
            raise ValueError("no")
        return f"{ctx.partial}and the rest\n"

    run_id = pipe.run(dir=tmp_path).run_id
    half = "A sentence that is long enough to go on from. " * 4
    (tmp_path / "text.md").write_text(half)
    page = tmp_path / "checkpoint.md"
    page.write_text(page.read_text().replace("| text | ⚠️ |", "| text | ✅ |"))
    assert pipe.run(dir=tmp_path).status == "paused"
    Harness(tmp_path).decide("text", "continue", run_id=run_id)
    assert (pipe.run(dir=tmp_path).status, partial) == ("completed", [None, half])
