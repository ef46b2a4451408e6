"""A small project whose state files are damaged, and real processes that continue it."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from forking import Said, processes
from holdfast import seals

RUN_ID = "book-run"
VIEWS = ("RESUME.md", "checkpoint.md")

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


@dataclass
class Project:
    """`folder/project` and, outside it, what ran."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "project"

    @property
    def state(self) -> Path:
        return self.root / ".holdfast"

    @property
    def run_dir(self) -> Path:
        return self.state / "runs" / RUN_ID

    @property
    def journal(self) -> Path:
        return self.run_dir / "events.jsonl"

    def snapshots(self) -> list[Path]:
        """Oldest first."""
        return sorted(self.run_dir.glob("checkpoint_*.json"))

    def begin(self) -> Project:
        self.root.mkdir(parents=True)
        (self.root / "book.py").write_text(BOOK)
        return self

    def copy(self, folder: Path) -> Project:
        shutil.copytree(self.root, folder / "project", symlinks=True)
        return Project(folder)

    def run(self, *words: str) -> Said:
        return self("run", "book.py", *words)

    def __call__(self, *words: str) -> Said:
        return processes().holdfast(self.root, *words, env={"COLUMNS": "200"})

    def ran(self) -> Counter[str]:
        """How often each body ran."""
        log = self.folder / "ran"
        return Counter(log.read_text().split()) if log.exists() else Counter()

    def bodies(self) -> dict[str, bytes]:
        """Every artifact without its seal, which says in which round it was made and what that cost."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            skip = name.startswith(".holdfast") or ".bak." in name or name in VIEWS or name == "book.py"
            if path.is_file() and not skip and not name.endswith(".seal"):
                data = path.read_bytes()
                found[name] = seals.take_apart(data).body if seals.is_inline(name) else data
        return found
