"""A person edits a view: it is a wish, neither obeyed in silence nor written over in silence."""

from __future__ import annotations

import re
import sqlite3

import pytest

from .projects import RUN_ID, Book


@pytest.fixture
def broken(book: Book) -> Book:
    """Chapter 2 stopped at its research; the rest is finished."""
    book.wish({"research[ch02]": "fail"})
    assert book.first_run().code == 1
    book.ran()
    return book


def turn_cell(book: Book, item: str, step: str, symbol: str) -> bytes:
    """Write `symbol` into a cell of checkpoint.md, as a person does; gives the edited file."""
    path = book.path("checkpoint.md")
    lines = path.read_text().splitlines(keepends=True)
    header: list[str] = []
    for number, line in enumerate(lines):
        cells = line.split("|")
        if line.startswith("| chapter |"):
            header = [cell.strip() for cell in cells]
        if len(cells) > 1 and cells[1].strip() == item and header:
            cells[header.index(step)] = f" {symbol} "
            lines[number] = "|".join(cells)
    path.write_text("".join(lines))
    return path.read_bytes()


def set_row(book: Book, task: str, status: str) -> None:
    with sqlite3.connect(book.path(".holdfast/todos.db")) as database:
        changed = database.execute("UPDATE todos SET status = ? WHERE id = ?", (status, task)).rowcount
    database.close()
    assert changed == 1


@pytest.mark.parametrize("symbol", ["—", "⏳", "❌"])
def test_a_cell_turned_back_is_a_request_to_redo(finished: Book, symbol: str) -> None:
    """It becomes an event that names the view, the task runs again, and the edited file is kept."""
    edited = turn_cell(finished, "ch02", "final", symbol)
    said = finished.run()
    assert said.code == 0, said.text
    assert finished.ran() == {"final[ch02]": 1}  # it comes out the same: the book stands
    assert edited in finished.backups("checkpoint.md")
    assert "final[ch02]  checkpoint.md was edited" in said.err
    assert "! checkpoint.md was edited; set aside as checkpoint.md.bak." in said.err
    assert "ran again because: sent back" in finished("why", "final[ch02]", "--run", RUN_ID).out
    assert "checkpoint.md was turned back by hand" in finished.path("RESUME.md").read_text()
    assert re.search(r"\| ch02 \|.*✅ \|$", finished.path("checkpoint.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("view", ["checkpoint.md", "todos.db"])
def test_resume_takes_up_what_was_turned_back_in_a_completed_run(finished: Book, view: str) -> None:
    """`plan` says that the task would run again, and the command that continues does not call the run complete."""
    assert "Nothing to do" in finished("resume").out
    if view == "todos.db":
        set_row(finished, "final[ch02]", "pending")
    else:
        turn_cell(finished, "ch02", "final", "—")
    said = finished("resume")
    assert (said.code, finished.ran()) == (0, {"final[ch02]": 1}), said.text


def test_an_edit_is_foreseen(finished: Book) -> None:
    """`plan` and `recover --dry-run` say what the edit asks for, and change nothing; then `recover` does that."""
    edited = turn_cell(finished, "ch02", "final", "—")
    set_row(finished, "draft[ch03]", "pending")
    journal = finished.path(f".holdfast/runs/{RUN_ID}/events.jsonl").read_bytes()
    plan = finished("plan")
    assert "  changed: checkpoint.md was edited: final[ch02] is to be done again" in plan.out.splitlines()
    assert "  changed: todos.db was edited: draft[ch03] is to be done again" in plan.out.splitlines()
    assert finished.plan()["final[ch02]"] == finished.plan()["draft[ch03]"] == "redo"
    dry = finished("recover", "--dry-run")
    assert "final[ch02]: checkpoint.md: pending, journal: completed; taken as a wish: checkpoint.md" in dry.out
    assert "believed: journal" not in dry.out
    assert finished.path("checkpoint.md").read_bytes() == edited
    assert finished.path(f".holdfast/runs/{RUN_ID}/events.jsonl").read_bytes() == journal
    assert "runs again" in finished("why", "final[ch02]").out
    foreseen = finished("recover", "--dry-run", "--json").json()
    done = finished("recover", "--json").json()
    assert (foreseen["tasks"], foreseen["disagreements"]) == (done["tasks"], done["disagreements"])


def test_a_cell_turned_to_done_is_a_claim_to_verify(broken: Book) -> None:
    """No file proves it: the claim is told and not believed, and the task runs like any other."""
    edited = turn_cell(broken, "ch02", "research", "✅")
    broken.wish({})
    said = broken.resume()
    assert said.code == 0, said.text
    assert broken.ran()["research[ch02]"] == 1
    assert edited in broken.backups("checkpoint.md")
    assert "checkpoint.md" in said.text


def test_a_claim_that_the_file_bears_out_is_accepted(broken: Book) -> None:
    """A person wrote the file, with its marker, and ticked the cell: it counts, and the chapter goes on."""
    broken.path("research/ch02.md").write_text("My own facts.\n<!-- RESEARCH_COMPLETE -->\n")
    turn_cell(broken, "ch02", "research", "✅")
    said = broken.resume()
    assert said.code == 0, said.text
    assert broken.ran()["research[ch02]"] == 0
    assert "My own facts." in broken.path("book.md").read_text()


def test_a_row_of_todos_turned_back(finished: Book) -> None:
    """The same wish by SQL has the same effect."""
    set_row(finished, "final[ch02]", "pending")
    said = finished.run()
    assert said.code == 0, said.text
    assert finished.ran() == {"final[ch02]": 1}
    assert "todos.db" in said.text


def test_a_row_of_todos_turned_to_done(broken: Book) -> None:
    """A claim by SQL is verified like any other: nothing proves it, so the task runs."""
    set_row(broken, "research[ch02]", "done")
    broken.wish({})
    assert broken.resume().code == 0
    assert broken.ran()["research[ch02]"] == 1


def test_words_written_into_a_view_are_kept(finished: Book, original: Book) -> None:
    """A remark is no wish about a task: nothing runs, and the remark is not lost when the view is drawn again."""
    remarks = {}
    for name in ("checkpoint.md", "RESUME.md"):
        path = finished.path(name)
        path.write_text(path.read_text().replace("\n\n", "\n\nMy remark.\n\n", 1))
        remarks[name] = path.read_bytes()
    finished.lose("book.md")  # so that the views are drawn again
    assert finished.run().code == 0
    assert not finished.ran()
    for name, edited in remarks.items():
        assert edited in finished.backups(name)
    assert finished.artifacts() == original.artifacts()


def test_an_edit_is_obeyed_once(finished: Book) -> None:
    """The wish is recorded and the view drawn anew: the next run has nothing to do."""
    turn_cell(finished, "ch02", "final", "—")
    assert finished.run().code == 0
    finished.ran()
    assert finished.run().code == 0
    assert not finished.ran()
    assert len(finished.backups("checkpoint.md")) == 1


def test_an_old_view_is_no_edit(finished: Book) -> None:
    """A checkpoint.md of yesterday that nobody edited wishes nothing, however much it differs."""
    letter = finished.path("checkpoint.md").read_bytes()
    feedback = ("--feedback", "More salt.", "--run", RUN_ID)
    assert finished("reject", "draft[ch01]", "--to", "draft[ch01]", *feedback).code == 0
    finished.wish({"draft[ch01]": "fail"})
    assert finished.resume(RUN_ID).code == 1
    finished.path("checkpoint.md").write_bytes(letter)
    finished.ran()
    assert finished.resume("--no-retry").code == 1
    assert not finished.ran()


def test_views_lost_are_drawn_again(finished: Book, original: Book) -> None:
    """Deleting a view wishes nothing: it is back after the next command that runs."""
    finished.lose("checkpoint.md", "RESUME.md", ".holdfast/todos.db")
    assert finished.run().code == 0
    assert not finished.ran()
    assert finished.artifacts() == original.artifacts()
    for name in ("checkpoint.md", "RESUME.md", ".holdfast/todos.db"):
        assert finished.path(name).exists()


def test_todos_is_rebuilt_from_checkpoint_when_that_is_all(book: Book) -> None:
    """All lost but checkpoint.md and RESUME.md: ticks are claims without proof, so everything runs again."""
    assert book.first_run("-p", "length=1").code == 0
    book.ran()
    book.lose(".holdfast", "outline.md", "research", "drafts", "reviews", "merged", "final", "book.md")
    said = book.resume()
    assert said.code == 0, said.text
    assert book.ran()["outline"] == 1
    assert book.path("book.md").exists()
