"""A view edited by hand: a wish to redo, or a claim to verify; told, recorded, and never silently written over."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from tests.engine.projects import events_of

from holdfast import Pipeline
from holdfast.choosing import Request
from holdfast.people import note
from holdfast.recovering import recover
from holdfast.run import RunResult
from holdfast.runs import open_project, read_picture


class Book:
    """Two chapters, draft and final each; `made` lists what ran."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.made: list[str] = []
        self.fails: set[str] = set()
        self.run_id = ""

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
    (edited,) = events_of(book.root, "view_edited")
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
    (edited,) = events_of(book.root, "view_edited")
    assert (edited["source"], edited["wanted"]) == ("todos.db", "redo")


def test_a_remark_in_todos_is_kept_and_told(book: Book) -> None:
    """A description written by hand asks for nothing; it is kept in a copy, which is on record."""
    book.run()
    book.sql("UPDATE todos SET description = 'ask Kim' WHERE id = 'final[ch02]'")
    assert (book.run().status, book.made) == ("completed", [])
    (kept,) = (book.root / ".holdfast").glob("todos.db.bak.*")
    assert b"ask Kim" in kept.read_bytes()
    assert [(e["path"], e["to"]) for e in events_of(book.root, "artifact_set_aside")] == [
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
    (edited,) = events_of(book.root, "view_edited")
    assert (edited["step_id"], edited["wanted"]) == ("draft[ch01]", "done")


def test_a_cell_turned_to_done_over_a_file_without_marker_is_asked_about(book: Book) -> None:
    """Somebody wrote the draft by hand and ticked it: whether it counts, they are asked."""
    book.fails = {"ch01"}
    book.run()
    (book.root / "ch01-draft.md").write_text("My own draft, written by hand. " * 8 + "\n")
    book.edit("ch01", "⚠️", "✅")
    assert book.run().status == "paused"
    (need,) = read_picture(open_project(book.root), book.run_id).needs()
    assert need.task == "draft[ch01]"
    assert "checkpoint.md says that it is done" in need.why


def test_a_decision_does_not_write_over_an_edit(book: Book) -> None:
    """`note` refreshes the views: the wish is on record before, and the next run carries it out."""
    book.run()
    book.edit("ch01", "| ✅ | ✅ |", "| — | ✅ |")
    note(open_project(book.root), book.run_id, "looked at it")
    assert [e["step_id"] for e in events_of(book.root, "view_edited")] == ["draft[ch01]"]
    assert (book.run().status, book.made) == ("completed", ["draft[ch01]"])


def test_recovery_takes_an_edit_up(book: Book) -> None:
    """`recover` records the wish and plans it, like any other start."""
    book.run()
    book.edit("ch01", "| ✅ | ✅ |", "| — | ✅ |")
    found = recover(book.pipeline().compile(), open_project(book.root), Request(resume=book.run_id))
    assert next(task.id for task in found.tasks if task.action == "redo") == "draft[ch01]"
    assert [e["step_id"] for e in events_of(book.root, "view_edited")] == ["draft[ch01]"]
    assert (book.run().status, book.made) == ("completed", ["draft[ch01]"])


def test_text_added_by_hand_is_kept_beside(book: Book) -> None:
    """Not a wish, but somebody's words: the page is kept, and that is told."""
    book.run()
    path = book.root / "checkpoint.md"
    path.write_text(path.read_text() + "\nRemember the milk.\n")
    assert (book.run().status, book.made) == ("completed", [])
    (kept,) = book.root.glob("checkpoint.md.bak.*")
    assert "Remember the milk." in kept.read_text()
    assert not events_of(book.root, "view_edited")
    assert "checkpoint.md" in [event["path"] for event in events_of(book.root, "artifact_set_aside")]


def test_an_old_untouched_view_asks_for_nothing(book: Book) -> None:
    """A page of an earlier moment whose stamp fits is only old."""
    book.fails = {"ch02"}
    book.run()
    old = (book.root / "checkpoint.md").read_text()
    book.fails = set()
    book.run()
    (book.root / "checkpoint.md").write_text(old)
    assert (book.run().status, book.made) == ("completed", [])
    assert not events_of(book.root, "view_edited")


def test_a_view_of_another_project_asks_for_nothing(book: Book, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Its run is not this one: it is kept beside, and nothing is redone or claimed."""
    other = Book(tmp_path_factory.mktemp("other"))
    other.fails = {"ch01", "ch02"}
    other.run()
    foreign = (other.root / "checkpoint.md").read_text().replace("run=", "run=x")
    book.run()
    (book.root / "checkpoint.md").write_text(foreign)
    assert (book.run().status, book.made) == ("completed", [])
    assert not events_of(book.root, "view_edited")
