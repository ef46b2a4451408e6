"""`Project`: all verbs of the command line as calls, with the documents of `--json` as their results."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from harness import RunResult
from holdfast import Pipeline, Project
from holdfast.cli import main as cli
from holdfast.errors import UnknownRunError, UsageError
from holdfast.project.run import Question
from holdfast.signals import Stop

BOOK = """
import os
import signal
from pathlib import Path

from holdfast import Context, Pipeline

HERE = Path(__file__).parent
pipe = Pipeline("book", params={"topic": (str, "kelp")})


@pipe.items("chapter")
def chapters() -> list:
    return ["ch01", "ch02"]


@pipe.step(each="chapter", writes="drafts/{chapter}.md")
def draft(ctx: Context, chapter: str, topic: str) -> str:
    ctx.usage(cost_usd=0.01)
    if (HERE / f"die-{chapter}").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    with open(HERE / "ran", "a") as ran:
        ran.write(f"{ctx.task_id}\\n")
    return f"{chapter} about {topic}\\n"


@pipe.step(writes="book.md")
def assemble(draft: dict) -> str:
    return "".join(draft.values())


pipe.gate("publish_ok", after=["assemble"])
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "book.py").write_text(BOOK)
    return tmp_path


def ran(root: Path) -> list[str]:
    return (root / "ran").read_text().split()


def printed(root: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints with --json."""
    capsys.readouterr()
    cli.run([*words, "--json", "--dir", str(root)])
    return capsys.readouterr().out


def document(result: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n"


def test_a_run_that_is_killed_and_damaged_is_brought_to_its_end(root: Path) -> None:
    """Run, kill, status, damage, verify, recover, resume, approve: nothing finished is made twice."""
    (root / "die-ch02").touch()
    code = "from holdfast import Project; Project.open().run('book.py', run_id='first', concurrency=1)"
    killed = subprocess.run([sys.executable, "-c", code], cwd=root, check=False)
    assert killed.returncode == -signal.SIGKILL
    (root / "die-ch02").unlink()
    project = Project.open(root)
    (entry,) = project.runs()
    assert (entry.run_id, entry.status, entry.running) == ("first", "in_progress", False)
    status = {task.id: task.status for task in project.status().tasks}
    assert (status["draft[ch01]"], status["draft[ch02]"]) == ("completed", "in_progress")
    (root / "drafts" / "ch01.md").write_bytes(b"\0\0\0")
    (finding,) = project.verify().findings
    assert (finding.task, finding.problem) == ("draft[ch01]", "damaged")
    assert {task.id: task.action for task in project.plan().tasks}["draft[ch01]"] == "heal"
    foreseen = project.recover(dry_run=True)
    assert [action.path for action in foreseen.actions if action.do == "set aside"] == ["drafts/ch01.md"]
    assert not project.verify().ok
    assert project.recover().events > 0 and project.verify().ok
    result = project.resume()
    assert (result.status, result.run_id, result.exit_code) == ("paused", "first", 3)
    assert ran(root) == ["draft[ch01]", "draft[ch02]"]
    assert project.approve("publish_ok").continue_with == f"holdfast resume first --dir {root}"
    assert project.resume().status == "completed"
    assert project.outputs()["draft"] == {"ch01": "ch01 about kelp\n", "ch02": "ch02 about kelp\n"}
    assert project.why("draft[ch01]").lines[0] == "draft[ch01]: completed"
    assert ran(root) == ["draft[ch01]", "draft[ch02]"]


def test_a_run_of_which_all_state_is_lost_is_rebuilt(root: Path) -> None:
    """From the files alone, and with the pipeline itself in place of its file."""
    project = Project.open(root)
    project.run("book.py", run_id="first")
    shutil.rmtree(root / ".holdfast")
    kinds = {file.path: file.kind for file in project.scan("book.py").files}
    assert kinds == dict.fromkeys(["drafts/ch01.md", "drafts/ch02.md", "book.md"], "sealed")
    recovered = project.recover("book.py")
    assert (recovered.run_id, recovered.record_lost) == ("first", True)
    assert project.run("book.py").run_id == "first" and len(ran(root)) == 2


LOOKS: dict[str, Callable[[Project], Any]] = {
    "list": lambda project: project.runs(),
    "status": lambda project: project.status(),
    "plan": lambda project: project.plan(),
    "plan book.py": lambda project: project.plan("book.py"),
    "why assemble": lambda project: project.why("assemble"),
    "verify": lambda project: project.verify(),
    "scan": lambda project: project.scan(),
    "scan --step draft": lambda project: project.scan(step="draft"),
    "recover --dry-run": lambda project: project.recover(dry_run=True),
    "clean --dry-run --max-runs 0": lambda project: project.clean(dry_run=True, max_runs=0),
}
WORDS: dict[str, Callable[[Project], Any]] = {
    "note hello": lambda project: project.note("hello"),
    "approve publish_ok": lambda project: project.approve("publish_ok"),
    "reject publish_ok --to draft[ch01] --feedback longer": lambda project: project.reject(
        "publish_ok", to="draft[ch01]", feedback="longer"
    ),
    "decide draft[ch01] redo": lambda project: project.decide("draft[ch01]", "redo"),
    "retry --all": lambda project: project.retry(),
    "recover": lambda project: project.recover(),
}


def damaged(root: Path) -> Project:
    project = Project.open(root)
    project.run("book.py", run_id="first")
    (root / "drafts" / "ch01.md").unlink()
    (root / "stray.txt").write_text("whose?")
    return project


@pytest.mark.parametrize("words", LOOKS)
def test_what_a_look_gives_is_what_json_prints(root: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    """Names, order and values, with commands as they have to be typed for that folder."""
    project = damaged(root)
    assert document(LOOKS[words](project)) == printed(root, capsys, *words.split())


@pytest.mark.parametrize("words", WORDS)
def test_what_is_recorded_is_what_json_prints(
    root: Path, capsys: pytest.CaptureFixture[str], words: str, tmp_path: Path
) -> None:
    """Said twice, in two copies of a project."""
    damaged(root)
    kept = shutil.copytree(root, tmp_path.with_name(f"{tmp_path.name}-kept"))
    given = document(WORDS[words](Project.open(root)))
    shutil.rmtree(root)
    shutil.copytree(kept, root)
    assert given == printed(root, capsys, *words.split())


@pytest.mark.parametrize("words", ["run book.py --run-id first", "resume"])
def test_the_document_of_a_run_is_what_json_prints(
    root: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    """Of a run in which nothing is left to do but for a person."""
    project = Project.open(root)
    project.run("book.py", run_id="first")
    result = project.run("book.py", run_id="first") if words.startswith("run") else project.resume()
    ours, theirs = json.loads(document(result.document)), json.loads(printed(root, capsys, *words.split()))
    assert list(ours) == list(theirs)
    assert {**ours, "updated_at": ""} == {**theirs, "updated_at": ""}


def test_events_are_the_lines_of_the_journal(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All, those after one, and those to come as long as somebody wants them."""
    project = Project.open(root)
    seen: list[Any] = []
    project.run("book.py", on_event=seen.append)
    lines = list(project.events())
    assert b"".join(line.raw for line in lines).decode() == printed(root, capsys, "events")
    assert [line.event()["event"] for line in lines][:2] == ["run_started", "pipeline_declared"]
    assert len(seen) == len(lines)
    assert [line.seq for line in project.events(after=3)] == [line.seq for line in lines[3:]]
    turns = iter([True, False])
    assert list(project.events(follow=lambda: next(turns))) == lines


def test_a_question_is_answered_and_the_run_goes_on(root: Path) -> None:
    """`answer` is asked once nothing else can go on; None leaves it open."""
    project = Project.open(root)
    project.run("book.py")
    book = root / "book.md"
    book.write_text(book.read_text().replace("kelp", "sea", 1))
    asked: list[Question] = []
    result = project.resume(answer=asked.append)  # type: ignore[func-returns-value]
    assert result.needs_review == ["assemble"]
    assert (asked[0].task, asked[0].choices) == ("assemble", ("keep", "restore", "redo"))
    said: list[str] = []
    ends: list[RunResult] = []
    result = project.resume(answer=lambda question: "keep", on_answer=said.append, on_end=ends.append)
    assert [end.needs_review for end in ends] == [["assemble"], []]
    assert "kept and accepted" in said[0]
    assert book.read_text().startswith("ch01 about sea")


def test_a_run_is_stopped_from_outside(tmp_path: Path) -> None:
    """From any thread, by calling `stop`; the next run goes on."""
    pipe, stop = Pipeline("p"), Stop()

    @pipe.step
    def one() -> int:
        stop()
        return 1

    @pipe.step
    def two(one: int) -> int:
        return one + 1

    project = Project.open(tmp_path)
    stopped = project.run(pipe, stop=stop)
    assert (stopped.status, stopped.exit_code) == ("in_progress", 130)
    assert project.run(pipe).outputs["two"] == 2


def test_what_is_wrong_is_told_before_anything_is_made(tmp_path: Path) -> None:
    """A folder that is not there, a run that is not there, options that mean nothing."""
    with pytest.raises(UsageError, match="No such directory"):
        Project.open(tmp_path / "nowhere")
    project = Project.open(tmp_path)
    with pytest.raises(UnknownRunError, match="no runs yet"):
        project.status()
    with pytest.raises(UsageError, match="params must be a dict"):
        project.run(Pipeline("p"), params=3)  # type: ignore[typeddict-item]
    with pytest.raises(UsageError, match=r"on_changed .*: 'maybe'"):
        project.resume(on_changed="maybe")
    assert os.listdir(tmp_path) == []


def test_names_are_offered(root: Path) -> None:
    """What a shell completes, and a page offers."""
    project = Project.open(root)
    project.run("book.py")
    tasks = ["assemble", "chapters", "draft[ch01]", "draft[ch02]"]
    assert sorted(project.names("task")) == tasks
    assert project.names("gate") == ["publish_ok"]
    assert sorted(project.names("any")) == [*tasks, "publish_ok"]
    assert set(project.names("work")) == {*tasks, "draft"}


def test_the_package_shows_its_names_and_loads_them_late() -> None:
    """`dir(holdfast)` has what is public; `import holdfast` loads neither the façade nor the engine."""
    assert set(holdfast.__all__) <= set(dir(holdfast))
    code = "import sys, holdfast; print({'holdfast.project', 'holdfast.journal.log'} & {*sys.modules})"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "set()\n"
