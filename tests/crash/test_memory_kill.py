"""SIGKILL before operations that change the disk, where a memory file is written, healed or found again.

Which of the points are tried is said in sampling.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Harness, RunResult
from holdfast import seals
from holdfast.artifacts import memory
from sampling import ALL, sampled

from . import memory_victim
from .harness import KILLED, run_process

pytestmark = pytest.mark.usefixtures("unsynced")

FILE = memory_victim.FILE
NOTE = b"A note by hand\n"


class Trial:
    """One project and the log of what ran."""

    def __init__(self, folder: Path) -> None:
        self.project, self.log = folder / "project", folder / "log"
        self.project.mkdir(parents=True, exist_ok=True)
        self.log.touch()

    def process(self, kill_at: str) -> int:
        return run_process("crash.memory_victim", self.project, self.log, kill_at)

    def resume(self) -> RunResult:
        return memory_victim.run(self.project, self.log)

    def ran(self) -> list[str]:
        return self.log.read_text().splitlines()

    def data(self) -> bytes:
        return (self.project / FILE).read_bytes()

    def sections(self) -> dict[str, bytes]:
        return {block.task: block.body for block in memory.take_apart(self.data()).blocks}


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    trial = Trial(tmp_path_factory.mktemp("calm"))
    assert trial.process("0") == 0
    return trial


def points(sample: int, salt: str, last: int) -> list[str]:
    chosen = sampled(range(1, last), sample, salt)
    return [f"{number}{torn}" for number in chosen for torn in (("", ":torn") if ALL else ("",))]


def test_a_memory_that_is_killed_while_it_is_written_ends_the_same(tmp_path: Path, calm: Trial) -> None:
    """After a kill at any operation the next run gives the same sections, and no section is paid for twice."""
    kills = 0
    for point in points(10, "first", 140):
        trial = Trial(tmp_path / point)
        killed = trial.process(point) == KILLED
        done = set(_accepted(trial)) if killed else set()
        ran_before = len(trial.ran())
        result = trial.resume()
        assert result.status == "completed", point
        assert trial.sections() == calm.sections(), point
        assert trial.data().count(b"TERMS_COMPLETE") == 3, point
        again = {line[4:] for line in trial.ran()[ran_before:]} & done
        assert not again, (point, again)
        kills += killed
    assert kills


def _accepted(trial: Trial) -> list[str]:

    left = Harness(trial.project)
    ends = [end for run in left.runs.glob("*") for end in left.events("node_exit", run_id=run.name)]
    return [end["step_id"] for end in ends if end["status"] == "completed"]


def harm(path: Path) -> None:
    """Damage in one section, one section gone, and a note of a person between them."""
    data = path.read_bytes()
    block = memory.take_apart(data).find(("terms[ch03]",))
    assert block is not None
    data = data[: block.start] + NOTE + data[block.end :]
    at = data.index(b"terms of ch01")
    path.write_bytes(data[:at] + b"\0\0\0\0\0" + data[at + 5 :])


def lose_state(path: Path) -> None:
    shutil.rmtree(path.parent.parent / ".holdfast")


def lose_and_harm(path: Path) -> None:
    lose_state(path)
    harm(path)


@pytest.mark.parametrize("disaster", [harm, lose_state, lose_and_harm])
def test_recovery_of_a_memory_may_be_killed_any_number_of_times(
    tmp_path: Path, calm: Trial, disaster: Callable[[Path], None]
) -> None:
    """Killed while it heals or finds sections again, and killed again: the end is the same, the note is there."""
    for point in points(6, disaster.__name__, 60):
        trial = Trial(tmp_path / point)
        shutil.copytree(calm.project, trial.project, dirs_exist_ok=True)
        disaster(trial.project / FILE)
        trial.process(point)
        trial.process(point)
        assert trial.resume().status == "completed", point
        assert trial.sections() == calm.sections(), point
        assert (NOTE in trial.data()) == (disaster is not lose_state), point
        assert trial.data().count(b"terms of ch01") == 1, point
        whole = {"run terms[ch02]", "run draft[ch01]", "run draft[ch02]", "run draft[ch03]", "run opening"}
        assert not whole & set(trial.ran()), point
        _check_seals(trial)


def _check_seals(trial: Trial) -> None:
    for block in memory.take_apart(trial.data()).blocks:
        assert block.kind == memory.INTACT
        assert block.seal is not None
        assert seals.read_seal(seals.write_seal(block.seal)) == block.seal
