"""Paid calls that a step makes side by side: paid once and booked once, in whichever order they end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Pipeline

PRICES = {"a": 1.0, "b": 10.0, "c": 100.0}
PATIENCE_S = 30


class Model:
    """Answers c first and a last, when all have asked; counts what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._waiting = threading.Barrier(len(PRICES))
        self._told = {name: threading.Event() for name in PRICES}

    def ask(self, name: str) -> str:
        self.asked.append(name)
        self._waiting.wait(PATIENCE_S)
        for after in [other for other in PRICES if other > name]:
            self._told[after].wait(PATIENCE_S)
        return name

    def expect(self, names: set[str]) -> None:
        """Only these will be asked: the others have been, before."""
        self._waiting = threading.Barrier(len(names))
        for name in set(PRICES) - names:
            self.has_answered(name)

    def has_answered(self, name: str) -> None:
        self._told[name].set()

    async def ask_async(self, name: str) -> str:
        self.asked.append(name)
        for _ in range({"a": 30, "b": 20, "c": 10}[name]):
            await asyncio.sleep(0)
        return name


def in_threads(ctx: Context, model: Model) -> None:
    """Each thread books what it has fetched, but not before all the others have fetched theirs, too."""
    all_there = threading.Barrier(len(PRICES))

    def fetch(name: str) -> None:
        ctx.once(name, model.ask, name)
        model.has_answered(name)
        all_there.wait(PATIENCE_S)
        ctx.usage(cost_usd=PRICES[name])

    with ThreadPoolExecutor(len(PRICES)) as pool:
        list(pool.map(fetch, PRICES))


def by_the_thread_that_waits(ctx: Context, model: Model) -> None:
    def fetch(name: str) -> str:
        answer = ctx.once(name, model.ask, name)
        model.has_answered(name)
        return answer

    with ThreadPoolExecutor(len(PRICES)) as pool:
        for name in pool.map(fetch, PRICES):
            ctx.usage(cost_usd=PRICES[name])


async def gathered(ctx: Context, model: Model) -> None:
    for name in await asyncio.gather(*[ctx.once(name, model.ask_async, name) for name in PRICES]):
        ctx.usage(cost_usd=PRICES[name])


async def as_they_come(ctx: Context, model: Model) -> None:
    for answer in asyncio.as_completed([ctx.once(name, model.ask_async, name) for name in PRICES]):
        ctx.usage(cost_usd=PRICES[await answer])


async def each_in_a_task(ctx: Context, model: Model) -> None:
    async def fetch(name: str) -> None:
        answer = await asyncio.wait_for(ctx.once(name, model.ask_async, name), PATIENCE_S)
        await asyncio.sleep(0)
        ctx.usage(cost_usd=PRICES[answer])

    await asyncio.gather(*map(fetch, PRICES))


async def beside_a_slow_one(ctx: Context, model: Model) -> None:
    """What a task has asked for is its own, also if it was made while another call was under way."""

    async def fetch(name: str) -> None:
        answer = await ctx.once(name, model.ask_async, name)
        await pause()
        ctx.usage(cost_usd=PRICES[answer])

    async def fetch_others() -> None:
        await asyncio.gather(fetch("b"), fetch("c"))

    answer, _ = await asyncio.gather(ctx.once("a", model.ask_async, "a"), fetch_others())
    ctx.usage(cost_usd=PRICES[answer])


async def one_ahead(ctx: Context, model: Model) -> None:
    """The next call is under way while the last one's answer is looked at; a replayed one is not."""

    def begin(name: str) -> asyncio.Future[str]:
        return asyncio.ensure_future(ctx.once(name, model.ask_async, name))

    ahead = begin("a")
    for following in ("b", "c", ""):
        current, ahead = ahead, begin(following) if following else ahead
        answer = await current
        await asyncio.sleep(0)
        ctx.usage(cost_usd=PRICES[answer])


async def pause() -> None:
    """Longer than the quickest call, shorter than the slowest, also with what it takes to keep one's answer."""
    await asyncio.sleep(0.05)


IN_THREADS = (in_threads, by_the_thread_that_waits)


@pytest.mark.parametrize(
    ("body", "known"),
    [
        *[(body, "") for body in (by_the_thread_that_waits, gathered, beside_a_slow_one, one_ahead)],
        *[(body, known) for body in (in_threads, as_they_come, each_in_a_task) for known in ("", "a", "bc")],
    ],
)
def test_what_calls_side_by_side_cost_is_booked_once(
    tmp_path: Path, body: Callable[[Context, Model], Any], known: str
) -> None:
    """Replayed calls end in another order than when they were made, and before those that are made now."""
    pipe, model, attempts = Pipeline("p"), Model(), []
    if body in IN_THREADS:
        model.expect(set(PRICES) - set(known))

    def begin(ctx: Context) -> None:
        """The first attempt gets no further than some of the calls."""
        attempts.append(ctx.attempt)
        for name in known if len(attempts) == 1 else "":
            ctx.once(name, str, name)
            ctx.usage(cost_usd=PRICES[name])
        if known and len(attempts) == 1:
            raise ConnectionError

    def end() -> str:
        if len(attempts) < 4:
            raise ConnectionError
        return "done"

    def step(ctx: Context) -> str:
        begin(ctx)
        body(ctx, model)
        return end()

    async def step_async(ctx: Context) -> str:
        begin(ctx)
        await body(ctx, model)
        return end()

    pipe.step(name="step", retries=9, backoff=0.0001)(step if body in IN_THREADS else step_async)
    result = pipe.run(dir=tmp_path)
    assert (result.status, sorted(model.asked)) == ("completed", sorted(set(PRICES) - set(known)))
    assert (result.cost_usd, result.picture.state.wasted_cost_usd) == (111.0, 0.0)


def test_calls_within_calls_are_not_side_by_side(tmp_path: Path) -> None:
    """So each has its own reports: there may be fewer of one than the last time, and none of another is hidden."""
    pipe = Pipeline("p")

    @pipe.step(retries=1, backoff=0.0001)
    def step(ctx: Context) -> str:
        if ctx.attempt == 2:
            ctx.once("outer", lambda: ctx.once("inner", str, "text"))
        ctx.once("first", str, "text")
        for _ in range(3 - ctx.attempt):
            ctx.usage(cost_usd=1.0)
        if ctx.attempt == 1:
            raise ConnectionError
        ctx.once("second", str, "text")
        ctx.usage(cost_usd=10.0)
        return "done"

    assert pipe.run(dir=tmp_path).cost_usd == 12.0


def test_calls_that_are_under_way_when_their_step_fails_are_kept(tmp_path: Path) -> None:
    """asyncio.gather raises at the first failure and leaves the others alone: their answers are on their way."""
    pipe, asked = Pipeline("p"), []

    async def ask(name: str) -> str:
        asked.append(name)
        await asyncio.sleep(0)
        if name == "a" and asked.count("a") == 1:
            raise ConnectionError("a is busy")
        await asyncio.sleep(0.1)
        return name

    async def fetch(ctx: Context, name: str) -> str:
        answer = await ctx.once(name, ask, name)
        ctx.usage(cost_usd=PRICES[name])
        return answer + await ctx.once(f"more of {name}", ask, f"more of {name}")

    @pipe.step(retries=1, backoff=0.0001)
    async def step(ctx: Context) -> list[str]:
        return await asyncio.gather(*[fetch(ctx, name) for name in PRICES])

    result = pipe.run(dir=tmp_path)
    assert result.outputs["step"] == ["amore of a", "bmore of b", "cmore of c"]
    assert sorted(asked) == ["a", "a", "b", "c", "more of a", "more of b", "more of c"]
    assert result.cost_usd == 111.0


def test_a_timeout_ends_calls_that_outlast_the_failure_of_their_step(tmp_path: Path) -> None:
    """A call that does not return keeps a failed attempt no longer than its time."""
    pipe, asked, ended = Pipeline("p"), [], []

    async def ask(name: str) -> str:
        asked.append(name)
        try:
            await (asyncio.sleep(0) if len(asked) > 2 else asyncio.Event().wait())
        finally:
            ended.append(name)
        return name

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ConnectionError

    @pipe.step(retries=1, backoff=0.0001, timeout=0.2)
    async def step(ctx: Context) -> list[Any]:
        calls = [ctx.once(name, ask, name) for name in "ab"]
        return await asyncio.gather(*calls, *([fail()] if ctx.attempt == 1 else []))

    result = pipe.run(dir=tmp_path)
    assert (result.status, asked, sorted(ended)) == ("completed", ["a", "b"] * 2, ["a", "a", "b", "b"])


def test_a_failed_step_waits_for_its_calls_and_not_for_who_made_them(tmp_path: Path) -> None:
    """Tasks that take work from a queue have no end: what is waited for is the answers that are on their way."""
    pipe, asked, workers = Pipeline("p"), [], []

    async def ask(name: str) -> str:
        asked.append(name)
        await asyncio.sleep(0.2)
        return name

    @pipe.step(retries=1, backoff=0.0001)
    async def step(ctx: Context) -> list[str]:
        names: asyncio.Queue[str] = asyncio.Queue()
        answers: list[str] = []

        async def work() -> None:
            while True:
                name = await names.get()
                answers.append(await ctx.once(name, ask, name))
                names.task_done()

        for name in PRICES:
            workers.append(asyncio.create_task(work()))
            names.put_nowait(name)
        await asyncio.sleep(0.01)
        if ctx.attempt == 1:
            raise ConnectionError
        await names.join()
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
        return answers

    result = pipe.run(dir=tmp_path)
    assert (result.status, sorted(asked)) == ("completed", [*PRICES])


def test_calls_in_threads_are_waited_for_when_their_async_step_fails(tmp_path: Path) -> None:
    """asyncio.to_thread leaves them alone, too."""
    pipe, asked, failed = Pipeline("p"), [], threading.Event()

    def ask(name: str) -> str:
        asked.append(name)
        if name == "a" and asked.count("a") == 1:
            failed.set()
            raise ConnectionError
        assert failed.wait(PATIENCE_S)
        threading.Event().wait(0.2)
        return name

    @pipe.step(retries=1, backoff=0.0001)
    async def step(ctx: Context) -> list[str]:
        return await asyncio.gather(*[asyncio.to_thread(ctx.once, name, ask, name) for name in PRICES])

    result = pipe.run(dir=tmp_path)
    assert (result.outputs["step"], sorted(asked)) == ([*PRICES], ["a", *PRICES])


def test_a_step_that_has_failed_says_why_also_if_its_calls_outlast_its_time(tmp_path: Path) -> None:
    """That it ran out of time is told of one that was still at work; `no_retry_on` goes by what it raised."""
    pipe, bodies = Pipeline("p"), []

    async def ask() -> str:
        await asyncio.Event().wait()
        return "never"

    @pipe.step(retries=3, backoff=0.0001, timeout=0.1, no_retry_on=ValueError)
    async def step(ctx: Context) -> None:
        bodies.append(ctx.attempt)
        call = asyncio.ensure_future(ctx.once("a", ask))
        await asyncio.sleep(0)
        raise ValueError("no such book", call)

    result = pipe.run(dir=tmp_path)
    assert (result.status, bodies) == ("failed", [1])
    assert "no such book" in result.picture.state.tasks["step"].error


def test_a_call_under_way_may_make_others_when_its_step_has_failed(tmp_path: Path) -> None:
    """Else it would fail, and what it has paid so far be paid again."""
    pipe, asked = Pipeline("p"), []

    async def ask(name: str) -> str:
        asked.append(name)
        await asyncio.sleep(0.1)
        return name

    async def ask_both(ctx: Context) -> str:
        return await ask("first") + await ctx.once("second", ask, "second")

    @pipe.step(retries=1, backoff=0.0001)
    async def step(ctx: Context) -> str:
        both = asyncio.ensure_future(ctx.once("both", ask_both, ctx))
        await asyncio.sleep(0.01)
        if ctx.attempt == 1:
            raise ConnectionError
        return await both

    result = pipe.run(dir=tmp_path)
    assert (result.outputs["step"], asked) == ("firstsecond", ["first", "second"])
