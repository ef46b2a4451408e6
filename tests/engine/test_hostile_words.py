"""Whatever a step says or raises, the run records it, or refuses it as a failure of that step: no more."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from holdfast import Context, Pipeline, Rewind
from holdfast.errors import UsageError
from holdfast.executors.pipe import answer_error
from holdfast.state import COMPLETED, NEEDS_REVIEW, TaskState
from holdfast.values import decode_json
from holdfast.views.checkpoint import parse

HALF = "half a \ud83d character"
HUGE = 10**5000
VIEWS = ("checkpoint.md", "RESUME.md")


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def fail(*_: Any, **__: Any) -> Any:
    raise RuntimeError("somebody's own method")


class OwnText(str):
    __slots__ = ()
    encode = startswith = __str__ = __repr__ = fail


class OwnBytes(bytes):
    __len__ = __repr__ = fail


class OwnPath(type(Path())):  # type: ignore[misc]
    __fspath__ = __str__ = __repr__ = fail


class OwnDict(dict[str, Any]):
    items = get = __getitem__ = __iter__ = fail


class OwnList(list[Any]):
    __iter__ = __len__ = fail


class OwnKey(str):
    __slots__ = ()
    __hash__ = str.__hash__
    __eq__ = fail


class Shapeless:
    __class__ = property(fail)  # type: ignore[assignment]


class ShapelessError(Exception):
    __class__ = property(fail)  # type: ignore[assignment]


class ExitingError(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class AskedError(Exception):
    __getattr__ = fail


class KindsError(Exception):
    kinds = 5


class PatienceError(Exception):
    retry_after = property(fail)


class PatienceInWordsError(Exception):
    class Patience:
        __float__ = fail

    retry_after = Patience()


class EndlessError(Exception):
    retry_after = float("inf")


class OutsideError(BaseException):
    """Of no family that `except Exception` would catch."""


class EmptyRewind(Rewind):
    def __init__(self) -> None:
        """Says nothing."""


def ended(tmp_path: Path, say: Callable[[Context], Any], **options: Any) -> TaskState:
    """How a step that says this ended; the record is read back, and the step beside it is through."""
    pipe = Pipeline("p")

    @pipe.step
    def beside() -> int:
        return 1

    @pipe.step(**options)
    def step(ctx: Context) -> Any:
        return say(ctx)

    ended_all = ""
    try:
        pipe.run(dir=tmp_path, run_id="r")
    except BaseException as error:  # told by name: its own words might fail in whoever reports them
        ended_all = type(error).__name__
    assert not ended_all
    state = Harness(tmp_path).picture("r").state
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
    "field": lambda ctx: {HALF: object()},
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
    "rewind-empty": EmptyRewind(),
    "shapeless": ShapelessError(),
    "exiting": ExitingError(),
    "asked": AskedError(),
    "kinds": KindsError(),
    "patience": PatienceError(),
    "patience-in-words": PatienceInWordsError(),
    "endless": EndlessError(),
    "outside": OutsideError(),
    "exit": SystemExit(2),
}


@pytest.mark.parametrize("what", RAISED)
def test_any_exception_is_only_its_steps_failure(tmp_path: Path, what: str) -> None:
    """Its message may be unwritable, or fail itself."""
    options = {"retries": 1, "backoff": 0.0001, "retry_on": (Exception, OutsideError, SystemExit)}
    task = ended(tmp_path, raised(RAISED[what]), **options)
    assert task.status == NEEDS_REVIEW and task.error
    assert task.failures == (1 if what.startswith("rewind") else 2)


RETURNED: dict[str, Callable[[], Any]] = {
    "text": lambda: OwnText("x"),
    "bytes": lambda: OwnBytes(b"x"),
    "path": lambda: OwnPath("x"),
    "dict": lambda: OwnDict(a="x"),
    "list": lambda: OwnList("x"),
    "shapeless": Shapeless,
    "key": lambda: {OwnKey("a"): "x"},
    "text-inside": lambda: {"a": OwnText("x")},
    "bytes-inside": lambda: {"a": OwnBytes(b"x")},
    "path-inside": lambda: {"a": OwnPath("x")},
    "dict-inside": lambda: {"a": OwnDict(a="x")},
    "list-inside": lambda: {"a": OwnList("x")},
    "shapeless-inside": lambda: {"a": Shapeless()},
}
TAKEN = {
    "o.md": {"text", "bytes"},
    "o.txt": {"text", "bytes"},
    "a.md": {"dict", "key", "text-inside", "bytes-inside"},
}


@pytest.mark.parametrize("path", ["", *TAKEN])
@pytest.mark.parametrize("what", RETURNED)
def test_what_is_returned_may_be_of_anybodys_class(tmp_path: Path, what: str, path: str) -> None:
    """Text and bytes for a file are what they hold, no method is asked; all else fails the step, in a line."""
    writes = {"a": path} if path == "a.md" else path or None
    task = ended(tmp_path, lambda ctx: RETURNED[what](), **({"writes": writes} if writes else {}))
    if what in TAKEN.get(path, ()):
        assert task.status == COMPLETED and (tmp_path / path).read_bytes().startswith(b"x")
    else:
        assert task.status == NEEDS_REVIEW and 0 < len(task.error) < 300


@pytest.mark.parametrize("kind", [OutsideError, SystemExit, ExitingError, AskedError])
def test_whatever_a_check_raises_refuses_the_output(tmp_path: Path, kind: type[BaseException]) -> None:
    """It is that step's failure, and the run goes on."""

    def check(output: Any) -> None:
        raise kind

    task = ended(tmp_path, lambda ctx: "text", check=check)
    assert task.status == NEEDS_REVIEW and kind.__name__ in task.error


def test_items_in_a_class_of_somebodys_own_are_their_functions_failure(tmp_path: Path) -> None:
    """The function needs a person; what does not hang on it is done."""
    pipe = Pipeline("p")
    pipe.step(name="beside")(lambda: 1)

    @pipe.items("x")
    def made() -> list[Any]:
        return OwnList(["a"])

    pipe.step(name="one", each="x")(lambda x: x)
    result = pipe.run(dir=tmp_path)
    assert result.status == "failed" and result.outputs["beside"] == 1
    assert "cannot be read" in result.picture.record("made").error


def test_an_exit_inside_a_coroutines_own_task_is_its_steps_failure(tmp_path: Path) -> None:
    """The event loop goes on for the others."""
    pipe = Pipeline("p")

    async def leave() -> None:
        raise SystemExit(4)

    @pipe.step
    async def leaves() -> None:
        await asyncio.gather(leave())

    @pipe.step(after=["leaves"], name="never")
    async def never() -> None:
        """Blocked."""

    @pipe.step
    async def beside() -> int:
        await asyncio.sleep(0)
        return 1

    result = pipe.run(dir=tmp_path)
    assert result.outputs["beside"] == 1
    assert "SystemExit: 4" in result.picture.record("leaves").error


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
    harness = Harness(tmp_path)
    claims = parse(page, harness.picture(run_id).spec)
    assert claims.tasks == {"step[a]": COMPLETED, "step[b]": COMPLETED}


def test_a_path_that_is_not_ctx_out_may_be_unwritable(tmp_path: Path) -> None:
    """It is that step's failure, and told with the name spelt out."""
    task = ended(tmp_path, lambda ctx: Path(os.fsdecode(b"/tmp/\xff.md")), writes="o.md")
    assert task.status == NEEDS_REVIEW and "\\udcff.md, which is not ctx.out" in task.error


def test_the_file_that_raises_may_have_an_unwritable_name(tmp_path: Path) -> None:
    """Its line is told with the name spelt out."""
    code = compile("raise RuntimeError('no')", os.fsdecode(b"/tmp/\xff.py"), "exec")
    task = ended(tmp_path, lambda ctx: exec(code))
    assert task.status == NEEDS_REVIEW and task.error.endswith("(\\udcff.py:1)")


def test_a_pipeline_with_an_unwritable_name_is_a_mistake_of_the_command(tmp_path: Path) -> None:
    """The next command could not be told where it is: nothing is begun."""
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.py")
    try:
        Path(path).write_text(
            "from holdfast import Pipeline\npipe = Pipeline('p')\n@pipe.step\ndef a(): return 1\n"
        )
    except OSError:
        pytest.skip("the file system takes only UTF-8")
    with pytest.raises(UsageError, match=r"\\udcff.py is not UTF-8"):
        Harness(tmp_path).run(path)
    assert list(Harness(tmp_path).runs.iterdir()) == []


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


@pytest.mark.parametrize("what", ["half", "speechless", "patience", "rewind-empty"])
def test_a_worker_process_can_answer_with_any_exception(what: str) -> None:
    """The answer names it; a worker that died of its own answer would hide it."""
    error = RAISED[what]
    reply = decode_json(answer_error(error))
    assert reply["error"] and reply["kinds"][0] == type(error).__name__


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (lambda ctx: ctx.log(5), "ctx.log: event must be text, not 5."),
        (lambda ctx: ctx.note(None), "ctx.note: text must be text, not None."),
        (lambda ctx: ctx.note("n", impact=HUGE), "ctx.note: impact must be text, not this int."),
        (lambda ctx: ctx.decision("what", b"why"), "ctx.decision: why must be text, not b'why'."),
        (lambda ctx: ctx.section("s", title=3), "ctx.section: title must be text, not 3."),
        (
            lambda ctx: ctx.section("s", sources="a.md"),
            "ctx.section: sources must be a list of texts, not 'a.md'.",
        ),
        (lambda ctx: ctx.section("s", sources=3), "ctx.section: sources must be a list of texts, not 3."),
        (lambda ctx: ctx.section("s", sources=["a.md", 3]), "ctx.section: sources[1] must be text, not 3."),
        (lambda ctx: ctx.write(b"text"), "ctx.write: text must be text, not b'text'."),
        (
            lambda ctx: ctx.usage(input_tokens=HUGE),
            "ctx.usage: input_tokens must be a whole number of tokens, not",
        ),
        (lambda ctx: ctx.usage(cost_usd=-HUGE), "ctx.usage: cost_usd must be an amount, not this int."),
        (lambda ctx: ctx.once("ask", "an answer"), "ctx.once('ask') needs a function to call, not 'an answer'."),
        (lambda ctx: ctx.once(HUGE, len), "the key of ctx.once must be text, not this int."),
    ],
)
def test_a_wrong_argument_of_ctx_is_told_by_its_name(
    tmp_path: Path, say: Callable[[Any], None], words: str
) -> None:
    """Which method of ctx was given what: the one who reads it has to find it in a step of their own."""
    pipe = Pipeline("p")

    @pipe.step(writes="step.md", retries=0)
    def step(ctx: Context) -> str:
        say(ctx)
        return "text"

    assert pipe.run(dir=tmp_path).needs_review == ["step"]
    (error,) = [exit["error"] for exit in Harness(tmp_path).events("node_exit", task="step")]
    assert words in error and "test_hostile_words.py" in error
