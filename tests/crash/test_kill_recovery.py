"""SIGKILL before any operation of a recovery after total loss, and of the recovery of that; then the run goes on.

Which of the points are tried is said in sampling.py.
"""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from harness import Harness
from holdfast.project.results import RecoverResult
from holdfast.state import IN_PROGRESS
from sampling import ALL, SEED, dice, sampled

from . import victim
from .harness import KILLED, Trial, run_process

pytestmark = pytest.mark.usefixtures("unsynced")

IN_FIRST_STEP = "24"  # an operation of a run at which its first step is under way
POINTS_MAX = 200  # more than a recovery has; the test says so if that is no longer true


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    trial = Trial(tmp_path_factory.mktemp("calm")).begin()
    assert trial.process() == 0
    return trial


def lost(finished: Trial, folder: Path) -> Trial:
    """A copy of the finished project of which only files and views are left."""
    shutil.copytree(finished.folder, folder)
    trial = Trial(folder)
    shutil.rmtree(trial.project / ".holdfast")
    trial.log.write_text("")
    return trial


def rescue_killed(trial: Trial, point: str) -> int:
    return run_process("crash.rescuer", trial.project, trial.log, point)


def rescue(trial: Trial) -> RecoverResult:
    return Harness(trial.project).recover(victim.make(trial.log))


def check(trial: Trial, finished: Trial, story: str) -> None:
    """Recovered to the end, a second recovery has nothing to do, and the run ends as if nothing had happened."""
    try:
        rescue(trial)
        again = rescue(trial)
        assert again.events == 0 and not any(task.action == "adopt" for task in again.tasks)
        result = trial.resume()
        assert (result.status, result.run_id) == ("completed", victim.RUN_ID)
        assert trial.artifacts() == finished.artifacts()
        assert abs(result.cost_usd - victim.TOTAL_USD) < 1e-9, result.cost_usd
        assert not [line for line in trial.lines() if line.startswith(("run ", "pay "))]
    except BaseException as error:
        error.add_note(f"{story}; HOLDFAST_CRASH_SEED={SEED}; {trial.folder}")
        raise


def points(finished: Trial, folder: Path) -> int:
    """How many operations a recovery has, by bisection with real kills."""
    low, high = 1, POINTS_MAX
    assert rescue_killed(lost(finished, folder / "top"), str(high)) == 0, "raise POINTS_MAX"
    while high - low > 1:
        middle = (low + high) // 2
        killed = rescue_killed(lost(finished, folder / str(middle)), str(middle)) == KILLED
        low, high = (middle, high) if killed else (low, middle)
    return low


def test_a_recovery_killed_at_any_operation_is_finished_by_the_next(tmp_path: Path, finished: Trial) -> None:
    """Once or twice killed, whole or torn: nothing that is sealed runs again, and nothing is paid for again."""
    last = points(finished, tmp_path)
    chance = dice("recovery")
    for number in sampled(range(1, last + 3), 8, "recovery"):
        first, second = f"{number}{chance.choice(['', ':torn'])}", str(chance.randrange(1, last))
        trial = lost(finished, tmp_path / f"kill-{number}")
        rescue_killed(trial, first)
        if chance.random() < 0.5:
            rescue_killed(trial, second)
        check(trial, finished, f"killed at {first}, then perhaps at {second}")


def test_a_run_that_finds_everything_lost_may_be_killed_too(tmp_path: Path, finished: Trial) -> None:
    """`run` recovers before it starts; killed there, the next `run` or `recover` ends in the same state."""
    chance = dice("run")
    for number in range(30 if ALL else 4):
        trial = lost(finished, tmp_path / f"run-{number}")
        point = str(chance.randrange(1, 60))
        trial.process(point)
        trial.promised.clear()
        check(trial, finished, f"run killed at {point}")


PENDING = "SELECT id FROM todos WHERE status = 'pending'"


def test_what_a_kill_cut_off_can_be_taken_from_todos_after_a_recovery(tmp_path: Path) -> None:
    """Nobody works on it any more: it is listed as what can start, though no event says that it was stopped."""
    trial = Trial(tmp_path).begin()
    assert trial.process(IN_FIRST_STEP) == KILLED
    rescue(trial)
    tasks = Harness(trial.project).picture(victim.RUN_ID).state.tasks
    cut_off = {task for task, record in tasks.items() if record.status == IN_PROGRESS}
    assert cut_off == {"outline"}, "the kill came at another moment: choose another operation"
    with sqlite3.connect(Harness(trial.project).todos_db) as database:
        listed = {row[0] for row in database.execute(PENDING)}
    database.close()
    assert cut_off <= listed
