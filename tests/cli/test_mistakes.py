"""Hostile and broken input: one line on stderr, the right exit status, no traceback, nothing created."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from holdfast.cli import main as cli

from .conftest import Project, Said

HOSTILE_IDS = [
    "../x",
    "/etc/passwd",
    "",
    ".",
    "..",
    "a/b",
    "a\0b",
    "a\nb",
    "a\x1b[2Jb",
    "a\u202eb",
    "x" * 5000,
    "con",
    "NUL.txt",
    ".clean-x",
    "-rf",
    "ä",
]


def is_one_clean_line(said: Said) -> bool:
    lines = said.err.splitlines()
    return len(lines) == 1 and lines[0].isprintable() and len(lines[0]) < 1000 and "Traceback" not in said.err


@pytest.mark.parametrize("run_id", HOSTILE_IDS, ids=lambda text: ascii(text)[:20])
@pytest.mark.parametrize(
    "words",
    [
        ["run", "book.py", "--run-id={}"],
        ["run", "book.py", "--resume={}"],
        ["resume", "--", "{}"],
        ["status", "--", "{}"],
        ["events", "--", "{}"],
        ["plan", "--resume={}"],
        ["why", "draft", "--run={}"],
        ["approve", "publish_ok", "--run={}"],
        ["note", "words", "--run={}"],
    ],
    ids=lambda words: words[0] + words[-1][:8],
)
def test_hostile_run_ids(project: Project, words: list[str], run_id: str) -> None:
    """No run id leads out of the project, into the terminal, or to a new folder."""
    before = project.files()
    said = project(*(word.format(run_id) for word in words))
    assert (said.code, said.out) == (2, "")
    assert is_one_clean_line(said)
    assert project.files() == before


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("def (:\n", "book.py:1"),
        ("x = 1\nraise ValueError('a\\x1b[2Jb')\n", "book.py:2"),
        ("import sys\nsys.exit(0)\n", "SystemExit"),
        ("x = 1\n", "has no pipeline"),
        ("from holdfast import Pipeline\na = Pipeline('a')\nb = Pipeline('b')\n", "2 pipelines"),
        (
            "from holdfast import Pipeline\np = Pipeline('p')\n@p.step\ndef s(nothing: str) -> str: ...\n",
            "nothing",
        ),
    ],
)
def test_broken_pipeline_files(project: Project, source: str, part: str) -> None:
    """A file that does not load, or has no single pipeline, is exit 2 and one line that says where."""
    (project.root / "book.py").write_text(source, encoding="utf-8")
    before = project.files()
    said = project.run()
    assert said.code == 2
    assert is_one_clean_line(said)
    assert part in said.err
    assert project.files() == before


@pytest.mark.parametrize("file", ["nosuch.py", "book.txt", "book.py:nosuch", "book.py:", "", "a\0.py"])
def test_file_that_is_not_there(project: Project, file: str) -> None:
    """A FILE that names no pipeline is exit 2 and one line."""
    said = project("run", file)
    assert said.code == 2
    assert is_one_clean_line(said)
    assert not (project.root / ".holdfast").exists()


def test_file_is_found_where_the_command_is_typed(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FILE is relative to the current folder, and only if it is not there to the project."""
    (tmp_path / "book.py").write_text("raise ValueError('the one here')\n", encoding="utf-8")
    assert project("run", "book.py").code == 0
    monkeypatch.chdir(tmp_path)
    assert "the one here" in project("run", "book.py").err


@pytest.mark.parametrize("target", ["elsewhere", "missing"])
def test_symlinked_state_is_not_followed(project: Project, tmp_path: Path, target: str) -> None:
    """A .holdfast that is a symbolic link is refused by every command, and nothing is written behind it."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (project.root / ".holdfast").symlink_to(tmp_path / target)
    for words in (["run", "book.py"], ["resume"], ["status"], ["list"], ["clean"], ["note", "words"]):
        said = project(*words)
        assert said.code == 4
        assert is_one_clean_line(said)
    assert list(elsewhere.iterdir()) == []


def test_symlinked_run_is_not_followed(project: Project, tmp_path: Path) -> None:
    """A run whose folder was moved, and a link left there, is not lost: nothing is paid for again beside it."""
    project.run("--run-id", "real")
    runs = project.root / ".holdfast" / "runs"
    (runs / "real").rename(tmp_path / "moved")
    (runs / "real").symlink_to(tmp_path / "moved")
    before = sorted(tmp_path.rglob("*"))
    for words in (
        "status real",
        "resume real",
        "run book.py --run-id real",
        "status",
        "resume",
        "run book.py",
        "note x",
    ):
        said = project(*words.split())
        assert (said.code, is_one_clean_line(said)) == (2, True), (words, said)
        assert "Put the folder itself in its place" in said.err
    assert "unreadable" in project("list").out
    assert sorted(tmp_path.rglob("*")) == before
    (runs / "real").unlink()
    (tmp_path / "moved").rename(runs / "real")
    assert project("resume", "real").code == 0


@pytest.mark.parametrize("directory", ["nosuch", "book.py", "a\0b", "x" * 5000])
def test_wrong_directory(project: Project, directory: str) -> None:
    """A --dir that is no folder is one line and never a traceback."""
    code = cli.run(["status", "--dir", str(project.root / directory)])
    assert code in (2, 6)


def test_errors_as_json(project: Project) -> None:
    """With --json an error is a document with code, message and fix on stdout, and the status stays."""
    said = project("status", "nosuch", "--json")
    assert said.code == 2
    assert json.loads(said.out)["error"]["code"] == "unknown_run"
    assert set(json.loads(said.out)["error"]) == {"code", "message", "fix"}
    assert said.err == ""


def test_usage_errors_as_json(project: Project) -> None:
    """Also what click finds wrong is a document, though the line could not be parsed."""
    said = project("status", "--json", "--colour")
    assert said.code == 2
    assert json.loads(said.out)["error"]["code"] == "usage"


def test_unknown_command_points_to_help(project: Project) -> None:
    """A misspelt command is exit 2 and one line that says where help is."""
    said = project("stauts")
    assert said.code == 2
    assert is_one_clean_line(said)
    assert said.err == "No such command 'stauts'. Did you mean status? See: holdfast --help\n"


def test_help_has_a_short_name(project: Project) -> None:
    """-h is --help, of the program and of a command."""
    for words in (("-h",), ("status", "-h")):
        assert cli.run(words) == 0


def test_a_near_name_is_one_space_away(project: Project) -> None:
    """What was meant is told behind what is wrong, in one sentence each."""
    project.run("--run-id", "one")
    told = "There is no task drafft[ch02] in run one. Did you mean draft[ch02]?"
    assert project("why", "drafft[ch02]").err.rstrip() == told


def test_usage_error_points_to_the_help_of_the_command(project: Project) -> None:
    """The hint names the command that was typed."""
    assert project("why").err.rstrip().endswith("See: holdfast why --help")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("decide a", "Choose from: keep, restore, redo, continue, skip."),
        ("status a b", "Got unexpected extra argument (b)."),
        ("lisst", "No such command 'lisst'. Did you mean list?"),
    ],
)
def test_usage_errors_are_one_line_each(project: Project, words: str, told: str) -> None:
    """Also where the choices are listed."""
    said = project(*words.split())
    assert is_one_clean_line(said)
    assert f"{told} See: holdfast " in said.err


def test_no_command_shows_help_and_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    """`holdfast` alone prints the help; a script that lost its command sees exit 2."""
    assert cli.run([]) == 2
    assert "Commands:" in capsys.readouterr().out


def test_damaged_settings_are_named(project: Project) -> None:
    """A mistake in holdfast.toml is exit 2 and names file and setting."""
    (project.root / "holdfast.toml").write_text("[run]\nconcurrency = 'many'\n", encoding="utf-8")
    said = project.run()
    assert said.code == 2
    assert "holdfast.toml" in said.err
    assert is_one_clean_line(said)


def _broken_list(directory: object) -> None:
    raise ZeroDivisionError("an\x1b[2J accident")


def test_internal_error_is_one_line(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error nobody foresaw is exit 70 and one line; --debug, or the variable, adds the traceback."""
    monkeypatch.setattr("holdfast.runs.listing.open_project", _broken_list)
    said = project("list")
    assert said.code == 70
    assert said.err == "Internal error: ZeroDivisionError: an accident (run again with --debug)\n"
    assert "Traceback" in project("list", "--debug").err
    monkeypatch.setenv("HOLDFAST_DEBUG", "1")
    assert "Traceback" in project("list").err


def _interrupted(directory: object) -> None:
    raise KeyboardInterrupt


def test_interrupted_command_is_exit_130(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in any command is exit 130 and one line."""
    monkeypatch.setattr("holdfast.runs.listing.open_project", _interrupted)
    said = project("list")
    assert (said.code, said.err) == (130, "Interrupted.\n")
    for words in (["list"], ["run", "book.py"]):
        said = project(*words, "--json")
        document = {"error": {"code": "interrupted", "message": "Interrupted.", "fix": ""}}
        assert (said.code, said.err, json.loads(said.out)) == (130, "", document)


def test_interrupted_events_are_whole_lines(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is how `events -f --json` ends: its lines are followed by no document of another kind."""
    project.run()
    monkeypatch.setattr("time.sleep", _interrupted)
    said = project("events", "-f", "--json")
    assert (said.code, said.err) == (130, "Interrupted.\n")
    assert all("event" in json.loads(line) for line in said.lines)


TYPED = """
import json
from holdfast import Pipeline

pipe = Pipeline("typed", params={
    "shape": (json.loads, {"a": [1]}), "words": (str.split, []), "topic": (str, "kelp"), "loud": (bool, False),
})


@pipe.step(writes="out.md")
def out(shape: dict, words: list, topic: str, loud: bool) -> str:
    return f"{shape} {words} {topic} {loud}"
"""


@pytest.mark.parametrize(
    "given",
    [
        ['shape={"b": "it\'s"}'],
        ["words=two  words"],
        ["topic=two words"],
        ["loud=yes"],
        ["loud=yes", "shape=[]"],
    ],
)
@pytest.mark.parametrize("in_project", [True, False])
def test_a_command_that_is_suggested_works_as_it_stands(
    project: Project, monkeypatch: pytest.MonkeyPatch, given: list[str], in_project: bool
) -> None:
    """Pasted into a shell, the refused run's way out gives the parameters that were asked for."""
    file = project.root / "typed.py"
    file.write_text(TYPED)
    assert project("run", str(file)).code == 0
    monkeypatch.chdir(project.root if in_project else project.root.parent)
    said = project("run", str(file), *[word for text in given for word in ("-p", text)])
    assert said.code == 2
    _, found, command = said.err.partition(" Or change that run: holdfast ")
    assert found and command.count(" --dir ") == 1
    assert cli.run(shlex.split(command)) == 0
    made = (project.root / "out.md").read_text()
    assert made.splitlines()[0] != "{'a': [1]} [] kelp False"


def test_who_is_told_to_finish_a_run_first_can_paste_the_command(project: Project) -> None:
    """Of two commands in one sentence each stands by itself: no full stop is part of it, no option there twice."""
    file = project.root / "typed.py"
    gated = TYPED.replace('"typed",', '"typed", overwrite=True,') + "pipe.gate('ok', after=['out'])\n"
    file.write_text(gated)
    assert project("run", str(file)).code == 3
    said = project("run", str(file), "-p", "topic=other")
    assert said.code == 2
    _, found, rest = said.err.partition("Finish it first with 'holdfast ")
    command = rest.partition("', or start over")[0]
    assert found and command.count("--dir") == 1
    assert cli.run(shlex.split(command)) == 3


PHASES = """
from holdfast import Pipeline

pipe = Pipeline("phases")
pipe.phase("First")


@pipe.step(phase="First")
def one() -> int:
    return 1


def refuse() -> str:
    return "not yet"


pipe.phase("Kim's turn", checklist=[refuse])


@pipe.step(phase="Kim's turn")
def two(one: int) -> int:
    return 2
"""


def test_names_in_suggested_commands_are_quoted(project: Project) -> None:
    """A phase may be called what one likes, and is approved by the command that is printed."""
    (project.root / "phases.py").write_text(PHASES)
    said = project("run", str(project.root / "phases.py"))
    (command,) = [line.strip() for line in said.out.splitlines() if line.strip().startswith("holdfast approve")]
    words = shlex.split(command)[1:]
    assert "phase:Kim's turn" in words
    assert cli.run(words) == 0


@pytest.mark.parametrize(
    "step",
    [
        "@pipe.step(writes='book.py')\ndef write() -> str:",
        "pipe.items('name', ['book', 'x'])\n@pipe.step(each='name', writes='{name}.py')\ndef write(name) -> str:",
        "@pipe.step(writes={'a': 'a.md', 'b': '{topic}.py'})\ndef write() -> dict:",
    ],
)
def test_a_step_that_would_write_over_its_pipeline_is_refused(project: Project, step: str) -> None:
    """Nothing runs, and the file stays as it is, for `run` and for `plan`."""
    head = "from holdfast import Pipeline\npipe = Pipeline('p', params={'topic': (str, 'book')})\n"
    (project.root / "book.py").write_text(f"{head}{step}\n    raise SystemExit('it ran')\n")
    before = project.files()
    for command in ("run", "plan"):
        said = project(command, str(project.root / "book.py"))
        assert said.code == 2 and is_one_clean_line(said)
        assert "would write to book.py, which is the file of the pipeline itself" in said.err
    assert project.files() == before


def test_items_made_at_run_time_do_not_write_over_the_pipeline_either(project: Project) -> None:
    """That task asks, the others go on, and the file stays as it is."""
    source = (
        "from holdfast import Pipeline\npipe = Pipeline('p')\n"
        "@pipe.items('name')\ndef names() -> list:\n    return ['book', 'other']\n"
        "@pipe.step(each='name', writes='{name}.py')\ndef write(name) -> str:\n    return 'x = 1\\n'\n"
    )
    (project.root / "book.py").write_text(source)
    said = project.run()
    assert said.code == 3 and "write[book]: it would write to the same file as the pipeline itself" in said.out
    assert (project.root / "book.py").read_text() == source
    assert (project.root / "other.py").read_text() == "x = 1\n"


def test_a_deleted_current_folder_is_named(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no fault of the disk; a command that says where all is needs no current folder."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert cli.run(["status"]) == 2
    assert capsys.readouterr().err.startswith("The current folder was deleted. ")
    assert project("run", "book.py").code == 0
