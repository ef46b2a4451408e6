"""Workers: who takes which job."""

from __future__ import annotations

import errno
import itertools
import threading
from pathlib import Path

import pytest

from harness import Harness, RunResult, in_thread
from holdfast import Context, EventLog, Pipeline
from holdfast.errors import StorageError
from holdfast.events import NodeExited
from holdfast.executors.threads import ThreadExecutor


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
        harness = Harness(tmp_path)
        with EventLog(harness.journal(ctx.run_id), lock_path=(harness.state / "append.lock")) as log:
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


def test_every_job_has_its_own_thread_while_others_take_long() -> None:
    """Jobs that arrive one by one, faster than threads wake up, all begin although none has ended."""
    threads = ThreadExecutor(1)
    all_there = threading.Barrier(9)
    for _ in range(8):
        threads.run(lambda: all_there.wait(20) and None)
    all_there.wait(20)
    threads.close()


def allow_threads(monkeypatch: pytest.MonkeyPatch, name: str, allowed: int) -> None:
    """Let the system start so many threads of ours whose names begin like that, as under `ulimit -u`."""
    start, started = threading.Thread.start, itertools.count(1)

    def start_or_refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(name) and next(started) > allowed:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_refuse)


def several(*, is_async: bool) -> Pipeline:
    pipe = Pipeline("p")
    pipe.items("part", ["a", "b", "c", "d"])

    def work(part: str) -> str:
        return part

    async def work_async(part: str) -> str:
        return part

    pipe.step(each="part")(work_async if is_async else work)
    return pipe


@pytest.mark.parametrize("name", ["holdfast-worker", "holdfast-keeper"])
def test_a_system_that_has_few_threads_left_only_makes_it_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What was to run in a thread of its own is done by those that are there; without a keeper, views wait."""
    allow_threads(monkeypatch, name, 1 if name == "holdfast-worker" else 0)
    assert in_thread(lambda: several(is_async=False).run(dir=tmp_path)).status == "completed"


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("name", ["holdfast-worker", "holdfast-loop"])
def test_a_system_that_has_no_thread_at_all_stops_the_run_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_async: bool
) -> None:
    """The run neither waits for what nobody does nor calls it a mistake of its own; later it goes on."""
    with monkeypatch.context() as short:
        allow_threads(short, name, 0)
        ended = in_thread(lambda: several(is_async=is_async).run(dir=tmp_path))
    if name == "holdfast-loop" and not is_async:
        assert ended.status == "completed"
        return
    assert isinstance(ended, StorageError) and "thread" in str(ended)
    assert in_thread(lambda: several(is_async=is_async).run(dir=tmp_path)).status == "completed"


def test_an_observer_that_fails_stops_the_run(tmp_path: Path) -> None:
    """Whichever thread delivers: one that only looked for mail would end with the error, and nobody would know."""
    pipe = several(is_async=True)

    def observe(recorded: object) -> None:
        if isinstance(getattr(recorded, "event", None), NodeExited):
            raise OSError(errno.EMFILE, "Too many open files")

    def run() -> RunResult:
        return Harness(tmp_path).run(pipe, on_event=observe)

    assert isinstance(in_thread(run), StorageError)
