"""A small project in a folder, and the command line called as a newcomer calls it.

Knows the command line and the files on disk, and nothing of what is inside. Each command is a process of its own,
forked from one that has loaded everything, so that it costs milliseconds: this file, run as a script, is that one.
"""

from __future__ import annotations

import json
import os
import pkgutil
import re
import runpy
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RUN_ID = "first"
FRAME = "<!-- holdfast section="  # opens a section of a memory file
PATIENCE_S = 30  # a hang is a failure, not a wait
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


@dataclass(frozen=True)
class Said:
    """What a command gave."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    def json(self) -> Any:
        return json.loads(self.out)


class Processes:
    """Starts a process for each command."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(),
        )

    def __call__(self, directory: Path, words: tuple[str, ...], *, until: str = "") -> Said:
        """Run a command to its end, or (`until`) kill it when it has printed that."""
        assert self._server.stdin is not None and self._server.stdout is not None
        err = self._folder / "err"
        job = {"dir": str(directory), "words": words, "err": str(err), "until": until}
        self._server.stdin.write(json.dumps(job) + "\n")
        self._server.stdin.flush()
        code, out = json.loads(self._server.stdout.readline())
        return Said(code, out, err.read_text("utf-8"))

    def close(self) -> None:
        self._server.communicate(timeout=PATIENCE_S)


class Project:
    """`folder/project` with its pipeline `m.py`, and `folder/outside` where bodies say that they ran."""

    def __init__(self, folder: Path, start: Processes) -> None:
        self.root = folder / "project"
        self.outside = folder / "outside"
        self._start = start
        self._seen = 0
        self.root.mkdir()
        self.outside.mkdir()
        (self.outside / "ran").touch()
        os.mkfifo(self.outside / "never")

    # --- commands ------------------------------------------------------------------------------------------

    def __call__(self, *words: str) -> Said:
        said = self._start(self.root, words)
        assert "Traceback" not in said.err, said.err
        return said

    def run(self, *words: str) -> Said:
        """The first run, or its continuation."""
        return self("run", "m.py", "--concurrency", "1", *words)

    def first_run(self, *words: str) -> Said:
        return self.run("--run-id", RUN_ID, *words)

    def killed_in(self, task: str, *words: str) -> None:
        """Start the first run, or `words`, and SIGKILL it when the body of `task` hangs."""
        wish = self.outside / f"hang-{task}"
        wish.touch()
        command = words or ("run", "m.py", "--concurrency", "1", "--run-id", RUN_ID)
        said = self._start(self.root, command, until=f"hanging {task}")
        assert said.code == -signal.SIGKILL, said
        wish.unlink()

    def status(self) -> Any:
        return self("status", "--json").json()

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

    def write(self, name: str, text: str) -> Project:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return self

    def edit(self, name: str, old: str, new: str) -> None:
        text = self.read(name)
        assert old in text, text
        self.write(name, text.replace(old, new))

    def read(self, name: str) -> str:
        return (self.root / name).read_text("utf-8")

    def exists(self, name: str) -> bool:
        return (self.root / name).exists()

    def lose(self, *names: str) -> None:
        """rm -rf."""
        for name in names:
            path = self.root / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def fails(self, task: str, *, again: bool = True) -> None:
        """Have the body of this task fail from now on, or no longer."""
        path = self.outside / f"fail-{task}"
        path.touch() if again else path.unlink()

    def ran(self) -> Counter[str]:
        """The bodies that ran since this was last asked, and how often."""
        lines = (self.outside / "ran").read_text().splitlines()
        new, self._seen = lines[self._seen :], len(lines)
        return Counter(new)

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


def _environment() -> dict[str, str]:
    """No settings from outside; a killed process loses nothing that it wrote, so nothing needs to be synced."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {**plain, "HOLDFAST_FSYNC": "off", "COLUMNS": "200"}


def _serve() -> None:
    """Fork a process for each job on stdin; answer with its exit status and what it printed."""
    import holdfast

    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not module.name.endswith("__main__"):
            __import__(module.name)
    for line in sys.stdin:
        job = json.loads(line)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _become(job, writer)
        os.close(writer)
        out = []
        with open(reader, encoding="utf-8") as said:
            for text in said:
                out.append(text)
                if job["until"] and job["until"] in text:
                    os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(json.dumps([code, "".join(out)]) + "\n")
        sys.stdout.flush()


def _become(job: dict[str, Any], stdout: int) -> None:
    """`python -m holdfast WORDS` in this process."""
    err = os.open(job["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for place, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), stdout, err)):
        os.dup2(descriptor, place)
    os.chdir(job["dir"])
    signal.alarm(PATIENCE_S)
    sys.argv = ["holdfast", *job["words"]]
    runpy.run_module("holdfast", run_name="__main__")


if __name__ == "__main__":
    _serve()
