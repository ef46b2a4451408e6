"""Whatever a step says or raises, the run records it, or refuses it as a failure of that step: no more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Pipeline, Rewind
from holdfast.errors import UsageError
from holdfast.executors.processes import answer_error
from holdfast.layout import ProjectLayout
from holdfast.runs.listing import read_picture, read_run
from holdfast.state import COMPLETED, NEEDS_REVIEW, TaskState
from holdfast.values import decode_json
from holdfast.views.checkpoint import parse

HALF = "half a \ud83d character"
HUGE = 10**5000
VIEWS = ("checkpoint.md", "RESUME.md")


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def ended(tmp_path: Path, say: Callable[[Context], Any], **options: Any) -> TaskState:
    """How a step that says this ended; the record is read back, and the step beside it is through."""
    pipe = Pipeline("p")

    @pipe.step
    def beside() -> int:
        return 1

    @pipe.step(**options)
    def step(ctx: Context) -> Any:
        return say(ctx)

    pipe.run(dir=tmp_path, run_id="r")
    state = read_run(ProjectLayout(tmp_path), "r").state
    assert state.task("beside").status == COMPLETED
    again = pipe.run(dir=tmp_path, run_id="r")
    assert again.status in ("completed", "failed")
    return state.task("step")


def raised(error: BaseException) -> Callable[[Context], Any]:
    def say(ctx: Context) -> Any:
        raise error

    return say


SAID: dict[str, Callable[[Context], Any]] = {
    "note": lambda ctx: ctx.note(HALF, impact=HALF),
    "section": lambda ctx: ctx.section(HALF, title=HALF, sources=[HALF]),
    "decision": lambda ctx: ctx.decision(HALF, HALF, outcome=HALF),
    "model": lambda ctx: ctx.usage(cost_usd=1, model=HALF),
}


@pytest.mark.parametrize("what", SAID)
def test_words_with_half_a_character_are_kept_readable(tmp_path: Path, what: str) -> None:
    """A lone surrogate, which `json.loads` gives, is spelt out."""
    assert ended(tmp_path, SAID[what]).status == COMPLETED
    assert b"half a \\\\ud83d character" in (tmp_path / ".holdfast/runs/r/events.jsonl").read_bytes()


REFUSED: dict[str, Callable[[Context], Any]] = {
    "note-number": lambda ctx: ctx.note(5),  # type: ignore[arg-type]
    "note-bytes": lambda ctx: ctx.note(b"x"),  # type: ignore[arg-type]
    "note-time": lambda ctx: ctx.note(timedelta(1)),  # type: ignore[arg-type]
    "note-impact": lambda ctx: ctx.note("x", impact=None),  # type: ignore[arg-type]
    "decision-outcome": lambda ctx: ctx.decision("a", "b", outcome=None),  # type: ignore[arg-type]
    "section-none": lambda ctx: ctx.section(None),  # type: ignore[arg-type]
    "section-title": lambda ctx: ctx.section("x", title=None),  # type: ignore[arg-type]
    "section-sources": lambda ctx: ctx.section("x", sources=[5]),  # type: ignore[list-item]
    "log-name": lambda ctx: ctx.log(None),  # type: ignore[arg-type]
    "once-key": lambda ctx: ctx.once(HALF, lambda: 1),
    "once-result": lambda ctx: ctx.once("key", lambda: HUGE),
    "tokens": lambda ctx: ctx.usage(input_tokens=HUGE),
    "dollars": lambda ctx: ctx.usage(cost_usd=HUGE),
    "value": lambda ctx: HUGE,
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_the_record_cannot_hold_is_refused(tmp_path: Path, what: str) -> None:
    """It is that step's failure, told in one line; nothing unreadable gets into the journal."""
    task = ended(tmp_path, REFUSED[what])
    assert task.status == NEEDS_REVIEW
    assert task.error and len(task.error) < 300


RAISED: dict[str, BaseException] = {
    "half": RuntimeError(HALF),
    "speechless": SpeechlessError(),
    "rewind-unknown-keep": Rewind("beside", keep=["misspelt"]),
}


@pytest.mark.parametrize("what", RAISED)
def test_any_exception_is_only_its_steps_failure(tmp_path: Path, what: str) -> None:
    """Its message may be unwritable, or fail itself."""
    task = ended(tmp_path, raised(RAISED[what]))
    assert task.status == NEEDS_REVIEW and task.error


def test_a_title_changes_nothing_but_its_own_cell(tmp_path: Path) -> None:
    """A newline, a pipe, a heading, a tag, an escape and a bidi mark in it are shown harmlessly, and read back."""
    pipe = Pipeline("p")
    pipe.items("n", ["a", "b"])

    @pipe.step(each="n", title="x | y\n# Run\n<script>z</script> \x1b[31m \u202e ✅")
    def step(n: str) -> str:
        return n

    run_id = pipe.run(dir=tmp_path).run_id
    page = (tmp_path / "checkpoint.md").read_text(encoding="utf-8")
    for hostile in ("\n# Run", "<script>", "\x1b", "\u202e"):
        assert all(hostile not in (tmp_path / name).read_text(encoding="utf-8") for name in VIEWS)
    layout = ProjectLayout(tmp_path)
    claims = parse(page, read_picture(layout, run_id).spec)
    assert claims.tasks == {"step[a]": COMPLETED, "step[b]": COMPLETED}


def test_the_objection_of_a_check_may_be_unwritable(tmp_path: Path) -> None:
    """It is spelt out."""
    task = ended(tmp_path, lambda ctx: "text", check=lambda output: HALF)
    assert "half a \\ud83d" in task.error


def test_feedback_may_be_unwritable(tmp_path: Path) -> None:
    """What is sent back with it runs again and receives it spelt out."""
    pipe, heard = Pipeline("p"), []

    @pipe.step
    def draft(ctx: Context) -> int:
        heard.append(list(ctx.feedback))
        return ctx.round

    @pipe.step
    def review(draft: int) -> int:
        if draft == 0:
            raise Rewind("draft", feedback=HALF)
        return 1

    assert pipe.run(dir=tmp_path).status == "completed"
    assert heard == [[], ["half a \\ud83d character"]]


def test_items_and_parameters_of_too_many_digits_are_refused(tmp_path: Path) -> None:
    """The items are their function's failure; a parameter is told before anything runs."""
    pipe = Pipeline("p")

    @pipe.items("x")
    def made() -> list[Any]:
        return [{"id": "a", "size": HUGE}]

    @pipe.step(each="x")
    def one(x: str) -> str:
        return x

    assert pipe.run(dir=tmp_path).status == "failed"
    other = Pipeline("q", params={"n": int})
    other.step(name="s")(lambda n: n)
    with pytest.raises(UsageError, match="too many digits"):
        other.run(dir=tmp_path, params={"n": HUGE})


@pytest.mark.parametrize("error", [RuntimeError(HALF), SpeechlessError()])
def test_a_worker_process_can_answer_with_any_exception(error: Exception) -> None:
    """The answer names it; a worker that died of its own answer would hide it."""
    reply = decode_json(answer_error(error))
    assert reply["error"] and reply["kinds"][0] == type(error).__name__
