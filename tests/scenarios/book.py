"""A small book, copied into the project of each scenario.

SCENARIO names a folder outside the project. In it, `ran` gets a line for each body that runs, so that somebody
else than Holdfast counts executions; `wishes.json` says what a task is to do instead of its ordinary work.
"""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from holdfast import Context, Pipeline

OUTSIDE = Path(os.environ["SCENARIO"])
WISHES: dict[str, Any] = json.loads((OUTSIDE / "wishes.json").read_text())
DRAFTING = {"on_partial": WISHES["on_partial"]} if "on_partial" in WISHES else {}


def tell(file: str, text: str) -> None:
    with (OUTSIDE / file).open("a", encoding="utf-8") as record:
        record.write(text + "\n")


def work(ctx: Context, text: str) -> str:
    """What every body does: say that it runs, do as the scenario wishes, cost a cent, give a text."""
    tell("ran", ctx.task_id)
    return finish(ctx, text)


def finish(ctx: Context, text: str) -> str:
    wish = WISHES.get(ctx.task_id)
    if wish == "die":
        die()
    if wish == "hang":
        hang(ctx)
    if wish == "fail":
        raise RuntimeError(f"no luck with {ctx.task_id}")
    ctx.usage(input_tokens=10, output_tokens=5, cost_usd=0.01)
    return wish["text"] if isinstance(wish, dict) and "text" in wish else text


def die() -> None:
    """Be killed, once there is a page for whoever finds the project: on a busy machine that takes a while."""
    until = time.monotonic() + 30
    while not (Path(__file__).parent / "RESUME.md").exists() and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def hang(ctx: Context) -> None:
    print("hanging", ctx.task_id, flush=True)
    (OUTSIDE / "never").open()  # a pipe that nobody writes to


pipe = Pipeline("book", params={"topic": (str, "kelp"), "length": (int, 3)})


@pipe.step(phase="Planning", writes="outline.md")
def outline(ctx: Context, topic: str, length: int) -> str:
    titles = "".join(f"- {topic} {number}\n" for number in range(1, length + 1))
    return work(ctx, f"# {topic}\n\n{titles}")


@pipe.step(phase="Planning")
def style(ctx: Context, topic: str) -> dict[str, str]:
    return {"voice": work(ctx, f"plain words about {topic}")}


@pipe.items("chapter")
def chapters(outline: str) -> list[dict[str, Any]]:
    titles = [line[2:] for line in outline.splitlines() if line.startswith("- ")]
    items: list[dict[str, Any]] = [{"id": f"ch{n:02}", "title": title} for n, title in enumerate(titles, 1)]
    items[-1]["after"] = ["ch01"] if len(items) > 1 else []
    return items


@pipe.step(each="chapter", phase="Writing", writes="research/{chapter}.md", retries=1, backoff=0.01)
def research(ctx: Context, chapter: str, outline: str) -> str:
    return work(ctx, f"Facts for {ctx.item['title']}.\n")


@pipe.step(each="chapter", phase="Writing", writes="drafts/{chapter}.md", marker="DRAFT_COMPLETE", **DRAFTING)
def draft(ctx: Context, chapter: str, research: str, style: dict[str, str]) -> None:
    """Streams its text; what is there already is not written again."""
    tell("ran", ctx.task_id)
    if ctx.partial is not None:
        tell("partials", json.dumps(ctx.partial))
    again = f" {' '.join(ctx.feedback)}" if ctx.feedback else ""
    text = f"# Draft of {chapter}\n\n" + f"{style['voice']} after {research.strip()}{again}\n" * 8
    wish = WISHES.get(ctx.task_id)
    ready = wish["stop_after"] if isinstance(wish, dict) and "stop_after" in wish else len(text)
    begun = len(ctx.partial or "")
    ctx.write(text[begun:ready])
    if ready < len(text):
        hang(ctx)
    finish(ctx, "")


def review(ctx: Context, draft: str) -> str:
    return work(ctx, f"{ctx.task_id} read {len(draft)} characters: {draft[:20]!r}\n")


@pipe.step(each="chapter", phase="Writing", writes="reviews/{chapter}-r1.md", marker="R1_REVIEW_COMPLETE")
def r1(ctx: Context, draft: str) -> str:
    return review(ctx, draft)


@pipe.step(each="chapter", phase="Writing", writes="reviews/{chapter}-r2.md", marker="R2_REVIEW_COMPLETE")
def r2(ctx: Context, draft: str) -> str:
    return review(ctx, draft)


@pipe.step(each="chapter", phase="Writing", writes="reviews/{chapter}-r3.md", marker="R3_REVIEW_COMPLETE")
def r3(ctx: Context, draft: str) -> str:
    return review(ctx, draft)


@pipe.step(each="chapter", phase="Writing")
def score(ctx: Context, draft: str) -> dict[str, int]:
    return {"length": len(draft), "given": len(work(ctx, ""))}


@pipe.step(each="chapter", phase="Writing", writes="merged/{chapter}.md")
def merge(ctx: Context, draft: str, r1: str, r2: str, r3: str, score: dict[str, int]) -> str:
    return work(ctx, f"{draft}\n- {r1}- {r2}- {r3}\nScore: {score['length']}\n")


@pipe.step(each="chapter", phase="Writing", writes="final/{chapter}.md")
def final(ctx: Context, merge: str) -> str:
    return work(ctx, merge.replace("# Draft of", "# Chapter"))


if WISHES.get("gate"):
    pipe.gate("publish_ok", after=["final"], ask="Read it once more")


@pipe.step(phase="Binding", writes="book.md")
def assemble(ctx: Context, topic: str, final: dict[str, str]) -> str:
    ctx.tag(chapters=len(final))
    return work(ctx, f"# A book about {topic}\n\n" + "\n".join(final.values()))
