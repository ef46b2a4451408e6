"""Disaster 3: a memory file, to which every chapter added its section, is corrupted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .projects import RUN_ID, Book, body_of

PIPELINE = Path(__file__).with_name("glossary.py")
MEMORY = "meta/glossary.md"
CHAPTERS = ("ch01", "ch02", "ch03")
TASKS = {"first_terms", "assemble"} | {f"{step}[{c}]" for step in ("draft", "final", "glossary") for c in CHAPTERS}


@pytest.fixture(scope="session")
def glossed(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """A finished book with its glossary, undisturbed."""
    book = Book(tmp_path_factory.mktemp("glossed"), PIPELINE).begin()
    said = book.first_run()
    assert said.code == 0, said.text
    assert book.ran() == dict.fromkeys(TASKS, 1)
    return book


@pytest.fixture
def finished(glossed: Book, tmp_path: Path) -> Book:
    return glossed.copied_to(tmp_path / "here")


def section(chapter: str, source: str = "final text") -> str:
    before = {"ch03": "ch01, ch02"}.get(chapter, "nobody")
    return f"## Terms of {chapter}\n\nfrom The {source} of {chapter} knows the terms of {before}."


def test_sections_stand_in_item_order_below_the_head(glossed: Book) -> None:
    """The head opens the file, each chapter's section follows in order, and all of it is readable as it is."""
    text = glossed.path(MEMORY).read_text()
    places = [text.index(words) for words in ("kelp: a brown seaweed", *(section(c) for c in CHAPTERS))]
    assert places == sorted(places)
    for chapter in CHAPTERS:
        assert text.count(section(chapter)) == 1


def garble(data: bytes) -> bytes:
    return data.replace(b"Terms of ch02", b"Te\0\xffs of ch02")


def truncate(data: bytes) -> bytes:
    return data[: data.index(b"Terms of ch02") + 9]


def drop_section(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    first, last = (next(n for n, line in enumerate(lines) if mark in line) for mark in (b"ch02", b"ch03"))
    return b"".join(lines[:first] + lines[last:])


def empty(data: bytes) -> bytes:
    return b""


def zero(data: bytes) -> bytes:
    return bytes(len(data))


@pytest.mark.parametrize("damage", [garble, truncate, drop_section, empty, zero])
def test_a_corrupted_memory_is_put_right_for_nothing(
    finished: Book, glossed: Book, damage: Callable[[bytes], bytes]
) -> None:
    """Nothing runs; the file is byte for byte what it was; what was found is kept aside, and told."""
    broken = damage(glossed.artifacts()[MEMORY])
    finished.path(MEMORY).write_bytes(broken)
    said = finished.run()
    assert said.code == 0, said.text
    assert not finished.ran()
    assert finished.artifacts() == glossed.artifacts()
    assert MEMORY in said.err
    if not set(broken.splitlines()) <= set(glossed.artifacts()[MEMORY].splitlines()):
        assert broken in finished.quarantined() + finished.backups(MEMORY)


def test_a_deleted_memory_comes_back(finished: Book, glossed: Book) -> None:
    """From the record, for nothing."""
    finished.lose(MEMORY)
    assert finished.run().code == 0
    assert not finished.ran()
    assert finished.artifacts() == glossed.artifacts()


def test_a_deleted_memory_without_copies_is_made_again(finished: Book, glossed: Book) -> None:
    """Objects lost too: every section is made again from its final chapter, and no chapter runs."""
    finished.lose(MEMORY)
    finished.lose("objects")
    assert finished.run().code == 0
    assert finished.ran() == {f"glossary[{chapter}]": 1 for chapter in CHAPTERS}
    text = finished.path(MEMORY).read_text()
    assert [text.count(section(chapter)) for chapter in CHAPTERS] == [1, 1, 1]


def test_everything_lost_but_the_artifacts(finished: Book, glossed: Book) -> None:
    """The memory file proves its own sections: nothing runs again."""
    finished.lose(".holdfast")
    said = finished.run()
    assert said.code == 0, said.text
    assert not finished.ran()
    assert finished.artifacts() == glossed.artifacts()


@pytest.mark.parametrize("damage", [garble, drop_section])
def test_state_lost_and_a_section_corrupted(
    finished: Book, glossed: Book, damage: Callable[[bytes], bytes]
) -> None:
    """That section is made again from the final chapter; the others stay byte for byte."""
    finished.lose(".holdfast")
    finished.path(MEMORY).write_bytes(damage(glossed.artifacts()[MEMORY]))
    said = finished.run()
    assert said.code == 0, said.text
    assert finished.ran() == {"glossary[ch02]": 1}
    text = finished.path(MEMORY).read_text()
    assert [text.count(section(chapter)) for chapter in CHAPTERS] == [1, 1, 1]
    assert text.index(section("ch01")) < text.index(section("ch02")) < text.index(section("ch03"))


def test_a_section_is_rebuilt_from_the_best_source_left(finished: Book, glossed: Book) -> None:
    """The final chapter is gone and cannot be made: the sealed draft is the next best."""
    finished.lose(".holdfast", "final/ch02.md")
    finished.path(MEMORY).write_bytes(garble(glossed.artifacts()[MEMORY]))
    finished.wish({"final[ch02]": "fail"})
    finished.run()
    finished.wish({"final[ch02]": "fail"})
    said = finished("decide", "final[ch02]", "skip")
    assert said.code == 0, said.text
    finished.resume(RUN_ID)
    assert section("ch02", source="draft") in finished.path(MEMORY).read_text()


def test_what_a_person_added_stays(finished: Book, glossed: Book) -> None:
    """Words outside the sections are theirs, also when a section beside them is put right."""
    text = glossed.artifacts()[MEMORY]
    finished.path(MEMORY).write_bytes(text + b"\nMy own remark.\n")
    assert finished.run().code == 0
    assert finished.path(MEMORY).read_bytes() == text + b"\nMy own remark.\n"
    finished.path(MEMORY).write_bytes(garble(text) + b"\nMy own remark.\n")
    assert finished.run().code == 0
    assert not finished.ran()
    assert finished.path(MEMORY).read_bytes() == text + b"\nMy own remark.\n"


def test_an_edited_section_is_asked_about(finished: Book, glossed: Book) -> None:
    """A person's edit inside a section is neither trusted nor overwritten: exit 3, and restore or keep answers."""
    edited = glossed.artifacts()[MEMORY].replace(b"Terms of ch02", b"Better terms of ch02")
    finished.path(MEMORY).write_bytes(edited)
    said = finished.run()
    assert said.code == 3, said.text
    assert finished.path(MEMORY).read_bytes() == edited
    assert "glossary[ch02]" in said.out
    assert finished.run("--on-changed", "restore").code == 0
    assert finished.artifacts() == glossed.artifacts()
    assert edited in finished.backups(MEMORY)
    assert not finished.ran()


def test_later_sections_make_nothing_stale(finished: Book) -> None:
    """A section once accepted stands when its chapter is made again; no draft depends on a later section."""
    feedback = ("--feedback", "More.", "--run", RUN_ID)
    assert finished("reject", "final[ch03]", "--to", "final[ch03]", *feedback).code == 0
    assert finished.resume(RUN_ID).code == 0
    assert set(finished.ran()) <= {"final[ch03]", "assemble"}
    assert body_of(finished.artifacts()["drafts/ch01.md"])
