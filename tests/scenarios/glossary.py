"""A book with a memory: a glossary to which each chapter adds its terms. Copied into the project of a scenario.

SCENARIO and its `ran` and `wishes.json` are as in book.py.
"""

import json
import os
from pathlib import Path
from typing import Any

from holdfast import Context, Pipeline

OUTSIDE = Path(os.environ["SCENARIO"])
WISHES: dict[str, Any] = json.loads((OUTSIDE / "wishes.json").read_text())


def work(ctx: Context, text: str) -> str:
    with (OUTSIDE / "ran").open("a", encoding="utf-8") as record:
        record.write(ctx.task_id + "\n")
    wish = WISHES.get(ctx.task_id)
    if wish == "fail":
        raise RuntimeError(f"no luck with {ctx.task_id}")
    ctx.usage(cost_usd=0.01)
    return wish["text"] if isinstance(wish, dict) else text


pipe = Pipeline("glossed")
pipe.items("chapter", ["ch01", "ch02", {"id": "ch03", "after": ["ch01", "ch02"]}])


@pipe.step(phase="Planning", writes="meta/first-terms.md")
def first_terms(ctx: Context) -> str:
    return work(ctx, "# Glossary\n\nkelp: a brown seaweed\n")


@pipe.step(each="chapter", phase="Writing", writes="drafts/{chapter}.md")
def draft(ctx: Context, chapter: str, glossary: dict[str, str]) -> str:
    return work(ctx, f"The draft of {chapter} knows the terms of {', '.join(glossary) or 'nobody'}.\n")


@pipe.step(each="chapter", phase="Writing", writes="final/{chapter}.md")
def final(ctx: Context, draft: str) -> str:
    return work(ctx, draft.replace("draft", "final text"))


@pipe.step(
    each="chapter", phase="Writing", appends="meta/glossary.md", sources=["final", "draft"], head="first_terms"
)
def glossary(ctx: Context, chapter: str, source: str) -> str:
    return work(ctx, f"## Terms of {chapter}\n\nfrom {source}")


@pipe.step(phase="Binding", writes="book.md")
def assemble(ctx: Context, final: dict[str, str], glossary: dict[str, str]) -> str:
    return work(ctx, "".join(final.values()) + "\n" + "\n".join(glossary.values()))
