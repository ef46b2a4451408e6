"""`holdfast.testing.context`: a step called like a function."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Context, HoldfastError
from holdfast import events as ev
from holdfast.testing import context


def test_a_step_can_be_called_and_what_it_said_is_there() -> None:
    """Usage, decisions, paid calls and streamed text are all within the test's reach."""

    def step(ctx: Context) -> str:
        text: str = ctx.once("model", lambda: "made")
        ctx.usage(cost_usd=0.02)
        ctx.decision("order", "as planned")
        ctx.write("half ")
        ctx.write("more")
        return text + str(ctx.feedback)

    ctx = context(feedback=["shorter"], item={"id": "ch01", "title": "One"})
    assert step(ctx) == "made['shorter']"
    assert [type(event) for event in ctx.events] == [ev.OnceRecorded, ev.UsageRecorded, ev.DecisionMade]
    assert ctx.written == "half more"
    assert ctx.item["title"] == "One"


def test_a_paid_call_of_an_earlier_attempt_is_replayed() -> None:
    """Results given beforehand are returned without a call, text and bytes alike."""

    def never() -> str:
        raise AssertionError("called")

    ctx = context(once={"text": "old", "bytes": b"\xff"})
    assert ctx.once("text", never) == "old"
    assert ctx.once("bytes", never) == b"\xff"
    assert ctx.events == []


def test_a_key_is_used_once() -> None:
    """The second use of a key is an error here as in the engine."""
    ctx = context()
    ctx.once("model", lambda: 1)
    with pytest.raises(HoldfastError, match="used twice"):
        ctx.once("model", lambda: 1)


def test_an_async_call_is_awaited() -> None:
    """`once` of an async function gives an awaitable."""

    async def call() -> bytes:
        return b"x" * 5000

    async def step(ctx: Context) -> bytes:
        result: bytes = await ctx.once("model", call)
        return result

    assert asyncio.run(step(context())) == b"x" * 5000


def test_out_is_a_fresh_path_that_goes_away() -> None:
    """A large file can be written to `out`; its folder does not outlive the context."""
    ctx = context()
    path = ctx.out
    path.write_text("large")
    assert path.read_text() == "large"
    del ctx
    assert not path.exists()
