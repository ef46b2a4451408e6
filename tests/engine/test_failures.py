"""Attempts that fail: retried, given up, skipped, timed out; everything else goes on."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Harness, in_thread
from holdfast import Context, HoldfastError, Pipeline, Rewind, clock
from holdfast.artifacts.keeping import Artifacts
from holdfast.engine.attempt import Attempt, Attempts, Verdict
from holdfast.engine.runner import Runner
from holdfast.errors import StorageError
from holdfast.executors.protocol import Call, Outcome
from holdfast.stores import disk

PATIENCE_S = 60  # a hang is a failure, not a wait


class BusyError(Exception):
    retry_after = 0.002


def test_a_failing_step_is_tried_again_and_its_attempts_are_numbered(tmp_path: Path) -> None:
    """Two failures and a success: three attempts, two delays that grow, one output."""
    pipe, attempts = Pipeline("p"), []

    @pipe.step(retries=2, backoff=0.001)
    def shaky(ctx: Context) -> int:
        attempts.append(ctx.attempt)
        if len(attempts) < 3:
            raise ValueError("not yet")
        return 7

    result = pipe.run(dir=tmp_path)
    assert (result.status, attempts, result.outputs["shaky"]) == ("completed", [1, 2, 3], 7)
    first, second, _ = Harness(tmp_path).events("node_exit", task="shaky")
    assert 0.0005 <= first["retry_in"] <= 0.001 <= second["retry_in"] <= 0.002
    assert "ValueError: not yet" in first["error"]


def read_nothing(ctx: Context) -> str:
    return (ctx.dir / "nothing").read_text()


def call_twice(ctx: Context) -> None:
    ctx.once("key", int)
    ctx.once("key", int)


async def fail_async() -> None:
    await asyncio.wait_for(asyncio.to_thread(json.loads, "{"), None)


@pytest.mark.parametrize(("step", "line"), [(read_nothing, 1), (call_twice, 2), (fail_async, 1)])
def test_an_error_names_the_line_of_the_pipeline(tmp_path: Path, step: Callable[..., Any], line: int) -> None:
    """Not the line of the standard library, or of Holdfast, in which it was noticed."""
    pipe = Pipeline("p")
    pipe.step(retries=0)(step)
    pipe.run(dir=tmp_path)
    (exited,) = Harness(tmp_path).events("node_exit", task=step.__name__)
    assert exited["error"].endswith(f" (test_failures.py:{step.__code__.co_firstlineno + line})")


def test_an_error_outside_of_the_pipeline_names_no_line(tmp_path: Path) -> None:
    """A value that is refused was returned already: no line of Holdfast's own helps anybody."""
    pipe = Pipeline("p")

    @pipe.step(retries=0)
    def step() -> Any:
        return {1, 2}

    pipe.run(dir=tmp_path)
    (exited,) = Harness(tmp_path).events("node_exit", task="step")
    assert ".py" not in exited["error"]


def test_a_delay_outlasts_a_graph_that_is_drawn_anew(tmp_path: Path) -> None:
    """Other items come while a task waits for its next attempt: it is tried when its time has come, not before."""
    pipe, calls, pause = Pipeline("p"), [], threading.Event()

    class LimitedError(Exception):
        retry_after = 0.5

    @pipe.step
    def outline(ctx: Context) -> list[str]:
        return ["a", "b"] if ctx.feedback else ["a"]

    @pipe.items("chapter")
    def chapters(outline: list[str]) -> list[str]:
        return outline

    @pipe.step(each="chapter")
    def draft(chapter: str) -> str:
        return chapter

    @pipe.step
    def review(draft: dict[str, str]) -> int:
        while not Harness(tmp_path).events("node_exit", task="limited"):
            pause.wait(0.01)
        if len(draft) == 1:
            raise Rewind("outline", "one more")
        return len(draft)

    @pipe.step(retries=1, backoff=0.0001)
    def limited() -> None:
        calls.append(clock.monotonic())
        if len(calls) == 1:
            raise LimitedError

    result = in_thread(lambda: pipe.run(dir=tmp_path))
    assert result.outputs["review"] == 2
    first, second = calls
    assert second - first >= LimitedError.retry_after


def test_retry_after_is_a_floor(tmp_path: Path) -> None:
    """The exception's wish is honoured where it is longer than the back-off."""
    pipe, calls = Pipeline("p"), []

    @pipe.step(retries=1, backoff=0.0001)
    def limited() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise BusyError

    assert pipe.run(dir=tmp_path).status == "completed"
    assert Harness(tmp_path).events("node_exit", task="limited")[0]["retry_in"] == 0.002


@pytest.mark.parametrize(
    ("options", "raised", "attempts"),
    [
        ({"retry_on": (KeyError,)}, KeyError, 3),
        ({"retry_on": (KeyError,)}, ValueError, 1),
        ({"no_retry_on": (ValueError,)}, ValueError, 1),
        ({"no_retry_on": (ValueError,)}, KeyError, 3),
    ],
)
def test_only_some_exceptions_are_retried(
    tmp_path: Path, options: dict[str, tuple[type[Exception], ...]], raised: type[Exception], attempts: int
) -> None:
    """retry_on names what is tried again, no_retry_on what is not."""
    pipe, calls = Pipeline("p"), []

    @pipe.step(retries=2, backoff=0.0001, **options)  # type: ignore[arg-type]
    def picky() -> None:
        calls.append(1)
        raise raised("no")

    assert pipe.run(dir=tmp_path).status == "failed"
    assert len(calls) == attempts


def test_a_task_that_needs_review_blocks_only_what_depends_on_it(tmp_path: Path) -> None:
    """Exit 1; the failed item's consumers wait, all others are done; the next run gives it fresh attempts."""
    pipe, broken = Pipeline("p"), [True]
    pipe.items("n", ["a", "b", "c"])

    @pipe.step(each="n")
    def first(n: str) -> str:
        if n == "b" and broken:
            raise ValueError("b is broken")
        return n

    @pipe.step(each="n")
    def second(first: str) -> str:
        return first * 2

    @pipe.step
    def all_of_them(second: dict[str, str]) -> str:
        return "".join(second.values())

    result = pipe.run(dir=tmp_path)
    assert (result.status, result.exit_code, result.needs_review) == ("failed", 1, ["first[b]"])
    assert result.outputs["second"] == {"a": "aa", "c": "cc"}
    assert "all_of_them" not in result.outputs
    assert result.picture.status("second[b]") == "blocked"
    broken.clear()
    again = pipe.run(dir=tmp_path)
    assert (again.status, again.outputs["all_of_them"]) == ("completed", "aabbcc")
    assert len(Harness(tmp_path).events("node_exit", task="first[a]")) == 1


def test_a_budget_used_up_before_a_retry_pauses_the_run(tmp_path: Path) -> None:
    """The task has attempts left: nothing needs a person but the budget, and a higher one goes on."""
    pipe = Pipeline("p")

    @pipe.step(retries=1, backoff=0.0001)
    def a(ctx: Context) -> int:
        ctx.usage(cost_usd=1.0)
        if ctx.attempt == 1:
            raise BusyError("later")
        return 1

    first = pipe.run(dir=tmp_path, budget_usd=0.5)
    assert (first.status, first.exit_code, first.needs_review) == ("paused", 3, [])
    assert "budget" in first.picture.state.reason
    assert pipe.run(dir=tmp_path, budget_usd=5.0).status == "completed"


def test_a_skipped_item_is_left_out_of_the_gather(tmp_path: Path) -> None:
    """on_failure="skip": the item's later tasks are skipped too, the rest is gathered, exit 0."""
    pipe = Pipeline("p")
    pipe.items("n", ["a", "b"])

    @pipe.step(each="n", on_failure="skip")
    def first(n: str) -> str:
        if n == "a":
            raise ValueError("no")
        return n

    @pipe.step(each="n")
    def second(first: str) -> str:
        return first * 2

    @pipe.step
    def gather(first: dict[str, str], second: dict[str, str]) -> list[str]:
        return [*first, *second]

    result = pipe.run(dir=tmp_path)
    assert (result.status, result.outputs["gather"]) == ("completed", ["b", "b"])
    assert result.picture.status("second[a]") == "skipped"


def _runner_to_be(monkeypatch: pytest.MonkeyPatch) -> list[Runner]:
    """Holds the runner once there is one."""
    made: list[Runner] = []
    begin = Runner.run

    def run(runner: Runner) -> str:
        made.append(runner)
        return begin(runner)

    monkeypatch.setattr(Runner, "run", run)
    return made


def test_a_sync_body_that_ended_in_time_is_not_failed_for_a_slow_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout is the body's, as it is an async one's: what it gave is judged, and counts."""
    made, pipe = _runner_to_be(monkeypatch), Pipeline("p")

    def takes_for_ever(output: str) -> bool:
        for attempt in made[0].board.running.values():
            made[0].bodies._overdue(attempt)
        return True

    @pipe.step(timeout=500, check=takes_for_ever)
    def a() -> str:
        return "a"

    assert in_thread(lambda: pipe.run(dir=tmp_path)).status == "completed"
    assert not Harness(tmp_path).events("overran")


def test_a_body_whose_time_runs_out_just_as_it_ends_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread is back, so nobody waits for it."""
    made, pipe = _runner_to_be(monkeypatch), Pipeline("p")
    judge = Attempts.judge_outcome

    def expire_meanwhile(attempts: Attempts, attempt: Attempt, outcome: Outcome) -> Verdict:
        attempt.outcome = None  # as it was when the deadline was looked at
        if attempt.number == 1:
            made[0].bodies._overdue(attempt)
        return judge(attempts, attempt, outcome)

    monkeypatch.setattr(Attempts, "judge_outcome", expire_meanwhile)

    @pipe.step(timeout=500, retries=1, backoff=0.0001, check=lambda output: True)
    def a() -> str:
        return "a"

    result = in_thread(lambda: pipe.run(dir=tmp_path))
    assert result.status == "completed"
    assert [end["status"] for end in Harness(tmp_path).events("node_exit", task="a")] == ["failed", "completed"]


def test_what_has_ended_is_not_kept_until_its_deadline(tmp_path: Path) -> None:
    """However generous the timeout: an attempt that is through goes away, with all that it took and gave."""
    pipe = Pipeline("p")
    pipe.items("item", [f"item{number}" for number in range(50)])

    @pipe.step(each="item", timeout=3600)
    def brief(item: str) -> str:
        return item

    @pipe.step
    def count(brief: dict[str, str]) -> int:
        gc.collect()
        attempts = [thing for thing in gc.get_objects() if type(thing) is Attempt]
        return sum(attempt.node.spec.name == "brief" for attempt in attempts)

    assert pipe.run(dir=tmp_path, concurrency=2).outputs["count"] <= 4


@pytest.mark.parametrize("last_words", ["a result", "an error", "an objection"])
def test_what_an_async_step_does_after_its_timeout_does_not_count(tmp_path: Path, last_words: str) -> None:
    """One that swallows its cancellation has failed as a timeout, whatever it then returns or raises."""
    pipe = Pipeline("p")

    @pipe.step
    def before() -> int:
        return 1

    @pipe.step(timeout=0.01)
    async def stubborn(before: int) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if last_words == "an error":
                raise ValueError("while cleaning up") from None
            if last_words == "an objection":
                raise Rewind("before") from None
        return last_words

    result = in_thread(lambda: pipe.run(dir=tmp_path))
    assert result.needs_review == ["stubborn"]
    assert [end["kind"] for end in Harness(tmp_path).events("node_exit", task="stubborn")] == ["timeout"]
    assert len(Harness(tmp_path).events("node_exit", task="before")) == 1


def test_an_async_step_is_stopped_at_its_timeout(tmp_path: Path) -> None:
    """The coroutine is cancelled, the attempt fails as a timeout, the retry succeeds."""
    pipe, cancelled = Pipeline("p"), []

    @pipe.step(timeout=0.01, retries=1, backoff=0.0001)
    async def slow(ctx: Context) -> int:
        if ctx.attempt == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(1)
                raise
        return ctx.attempt

    result = pipe.run(dir=tmp_path)
    assert (result.status, result.outputs["slow"], cancelled) == ("completed", 2, [1])
    assert Harness(tmp_path).events("node_exit", task="slow")[0]["kind"] == "timeout"


def test_a_sync_step_that_overruns_is_dead_and_never_overlaps_its_retry(tmp_path: Path) -> None:
    """Its context refuses everything, the retry waits for the old body to end, and its result is not used."""
    pipe, inside, refused, go_on = Pipeline("p"), [], [], threading.Event()

    @pipe.step(timeout=0.01, retries=1, backoff=0.0001)
    def stubborn(ctx: Context) -> str:
        inside.append("in")
        if ctx.attempt == 1:
            go_on.wait(20)
            try:
                ctx.note("too late")
            except HoldfastError as error:
                refused.append(str(error))
        inside.append("out")
        return f"attempt {ctx.attempt}"

    @pipe.step
    def watcher() -> None:
        while not Harness(tmp_path).events("overran"):
            threading.Event().wait(0.005)
        go_on.set()

    result = pipe.run(dir=tmp_path)
    assert (result.status, result.outputs["stubborn"]) == ("completed", "attempt 2")
    assert inside == ["in", "out", "in", "out"]
    assert "timed out" in refused[0]
    assert [event["step_id"] for event in Harness(tmp_path).events("overran")] == ["stubborn"]
    assert not Harness(tmp_path).events("note")


@pytest.mark.parametrize(
    ("word", "attempts"),
    [
        ({"event": "retry_requested", "step_ids": ["stubborn"]}, [1, 1]),
        ({"event": "decided", "step_id": "stubborn", "choice": "skip"}, [1]),
    ],
    ids=["retry", "skip"],
)
def test_what_a_person_says_of_a_step_that_overruns_counts_when_it_has_come_back(
    tmp_path: Path, word: dict[str, Any], attempts: list[int]
) -> None:
    """Its thread goes on when `retry`, or `decide`, is asked for: then it is looked at as soon as that ends."""
    pipe, begun, go_on = Pipeline("p"), [], threading.Event()

    @pipe.step(timeout=0.5, retries=0)
    def stubborn() -> str:
        begun.append(1)
        go_on.wait(0 if len(begun) > 1 else 20)
        return "done"

    @pipe.step
    def person(ctx: Context) -> None:
        while not Harness(tmp_path).events("overran"):
            threading.Event().wait(0.005)
        Harness(tmp_path).append(**word)
        ctx.once("heard", lambda: 1)  # the batch that records this has read what was said
        go_on.set()

    assert in_thread(lambda: pipe.run(dir=tmp_path)).status == "completed"
    assert begun == attempts


def test_a_timeout_is_of_the_body_not_of_what_comes_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs that take longer to read than the step has: it is not declared dead before it has begun."""
    pipe, prepare = Pipeline("p"), Attempts.prepare

    @pipe.step(timeout=1)
    def quick(ctx: Context) -> int:
        ctx.note("in time")
        return ctx.attempt

    def prepare_slowly(self: Attempts, attempt: Attempt) -> Call:
        threading.Event().wait(1.2)
        return prepare(self, attempt)

    monkeypatch.setattr(Attempts, "prepare", prepare_slowly)
    result = pipe.run(dir=tmp_path)
    assert (result.status, result.outputs["quick"]) == ("completed", 1)
    assert not Harness(tmp_path).events("overran")


def test_a_step_that_never_comes_back_keeps_no_other_from_its_limit(tmp_path: Path) -> None:
    """What waits for the same limit runs once the timeout is over, and the run ends."""
    pipe, never = Pipeline("p", limits={"model": 1}), threading.Event()
    pipe.items("part", ["first", "second"])

    @pipe.step(each="part", timeout=0.01, retries=1, backoff=0.0001, limit="model")
    def ask(part: str) -> str:
        if part == "first":
            never.wait()
        return part

    (tmp_path / "holdfast.toml").write_text("[run]\ngrace_s = 0.01\n")
    try:
        result = in_thread(lambda: pipe.run(dir=tmp_path))
    finally:
        never.set()
    assert (result.status, result.needs_review) == ("failed", ["ask[first]"])
    assert [end["status"] for end in Harness(tmp_path).events("node_exit", task="ask[second]")][-1] == "completed"


def test_a_step_that_never_comes_back_does_not_keep_a_run_whose_budget_is_used_up(tmp_path: Path) -> None:
    """Nothing more may start, so there is nothing to wait for but the grace period."""
    pipe, never = Pipeline("p"), threading.Event()

    @pipe.step(timeout=0.01, retries=1, backoff=0.0001)
    def stubborn() -> None:
        never.wait()

    @pipe.step
    def dear(ctx: Context) -> int:
        while not Harness(tmp_path).events("overran"):
            threading.Event().wait(0.005)
        ctx.usage(cost_usd=1)
        return 1

    @pipe.step
    def more(dear: int) -> int:
        return dear

    (tmp_path / "holdfast.toml").write_text("[run]\ngrace_s = 0.01\n")
    try:
        result = in_thread(lambda: pipe.run(dir=tmp_path, budget_usd=1))
    finally:
        never.set()
    assert result.needs_review == ["stubborn"]


@pytest.mark.parametrize("answer", ["too short", False, ValueError("bad")])
def test_a_refused_output_is_kept_in_quarantine_and_tried_again(tmp_path: Path, answer: object) -> None:
    """Text, False and an exception refuse; what was refused lies in quarantine, never under its name."""
    pipe, answers = Pipeline("p"), [answer, None]

    def judge(output: str) -> object:
        said = answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    @pipe.step(writes="out.md", check=judge, retries=1, backoff=0.0001)
    def step(ctx: Context) -> str:
        return f"text of round {ctx.round}\n"

    result = pipe.run(dir=tmp_path)
    assert (result.status, result.outputs["step"]) == ("completed", "text of round 1\n")
    (kept,) = (journal for journal in tmp_path.glob(".holdfast/runs/*/quarantine/refused/*"))
    assert kept.read_text() == "text of round 0\n"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("error", [OSError(errno.EIO, os.strerror(errno.EIO), "a.md"), RuntimeError("a mistake")])
def test_an_input_that_cannot_be_read_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, is_async: bool
) -> None:
    """It does not wait for ever, and it is no failure of the step."""
    pipe = Pipeline("p")

    @pipe.step(writes="a.md")
    def a() -> str:
        return "text\n"

    async def later(a: str) -> str:
        return a

    pipe.step(name="b", retries=3)(later if is_async else lambda a: a)

    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(Artifacts, "load", fail)
    with pytest.raises(StorageError if isinstance(error, OSError) else RuntimeError):
        pipe.run(dir=tmp_path)


WORDS: dict[str, Callable[[Context, str], object]] = {
    "note": lambda ctx, text: ctx.note(text),
    "escaped": lambda ctx, text: ctx.note("\x01" * (len(text) // 5)),
    "log": lambda ctx, text: ctx.log("long", text=text),
    "tag": lambda ctx, text: ctx.tag(text=text),
    "section": lambda ctx, text: ctx.section(text),
    "key": lambda ctx, text: ctx.once(text, lambda: 1),
    "feedback": lambda ctx, text: (_ for _ in ()).throw(Rewind("outline", text)),
}


@pytest.mark.parametrize("name", WORDS)
def test_words_that_no_line_can_hold_fail_their_step_alone(tmp_path: Path, name: str) -> None:
    """The task is named, its paid calls stand, nothing is paid that cannot be recorded, and all others go on."""
    pipe, calls = Pipeline("p"), []

    @pipe.step
    def outline() -> str:
        return "outline"

    @pipe.step(retries=0)
    def wordy(ctx: Context, outline: str) -> int:
        ctx.once("model", lambda: calls.append("wordy"))
        WORDS[name](ctx, "x" * (16 << 20))
        return 1

    @pipe.step
    def other(ctx: Context, outline: str) -> int:
        ctx.once("model", lambda: calls.append("other"))
        return 1

    results = [pipe.run(dir=tmp_path) for _ in range(2)]
    assert [(result.status, list(result.needs_review)) for result in results] == [("failed", ["wordy"])] * 2
    assert sorted(calls) == ["other", "wordy"]


def test_a_disk_that_is_full_under_a_stream_costs_no_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run stops, whatever the body makes of it; what was streamed is there when it goes on."""
    is_full = True
    pipe = Pipeline("p")

    @pipe.step(writes="story.md", retries=0, on_partial="continue")
    def story(ctx: Context) -> None:
        ctx.write("It begins. " * 20)
        try:
            ctx.write("It goes on.\n" if ctx.partial is None else f"{len(ctx.partial)} were there.\n")
        except Exception:
            ctx.log("not that it mattered")

    def fill(op: str, path: str) -> None:
        part = tmp_path / "story.md.part"
        if is_full and op == "write" and path.endswith(part.name) and part.stat().st_size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(disk, "hook", fill)
    with pytest.raises(StorageError, match="No space left"):
        pipe.run(dir=tmp_path)
    is_full = False
    assert pipe.run(dir=tmp_path).status == "completed"
    assert "220 were there." in (tmp_path / "story.md").read_text()


def test_what_a_step_that_overran_leaves_at_ctx_out_does_not_stay_on_the_disk(tmp_path: Path) -> None:
    """Its thread has come back before the retry begins: each overrun of a long run would keep a film."""
    pipe, left, is_left = Pipeline("p"), [], []

    @pipe.step(writes="film.bin", timeout=0.05, retries=1, backoff=0)
    def film(ctx: Context) -> Path:
        out = ctx.out
        out.write_bytes(b"film")
        left.append(out)
        if len(left) == 1:
            time.sleep(0.3)
        is_left.append(left[0].exists())
        return out

    assert pipe.run(dir=tmp_path).status == "completed"
    assert is_left == [True, False]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_disk_that_is_full_under_ctx_out_costs_no_attempt(tmp_path: Path, is_async: bool) -> None:
    """What a step writes there itself is written for Holdfast: the run stops, and the half of the file goes."""
    is_full, left = True, []

    def write(ctx: Context) -> Path:
        ctx.out.write_bytes(b"half")
        left.append(ctx.out)
        if is_full:  # as the system says it of a write: without a name
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return ctx.out

    async def write_async(ctx: Context) -> Path:
        return write(ctx)

    pipe = Pipeline("p")
    pipe.step(write_async if is_async else write, name="film", writes="film.bin", retries=0)
    with pytest.raises(StorageError, match=r"Could not write the file of film: No space left on device\. "):
        pipe.run(dir=tmp_path)
    assert not left[0].exists()
    is_full = False
    assert pipe.run(dir=tmp_path).status == "completed"
    assert [exit["status"] for exit in Harness(tmp_path).events("node_exit", task="film")] == ["completed"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/elsewhere/cache"),
        OSError(errno.ENOENT, os.strerror(errno.ENOENT)),
        TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)),
    ],
)
def test_other_errors_of_a_step_that_writes_to_ctx_out_are_its_own(tmp_path: Path, error: OSError) -> None:
    """A full disk elsewhere, a file that is not there, a server that does not answer: the step failed."""
    pipe = Pipeline("p")

    @pipe.step(writes="film.bin", retries=0)
    def film(ctx: Context) -> Path:
        ctx.out.write_bytes(b"half")
        raise error

    assert pipe.run(dir=tmp_path).needs_review == ["film"]
    assert Harness(tmp_path).events("node_exit", task="film")[0]["error"].startswith(type(error).__name__)


@pytest.mark.parametrize("how", ["the disk fails", "it is stopped"])
def test_no_body_begins_once_the_run_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """A task that was about to start when the run ended would be paid for, and nobody could record it."""
    is_over = threading.Event()
    calls: list[str] = []
    really = Attempts.prepare

    def prepare(attempts: Attempts, attempt: Attempt) -> Call:
        call = really(attempts, attempt)
        if attempt.node.id == "late":
            is_over.wait(PATIENCE_S)
        elif how == "the disk fails":
            raise OSError(errno.EIO, os.strerror(errno.EIO), "somewhere")
        return call

    monkeypatch.setattr(Attempts, "prepare", prepare)
    pipe = Pipeline("p")
    pipe.step(lambda: os.kill(os.getpid(), signal.SIGINT), name="first")
    pipe.step(lambda: calls.append("late"), name="late")
    (tmp_path / "holdfast.toml").write_text("[run]\ngrace_s = 0\n")
    if how == "the disk fails":
        with pytest.raises(StorageError):
            pipe.run(dir=tmp_path)
    else:
        assert pipe.run(dir=tmp_path).status == "in_progress"
    is_over.set()
    for thread in threading.enumerate():
        if thread.name.startswith("holdfast-worker"):
            thread.join(PATIENCE_S)
    assert calls == []


def test_no_coroutine_begins_once_the_disk_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that start together with the one that met it are not paid for either."""
    prepared: list[str] = []
    begun: list[str] = []
    really = Attempts.prepare

    def prepare(attempts: Attempts, attempt: Attempt) -> Call:
        prepared.append(attempt.node.id)
        if len(prepared) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO), "somewhere")
        return really(attempts, attempt)

    monkeypatch.setattr(Attempts, "prepare", prepare)
    pipe = Pipeline("p")
    pipe.items("chapter", ["a", "b", "c"])

    @pipe.step(each="chapter")
    async def draft(chapter: str) -> str:
        begun.append(chapter)
        return chapter

    with pytest.raises(StorageError):
        pipe.run(dir=tmp_path)
    assert begun == []
