"""A book on disk, and Holdfast called as people call it: real processes in the project's folder.

What a scenario asserts is seen from the outside: exit status, files byte for byte, which bodies ran (they write it
down outside the project), and what the commands say.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tests.children import unsynced

from forking import HUNG, KILLED, Said, processes

PIPELINE = Path(__file__).with_name("book.py")
RUN_ID = "first-edition"
VIEWS = ("checkpoint.md", "RESUME.md")
STEPS = ("research", "draft", "r1", "r2", "r3", "score", "merge", "final")


def chapter(number: int) -> set[str]:
    """The tasks of one chapter."""
    return {f"{step}[ch{number:02}]" for step in STEPS}


ALL = {"outline", "style", "assemble"} | chapter(1) | chapter(2) | chapter(3)


class Book:
    """A project with the book's pipeline, and a folder outside it where bodies say that they ran."""

    def __init__(self, folder: Path, pipeline: Path = PIPELINE) -> None:
        self.root = folder / "my book"
        self.outside = folder / "outside"
        self._pipeline = pipeline
        self._seen = 0

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

    def __call__(self, *words: str, clock_s: float = 0, kill_at: int = 0) -> Said:
        """One command, whose clock is wrong by so much, or which is killed before that operation on the disk."""
        env = {"SCENARIO": str(self.outside)} | ({"CLOCK_OFFSET_S": str(clock_s)} if clock_s else {})
        said = processes().holdfast(self.root, *words, env=env, trouble=str(kill_at))
        assert "Traceback" not in said.err and said.code != HUNG, said.text
        return said

    def run(self, *words: str, clock_s: float = 0) -> Said:
        return self("run", "book.py", *words, clock_s=clock_s)

    def first_run(self, *words: str) -> Said:
        return self.run("--run-id", RUN_ID, *words)

    def resume(self, *words: str, clock_s: float = 0, kill_at: int = 0) -> Said:
        return self("resume", *words, clock_s=clock_s, kill_at=kill_at)

    def killed_in(self, task: str, *words: str) -> None:
        """Run `words`, and SIGKILL the process when the body of `task` hangs."""
        with subprocess.Popen(
            [sys.executable, "-m", "holdfast", *words],
            cwd=self.root,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
        ) as process:
            try:
                _read_until(process.stdout, f"hanging {task}")
            finally:
                process.kill()
        assert process.returncode == KILLED

    def _environment(self) -> dict[str, str]:
        plain = {name: value for name, value in unsynced().items() if not name.startswith("HOLDFAST_")}
        return {**plain, "SCENARIO": str(self.outside)}

    def status(self) -> Any:
        return self("status", "--json").json()

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

    def ran(self) -> Counter[str]:
        """The bodies that ran since this was last asked, and how often."""
        lines = (self.outside / "ran").read_text().splitlines()
        new, self._seen = lines[self._seen :], len(lines)
        return Counter(new)

    def partials(self) -> list[str]:
        """The half-finished texts that were handed to a body."""
        path = self.outside / "partials"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def artifacts(self) -> dict[str, bytes]:
        """Every file of the work tree but the pipeline, settings, views and what was set aside."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            ours = name.startswith((".holdfast", "__pycache__")) or name in (*VIEWS, "book.py", "holdfast.toml")
            if path.is_file() and not ours and ".bak." not in name:
                found[name] = path.read_bytes()
        return found

    def bodies(self) -> dict[str, str]:
        """The same without the seals, which also say what was spent and in which round."""
        return {name: body_of(content) for name, content in self.artifacts().items()}

    def backups(self, name: str) -> list[bytes]:
        """What lies set aside beside `name`, oldest name first."""
        return [path.read_bytes() for path in sorted((self.root / name).parent.glob(f"{Path(name).name}*.bak.*"))]

    def quarantined(self) -> list[bytes]:
        folders = (self.root / ".holdfast" / "runs").glob("*/quarantine")
        return [path.read_bytes() for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]

    def path(self, name: str) -> Path:
        return self.root / name

    def lose(self, *names: str) -> None:
        """rm -rf."""
        for name in names:
            path = self.root / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def lose_objects(self) -> None:
        self.lose(".holdfast/objects")


def body_of(sealed: bytes) -> str:
    """The text above the seal."""
    text, _, last = sealed.decode().rstrip("\n").rpartition("\n")
    assert last.startswith("<!-- ") and "holdfast=1" in last, last
    return text + "\n"


def _read_until(stream: IO[str] | None, text: str) -> None:
    """Wait for a line with `text` in it; the end of the stream is a failure, not a wait."""
    assert stream is not None
    seen = []
    while text not in (line := stream.readline()):
        seen.append(line)
        assert line, f"no {text!r} in {seen}"
