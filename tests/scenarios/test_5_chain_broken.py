"""Disaster 5: a step fails for good, and a chain of others depends on it."""

from __future__ import annotations

import pytest

from .projects import ALL, RUN_ID, Book, chapter

TASK = "research[ch02]"
AFFECTED = chapter(2) | {"assemble"}


@pytest.fixture
def broken(book: Book) -> Book:
    """Chapter 2's research fails whenever it is tried; the run went as far as it could."""
    book.wish({TASK: "fail"})
    said = book.first_run()
    assert said.code == 1, said.text
    return book


def statuses(book: Book) -> dict[str, str]:
    return {task["id"]: task["status"] for task in book.status()["tasks"]}


def test_it_is_retried_and_then_needs_a_person(broken: Book) -> None:
    """All its attempts are made, no more; it needs review; what depends on it is blocked."""
    assert broken.ran()[TASK] == 2
    found = statuses(broken)
    assert found[TASK] == "needs_review"
    assert {found[task] for task in AFFECTED - {TASK}} == {"blocked"}


def test_everything_else_goes_on(broken: Book, original: Book) -> None:
    """The other chapters are finished as if nothing had happened, also one that comes later."""
    assert set(broken.ran()) == ALL - AFFECTED | {TASK}
    kept = {name: content for name, content in original.artifacts().items() if "ch02" not in name}
    del kept["book.md"]
    assert broken.artifacts() == kept


def test_the_end_lists_what_needs_a_person(book: Book) -> None:
    """Exit 1; each broken task once with its error and the command for it; what is blocked is counted."""
    book.wish({TASK: "fail", "r3[ch01]": "fail"})
    said = book.first_run()
    assert said.code == 1
    for task in (TASK, "r3[ch01]"):
        assert f"no luck with {task}" in said.out
    assert "holdfast retry" in said.out
    assert f"Continue with: holdfast resume {RUN_ID}" in said.out
    totals = book.status()["totals"]
    assert (totals["needs_review"], totals["failed"]) == (2, 0)
    assert totals["blocked"] == len(chapter(2)) - 1 + len({"merge[ch01]", "final[ch01]", "assemble"})


def test_the_views_show_it(broken: Book) -> None:
    """checkpoint.md has the warning sign in its cell, RESUME.md the error, what is affected and the way on."""
    lines = broken.path("checkpoint.md").read_text().splitlines()
    header = next(line for line in lines if line.startswith("| chapter |"))
    row = next(line for line in lines if line.startswith("| ch02 |"))
    cells = dict(zip(header.split("|"), row.split("|"), strict=True))
    assert "⚠️" in cells[" research "]
    assert row.count("⚠️") == 1
    letter = broken.path("RESUME.md").read_text()
    assert "RuntimeError: no luck with research" in letter
    assert f"holdfast resume {RUN_ID}" in letter
    assert "High" in letter


def test_why_tells_the_chain(broken: Book) -> None:
    """`why` of the broken task has its error; of the last one, what it waits for."""
    assert f"no luck with {TASK}" in broken("why", TASK).out
    assert TASK in broken("why", "draft[ch02]").out
    assert "blocked" in broken("why", "assemble").out


def test_a_later_resume_runs_exactly_the_affected(broken: Book, original: Book) -> None:
    """The cause removed: the broken task and what hung on it run once, nothing else; the book is complete."""
    broken.ran()
    broken.wish({})
    said = broken.resume()
    assert said.code == 0, said.text
    assert broken.ran() == dict.fromkeys(AFFECTED, 1)
    assert broken.artifacts() == original.artifacts()
    assert broken.verify() == []
    assert "⚠️" not in broken.path("checkpoint.md").read_text().partition("## Legend")[0]


def test_still_broken_it_gets_fresh_attempts(broken: Book) -> None:
    """resume tries again as often as the first time, fails again with exit 1, and runs nothing else."""
    broken.ran()
    said = broken.resume()
    assert said.code == 1
    assert broken.ran() == {TASK: 2}


def test_no_retry_leaves_it(broken: Book) -> None:
    """--no-retry: nothing runs, and the exit status still says that a task failed."""
    broken.ran()
    assert broken.resume("--no-retry").code == 1
    assert not broken.ran()


def test_retry_by_name(broken: Book, original: Book) -> None:
    """`retry TASK` is enough, also for a resume without fresh attempts for others."""
    broken.ran()
    broken.wish({})
    said = broken("retry", TASK)
    assert said.code == 0 and "holdfast resume" in said.out
    assert broken.resume("--no-retry").code == 0
    assert broken.ran() == dict.fromkeys(AFFECTED, 1)
    assert broken.artifacts() == original.artifacts()


def test_an_item_that_comes_after_a_broken_one_goes_on(book: Book) -> None:
    """`after` is order, not data: chapter 3 comes after chapter 1, which waits for a person, and is finished."""
    book.wish({"research[ch01]": "fail"})
    assert book.first_run().code == 1
    found = statuses(book)
    assert {found[task] for task in chapter(3)} == {"completed"}
    assert {found[task] for task in chapter(1) - {"research[ch01]"}} == {"blocked"}


def test_state_lost_while_it_is_broken(broken: Book, original: Book) -> None:
    """The artifacts of unaffected items are adopted; exactly the affected ones run, once they can."""
    broken.ran()
    broken.lose(".holdfast")
    broken.wish({})
    said = broken.resume()
    assert said.code == 0, said.text
    assert {t for t in broken.ran() if t not in AFFECTED} <= {"style"}  # a lost value that draft[ch02] needs
    assert broken.artifacts() == original.artifacts()


def test_decide_skip_lets_the_rest_finish(broken: Book) -> None:
    """A person may give up on it: what takes its output is skipped, the book is bound without it, exit 0."""
    broken.ran()
    assert broken("decide", TASK, "skip").code == 0
    said = broken.resume()
    assert said.code == 0, said.text
    assert broken.ran() == {"assemble": 1}
    assert "# Chapter ch02" not in broken.path("book.md").read_text()
    assert statuses(broken)[TASK] == "skipped"
