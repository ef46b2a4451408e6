"""A run that an earlier version left is taken up, and that is killed, or the power goes: nothing is lost by it.

Earlier versions wrote seals without `sum` and `from`, snapshots without `fold`, and a todos.db without a stamp.
Which of the points are tried is said in sampling.py.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from harness import Harness
from holdfast import snapshots
from sampling import ALL, sampled

from . import victim
from .harness import KILLED, Trial, uninterrupted
from .medium import HOWS
from .test_kill import POINTS_MAX
from .test_power_loss_recovery import cuts, damage

pytestmark = pytest.mark.usefixtures("unsynced")

POINTS_TYPICAL = 80
SAMPLE = 6


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return bodies(uninterrupted(tmp_path_factory.mktemp("calm")))


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """A finished run as an earlier version would have left it; then two of its files were lost."""
    trial = Trial(tmp_path_factory.mktemp("old")).begin()
    assert trial.process() == 0
    trial.promised.append((len(trial.lines()), *trial.recorded()))
    assert age_seals(trial.project) and age_snapshots(trial.project) and age_todos(trial.project)
    damage(trial.project)
    return trial


def age_seals(project: Path) -> int:
    """Take what earlier versions did not write out of all seals; gives how many there were."""
    aged = 0
    for path in project.rglob("*.*"):
        if ".holdfast" in path.parts or not path.is_file():
            continue
        text, count = re.subn(
            rb"(<!-- .*holdfast=1 .*?)(?: from=[^ ]+)? sum=\w+ -->\n\Z", rb"\1 -->\n", path.read_bytes()
        )
        path.write_bytes(text)
        aged += count
    return aged


def age_snapshots(project: Path) -> int:
    run = Harness(project).folder(victim.RUN_ID)
    aged = 0
    for number, path in snapshots.snapshots(run):
        payload, count = re.subn(rb'"fold":\d+,', b"", snapshots.read_snapshot(path) or b"", count=1)
        snapshots.write_snapshot(run, number, payload)
        aged += count
    return aged


def age_todos(project: Path) -> bool:
    with closing(sqlite3.connect(Harness(project).todos_db)) as connection:
        connection.execute("DROP TABLE todo_view")
    return True


def bodies(artifacts: dict[str, bytes]) -> dict[str, bytes]:
    """The files without their seals."""
    return {
        name: data.split(b"<!-- ")[0].rstrip() for name, data in artifacts.items() if not name.endswith(".seal")
    }


def copy_of(old: Trial, folder: Path) -> Trial:
    shutil.copytree(old.folder, folder)
    return Trial(folder, list(old.promised))


def check(trial: Trial, expected: dict[str, bytes]) -> None:
    result = trial.resume()
    assert result.status == "completed"
    assert bodies(trial.artifacts()) == expected
    assert abs(result.cost_usd - victim.TOTAL_USD) < 1e-9
    trial.check_promises()


@pytest.mark.parametrize("torn", ["", ":torn"])
def test_taking_an_old_run_up_may_be_killed(
    tmp_path: Path, old: Trial, expected: dict[str, bytes], torn: str
) -> None:
    """At whichever operation: nothing finished runs again, and every file comes out right."""
    for point in sampled(range(1, POINTS_MAX if ALL else POINTS_TYPICAL), SAMPLE, f"old{torn}"):
        trial = copy_of(old, tmp_path / f"at{point}")
        code = trial.process(f"{point}{torn}")
        check(trial, expected)
        if code != KILLED:
            break


@pytest.mark.parametrize("how", HOWS)
def test_taking_an_old_run_up_may_lose_power(
    tmp_path: Path, old: Trial, expected: dict[str, bytes], how: str
) -> None:
    """Whatever is left on the medium."""
    for after in cuts(copy_of(old, tmp_path / "victim"), how, Trial):
        assert isinstance(after, Trial)
        check(after, expected)
