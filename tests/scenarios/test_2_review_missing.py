"""Disaster 2: of three parallel reviews, one is missing."""

from __future__ import annotations

import pytest

from .projects import RUN_ID, Book

REVIEW = "reviews/ch02-r2.md"
TASK = "r2[ch02]"
AFTER_IT = {"merge[ch02]": 1, "final[ch02]": 1, "assemble": 1}


@pytest.fixture
def reviewed(book: Book) -> Book:
    """Everything up to the merge of chapter 2 is done; there the process died."""
    book.wish({"merge[ch02]": "die"})
    assert book.first_run("--concurrency", "1").code < 0
    book.wish({})
    assert {"r1[ch02]", "r2[ch02]", "r3[ch02]", "score[ch02]"} <= set(book.ran())
    return book


def done(book: Book) -> set[str]:
    return {task["id"] for task in book.status()["tasks"] if task["status"] == "completed"}


def test_a_review_cut_off_runs_alone(book: Book, original: Book) -> None:
    """Killed while one of three reviews goes on: it and what follows run, the other two do not."""
    book.wish({TASK: "hang"})
    book.killed_in(TASK, "run", "book.py", "--run-id", RUN_ID, "--concurrency", "1")
    book.wish({})
    book.ran()
    finished = done(book)
    assert book.resume().code == 0
    ran = book.ran()
    assert ran[TASK] == 1
    assert not set(ran) & finished
    assert book.artifacts() == original.artifacts()


def test_missing_before_the_merge_it_is_put_back(reviewed: Book, original: Book) -> None:
    """With its copy in objects the review costs nothing: it is put back, and the merge reads it."""
    finished = done(reviewed)
    reviewed.lose(REVIEW)
    assert reviewed.plan()[TASK] == "heal"
    said = reviewed.resume()
    assert said.code == 0, said.text
    ran = reviewed.ran()
    assert not set(ran) & finished
    assert AFTER_IT.items() <= ran.items()
    assert reviewed.artifacts() == original.artifacts()
    assert f"{REVIEW} was missing; put back" in said.err


def test_missing_before_the_merge_without_a_copy_it_runs(reviewed: Book, original: Book) -> None:
    """Objects lost too: that review runs, of all that was finished nothing else does, and the merge takes it."""
    finished = done(reviewed)
    reviewed.lose(REVIEW)
    reviewed.lose("objects")
    said = reviewed.resume()
    assert said.code == 0, said.text
    ran = reviewed.ran()
    assert set(ran) & finished == {TASK}
    assert AFTER_IT.items() <= ran.items()
    assert sorted(reviewed.artifacts()) == sorted(original.artifacts())


def test_missing_in_a_finished_book_it_is_put_back(finished: Book, original: Book) -> None:
    """verify finds it; nothing runs; the file is there again, byte for byte; verify is content."""
    finished.lose(REVIEW)
    assert finished.verify() == [(TASK, "missing")]
    assert not finished.path(REVIEW).exists()
    assert finished.run().code == 0
    assert not finished.ran()
    assert finished.artifacts() == original.artifacts()
    assert finished.verify() == []


def test_made_again_the_same_it_stops_there(finished: Book) -> None:
    """Objects lost too, and the review comes out as before: the merge stands."""
    before = finished.artifacts()
    finished.lose(REVIEW)
    finished.lose("objects")
    assert finished.plan()[TASK] == "redo"
    said = finished.run()
    assert said.code == 0, said.text
    assert finished.ran() == {TASK: 1}
    after = finished.artifacts()
    assert {name for name in before if before[name] != after[name]} <= {REVIEW}  # its seal has the spend


def test_made_again_otherwise_what_follows_runs(finished: Book) -> None:
    """Objects lost too, and the review says something else: its merge and what follows run, no other chapter."""
    before = finished.artifacts()
    finished.lose(REVIEW)
    finished.lose("objects")
    finished.wish({TASK: {"text": "I changed my mind.\n"}})
    said = finished.run()
    assert said.code == 0, said.text
    assert finished.ran() == {TASK: 1, **AFTER_IT}
    after = finished.artifacts()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {REVIEW, "merged/ch02.md", "final/ch02.md", "book.md"}
    assert b"I changed my mind." in after["book.md"]


@pytest.mark.parametrize(
    "damage",
    [b"", b"half of a rev", b"\0" * 80, b"\xff\xfe\xfa" * 30],
    ids=["empty", "cut", "zeros", "not-utf-8"],
)
def test_a_damaged_review_is_a_missing_one(finished: Book, original: Book, damage: bytes) -> None:
    """Set aside where it can be looked at, told, and put back."""
    finished.path(REVIEW).write_bytes(damage)
    said = finished.run()
    assert said.code == 0, said.text
    assert not finished.ran()
    assert finished.artifacts() == original.artifacts()
    assert damage in finished.quarantined() + finished.backups(REVIEW)
    assert REVIEW in said.err and "set aside" in said.err


def test_two_reviews_swapped_are_damage(finished: Book, original: Book) -> None:
    """Each is sealed and whole, but another task's: neither is believed at the other's path."""
    first, second = finished.path("reviews/ch02-r1.md"), finished.path("reviews/ch01-r1.md")
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    assert finished.run().code == 0
    assert not finished.ran()
    assert finished.artifacts() == original.artifacts()


def test_all_three_reviews_missing(finished: Book, original: Book) -> None:
    """Put back together; with objects lost, only these three run."""
    names = [f"reviews/ch02-r{number}.md" for number in (1, 2, 3)]
    finished.lose(*names)
    assert finished.run().code == 0
    assert not finished.ran()
    assert finished.artifacts() == original.artifacts()
    finished.lose(*names)
    finished.lose("objects")
    assert finished.run().code == 0
    assert finished.ran() == {"r1[ch02]": 1, "r2[ch02]": 1, "r3[ch02]": 1}


# --- only what is needed ---------------------------------------------------------------------------------


def test_left_alone_where_nobody_needs_it(finished: Book) -> None:
    """--only-needed: nothing unfinished takes the review, so it stays lost; a plain run brings it back."""
    finished.lose(REVIEW)
    finished.lose("objects")
    assert finished.run("--only-needed").code == 0
    assert not finished.ran()
    assert not finished.path(REVIEW).exists()
    assert finished.run().code == 0
    assert finished.ran() == {TASK: 1}
    assert finished.path(REVIEW).exists()


def test_made_where_somebody_needs_it(reviewed: Book) -> None:
    """--only-needed: the merge has yet to run and takes the review, so it is made; a lost research note is not."""
    reviewed.lose(REVIEW, "research/ch02.md")
    reviewed.lose("objects")
    said = reviewed.resume("--only-needed")
    assert said.code == 0, said.text
    ran = reviewed.ran()
    assert ran[TASK] == 1
    assert ran["research[ch02]"] == 0
    assert not reviewed.path("research/ch02.md").exists()
    assert reviewed.path("book.md").exists()
