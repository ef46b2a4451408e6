"""Worker processes: what crosses the pipes, and workers that end in the middle of an answer."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest

from holdfast.errors import StorageError, ValueRefusedError
from holdfast.executors.deadlines import Deadline, Deadlines
from holdfast.executors.pipe import pack_value, unpack_value
from holdfast.executors.processes import ProcessExecutor
from holdfast.executors.protocol import Call, Outcome, RemoteError
from holdfast.executors.threads import ThreadExecutor
from holdfast.values import DEPTH_MAX, decode_json

PATIENCE_S = 30.0  # for what would else be waited for for ever

WORK = """
import logging, os, signal, time
from holdfast import Pipeline

pipe = Pipeline("work")

@pipe.step(executor="process")
def half_an_answer() -> str:
    for descriptor in range(3, 10):
        try:
            os.write(descriptor, b'{"value":["json","he')
        except OSError:
            pass
    os._exit(7)

@pipe.step(executor="process")
def talking() -> str:
    logging.getLogger().warning("first")
    logging.getLogger().warning("second")
    time.sleep(600)

@pipe.step(executor="process")
def leaves_a_child(left_at: str = "") -> str:
    if child := os.fork():
        open(left_at, "w").write(str(child))
        os._exit(7)
    logging.getLogger().warning("from a child")
    signal.pause()

@pipe.step(executor="process")
def depth(value: list = []) -> int:
    return len(value)
"""


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[ProcessExecutor]:
    path = tmp_path / "work.py"
    path.write_text(textwrap.dedent(WORK))
    threads = ThreadExecutor(4)
    made = ProcessExecutor(threads, f"{path}:pipe")
    yield made
    made.close()
    threads.close()


def run(executor: ProcessExecutor, name: str, timeout: float | None = None, **arguments: Any) -> Outcome:
    outcomes: SimpleQueue[Outcome] = SimpleQueue()
    executor.submit(Call(print, arguments, timeout, name)).done(outcomes.put)
    return outcomes.get(timeout=4 * PATIENCE_S)


def test_a_worker_that_ends_in_the_middle_of_its_answer_has_failed(executor: ProcessExecutor) -> None:
    """Half a line is no answer, whoever killed the process; the next call gets another worker."""
    outcome = run(executor, "half_an_answer")
    assert isinstance(outcome.error, RemoteError) and "exit status 7" in str(outcome.error)
    assert run(executor, "depth", value=[1, 2]).value == 2


def test_a_process_that_a_body_leaves_behind_is_not_waited_for(executor: ProcessExecutor, tmp_path: Path) -> None:
    """The worker is gone, though a process that it forked, as pools do, is still there."""
    left_at, outcomes = tmp_path / "child", []
    arguments = {"left_at": str(left_at)}
    waiting = threading.Thread(target=lambda: outcomes.append(run(executor, "leaves_a_child", **arguments)))
    waiting.start()
    waiting.join(PATIENCE_S)
    was_waited_for = waiting.is_alive()
    os.kill(int(left_at.read_text()), signal.SIGKILL)
    waiting.join()
    assert (was_waited_for, str(outcomes[0].error)) == (False, "the worker process ended (exit status 7)")


def test_time_may_run_out_while_a_log_line_is_handled(executor: ProcessExecutor) -> None:
    """The worker is killed meanwhile; whoever then reads on meets the end of its lines, and nothing worse."""

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            (worker,) = executor._all
            worker._process.wait()

    slow = Slow()
    logging.getLogger().addHandler(slow)
    try:
        outcome = run(executor, "talking", timeout=2.0)
    finally:
        logging.getLogger().removeHandler(slow)
    assert outcome.timed_out and isinstance(outcome.error, TimeoutError)


def test_the_time_of_a_call_runs_from_its_beginning(
    executor: ProcessExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker may take longer to load the pipeline than a call of it may take."""
    loaded = tmp_path / "loaded"
    with (tmp_path / "work.py").open("a") as file:
        file.write(f"open({str(loaded)!r}, 'w').close()\n")
    were_loaded, add = [], Deadlines.add

    def watched(deadlines: Deadlines, seconds: float, expire: Callable[[], None]) -> Deadline:
        were_loaded.append(loaded.exists())
        return add(deadlines, seconds, expire)

    monkeypatch.setattr(Deadlines, "add", watched)
    assert run(executor, "depth", timeout=PATIENCE_S, value=[1]).value == 1
    assert were_loaded == [True]


def test_a_call_that_cannot_be_sent_costs_no_worker(executor: ProcessExecutor) -> None:
    """The argument is named, and no process is left waiting for it."""
    outcome = run(executor, "depth", value={1, 2})
    assert isinstance(outcome.error, ValueRefusedError) and outcome.error.where == "value"
    assert not executor._all


def test_a_worker_whose_time_no_thread_can_mind_is_no_failure_of_the_step(
    executor: ProcessExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine has no thread left: that is told as such, and the worker is not left to itself."""

    def refused(deadlines: Deadlines) -> None:
        raise StorageError("Could not start a thread: the system allows no more of them.")

    with monkeypatch.context() as patch:
        patch.setattr(Deadlines, "_start", refused)
        outcome = run(executor, "talking", timeout=PATIENCE_S)
    assert not outcome.has_begun and "Could not start a thread" in str(outcome.error)
    assert not executor._all


NO_THREADS = """
import threading
from holdfast.executors.worker import main

def refused(thread):
    raise RuntimeError("can't start new thread")

threading.Thread.start = refused
main()
"""


@pytest.mark.parametrize(
    ("words", "why"),
    [(NO_THREADS, "the system allows it no thread"), ("exit(3)", "before it was ready .exit status 3.")],
)
def test_a_worker_that_never_got_ready_is_no_failure_of_the_step(
    executor: ProcessExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, why: str
) -> None:
    """Nothing was begun: that costs no attempt, and stops the run as any other lack of processes does."""
    interpreter = tmp_path / "python"
    interpreter.write_text(f"#!{sys.executable}\n{words}")
    interpreter.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(interpreter))
        outcome = run(executor, "depth", value=[1])
    assert not outcome.has_begun and isinstance(outcome.error, StorageError)
    assert re.search(f"worker process: .*{why}", str(outcome.error))
    assert not executor._all
    assert run(executor, "depth", value=[1]).value == 1


def test_a_worker_that_is_ended_before_it_is_ready_was_stopped_by_us(
    executor: ProcessExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of a run that is no trouble of the machine."""
    interpreter, begun = tmp_path / "python", tmp_path / "begun"
    interpreter.write_text(f"#!{sys.executable}\nimport time\nopen({str(begun)!r}, 'w').close()\ntime.sleep(600)")
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    outcomes: list[Outcome] = []
    waiting = threading.Thread(target=lambda: outcomes.append(run(executor, "depth", value=[1])))
    waiting.start()
    while not begun.exists():
        assert waiting.is_alive()
    executor.close()
    waiting.join(PATIENCE_S)
    assert outcomes[0].cancelled and not outcomes[0].value


def test_no_process_is_started_after_the_end(executor: ProcessExecutor) -> None:
    """A body that was about to start when its run ended does not start any more."""
    executor.close()
    outcome = run(executor, "depth", value=[])
    assert outcome.cancelled and outcome.error is not None
    assert not executor._all


def nested(depth: int) -> Any:
    value: Any = "innermost"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"\x00\xff",
        Path("/a folder/of any name \udcff/x.bin"),
        {"text": "t", "raw": b"\x00", "inner": {"path": Path("a"), "list": [1, {"b": None}]}},
        nested(DEPTH_MAX),
    ],
)
def test_what_crosses_the_pipe_comes_out_as_it_went_in(value: Any) -> None:
    """Bytes, paths of any name and values as deep as a step may give them."""
    assert unpack_value(decode_json(msgspec.json.encode(pack_value(value)))) == value


@pytest.mark.parametrize(
    ("value", "where"),
    [({"a": {"b": {1}}}, "value.a.b"), ({"a": {1: {}}}, "value.a"), ({"a": [b""]}, "value.a[0]")],
)
def test_what_cannot_cross_it_is_named_as_anywhere(value: Any, where: str) -> None:
    """The field is called as the author of the step knows it."""
    with pytest.raises(ValueRefusedError) as refused:
        pack_value(value)
    assert refused.value.where == where
