"""A book on disk, and Holdfast called as people call it: real processes in the project's folder.

What a scenario asserts is seen from the outside: exit status, files byte for byte, which bodies ran (they write it
down outside the project), and what the commands say.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forking import Said
from harness import Commands

PIPELINE = Path(__file__).with_name("book.py")
RUN_ID = "first-edition"
STEPS = ("research", "draft", "r1", "r2", "r3", "score", "merge", "final")


def chapter(number: int) -> set[str]:
    """The tasks of one chapter."""
    return {f"{step}[ch{number:02}]" for step in STEPS}


ALL = {"outline", "style", "assemble"} | chapter(1) | chapter(2) | chapter(3)


class Book(Commands):
    """A project with the book's pipeline, and a folder outside it where bodies say that they ran."""

    def __init__(self, folder: Path, pipeline: Path = PIPELINE) -> None:
        super().__init__(folder / "my book")
        self._pipeline = pipeline

    def begin(self, **wishes: Any) -> Book:
        self.root.mkdir(parents=True)
        self.outside.mkdir()
        shutil.copy(self._pipeline, self.root / "book.py")
        (self.outside / "ran").touch()
        os.mkfifo(self.outside / "never")
        return self.wish(wishes)

    def copied_to(self, folder: Path) -> Book:
        """The same project elsewhere, with nothing counted yet."""
        other = Book(folder, self._pipeline)
        shutil.copytree(self.root, other.root, symlinks=True)
        other.outside.mkdir()
        (other.outside / "ran").touch()
        os.mkfifo(other.outside / "never")
        return other.wish({})

    def wish(self, wishes: Mapping[str, Any]) -> Book:
        """What tasks do from now on instead of their ordinary work."""
        (self.outside / "wishes.json").write_text(json.dumps(wishes))
        return self

    # --- commands ------------------------------------------------------------------------------------------

    @property
    def env(self) -> dict[str, str]:
        return {"SCENARIO": str(self.outside)}

    def __call__(self, *words: str, clock_s: float = 0, kill_at: int | str = 0, **env: str) -> Said:
        """One command, whose clock is wrong by so much, or which is killed before that operation on the disk."""
        late = {"CLOCK_OFFSET_S": str(clock_s)} if clock_s else {}
        return super().__call__(*words, kill_at=kill_at, **env, **late)

    def run(self, *words: str, clock_s: float = 0) -> Said:
        return self("run", "book.py", *words, clock_s=clock_s)

    def first_run(self, *words: str) -> Said:
        return self.run("--run-id", RUN_ID, *words)

    def resume(self, *words: str, clock_s: float = 0, kill_at: int = 0) -> Said:
        return self("resume", *words, clock_s=clock_s, kill_at=kill_at)

    def verify(self) -> list[tuple[str, str]]:
        """What `verify` finds: (task, problem). Its exit status must fit."""
        said = self("verify", "--json")
        findings = said.json()["findings"]
        assert said.code == (4 if findings else 0), said.text
        return [(finding["task"], finding["problem"]) for finding in findings]

    def plan(self) -> dict[str, str]:
        """Task -> what would be done."""
        said = self("plan", "--json")
        assert said.code == 0, said.text
        return {task["id"]: task["action"] for task in said.json()["tasks"]}

    # --- what is there -------------------------------------------------------------------------------------

    def partials(self) -> list[str]:
        """The half-finished texts that were handed to a body."""
        path = self.outside / "partials"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def bodies(self) -> dict[str, str]:
        """The same without the seals, which also say what was spent and in which round."""
        return {name: body_of(content) for name, content in self.artifacts().items()}


def body_of(sealed: bytes) -> str:
    """The text above the seal."""
    text, _, last = sealed.decode().rstrip("\n").rpartition("\n")
    assert last.startswith("<!-- ") and "holdfast=1" in last, last
    return text + "\n"
