"""Who runs the engine, and where bodies run: threads, loops, worker processes, two engines, signals."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from harness import PATIENCE_S, Harness, in_thread
from holdfast import Context, HoldfastError, Pipeline
from holdfast.errors import LockedError, LockLostError, StorageError
from holdfast.executors.processes import ProcessExecutor
from holdfast.executors.threads import ThreadExecutor

WORK = """
import os, sys, time
from pathlib import Path
from holdfast import Context, Pipeline

pipe = Pipeline("work")

@pipe.step(executor="process", retries=1, backoff=0.0001, no_retry_on=(KeyError,))
def crunch() -> dict:
    return {"pid": os.getpid(), "bytes": 3}

@pipe.step(executor="process")
def raw(crunch: dict) -> dict:
    return crunch

@pipe.step(executor="process", writes="out.bin")
def blob(crunch: dict) -> bytes:
    print("not an answer")
    return b"\\x00" * crunch["bytes"]
"""

SEVERAL = """
from holdfast import Pipeline

pipe = Pipeline("several")
pipe.items("part", ["a", "b", "c"])

@pipe.step(each="part", executor="process")
def crunch(part: str) -> str:
    return part
"""

ENDLESS = """
import os, sys, time
from pathlib import Path
from holdfast import Context, Pipeline

pipe = Pipeline("endless")

@pipe.step
def first() -> int:
    return 1

@pipe.step(executor="process")
def forever(first: int) -> int:
    Path("worker.pid.tmp").write_text(str(os.getpid()))
    os.rename("worker.pid.tmp", "worker.pid")
    while True:
        time.sleep(60)
"""

WAITING = """
import os, time
from pathlib import Path
from holdfast import Pipeline

pipe = Pipeline("waiting")

@pipe.step
def first() -> int:
    return 1

@pipe.step
def wait(first: int) -> int:
    Path("started").touch()
    while not Path("go").exists():
        time.sleep(0.01)
    return 2

@pipe.step
def last(wait: int) -> int:
    return 3
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "pipeline.py"
    path.write_text(textwrap.dedent(text))
    return path


def start(tmp_path: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "holdfast", "run", "pipeline.py", "--quiet", *options]
    return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def until(condition: threading.Event | Path) -> None:
    """Wait for a file that another process makes."""
    pause = threading.Event()
    for _ in range(PATIENCE_S * 100):
        if isinstance(condition, Path) and condition.exists():
            return
        pause.wait(0.01)
    raise AssertionError(f"{condition} never came")


def ended(process: subprocess.Popen[bytes]) -> int:
    out, err = process.communicate(timeout=PATIENCE_S)
    assert b"Traceback" not in err + out, err.decode()
    return process.returncode


def test_a_cpu_step_runs_in_a_worker_process(tmp_path: Path) -> None:
    """Values and bytes cross the pipe, prints do not disturb it, and the process is not this one."""
    write(tmp_path, WORK)
    assert ended(start(tmp_path)) == 0
    assert (tmp_path / "out.bin").read_bytes() == b"\0\0\0"
    (crunch,) = (e for e in Harness(tmp_path).events("node_exit") if e["step_id"] == "crunch")
    assert crunch["value"]["pid"] != Harness(tmp_path).events("run_started")[0]["pid"]


TALKING = """
import logging, os
from holdfast import Pipeline

logging.basicConfig(level=logging.INFO, format="own: %(name)s %(message)s")
pipe = Pipeline("talking")

@pipe.step(executor="process")
def crunch() -> str:
    log = logging.getLogger("mine")
    log.debug("too quiet")
    log.info("half of %d", 7)
    log.warning("bad \\x1b[2J and half a character \\ud800")
    log.error("%d", "no number")
    try:
        1 / 0
    except ZeroDivisionError:
        log.exception("it broke")
    return os.getcwd()

@pipe.step(executor="process")
def silent(crunch: str) -> None: ...
"""


def test_steps_that_begin_at_once_share_the_pool_that_ends_their_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of a second pool, which the run forgets, would go on with their steps after its end."""
    (tmp_path / "several.py").write_text(SEVERAL)
    pools, make = [], ProcessExecutor.__init__

    def make_slowly(executor: ProcessExecutor, pool: ThreadExecutor, reference: str) -> None:
        threading.Event().wait(0.2)
        pools.append(executor)
        make(executor, pool, reference)

    monkeypatch.setattr(ProcessExecutor, "__init__", make_slowly)
    result = Harness(tmp_path).run("several.py")
    assert (result.status, len(pools)) == ("completed", 1)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EAGAIN, errno.ENOMEM])
def test_a_worker_that_the_system_does_not_start_is_no_failure_of_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The run stops as one that the machine stops: no attempt is used up, and the next run begins where it was."""
    (tmp_path / "work.py").write_text(WORK)

    def refused(*args: object, **named: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch, pytest.raises(StorageError, match=os.strerror(code)) as caught:
        patch.setattr(subprocess, "Popen", refused)
        Harness(tmp_path).run("work.py")
    assert "What was recorded is safe" in caught.value.fix
    result = Harness(tmp_path).run("work.py")
    assert result.status == "completed"
    assert {event.get("status") for event in Harness(tmp_path).events("node_exit")} == {"completed"}


def test_what_a_step_in_a_process_logs_is_kept_and_told_once(tmp_path: Path) -> None:
    """It is handled here, as what a thread logs is: TASK.log, the terminal, and the pipeline's own handlers."""
    write(tmp_path, TALKING)
    engine = start(tmp_path)
    _, err = engine.communicate(timeout=PATIENCE_S)
    assert engine.returncode == 0, err.decode()
    (log,) = tmp_path.glob(".holdfast/runs/*/logs/*")
    text = log.read_text()
    assert log.name == "crunch.log" and "\x1b" not in text and "too quiet" not in text
    assert "INFO mine half of 7\n" in text and "half a character \\ud800" in text
    assert "ERROR mine it broke\n" in text and "ZeroDivisionError: division by zero" in text
    assert err.count(b"own: mine half of 7") == 1


def test_a_step_in_a_process_has_the_working_directory_of_the_command(tmp_path: Path) -> None:
    """It is never changed, whatever --dir says, wherever a step runs."""
    write(tmp_path, TALKING)
    (tmp_path / "project").mkdir()
    start(tmp_path, "--dir", "project").communicate(timeout=PATIENCE_S)
    (crunch, _) = Harness(tmp_path / "project").events("node_exit")
    assert crunch["value"] == str(tmp_path)


FAILING = """
from pathlib import Path
from holdfast import Pipeline

pipe = Pipeline("failing")

@pipe.step(executor="process", retries=0)
def crunch() -> str:
    return Path("nothing").read_text()
"""


def test_an_error_in_a_worker_names_the_line_of_the_pipeline(tmp_path: Path) -> None:
    """The line comes across the pipe with the message."""
    write(tmp_path, FAILING)
    assert ended(start(tmp_path)) == 1
    (crunch,) = Harness(tmp_path).events("node_exit")
    assert crunch["error"].startswith("FileNotFoundError: ")
    assert crunch["error"].endswith(" (pipeline.py:9)")


def test_a_worker_ends_with_its_engine(tmp_path: Path) -> None:
    """However the engine dies, no worker goes on."""
    write(tmp_path, ENDLESS)
    engine = start(tmp_path)
    until(tmp_path / "worker.pid")
    engine.kill()
    engine.communicate(timeout=PATIENCE_S)
    worker = int((tmp_path / "worker.pid").read_text())
    pause = threading.Event()
    for _ in range(PATIENCE_S * 100):
        if not is_alive(worker):
            return
        pause.wait(0.01)
    raise AssertionError("the worker lives on")


def test_a_worker_whose_engine_died_says_nothing(tmp_path: Path) -> None:
    """A body may end just as the engine is killed: nobody takes its answer, and no traceback is shown."""
    write(tmp_path, WORK)
    reads, writes = os.pipe()
    os.close(reads)
    worker = subprocess.Popen(
        [sys.executable, "-m", "holdfast.executors.worker", "pipeline.py"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=writes,
        stderr=subprocess.PIPE,
    )
    os.close(writes)
    assert worker.stdin is not None and worker.stderr is not None
    worker.stdin.write(b'{"function":"crunch","task":"crunch","arguments":{},"timed":false}\n')
    worker.stdin.flush()
    assert (worker.wait(PATIENCE_S), worker.stderr.read()) == (0, b"")
    worker.stdin.close()
    worker.stderr.close()


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        pass
    if sys.platform == "linux":
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_step_in_a_process_is_no_coroutine() -> None:
    """It is a mistake of the pipeline, told before anything runs."""
    pipe = Pipeline("p")

    @pipe.step(executor="process")
    async def step() -> None: ...

    with pytest.raises(HoldfastError, match="is async"):
        pipe.compile()


def test_async_and_sync_steps_work_side_by_side(tmp_path: Path) -> None:
    """A sync body that waits for an async one, and the other way round, both end."""
    pipe, from_sync, from_async = Pipeline("p"), threading.Event(), threading.Event()

    @pipe.step
    def sync_one() -> bool:
        from_sync.set()
        return from_async.wait(20)

    @pipe.step
    async def async_one() -> bool:
        await asyncio.to_thread(from_sync.wait, 20)
        from_async.set()
        return True

    result = pipe.run(dir=tmp_path, concurrency=2)
    assert (result.outputs["sync_one"], result.outputs["async_one"]) == (True, True)


def simple() -> Pipeline:
    pipe = Pipeline("p")

    @pipe.step
    async def one() -> int:
        return 1

    @pipe.step
    def two(one: int) -> int:
        return one + 1

    return pipe


def test_a_run_from_another_thread(tmp_path: Path) -> None:
    """Outside the main thread there are no signal handlers to install, and none are needed."""
    assert in_thread(lambda: simple().run(dir=tmp_path)).outputs["two"] == 2


def test_a_run_inside_a_running_event_loop(tmp_path: Path) -> None:
    """The engine has a loop of its own, so the caller's does not matter."""

    async def caller() -> int:
        return int(simple().run(dir=tmp_path).outputs["two"])

    assert asyncio.run(caller()) == 2


def test_a_second_engine_is_refused_and_told_who_runs(tmp_path: Path) -> None:
    """LockedError names the process that holds the project; the first one is not disturbed."""
    write(tmp_path, WAITING)
    engine = start(tmp_path)
    until(tmp_path / "started")
    with pytest.raises(LockedError, match=f"Process {engine.pid} "):
        simple().run(dir=tmp_path)
    assert ended(start(tmp_path)) == 5
    (tmp_path / "go").touch()
    assert ended(engine) == 0


def test_an_engine_that_lost_its_lock_writes_nothing_more(tmp_path: Path) -> None:
    """The lock file is removed under it: it stops with LockLostError, and its result is not recorded."""
    pipe, sizes = Pipeline("p"), []

    @pipe.step
    def first(ctx: Context) -> None:
        harness = Harness(tmp_path)
        (harness.state / "engine.lock").unlink()
        sizes.append(harness.journal(ctx.run_id).stat().st_size)

    @pipe.step(writes="late.md")
    def second(first: None) -> str:
        return "late"

    with pytest.raises(LockLostError):
        pipe.run(dir=tmp_path, run_id="r")
    assert Harness(tmp_path).journal("r").stat().st_size == sizes[0]
    assert not (tmp_path / "late.md").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_running_steps_end(tmp_path: Path, number: signal.Signals) -> None:
    """Exit 130 after the running step has ended and is recorded; the next run does the rest."""
    write(tmp_path, WAITING)
    command = [sys.executable, "-u", "-m", "holdfast", "run", "pipeline.py"]
    engine = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    until(tmp_path / "started")
    engine.send_signal(number)
    assert engine.stdout is not None
    assert any(b"Stopping" in line for line in engine.stdout)  # from then on nothing new is started
    (tmp_path / "go").touch()
    engine.communicate(timeout=PATIENCE_S)
    assert engine.returncode == 130
    done = [e["step_id"] for e in Harness(tmp_path).events("node_exit")]
    assert done == ["first", "wait"]
    assert ended(start(tmp_path)) == 0
    done = [e["step_id"] for e in Harness(tmp_path).events("node_exit")]
    assert done == ["first", "wait", "last"]


FORKS = """
import multiprocessing, sys, time
from pathlib import Path
from holdfast import Pipeline

pipe = Pipeline("forks")

def wait_for_ever(begun):
    begun.send("begun")
    while True:
        time.sleep(60)

@pipe.step
def forks() -> int:
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe()
    child = fork.Process(target=wait_for_ever, args=(there,), daemon=True)
    child.start()
    here.recv()
    child.terminate()
    child.join(10)
    return child.exitcode

if __name__ == "__main__":
    print(pipe.run().outputs["forks"])
"""


@pytest.mark.parametrize(
    ("words", "told"),
    [(["pipeline.py"], "-15\n"), (["-m", "holdfast", "run", "pipeline.py", "--json"], '"value": -15')],
    ids=["python", "holdfast"],
)
def test_a_child_that_a_step_forks_can_be_ended(tmp_path: Path, words: list[str], told: str) -> None:
    """A signal means to it what it meant before the run listened for it, whoever runs the pipeline."""
    write(tmp_path, FORKS)
    out = subprocess.check_output([sys.executable, *words], cwd=tmp_path, text=True, timeout=PATIENCE_S)
    assert told in out


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """Exit 130 though a step never ends; what was done stays done, the cut-off step costs no retry."""
    write(tmp_path, WAITING)
    engine = start(tmp_path)
    until(tmp_path / "started")
    engine.send_signal(signal.SIGINT)
    engine.send_signal(signal.SIGTERM)
    pause = threading.Event()
    while engine.poll() is None:
        engine.send_signal(signal.SIGINT)
        pause.wait(0.05)
    assert ended(engine) == 130
    (tmp_path / "go").touch()
    assert ended(start(tmp_path)) == 0
    starts = [e["step_id"] for e in Harness(tmp_path).events("node_enter")]
    assert starts == ["first", "wait", "wait", "last"]


FORKED = """
import os
from pathlib import Path
from holdfast import Context, Pipeline

pipe = Pipeline("forked")

@pipe.step
def forks(ctx: Context) -> str:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return Path("told").read_text()
    try:
        ctx.once("paid", Path("paid").touch)
        Path("told").write_text("paid")
    except Exception as error:
        Path("told").write_text(str(error))
    finally:
        os._exit(0)
"""


def test_a_process_that_a_step_forks_pays_for_nothing_that_nobody_could_record(tmp_path: Path) -> None:
    """It is told so, and waits for no commit: the threads that would lead one are its parent's."""
    write(tmp_path, FORKED)
    engine = start(tmp_path)
    try:
        assert ended(engine) == 0
    finally:
        engine.kill()
    assert "forked cannot write to the run" in (tmp_path / "told").read_text()
    assert not (tmp_path / "paid").exists()


UNMOVED = """
import asyncio
from pathlib import Path
from holdfast import Pipeline

pipe = Pipeline("unmoved")

@pipe.step
async def wait() -> None:
    Path("started").touch()
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
"""


def test_a_coroutine_that_heeds_no_cancellation_keeps_no_process_from_its_end(tmp_path: Path) -> None:
    """The interpreter drops it when all is over: nobody hands it in then."""
    write(tmp_path, UNMOVED)
    engine = start(tmp_path)
    until(tmp_path / "started")
    while not Harness(tmp_path).events("run_stopped"):
        engine.send_signal(signal.SIGINT)
        threading.Event().wait(0.05)
    try:
        assert ended(engine) == 130
    finally:
        engine.kill()


CHILDREN = """
import subprocess
from pathlib import Path
from holdfast import Pipeline

pipe = Pipeline("children")
pipe.items("chapter", ["ch01", "ch02"])

@pipe.step(each="chapter", writes="{chapter}.md", on_failure="skip")
def write(chapter: str) -> str:
    program = "touch started-" + chapter + "; until [ -e go ]; do sleep 0.01; done; echo text"
    return subprocess.run(["sh", "-c", program], stdout=subprocess.PIPE, text=True, check=True).stdout

@pipe.step
def gather(write: dict) -> list:
    return list(write)
"""

IN_WORKERS = """
import time
from pathlib import Path
from holdfast import Pipeline

pipe = Pipeline("workers")
pipe.items("chapter", ["ch01", "ch02"])

@pipe.step(each="chapter", writes="{chapter}.md", on_failure="skip", executor="process")
def write(chapter: str) -> str:
    Path("started-" + chapter).touch()
    while not Path("go").exists():
        time.sleep(0.01)
    return "text"
"""


def stop_all(tmp_path: Path, *numbers: signal.Signals) -> subprocess.Popen[bytes]:
    """Start a run, and send signals to it and to all that it has started, as a terminal does."""
    command = [sys.executable, "-u", "-m", "holdfast", "run", "pipeline.py"]
    engine = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    until(tmp_path / "started-ch01")
    until(tmp_path / "started-ch02")
    for number in numbers:
        os.killpg(engine.pid, number)
    return engine


def test_a_program_that_ctrl_c_ends_is_no_failure_of_its_step(tmp_path: Path) -> None:
    """Ctrl-C also reaches what steps have started: they are cut off and run again, none is skipped."""
    write(tmp_path, CHILDREN)
    engine = stop_all(tmp_path, signal.SIGINT)
    told, _ = engine.communicate(timeout=PATIENCE_S)
    assert engine.returncode == 130
    assert b"write[ch01]  was cut off, and will run again: CalledProcessError" in told
    assert not Harness(tmp_path).events("node_exit")
    assert sorted(e["step_id"] for e in Harness(tmp_path).events("cut_off")) == ["write[ch01]", "write[ch02]"]
    (tmp_path / "go").touch()
    assert ended(start(tmp_path)) == 0
    assert (tmp_path / "ch02.md").read_text().startswith("text\n")
    assert {e["status"] for e in Harness(tmp_path).events("node_exit")} == {"completed"}


def test_ctrl_c_lets_steps_in_worker_processes_end(tmp_path: Path) -> None:
    """A worker leaves the signal to the engine: its step finishes within the grace period, and counts."""
    write(tmp_path, IN_WORKERS)
    engine = stop_all(tmp_path, signal.SIGINT)
    assert engine.stdout is not None
    assert any(b"Stopping" in line for line in engine.stdout)
    (tmp_path / "go").touch()
    engine.communicate(timeout=PATIENCE_S)
    assert engine.returncode == 130
    assert [e["status"] for e in Harness(tmp_path).events("node_exit")] == ["completed", "completed"]


def test_a_coroutine_that_fails_at_a_stop_is_cut_off(tmp_path: Path) -> None:
    """On the event loop, too, an error that comes with the stop is not counted."""
    waits = "await asyncio.create_subprocess_exec('sh', '-c', program, stdout=subprocess.PIPE)"
    body = f"process = {waits}\n    text, _ = await process.communicate()\n    assert process.returncode == 0\n"
    text = "import asyncio\n" + CHILDREN.replace("def write", "async def write")
    old = next(line for line in CHILDREN.splitlines() if "return subprocess.run" in line).strip()
    write(tmp_path, text.replace(old, body + "    return text.decode()"))
    engine = stop_all(tmp_path, signal.SIGINT)
    engine.communicate(timeout=PATIENCE_S)
    assert sorted(e["step_id"] for e in Harness(tmp_path).events("cut_off")) == ["write[ch01]", "write[ch02]"]
    (tmp_path / "go").touch()
    assert ended(start(tmp_path)) == 0
    assert {e["status"] for e in Harness(tmp_path).events("node_exit")} == {"completed"}
