"""ctx.once and ctx.usage: paid once, booked once, and what is thrown away is called wasted."""

from __future__ import annotations

import threading
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from harness import Harness, RunResult
from holdfast import Context, Pipeline, Rewind
from holdfast.errors import HoldfastError, StorageError
from holdfast.stores import disk


def wasted(result: RunResult) -> float:
    return result.picture.state.wasted_cost_usd


@pytest.mark.parametrize("paid", ["text", b"\x00\xffbytes", {"a": [1, 2.5, None]}, "x" * 5000, b"y" * 100_000])
def test_a_paid_call_is_replayed_after_a_failure(tmp_path: Path, paid: Any) -> None:
    """The retry and the next run get the same result without a call; its usage is booked once."""
    pipe, calls, seen = Pipeline("p"), [], []

    @pipe.step(retries=1, backoff=0.0001)
    def step(ctx: Context) -> int:
        seen.append(ctx.once("model", lambda: calls.append(1) or paid))
        ctx.usage(cost_usd=1.0, input_tokens=3)
        if len(seen) < 3:
            raise ValueError("after paying")
        return 1

    assert pipe.run(dir=tmp_path).status == "failed"
    result = pipe.run(dir=tmp_path)
    assert (result.status, len(calls), seen) == ("completed", 1, [paid] * 3)
    assert (result.cost_usd, wasted(result)) == (1.0, 0.0)


@pytest.mark.parametrize("booked", ["in time", "late", "after the call"])
@pytest.mark.parametrize("retries", [1, 0])
def test_a_paid_call_that_returns_after_its_step_timed_out_is_kept(
    tmp_path: Path, booked: str, retries: int
) -> None:
    """No retry begins before the thread has ended, so the late answer is there for it, and so is what it cost."""
    pipe, calls, late = Pipeline("p"), [], []

    @pipe.step(timeout=0.2, retries=retries, backoff=0.0001)
    def step(ctx: Context) -> str:
        def ask() -> str:
            calls.append(ctx.attempt)
            if booked == "in time":
                ctx.usage(cost_usd=1.0)
            while not Harness(tmp_path).events("overran"):
                threading.Event().wait(0.005)
            if booked == "late":
                ctx.usage(cost_usd=1.0)
            return "answer"

        try:
            answer = ctx.once("model", ask)
        except HoldfastError as error:
            late.append(str(error))
            with pytest.raises(HoldfastError, match="timed out"):
                ctx.once("more", lambda: calls.append(99))
            raise
        if booked == "after the call":
            ctx.usage(cost_usd=1.0)
        return answer

    result = pipe.run(dir=tmp_path)
    if not retries:
        assert result.status == "failed"
        result = pipe.run(dir=tmp_path)
    assert (result.status, result.outputs["step"], calls) == ("completed", "answer", [1])
    assert (result.cost_usd, wasted(result)) == (1.0, 0.0)
    assert "timed out" in late[0]


def test_usage_outside_any_paid_call_is_wasted_by_a_failure(tmp_path: Path) -> None:
    """Each attempt's loose spend counts; that of the failed one was for nothing."""
    pipe = Pipeline("p")

    @pipe.step(retries=1, backoff=0.0001)
    def step(ctx: Context) -> int:
        ctx.usage(cost_usd=0.25)
        if ctx.attempt == 1:
            raise ValueError
        return 1

    result = pipe.run(dir=tmp_path)
    assert (result.cost_usd, wasted(result)) == (0.5, 0.25)


def test_a_call_that_raises_is_not_recorded(tmp_path: Path) -> None:
    """The next attempt calls again; usage inside the call that failed is wasted."""
    pipe, calls = Pipeline("p"), []

    def call(ctx: Context) -> str:
        calls.append(1)
        ctx.usage(cost_usd=0.5)
        if len(calls) == 1:
            raise ConnectionError
        return "ok"

    @pipe.step(retries=1, backoff=0.0001)
    def step(ctx: Context) -> Any:
        return ctx.once("model", call, ctx)

    result = pipe.run(dir=tmp_path)
    assert (result.outputs["step"], len(calls)) == ("ok", 2)
    assert (result.cost_usd, wasted(result)) == (1.0, 0.5)


@pytest.mark.parametrize("amount", [float("nan"), -1.0, "1.0", True])
def test_spend_that_is_refused_leaves_no_trace(tmp_path: Path, amount: Any) -> None:
    """A step that goes on after a refused report, inside a paid call or after it, leaves a journal that reads."""
    pipe = Pipeline("p")

    @pipe.step(retries=1, backoff=0.0001)
    def step(ctx: Context) -> int:
        def call() -> str:
            with pytest.raises(HoldfastError, match="cost_usd must be an amount"):
                ctx.usage(cost_usd=amount)
            return "paid"

        ctx.once("model", call)
        with pytest.raises(HoldfastError, match="cost_usd must be an amount"):
            ctx.usage(cost_usd=amount)
        ctx.usage(cost_usd=0.5)
        if ctx.attempt == 1:
            raise ValueError
        return 1

    result = pipe.run(dir=tmp_path)
    assert (result.status, result.cost_usd, wasted(result)) == ("completed", 0.5, 0.0)
    for snapshot in Harness(tmp_path).journal().parent.glob("checkpoint_*"):
        snapshot.unlink()
    assert pipe.run(dir=tmp_path).status == "completed"


def test_a_key_used_twice_is_an_error(tmp_path: Path) -> None:
    """The second use in one round fails the step and says so."""
    pipe = Pipeline("p")

    @pipe.step
    def step(ctx: Context) -> None:
        ctx.once("model", int)
        ctx.once("model", int)

    result = pipe.run(dir=tmp_path)
    assert result.status == "failed"
    assert "used twice" in result.picture.record("step").error


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_that_raised_may_be_made_again_by_the_same_attempt(tmp_path: Path, is_async: bool) -> None:
    """Nothing was recorded, so its key is free; both calls were paid for."""
    pipe, calls = Pipeline("p"), []

    def call(ctx: Context) -> str:
        calls.append(1)
        ctx.usage(cost_usd=0.5)
        if len(calls) == 1:
            raise ConnectionError
        return "ok"

    async def call_async(ctx: Context) -> str:
        return call(ctx)

    def step(ctx: Context) -> Any:
        with suppress(ConnectionError):
            ctx.once("model", call, ctx)
        return ctx.once("model", call, ctx)

    async def step_async(ctx: Context) -> Any:
        with suppress(ConnectionError):
            await ctx.once("model", call_async, ctx)
        return await ctx.once("model", call_async, ctx)

    pipe.step(name="step")(step_async if is_async else step)
    result = pipe.run(dir=tmp_path)
    assert (result.outputs["step"], len(calls), result.cost_usd) == ("ok", 2, 1.0)


def test_a_function_that_gives_an_awaitable_is_awaited_at_a_replay_too(tmp_path: Path) -> None:
    """A lambda around a coroutine looks like a plain function; the step awaits it all the same."""
    pipe, calls = Pipeline("p"), []

    async def call(prompt: str) -> str:
        calls.append(prompt)
        return "answer"

    @pipe.step
    async def step(ctx: Context) -> str:
        answer: str = await ctx.once("model", lambda: call("question"))
        if not (tmp_path / "second").exists():
            (tmp_path / "second").touch()
            raise ValueError("after paying")
        return answer

    assert pipe.run(dir=tmp_path).status == "failed"
    assert pipe.run(dir=tmp_path).outputs["step"] == "answer"
    assert calls == ["question"]


def test_a_call_with_wrong_arguments_was_not_made(tmp_path: Path) -> None:
    """Its key is free: the step may call it again, rightly."""
    pipe = Pipeline("p")

    async def call(prompt: str) -> str:
        return prompt

    @pipe.step
    async def step(ctx: Context) -> str:
        with pytest.raises(TypeError):
            await ctx.once("model", call)
        return str(await ctx.once("model", call, "right"))

    assert pipe.run(dir=tmp_path).outputs["step"] == "right"


def test_a_refused_output_begins_a_new_round(tmp_path: Path) -> None:
    """Nothing is replayed after a refusal: the call that gave the refused text is made and paid again."""
    pipe, calls = Pipeline("p"), []

    @pipe.step(retries=1, backoff=0.0001, check=lambda output: output == "call 2" or "no")
    def step(ctx: Context) -> Any:
        text = ctx.once("model", lambda: calls.append(1) or f"call {len(calls)}")
        ctx.usage(cost_usd=1.0)
        return text

    result = pipe.run(dir=tmp_path)
    assert (result.status, len(calls)) == ("completed", 2)
    assert (result.cost_usd, wasted(result)) == (2.0, 1.0)


def test_a_rewind_and_a_raised_version_begin_new_rounds(tmp_path: Path) -> None:
    """What was sent back or outdated is paid again, and its cost is wasted."""
    calls: list[int] = []

    def make(version: int) -> Pipeline:
        pipe = Pipeline("p")

        @pipe.step(version=version)
        def draft(ctx: Context) -> Any:
            text = ctx.once("model", lambda: calls.append(1) or len(calls))
            ctx.usage(cost_usd=1.0)
            return text

        @pipe.step
        def review(draft: int) -> int:
            if draft == 1:
                raise Rewind("draft")
            return draft

        return pipe

    first = make(1).run(dir=tmp_path)
    assert (first.outputs["review"], first.cost_usd, wasted(first)) == (2, 2.0, 1.0)
    second = make(2).run(dir=tmp_path)
    assert (second.run_id, second.outputs["review"]) == (first.run_id, 3)
    assert (second.cost_usd, wasted(second)) == (3.0, 2.0)


def test_a_budget_pauses_the_run_and_a_higher_one_continues_it(tmp_path: Path) -> None:
    """Nothing starts once the budget is spent; nothing paid is paid again."""
    pipe, calls = Pipeline("p"), []
    pipe.items("n", ["a", "b", "c", "d"])

    @pipe.step(each="n")
    def step(ctx: Context, n: str) -> str:
        calls.append(n)
        ctx.usage(cost_usd=1.0)
        return n

    result = pipe.run(dir=tmp_path, concurrency=1, budget_usd=2.0)
    assert (result.status, result.exit_code, len(calls)) == ("paused", 3, 2)
    assert pipe.run(dir=tmp_path, concurrency=1, budget_usd=2.0).status == "paused"
    result = pipe.run(dir=tmp_path, budget_usd=10.0)
    assert (result.status, sorted(calls), result.cost_usd) == ("completed", ["a", "b", "c", "d"], 4.0)


@pytest.mark.parametrize(
    ("left", "total", "is_paid"), [(9 << 20, 1 << 40, False), (9 << 20, 64 << 20, True), (0, 0, True)]
)
@pytest.mark.parametrize("is_async", [False, True])
def test_nothing_is_paid_for_on_a_disk_that_is_all_but_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int, total: int, is_paid: bool, is_async: bool
) -> None:
    """The run stops before the call; a small disk may be fuller, one that does not say is used."""
    pipe, calls = Pipeline("p"), []

    async def pay() -> int:
        return calls.append(1) or 1

    @pipe.step(name="step")
    async def async_step(ctx: Context) -> int:
        return await ctx.once("model", pay)

    def step(ctx: Context) -> int:
        return ctx.once("model", lambda: calls.append(1) or 1)

    if not is_async:
        pipe = Pipeline("p")
        pipe.step(retries=2)(step)
    monkeypatch.setattr(disk, "room_left", lambda path: (left, total))
    with nullcontext() if is_paid else pytest.raises(StorageError, match="step: its paid call is not made"):
        pipe.run(dir=tmp_path)
    assert bool(calls) == is_paid
    monkeypatch.undo()
    assert pipe.run(dir=tmp_path).status == "completed"
    assert len(calls) == 1


def test_a_disk_that_cannot_be_asked_is_used(tmp_path: Path) -> None:
    """How much is left is only a guess at what is to come; whoever cannot make it goes on."""
    assert disk.room_left(tmp_path / "nowhere") == (0, 0)
    assert disk.room_left(tmp_path) > (0, 0)


def test_a_step_that_fails_and_changes_what_it_reads_has_no_more_attempts_for_that(tmp_path: Path) -> None:
    """Its paid calls are made again, for they were about other words; the attempts that failed count on."""
    (tmp_path / "log.txt").write_text("")
    pipe, paid = Pipeline("p"), list[str]()

    @pipe.step(reads="log.txt", retries=2, backoff=0)
    def step(ctx: Context) -> str:
        log = (tmp_path / "log.txt").read_text()
        ctx.once("call", lambda: paid.append(log))
        (tmp_path / "log.txt").write_text(f"{log}failed\n")
        if len(paid) == 9:
            return "endless"
        raise ValueError("no")

    assert pipe.run(dir=tmp_path).status == "failed"
    assert paid == ["", "failed\n", "failed\nfailed\n"]
