"""The command line as real processes: starting fast, signals, closed and full stdout, following."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from .conftest import Project

# Says on stdout that it has begun, then waits until it is let go (or for ever).
SLOW = """
import sys
from pathlib import Path

from holdfast import Pipeline

pipe = Pipeline("slow")


@pipe.step
def first() -> str:
    return "done"


@pipe.step
def waits(first: str) -> str:
    print("begun", flush=True)
    with open(Path(__file__).parent / "let-go") as fifo:
        return fifo.read()
"""

SCRIPT = os.path.join(os.path.dirname(sys.executable), "holdfast")

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts `python -m holdfast ...`; whatever still runs at the end of the test is ended."""
    started: list[subprocess.Popen[str]] = []

    def start(
        *words: str,
        stdout: Any = subprocess.PIPE,
        stderr: Any = subprocess.PIPE,
        env: dict[str, str] | None = None,
    ) -> Any:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *words],
            stdout=stdout,
            stderr=stderr,
            text=True,
            env={**os.environ, **(env or {})},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process:
            process.kill()


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    os.mkfifo(tmp_path / "let-go")
    return tmp_path


def read_until(stream: IO[str] | None, text: str) -> None:
    """Wait for a line with `text` in it; the end of the stream is a failure, not a wait."""
    assert stream is not None
    seen = []
    while text not in (line := stream.readline()):
        seen.append(line)
        assert line, f"no {text!r} in {seen}"


def loaded_with(modules: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Python, with these modules in the place of installed ones."""
    env = {**os.environ, "PYTHONPATH": str(modules)}
    command = [sys.executable, *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("command", [["-m", "holdfast"], [SCRIPT]])
def test_ctrl_c_while_the_command_is_loaded(tmp_path: Path, command: list[str]) -> None:
    """It is Python's own, and so is what is said of it: a shell sees status 130."""
    once = (
        "import os, signal, sys\nsys.path.remove(os.path.dirname(__file__))\nos.kill(os.getpid(), signal.SIGINT)\n"
    )
    (tmp_path / "click.py").write_text(once)
    ended = loaded_with(tmp_path, *command, "list")
    assert ended.returncode == -signal.SIGINT and ended.stdout == ""
    assert ended.stderr.endswith("KeyboardInterrupt\n")


def test_ctrl_c_while_another_program_loads_us_is_its_own(tmp_path: Path) -> None:
    """A library does not say what a signal does."""
    (tmp_path / "msgspec.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    code = "try:\n    import holdfast\nexcept KeyboardInterrupt:\n    print('mine')\n    raise"
    ended = loaded_with(tmp_path, "-c", code)
    assert ended.stdout == "mine\n" and "Traceback" in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_waits_and_second_stops_at_once(start: Start, slow: Path, number: int) -> None:
    """A signal stops kindly and says so; a second one ends it though a thread is stuck: exit 130."""
    process = start("run", str(slow / "slow.py"), "--dir", str(slow))
    read_until(process.stdout, "begun")
    process.send_signal(number)
    read_until(process.stderr, "Stopping")
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "State is saved" in out
    assert out.splitlines()[-1].startswith("Continue with: holdfast resume ")


# Sends itself a signal as soon as its last line is printed, or when the interpreter ends.
SIGNALLED = """
import atexit
import os
import sys

from holdfast import Pipeline

pipe = Pipeline("signalled")


def signal_ourselves():
    os.kill(os.getpid(), int(os.environ["NUMBER"]))


class Stdout:
    def write(self, text):
        sys.__stdout__.write(text)
        if "Completed" in text:
            signal_ourselves()

    def __getattr__(self, name):
        return getattr(sys.__stdout__, name)


if os.environ["WHEN"] == "told":
    sys.stdout = Stdout()
elif os.environ["WHEN"] == "exit":
    atexit.register(signal_ourselves)


@pipe.step(writes="out.md")
def only() -> str:
    return "text"
"""


@pytest.mark.parametrize("when", ["told", "exit"])
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.proof)]
)
def test_a_signal_after_the_end_of_the_run_is_quiet(start: Start, tmp_path: Path, number: int, when: str) -> None:
    """It ends with the run's own status or as interrupted, without traceback, and leaves everything whole."""
    (tmp_path / "signalled.py").write_text(SIGNALLED, encoding="utf-8")
    env = {"NUMBER": str(int(number)), "WHEN": when}
    process = start("run", str(tmp_path / "signalled.py"), "--dir", str(tmp_path), env=env)
    out, err = process.communicate(timeout=20)
    assert "Completed: 1 of 1" in out
    assert process.returncode == (130 if when == "told" else 0)
    assert "Traceback" not in err and "ignored" not in err
    verify = start("verify", "--dir", str(tmp_path), env={**env, "WHEN": "never"})
    out, _ = verify.communicate(timeout=20)
    assert verify.returncode == 0 and "note" not in out


def test_signal_lets_a_running_step_finish(start: Start, slow: Path) -> None:
    """After one signal, a step that ends within the grace period counts, and is not run again."""
    process = start("run", str(slow / "slow.py"), "--dir", str(slow))
    read_until(process.stdout, "begun")
    process.send_signal(signal.SIGINT)
    read_until(process.stderr, "Stopping")
    (slow / "let-go").write_text("finished")
    process.communicate(timeout=20)
    assert process.returncode == 130
    again = start("resume", "--dir", str(slow))
    out, err = again.communicate(timeout=20)
    assert again.returncode == 0, err
    assert "begun" not in out


def test_status_needs_no_engine_and_no_display(project: Project) -> None:
    """status, list and events import neither rich nor asyncio nor the engine's runner."""
    project.run()
    for command in ("status", "list", "events"):
        script = (
            "import sys; from holdfast.cli.main import run\n"
            "code = run(sys.argv[1:])\n"
            "heavy = {'rich', 'asyncio', 'holdfast.project.run', 'holdfast.engine.runner', 'sqlite3'}\n"
            "sys.exit(' '.join(heavy & set(sys.modules)) or code)"
        )
        words = [sys.executable, "-c", script, command, "--dir", str(project.root)]
        result = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stderr) == (0, "")


def test_closed_stdout_is_quiet(start: Start, project: Project) -> None:
    """When nobody reads on, the command ends without a word, with the status of its work."""
    project.touch("fail-ch02")
    for words, code in ((["events"], 0), (["list"], 0), (["run", "book.py"], 1), (["--help"], 0)):
        reader, writer = os.pipe()
        os.close(reader)
        place = [] if words == ["--help"] else ["--dir", str(project.root)]
        process = start(*words, *place, stdout=writer)
        os.close(writer)
        _, err = process.communicate(timeout=20)
        assert process.returncode == (2 if words == ["events"] else code)
        assert "Traceback" not in err
        assert "BrokenPipe" not in err
        assert "Exception ignored" not in err


def test_a_run_whose_terminal_is_closed_is_interrupted(start: Start, slow: Path) -> None:
    """What it says at its end is for nobody: that is no fault of a disk, and the exit status is the stop's."""
    ours, theirs = pty.openpty()
    where = ("--dir", str(slow))
    process = start("run", str(slow / "slow.py"), *where, stdout=theirs, stderr=theirs, env={"TERM": "dumb"})
    os.close(theirs)
    with open(ours, encoding="utf-8") as screen:
        read_until(screen, "begun")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 130


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("form", ["plain", "json", "json unbuffered"])
@pytest.mark.parametrize("command", ["list", "events", "run book.py", "--help"])
def test_full_stdout_is_no_success(start: Start, project: Project, command: str, form: str) -> None:
    """Facts that could not be written, in whatever form, are exit 6 and one line, not a silent success."""
    project.run()
    place = [] if command == "--help" else ["--dir", str(project.root)] + ["--json"] * form.startswith("json")
    env = {"PYTHONUNBUFFERED": "1"} if form.endswith("unbuffered") else None
    with open("/dev/full", "w", encoding="utf-8") as full:
        process = start(*command.split(), *place, stdout=full, env=env)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 6
    assert err == (
        "Could not write to stdout: No space left on device. "
        "What was recorded is safe: mend that, then run the same command.\n"
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_mistake_is_told_where_stdout_is_full(start: Start, project: Project, unbuffered: str) -> None:
    """An error that does not fit into stdout as JSON is a line on stderr, with its own exit status."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        place = ["--dir", str(project.root), "--json"]
        process = start("status", "nix", *place, stdout=full, env={"PYTHONUNBUFFERED": unbuffered})
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (2, "There is no run nix. This project has no runs yet.\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_full_stderr_changes_nothing(start: Start, project: Project) -> None:
    """What cannot be told to anybody is no reason to fail."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        process = start("run", "book.py", "--dir", str(project.root), stderr=full)
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Completed:" in out


def test_ascii_terminal(start: Start, project: Project) -> None:
    """Where stdout can only take ASCII, our signs become letters, and what others wrote is printed by number."""
    project.run("-p", "topic=größe")
    process = start("status", "--dir", str(project.root), env={"PYTHONIOENCODING": "ascii"})
    out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert "assemble  ok" in out
    assert "ok completed, .. in progress, XX failed, !! needs human review, - not started" in out
    assert "topic: gr\\xf6\\xdfe" in out


def test_events_follow_what_is_added(start: Start, project: Project) -> None:
    """events -f shows what another process records, and ends with exit 130 on Ctrl-C."""
    project.touch("gated")
    project.run()
    process = start("events", "-f", "--dir", str(project.root))
    read_until(process.stdout, "run_stopped")
    project("note", "seen from afar")
    read_until(process.stdout, "seen from afar")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_events_are_not_followed_for_nobody(start: Start, project: Project) -> None:
    """`events -f | head` ends when head does, also if nothing is recorded any more."""
    project.run()
    process = start("events", "-f", "--dir", str(project.root))
    read_until(process.stdout, "run_stopped")
    process.stdout.close()
    assert process.wait(timeout=20) == 0
    assert process.stderr.read() == ""


def test_events_of_a_run_that_is_cleaned_end(start: Start, project: Project) -> None:
    """Nothing will ever be added to it: one line says so, instead of a wait for ever."""
    project.run("--run-id", "first")
    process = start("events", "-f", "--dir", str(project.root))
    read_until(process.stdout, "run_stopped")
    assert project("clean", "--max-runs", "0").code == 0
    _, err = process.communicate(timeout=20)
    told = "Run first is no longer on record: it was cleaned, or its folder removed.\n"
    assert (process.returncode, err) == (0, told)


def test_decisions_are_recorded_while_an_engine_runs(start: Start, slow: Path) -> None:
    """A note is taken while the engine runs, says so, and the running engine keeps it in its journal."""
    process = start("run", str(slow / "slow.py"), "--dir", str(slow))
    read_until(process.stdout, "begun")
    note = start("note", "meanwhile", "--dir", str(slow))
    out, _ = note.communicate(timeout=20)
    assert note.returncode == 0
    assert out.splitlines() == ["The note is recorded.", "The running engine takes it up."]
    (slow / "let-go").write_text("finished")
    process.communicate(timeout=20)
    assert process.returncode == 0
    events, _ = start("events", "--dir", str(slow)).communicate(timeout=20)
    assert "text=meanwhile" in events


def test_bash_completion_offers_commands_and_runs(start: Start, project: Project) -> None:
    """The shell is offered commands, and the runs of the project that --dir names; nothing is created."""
    project.run("--run-id", "one")
    before = project.files()
    for line, wanted in (
        ("holdfast st", "plain,status"),
        (f"holdfast status --dir '{project.root}' o", "plain,one"),
    ):
        words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ") - line.count("my book"))}
        out, err = start(env={**words, "_HOLDFAST_COMPLETE": "bash_complete"}).communicate(timeout=20)
        assert (wanted in out.splitlines(), err) == (True, "")
    assert project.files() == before


@pytest.mark.parametrize("words", ["run p.py", "resume", "plan", "scan", "verify", "recover"])
def test_what_a_pipeline_prints_does_not_break_the_json_document(tmp_path: Path, words: str) -> None:
    """With --json, stdout has the one document; what a pipeline and its programs say goes to stderr."""
    (tmp_path / "p.py").write_text(
        "import os\nfrom holdfast import Pipeline\nprint('I am loaded')\nos.system('echo I am told')\n"
        "pipe = Pipeline('p')\n\n\n@pipe.step\ndef loud() -> int:\n"
        "    print('I am a step')\n    os.system('echo I am a program')\n    return 1\n"
    )
    command = [sys.executable, "-m", "holdfast"]
    if words != "run p.py":
        subprocess.run([*command, "run", "p.py"], cwd=tmp_path, capture_output=True, check=True)
    said = subprocess.run([*command, *words.split(), "--json"], cwd=tmp_path, capture_output=True, check=True)
    assert isinstance(json.loads(said.stdout), dict)
    spoken = ["I am loaded", "I am told"] + ["I am a step", "I am a program"] * (words == "run p.py")
    assert sorted(said.stderr.decode().splitlines()) == sorted(spoken)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(tmp_path: Path, closed: str) -> None:
    """A stream that is closed from the start gives and swallows nothing; the status is the command's."""
    (tmp_path / "p.py").write_text(
        "import os\nfrom holdfast import Pipeline\npipe = Pipeline('p')\n\n\n"
        "@pipe.step(executor='process')\ndef one() -> int:\n"
        "    os.write(1, b'printed')\n    print('printed', flush=True)\n    return 1\n"
    )
    for words in ("run p.py", "status", "list --json"):
        line = f"{sys.executable} -m holdfast {words} {closed}"
        said = subprocess.run(line, cwd=tmp_path, shell=True, capture_output=True, text=True, check=False)
        assert (said.returncode, "Traceback" in said.stdout + said.stderr) == (0, False), said


def test_the_holder_of_a_new_run_is_named_with_its_run(tmp_path: Path) -> None:
    """Whoever is refused is told which run is going on, also if that one has just begun."""
    (tmp_path / "p.py").write_text(
        "import json\nfrom pathlib import Path\nfrom holdfast import Context, Pipeline\npipe = Pipeline('p')\n\n\n"
        "@pipe.step\ndef one(ctx: Context) -> bool:\n"
        "    return json.loads((ctx.dir / '.holdfast/engine.lock').read_text())['run_id'] == ctx.run_id\n"
    )
    command = [sys.executable, "-m", "holdfast", "run", "p.py", "--json"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(said.stdout)["tasks"][0]["value"] is True


TALKATIVE = """
import sys

from holdfast import Pipeline

pipe = Pipeline("talkative")


@pipe.step(executor="EXECUTOR")
def talk() -> str:
    for stream in (sys.stdout, sys.stderr):
        print("a word", file=stream, flush=True)
        stream.writelines(["more\\n", "words\\n"])
    return "said"
"""


@pytest.mark.parametrize(
    ("options", "executor"),
    [
        ((), "thread"),
        ((), "process"),
        (("--json",), "process"),
        (("--quiet",), "thread"),
        pytest.param(("--json",), "thread", marks=pytest.mark.proof),
        pytest.param(("--quiet",), "process", marks=pytest.mark.proof),
    ],
)
def test_a_reader_that_has_gone_is_no_failure_of_a_step_that_prints(
    tmp_path: Path, options: tuple[str, ...], executor: str
) -> None:
    """`holdfast run FILE 2>&1 | head -1` ends the reading, not the work."""
    (tmp_path / "talk.py").write_text(TALKATIVE.replace("EXECUTOR", executor))
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "holdfast", "run", "talk.py", *options]
    try:
        done = subprocess.run(command, cwd=tmp_path, stdout=writer, stderr=writer, check=False, timeout=60)
    finally:
        os.close(writer)
    assert done.returncode == 0
    asked = [sys.executable, "-m", "holdfast", "status", "--json"]
    status = json.loads(subprocess.run(asked, cwd=tmp_path, capture_output=True, check=True).stdout)
    assert (status["status"], status["tasks"][0]["attempts"]) == ("completed", 1)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("executor", ["thread", "process"])
def test_a_full_disk_behind_stdout_is_no_failure_of_a_step_that_prints(tmp_path: Path, executor: str) -> None:
    """What a step printed is lost, and that is told at the end; its work is not."""
    (tmp_path / "talk.py").write_text(TALKATIVE.replace("EXECUTOR", executor))
    command = [sys.executable, "-m", "holdfast", "run", "talk.py", "--quiet"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=full, check=False, timeout=60)
    assert done.returncode == 6
    asked = [sys.executable, "-m", "holdfast", "status", "--json"]
    status = json.loads(subprocess.run(asked, cwd=tmp_path, capture_output=True, check=True).stdout)
    assert (status["status"], status["tasks"][0]["attempts"]) == ("completed", 1)


def test_what_a_step_in_a_process_prints_is_seen(tmp_path: Path) -> None:
    """A worker is killed when the run is over; what it printed before is not lost with it."""
    (tmp_path / "p.py").write_text(
        "from holdfast import Pipeline\npipe = Pipeline('p')\n\n\n"
        "@pipe.step(executor='process')\ndef one() -> int:\n    print('a short word')\n    return 1\n"
    )
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "holdfast", "run", "p.py"]
    said = subprocess.run(command, cwd=tmp_path, env=buffered, capture_output=True, text=True, check=True)
    assert "a short word" in said.stderr


SHARED = """
from pathlib import Path

from holdfast import Context, Pipeline

pipe = Pipeline("shared")
pipe.items("part", [f"p{number}" for number in range(12)])


def say(ctx: Context) -> None:
    with open(ctx.dir / "began.log", "a") as log:
        print(ctx.task_id, file=log)


@pipe.step(each="part", writes="parts/{part}.md")
def write(ctx: Context, part: str) -> str:
    say(ctx)
    return f"text of {part}\\n"


@pipe.step(writes="whole.md")
def whole(ctx: Context, write: dict[str, str]) -> str:
    say(ctx)
    return "".join(write.values())
"""


@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.proof), 5])
def test_many_processes_on_one_project_do_every_step_once(start: Start, tmp_path: Path, count: int) -> None:
    """One of them runs it; the others are refused, or come when it is done and find nothing to do."""
    (tmp_path / "p.py").write_text(SHARED)
    command = ("run", str(tmp_path / "p.py"), "--dir", str(tmp_path))
    ended = [(*process.communicate(), process.returncode) for process in [start(*command) for _ in range(count)]]
    codes = [code for _, _, code in ended]
    assert 0 in codes and set(codes) <= {0, 5}, ended
    for _, err, code in ended:
        assert code == 0 or ("runs this project" in err and len(err.splitlines()) == 1), err
    began = (tmp_path / "began.log").read_text().split()
    assert sorted(began) == sorted({*began}) and len(began) == 13
    assert start("verify", "--dir", str(tmp_path)).wait() == 0
