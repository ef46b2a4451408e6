"""Workers: who takes which job."""

from __future__ import annotations

import contextvars
import threading
from pathlib import Path

from holdfast import Context, EventLog, Pipeline
from holdfast.engine.workers import Workers
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


def test_mail_is_looked_at_although_the_only_idle_thread_was_called_for_a_job() -> None:
    """A thread called for a job that takes long does not swallow the call for a commit, or the reverse."""
    for _ in range(50):
        mail: list[str] = []
        pumped, may_end, began = threading.Event(), threading.Event(), threading.Event()

        def pump(mail: list[str] = mail, pumped: threading.Event = pumped) -> None:
            if mail:
                mail.clear()
                pumped.set()

        workers = Workers(pump, lambda mail=mail: bool(mail), contextvars.Context())  # type: ignore[misc]
        idle = threading.Event()
        workers.add([idle.set])
        assert idle.wait(10)

        def long(began: threading.Event = began, may_end: threading.Event = may_end) -> None:
            began.set()
            may_end.wait(20)

        workers.add([long])
        mail.append("commit me")
        workers.call_committer()
        assert pumped.wait(10) and began.wait(10)
        may_end.set()
        workers.close()


def test_every_job_has_its_own_thread_while_others_take_long() -> None:
    """Jobs that arrive one by one, faster than threads wake up, all begin although none has ended."""
    workers = Workers(lambda: None, lambda: False, contextvars.Context())
    all_there = threading.Barrier(9)
    for _ in range(8):
        workers.add([lambda: all_there.wait(20) and None])
    all_there.wait(20)
    workers.close()
