"""Disaster 1: the process is killed while a chapter is being written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .projects import RUN_ID, Book, body_of

DRAFT = "drafts/ch02.md"
TASK = "draft[ch02]"
AFTERWARDS = ["r1[ch02]", "r2[ch02]", "r3[ch02]", "score[ch02]", "merge[ch02]", "final[ch02]"]
WRITTEN = 150
"""So many characters of the draft are on disk when the process dies."""


@pytest.fixture(scope="session")
def cut_off(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """Chapter 2 is cut off in mid-sentence, with one body at a time, so that the rest is known."""
    book = Book(tmp_path_factory.mktemp("cut-off")).begin()
    interrupt(book, "run", "book.py", "--run-id", RUN_ID, "--concurrency", "1")
    return book


@pytest.fixture
def interrupted(cut_off: Book, tmp_path: Path) -> Book:
    """A copy of the book that was cut off."""
    return cut_off.copied_to(tmp_path / "here")


def interrupt(book: Book, *words: str, after: int = WRITTEN) -> None:
    book.wish({TASK: {"stop_after": after}})
    book.killed_in(TASK, *words)
    book.wish({})


def half_text(original: Book, length: int = WRITTEN) -> str:
    return body_of(original.artifacts()[DRAFT])[:length]


def as_final_name(book: Book) -> None:
    """As an agent leaves it that writes straight to the file: half of it, under its final name."""
    book.path(f"{DRAFT}.part").rename(book.path(DRAFT))


def put_half(book: Book, content: bytes, name: str = f"{DRAFT}.part") -> None:
    book.lose(f"{DRAFT}.part")
    book.path(name).write_bytes(content)


def test_nothing_half_written_has_the_final_name(interrupted: Book, original: Book) -> None:
    """What was streamed is in NAME.part to the last character; the final name does not exist; status says so."""
    assert not interrupted.path(DRAFT).exists()
    assert interrupted.path(f"{DRAFT}.part").read_text() == half_text(original)
    status = interrupted.status()
    assert (status["status"], status["running"]) == ("in_progress", False)
    assert "interrupted" in interrupted("status").out
    assert {t["id"]: t["status"] for t in status["tasks"]}[TASK] == "in_progress"


@pytest.mark.parametrize("final_name", [False, True], ids=["stream", "final-name"])
def test_redo_backs_up_and_writes_anew(interrupted: Book, original: Book, final_name: bool) -> None:
    """By default the half is kept as NAME.bak.TIME and the step runs from its beginning; the book is as usual."""
    if final_name:
        as_final_name(interrupted)
    assert interrupted.plan()[TASK] == "redo"
    said = interrupted.resume()
    assert said.code == 0, said.text
    assert interrupted.artifacts() == original.artifacts()
    assert interrupted.backups(DRAFT) == [half_text(original).encode()]
    assert f"{DRAFT}" in said.err and ".bak." in said.err
    assert interrupted.partials() == []
    assert interrupted.verify() == []


def test_only_what_was_in_flight_runs_again(interrupted: Book) -> None:
    """The draft that was cut off, what had not begun, and nothing that was finished."""
    done = {task["id"] for task in interrupted.status()["tasks"] if task["status"] == "completed"}
    assert {"outline", "style", "research[ch02]"} <= done
    interrupted.resume()
    ran = interrupted.ran()
    assert not set(ran) & done
    assert [ran[task] for task in (TASK, *AFTERWARDS, "assemble")] == [1] * (len(AFTERWARDS) + 2)


@pytest.mark.parametrize("final_name", [False, True], ids=["stream", "final-name"])
def test_continue_hands_the_half_over(interrupted: Book, original: Book, final_name: bool) -> None:
    """The step receives what is there, adds the rest, and the chapter is what it would have been."""
    if final_name:
        as_final_name(interrupted)
    said = interrupted.resume("--on-partial", "continue")
    assert said.code == 0, said.text
    assert interrupted.partials() == [half_text(original)]
    assert interrupted.artifacts() == original.artifacts()
    assert f"{TASK}  goes on from {WRITTEN} characters" in said.err


def test_continue_loses_neither_of_two_halves(interrupted: Book, original: Book) -> None:
    """A half under the final name beside a stream: one is continued, the other kept aside."""
    interrupted.path(DRAFT).write_text("Another beginning of the same chapter.\n" * 9)
    said = interrupted.resume("--on-partial", "continue")
    assert said.code == 0, said.text
    assert interrupted.bodies() == original.bodies()
    assert b"Another beginning" in b"".join(interrupted.backups(DRAFT))


@pytest.mark.parametrize("final_name", [False, True], ids=["stream", "final-name"])
def test_ask_waits_and_everything_else_goes_on(interrupted: Book, original: Book, final_name: bool) -> None:
    """Exit 3; the half lies there untouched; the other chapters are finished; what depends on it waits."""
    if final_name:
        as_final_name(interrupted)
    half = DRAFT if final_name else f"{DRAFT}.part"
    said = interrupted.resume("--on-partial", "ask")
    assert said.code == 3, said.text
    assert interrupted.path(half).read_text() == half_text(original)
    for name in ("final/ch01.md", "final/ch03.md"):
        assert interrupted.artifacts()[name] == original.artifacts()[name]
    assert not interrupted.path("book.md").exists()
    assert TASK not in interrupted.ran()
    assert half in said.out and TASK in said.out


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("ä".encode() * 99, "under 100 characters"),
        (b"x" * 500 + b"\xff\xfe", "not UTF-8"),
        (b"", "empty"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("name", [f"{DRAFT}.part", DRAFT], ids=["stream", "final-name"])
def test_what_cannot_be_continued_is_redone(
    interrupted: Book, original: Book, name: str, content: bytes, why: str
) -> None:
    """Too little, or no text: kept aside byte for byte, not handed over, and the step runs from its beginning."""
    put_half(interrupted, content, name)
    said = interrupted.resume("--on-partial", "continue")
    assert said.code == 0, said.text
    assert interrupted.partials() == []
    assert interrupted.artifacts() == original.artifacts()
    kept = interrupted.backups(DRAFT) + interrupted.quarantined()
    assert content in kept


def test_exactly_100_characters_are_continued(interrupted: Book, original: Book) -> None:
    """Characters count, not bytes."""
    put_half(interrupted, half_text(original, 100).encode())
    assert interrupted.resume("--on-partial", "continue").code == 0
    assert interrupted.partials() == [half_text(original, 100)]
    assert interrupted.artifacts() == original.artifacts()


def test_each_interruption_has_its_own_backup(interrupted: Book, original: Book) -> None:
    """Killed three times within a moment: three backups, none written over, each with what was there."""
    for more in (1, 2):
        interrupt(interrupted, "resume", "--concurrency", "1", after=WRITTEN + more)
    assert interrupted.resume().code == 0
    assert sorted(interrupted.backups(DRAFT)) == [half_text(original, WRITTEN + n).encode() for n in (0, 1, 2)]
    names = [path.name for path in interrupted.path("drafts").glob("*.bak.*")]
    assert all(re.fullmatch(r"ch02\.md(\.part)?\.bak\.\d{8}T\d{6}Z(\.\d+)?", name) for name in names), names
    assert interrupted.artifacts() == original.artifacts()


def test_a_backup_of_somebody_else_is_not_written_over(interrupted: Book) -> None:
    """A file that a person keeps as NAME.bak stays as it is."""
    mine = interrupted.path(f"{DRAFT}.bak")
    mine.write_text("mine")
    assert interrupted.resume().code == 0
    assert mine.read_text() == "mine"


def test_a_stream_of_an_older_text_is_not_continued_into_another(interrupted: Book, original: Book) -> None:
    """A half that lies beside a finished draft is no reason to do anything about the draft."""
    assert interrupted.resume().code == 0
    interrupted.ran()
    interrupted.path(f"{DRAFT}.part").write_text("x" * 300)
    assert interrupted.run("--on-partial", "continue").code == 0
    assert not interrupted.ran()
    assert interrupted.path(DRAFT).read_bytes() == original.artifacts()[DRAFT]


# --- who decides -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "settings", "option", "wanted"),
    [
        ("continue", None, None, "continue"),
        ("ask", None, None, "ask"),
        ("ask", "continue", None, "continue"),
        ("continue", "redo", None, "redo"),
        ("ask", "redo", "continue", "continue"),
        (None, "ask", None, "ask"),
        (None, "continue", "redo", "redo"),
        ("continue", None, "ask", "ask"),
    ],
)
def test_the_later_wins(
    interrupted: Book, step: str | None, settings: str | None, option: str | None, wanted: str
) -> None:
    """What the step says holds, unless holdfast.toml says otherwise, unless the command line does."""
    if step is not None:
        interrupted.wish({"on_partial": step})
    if settings is not None:
        interrupted.path("holdfast.toml").write_text(f'[run]\non_partial = "{settings}"\n')
    said = interrupted.resume(*(["--on-partial", option] if option else []))
    assert said.code == (3 if wanted == "ask" else 0), said.text
    assert len(interrupted.partials()) == (wanted == "continue")
    assert len(interrupted.backups(DRAFT)) == (wanted == "redo")


def asked(book: Book) -> Book:
    """The question is on the table, and everything else done."""
    assert book.resume("--on-partial", "ask").code == 3
    book.ran()
    return book


def test_the_question_names_its_answers(interrupted: Book) -> None:
    """status and the end of the run print the command that answers, and what the looks of the file recommend."""
    said = interrupted.resume("--on-partial", "ask")
    for text in (said.out, interrupted("status").out, interrupted.path("RESUME.md").read_text()):
        assert "holdfast decide" in text and TASK in text, text
    assert "mid-sentence" in said.out + interrupted("why", TASK).out


@pytest.mark.parametrize("policy", ["ask", "redo"])
@pytest.mark.parametrize("choice", ["redo", "continue", "keep"])
def test_decide_answers(interrupted: Book, original: Book, choice: str, policy: str) -> None:
    """The answer is carried out by the next resume, whatever the policy is, and the rest follows."""
    if policy == "ask":
        asked(interrupted)
    answer = interrupted("decide", TASK, choice)
    assert answer.code == 0 and "holdfast resume" in answer.out, answer.text
    said = interrupted.resume("--on-partial", policy)
    assert said.code == 0, said.text
    assert interrupted.ran()[TASK] == (choice != "keep")
    assert len(interrupted.partials()) == (choice == "continue")
    text = body_of(interrupted.artifacts()[DRAFT])
    assert text == (half_text(original) + "\n" if choice == "keep" else body_of(original.artifacts()[DRAFT]))
    if choice != "keep":
        assert interrupted.bodies() == original.bodies()


def test_what_looks_complete_is_sealed_as_it_is(interrupted: Book, original: Book) -> None:
    """A whole text under its final name that only lacks the marker: `decide keep` makes it count, unchanged."""
    whole = body_of(original.artifacts()[DRAFT])
    put_half(interrupted, whole.encode(), DRAFT)
    assert interrupted("decide", TASK, "keep").code == 0
    assert interrupted.resume().code == 0
    assert interrupted.ran()[TASK] == 0
    assert interrupted.bodies() == original.bodies()
    assert interrupted.resume(RUN_ID).code == 0
    assert not interrupted.ran()
