"""The first nudge of a run meets a committer that another thread is leading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Pipeline
from holdfast.engine.runner import Runner


def test_a_run_does_not_end_while_something_waits_to_be_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was submitted while another thread led is considered before the run is called finished."""
    commit, left = Runner._commit, ["the first entry"]

    def leave_the_first_to_others(runner: Runner, entry: Any) -> None:
        if left:
            left.clear()
            runner.committer.submit(entry)  # as `pump` does when it finds another leader
        else:
            commit(runner, entry)

    monkeypatch.setattr(Runner, "_commit", leave_the_first_to_others)
    pipe = Pipeline("p")

    @pipe.step
    def a() -> int:
        return 1

    assert pipe.run(dir=tmp_path).status == "completed"
