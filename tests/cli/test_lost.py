"""All of .holdfast lost: `resume`, `recover` and `scan` find pipeline, run and parameters in RESUME.md."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Project

from refusing import refuse_reading

TITLE = "\n\n@pipe.step(writes='title.md')\ndef title(topic: str) -> str:\n    return topic\n"


@pytest.fixture
def lost(project: Project) -> Project:
    """A finished run with parameters of its own, and nothing left of its record."""
    path = project.root / "book.py"
    path.write_text(path.read_text(encoding="utf-8") + TITLE, encoding="utf-8")
    assert project.run("--run-id", "first", "-p", "topic=tides", "-p", "n=3").code == 0
    shutil.rmtree(project.root / ".holdfast")
    return project


@pytest.mark.parametrize("words", [("resume",), ("resume", "first")])
def test_resume_needs_no_arguments(lost: Project, words: tuple[str, ...]) -> None:
    """The run has its id and its parameters back, and nothing with a sealed file ran."""
    said = lost(*words)
    assert said.code == 0, said.err
    assert "run first, its record is lost, topic=tides, n=3" in said.lines[0]
    assert "✓ title" not in said.err
    assert "✓ draft" not in said.err


def test_recover_needs_no_arguments(lost: Project) -> None:
    """Then `status` knows the run again."""
    assert lost("recover").code == 0
    said = lost("status")
    assert "run first" in said.lines[0]
    assert "  topic: tides" in said.lines


def test_scan_needs_no_arguments(lost: Project) -> None:
    """It looks at the files that the pipeline named in RESUME.md would have written."""
    said = lost("scan")
    assert said.code == 0
    assert "1 sealed and whole" in said.out


@pytest.mark.parametrize("words", [(), ("--resume", "first"), ("FILE",)])
def test_plan_needs_no_arguments(lost: Project, words: tuple[str, ...]) -> None:
    """It says what `resume` would do with the run's own parameters, and creates nothing; the same with FILE."""
    before = lost.files()
    words = tuple(str(lost.root / "book.py") if word == "FILE" else word for word in words)
    said = lost("plan", *words)
    assert said.code == 0, said.err
    assert said.lines[0] == "book: run first (its record is lost)"
    plan = json.loads(lost("plan", *words, "--json").out)
    assert (plan["run_id"], plan["record_lost"]) == ("first", True)
    foreseen = json.loads(lost("recover", "--dry-run", "--json").out)
    actions = {task["id"]: (task["action"], task["reason"]) for task in plan["tasks"]}
    assert actions == {task["id"]: (task["action"], task["reason"]) for task in foreseen["tasks"]}
    assert actions["title"][0] == "adopt" and "draft[ch03]" in actions
    assert lost.files() == before


def test_run_with_other_parameters_names_the_command_that_goes_on(lost: Project) -> None:
    """It would pay for all of it again; what it names does not."""
    before = lost.files()
    said = lost.run()
    assert said.code == 2
    where = f"--dir {shlex.quote(str(lost.root))}"
    assert f"'holdfast resume first {where}' goes on with the parameters in RESUME.md." in said.err
    assert lost.files() == before


@pytest.mark.parametrize("words", [("status",), ("status", "first"), ("verify",), ("why", "title"), ("list",)])
def test_a_lost_record_is_not_no_runs(lost: Project, words: tuple[str, ...]) -> None:
    """One line says that it is lost and what brings it back; the exit status is that of a project without runs."""
    said = lost(*words)
    assert said.code == (0 if words == ("list",) else 2)
    (line,) = (said.out + said.err).splitlines()
    ways = f"holdfast recover{lost.there} (or holdfast resume{lost.there})"
    assert f"The record of run first is lost. {ways} rebuilds it from the files." in line


@pytest.mark.parametrize("words", [("status",), ("verify", "first"), ("list",)])
def test_a_record_that_was_cleaned_is_not_called_lost(project: Project, words: tuple[str, ...]) -> None:
    """`clean` removes records of completed runs, too; RESUME.md stays, as everything of the work tree does."""
    assert project.run("--run-id", "first").code == 0
    assert project("clean", "--max-runs", "0").code == 0
    said = project(*words)
    (line,) = (said.out + said.err).splitlines()
    assert line.startswith("The record of run first, which was completed, is gone: cleaned, or lost. ")
    assert f"holdfast recover{project.there}" in line
    (project.root / "fail-ch01").touch()
    assert project.run("--run-id", "second", "-p", "n=1").code == 1
    shutil.rmtree(project.root / ".holdfast" / "runs" / "second")  # unfinished: no clean did this
    assert "The record of run second is lost. " in project("status").err


def test_parameters_that_the_files_contradict_are_refused(lost: Project) -> None:
    """RESUME.md was edited: what the seals say is believed, and the right parameter leads on."""
    letter = lost.root / "RESUME.md"
    letter.write_text(letter.read_text(encoding="utf-8").replace("tides", "waves"), encoding="utf-8")
    said = lost("resume")
    assert said.code == 2
    assert "another topic" in said.err
    assert lost("resume", "-p", "topic=tides").code == 0


@pytest.mark.parametrize("command", ["resume", "recover"])
def test_a_letter_from_another_project_does_not_have_everything_paid_for_again(
    lost: Project, command: str
) -> None:
    """It names a run that no file knows, with parameters that none was made with; the files' own lead on."""
    letter = lost.root / "RESUME.md"
    text = letter.read_text(encoding="utf-8").replace("tides", "waves").replace("first", "elsewhere")
    letter.write_text(text, encoding="utf-8")
    before = lost.files()
    said = lost(command)
    assert (said.code, lost.files()) == (2, before)
    assert "is of run first, whose record is lost, and was made with another topic." in said.err
    assert lost("run", "book.py", "-p", "topic=tides", "--json").code == 0


def test_another_id_is_still_unknown(lost: Project) -> None:
    """An id that nothing speaks of is an error, never a fresh start."""
    said = lost("resume", "second")
    assert said.code == 2
    assert "There is no run second" in said.err


def test_a_letter_does_not_make_us_run_files_outside_the_project(lost: Project, tmp_path: Path) -> None:
    """RESUME.md is text that anybody can write."""
    evil = lost.root.parent / "evil.py"
    evil.write_text("raise SystemExit('executed')\n", encoding="utf-8")
    letter = lost.root / "RESUME.md"
    letter.write_text(
        letter.read_text(encoding="utf-8").replace("`book.py:pipe`", "`../evil.py`"), encoding="utf-8"
    )
    assert "../evil.py" in letter.read_text(encoding="utf-8")
    said = lost("resume")
    assert said.code == 2
    assert "outside this project" in said.err
    assert "executed" not in said.err + said.out


def test_other_parameters_than_the_owner_of_the_files_name_the_way_out(lost: Project) -> None:
    """A run found again with one parameter wrong is not stuck: the refusal says how to change it."""
    (lost.root / "RESUME.md").unlink()
    (lost.root / "checkpoint.md").unlink()
    assert lost("recover", "book.py", "-p", "topic=tides").code == 0  # n was 3, and no seal knows it
    said = lost.run("-p", "topic=tides", "-p", "n=3")
    assert said.code == 2
    assert "title.md, which belongs to run first. " in said.err
    assert " --resume first -p n=3 " in said.err
    assert lost.run("--resume", "first", "-p", "n=3").code == 0


@pytest.mark.parametrize("command", ["status", "resume", "verify", "events", "list"])
def test_where_only_checkpoint_md_is_left_the_way_back_is_told(lost: Project, command: str) -> None:
    """The files name the run, but not its pipeline: given that, the run is back, with its id."""
    (lost.root / "RESUME.md").unlink()
    said = lost(command)
    assert said.code == (0 if command == "list" else 2)
    assert said.out + said.err == (
        "No run is on record here, but files of run first are. "
        f"Bring it back with its file and parameters: holdfast run FILE.py -p NAME=VALUE{lost.there}\n"
    )
    assert lost("recover", str(lost.root / "book.py"), "-p", "topic=tides", "-p", "n=3").code == 0
    assert "run first" in lost("status").lines[0]
    assert lost("resume").code == 0


def test_without_letter_and_seals_there_is_nothing_to_resume(project: Project) -> None:
    """One clear line."""
    said = project("resume")
    assert said.code == 2
    assert "no runs yet" in said.err


@pytest.mark.parametrize("command", ["recover", "scan"])
def test_with_file_the_parameters_come_from_resume_md_too(lost: Project, command: str) -> None:
    """The same is said with FILE and without it."""
    words = [command, "--dry-run"] if command == "recover" else [command]
    assert lost(*words, str(lost.root / "book.py"), "--json").out == lost(*words, "--json").out


@pytest.mark.parametrize("command", ["status", "resume", "plan", "why"])
def test_a_journal_that_may_not_be_read_is_told_with_its_remedy(
    project: Project, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with checkpoint.json gone: it is a matter of permission, not of a lost record."""
    assert project.run("--run-id", "first").code == 0
    run_dir = project.root / ".holdfast" / "runs" / "first"
    (run_dir / "checkpoint.json").unlink()
    refuse_reading(run_dir / "events.jsonl", monkeypatch)
    said = project(command, *(["draft[ch01]"] if command == "why" else []))
    assert said.code == 6
    assert "events.jsonl: Permission denied." in said.err and "chmod u+rw" in said.err


@pytest.mark.parametrize("command", ["status", "resume", "plan", "why", "scan", "recover", "events", "verify"])
def test_a_run_that_cannot_be_read_is_not_passed_over(
    project: Project, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where another one reads: which of the two is meant, nobody can tell."""
    assert project.run("--run-id", "first").code == 0
    assert project.run("--run-id", "second", "-p", "n=1").code == 0
    refuse_reading(project.root / ".holdfast" / "runs" / "second" / "events.jsonl", monkeypatch, errno.EIO)
    said = project(command, *(["draft[ch01]"] if command == "why" else []))
    assert (said.code, said.out) == (6, "")
    assert "second/events.jsonl: Input/output error." in said.err
    assert project("status", "first").code == 0


def test_a_pipeline_that_cannot_be_looked_at_is_not_gone(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine's trouble is told as such, and nobody is sent to look for the file."""
    assert project.run("--run-id", "first").code == 0
    really = os.lstat

    def failing(path: Any, **options: Any) -> os.stat_result:
        if str(path).endswith("book.py"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return really(path, **options)

    monkeypatch.setattr(os, "lstat", failing)
    said = project("resume")
    assert said.code == 6
    assert "book.py: Input/output error." in said.err
