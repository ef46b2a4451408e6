"""Where a run stands: the batch of the phase that is on, views that are up to date, a letter that adds up."""

from __future__ import annotations

import fcntl
import re

import pytest

from .project import RUN_ID, Project

ITEMS = 'pipe.items("part", ["a", {"id": "b", "after": ["a"]}, {"id": "z", "after": ["b"]}])\n'

TWO_PHASES = """
@pipe.step(each="part", phase="Writing", writes="d/{part}.md")
def draft(part: str) -> str:
    ran(f"draft[{part}]")
    return f"About {part}.\\n"


@pipe.step(each="part", phase="Publishing", writes="h/{part}.html")
def html(part: str, draft: str) -> str:
    ran(f"html[{part}]")
    return f"<p>{draft}</p>\\n"
"""

PICTURES = """
@pipe.step(each="part", phase="Writing", writes="d/{part}.md")
def draft(part: str) -> str:
    ran(f"draft[{part}]")
    return f"About {part}.\\n"


@pipe.step(each="picture", phase="Publishing", writes="p/{picture}.svg")
def drawn(picture: str) -> str:
    return "<svg></svg>\\n"
"""

LISTED = """
@pipe.step(phase="Planning")
def plan() -> list:
    return ["x", "y", "z"]


@pipe.items("part")
def parts(plan: list) -> list:
    return plan


@pipe.step(each="part", phase="Writing", writes="d/{part}.md")
def draft(part: str) -> str:
    ran(f"draft[{part}]")
    return f"About {part}.\\n"


pipe.gate("publish_ok", after=["draft"], ask="Read it once more")


@pipe.step(phase="Binding", writes="book.md", after=["publish_ok"])
def book(draft: dict) -> str:
    ran("book")
    return "".join(draft.values())
"""

VIEWS = ("checkpoint.md", "RESUME.md")


# --- the phase and its batch -----------------------------------------------------------------------------


def test_the_batch_is_that_of_the_phase_that_is_on(project: Project) -> None:
    """Killed in the third batch of the first phase, status and both pages name batch 3; html has not begun."""
    project.pipeline(ITEMS + TWO_PHASES).killed_in("draft[z]")
    project("recover")
    status = project.status()
    assert (status["phase"], status["batch"]) == ("Writing", 3)
    assert [project.line(view, "Current batch") for view in VIEWS] == ["- Current batch: 3"] * 2


@pytest.mark.parametrize(("task", "batch"), [("html[a]", 1), ("html[z]", 3)])
def test_the_next_phase_goes_through_the_batches_anew(project: Project, task: str, batch: int) -> None:
    """In the second phase the batch is that of the item at work there."""
    project.pipeline(ITEMS + TWO_PHASES).killed_in(task)
    status = project.status()
    assert (status["phase"], status["batch"]) == ("Publishing", batch)


def test_items_of_a_later_phase_have_no_say(project: Project) -> None:
    """Another fan-out, declared before but used in the next phase only, does not set the batch."""
    project.pipeline('pipe.items("picture", ["p1", "p2"])\n' + ITEMS + PICTURES).killed_in("draft[z]")
    status = project.status()
    assert (status["phase"], status["batch"]) == ("Writing", 3)


# --- views that a kill left behind the journal -----------------------------------------------------------


@pytest.fixture
def behind(project: Project) -> dict[str, str]:
    """A run that waits at its gate, with the views of an earlier moment, as a kill leaves them."""
    project.pipeline(LISTED).killed_in("draft[y]")
    project("recover")
    old = {view: project.read(view) for view in VIEWS}
    assert project("resume").code == 3
    for view, text in old.items():
        assert project.read(view) != text
        project.write(view, text)
    return old


def test_status_refreshes_views_that_are_behind(project: Project, behind: dict[str, str]) -> None:
    """After `status`, both pages tell what the journal tells."""
    assert project("status").code == 0
    assert project.row("y") == ["✅"]
    assert "publish_ok" in project.read("RESUME.md")


def test_status_leaves_an_edited_view_alone(project: Project, behind: dict[str, str]) -> None:
    """What a person wrote into a page is not drawn over by a command that shows."""
    project.edit("checkpoint.md", "## Legend", "Ask Ann first.\n\n## Legend")
    edited = project.read("checkpoint.md")
    assert project("status").code == 0
    assert project.read("checkpoint.md") == edited


def test_status_leaves_views_to_an_engine_at_work(project: Project, behind: dict[str, str]) -> None:
    """While somebody has the project's lock, `status` draws nothing."""
    with (project.root / ".holdfast/engine.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert project("status").code == 0
    assert {view: project.read(view) for view in VIEWS} == behind


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("plan",),
        ("why", "book"),
        ("events",),
        ("scan",),
        ("verify",),
    ],
    ids=" ".join,
)
def test_other_commands_say_that_views_are_behind(
    project: Project, behind: dict[str, str], words: tuple[str, ...]
) -> None:
    """They name the page that is out of date, and leave it as it is."""
    said = project(*words)
    assert said.code == 0
    assert {view: project.read(view) for view in VIEWS} == behind
    assert "checkpoint.md" in said.text


# --- the letter ------------------------------------------------------------------------------------------


@pytest.fixture
def letter(project: Project) -> str:
    """RESUME.md of a run that was killed when x was done, y at work and z not begun."""
    project.pipeline(LISTED).killed_in("draft[y]")
    project("recover")
    return project.read("RESUME.md")


def test_the_letter_names_status(letter: str) -> None:
    """Whoever continues is sent to the command that shows everything."""
    assert "`holdfast status`" in letter


def test_the_letter_names_gates_that_lie_ahead(letter: str) -> None:
    """A gate that will hold the run is told before the run stands at it."""
    assert "publish_ok" in letter


def test_the_letter_names_the_gate_at_which_the_run_waits(project: Project, letter: str) -> None:
    """The command that opens it stands beside it."""
    assert project("resume").code == 3
    assert "`holdfast approve publish_ok`" in project.read("RESUME.md")


def test_the_letter_lists_items_by_name(letter: str) -> None:
    """Which items are finished, in progress and not started stands under `Progress`, by name."""
    progress = letter.partition("## Progress")[2].partition("\n## ")[0]
    found = {}
    for line in progress.splitlines():
        for word in ("finished", "in progress", "not started"):
            named = re.findall(r"`(?:draft\[)?([xyz])\]?`", line)
            if word in line.casefold() and named and "last" not in line:
                found[word] = named
    assert found == {"finished": ["x"], "in progress": ["y"], "not started": ["z"]}


def test_step_totals_add_up(letter: str) -> None:
    """The rows of the table of steps add up to the number of tasks finished, and of all."""
    rows = re.findall(r"\| (\d+) of (\d+)", letter)
    done, total = (sum(int(row[column]) for row in rows) for column in (0, 1))
    assert f"Finished: {done} of {total} tasks" in letter


def test_status_and_page_count_alike(project: Project, letter: str) -> None:
    """`status` and checkpoint.md tell the same numbers of a run that was killed."""
    totals = project.status()["totals"]
    done = totals["completed"] + totals["skipped"]
    assert f"Progress: {done} of {totals['tasks']} tasks" in project.line("checkpoint.md", "Progress")
    assert RUN_ID in project.line("checkpoint.md", "- Run")
