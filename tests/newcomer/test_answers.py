"""Questions and answers: what a question holds up, what an answer does, and what goes with what is left out."""

from __future__ import annotations

import re

import pytest

from .project import FRAME, Project

ABC = """
@pipe.step(writes="a.md")
def a() -> str:
    ran("a")
    return "The line of a.\\n"


@pipe.step(writes="b.md")
def b(a: str) -> str:
    ran("b")
    return a + "The line of b.\\n"


@pipe.step(writes="c.md")
def c(b: str) -> str:
    ran("c")
    return b + "The line of c.\\n"
"""


@pytest.fixture
def finished(project: Project) -> Project:
    assert project.pipeline(ABC).first_run().code == 0
    project.ran()
    return project


@pytest.fixture
def edited(finished: Project) -> Project:
    """A finished run of which the first file was edited: a question."""
    finished.edit("a.md", "The line", "MY LINE")
    return finished


# --- damage behind a question ----------------------------------------------------------------------------


def test_damage_behind_a_question_is_healed_at_once(edited: Project) -> None:
    """A file that is missing behind an edited one is put back while the edit still waits for its answer."""
    accepted = edited.read("b.md")
    edited.lose("b.md")
    assert edited("resume").code == 3
    assert edited.exists("b.md")
    assert edited.read("b.md") == accepted
    assert not edited.ran()


def test_nothing_that_is_missing_shows_as_done(edited: Project) -> None:
    """A file that is lost with its copy, behind a question, has no ✅ on the page and is not completed."""
    edited.lose("b.md", ".holdfast/objects")
    assert edited("resume").code == 3
    assert not edited.exists("b.md")
    assert edited.tasks()["b"] != "completed"
    assert "✅" not in edited.row("b")


def test_verify_promises_only_what_resume_does(edited: Project) -> None:
    """Where `verify` says that resume puts a file back, resume puts it back."""
    edited.lose("b.md")
    (finding,) = [found for found in edited("verify", "--json").json()["findings"] if found["task"] == "b"]
    edited("resume")
    assert edited.exists("b.md") or "puts it back" not in finding["fix"]


def test_one_question_does_not_hide_another(edited: Project) -> None:
    """Of two edited files, one made from the other, both are asked about at once."""
    edited.edit("c.md", "The line of c", "MY LINE of c")
    assert edited("resume").code == 3
    statuses = edited.tasks()
    assert (statuses["a"], statuses["c"]) == ("needs_review", "needs_review")


# --- changing one's mind ---------------------------------------------------------------------------------

STREAMED = """
@pipe.step(writes="a.md", on_partial="ask")
def a(ctx: Context) -> None:
    ctx.write("The beginning of a long text. " * 8 + "\\n")
    ran("a")
    ctx.write("And the end.\\n")
"""


def decide(project: Project, task: str, *answers: str) -> None:
    """Give these answers one after the other; each is taken."""
    for answer in answers:
        said = project("decide", task, answer)
        assert said.code == 0, (answer, said.text)


@pytest.mark.parametrize("first", ["keep", "continue"])
def test_a_half_finished_file_may_still_be_redone(project: Project, first: str) -> None:
    """Asked about a stream that was cut off, `redo` after another answer counts: the step begins anew."""
    project.pipeline(STREAMED).killed_in("a")
    project("resume")
    project.ran()
    decide(project, "a", first, "redo")
    assert project("resume").code == 0
    assert project.ran() == {"a": 1}
    assert len(list(project.root.glob("a.md*.bak.*"))) == 1


def test_a_half_finished_file_may_still_be_kept(project: Project) -> None:
    """Asked about a stream that was cut off, `keep` after `redo` counts: nothing runs."""
    project.pipeline(STREAMED).killed_in("a")
    project("resume")
    project.ran()
    decide(project, "a", "redo", "keep")
    assert project("resume").code == 0
    assert not project.ran()


KEPT = ("MY LINE", {"b": 1, "c": 1})
RESTORED = ("The line", {})
REDONE = ("The line", {"a": 1})


def _answers(words: str, expected: tuple[str, dict[str, int]]) -> object:
    return pytest.param(words, *expected, id=words)


@pytest.mark.parametrize(
    ("answers", "line", "ran"),
    [
        _answers("restore keep", KEPT),
        _answers("keep restore", RESTORED),
        _answers("keep redo", REDONE),
        _answers("keep redo keep", KEPT),
        _answers("keep redo restore", RESTORED),
        _answers("redo keep", KEPT),
        _answers("redo restore", RESTORED),
    ],
)
def test_the_last_answer_about_an_edited_file_counts(
    edited: Project, answers: str, line: str, ran: dict[str, int]
) -> None:
    """Keep, restore and redo may follow each other: what was said last is done, and nothing else."""
    edited("resume")
    decide(edited, "a", *answers.split())
    assert edited("resume").code == 0
    assert edited.ran() == ran
    assert edited.read("a.md").startswith(line)


def test_a_redo_can_be_taken_back(finished: Project) -> None:
    """Of a whole file, `keep` after `redo` leaves everything as it was."""
    decide(finished, "a", "redo", "keep")
    assert {task["action"] for task in finished.plan().values()} == {"trust"}
    assert finished("resume").code == 0
    assert not finished.ran()


# --- an answer that cannot be carried out ----------------------------------------------------------------

MEMORY = """
pipe.items("c", ["x", "y"])


@pipe.step(each="c", writes="d/{c}.md")
def draft(c: str) -> str:
    return f"About {c}.\\n"


@pipe.step(each="c", appends="glossary.md", sources=["draft"])
def glossary(c: str, source: str) -> str:
    ran(f"glossary[{c}]")
    return f"A term of {c}.\\n"
"""


@pytest.mark.parametrize("how", ["no seal", "no section"])
def test_keeping_a_section_is_done_or_refused(project: Project, how: str) -> None:
    """`decide keep` of a memory section without seal keeps it, or says that it cannot."""
    project.pipeline(MEMORY).first_run()
    text = project.read("glossary.md")
    lines = [line for line in text.splitlines(keepends=True) if "task=glossary[x]" not in line]
    rest = text[text.index(FRAME + "glossary[y]") :]
    project.write("glossary.md", "".join(lines) if how == "no seal" else rest).lose(".holdfast")
    project("recover")
    project.ran()
    said = project("decide", "glossary[x]", "keep")
    project("resume")
    kept = not project.ran()
    assert kept == (said.code == 0)


# --- what goes with a task that is left out --------------------------------------------------------------

CHAPTERS = """
pipe.items("c", ["ch01", {"id": "ch02", "after": ["ch01"]}, "ch03"])


@pipe.step(each="c", phase="Writing", writes="d/{c}.md")
def draft(c: str) -> str:
    ran(f"draft[{c}]")
    return f"About {c}.\\n"


@pipe.step(each="c", phase="Writing", writes="r/{c}.md")
def r1(c: str, draft: str) -> str:
    ran(f"r1[{c}]")
    return f"{draft} is good.\\n"


@pipe.step(phase="Binding", writes="book.md")
def book(r1: dict) -> str:
    ran("book")
    return "".join(r1.values())
"""

GONE = {"draft[ch01]", "r1[ch01]", "draft[ch02]", "r1[ch02]"}
LEAVES_OUT = 'writes="d/{c}.md", on_failure="skip")'


@pytest.fixture
def failed(project: Project) -> Project:
    """A run killed in ch02, which comes after ch01, whose draft has failed."""
    project.pipeline(CHAPTERS).fails("draft[ch01]")
    project.killed_in("draft[ch02]")
    project.ran()
    return project


def test_skipping_takes_along_what_comes_after_the_item(failed: Project) -> None:
    """`decide draft[ch01] skip` leaves out ch02 too, which names ch01 in `after`; ch03 is written."""
    decide(failed, "draft[ch01]", "skip")
    assert failed("resume").code == 0
    assert {task for task, status in failed.tasks().items() if status == "skipped"} == GONE
    assert failed.ran() == {"draft[ch03]": 1, "r1[ch03]": 1, "book": 1}


def test_on_failure_skip_takes_along_what_comes_after_the_item(project: Project) -> None:
    """The same when the step leaves out what fails."""
    project.pipeline(CHAPTERS.replace('writes="d/{c}.md")', LEAVES_OUT)).fails("draft[ch01]")
    assert project.run().code == 0
    assert {task for task, status in project.tasks().items() if status == "skipped"} == GONE
    assert project.ran() == {"draft[ch01]": 1, "draft[ch03]": 1, "r1[ch03]": 1, "book": 1}


def test_batches_are_not_taken_along(project: Project) -> None:
    """An item of the next batch is made although one of the batch before was skipped."""
    batches = CHAPTERS.replace('"ch01", {"id": "ch02", "after": ["ch01"]}, "ch03"', BATCHES)
    project.pipeline(batches.replace('writes="d/{c}.md")', LEAVES_OUT)).fails("draft[ch01]")
    assert project.run().code == 0
    assert {task for task, status in project.tasks().items() if status == "skipped"} == {"draft[ch01]", "r1[ch01]"}


BATCHES = '{"id": "ch01", "batch": 1}, {"id": "ch02", "batch": 2}'


def test_what_was_finished_before_is_not_taken_along(project: Project) -> None:
    """Work on ch02 that was done while ch01 waited for a person stays when ch01 is left out."""
    project.pipeline(CHAPTERS).fails("draft[ch01]")
    assert project.run().code == 1
    assert project.ran()["draft[ch02]"] == 1
    decide(project, "draft[ch01]", "skip")
    assert project("resume").code == 0
    assert project.tasks()["draft[ch02]"] == "completed"
    assert not project.ran()["draft[ch02]"]


def test_skipping_says_before_what_it_takes_along(failed: Project) -> None:
    """The answer to `decide ... skip` names every task that will be left out with it."""
    said = failed("decide", "draft[ch01]", "skip")
    assert said.code == 0
    assert all(task in said.out for task in GONE)


def test_until_the_next_resume_nothing_is_offered_that_cannot_start(failed: Project) -> None:
    """After `decide skip`, `next` and todos.db list no task that is going to be left out."""
    decide(failed, "draft[ch01]", "skip")
    assert GONE.isdisjoint(failed.status()["next"])
    assert GONE.isdisjoint(failed.can_start())


# --- skipped is counted as skipped -----------------------------------------------------------------------


THINNED = """
@pipe.step(writes="a.md", on_failure="skip")
def a() -> str:
    ran("a")
    return "The line of a.\\n"


@pipe.step(writes="b.md")
def b(a: str) -> str:
    return a


@pipe.step(writes="c.md")
def c() -> str:
    return "The line of c.\\n"
"""


@pytest.fixture
def thinned(project: Project) -> Project:
    """A run of three steps that is complete, of which two were left out."""
    project.pipeline(THINNED)
    project.fails("a")
    assert project.first_run().code == 0
    assert project.tasks() == {"a": "skipped", "b": "skipped", "c": "completed"}
    return project


@pytest.mark.parametrize("page", ["checkpoint.md", "RESUME.md"])
def test_pages_count_what_was_skipped(thinned: Project, page: str) -> None:
    """Where a page says how much is finished, it says how much of that was skipped."""
    assert re.search("2 (of them )?skipped", thinned.read(page))


@pytest.mark.parametrize("words", [("status",), ("list",), ("resume",)], ids=" ".join)
def test_commands_count_what_was_skipped(thinned: Project, words: tuple[str, ...]) -> None:
    """Where a command says how much is finished, it says how much was skipped."""
    said = thinned(*words)
    assert said.code == 0
    assert "2 skipped" in said.text


def test_skipped_is_not_done(thinned: Project) -> None:
    """A run of which two of three steps were left out has one step done, in `list` and at its end."""
    assert thinned("list", "--json").json()[0]["done"] == 1
    assert "3 of 3" not in thinned("resume").text
    assert "3 of 3" not in thinned("status").text


def test_the_table_of_steps_does_not_call_skipped_finished(thinned: Project) -> None:
    """In RESUME.md the row of a step that was left out does not read like that of one that was made."""
    assert "1 of 1" in thinned.line("RESUME.md", "| c |")
    assert "1 of 1" not in thinned.line("RESUME.md", "| a |") or "skipped" in thinned.line("RESUME.md", "| a |")
