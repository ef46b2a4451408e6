"""A pipeline whose draft is sent back once, to be killed; as a module it is one process of the engine.

What is logged is named with its round, so that the log tells a second round from a repeated first one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from harness import Harness, RunResult
from holdfast import Context, Pipeline, Rewind

from . import victim

RUN_ID = "review"
CHAPTERS = ("ch01", "ch02")
SENT_BACK = "ch01"
DRAFT_USD, REVIEW_USD = 0.25, 0.125


def make(log: Path) -> Pipeline:
    say = victim.logger(log)
    pipe = Pipeline("review")
    pipe.items("chapter", CHAPTERS)

    def call(ctx: Context, answer: str, cost: float) -> str:
        """A paid call, logged before it is made and after it is kept."""
        name = f"{ctx.task_id}@{ctx.round}"
        say(f"run {name}")
        text: str = ctx.once("model", lambda: (say(f"pay {name}"), answer)[1])
        say(f"kept {name}")
        ctx.usage(cost_usd=cost)
        return text

    @pipe.step(each="chapter", writes="drafts/{chapter}.md")
    def draft(ctx: Context, chapter: str) -> str:
        before = ctx.previous.strip() if ctx.previous else "nothing"
        return call(ctx, f"{chapter} after {ctx.feedback} of {before}\n", DRAFT_USD)

    @pipe.step(each="chapter", writes="reviews/{chapter}-facts.md")
    def facts(ctx: Context, chapter: str, draft: str) -> str:
        verdict = call(ctx, f"read: {draft}", REVIEW_USD)
        if chapter == SENT_BACK and ctx.round == 0:
            raise Rewind("draft", "shorter", keep=["language"])
        return verdict

    @pipe.step(each="chapter", writes="reviews/{chapter}-language.md")
    def language(ctx: Context, draft: str) -> str:
        say(f"run {ctx.task_id}@{ctx.round}")
        return "fine\n"  # whichever draft it was

    @pipe.step(each="chapter", writes="merged/{chapter}.md")
    def merge(ctx: Context, draft: str, facts: str, language: str) -> str:
        say(f"run {ctx.task_id}@{ctx.round}")
        return f"{draft}{facts}{language}"

    @pipe.step(writes="book.md")
    def book(merge: dict[str, str]) -> str:
        return "".join(merge.values())

    return pipe


def run(project: Path, log: Path) -> RunResult:
    """One process of the engine; every completion that is told goes into the log."""
    say = victim.logger(log)

    def heard(one: Any) -> None:
        if getattr(one.event, "status", "") == "completed" and hasattr(one.event, "step_id"):
            say(f"ack {one.event.step_id}@{one.event.round}")

    return Harness(project).run(make(log), run_id=RUN_ID, concurrency=3, on_event=heard)


if __name__ == "__main__":
    raise SystemExit(run(Path(sys.argv[1]), Path(sys.argv[2])).exit_code)
