"""`holdfast verify` as people and scripts see it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import EXIT_DAMAGE

from .conftest import Project

WRITING = """
from holdfast import Pipeline

pipe = Pipeline("book")


@pipe.step(writes="a.md")
def a() -> str:
    return "text\\n"
"""


def with_file(project: Project) -> str:
    (project.root / "book.py").write_text(WRITING)
    assert project.run().code == 0
    return project.run_ids()[0]


def test_a_whole_run_ends_with_what_was_checked(project: Project) -> None:
    """One line, exit 0."""
    run_id = with_file(project)
    said = project("verify")
    assert said.code == 0
    assert said.lines[-1].startswith(f"run {run_id}: checked 1 artifact, 1 object, ")
    assert said.lines[-1].endswith(" 1 snapshot: all is whole")


def test_each_finding_is_one_line_with_its_remedy(project: Project) -> None:
    """What, where, and a command that can be typed as it stands."""
    run_id = with_file(project)
    (project.root / "a.md").unlink()
    said = project("verify", run_id)
    assert said.code == EXIT_DAMAGE
    assert said.lines[0] == f"a: a.md is missing. holdfast resume {run_id} --dir '{project.root}' puts it back"
    assert said.lines[-1].endswith(": 1 finding")
    assert project("resume", run_id).code == 0
    assert project("verify").code == 0


def test_json_has_findings_notes_and_counts(project: Project) -> None:
    """One document, also when something is off."""
    run_id = with_file(project)
    assert json.loads(project("verify", "--json").out)["ok"] is True
    (project.root / "a.md").unlink()
    (project.root / "RESUME.md").unlink()
    said = project("verify", "--json")
    document = json.loads(said.out)
    assert said.code == EXIT_DAMAGE
    assert (document["run_id"], document["ok"]) == (run_id, False)
    assert document["findings"][0].keys() == {"task", "path", "problem", "detail", "fix"}
    assert document["findings"][0]["problem"] == "missing"
    assert document["notes"] == ["RESUME.md is missing; the next run writes it anew"]
    assert document["checked"]["artifacts"] == 1


def test_an_unknown_run_is_an_error(project: Project) -> None:
    """Never a run that happens to be there."""
    with_file(project)
    assert project("verify", "nobody").code == 2


def test_a_pipeline_file_that_is_gone_is_a_note(project: Project) -> None:
    """All but the checks is verified without it."""
    with_file(project)
    (project.root / "book.py").unlink()
    said = project("verify")
    assert said.code == 0
    assert "note: the pipeline does not load, so its checks were not applied" in said.out


def test_hostile_names_are_harmless(project: Project) -> None:
    """Whatever stands in a file's name or text, the terminal shows it escaped."""
    with_file(project)
    run_id = project.run_ids()[0]
    journal = project.root / ".holdfast" / "runs" / run_id / "events.jsonl"
    journal.write_bytes(journal.read_bytes() + b"\x1b[31mred\n")
    assert "\x1b" not in project("verify").out


def test_what_a_pipeline_prints_does_not_spoil_the_document(tmp_path: Path) -> None:
    """stdout is for the report alone."""
    (tmp_path / "book.py").write_text("print('hello')\n" + WRITING)
    command = [sys.executable, "-m", "holdfast"]
    subprocess.run([*command, "run", "book.py"], cwd=tmp_path, capture_output=True, check=True)
    done = subprocess.run([*command, "verify", "--json"], cwd=tmp_path, capture_output=True, check=True)
    assert json.loads(done.stdout)["ok"] is True
    assert b"hello" in done.stderr


@pytest.mark.parametrize(("kind", "is_shown"), [("xterm", True), ("dumb", False)])
def test_how_far_it_is_is_shown_where_it_can_be_drawn_over(
    project: Project, monkeypatch: pytest.MonkeyPatch, kind: str, is_shown: bool
) -> None:
    """A terminal that cannot move its cursor would show the signs that are to move it."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    with_file(project)
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr("holdfast.cli.check._REDRAW_S", -1.0)
    assert project("verify").code == 0
    assert ("\x1b[K" in terminal.getvalue()) is is_shown


def test_the_way_back_of_a_lost_journal_can_be_pasted(project: Project) -> None:
    """`resume` is named only where a view says which pipeline it is; else a command that says so."""
    project.run("--run-id", "one")
    run = project.root / ".holdfast" / "runs" / "one"
    for path in [*run.glob("checkpoint*"), project.root / "RESUME.md"]:
        path.unlink()
    (run / "events.jsonl").write_bytes(b"garbage\n" * 3)
    said = project("verify", "one")
    assert said.code == 4
    assert f"Name its pipeline: holdfast run FILE.py --resume one{project.there}\n" in said.out
    for path in run.iterdir():
        path.unlink()
    begin = f"Begin it again: holdfast run FILE.py --run-id one{project.there}\n"
    assert begin in project("verify", "one").out
    assert project.run("--run-id", "one").code == 0
