"""Several things lost, damaged or moved at once."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from documented import READY

from .projects import RUN_ID, Book, body_of

YEAR_S = 365.25 * 86400


def changed_names(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    return {name for name in before | after if before.get(name) != after.get(name)}


# --- two losses at once ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "task", "damage"),
    [
        ("outline.md", "outline", b"half of i"),
        ("reviews/ch02-r2.md", "r2[ch02]", bytes(200)),
        ("final/ch01.md", "final[ch01]", None),
        ("book.md", "assemble", b"half of i"),
        ("book.md", "assemble", None),
    ],
)
def test_state_lost_and_an_artifact_damaged(
    finished: Book, original: Book, name: str, task: str, damage: bytes | None
) -> None:
    """Only the damaged one's step runs; it gives the same again, so that everything else is adopted as it is."""
    finished.lose(".holdfast")
    if damage is None:
        finished.lose(name)
    else:
        finished.path(name).write_bytes(damage)
    said = finished.run()
    assert said.code == 0, said.text
    assert finished.ran() == {task: 1}
    assert changed_names(original.artifacts(), finished.artifacts()) <= {name}
    assert finished.bodies() == original.bodies()
    assert damage is None or damage in finished.quarantined() + finished.backups(name)


def test_state_lost_and_a_draft_damaged(finished: Book, original: Book) -> None:
    """Its step takes a value that is lost too: that runs first, then the draft, and nothing else."""
    finished.lose(".holdfast")
    finished.path("drafts/ch02.md").write_bytes(b"# Draft of")
    said = finished.run()
    assert said.code == 0, said.text
    assert finished.ran() == {"style": 1, "draft[ch02]": 1}
    assert body_of(finished.artifacts()["drafts/ch02.md"]) == body_of(original.artifacts()["drafts/ch02.md"])


def test_state_lost_and_what_is_made_again_differs(finished: Book) -> None:
    """The final chapter that lies there was made from the lost text: a question, not a redo nobody asked for."""
    before = finished.artifacts()
    finished.lose(".holdfast", "merged/ch02.md")
    finished.wish({"merge[ch02]": {"text": "Merged in another mood.\n"}})
    said = finished.run()
    assert said.code == 3, said.text
    assert finished.ran() == {"score[ch02]": 1, "merge[ch02]": 1}
    assert changed_names(before, finished.artifacts()) == {"merged/ch02.md"}
    assert "holdfast decide 'final[ch02]'" in said.out


@pytest.mark.parametrize("choice", ["keep", "redo"])
def test_the_question_is_answered(finished: Book, choice: str) -> None:
    """keep: the chapter stands, and so does the book; redo: it is made anew, and the book is the next question."""
    before = finished.artifacts()
    finished.lose(".holdfast", "merged/ch02.md")
    finished.wish({"merge[ch02]": {"text": "Merged in another mood.\n"}})
    assert finished.run().code == 3
    finished.ran()
    assert finished("decide", "final[ch02]", choice).code == 0
    said = finished.resume()
    if choice == "redo":
        assert said.code == 3 and "holdfast decide assemble" in said.out, said.text
        assert finished("decide", "assemble", "redo").code == 0
        said = finished.resume()
    assert said.code == 0, said.text
    assert finished.ran() == ({} if choice == "keep" else {"final[ch02]": 1, "assemble": 1})
    assert (body_of(before["book.md"]) == finished.bodies()["book.md"]) == (choice == "keep")


def test_state_lost_and_nobody_can_tell_whether_it_fits(finished: Book) -> None:
    """The merge also took a score that is lost: whether the new review fits cannot be known, so it stands."""
    before = finished.artifacts()
    finished.lose(".holdfast", "reviews/ch02-r2.md")
    finished.wish({"r2[ch02]": {"text": "I changed my mind.\n"}})
    assert finished.run().code == 3
    assert finished.ran() == {"r2[ch02]": 1}
    assert changed_names(before, finished.artifacts()) == {"reviews/ch02-r2.md"}


def test_objects_lost_and_an_artifact_damaged(finished: Book, original: Book) -> None:
    """No copy to heal from: that step runs, and as it gives the same again, nothing else does."""
    finished.lose("objects")
    finished.path("merged/ch03.md").write_bytes(b"\0\0\0")
    said = finished.run()
    assert said.code == 0, said.text
    assert finished.ran() == {"merge[ch03]": 1}
    assert changed_names(original.artifacts(), finished.artifacts()) <= {"merged/ch03.md"}


def test_objects_lost_are_made_again(finished: Book, original: Book) -> None:
    """Whole artifacts are copied into objects anew, so that the next loss can be healed."""
    finished.lose("objects")
    assert finished.run().code == 0
    finished.lose("merged/ch03.md", "book.md")
    assert finished.run().code == 0
    assert not finished.ran()
    assert finished.artifacts() == original.artifacts()


def test_a_damaged_copy_heals_nothing(finished: Book, original: Book) -> None:
    """The copy in objects is damaged as well as the file: neither is believed, the step runs."""
    (pack,) = finished.path(".holdfast/objects").glob("*/*.pack")
    data = pack.read_bytes()
    words = body_of(original.artifacts()["reviews/ch02-r2.md"]).encode()
    assert words in data
    pack.write_bytes(data.replace(words, words.swapcase()))
    finished.lose("reviews/ch02-r2.md")
    assert finished.run().code == 0
    assert finished.ran() == {"r2[ch02]": 1}
    assert body_of(finished.artifacts()["reviews/ch02-r2.md"]).encode() == words


def test_state_lost_and_an_artifact_edited(finished: Book, original: Book) -> None:
    """An edit is a person's, also without a record: exit 3, everything else adopted, the edit left where it is."""
    finished.lose(".holdfast")
    edited = original.artifacts()["final/ch02.md"].replace(b"# Chapter", b"# My chapter")
    finished.path("final/ch02.md").write_bytes(edited)
    said = finished.run()
    assert said.code == 3, said.text
    assert not finished.ran()
    assert changed_names(original.artifacts(), finished.artifacts()) == {"final/ch02.md"}
    assert "final[ch02]" in said.out


@pytest.mark.parametrize("choice", ["keep", "redo"])
def test_an_edit_without_a_record_is_decided_about(finished: Book, original: Book, choice: str) -> None:
    """keep: the edit counts, and the book is made from it; redo: it is set aside, the chapter made again."""
    finished.lose(".holdfast")
    edited = original.artifacts()["final/ch02.md"].replace(b"# Chapter", b"# My chapter")
    finished.path("final/ch02.md").write_bytes(edited)
    asked = finished.run()
    assert asked.code == 3
    assert "holdfast decide 'final[ch02]' keep   (or: redo)" in asked.out
    finished.ran()
    assert finished("decide", "final[ch02]", choice).code == 0
    said = finished.resume()
    assert said.code == 0, said.text
    ran = finished.ran()
    assert ran["final[ch02]"] == (choice == "redo")
    assert choice == "redo" or ran["assemble"] == 1
    assert ("# My chapter" in finished.bodies()["book.md"]) == (choice == "keep")
    assert ("# My chapter" in finished.bodies()["final/ch02.md"]) == (choice == "keep")
    assert (edited in finished.backups("final/ch02.md")) == (choice == "redo")


# --- views that mislead ----------------------------------------------------------------------------------


def other_project(tmp_path: Path) -> Book:
    """Another book, finished, of the same pipeline: its views claim that everything is done."""
    other = Book(tmp_path / "other").begin()
    assert other.run("--run-id", "other-edition", "-p", "topic=whales").code == 0
    return other


@pytest.mark.parametrize("edited", [False, True], ids=["as-it-was", "edited"])
def test_checkpoint_of_another_project(finished: Book, original: Book, tmp_path: Path, edited: bool) -> None:
    """It is not ours, so it wishes nothing here; it is kept aside, and ours is drawn again."""
    foreign = other_project(tmp_path).path("checkpoint.md").read_bytes()
    foreign = foreign.replace("✅".encode(), "—".encode()) if edited else foreign
    finished.path("checkpoint.md").write_bytes(foreign)
    assert finished.run().code == 0
    assert not finished.ran()
    assert finished.artifacts() == original.artifacts()
    assert "other-edition" not in finished.path("checkpoint.md").read_text()
    assert foreign in finished.backups("checkpoint.md")


def test_checkpoint_of_another_project_claims_nothing_for_lost_work(finished: Book, tmp_path: Path) -> None:
    """State lost, the views are another project's, and a chapter is missing: it is made, not believed done."""
    other = other_project(tmp_path)
    finished.lose(".holdfast", "final/ch02.md", "merged/ch02.md")
    for name in ("checkpoint.md", "RESUME.md"):
        finished.path(name).write_bytes(other.path(name).read_bytes())
    said = finished.run()
    assert said.code == 0, said.text
    assert set(finished.ran()) == {"score[ch02]", "merge[ch02]", "final[ch02]"}
    assert finished.status()["run_id"] == RUN_ID
    assert finished.status()["params"]["topic"] == "kelp"


@pytest.mark.parametrize("content", [b"", b"not a database\n" * 50, b"SQLite format 3\0" + b"\xff" * 4000])
def test_todos_is_no_database(finished: Book, original: Book, content: bytes) -> None:
    """It is drawn anew from the journal, and the query that lists what can start works again."""
    finished.path(".holdfast/todos.db").write_bytes(content)
    assert finished.run().code == 0
    assert not finished.ran()
    assert finished.artifacts() == original.artifacts()
    with sqlite3.connect(finished.path(".holdfast/todos.db")) as database:
        assert database.execute("SELECT count(*) FROM todos WHERE status = 'done'").fetchone()[0] >= 27
        assert database.execute(READY).fetchall() == []
    database.close()


def test_todos_lists_what_can_start(book: Book) -> None:
    """The query of the documentation gives exactly what the next resume begins with."""
    book.wish({"merge[ch02]": "fail", "research[ch01]": "fail"})
    assert book.first_run().code == 1
    with sqlite3.connect(book.path(".holdfast/todos.db")) as database:
        rows = dict(database.execute("SELECT id, status FROM todos").fetchall())
        ready = database.execute(READY).fetchall()
    database.close()
    assert ready == []
    assert rows["final[ch02]"] == "blocked" and rows["final[ch03]"] == "done"


# --- rounds ----------------------------------------------------------------------------------------------


@pytest.fixture
def sent_back(finished: Book) -> tuple[Book, bytes]:
    """A person sent chapter 1's draft back; gives the draft of the first round as well."""
    old = finished.artifacts()["drafts/ch01.md"]
    said = finished("reject", "draft[ch01]", "--to", "draft[ch01]", "--feedback", "More salt.", "--run", RUN_ID)
    assert said.code == 0, said.text
    return finished, old


def test_what_was_sent_back_is_not_adopted(sent_back: tuple[Book, bytes]) -> None:
    """Its file is whole and sealed, but of the round that was sent back: the step runs, and what follows."""
    book, old = sent_back
    assert book.resume(RUN_ID).code == 0
    assert {"draft[ch01]": 1, "merge[ch01]": 1, "assemble": 1}.items() <= book.ran().items()
    assert "More salt." in body_of(book.artifacts()["drafts/ch01.md"])
    assert book.artifacts()["drafts/ch01.md"] != old
    assert b"More salt." in book.artifacts()["book.md"]


def test_an_old_version_put_back_before_the_new_one_is_made(sent_back: tuple[Book, bytes]) -> None:
    """Killed in the second round, then the first round's file is put back: its seal says which round it is of."""
    book, old = sent_back
    book.wish({"draft[ch01]": {"stop_after": 30}})
    book.killed_in("draft[ch01]", "resume", RUN_ID)
    book.wish({})
    book.ran()
    book.path("drafts/ch01.md").write_bytes(old)
    said = book.resume(RUN_ID)
    assert said.code == 0, said.text
    assert book.ran()["draft[ch01]"] == 1
    assert "More salt." in body_of(book.artifacts()["drafts/ch01.md"])


def test_an_old_version_put_back_after_the_new_one_was_accepted(sent_back: tuple[Book, bytes]) -> None:
    """Somebody restored it, so it is asked about (exit 3); --on-changed restore puts the accepted one back."""
    book, old = sent_back
    assert book.resume(RUN_ID).code == 0
    accepted = book.artifacts()
    book.ran()
    book.path("drafts/ch01.md").write_bytes(old)
    said = book.resume(RUN_ID)
    assert said.code == 3, said.text
    assert not book.ran()
    assert book.artifacts()["drafts/ch01.md"] == old
    assert book.resume(RUN_ID, "--on-changed", "restore").code == 0
    assert not book.ran()
    assert book.artifacts() == accepted
    assert old in book.backups("drafts/ch01.md")
    assert book.verify() == []


@pytest.mark.parametrize("way", ["resume", "recover"])
def test_an_older_copy_of_the_state_is_put_back(finished: Book, way: str) -> None:
    """What was made since then says itself of which round it is: none of it is paid for again, or set aside."""
    book, backup = finished, finished.root.with_name("backup")
    shutil.copytree(book.path(".holdfast"), backup)
    said = book("reject", "draft[ch01]", "--to", "draft[ch01]", "--feedback", "More salt.", "--run", RUN_ID)
    assert said.code == 0, said.text
    assert book.resume(RUN_ID).code == 0
    made, cost = book.artifacts(), book.status()["total_cost_usd"]
    book.ran()
    book.lose(".holdfast")
    shutil.copytree(backup, book.path(".holdfast"))
    assert way == "resume" or book("recover").code == 0
    said = book.resume(RUN_ID)
    assert said.code == 0, said.text
    assert book.ran() == {"score[ch01]": 1}  # it has no file
    assert book.artifacts() == made
    assert book.verify() == []
    assert book.status()["total_cost_usd"] >= cost


# --- moved, copied, another time -------------------------------------------------------------------------


def test_copied_to_another_path(book: Book, original: Book, tmp_path: Path) -> None:
    """A copy of an unfinished project is continued where it lies, and the original is not touched."""
    book.wish({"merge[ch02]": "die"})
    assert book.first_run("--concurrency", "1").code < 0
    before = book.artifacts()
    copy = book.copied_to(tmp_path / "elsewhere")
    assert copy.resume().code == 0
    assert copy.artifacts() == original.artifacts()
    assert copy.ran()["merge[ch02]"] == 1
    assert book.artifacts() == before


def test_copied_from_another_machine(finished: Book, original: Book) -> None:
    """A lock file that another host left says nothing: the lock is the kernel's."""
    words = {
        "host": "elsewhere.example",
        "pid": os.getpid(),
        "since": "2026-01-01T00:00:00.000Z",
        "run_id": RUN_ID,
    }
    finished.path(".holdfast/engine.lock").write_text(json.dumps(words))
    status = finished.status()
    assert (status["running"], status["holder"]) == (False, None)
    finished.lose("book.md")
    assert finished.run().code == 0
    assert not finished.ran()
    assert finished.artifacts() == original.artifacts()


@pytest.mark.parametrize("years", [-10, 10, -56])
def test_the_clock_is_set_between_start_and_resume(book: Book, original: Book, years: int) -> None:
    """Numbers decide, not times: the same run goes on, nothing finished runs again, no duration is negative."""
    book.wish({"merge[ch02]": "die"})
    assert book.first_run("--concurrency", "1").code < 0
    done = {task["id"] for task in book.status()["tasks"] if task["status"] == "completed"}
    book.wish({})
    book.ran()
    said = book.resume(clock_s=years * YEAR_S)
    assert said.code == 0, said.text
    assert not set(book.ran()) & done
    assert book.artifacts() == original.artifacts()
    status = book.status()
    assert status["updated_at"][:3] != status["started_at"][:3]  # the clock was really off
    assert all(task["duration_seconds"] >= 0 for task in status["tasks"] if task["duration_seconds"] is not None)
    assert [run["run_id"] for run in book("list", "--json").json()] == [RUN_ID]


def test_the_newest_run_is_the_last_one_whatever_the_clock_says(book: Book) -> None:
    """Started ten years earlier by the clock, it is still the newest: order is by number."""
    assert book.run("--run-id", "first", "-p", "length=1").code == 0
    book.wish({"assemble": "fail"})
    assert book.run("--force", "-p", "length=2", clock_s=-10 * YEAR_S).code == 1
    runs = [run["run_id"] for run in book("list", "--json").json()]
    assert runs[0].startswith("2016") and runs[1:] == ["first"]
    assert book.status()["run_id"] == runs[0]


# --- made by agents --------------------------------------------------------------------------------------


def as_agents_leave_it(book: Book, original: Book) -> None:
    """The files of a project made by agents: plain markers, and no trace of Holdfast."""
    markers = {"drafts": "DRAFT_COMPLETE", "research": "RESEARCH_COMPLETE", "outline.md": "OUTLINE_COMPLETE"}
    for name, sealed in original.artifacts().items():
        marker = markers.get(name.split("/")[0])
        if marker is not None:
            book.path(name).parent.mkdir(exist_ok=True)
            book.path(name).write_text(body_of(sealed) + f"<!-- {marker} -->\n")


def test_a_project_made_by_agents(book: Book, original: Book) -> None:
    """Files that end in their plain marker are taken over and sealed; what is not there is made."""
    as_agents_leave_it(book, original)
    said = book.run("--run-id", RUN_ID)
    assert said.code == 0, said.text
    assert "Found finished without a record, taken over as it is, and sealed: outline, " in said.out
    ran = book.ran()
    assert not {task for task in ran if task.startswith(("outline", "research", "draft"))}, ran
    assert ran["merge[ch02]"] == 1
    assert book.bodies() == original.bodies()


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "As it says: <!-- DRAFT_COMPLETE -->\n",
        "```\n<!-- DRAFT_COMPLETE -->\n```\n",
        "<!-- DRAFT_COMPLETE -->\nand then some more\n",
        "<!-- R1_DRAFT_COMPLETE -->\n",
        "<!-- DRAFT_COMPLETE_NOT -->\n",
    ],
    ids=["none", "quoted", "in-a-code-block", "followed-by-text", "inside-another", "longer"],
)
def test_words_that_are_no_marker(book: Book, original: Book, ending: str) -> None:
    """Only the exact last line counts: such a draft is half-finished, kept aside, and written anew."""
    as_agents_leave_it(book, original)
    text = body_of(original.artifacts()["drafts/ch02.md"]) + ending
    book.path("drafts/ch02.md").write_text(text)
    assert book.run("--run-id", RUN_ID).code == 0
    ran = book.ran()
    assert [task for task in ran if task.startswith("draft")] == ["draft[ch02]"]
    assert book.backups("drafts/ch02.md") == [text.encode()]
    assert body_of(book.artifacts()["drafts/ch02.md"]) == body_of(original.artifacts()["drafts/ch02.md"])


def test_a_file_of_the_same_name_that_is_nobodys(book: Book, original: Book) -> None:
    """What somebody had at a step's path before is kept aside, not overwritten and not believed."""
    book.path("outline.md").write_text("my own thoughts\n")
    assert book.run("--run-id", RUN_ID).code == 0
    assert book.backups("outline.md") == [b"my own thoughts\n"]
    assert book.artifacts() == original.artifacts()
