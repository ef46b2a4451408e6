"""Questions on a real terminal: asked at the end, answered by typing, and the run goes on by itself."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

PIPELINE = """
from holdfast import Pipeline

pipe = Pipeline("p")


@pipe.step(writes="draft.md")
def draft() -> str:
    return "the draft\\n"


@pipe.step(writes="review.md")
def review(draft: str) -> str:
    return f"read: {draft}"
"""
TWO_FILES = """
from holdfast import Pipeline

pipe = Pipeline("p")


@pipe.step(writes={"text": "text.md", "more": "more.md"}, on_partial="ask")
def both() -> dict:
    return {"text": "words", "more": "more"}
"""
PATIENCE_S = 30


@pytest.fixture
def edited(tmp_path: Path) -> Path:
    """A finished project whose draft a person has edited since."""
    (tmp_path / "p.py").write_text(PIPELINE)
    subprocess.run(
        [sys.executable, "-m", "holdfast", "run", "p.py"], cwd=tmp_path, check=True, capture_output=True
    )
    path = tmp_path / "draft.md"
    path.write_text(path.read_text().replace("the draft", "MY draft"))
    return tmp_path


def typed(project: Path, answer: bytes) -> tuple[int, str]:
    """Exit status and screen of `holdfast run` at a terminal where somebody types `answer` when asked."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "run", "p.py"],
        cwd=project,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "dumb"},
        start_new_session=True,
    )
    os.close(theirs)
    screen, asked, give_up = b"", False, time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        ready, _, _ = select.select([ours], [], [], 0.2)
        try:
            screen += os.read(ours, 4096) if ready else b""
        except OSError:  # the other end is closed
            break
        if not asked and b"What shall be done?" in screen:
            asked = True
            os.write(ours, answer)
    os.close(ours)
    return process.wait(PATIENCE_S), screen.decode(errors="replace")


def test_an_answer_is_recorded_and_the_run_goes_on(edited: Path) -> None:
    """`keep` at the prompt: the edit is accepted, the review made again, exit 0."""
    code, screen = typed(edited, b"keep\n")
    assert code == 0, screen
    assert "draft.md was changed after it was accepted" in screen
    assert "  restore: what is there now will be set aside, and the accepted version put back" in screen
    assert (edited / "review.md").read_text().startswith("read: MY draft")


def test_an_answer_that_is_none_is_told_so(edited: Path) -> None:
    """It is not only asked once more, without a word."""
    code, screen = typed(edited, b"y\nkeep\n")
    assert code == 0, screen
    assert "'y' is not one of 'keep', 'restore', 'redo', 'later'" in screen


@pytest.mark.parametrize("answer", [b"\n", b"\x04"])
def test_later_leaves_it_waiting(edited: Path, answer: bytes) -> None:
    """Return, or the end of input: nothing is decided, exit 3."""
    code, screen = typed(edited, answer)
    assert code == 3, screen
    assert (edited / "draft.md").read_text().startswith("MY draft")
    assert (edited / "review.md").read_text().startswith("read: the draft")


def test_nobody_is_asked_without_a_terminal(edited: Path) -> None:
    """With a pipe it waits: exit 3, and the command that answers."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "run", "p.py"],
        cwd=edited,
        capture_output=True,
        text=True,
        input="",
        check=False,
    )
    assert done.returncode == 3
    assert "What shall be done?" not in done.stdout + done.stderr
    assert "holdfast decide draft keep" in done.stdout


def test_a_failure_elsewhere_does_not_keep_the_question_back(edited: Path) -> None:
    """It is asked all the same; the answer is carried out, and what failed is not tried, and paid for, again."""
    failing = """
@pipe.step
def fails() -> None:
    with open("tried", "a") as tried:
        tried.write("x")
    raise RuntimeError("down")
"""
    (edited / "p.py").write_text(PIPELINE + failing)
    code, screen = typed(edited, b"keep\n")
    assert code == 1, screen
    assert (edited / "review.md").read_text().startswith("read: MY draft")
    assert (edited / "tried").read_text() == "x"


def test_an_answer_that_would_change_nothing_is_refused_in_words(tmp_path: Path) -> None:
    """The question stays open, and the run ends as when nobody answers."""
    (tmp_path / "p.py").write_text(TWO_FILES)
    (tmp_path / "text.md").write_text("A sentence that is long enough to be worth something. " * 4)
    code, screen = typed(tmp_path, b"keep\n")
    assert code == 3, screen
    assert "both would only be asked about again after 'keep'" in screen
    assert not (tmp_path / "more.md").exists()
