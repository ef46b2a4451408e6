"""The power goes while finished files are moved or migrated: each arrives, and nothing is paid for again.

The files and the record lay safe on the medium before. Which of the places are tried is said in sampling.py.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine.test_traded_paths import TRADES, Traded
from tests.engine.test_versions import Planned, add_words

from harness import Harness, RunResult
from holdfast import Pipeline
from sampling import SEED, sampled

from .medium import HOWS, Medium

SAMPLE = 1
FORMS: list[Any] = ["plan.json", {"text": "plan.md", "data": "large.bin"}, {"text": "plan.csv", "topic": "t.txt"}]


def recorded(root: Path, run: Callable[[], RunResult]) -> Medium:
    """What a run does to a project, on a medium that can be cut afterwards."""
    medium = Medium(root)
    with medium.recording():
        assert run().status == "completed"
    return medium


def cuts(medium: Medium, salt: str) -> Iterator[tuple[str, int]]:
    """How much is left, and after which operation the power goes."""
    for how in HOWS:
        for place in sampled(range(1, len(medium.ops) + 1), SAMPLE, f"{salt} {how}"):
            yield how, place


@pytest.mark.parametrize("copy", [True, False], ids=["copied", "uncopied"])
@pytest.mark.parametrize("trade", TRADES)
@pytest.mark.usefixtures("unsynced")
def test_a_trade_that_loses_power_costs_nothing(tmp_path: Path, trade: str, copy: bool) -> None:
    """Whatever is left of it, the next run has each file at its new path, whole, without running a step again."""
    before = Traded(tmp_path / "before", trade, copy=copy)
    traded = before.again_in(tmp_path / "traded")
    medium = recorded(traded.root / "project", lambda: traded.run(traded.after))
    for how, place in cuts(medium, trade):
        after = before.again_in(tmp_path / "after")
        shutil.rmtree(after.root / "project")
        medium.cut(place, after.root / "project", random.Random(f"{SEED} {place} {how}"), how)
        _arrives(after, f"{how}, cut after operation {place}")


def _arrives(project: Traded, words: str) -> None:
    result = project.run(project.after)
    ran = [name for name in (project.root / "bill").read_text().split() if name not in project.new]
    assert (result.status, len(ran)) == ("completed", project.paid), words
    for name, path in project.after.items():
        assert (project.root / "project" / path).read_text().startswith(f"what {name} wrote"), words
    assert Harness(project.root / "project").verify(result.run_id).findings == [], words


@pytest.mark.parametrize("copy", [True, False], ids=["copied", "uncopied"])
@pytest.mark.parametrize("writes", FORMS, ids=["json", "large file", "two files"])
@pytest.mark.usefixtures("unsynced")
def test_a_migration_that_loses_power_costs_nothing(tmp_path: Path, writes: Any, copy: bool) -> None:
    """Whatever is left of it, the next run asks nobody, runs nothing again, and hands on the new form."""
    first = Planned(tmp_path / "first", writes, copy=copy)
    first.root.mkdir()
    first.run()
    medium = recorded(first.root, lambda: first.run(2, add_words))
    for how, place in cuts(medium, str(writes)):
        after = Planned(tmp_path / f"{how}{place}", writes, copy=copy)
        medium.cut(place, after.root, random.Random(f"{SEED} {place} {how}"), how)
        result = after.run(2, add_words, with_two=True)
        assert (result.status, after.made) == ("completed", ["two"]), (how, place)
        assert after.received["urls"] == [], (how, place)
        assert Harness(after.root).verify(result.run_id).findings == [], (how, place)


def _glossary(path: str, *, is_headed: bool) -> Pipeline:
    pipe = Pipeline("p")
    pipe.items("part", ["a", "b"])
    pipe.step(name="opening")(lambda: "# Terms")
    head = {"head": "opening"} if is_headed else {}
    pipe.step(name="terms", each="part", appends=path, **head)(lambda part: f"terms of {part}")
    return pipe


@pytest.mark.parametrize("is_headed", [True, False], ids=["with a head", "without a head"])
@pytest.mark.usefixtures("unsynced")
def test_a_memory_file_that_is_moved_when_the_power_goes_arrives_whole(tmp_path: Path, is_headed: bool) -> None:
    """What a person wrote into it is nowhere else: the next run has it in the new place, once."""
    first, new = tmp_path / "first", _glossary("new/terms.md", is_headed=is_headed)
    first.mkdir()
    _glossary("terms.md", is_headed=is_headed).run(dir=first)
    with (first / "terms.md").open("a") as text:
        text.write("A note by hand\n")
    before = (first / "terms.md").read_bytes()
    medium = recorded(first, lambda: new.run(dir=first))
    for how, place in cuts(medium, f"glossary {is_headed}"):
        after = tmp_path / f"{how}{place}"
        medium.cut(place, after, random.Random(f"{SEED} {place} {how}"), how)
        assert new.run(dir=after).status == "completed", (how, place)
        assert (after / "new" / "terms.md").read_bytes() == before, (how, place)
        assert not (after / "terms.md").exists(), (how, place)
