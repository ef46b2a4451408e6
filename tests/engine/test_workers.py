"""Workers: who takes which job."""

from __future__ import annotations

import threading
from pathlib import Path

from holdfast import Context, EventLog, Pipeline
from holdfast.layout import ProjectLayout


def test_a_body_that_commits_does_not_hold_other_tasks_up(tmp_path: Path) -> None:
    """A step that makes a batch durable from inside its body leaves what became ready to other threads."""
    pipe = Pipeline("p")
    went_on = threading.Event()

    @pipe.step
    def first() -> int:
        return 1

    pipe.gate("ok", after=["first"], blocking=False)

    @pipe.step(after=["first"])
    def long(ctx: Context) -> bool:
        layout = ProjectLayout(tmp_path)
        with EventLog(layout.run(ctx.run_id).journal, lock_path=layout.append_lock) as log:
            log.append({"event": "gate_approved", "step_id": "ok"})
        ctx.once("paid", lambda: 1)  # this thread commits, and so hears of the approval
        return went_on.wait(20)

    @pipe.step(after=["ok"])
    def behind() -> int:
        went_on.set()
        return 2

    result = pipe.run(dir=tmp_path, concurrency=3)
    assert result.status == "completed"
    assert result.outputs["long"] is True
