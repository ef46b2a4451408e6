"""A power cut takes what was not synced, in any legal combination: what had been told must still be true.

Which of the places are tried is said in sampling.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Harness
from holdfast import Context, Pipeline
from holdfast.stores.objects import PACKED_MAX
from sampling import ALL, SEED, dice, sampled

from . import victim
from .harness import Trial, texts, uninterrupted
from .medium import HOWS, Medium
from .people_victim import Project

SAMPLE = 4


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return uninterrupted(tmp_path_factory.mktemp("calm"))


def _recorded(trial: Trial, monkeypatch: pytest.MonkeyPatch, *, copy: bool) -> Medium:
    """A run to its end on a medium that can be cut afterwards; what it tells is noted in place."""
    medium = Medium(trial.project)
    write = victim.logger

    def logger(log: Path) -> Callable[[str], None]:
        say = write(log)

        def say_both(line: str) -> None:
            medium.tell(line)
            say(line)

        return say_both

    with monkeypatch.context() as patch, medium.recording():
        patch.setattr(victim, "logger", logger)
        assert trial.resume(copy=copy).status == "completed"
    return medium


def _cut(medium: Medium, place: int, folder: Path, how: str) -> Trial:
    after = Trial(folder)
    folder.mkdir()
    medium.cut(place, after.project, random.Random(f"{SEED} {place} {how}"), how)
    after.log.touch()
    return after


def _check_what_was_told(told: list[str], after: Trial, place: int) -> None:
    """What was reported done does not run again; what was kept is not paid again."""
    since = after.lines()
    for promise, breach in (("ack ", "run "), ("kept ", "pay ")):
        kept = {line.removeprefix(promise) for line in told if line.startswith(promise)}
        again = {line.removeprefix(breach) for line in since if line.startswith(breach)} & kept
        assert not again, f"cut after operation {place}: {promise}was told of {again}, and then came {breach}"


@pytest.mark.parametrize("copy", [True, False], ids=["copied", "uncopied"])
@pytest.mark.parametrize("how", HOWS)
def test_what_was_told_is_true_after_a_power_cut(
    tmp_path: Path, expected: dict[str, bytes], how: str, copy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the power goes, nothing told is lost; the next run ends with the same bytes, and nothing amiss."""
    medium = _recorded(Trial(tmp_path / "first").begin(), monkeypatch, copy=copy)
    for place in sampled(range(1, len(medium.ops) + 1), SAMPLE, how):
        after = _cut(medium, place, tmp_path / f"cut{place}", how)
        result = after.resume(copy=copy)
        _check_what_was_told(medium.told(place), after, place)
        assert result.status == "completed", place
        assert texts(after.artifacts()) == texts(expected), place
        assert not Harness(after.project).verify(victim.RUN_ID).findings, place


@pytest.mark.parametrize("copy", [True, False], ids=["copied", "uncopied"])
@pytest.mark.parametrize("how", HOWS)
def test_a_second_power_cut_loses_no_more_than_the_first(
    tmp_path: Path, expected: dict[str, bytes], how: str, copy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The power goes again while the run continues from what the first cut left."""
    medium = _recorded(Trial(tmp_path / "first").begin(), monkeypatch, copy=copy)
    chance = dice(f"again {how}")
    for number in range(20 if ALL else 2):
        place = chance.randint(1, len(medium.ops))
        second = _recorded(_cut(medium, place, tmp_path / f"cut{number}", how), monkeypatch, copy=copy)
        later = chance.randint(0, len(second.ops))
        last = _cut(second, later, tmp_path / f"again{number}", how)
        assert last.resume(copy=copy).status == "completed"
        _check_what_was_told(medium.told(place) + second.told(later), last, place)
        assert texts(last.artifacts()) == texts(expected)


def _folders(project: Project) -> Pipeline:
    """Folders that come to be for a file with a copy, and for a stream; then a file without one is put there."""
    pipe = Pipeline("people")

    @pipe.step(writes="one/copied.md")
    def copied(ctx: Context) -> str:
        return project.call(ctx, "there is a copy of this\n")

    @pipe.step(writes="one/bare.md", copy=False)
    def bare(ctx: Context, copied: str) -> str:
        return project.call(ctx, "there is only this\n")

    @pipe.step(writes="two/deep/streamed.md", copy=False)
    def streamed(ctx: Context, bare: str) -> None:
        ctx.write(project.call(ctx, "line by line\n"))

    return pipe


@pytest.mark.parametrize("how", HOWS)
def test_a_file_without_a_copy_is_not_lost_with_its_folder(tmp_path: Path, how: str) -> None:
    """The folder was made for a file that nobody syncs: its name is durable all the same before anyone is told."""
    first = Project(tmp_path / "first")
    first.root.mkdir()
    first.medium = medium = Medium(first.root)
    with medium.recording():
        assert first.run(_folders(first)).status == "completed"
    for place in [number for number, op in enumerate(medium.ops, 1) if op.words.startswith("ack ")]:
        left = Project(tmp_path / f"cut{place}")
        medium.cut(place, left.root, random.Random(f"{SEED} {place} {how}"), how)
        assert left.run(_folders(left)).status == "completed", place
        left.check(medium.told(place), f"cut after operation {place}; HOLDFAST_CRASH_SEED={SEED}")


def _copied_in_both_ways(project: Project, text: str) -> Pipeline:
    pipe = Pipeline("people", overwrite=True)

    @pipe.step(writes={"small": "small.md", "large": "large.txt"})
    def make(ctx: Context) -> dict[str, str]:
        return {"small": project.call(ctx, text), "large": text * PACKED_MAX}

    return pipe


@pytest.mark.parametrize("how", HOWS)
def test_a_clean_that_loses_power_is_finished_by_the_next(tmp_path: Path, how: str) -> None:
    """Whatever of it the disk has kept, no copy is left behind of which nobody knows any more whose it is."""
    first = Project(tmp_path / "first")
    first.root.mkdir()
    for name in ("one", "two"):
        assert first.run(_copied_in_both_ways(first, name), run_id=name, force=True).status == "completed"
    medium = Medium(first.root)
    with medium.recording():
        first.project.clean(max_age_days=30, max_runs=1)
    for place in range(1, len(medium.ops) + 1):
        left = Project(tmp_path / f"cut{place}")
        medium.cut(place, left.root, random.Random(f"{SEED} {place} {how}"), how)
        left.project.clean(max_age_days=30, max_runs=1)
        objects = [path.name for path in left.objects.iterdir()]
        assert objects == ["two"], f"{place}; HOLDFAST_CRASH_SEED={SEED}: {objects}"
        assert not left.verify("two").findings, place
