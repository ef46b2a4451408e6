"""A project in which a person has a say, to be cut off: what ran, what was paid and what was told is noted."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness import Harness, RunResult
from holdfast import Context, Pipeline
from sampling import SEED, sampled

from .medium import HOWS, KILLED, Medium

RUN_ID = "people"
WORDS = b"A person's own words"
LONG = WORDS.decode() + ", and then came a night that was dark and stormy. " * 4  # without a last newline
VIEWS = ("RESUME.md", "checkpoint.md")


class Project(Harness):
    """One project; `said` is what its steps and the engine told."""

    def __init__(self, folder: Path, *, copy: bool = True) -> None:
        super().__init__(folder)
        self.copy = copy
        self.said: list[str] = []
        self.medium: Medium | None = None

    def say(self, words: str) -> None:
        self.said.append(words)
        if self.medium is not None:
            self.medium.tell(words)

    def run(self, pipe: Pipeline, **options: Any) -> RunResult:
        return super().run(pipe, **{"run_id": RUN_ID, "concurrency": 2, "on_event": self._heard, **options})

    def _heard(self, one: Any) -> None:
        if getattr(one.event, "status", "") == "completed" and hasattr(one.event, "step_id"):
            self.say(f"ack {one.event.step_id}@{one.event.round}")

    def call(self, ctx: Context, answer: str) -> str:
        """A paid call, noted before it is made and after it is kept."""
        name = f"{ctx.task_id}@{ctx.round}"
        self.say(f"run {name}")
        text: str = ctx.once("model", lambda: (self.say(f"pay {name}"), answer)[1])
        self.say(f"kept {name}")
        return text

    def scribble(self, name: str) -> None:
        """A person writes into it."""
        path = self.root / name
        path.write_bytes(WORDS + b"\n" + path.read_bytes())

    def asked(self, run_id: str = RUN_ID) -> set[str]:
        tasks = self.picture(run_id).state.tasks
        return {task for task, record in tasks.items() if record.question}

    def bodies(self) -> dict[str, list[bytes]]:
        """The artifacts, without the seals in them, which also say what the attempts have cost."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            is_ours = name in VIEWS or name.startswith(".holdfast") or ".bak." in name or name.endswith(".seal")
            if path.is_file() and not is_ours:
                lines = path.read_bytes().splitlines()
                found[name] = lines[:-1] if name.endswith(".md") else lines
        return found

    def check(self, before: Sequence[str], story: str, run_id: str = RUN_ID) -> None:
        """Nothing told runs again, nothing kept is paid again, and nothing is amiss."""
        for promise, breach in (("ack ", "run "), ("kept ", "pay ")):
            kept = {line.removeprefix(promise) for line in before if line.startswith(promise)}
            again = {line for line in self.said if line.startswith(breach) and line.removeprefix(breach) in kept}
            assert not again, f"{story}: {again}"
        assert not self.verify(run_id).findings, story

    def has(self, words: bytes) -> bool:
        return any(words in path.read_bytes() for path in self.root.rglob("*") if path.is_file())


def chapters(project: Project) -> Pipeline:
    """Two chapters with two files each, a gate, and a book."""
    pipe = Pipeline("people")
    pipe.items("chapter", ["c1", "c2"])

    @pipe.step(writes="outline.md", copy=project.copy)
    def outline(ctx: Context) -> str:
        return project.call(ctx, "the outline\n")

    writes = {"text": "drafts/{chapter}.md", "notes": "drafts/{chapter}.txt"}

    @pipe.step(each="chapter", writes=writes, copy=project.copy)
    def draft(ctx: Context, chapter: str, outline: str) -> dict[str, Any]:
        text = project.call(ctx, f"{chapter} of {outline}{ctx.feedback}\n")
        return {"text": text, "notes": f"notes on {text}", "size": len(text)}

    pipe.gate("look", after=["draft"])

    @pipe.step(writes="book.md", copy=project.copy, after=["look"])
    def book(ctx: Context, draft: dict[str, Any]) -> str:
        return project.call(ctx, "".join(f"{one['text']}{one['size']}\n" for one in draft.values()))

    return pipe


def story(project: Project, *, on_partial: str) -> Pipeline:
    """A text that is streamed, and may be there half finished."""
    pipe = Pipeline("people")

    @pipe.step(writes="story.md", on_partial=on_partial, copy=project.copy)
    def story(ctx: Context) -> None:
        ctx.write("And so it ended.\n" if ctx.partial else "Something else.\n")

    @pipe.step(writes="book.md", copy=project.copy)
    def book(story: str) -> str:
        return story.upper()

    return pipe


def cuts(
    before: Project, act: Callable[[Project], None], folder: Path, sample: int
) -> Iterator[tuple[Project, list[str], str]]:
    """What `act` may leave of a project if it is cut off: the project, what had been told, and where."""
    whole = again_in(before, folder / "whole")
    whole.medium = medium = Medium(whole.root)
    with medium.recording():
        act(whole)
    for how in (KILLED, *HOWS):
        for place in sampled(range(1, len(medium.ops) + 1), sample, f"{folder.name} {how}"):
            left = Project(folder / f"{how}{place}", copy=before.copy)
            medium.cut(place, left.root, random.Random(f"{SEED} {place} {how}"), how)
            yield left, medium.told(place), f"{how}, cut after operation {place}; HOLDFAST_CRASH_SEED={SEED}"


def again_in(project: Project, folder: Path) -> Project:
    shutil.copytree(project.root, folder)
    return Project(folder, copy=project.copy)
