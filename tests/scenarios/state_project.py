"""A small project whose state files are damaged, and real processes that continue it.

Processes are forked from one that has imported everything, so that each costs milliseconds: this file, run as a
script, reads one job a line and answers with the exit status; what was printed lies in two files.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast import seals

RUN_ID = "book-run"
KILLED = -9
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
class Ended:
    """What a process left."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return self.out + self.err


class Processes:
    """Forks one process for each command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        from tests.children import unsynced  # not found by this file as a script

        env = unsynced(COLUMNS="200")
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def __call__(self, directory: Path, *words: str) -> Ended:
        assert self._server.stdin is not None and self._server.stdout is not None
        files = {name: str(self.folder / name) for name in ("out", "err")}
        job = {"dir": str(directory), "argv": list(words), **files}
        self._server.stdin.write(json.dumps(job) + "\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        return Ended(code, *(Path(files[name]).read_text("utf-8", "replace") for name in ("out", "err")))

    def close(self) -> None:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(30)
        self._server.stdout.close()


@contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    made = Processes(folder)
    try:
        yield made
    finally:
        made.close()


@dataclass
class Project:
    """`folder/project` and, outside it, what ran."""

    folder: Path
    start: Processes

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
        return Project(folder, self.start)

    def run(self, *words: str) -> Ended:
        return self("run", "book.py", *words)

    def __call__(self, *words: str) -> Ended:
        return self.start(self.root, *words)

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


def serve() -> None:
    """Fork a process for each job on stdin; answer with its exit status."""
    import holdfast.cli.resume
    import holdfast.cli.run
    import holdfast.cli.verify
    import holdfast.project.run
    import holdfast.project.verify
    import holdfast.runs.choosing
    import holdfast.views.todos  # noqa: F401
    from holdfast.cli.main import main

    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            for number, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.chdir(job["dir"])
            sys.argv = ["holdfast", *job["argv"]]
            signal.alarm(30)  # a hang is a failure, not a wait
            main()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{code}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
