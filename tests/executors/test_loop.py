"""The event loop of async bodies."""

from __future__ import annotations

import contextvars
import threading

from holdfast.executors.loop import LoopExecutor
from holdfast.executors.protocol import Call, Outcome
from holdfast.executors.threads import ThreadExecutor

PATIENCE_S = 30

where: contextvars.ContextVar[str] = contextvars.ContextVar("where", default="nowhere")


def test_a_coroutine_does_not_begin_in_the_context_of_whoever_asked_for_it() -> None:
    """A body that commits, in the middle of its paid call, may start another task: what that spends is its own."""
    executor, ended, outcomes = LoopExecutor(ThreadExecutor(1)), threading.Event(), []

    async def body() -> str:
        return where.get()

    def done(outcome: Outcome) -> None:
        outcomes.append(outcome)
        ended.set()

    token = where.set("inside another body")
    try:
        executor.submit(Call(body, {})).done(done)
        assert ended.wait(PATIENCE_S)
    finally:
        where.reset(token)
        executor.close()
    assert outcomes[0].value == "nowhere"
