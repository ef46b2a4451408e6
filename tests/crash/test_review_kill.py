"""SIGKILL and power cuts around a draft that is sent back: no round is lost, none is repeated or paid twice.

Which of the points are tried is said in sampling.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Harness, RunResult
from sampling import SEED, sampled

from . import review_victim, victim
from .harness import KILLED, run_process
from .medium import HOWS, LOST, Fate, Medium, Op

POINTS = 330  # at least as many operations as a run has
KILLS, CUTS = 12, 4
IDLE = {"run_continued", "run_stopped", "snapshot_written"}
ROUNDS = len(review_victim.CHAPTERS) + 1  # one chapter is written, and its facts are read, twice
TOTAL_USD = ROUNDS * (review_victim.DRAFT_USD + review_victim.REVIEW_USD)


class Trial:
    """One project and the log of what ran."""

    def __init__(self, folder: Path) -> None:
        self.project, self.log = folder / "project", folder / "log"
        folder.mkdir(parents=True, exist_ok=True)
        self.log.touch()

    def process(self, kill_at: str = "0") -> int:
        self.project.mkdir(exist_ok=True)
        return run_process("crash.review_victim", self.project, self.log, kill_at)

    def resume(self) -> RunResult:
        return review_victim.run(self.project, self.log)

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def bodies(self) -> dict[str, list[str]]:
        """Every artifact without its seal, which also says what the attempts of its task have cost."""
        found = {}
        for path in sorted(self.project.rglob("*.md")):
            name = str(path.relative_to(self.project))
            is_view = name in ("RESUME.md", "checkpoint.md")
            if not name.startswith(".holdfast") and not is_view:
                found[name] = path.read_text().splitlines()[:-1]
        return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    trial = Trial(tmp_path_factory.mktemp("calm"))
    assert trial.process() == 0
    return trial.bodies()


def _broken(told: list[str], since: list[str]) -> set[str]:
    """What was told as done and ran again in the same round, or was kept and was paid for again."""
    broken = set()
    for promise, breach in (("ack ", "run "), ("kept ", "pay ")):
        kept = {line.removeprefix(promise) for line in told if line.startswith(promise)}
        broken |= {line for line in since if line.startswith(breach) and line.removeprefix(breach) in kept}
    return broken


def _check(trial: Trial, result: RunResult, expected: dict[str, list[str]], story: str) -> None:
    assert result.status == "completed", story
    assert trial.bodies() == expected, story
    assert abs(result.cost_usd - TOTAL_USD) < 1e-9, f"{story}: {result.cost_usd}"
    assert not Harness(trial.project).verify(review_victim.RUN_ID).findings, story


@pytest.mark.parametrize("torn", ["", ":torn"])
@pytest.mark.usefixtures("unsynced")
def test_a_kill_loses_and_repeats_no_round(tmp_path: Path, expected: dict[str, list[str]], torn: str) -> None:
    """Wherever the process dies, the draft is written twice, read twice, and paid for twice."""
    kills = 0
    for number in sampled(range(1, POINTS + 1), KILLS, f"review{torn}"):
        trial = Trial(tmp_path / f"{number}")
        kills += trial.process(f"{number}{torn}") == KILLED
        told = trial.lines()
        result = trial.resume()
        story = f"killed at {number}{torn}; HOLDFAST_CRASH_SEED={SEED}"
        assert not _broken(told, trial.lines()[len(told) :]), story
        _check(trial, result, expected, story)
    assert kills


def _left_for_later(trial: Trial) -> set[str]:
    """What one more run finds to do: nothing, after one that ended well."""
    there = Harness(trial.project)
    before = len(there.events())
    trial.resume()
    return {event["event"] for event in there.events()[before:]} - IDLE


def _recorded(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> Medium:
    """A run to its end on a medium that can be cut afterwards; what it tells is noted in place."""
    trial.project.mkdir()
    medium, write = Medium(trial.project), victim.logger

    def logger(log: Path) -> Callable[[str], None]:
        say = write(log)
        return lambda line: (medium.tell(line), say(line))[1]

    with monkeypatch.context() as patch, medium.recording():
        patch.setattr(victim, "logger", logger)
        assert trial.resume().status == "completed"
    return medium


@pytest.mark.parametrize("how", HOWS)
def test_a_power_cut_loses_and_repeats_no_round(
    tmp_path: Path, expected: dict[str, list[str]], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was told, of which round it may be, is still true; the next run ends with the same words and costs."""
    medium = _recorded(Trial(tmp_path / "first"), monkeypatch)
    for place in sampled(range(1, len(medium.ops) + 1), CUTS, f"review {how}"):
        after, dice = Trial(tmp_path / f"cut{place}"), random.Random(f"{SEED} {place} {how}")
        medium.cut(place, after.project, dice, how)
        result = after.resume()
        story = f"cut after operation {place}; HOLDFAST_CRASH_SEED={SEED}"
        assert not _broken(medium.told(place), after.lines()), story
        _check(after, result, expected, story)
        assert not _left_for_later(after), story


def test_a_new_round_is_in_its_place_before_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the draft that was sent back could be there again after a power cut, and look like somebody's edit."""
    medium = _recorded(Trial(tmp_path), monkeypatch)
    told = next(
        place for place, op in enumerate(medium.ops) if op.words == f"ack draft[{review_victim.SENT_BACK}]@1"
    )
    done = medium.ops[:told]
    renames = [op for op in done if _names(op, f"{review_victim.SENT_BACK}.md")]
    synced = Fate(random.Random(SEED), LOST).names_kept(done)
    assert len(renames) == 2 and renames[-1] in synced


def _names(op: Op, name: str) -> bool:
    return any(changed == name and number is not None for _, changed, number in op.names)
