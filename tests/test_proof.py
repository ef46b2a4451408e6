"""`make proof` goes on where it was interrupted, and takes nothing for proved that was not tried as it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from proof import Record, Unit, prove, tell, units

COUNT = Unit("part", "count", ("sh", "-c", "echo >> ../count"))
FAIL = Unit("part", "fail", ("sh", "-c", "echo >> ../count; exit 1"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one commit and no changes."""
    root = tmp_path / "root"
    root.mkdir()
    (root / ".gitignore").write_text(".proof/\n")
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=root, check=True)
    commit(root)
    return root


def commit(root: Path) -> None:
    name = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    subprocess.run(["git", *name, "commit", "-q", "--allow-empty", "-m", "m"], cwd=root, check=True)


def runs(root: Path) -> int:
    counted = root.parent / "count"
    return len(counted.read_text()) if counted.exists() else 0


def test_what_has_passed_is_not_run_again(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What failed is; and what is left is told."""
    assert prove([COUNT, FAIL], Record(root)) == 1
    assert prove([COUNT, FAIL], Record(root)) == 1
    assert runs(root) == 3
    tell([COUNT, FAIL], Record(root))
    assert capsys.readouterr().out.splitlines()[-1] == "part       1 of 2 passed   left: fail"


def test_another_commit_is_proved_anew(root: Path) -> None:
    """What passed before was another program."""
    prove([COUNT], Record(root))
    commit(root)
    prove([COUNT], Record(root))
    assert runs(root) == 2


def test_what_is_not_committed_is_never_proved(root: Path) -> None:
    """Neither what was changed before nor what is changed meanwhile has a name by which it is known again."""
    change = Unit("part", "change", ("touch", "new"))
    assert prove([change], Record(root)) == 0
    assert not Record(root).commit and not (root / ".proof").exists()
    prove([COUNT], Record(root))
    prove([COUNT], Record(root))
    assert runs(root) == 2


def test_every_part_has_units_with_names_of_their_own() -> None:
    """Two of one name would be one to the record."""
    names = [(unit.part, unit.name) for unit in units()]
    assert len(names) == len(set(names))
    assert {part for part, _ in names} == {"test", "more", "crash", "machine", "soak", "bench"}
