"""A step in a worker process has its whole `ctx`, and a death costs only the call that was under way."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from harness import PATIENCE_S, Harness, RunResult, in_thread

# A paid call is written down outside the project, and synced, before anything else happens.
HEAD = """
import os, signal, threading, time
from pathlib import Path
from holdfast import Context, Pipeline, Rewind

pipe = Pipeline("work")
WITNESS = Path(os.environ["WITNESS"])

def pay(key, answer=None):
    with open(WITNESS, "a") as file:
        file.write(key + "\\n")
        file.flush()
        os.fsync(file.fileno())
    return answer if answer is not None else f"answer to {key}"

def first_time(name):
    try:
        os.mkdir(WITNESS.parent / name)
    except FileExistsError:
        return False
    return True

def die_once(name="died"):
    if first_time(name):
        os.kill(os.getpid(), signal.SIGKILL)
"""


class Project:
    """A pipeline in a file, and the witness of its paid calls."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        self.witness = folder / "witness"
        monkeypatch.setenv("WITNESS", str(self.witness))

    def write(self, text: str) -> None:
        (self.folder / "work.py").write_text(HEAD + textwrap.dedent(text))

    def run(self, text: str = "") -> RunResult:
        if text:
            self.write(text)
        result = in_thread(lambda: Harness(self.folder).run("work.py"))
        assert isinstance(result, RunResult), result
        return result

    def paid(self) -> list[str]:
        return self.witness.read_text().split() if self.witness.exists() else []

    def value(self, task: str) -> Any:
        return [
            end["value"]
            for end in Harness(self.folder).events("node_exit", task=task)
            if end["status"] == "completed"
        ][-1]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(tmp_path, monkeypatch)


CALLS = """
    @pipe.step(executor="process", retries=1, backoff=0.0001)
    def work(ctx: Context) -> list:
        first = ctx.once("first", pay, "first")
        ctx.usage(cost_usd=0.25)
        second = ctx.once("second", pay, "second", b"bytes")
        ctx.usage(cost_usd=0.5)

        def dying() -> str:
            pay("third")
            die_once()
            ctx.usage(cost_usd=1)
            return "third"

        return [first, second.decode(), ctx.once("third", dying), ctx.once("fourth", pay, "fourth"), ctx.attempt]
"""


def test_a_killed_worker_loses_only_the_call_that_was_under_way(project: Project) -> None:
    """The next attempt is given what was recorded, by another worker; nothing is booked twice."""
    result = project.run(CALLS)
    assert project.paid() == ["first", "second", "third", "third", "fourth"]
    answers = ["answer to first", "bytes", "third", "answer to fourth"]
    assert (result.status, project.value("work")) == ("completed", [*answers, 2])
    assert result.cost_usd == 1.75
    (failed, _) = Harness(project.folder).events("node_exit", task="work")
    assert "the worker process ended (killed by signal 9)" in failed["error"]


ENDLESS = """
    @pipe.step(executor="process")
    def work(ctx: Context) -> list:
        first = ctx.once("first", pay, "first")
        ctx.usage(cost_usd=0.25)
        ctx.write("half ")

        def under_way() -> str:
            pay("second")
            if first_time("slept"):
                (WITNESS.parent / "worker.tmp").write_text(str(os.getpid()))
                os.rename(WITNESS.parent / "worker.tmp", WITNESS.parent / "worker")
                time.sleep(600)
            return "second"

        return [first, ctx.once("second", under_way)]
"""


def test_a_killed_engine_pays_nothing_twice_that_was_recorded(project: Project, tmp_path: Path) -> None:
    """Its worker ends with it, in the middle of a call; whoever resumes makes only that call again."""
    project.write(ENDLESS.replace('        ctx.write("half ")\n', ""))
    command = [sys.executable, "-m", "holdfast", "run", "work.py", "--quiet"]
    engine = subprocess.Popen(command, cwd=project.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pause = threading.Event()
    for _ in range(PATIENCE_S * 100):
        if (tmp_path / "worker").exists():
            break
        pause.wait(0.01)
    worker = int((tmp_path / "worker").read_text())
    engine.kill()
    engine.wait(PATIENCE_S)
    for _ in range(PATIENCE_S * 100):
        if not _is_alive(worker):
            break
        pause.wait(0.01)
    assert not _is_alive(worker)
    assert project.run().status == "completed"
    assert project.paid() == ["first", "second", "second"]
    assert project.value("work") == ["answer to first", "second"]
    usages = [event["cost_usd"] for event in Harness(project.folder).events("usage")]
    assert usages == [0.25]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


STORY = """
    @pipe.step(executor="process", writes="story.md", on_partial="continue", retries=1, backoff=0.0001)
    def story(ctx: Context) -> None:
        if first_time("begun"):
            ctx.write("It begins. " * 20)
            os.kill(WHO, signal.SIGKILL)
            time.sleep(600)
        assert ctx.partial == "It begins. " * 20, ctx.partial
        ctx.write("It ends.\\n")
"""


def test_a_stream_survives_the_worker_that_wrote_it(project: Project) -> None:
    """The next attempt goes on from there."""
    assert project.run(STORY.replace("WHO", "os.getpid()")).status == "completed"
    assert (project.folder / "story.md").read_text().startswith("It begins. " * 20 + "It ends.\n")


def test_a_stream_survives_engine_and_worker(project: Project) -> None:
    """Whoever continues the run goes on from there."""
    project.write(STORY.replace("WHO", "os.getppid()"))
    command = [sys.executable, "-m", "holdfast", "run", "work.py", "--quiet"]
    ends = [subprocess.run(command, check=False, cwd=project.folder, timeout=PATIENCE_S).returncode for _ in "12"]
    assert ends == [-signal.SIGKILL, 0]
    assert (project.folder / "story.md").read_text().startswith("It begins. " * 20 + "It ends.\n")


def test_feedback_and_what_was_sent_back_arrive_in_a_process(project: Project) -> None:
    """With the round; paid calls of the round before are not replayed."""
    project.run("""
        @pipe.step(executor="process", writes="draft.md")
        def draft(ctx: Context) -> str:
            ctx.once("draft", pay, f"draft{ctx.round}")
            return f"{ctx.round} {ctx.feedback} {ctx.previous!r}\\n"

        @pipe.step(executor="process")
        def review(ctx: Context, draft: str) -> str:
            if "shorter" not in draft:
                raise Rewind("draft", "shorter")
            return draft
    """)
    assert project.value("review") == "1 ['shorter'] '0 [] None\\n'\n"
    assert project.paid() == ["draft0", "draft1"]


def test_all_that_a_step_in_a_process_says_is_on_record(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    """Notes, decisions, sections, tags, log lines, usage, and the file that it wrote to `ctx.out`."""
    caplog.set_level(logging.INFO)
    result = project.run("""
        import json, logging
        pipe.items("part", [{"id": "a", "title": "A"}])

        @pipe.step(each="part", executor="process", writes={"large": "{part}.bin"})
        def work(ctx: Context, part: str) -> dict:
            ctx.note("a note", impact="some")
            ctx.decision("what", "why", outcome="so")
            ctx.section("text of the section", title="Title", sources=["one"])
            ctx.tag(colour="red")
            ctx.log("logged", n=1)
            ctx.usage(input_tokens=3, output_tokens=4, cost_usd=0.5, model="m")
            logging.getLogger("own").warning("half of %d", 7)
            ctx.out.write_bytes(b"large")
            assert ctx.dir == Path(os.environ["WITNESS"]).parent / "project"
            seen = [ctx.run_id, ctx.task_id, ctx.item, ctx.attempt, ctx.round]
            (WITNESS.parent / "seen").write_text(json.dumps(seen))
            return {"large": ctx.out}
    """)
    assert result.status == "completed" and result.cost_usd == 0.5
    kinds = ["note", "decision", "section", "tag", "log"]
    names = {event["event"] for event in Harness(project.folder).events()}
    assert not [kind for kind in kinds if kind not in names], sorted(names)
    assert (project.folder / "a.bin").read_bytes() == b"large"
    seen = json.loads((project.witness.parent / "seen").read_text())
    assert seen == [result.run_id, "work[a]", {"id": "a", "title": "A"}, 1, 0]
    (log,) = project.folder.glob(".holdfast/runs/*/logs/*")
    assert "half of 7" in log.read_text() and "logged n=1" in log.read_text()
    assert "text of the section" in next(project.folder.glob(".holdfast/runs/*/progress.md")).read_text()


def test_a_check_speaks_in_the_same_round_as_the_body_in_its_process(project: Project) -> None:
    """A key that the body has used is used; what it kept is replayed if the check fails the attempt by itself."""
    project.run("""
        def look(output: str, ctx: Context) -> bool:
            try:
                ctx.once("draft", pay, "again")
            except Exception as error:
                ctx.note(str(error))
            return ctx.once("look", pay, "look", True)

        @pipe.step(executor="process", check=look)
        def draft(ctx: Context) -> str:
            return ctx.once("draft", pay, "draft")
    """)
    assert project.paid() == ["draft", "look"]
    (note,) = Harness(project.folder).events("note")
    assert "used twice in one round" in note["text"]


def test_what_a_body_left_running_can_say_nothing_for_the_next(project: Project) -> None:
    """The worker serves another task by then: its thread is refused, and that one's record is its own."""
    project.run("""
        refused = WITNESS.parent / "refused"

        @pipe.step(executor="process")
        def first(ctx: Context) -> int:
            threading.Thread(target=speak, args=(ctx,), daemon=True).start()
            return os.getpid()

        @pipe.step(executor="process")
        def second(ctx: Context, first: int) -> int:
            while not refused.exists():
                time.sleep(0.01)
            return os.getpid()

        def speak(ctx):
            while True:
                try:
                    ctx.note("from the first")
                except Exception as error:
                    Path(f"{refused}.tmp").write_text(type(error).__name__)
                    os.rename(f"{refused}.tmp", refused)
                    return
    """)
    assert project.value("first") == project.value("second")
    assert (project.witness.parent / "refused").read_text() == "ContextEndedError"
    assert {event["step_id"] for event in Harness(project.folder).events("note")} <= {"first"}


def test_a_process_that_a_body_forks_cannot_speak(project: Project) -> None:
    """It has a copy of the context, and the pipe is not its own."""
    project.run("""
        @pipe.step(executor="process")
        def work(ctx: Context) -> str:
            reads, writes = os.pipe()
            child = os.fork()
            if not child:
                try:
                    ctx.once("paid", pay, "paid")
                except Exception as error:
                    os.write(writes, str(error).encode())
                os._exit(0)
            os.waitpid(child, 0)
            return os.read(reads, 1000).decode()
    """)
    assert "forked cannot write" in project.value("work")
    assert project.paid() == []


def test_a_full_disk_under_a_step_in_a_process_is_no_failure_of_it(project: Project) -> None:
    """The error came from the body's own write to `ctx.out`: the run stops, and no attempt is used up."""
    project.write("""
        import errno

        @pipe.step(executor="process", writes="large.bin", retries=0)
        def work(ctx: Context) -> Path:
            ctx.out.write_bytes(b"large")
            if first_time("full"):
                raise OSError(errno.ENOSPC, "No space left on device", str(ctx.out))
            return ctx.out
    """)
    with pytest.raises(AssertionError, match="No space left on device"):
        project.run()
    assert not Harness(project.folder).events("node_exit", task="work")
    assert project.run().status == "completed"
