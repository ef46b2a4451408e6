"""SIGKILL before every operation that changes the disk: in the first run, its resume, and the resume of that.

And at random moments, again and again, until one process comes to its end.

Which of the points are tried is said in sampling.py.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sampling import ALL, SEED, dice, sampled

from .harness import KILLED, Trial, uninterrupted

pytestmark = pytest.mark.usefixtures("unsynced")

POINTS_MAX = 400  # more than a run has; the test says so if that is no longer true
SAMPLE = 15
KILLS_MAX = 12


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return uninterrupted(tmp_path_factory.mktemp("calm"))


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many operations a run has, by bisection with real kills."""
    folder = tmp_path_factory.mktemp("points")
    low, high = 1, POINTS_MAX
    assert Trial(folder / "top").begin().process(str(high)) == 0, "raise POINTS_MAX"
    while high - low > 1:
        middle = (low + high) // 2
        killed = Trial(folder / str(middle)).begin().process(str(middle)) == KILLED
        low, high = (middle, high) if killed else (low, middle)
    return low


@pytest.mark.parametrize("torn", ["", ":torn"])
def test_a_run_killed_at_any_operation_is_finished_by_the_next(
    tmp_path: Path, expected: dict[str, bytes], points: int, torn: str
) -> None:
    """After a kill at any operation, a resume gives the same bytes and costs, and redoes nothing that was done."""
    kills = 0
    for number in sampled(range(1, points + 5), SAMPLE, f"once{torn}"):
        trial = Trial(tmp_path / f"{number}").begin()
        kills += trial.process(f"{number}{torn}") == KILLED
        _check(trial, expected, f"killed at {number}{torn}")
    print(f"{kills} kills{torn}")
    assert kills


def test_a_resume_killed_at_any_operation_is_finished_by_the_next(
    tmp_path: Path, expected: dict[str, bytes], points: int
) -> None:
    """Recovery that is killed, and whose recovery is killed too, still ends in the same bytes and costs."""
    chance = dice("again")
    for trial_number in range(150 if ALL else 6):
        trial = Trial(tmp_path / f"{trial_number}").begin()
        kills = [chance.randrange(1, points), chance.randrange(1, 60), chance.randrange(1, 60)]
        how = [f"{number}{chance.choice(['', ':torn'])}" for number in kills]
        for point in how:
            trial.process(point)
        _check(trial, expected, f"killed at {how}")


def test_processes_killed_at_random_moments_come_to_the_end(tmp_path: Path, expected: dict[str, bytes]) -> None:
    """However often: the same bytes and costs, and nothing that was done runs, or is paid for, again."""
    chance = dice("moments")
    began = time.monotonic()
    assert Trial(tmp_path / "calm").begin().process() == 0
    calm_s = time.monotonic() - began
    kills = 0
    for trial_number in range(40 if ALL else 4):
        trial = Trial(tmp_path / f"{trial_number}").begin()
        moments = [chance.uniform(0.0, 0.9)] + [chance.uniform(0.0, 1.1) for _ in range(KILLS_MAX)]
        for moment in moments:
            if trial.process(moment_s=moment * calm_s) == 0:
                break
        kills += len(trial.promised)
        _check(trial, expected, f"killed {len(trial.promised)} times, after {moments} of {calm_s} s")
    print(f"{kills} kills")
    assert kills


def _check(trial: Trial, expected: dict[str, bytes], story: str) -> None:
    try:
        trial.check(trial.resume(), expected)
    except BaseException as error:
        error.add_note(f"{story}; HOLDFAST_CRASH_SEED={SEED}; {trial.folder}")
        raise


@pytest.mark.parametrize("beginning", [None, b"", b'{"seq":1,"ts":"20'])
def test_a_run_killed_before_its_first_line_can_begin_again(
    tmp_path: Path, expected: dict[str, bytes], beginning: bytes | None
) -> None:
    """A folder without a single whole line is no run yet: its id is free, and nobody has to clear it away."""
    trial = Trial(tmp_path).begin()
    trial.journal().parent.mkdir(parents=True)
    if beginning is not None:
        trial.journal().write_bytes(beginning)
    trial.check(trial.resume(), expected)
