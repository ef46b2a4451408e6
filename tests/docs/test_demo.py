"""`make demo` keeps its word at any moment of death, and leaves nothing behind."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .sessions import ROOT

FAST = "20"
CLAIMS = 10


def tell(tmp_path: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "demo/demo.py", "--speed", FAST, *options],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def checkout() -> str:
    """Everything in the checkout that git would show, also ignored files of the demo's folder."""
    command = ["git", "status", "--porcelain", "--untracked-files=all", "--ignored=no"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return "\n".join(line for line in shown.splitlines() if " demo/" in line or ".holdfast" in line)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(2, 10))])
def test_every_claim_of_the_demo_holds(seed: int, tmp_path: Path) -> None:
    """Killed at the moment that this seed names, the demo finds all its claims true and cleans up."""
    before = checkout()
    told = tell(tmp_path, "--seed", str(seed))
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.count("  holds  ") == CLAIMS
    assert list(tmp_path.iterdir()) == []
    assert checkout() == before


def test_keep_leaves_the_folder_to_look_at(tmp_path: Path) -> None:
    """With --keep the finished book is still there, where the demo said."""
    told = tell(tmp_path, "--seed", "4", "--keep")
    assert told.returncode == 0, told.stdout + told.stderr
    (folder,) = tmp_path.iterdir()
    assert str(folder) in told.stdout
    assert (folder / "book" / "book.md").exists()


def test_lines_fit_the_width(tmp_path: Path) -> None:
    """Nothing that the demo prints, but for the folder's name, is wider than 88 columns."""
    told = tell(tmp_path, "--seed", "5")
    wide = [line for line in told.stdout.splitlines() if len(line) > 88 and str(tmp_path) not in line]
    assert told.returncode == 0, told.stdout + told.stderr
    assert wide == []


def test_a_claim_that_does_not_hold_ends_the_demo(tmp_path: Path) -> None:
    """With a Holdfast that cannot even start, the demo says so and exits with 1."""
    broken = tmp_path / "broken" / "holdfast"
    broken.mkdir(parents=True)
    (broken / "__init__.py").touch()
    (broken / "__main__.py").write_text("raise SystemExit(6)\n")
    told = tell(tmp_path, PYTHONPATH=str(broken.parent))
    assert told.returncode == 1
    assert "DOES NOT HOLD  holdfast run ended by itself, with 6" in told.stdout


def test_the_generator_gives_the_same_reply_to_the_same_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in a reply is left to chance, so that two runs can be compared; and each call is billed."""
    monkeypatch.syspath_prepend(str(ROOT / "demo"))
    monkeypatch.setenv("HOLDFAST_DEMO_SPEED", "1000")
    monkeypatch.setenv("HOLDFAST_DEMO_CALLS", str(tmp_path / "bill"))
    from generator import generate  # type: ignore[import-not-found]

    first, again, other = (asyncio.run(generate("kelp", "storms", prompt)) for prompt in ("a", "a", "b"))
    assert first == again
    assert first["text"] != other["text"]
    assert first["usage"]["cost_usd"] > 0
    bill = (tmp_path / "bill").read_text().splitlines()
    assert len(bill) == 3
    assert len(set(bill)) == 2
