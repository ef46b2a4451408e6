"""All of .holdfast lost: whole sealed files stay finished; a value is made again only if something needs it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from harness import Harness, RunResult
from holdfast import Context, Pipeline
from holdfast.errors import CheckpointCorruptionError


class Research:
    """A value-only search per topic between an items function and a file; `made` lists what ran."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.made: list[str] = []
        self.answer = "first"
        self.words = 2

    def run(self, **options: object) -> RunResult:
        self.made.clear()
        return self.pipeline().run(dir=self.root, **options)  # type: ignore[arg-type]

    def lose_state(self) -> None:
        shutil.rmtree(self.root / ".holdfast")

    def pipeline(self) -> Pipeline:
        pipe = Pipeline("research")

        @pipe.step
        def plan() -> list[str]:
            self.made.append("plan")
            return ["a", "b"]

        @pipe.items("topic")
        def topics(plan: list[str]) -> list[str]:
            self.made.append("topics")
            return plan

        @pipe.step(each="topic")
        def search(ctx: Context, topic: str) -> dict[str, str]:
            self.made.append(ctx.task_id)
            ctx.usage(cost_usd=0.5)
            return {"found": self.answer}

        @pipe.step(each="topic", writes="{topic}.md")
        def summary(ctx: Context, search: dict[str, str]) -> str:
            self.made.append(ctx.task_id)
            return f"{search['found']}\n"

        @pipe.step(writes={"text": "report.md"})
        def report(summary: dict[str, str]) -> dict[str, object]:
            self.made.append("report")
            return {"text": "".join(summary.values()), "words": self.words}

        @pipe.step(writes="title.md")
        def title(report: dict[str, object]) -> str:
            self.made.append("title")
            return f"{report['words']} words\n"

        return pipe


@pytest.fixture
def research(tmp_path: Path) -> Research:
    project = Research(tmp_path)
    assert project.run().status == "completed"
    return project


def test_only_what_an_items_function_needs_is_made_again(research: Research) -> None:
    """The items come from a function, so it runs, and the value it takes; no search is paid for twice."""
    research.lose_state()
    result = research.run()
    assert (result.status, research.made) == ("completed", ["plan", "topics"])
    assert research.run().status == "completed"
    assert not research.made


def test_a_lost_value_is_made_when_a_task_that_must_run_takes_it(research: Research) -> None:
    """One summary is gone as well: its search runs, the other does not."""
    research.lose_state()
    (research.root / "a.md").unlink()
    result = research.run()
    assert result.status == "completed"
    assert research.made == ["plan", "topics", "search[a]", "summary[a]"]


def test_the_value_beside_a_file_is_lost_but_its_file_is_believed(research: Research) -> None:
    """`report` gave a file and a value: it stays finished, and runs only when `title` wants the value."""
    research.lose_state()
    assert research.run().status == "completed"
    assert "report" not in research.made
    (research.root / "title.md").unlink()
    shutil.rmtree(research.root / ".holdfast")
    result = research.run()
    assert (result.status, research.made) == ("completed", ["plan", "topics", "report", "title"])


def test_a_file_without_a_copy_is_set_aside_when_its_value_is_made_again(tmp_path: Path) -> None:
    """It is the only one there is; what is told is why it was not good enough."""
    pipe = Pipeline("p")

    @pipe.step(writes={"text": "report.md"}, copy=False)
    def report() -> dict[str, Any]:
        return {"text": "long\n", "pages": 3}

    @pipe.step(writes="title.md")
    def title(report: dict[str, Any]) -> str:
        return f"{report['pages']} pages\n"

    pipe.run(dir=tmp_path)
    (tmp_path / "title.md").unlink()
    shutil.rmtree(tmp_path / ".holdfast")
    assert pipe.run(dir=tmp_path).status == "completed"
    asides = {event["path"]: event["reason"] for event in Harness(tmp_path).events("artifact_set_aside")}
    assert asides["report.md"] == "whole, but the value beside it is lost"


def test_a_remade_value_that_does_not_fit_is_asked_about(research: Research) -> None:
    """Another summary than the one the report was made from: the whole report is not redone unasked."""
    research.lose_state()
    (research.root / "a.md").unlink()
    research.answer = "second"
    result = research.run()
    assert (result.status, research.made) == ("paused", ["plan", "topics", "search[a]", "summary[a]"])
    asked = {event["step_id"]: event["about"] for event in Harness(research.root).events("question_asked")}
    assert asked == {"report": "input"}
    Harness(research.root).decide("report", "keep", run_id=result.run_id)
    assert research.run().status == "completed"
    assert not research.made


def test_a_value_that_is_lost_is_never_given_out(research: Research) -> None:
    """`result.outputs` says that it is lost, instead of handing out nothing."""
    research.lose_state()
    result = research.run()
    with pytest.raises(CheckpointCorruptionError, match=r"search\[a\]"):
        result.outputs["search"]


def test_a_step_that_nothing_speaks_for_runs(tmp_path: Path) -> None:
    """A value-only step at the end left nothing behind: nobody can say that it was done, so it runs."""
    made: list[str] = []

    def pipeline() -> Pipeline:
        pipe = Pipeline("p")

        @pipe.step(writes="a.md")
        def a() -> str:
            made.append("a")
            return "a\n"

        @pipe.step
        def publish(a: str) -> None:
            made.append("publish")

        return pipe

    pipeline().run(dir=tmp_path)
    shutil.rmtree(tmp_path / ".holdfast")
    for view in ("checkpoint.md", "RESUME.md"):
        (tmp_path / view).unlink()
    made.clear()
    assert pipeline().run(dir=tmp_path).status == "completed"
    assert made == ["publish"]


class Answers:
    """Values of every kind that only objects/ has: alone, beside a file, at the end; and a file made from them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.made: list[str] = []

    def run(self, **wishes: bool) -> RunResult:
        self.made.clear()
        return Harness(self.root).run(self.pipeline(), **wishes)  # type: ignore[arg-type]

    def pipeline(self) -> Pipeline:
        pipe = Pipeline("answers")

        @pipe.step
        def long() -> list[str]:
            self.made.append("long")
            return ["x" * 100] * 100

        @pipe.step(writes={"text": "both.md"})
        def both() -> dict[str, object]:
            self.made.append("both")
            return {"text": "both\n", "words": 1}

        @pipe.step(writes="end.md")
        def end(long: list[str], both: dict[str, object]) -> str:
            self.made.append("end")
            return f"{len(long)} {both['words']}\n"

        @pipe.step
        def last(end: str) -> list[str]:
            self.made.append("last")
            return [end * 1000]

        return pipe


def test_values_that_objects_has_lost_are_made_again(tmp_path: Path) -> None:
    """Finished and verified means that the values are there, too; what was made from equal ones does not run."""
    project = Answers(tmp_path)
    run_id = project.run().run_id
    shutil.rmtree(tmp_path / ".holdfast" / "objects")
    result = project.run()
    assert (result.status, project.made) == ("completed", ["long", "both", "last"])
    assert result.outputs["both"] == {"text": "both\n", "words": 1}
    assert not Harness(tmp_path).verify(run_id).findings
    assert project.run().status == "completed" and not project.made


def test_only_needed_leaves_a_lost_value_alone_that_something_takes(tmp_path: Path) -> None:
    """Nothing unfinished needs the two values in between; the one at the end is what the run was for."""
    project = Answers(tmp_path)
    project.run()
    shutil.rmtree(tmp_path / ".holdfast" / "objects")
    assert project.run(only_needed=True).status == "completed"
    assert project.made == ["last"]
    (tmp_path / "end.md").unlink()
    shutil.rmtree(tmp_path / ".holdfast" / "objects")
    assert project.run(only_needed=True).status == "completed"
    assert sorted(project.made[:2]) == ["both", "long"] and project.made[2:] == ["end", "last"]


def test_a_value_that_is_to_be_made_again_is_not_given_up_when_that_is_put_off(research: Research) -> None:
    """`recover` records that it is lost; the run that follows makes it, and does not adopt the file without it."""
    pipe, harness = research.pipeline(), Harness(research.root)
    shutil.rmtree(harness.objects)
    recovered = harness.recover(pipe)
    assert {task.id: task.action for task in recovered.tasks}["report"] == "redo"
    result = research.run()
    assert (result.status, research.made, result.outputs["report"]["words"]) == ("completed", ["report"], 2)
    assert not list(research.root.glob("*.bak.*"))


def test_a_value_that_a_later_round_gave_is_made_again_for_who_takes_it(tmp_path: Path) -> None:
    """An older copy of the record was put back: the file of that round is whole, and its value nowhere."""
    research, backup = Research(tmp_path / "project"), tmp_path / "backup"
    research.root.mkdir()
    result = research.run()
    shutil.copytree(research.root / ".holdfast", backup)
    Harness(research.root).decide("report", "redo", run_id=result.run_id)
    research.words = 3
    research.run()
    research.lose_state()
    shutil.copytree(backup, research.root / ".holdfast")
    (research.root / "title.md").unlink()
    assert (research.run().status, research.made) == ("completed", ["report", "title"])
