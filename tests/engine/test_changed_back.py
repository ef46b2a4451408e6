"""What was out of date, and is not any more: finished work counts again if it has not begun to run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Context, Pipeline
from holdfast.people import reject
from holdfast.run import RunResult
from holdfast.runs import open_project


class Project:
    """draft (a file) and score (a value) of two parts, tags (items): all from `topic`; `ran` lists what ran."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ran: list[str] = []
        self.version = 1
        self.fails = False
        self.run_id = ""

    def run(self, topic: str, **options: object) -> RunResult:
        self.ran.clear()
        result = self.pipeline().run(params={"topic": topic}, dir=self.root, **options)  # type: ignore[arg-type]
        self.run_id = result.run_id
        return result

    def again(self, topic: str, budget_usd: float = 99.0) -> RunResult:
        return self.run(topic, resume=self.run_id, budget_usd=budget_usd)

    def pipeline(self) -> Pipeline:
        pipe = Pipeline("p", params={"topic": str})

        pipe.items("part", ["a", "b"])

        @pipe.items("tag")
        def tags(topic: str) -> list[str]:
            self.ran.append("tags")
            return ["t"]

        @pipe.step(each="part", writes="{part}.md", version=self.version)
        def draft(ctx: Context, part: str, topic: str) -> str:
            self.ran.append(ctx.task_id)
            ctx.usage(cost_usd=1.0)
            if self.fails:
                raise ValueError("no")
            return f"{part} of {topic}"

        @pipe.step(each="part")
        def score(ctx: Context, part: str, topic: str) -> int:
            self.ran.append(ctx.task_id)
            ctx.usage(cost_usd=1.0)
            return len(topic)

        return pipe


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    assert project.run("kelp").status == "completed"
    return project


def test_a_parameter_that_is_changed_back_costs_nothing(project: Project) -> None:
    """Files, values and items stand as before, in their round, and nothing of them is called wasted."""
    away = project.again("klep", budget_usd=0.0)
    assert (away.status, away.picture.state.wasted_cost_usd) == ("paused", 4.0)
    result = project.again("kelp")
    assert (result.status, project.ran, result.cost_usd) == ("completed", [], 4.0)
    state = result.picture.state
    assert (state.wasted_cost_usd, {task.round for task in state.tasks.values()}) == (0.0, {0})
    assert dict(result.outputs["draft"]) == {"a": "a of kelp", "b": "b of kelp"}


def test_a_version_that_is_taken_back_costs_nothing(project: Project) -> None:
    """Nobody ran the newer one: the older pipeline fits what is there."""
    project.version = 2
    assert project.again("kelp", budget_usd=0.0).status == "paused"
    project.version = 1
    assert (project.again("kelp").status, project.ran) == ("completed", [])


def test_what_has_begun_to_run_again_is_not_taken_back(project: Project) -> None:
    """An attempt with the other input was made: what it left is not guessed at."""
    project.fails = True
    assert project.again("klep").status == "failed"
    project.fails = False
    assert project.again("kelp").status == "completed"
    assert {"draft[a]", "draft[b]"} <= set(project.ran)


def test_what_was_edited_meanwhile_does_not_count_again(project: Project) -> None:
    """It is no longer what was accepted: it is set aside, and its step runs."""
    assert project.again("klep", budget_usd=0.0).status == "paused"
    path = project.root / "a.md"
    path.write_text("mine " + path.read_text())
    assert project.again("kelp").status == "completed"
    assert "draft[a]" in project.ran and "draft[b]" not in project.ran
    assert [p.read_text()[:4] for p in project.root.glob("a.md.bak.*")] == ["mine"]


def test_what_somebody_wants_again_runs_again(project: Project) -> None:
    """A wish is more than an input that was others for a while."""
    assert project.again("klep", budget_usd=0.0).status == "paused"
    assert project.again("kelp").status == "completed"
    reject(open_project(project.root), project.run_id, "draft[a]", "draft[a]", "shorter")
    assert project.again("kelp").status == "completed"
    assert project.ran == ["draft[a]"]
