"""A small project in a folder, and the command line called as a newcomer calls it.

Knows the command line and the files on disk, and nothing of what is inside.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from forking import Said
from harness import Commands

RUN_ID = "first"
FRAME = "<!-- holdfast section="  # opens a section of a memory file
CAN_START = """
SELECT t.id FROM todos t WHERE t.status = 'pending' AND NOT EXISTS (
  SELECT 1 FROM todo_deps td JOIN todos dep ON td.depends_on = dep.id
  WHERE td.todo_id = t.id AND dep.status != 'done')
"""
"""Promised to list exactly the tasks that can start."""

HEAD = """
from pathlib import Path

from holdfast import Context, Pipeline, Rewind

OUTSIDE = Path(__file__).resolve().parent.parent / "outside"


def ran(task):
    with (OUTSIDE / "ran").open("a") as log:
        log.write(task + "\\n")
    if (OUTSIDE / f"hang-{task}").exists():
        print(f"hanging {task}", flush=True)
        (OUTSIDE / "never").open()  # a pipe that has no writer
    if (OUTSIDE / f"fail-{task}").exists():
        raise RuntimeError(f"no luck with {task}")


"""
"""Opens every pipeline: `ran(task)` counts a call outside the project, and hangs or fails if a file says so."""


class Project(Commands):
    """`folder/project` with its pipeline `m.py`, and `folder/outside` where bodies say that they ran."""

    pipeline_file = "m.py"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "project")
        self.root.mkdir()
        self.outside.mkdir()
        (self.outside / "ran").touch()
        os.mkfifo(self.outside / "never")

    # --- commands ------------------------------------------------------------------------------------------

    def run(self, *words: str) -> Said:
        """The first run, or its continuation."""
        return self("run", "m.py", "--concurrency", "1", *words)

    def first_run(self, *words: str) -> Said:
        return self.run("--run-id", RUN_ID, *words)

    def killed_in(self, task: str, *words: str) -> None:
        """Start the first run, or `words`, and SIGKILL it when the body of `task` hangs."""
        (self.outside / f"hang-{task}").touch()
        super().killed_in(task, *(words or ("run", "m.py", "--concurrency", "1", "--run-id", RUN_ID)))
        (self.outside / f"hang-{task}").unlink()

    def tasks(self) -> dict[str, str]:
        """Task -> its status."""
        return {task["id"]: task["status"] for task in self.status()["tasks"]}

    def plan(self, *words: str) -> dict[str, dict[str, Any]]:
        """Task -> what would be done about it, and why."""
        said = self("plan", "--json", *words)
        assert said.code == 0, said.text
        return {task["id"]: task for task in said.json()["tasks"]}

    # --- files ---------------------------------------------------------------------------------------------

    def pipeline(self, text: str, head: str = 'pipe = Pipeline("m")\n') -> Project:
        return self.write("m.py", HEAD + head + text)

    def exists(self, name: str) -> bool:
        return (self.root / name).exists()

    def fails(self, task: str, *, again: bool = True) -> None:
        """Have the body of this task fail from now on, or no longer."""
        path = self.outside / f"fail-{task}"
        path.touch() if again else path.unlink()

    def can_start(self) -> set[str]:
        """What the promised query on todos.db lists."""
        with closing(sqlite3.connect(self.root / ".holdfast/todos.db")) as connection:
            return {task for (task,) in connection.execute(CAN_START)}

    def line(self, name: str, words: str) -> str:
        """The first line of a file with these words in it; "" if there is none."""
        return next((line for line in self.read(name).splitlines() if words in line), "")

    def row(self, item: str) -> list[str]:
        """The cells of an item's, or of a single step's, row in checkpoint.md."""
        found = next(line for line in self.read("checkpoint.md").splitlines() if re.match(rf"\| {item} +\|", line))
        return [cell.strip() for cell in found.strip("|").split("|")][1:]


def seal_of(text: str) -> dict[str, str]:
    """The fields of the seal in a file's last line."""
    last = text.rstrip().rpartition("\n")[2]
    return dict(re.findall(r"(\w+)=(\S+)", last))
