"""The pipelines that are measured. Their bodies do nothing that costs, so that what is left is Holdfast."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Sequence
from typing import Any

from holdfast import Pipeline

STEPS = 4  # of each item in a fan-out

_LINE = "A line of text that stands for what a step has written.\n"

Body = Callable[..., Any]


def chain(length: int) -> Pipeline:
    """`length` steps, each taking the value of the one before."""
    pipe = Pipeline("chain")
    for n in range(length):
        pipe.step(name=f"s{n}")(_taking([f"s{n - 1}"] if n else [], _small_value))
    pipe.compile()
    return pipe


def fan_out(items: int, sleep_s: float, *, files: bool = False) -> Pipeline:
    """Items with four dependent steps, each of which sleeps in its thread."""

    def body(step: int, item: str, **_: Any) -> Any:
        time.sleep(sleep_s)
        return text(item, step) if files else {"item": item}

    return dependent_steps("fan-out", items, body, files=files)


def fan_out_async(items: int, sleep_s: float) -> Pipeline:
    """The same with coroutines, which sleep together on one loop."""
    import asyncio  # here, so that the pipelines whose start is timed do not load it

    async def body(step: int, item: str, **_: Any) -> Any:
        await asyncio.sleep(sleep_s)
        return {"item": item}

    return dependent_steps("fan-out-async", items, body)


def long_run(items: int, at_body: Callable[[], None] = lambda: None) -> Pipeline:
    """Many steps of one shape: each takes its item and one value, so that any two of them cost the same."""

    def body(step: int, **_: Any) -> Any:
        at_body()
        return 1

    return dependent_steps("long-run", items, body, seeded=True)


def text(item: str, step: int) -> str:
    """2 KB that no other step has: equal texts would be kept once."""
    return f"# {item}, step {step}\n" + _LINE * 36


def item_ids(items: int) -> list[str]:
    return [f"i{number:05d}" for number in range(items)]


def dependent_steps(name: str, items: int, body: Body, *, files: bool = False, seeded: bool = False) -> Pipeline:
    """Items with four steps that take each other's output; `body` gets the step's number and its arguments."""
    pipe = Pipeline(name)
    pipe.items("item", item_ids(items))
    if seeded:
        pipe.step(name="s0")(lambda: 0)
    for number in range(1, STEPS + 1):
        producers = [f"s{number - 1}"] if number > 1 or seeded else []
        writes = f"out/{{item}}-s{number}.md" if files else None
        pipe.step(name=f"s{number}", each="item", writes=writes)(
            _taking(["item", *producers], functools.partial(body, number))
        )
    pipe.compile()
    return pipe


def _small_value(**_: Any) -> Any:
    return {"n": 1}


def _taking(names: Sequence[str], body: Body) -> Body:
    """A function of its own with parameters of these names: that is how a pipeline sees what a step needs."""
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    step: Body = functools.partial(body)
    step.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return step
