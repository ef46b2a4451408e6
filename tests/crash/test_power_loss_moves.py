"""The power goes while finished files take each other's paths: each arrives, and nothing is paid for again.

The files and the record lay safe on the medium before. Samples and seeds are those of test_power_loss.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from tests.engine.test_traded_paths import TRADES, Traded

from holdfast.layout import ProjectLayout
from holdfast.stores import disk
from holdfast.verifying import verify

from .medium import HOWS, Medium
from .test_kill import ALL, SEED

SAMPLE = 2


def recorded(project: Traded, monkeypatch: pytest.MonkeyPatch) -> Medium:
    """The trade, done on a medium that can be cut afterwards."""
    medium = Medium(project.root / "project")
    with monkeypatch.context() as patch, medium.recording():
        patch.setattr(disk, "sync_enabled", True)
        assert project.run(project.after).status == "completed"
    return medium


@pytest.mark.parametrize("copy", [True, False], ids=["copied", "uncopied"])
@pytest.mark.parametrize("trade", TRADES)
def test_a_trade_that_loses_power_costs_nothing(
    tmp_path: Path, trade: str, copy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is left of it, the next run has each file at its new path, whole, without running a step again."""
    monkeypatch.setattr(disk, "sync_enabled", False)
    before = Traded(tmp_path / "before", trade, copy=copy)
    medium = recorded(before.again_in(tmp_path / "traded"), monkeypatch)
    places = range(1, len(medium.ops) + 1)
    print(f"HOLDFAST_CRASH_SEED={SEED}")
    for how in HOWS:
        for place in places if ALL else random.Random(f"{SEED} {trade} {how}").sample(places, SAMPLE):
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
    assert verify(ProjectLayout(project.root / "project"), result.run_id).findings == [], words
