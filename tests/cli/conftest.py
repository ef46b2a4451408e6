"""A small project on disk, and the command line called as a function."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.cli import main as cli

BOOK = """
from pathlib import Path

from holdfast import Context, Pipeline

HERE = Path(__file__).parent
pipe = Pipeline("book", params={"topic": (str, "kelp"), "n": (int, 2)})


@pipe.items("chapter")
def chapters(n: int) -> list:
    return [f"ch{i:02d}" for i in range(1, n + 1)]


@pipe.step(each="chapter")
def draft(ctx: Context, chapter: str, topic: str) -> str:
    ctx.usage(input_tokens=10, output_tokens=5, cost_usd=0.01)
    if (HERE / f"fail-{chapter}").exists():
        raise RuntimeError(f"no luck with {chapter}")
    return f"{chapter} about {topic}"


pipe.gate("publish_ok", after=["draft"], ask="Read it once more") if (HERE / "gated").exists() else None


@pipe.step(after=["publish_ok"] if (HERE / "gated").exists() else [])
def assemble(ctx: Context, draft: dict) -> str:
    ctx.tag(words=len(draft))
    return " / ".join(draft.values())
"""


@dataclass
class Said:
    """What a command gave."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Project:
    """A folder with a pipeline; call it with the words of a command line (--dir is added)."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._capsys = capsys
        (root / "book.py").write_text(BOOK, encoding="utf-8")

    def __call__(self, *words: str) -> Said:
        self._capsys.readouterr()
        dashes = words.index("--") if "--" in words else len(words)
        code = cli.run([*words[:dashes], "--dir", str(self.root), *words[dashes:]])
        captured = self._capsys.readouterr()
        return Said(code, captured.out, captured.err)

    @property
    def there(self) -> str:
        """What a command needs to mean this folder."""
        return f" --dir {shlex.quote(str(self.root))}"

    def run(self, *words: str) -> Said:
        return self("run", str(self.root / "book.py"), *words)

    def touch(self, name: str) -> Path:
        path = self.root / name
        path.touch()
        return path

    def run_ids(self) -> list[str]:
        return sorted(os.listdir(self.root / ".holdfast" / "runs"))

    def files(self) -> dict[str, tuple[int, int]]:
        """Every entry of the project with its size and time of change: what must not change."""
        found = {}
        for parent, folders, names in os.walk(self.root):
            for name in (*folders, *names):
                status = os.lstat(os.path.join(parent, name))
                found[os.path.join(parent, name)] = (status.st_size, status.st_mtime_ns)
        return found


@pytest.fixture
def project(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.delenv("HOLDFAST_DEBUG", raising=False)
    root = tmp_path / "my book"
    root.mkdir()
    return Project(root, capsys)
