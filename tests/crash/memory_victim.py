"""A pipeline with a memory file, to be killed; as a module it is one process of the engine."""

from __future__ import annotations

import sys
from pathlib import Path

from harness import RunResult
from holdfast import Context, Pipeline

from .victim import logger

FILE = "meta/terms.md"
CHAPTERS = ["ch01", "ch02", {"id": "ch03", "after": ["ch01"]}]


def make(log: Path) -> Pipeline:
    say = logger(log)
    pipe = Pipeline("memory")
    pipe.items("chapter", CHAPTERS)

    @pipe.step(writes="opening.md")
    def opening(ctx: Context) -> str:
        say(f"run {ctx.task_id}")
        return "# Terms\n"

    @pipe.step(each="chapter", writes="drafts/{chapter}.md")
    def draft(ctx: Context, chapter: str, terms: dict[str, str]) -> str:
        say(f"run {ctx.task_id}")
        return f"{chapter} after {', '.join(terms)}\n"

    @pipe.step(each="chapter", appends=FILE, sources=["draft"], head="opening")
    def terms(ctx: Context, source: str) -> str:
        say(f"run {ctx.task_id}")
        ctx.usage(cost_usd=0.5)
        return f"terms of {source}"

    @pipe.step(writes="index.md")
    def index(terms: dict[str, str]) -> str:
        return "".join(terms.values())

    return pipe


def run(project: Path, log: Path) -> RunResult:
    return make(log).run(dir=project, concurrency=2)


if __name__ == "__main__":
    raise SystemExit(run(Path(sys.argv[1]), Path(sys.argv[2])).exit_code)
