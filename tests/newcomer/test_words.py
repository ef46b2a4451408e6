"""Words that are true: who is tried again, why something happens, and what it is going to cost."""

from __future__ import annotations

from typing import Any

import pytest

from .project import Project

# --- --no-retry ------------------------------------------------------------------------------------------

FAILING = """
pipe.items("c", ["x"])


@pipe.step(each="c", writes="d/{c}.md")
def draft(c: str) -> str:
    return f"About {c}.\\n"


@pipe.step(each="c", appends="glossary.md", sources=["draft"])
def glossary(c: str, source: str) -> str:
    ran(f"glossary[{c}]")
    return f"A term of {c}.\\n"


@pipe.step(writes="summary.md")
def summary() -> str:
    ran("summary")
    return "All of it.\\n"
"""


@pytest.mark.parametrize("task", ["summary", "glossary[x]"])
def test_no_retry_pays_for_no_failed_task_again(project: Project, task: str) -> None:
    """However often it is continued with `--no-retry`, what failed is not tried again, nor is a section."""
    project.pipeline(FAILING).fails(task)
    assert project.first_run().code == 1
    assert project.ran()[task] == 1
    assert [project("resume", "--no-retry").code for _ in range(3)] == [1, 1, 1]
    assert not project.ran()


@pytest.mark.parametrize("task", ["summary", "glossary[x]"])
def test_why_invents_no_change(project: Project, task: str) -> None:
    """`why` and `plan` do not say that something has changed, when nothing has."""
    project.pipeline(FAILING).fails(task)
    project.first_run()
    project("resume", "--no-retry")
    assert "has changed" not in project("why", task).out
    assert "has changed" not in project.plan()[task]["reason"]


@pytest.mark.parametrize("task", ["summary", "glossary[x]"])
def test_without_it_a_failed_task_is_tried_again(project: Project, task: str) -> None:
    """`resume` gives what failed a fresh set of attempts."""
    project.pipeline(FAILING).fails(task)
    project.first_run()
    project.fails(task, again=False)
    project.ran()
    assert project("resume").code == 0
    assert project.ran()[task] == 1


# --- false reasons ---------------------------------------------------------------------------------------

THREE = """
@pipe.step(writes={"code": "out/roman.py", "test": "out/test_roman.py", "doc": "out/doc.md"})
def build() -> dict:
    ran("build")
    return {"code": "print(1)\\n", "test": "assert 1\\n", "doc": "Words.\\n"}
"""


@pytest.mark.parametrize("lost", ["out/roman.py", "out/doc.md"])
def test_a_missing_sibling_is_missing(project: Project, lost: str) -> None:
    """One of three files lost with the record: the plan names it, and calls it missing."""
    project.pipeline(THREE).first_run()
    project.lose(".holdfast", lost)
    reason = project.plan("m.py")["build"]["reason"]
    assert f"{lost} is missing" in reason
    assert "other inputs" not in reason


@pytest.mark.parametrize("words", [(), ("--force",)], ids=["run", "run --force"])
def test_files_are_set_aside_for_a_true_reason(project: Project, words: tuple[str, ...]) -> None:
    """What is set aside because a sibling is missing, or by `--force`, is not said to have other inputs."""
    project.pipeline(THREE).first_run()
    project.lose(".holdfast", "out/doc.md")
    said = project("run", "m.py", *words)
    assert said.code == 0
    assert "set aside" in said.text
    assert "other inputs" not in said.text


ONE_EACH = """
@pipe.step(writes="{who}.md")
def letter(who: str) -> str:
    ran(f"letter-{who}")
    return f"Dear {who}.\\n"
"""

WITH_WHO = 'pipe = Pipeline("m", params={"who": str})\n'
ANN, BOB = ("-p", "who=ann"), ("-p", "who=bob")


def test_the_letter_of_another_run_is_called_that(project: Project) -> None:
    """When A's record is lost and B's letter lies there, with notes, it is set aside as B's."""
    project.pipeline(ONE_EACH, WITH_WHO).run("--run-id", "A", *ANN)
    project.fails("letter-bob")
    project.run("--run-id", "B", *BOB)
    project("note", "Bob has moved.")
    project.lose(".holdfast/runs/A")
    said = project.run(*ANN)
    assert said.code == 0
    (told,) = [line for line in said.text.splitlines() if "RESUME.md" in line]
    assert "all that was left" not in told
    assert "run B" in told


ONE_PATH = """
@pipe.step(writes="letter.md")
def letter(who: str) -> str:
    return f"Dear {who}.\\n"
"""


def test_verify_and_plan_use_one_word(project: Project) -> None:
    """A file that another run has written over, as it may, is called the same by both."""
    project.pipeline(ONE_PATH, WITH_WHO.replace("})", "}, overwrite=True)")).run("--run-id", "A", *ANN)
    project.run("--run-id", "B", *BOB)
    (finding,) = project("verify", "A", "--json").json()["findings"]
    reason = project.plan("m.py", *ANN)["letter"]["reason"]
    assert finding["problem"] in reason
    assert "another run" in finding["detail"]
    assert "another run" in reason


def test_an_unknown_run_is_named_before_missing_parameters(project: Project) -> None:
    """`run --resume NOPE` says that there is no run NOPE, also where a parameter has no default."""
    project.pipeline(ONE_EACH, WITH_WHO).run("--run-id", "A", *ANN)
    said = project("run", "m.py", "--resume", "NOPE")
    assert said.code == 2
    assert "There is no run NOPE" in said.err


# --- what it is going to cost ----------------------------------------------------------------------------

PAID = """
pipe.items("c", ["x", "y"])


def call(c):
    ran(f"call {c}")
    return "An answer."


@pipe.step(each="c", writes="{c}.md")
def text(ctx: Context, c: str) -> str:
    answer = ctx.once("call", call, c)
    ctx.usage(cost_usd=1.0)
    ran(f"text[{c}]")
    return f"{answer} About {c}.\\n"
"""


def test_replayed_calls_of_a_lost_file_are_free(project: Project) -> None:
    """A finished step whose file and copy are lost runs again for nothing, and `plan` says so."""
    project.pipeline(PAID).first_run()
    project.lose("y.md", ".holdfast/objects")
    foreseen = project.plan()["text[y]"]
    assert foreseen["action"] == "redo"
    assert foreseen["expected_cost_usd"] == _spent_by_resume(project) == 0


def test_replayed_calls_of_an_attempt_that_was_cut_off_are_free(project: Project) -> None:
    """So does a step that was killed after it had paid."""
    project.pipeline(PAID).killed_in("text[y]")
    foreseen = project.plan()["text[y]"]
    assert foreseen["action"] == "run"
    assert foreseen["expected_cost_usd"] == _spent_by_resume(project) == 0


def _spent_by_resume(project: Project) -> Any:
    """Dollars that the next `resume` adds."""
    before = project.status()["total_cost_usd"]
    project.ran()
    assert project("resume").code == 0
    assert project.ran()["call y"] == 0
    return project.status()["total_cost_usd"] - before


LISTED = """
@pipe.step(writes="list.md")
def listed(ctx: Context) -> str:
    ctx.usage(cost_usd=0.5)
    return "x\\ny\\n"


@pipe.items("part")
def parts(listed: str) -> list:
    return listed.split()


@pipe.step(each="part", writes="d/{part}.md")
def draft(ctx: Context, part: str) -> str:
    ctx.usage(cost_usd=0.25)
    return f"About {part}.\\n"
"""


def test_where_items_are_unknown_the_price_is_a_lower_bound(project: Project) -> None:
    """A plan in which the list of items is made anew says "at least"."""
    project.pipeline(LISTED).first_run()
    project("reject", "listed", "--to", "listed", "--feedback", "A longer list.")
    price = project("plan").out.splitlines()[-1]
    assert price.startswith("Expected cost")
    assert "at least $0.50" in price
    assert "about" not in price
