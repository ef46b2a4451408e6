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


IN_THREADS = (in_threads, by_the_thread_that_waits)


@pytest.mark.parametrize(
    ("body", "known"),
    [
        *[(body, "") for body in (by_the_thread_that_waits, gathered)],
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
