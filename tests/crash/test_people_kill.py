"""A kill or a power cut while a person's word is recorded or carried out: it is heard once, and nothing is lost.

Which of the places are tried is said in sampling.py.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from .people_victim import LONG, RUN_ID, WORDS, Project, again_in, chapters, cuts, story

pytestmark = pytest.mark.usefixtures("unsynced")

SAMPLE = 1
COPIES = pytest.mark.parametrize("copy", [True, False], ids=["copied", "uncopied"])


def waiting(folder: Path, *, copy: bool) -> Project:
    """A project at its gate."""
    project = Project(folder, copy=copy)
    folder.mkdir()
    assert project.run(chapters(project)).status == "paused"
    return project


def approved(project: Project) -> None:
    project.approve("look", run_id=RUN_ID)
    assert project.run(chapters(project)).status == "completed"


@COPIES
@pytest.mark.parametrize("choice", ["keep", "restore", "redo"])
def test_an_answer_about_an_edit_is_carried_out_once(tmp_path: Path, choice: str, copy: bool) -> None:
    """Once it is told it is not asked for again; the edit is there still, and every file of the step is."""
    before = waiting(tmp_path / "before", copy=copy)
    approved(before)
    before.scribble("drafts/c1.md")
    assert before.run(chapters(before)).status == "paused"
    ends: list[dict[str, list[bytes]]] = []

    def answer(project: Project) -> None:
        project.decide("draft[c1]", choice, run_id=RUN_ID)
        project.say("answered")
        assert project.run(chapters(project)).status == "completed"
        ends.append(project.bodies())

    for left, told, words in cuts(before, answer, tmp_path / choice, SAMPLE):
        status = left.run(chapters(left)).status
        if "answered" not in told and left.asked() == {"draft[c1]"}:
            answer(left)
        else:
            assert status == "completed", f"{words}: {left.asked()}"
        left.check(told, words)
        assert left.has(WORDS), words
        assert left.bodies() == ends[0], words


@COPIES
def test_an_answer_about_an_edit_in_a_lost_run_is_carried_out_once(tmp_path: Path, copy: bool) -> None:
    """What the old seals knew of cost and value stands in those of the edit, and nobody is asked twice."""
    before = waiting(tmp_path / "before", copy=copy)
    approved(before)
    before.scribble("drafts/c1.md")
    shutil.rmtree(before.runs)
    assert before.run(chapters(before)).status == "paused"
    ends: list[tuple[float, dict[str, list[bytes]]]] = []

    def answer(project: Project) -> None:
        project.decide("draft[c1]", "keep", run_id=RUN_ID)
        project.say("answered")
        result = project.run(chapters(project))
        assert result.status == "completed", project.asked()
        ends.append((result.cost_usd, project.bodies()))

    for left, told, words in cuts(before, answer, tmp_path / "cuts", SAMPLE):
        result = left.run(chapters(left))
        if "answered" not in told and left.asked() == {"draft[c1]"}:
            answer(left)
        else:
            assert result.status == "completed", f"{words}: {left.asked()}"
            assert result.cost_usd == ends[0][0], words
        left.check(told, words)
        assert left.has(WORDS), words
        assert left.bodies() == ends[0][1], words


@COPIES
def test_what_is_sent_back_at_a_gate_comes_back_once(tmp_path: Path, copy: bool) -> None:
    """Rejected, done again and approved: whatever of that was told stays so, and no round is paid for twice."""
    before = waiting(tmp_path / "before", copy=copy)

    def send_back(project: Project) -> None:
        project.reject("look", "draft[c1]", "shorter", run_id=RUN_ID)
        project.say("rejected")
        assert project.run(chapters(project)).status == "paused"
        project.approve("look", run_id=RUN_ID)
        project.say("approved")
        assert project.run(chapters(project)).status == "completed"

    for left, told, words in cuts(before, send_back, tmp_path / "gate", SAMPLE):
        status = left.run(chapters(left)).status
        assert not left.asked(), words
        if status == "paused":
            assert "approved" not in told, words
            approved(left)
        left.check(told, words)
        if "rejected" in told:
            assert "shorter" in (left.root / "book.md").read_text(), words


@COPIES
@pytest.mark.parametrize("name", ["story.md", "story.md.part"])
def test_a_half_finished_text_that_is_continued_is_not_lost(tmp_path: Path, name: str, copy: bool) -> None:
    """It is somewhere at every moment: NAME.part goes only when what was made of it is durable."""
    before = Project(tmp_path / "before", copy=copy)
    before.root.mkdir()
    (before.root / name).write_text(LONG)

    def go_on(project: Project) -> None:
        assert project.run(story(project, on_partial="continue")).status == "completed"

    for left, told, words in cuts(before, go_on, tmp_path / "cuts", SAMPLE):
        go_on(left)
        left.check(told, words)
        assert left.has(WORDS), words


@COPIES
@pytest.mark.parametrize("name", ["story.md", "story.md.part"])
def test_a_half_finished_text_that_is_kept_is_not_lost(tmp_path: Path, name: str, copy: bool) -> None:
    """Sealed as it is, it is in its place whenever the power goes, and is asked about once."""
    before = Project(tmp_path / "before", copy=copy)
    before.root.mkdir()
    (before.root / name).write_text(LONG)
    assert before.run(story(before, on_partial="ask")).status == "paused"

    def keep(project: Project) -> None:
        project.decide("story", "keep", run_id=RUN_ID)
        project.say("answered")
        assert project.run(story(project, on_partial="ask")).status == "completed"

    for left, told, words in cuts(before, keep, tmp_path / "cuts", SAMPLE):
        status = left.run(story(left, on_partial="ask")).status
        if "answered" not in told and status == "paused":
            keep(left)
        left.check(told, words)
        assert (left.root / "story.md").read_text().startswith(LONG), words
        assert (left.root / "book.md").read_text().startswith(LONG.upper()), words


def turn_back_on_page(project: Project) -> None:
    page = project.root / "checkpoint.md"
    page.write_text(page.read_text().replace("| c1 | ✅ |", "| c1 | — |"))


def turn_back_in_todos(project: Project) -> None:
    database = sqlite3.connect(project.todos_db)
    database.execute("UPDATE todos SET status = 'pending' WHERE id = 'draft[c1]'")
    database.commit()
    database.close()


def turn_back_in_both(project: Project) -> None:
    turn_back_on_page(project)
    turn_back_in_todos(project)


@pytest.mark.parametrize("turn_back", [turn_back_on_page, turn_back_in_todos, turn_back_in_both])
def test_a_task_turned_back_in_a_view_is_done_again_once(
    tmp_path: Path, turn_back: Callable[[Project], None]
) -> None:
    """The edited view may be there still, or again, when its wish has been granted: that is no second wish."""
    before = waiting(tmp_path / "before", copy=True)
    approved(before)
    turn_back(before)

    def run(project: Project) -> None:
        if project.run(chapters(project)).status == "paused":
            approved(project)

    for left, told, words in cuts(again_in(before, tmp_path / "turned"), run, tmp_path / "cuts", SAMPLE):
        run(left)
        left.check(told, words)
        paid = {line for line in told + left.said if line.startswith("pay draft")}
        assert paid == {"pay draft[c1]@1"}, words


@COPIES
def test_a_forced_run_that_is_cut_off_starts_over_all_the_same(tmp_path: Path, copy: bool) -> None:
    """Whoever continues it sets aside what the run before left in its way, edits too, and asks nobody."""
    before = waiting(tmp_path / "before", copy=copy)
    approved(before)
    before.scribble("drafts/c1.md")

    def start_over(project: Project) -> None:
        assert project.run(chapters(project), run_id="anew", force=True).status == "paused"

    for left, told, words in cuts(before, start_over, tmp_path / "cuts", SAMPLE):
        # Of a first line that was never synced, the end alone may be left: then nothing is known of it.
        has_begun = "anew" in {run.run_id for run in left.project.runs() if not run.problem}
        assert left.run(chapters(left), run_id="anew", force=not has_begun).status == "paused", words
        left.approve("look", run_id="anew")
        assert left.run(chapters(left), run_id="anew").status == "completed", f"{words}: {left.asked('anew')}"
        left.check(told, words, "anew")
        assert left.has(WORDS), words
        assert WORDS not in (left.root / "book.md").read_bytes(), words
