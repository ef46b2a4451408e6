"""The pipelines that are measured. Their bodies do nothing that costs, so that what is left is Holdfast."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from holdfast import Pipeline

STEPS = 4  # of each item in a fan-out
TEXT = "A line of text that stands for the output of a step.\n" * 39  # 2 KB

Body = Callable[..., Any]


def chain(length: int) -> Pipeline:
    """`length` steps, each taking the value of the one before."""
    pipe = Pipeline("chain")
    # Parameters are found by name, so each step needs a signature of its own; a template is the only way.
    source = ["def s0():\n    return {'n': 0}"]
    source += [f"def s{n}(s{n - 1}):\n    return {{'n': {n}}}" for n in range(1, length)]
    names: dict[str, Any] = {}
    exec("\n".join(source), names)
    for n in range(length):
        pipe.step(names[f"s{n}"])
    pipe.compile()
    return pipe


def fan_out(items: int, sleep_s: float, *, files: bool = False) -> Pipeline:
    """Items with four dependent steps, each of which sleeps in its thread."""

    def body(item: str) -> Any:
        time.sleep(sleep_s)
        return TEXT if files else {"item": item}

    return _dependent_steps("fan-out", items, body, files=files)


def fan_out_async(items: int, sleep_s: float) -> Pipeline:
    """The same with coroutines, which sleep together on one loop."""

    async def body(item: str) -> Any:
        await asyncio.sleep(sleep_s)
        return {"item": item}

    return _dependent_steps("fan-out-async", items, body)


def long_run(items: int, at_body: Callable[[], None] = lambda: None) -> Pipeline:
    """Many steps of one shape: each takes its item and one value, so that any two of them cost the same."""

    def body(item: str) -> Any:
        at_body()
        return 1

    return _dependent_steps("long-run", items, body, seeded=True)


def item_ids(items: int) -> list[str]:
    return [f"i{number:05d}" for number in range(items)]


def _dependent_steps(
    name: str, items: int, body: Body, *, files: bool = False, seeded: bool = False
) -> Pipeline:
    pipe = Pipeline(name)
    pipe.items("item", item_ids(items))
    if seeded:
        pipe.step(name="s0")(lambda: 0)
    wrap = _async_step if asyncio.iscoroutinefunction(body) else _sync_step
    for number in range(1, STEPS + 1):
        step = wrap(body, f"s{number - 1}" if number > 1 or seeded else "")
        writes = f"out/{{item}}-s{number}.md" if files else None
        pipe.step(name=f"s{number}", each="item", writes=writes)(step)
    pipe.compile()
    return pipe


def _sync_step(body: Body, producer: str) -> Body:
    names: dict[str, Any] = {"body": body}
    exec(f"def step(item{_also(producer)}):\n    return body(item)", names)
    step: Body = names["step"]
    return step


def _async_step(body: Body, producer: str) -> Body:
    names: dict[str, Any] = {"body": body}
    exec(f"async def step(item{_also(producer)}):\n    return await body(item)", names)
    step: Body = names["step"]
    return step


def _also(producer: str) -> str:
    return f", {producer}" if producer else ""
