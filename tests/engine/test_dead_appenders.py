"""What somebody left half written at the journal's end is cut off by whoever appends next, and told."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from harness import Harness, in_thread
from holdfast import Pipeline
from holdfast.journal.log import LocalJournal
from holdfast.stores import disk


def leave_half_a_line(project: Path) -> None:
    """As `holdfast note` does that is killed in the middle of its write."""
    journal = Harness(project).journal()
    last = LocalJournal(journal).last()
    assert last is not None
    with open(journal, "r+b") as file:
        file.seek(last.hint - 1)
        file.write(b'\n{"seq":%d,"ts":"2026-01-09T14:30:22Z","v":1,"ev' % (last.seq + 1))


def mended(project: Path) -> list[str]:
    return [words for event in Harness(project).events("state_mended") for words in event["findings"]]


def test_an_engine_that_cuts_off_a_torn_line_tells_it(tmp_path: Path) -> None:
    """In the journal and in RESUME.md; the bytes are kept, and the run goes on."""
    pipe = Pipeline("p")

    @pipe.step
    def a() -> int:
        leave_half_a_line(tmp_path)
        return 1

    @pipe.step
    def b(a: int) -> int:
        return a

    assert in_thread(lambda: pipe.run(dir=tmp_path)).status == "completed"
    assert [("torn line" in words, "kept as" in words) for words in mended(tmp_path)] == [(True, True)]
    assert "a torn line" in (tmp_path / "RESUME.md").read_text()
    assert list((Harness(tmp_path).journal().parent / "quarantine").iterdir())


def test_a_person_s_word_that_comes_behind_a_torn_line_tells_it(tmp_path: Path) -> None:
    """Also where no engine is at work."""
    pipe = Pipeline("p")
    pipe.step(lambda: 1, name="a")
    result = pipe.run(dir=tmp_path)
    leave_half_a_line(tmp_path)
    Harness(tmp_path).note("hello", run_id=result.run_id)
    assert ["torn line" in words for words in mended(tmp_path)] == [True]


def test_a_torn_line_found_at_the_start_is_told_once(tmp_path: Path) -> None:
    """Whoever opens the run tells it, not the first append as well."""
    pipe = Pipeline("p")
    pipe.step(lambda: 1, name="a")
    pipe.run(dir=tmp_path)
    leave_half_a_line(tmp_path)
    pipe.step(lambda: 2, name="b")
    assert pipe.run(dir=tmp_path).status == "completed"
    assert ["torn line" in words for words in mended(tmp_path)] == [True]


def test_a_journal_is_written_anew_while_nobody_else_can_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the word of a person who decides at that moment would go to the file that is replaced."""
    pipe = Pipeline("p")
    pipe.step(lambda: 1, name="a")
    pipe.run(dir=tmp_path)
    journal = Harness(tmp_path).journal()
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], b"damage\n", *lines[2:]]))
    held: list[bool] = []

    def look(op: str, path: str) -> None:
        if op == "rename" and path == str(journal):
            held.append(is_held(tmp_path / ".holdfast/append.lock"))

    monkeypatch.setattr(disk, "hook", look)
    pipe.run(dir=tmp_path)
    assert held == [True]


def is_held(lock: Path) -> bool:
    descriptor = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
