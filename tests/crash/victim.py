"""The pipeline that crash tests kill: small, with every kind of output, paid calls and a gather.

Run as a script it is one process of the engine: `python -m crash.victim PROJECT LOG`. The log lies outside the
project and is written with O_APPEND, so it tells what really ran, what was paid and what was reported done.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Harness, RunResult
from holdfast import Context, Pipeline

RUN_ID = "victim"
CONCURRENCY = 3
PAID_STEPS = {"outline": 0.5, "research": 0.01, "draft": 0.002}
ITEMS = ("ch01", "ch02", "ch03")
TOTAL_USD = 0.5 + len(ITEMS) * 0.012
TASKS = 3 + 3 * len(ITEMS)


def logger(log: Path) -> Callable[[str], None]:
    """Appends one line to the side log; one write, so that a kill cannot tear it."""

    def say(line: str) -> None:
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.write(descriptor, f"{line}\n".encode())
        os.close(descriptor)

    return say


def make(log: Path, *, copy: bool = True) -> Pipeline:
    """The pipeline, its bodies writing to `log`; without `copy` its files are all there is of what they hold."""
    say = logger(log)
    pipe = Pipeline("victim")

    def pay(ctx: Context, result: Any) -> Any:
        say(f"pay {ctx.task_id}")
        return result

    @pipe.step(writes="outline.md", marker="OUTLINE_COMPLETE", copy=copy)
    def outline(ctx: Context) -> None:
        say(f"run {ctx.task_id}")
        text: str = ctx.once("model", pay, ctx, "\n".join(ITEMS))
        say(f"kept {ctx.task_id}")
        ctx.usage(input_tokens=10, cost_usd=PAID_STEPS["outline"])
        ctx.write(text)
        ctx.write("\n<!-- OUTLINE_COMPLETE -->\n")

    @pipe.items("chapter")
    def chapters(outline: str) -> list[str]:
        return outline.split()

    @pipe.step(each="chapter", writes="research/{chapter}.md", copy=copy)
    async def research(ctx: Context, chapter: str, outline: str) -> str:
        say(f"run {ctx.task_id}")

        async def call() -> str:
            say(f"pay {ctx.task_id}")
            return f"facts about {chapter}, without a last newline"

        text: str = await ctx.once("search", call)
        say(f"kept {ctx.task_id}")
        ctx.usage(output_tokens=5, cost_usd=PAID_STEPS["research"])
        return text

    @pipe.step(each="chapter", writes={"text": "drafts/{chapter}.txt", "meta": "drafts/{chapter}.json"}, copy=copy)
    def draft(ctx: Context, chapter: str, research: str) -> dict[str, Any]:
        say(f"run {ctx.task_id}")
        body: bytes = ctx.once("model", pay, ctx, research.upper().encode())
        say(f"kept {ctx.task_id}")
        ctx.usage(cost_usd=PAID_STEPS["draft"])
        return {"text": body, "meta": {"chapter": chapter}, "size": len(body)}

    @pipe.step(each="chapter")
    def score(ctx: Context, draft: dict[str, Any]) -> dict[str, Any]:
        say(f"run {ctx.task_id}")
        return {"size": draft["size"], "padding": "x" * 3000}

    @pipe.step(writes="book.md", copy=copy)
    def book(ctx: Context, draft: dict[str, Any], score: dict[str, Any]) -> Path:
        say(f"run {ctx.task_id}")
        lines = (f"{key}: {draft[key]['text'].decode()} {score[key]['size']}" for key in draft)
        ctx.out.write_text("\n".join(lines))
        return ctx.out

    return pipe


def run(project: Path, log: Path, *, copy: bool = True) -> RunResult:
    """One process of the engine over the project; every completion that is reported goes into the log."""
    say = logger(log)

    def heard(one: Any) -> None:
        if getattr(one.event, "status", "") == "completed" and hasattr(one.event, "step_id"):
            say(f"ack {one.event.step_id}")

    pipe = make(log, copy=copy)
    return Harness(project).run(pipe, run_id=RUN_ID, concurrency=CONCURRENCY, on_event=heard)


if __name__ == "__main__":
    result = run(Path(sys.argv[1]), Path(sys.argv[2]))
    raise SystemExit(result.exit_code)
