"""Half-finished files: what a kill cut off, and what somebody finished by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .project import Project

STREAMED = """
@pipe.step(writes="a.md", on_partial="ask")
def a(ctx: Context) -> None:
    ctx.write("The beginning of a long text. " * 8 + "\\n")
    ran("a")
    ctx.write("And the end.\\n")
"""

RETURNED = """
@pipe.step(writes="a.md")
def a() -> str:
    ran("a")
    return "The step's own text.\\n"
"""

BY_HAND = "A text by hand.\n<!-- A_COMPLETE -->\n"


# --- a stream that was cut off ---------------------------------------------------------------------------


def test_a_stream_cut_off_by_a_kill_never_looks_complete(project: Project) -> None:
    """A `.part` was never returned, so however well it ends, keeping it is not recommended."""
    project.pipeline(STREAMED).killed_in("a")
    said = project("resume")
    assert said.code == 3
    for text in (said.text, project("status").out, project.read("RESUME.md")):
        assert "complete, only the marker" not in text
        assert "keep is recommended" not in text
        assert "decide a keep " not in text


def test_scan_and_the_question_say_the_same(project: Project) -> None:
    """What `scan` calls a stream that was cut off is asked about in the same words."""
    project.pipeline(STREAMED).killed_in("a")
    assert "cut off" in project("scan").out
    assert "cut off" in project.plan()["a"]["reason"]
    project("resume")
    assert "cut off" in project.status()["tasks"][0]["error"]


@pytest.mark.parametrize(("answer", "ran"), [("keep", 0), ("redo", 1), ("continue", 1)])
def test_each_answer_is_carried_out(project: Project, answer: str, ran: int) -> None:
    """Keep seals the half as it is; redo and continue run the step."""
    project.pipeline(STREAMED).killed_in("a")
    project("resume")
    project.ran()
    assert project("decide", "a", answer).code == 0
    assert project("resume").code == 0
    assert project.ran()["a"] == ran


# --- a file that somebody finished by hand ---------------------------------------------------------------


def _never_begun(project: Project) -> None:
    project.pipeline(RETURNED)


def _failed(project: Project) -> None:
    project.pipeline(RETURNED).fails("a")
    assert project.first_run().code == 1


def _cut_off(project: Project) -> None:
    project.pipeline(RETURNED).killed_in("a")


@pytest.mark.parametrize("begin", [_never_begun, _failed, _cut_off])
def test_a_plain_marker_counts_the_same_whatever_was_before(
    project: Project, begin: Callable[[Project], None]
) -> None:
    """A file that ends in its plain marker is adopted, whether its task never began, failed or was cut off."""
    begin(project)
    project.ran()
    project.write("a.md", BY_HAND)
    assert project.plan("m.py")["a"]["action"] == "adopt"
    assert project.run().code == 0
    assert not project.ran()
    assert project.read("a.md").startswith("A text by hand.\n")
