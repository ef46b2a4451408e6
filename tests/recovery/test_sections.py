"""Sections of memory files, seen by `scan`, `plan`, `verify`, `recover` and the views."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from holdfast import Context, Pipeline
from holdfast.project.results import RecoverResult

FILE = "meta/terms.md"


def book(ran: list[str] | None = None) -> Pipeline:
    log = [] if ran is None else ran
    pipe = Pipeline("book")
    pipe.items("ch", ["a", {"id": "b", "after": ["a"]}, {"id": "c", "after": ["b"]}])

    @pipe.step(each="ch", writes="{ch}.md")
    def draft(ctx: Context, ch: str, terms: dict[str, str]) -> str:
        log.append(ctx.task_id)
        return f"{ch} knows {', '.join(terms)}\n"

    @pipe.step(each="ch", appends=FILE, sources="draft")
    def terms(ctx: Context, source: str) -> str:
        log.append(ctx.task_id)
        return f"terms of {source}"

    return pipe


@pytest.fixture
def project(tmp_path: Path) -> Path:
    assert book().run(dir=tmp_path, run_id="r").status == "completed"
    return tmp_path


def damage(project: Path, old: bytes, new: bytes) -> None:
    path = project / FILE
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new))


def scanned(project: Path) -> dict[str, str]:
    found = Harness(project).scan(book())
    assert not found.strangers
    return {finding.task: finding.kind for finding in found.files}


def recovered(project: Path, **options: Any) -> RecoverResult:
    return Harness(project).recover(book(), **options)


def actions(recovery: RecoverResult) -> dict[str, tuple[str, str]]:
    return {task.id: (task.action, task.reason) for task in recovery.tasks}


def test_scan_tells_each_section(project: Path) -> None:
    """Whole, edited, damaged and missing ones; a chapter made from a lost section is not called stale for that."""
    assert set(scanned(project).values()) == {"sealed"}
    damage(project, b"terms of a", b"TERMS of a")
    damage(project, b"terms of c", b"terms\0of c")
    (project / "b.md").unlink()
    found = scanned(project)
    assert (found["terms[a]"], found["terms[b]"], found["terms[c]"]) == ("changed", "sealed", "damaged")
    damage(project, b"section=terms[b]", b"SECTION")
    damage(project, b"task=terms[b]", b"TASK")
    found = scanned(project)
    assert (found["terms[b]"], found["draft[c]"]) == ("missing", "sealed")


def test_verify_finds_what_is_wrong_with_a_section(project: Path) -> None:
    """A whole memory is no finding, also after its source was made anew; a damaged section is one."""
    assert Harness(project).verify("r").findings == []
    damage(project, b"terms of b", b"terms\0of b")
    (finding,) = Harness(project).verify("r").findings
    assert (finding.task, finding.path, finding.problem) == ("terms[b]", FILE, "damaged")


def test_plan_says_that_sections_are_healed(project: Path) -> None:
    """All of them, if the file is gone; nothing is written."""
    (project / FILE).unlink()
    plan = Harness(project).plan(book())
    assert {task.id for task in plan.tasks if task.action == "heal"} == {"terms[a]", "terms[b]", "terms[c]"}
    assert not (project / FILE).exists()


@pytest.mark.parametrize("lost", [b"", b"terms of b"])
def test_recover_does_what_it_said_it_would(project: Path, lost: bytes) -> None:
    """The decisions of the dry run and of the real one are the same, also where one writing puts several back."""
    if lost:
        damage(project, lost, b"terms\0of b")
    else:
        (project / FILE).unlink()
    foreseen = recovered(project, dry_run=True)
    done = recovered(project)
    assert actions(done) == actions(foreseen)
    assert set(scanned(project).values()) == {"sealed"}
    again = recovered(project)
    assert {action for action, _ in actions(again).values()} == {"trust"}


def test_recover_after_everything_was_lost_adopts_whole_sections(project: Path) -> None:
    """Foreseen as done; the damaged one is left for the run, which makes it from its draft."""
    damage(project, b"terms of b", b"terms\0of b")
    shutil.rmtree(project / ".holdfast")
    foreseen = recovered(project, dry_run=True)
    assert actions(recovered(project)) == actions(foreseen)
    assert {task: action for task, (action, _) in actions(foreseen).items() if action != "adopt"} == {
        "terms[b]": "run"
    }
    ran: list[str] = []
    assert book(ran).run(dir=project).status == "completed"
    assert ran == ["terms[b]"]


def test_views_show_a_memory_step_like_any_other(project: Path) -> None:
    """A column of the matrix, rows with their dependencies, and the file among the places in RESUME.md."""
    assert "| ch | draft | terms |" in (project / "checkpoint.md").read_text()
    assert f"terms: `{FILE}`, a section an item" in (project / "RESUME.md").read_text()
    with closing(sqlite3.connect(project / ".holdfast" / "todos.db")) as todos:
        rows = todos.execute("SELECT todo_id, depends_on FROM todo_deps").fetchall()
    assert {("terms[b]", "draft[b]"), ("draft[b]", "terms[a]")} <= set(rows)
