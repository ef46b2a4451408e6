"""What a user's own type checker sees: mypy reads this file with the package (`make types`); nothing runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

from holdfast import CheckpointManager, Context, EventLog, Pipeline, Project, Rewind
from holdfast.testing import context

pipe = Pipeline("book", params={"topic": str, "chapters": (int, 3)}, limits={"model": {"per_minute": 500}})
pipe.items("chapter", ["ch01", {"id": "ch02", "after": ["ch01"]}])


def ask(prompt: str, *, tokens: int = 100) -> str:
    return prompt[:tokens]


async def ask_slowly(prompt: str) -> dict[str, int]:
    return {prompt: 1}


@pipe.step(each="chapter", writes="{chapter}.md", retry_on=(OSError,), marker=None, check=len)
def draft(ctx: Context, chapter: str) -> str:
    """A paid call keeps the type of its function, so that it may be returned as it is."""
    if ctx.feedback:
        raise Rewind({"outline": "too long"}, keep=["review"])
    return ctx.once("draft", ask, chapter, tokens=20)


@pipe.step
async def count(ctx: Context) -> dict[str, int]:
    assert_type(ctx.once("first", lambda: 3), int)
    return await ctx.once("count", ask_slowly, "how many?")


@pipe.items("part")
def parts(count: dict[str, int]) -> list[str]:
    return list(count)


def use(directory: Path) -> None:
    assert_type(draft(context(item={"id": "ch01"}), "ch01"), str)
    assert_type(parts({"ch01": 1}), list[str])
    context().once("draft", ask, 3)  # type: ignore[arg-type]
    result = pipe.run({"topic": "kelp"}, dir=directory, concurrency=2)
    assert_type(result.needs_review, list[str])
    with EventLog(directory / "events.jsonl") as log:
        assert_type(log.append({"event": "drafted"}), int)
        assert_type(next(iter(log)), dict[str, Any])
    manager = CheckpointManager("night", directory, migrations={0: lambda state: {**state, "seen": []}})
    assert_type(manager.load(), dict[str, Any] | None)
    project = Project.open(directory)
    resumed = project.resume("first", redo=["draft"], answer=lambda question: question.choices[0])
    assert_type(resumed.document.exit_code, int)
    assert_type(project.plan(pipe).tasks[0].expected_cost_usd, float | None)
    assert_type(project.note("seen").continue_with, str | None)
    project.run(pipe, concurency=2)  # type: ignore[call-arg]
