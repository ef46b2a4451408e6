"""A small project whose state files are damaged, and real processes that continue it."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from forking import Said
from harness import Commands

RUN_ID = "book-run"

BOOK = """
import os
import signal
from pathlib import Path

from holdfast import Context, Pipeline

OUTSIDE = Path(__file__).resolve().parent.parent
pipe = Pipeline("book", params={"topic": (str, "kelp")})


def ran(ctx: Context) -> None:
    with (OUTSIDE / "ran").open("a") as log:
        log.write(ctx.task_id + "\\n")


@pipe.step(writes="outline.md")
def outline(ctx: Context, topic: str) -> str:
    ran(ctx)
    ctx.usage(cost_usd=0.5)
    return f"ch01 ch02\\n\\nall about {topic}\\n"


@pipe.items("chapter")
def chapters(outline: str) -> list:
    return outline.split()[:2]


@pipe.step(each="chapter", writes="drafts/{chapter}.md")
def draft(ctx: Context, chapter: str, outline: str) -> str:
    ran(ctx)
    return f"# {chapter}\\n\\n{outline}"


@pipe.step(each="chapter", writes="facts/{chapter}.json")
def facts(ctx: Context, chapter: str, draft: str) -> dict:
    ran(ctx)
    return {"chapter": chapter, "words": len(draft.split())}


@pipe.step(each="chapter")
def score(ctx: Context, facts: dict) -> dict:
    ran(ctx)
    return {"words": facts["words"], "padding": "x" * 3000}


@pipe.step(writes="book.md", retries=0)
def book(ctx: Context, draft: dict, score: dict) -> str:
    ran(ctx)
    if (OUTSIDE / "kill").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    if (OUTSIDE / "fail").exists():
        raise RuntimeError("not yet")
    return "\\n".join(draft.values()) + str([s["words"] for s in score.values()]) + "\\n"
"""


class Project(Commands):
    """`folder/project` and, outside it, what ran."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "project")

    @property
    def outside(self) -> Path:
        return self.root.parent

    @property
    def run_dir(self) -> Path:
        return self.runs / RUN_ID

    def journal(self, run_id: str | None = RUN_ID) -> Path:
        return super().journal(run_id)

    def snapshots(self, run_id: str | None = RUN_ID) -> list[Path]:
        return super().snapshots(run_id)

    def begin(self) -> Project:
        self.root.mkdir(parents=True)
        (self.root / "book.py").write_text(BOOK)
        return self

    def copy(self, folder: Path) -> Project:
        shutil.copytree(self.root, folder / "project", symlinks=True)
        return Project(folder)

    def run(self, *words: str) -> Said:
        return self("run", "book.py", *words)

    def ran(self) -> Counter[str]:
        """How often each body ran."""
        log = self.outside / "ran"
        return Counter(log.read_text().split()) if log.exists() else Counter()
