"""Every operation of a recovery fails, once or from then on: a clear stop, and the next one ends it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import in_thread
from holdfast.stores import disk
from sampling import sampled

from . import victim
from .harness import Trial
from .test_errno import CODES, assert_clear, failing_from
from .test_kill_recovery import check, finished, lost, rescue

__all__ = ["finished"]

SAMPLE = 3


@pytest.fixture(autouse=True)
def _clean_disk(unsynced: None) -> Iterator[None]:
    yield
    disk.hook = None


def damaged(finished: Trial, folder: Path) -> Trial:
    """A copy of the finished project with a torn and a missing artifact, and no snapshot of use."""
    shutil.copytree(finished.folder, folder)
    trial = Trial(folder)
    first, second, *_ = sorted(path for path in trial.artifacts() if path.endswith(".md"))
    data = (trial.project / first).read_bytes()
    (trial.project / first).write_bytes(data[: len(data) // 2])
    (trial.project / second).unlink()
    for snapshot in (trial.project / ".holdfast" / "runs" / victim.RUN_ID).glob("checkpoint_*.json"):
        snapshot.write_bytes(b"{}")
    trial.log.write_text("")
    return trial


def tried(call: Callable[[], Any], number: int, code: int, lasting: bool) -> Any:
    if lasting:
        disk.hook = failing_from(number, code)
        outcome = in_thread(call)
        disk.hook = None
        return outcome
    with disk.failing_at(number, code):
        return in_thread(call)


def points(calm: Callable[[], Any], salt: str) -> list[int]:
    """Operations of `calm` to fail: a sample, or all of them."""
    with disk.failing_at(0, 0) as seen:
        calm()
    print(f"{len(seen)} operations")
    return sampled(range(1, len(seen) + 1), SAMPLE, salt)


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for-good"])
@pytest.mark.parametrize("state", ["lost", "damaged"])
def test_a_disk_that_fails_a_recovery_loses_nothing(
    tmp_path: Path, finished: Trial, name: str, lasting: bool, state: str
) -> None:
    """It raises StorageError, or ends; afterwards it is done again to its end, for nothing."""
    spoil = lost if state == "lost" else damaged
    calm = spoil(finished, tmp_path / "calm")
    for number in points(lambda: rescue(calm), f"{name} {lasting} {state}"):
        trial = spoil(finished, tmp_path / str(number))
        outcome = tried(lambda trial=trial: rescue(trial), number, CODES[name], lasting)  # type: ignore[misc]
        if isinstance(outcome, BaseException):
            assert_clear(outcome, CODES[name])
        check(trial, finished, f"{name} at {number} of a recovery, lasting={lasting}, {state}")


@pytest.mark.parametrize("name", CODES)
def test_a_disk_that_fails_a_run_over_damage_loses_nothing(tmp_path: Path, finished: Trial, name: str) -> None:
    """The same where `run` puts the damage right before it goes on."""
    calm = damaged(finished, tmp_path / "calm")
    for number in points(calm.resume, f"{name} run"):
        trial = damaged(finished, tmp_path / str(number))
        outcome = tried(trial.resume, number, CODES[name], lasting=False)
        if isinstance(outcome, BaseException):
            assert_clear(outcome, CODES[name])
        check(trial, finished, f"{name} at {number} of a run over damage")
