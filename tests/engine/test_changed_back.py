"""What was out of date, and is not any more: finished work counts again if it has not begun to run again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Harness, RunResult
from holdfast import Context, Pipeline
from holdfast.project.results import PlannedTask
from holdfast.stores import disk
from sampling import every


class Project:
    """draft (a file) and score (a value) of two parts, tags (items): all from `topic`.

    `ran` lists what ran in the latest run, `calls` the paid calls of the drafts in all of them.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ran: list[str] = []
        self.calls: list[str] = []
        self.version = 1
        self.fails = False
        self.run_id = ""

    def run(self, topic: str, resume: str | None = None, budget_usd: float = 99.0, redo: str = "") -> RunResult:
        self.ran.clear()
        again = (redo,) if redo else ()
        result = Harness(self.root).run(
            self.pipeline(), params={"topic": topic}, resume=resume, redo=again, budget_usd=budget_usd
        )
        self.run_id = result.run_id
        return result

    def again(self, topic: str, budget_usd: float = 99.0, redo: str = "") -> RunResult:
        return self.run(topic, self.run_id, budget_usd, redo)

    def plan(self, topic: str) -> list[PlannedTask]:
        pipe, harness = self.pipeline(), Harness(self.root)
        return harness.plan(pipe, resume=self.run_id, params={"topic": topic}).tasks

    def _pay(self, part: str) -> str:
        self.calls.append(part)
        return part

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
            ctx.once("model", self._pay, part)
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


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")], ids=["deleted", "emptied"])
def test_what_is_lost_meanwhile_is_put_back(project: Project, damage: Callable[[Path], object]) -> None:
    """It counts again, and objects/ has a whole copy of it: nothing runs, and nothing is paid."""
    assert project.again("klep", budget_usd=0.0).status == "paused"
    path = project.root / "a.md"
    damage(path)
    result = project.again("kelp")
    assert (result.status, project.ran, result.cost_usd) == ("completed", [], 4.0)
    assert path.read_text().startswith("a of kelp")


def test_what_is_lost_without_a_copy_is_made_again_from_its_paid_calls(project: Project) -> None:
    """It is the same work in the same round: the call that was paid for it is replayed."""
    assert project.again("klep", budget_usd=0.0).status == "paused"
    (project.root / "a.md").unlink()
    shutil.rmtree(project.root / ".holdfast" / "objects")
    result = project.again("kelp")
    assert (result.status, project.ran.count("draft[a]"), sorted(project.calls)) == ("completed", 1, ["a", "b"])
    assert result.picture.state.task("draft[a]").round == 0


def test_paid_calls_of_other_inputs_are_not_replayed(project: Project) -> None:
    """They were kept in case their inputs come back; the others are paid for."""
    assert project.again("klep", budget_usd=0.0).status == "paused"
    assert project.again("klep").status == "completed"
    assert sorted(project.calls) == ["a", "a", "b", "b"]  # both parts at once, in any order


def test_what_was_edited_meanwhile_is_asked_about(project: Project) -> None:
    """It counts again, but it is not what was accepted: neither trusted nor overwritten."""
    assert project.again("klep", budget_usd=0.0).status == "paused"
    path = project.root / "a.md"
    path.write_text("mine " + path.read_text())
    result = project.again("kelp")
    assert (result.status, project.ran, path.read_text()[:4]) == ("paused", [], "mine")
    assert result.picture.state.task("draft[a]").question == "changed"


def test_an_answer_given_meanwhile_holds(project: Project) -> None:
    """Whoever edits the file and says that it is to be kept is not asked again."""
    assert project.again("klep", budget_usd=0.0).status == "paused"
    path = project.root / "a.md"
    path.write_text("mine " + path.read_text())
    Harness(project.root).decide("draft[a]", "keep", run_id=project.run_id)
    result = project.again("kelp")
    assert (result.status, project.ran, result.outputs["draft"]["a"]) == ("completed", [], "mine a of kelp\n")


def uncopied(path: str, ran: list[str]) -> Pipeline:
    """One step of which objects/ keeps no copy; a name that begins with `large` is written by the step itself."""
    pipe = Pipeline("p", params={"topic": str})

    @pipe.step(writes=path, copy=False)
    def film(ctx: Context, topic: str) -> str | Path:
        ran.append(topic)
        ctx.usage(cost_usd=1.0)
        if not path.startswith("large"):
            return f"film of {topic}"
        ctx.out.write_text(f"film of {topic}")
        return ctx.out

    return pipe


@pytest.mark.parametrize("path", ["film.md", "film.csv", "large.md", "large.bin"])
def test_what_was_set_aside_for_want_of_a_copy_is_taken_back(tmp_path: Path, path: str) -> None:
    """The very file that was accepted lies beside, and its hash proves it: nothing runs, and it is told."""
    ran: list[str] = []
    pipe = uncopied(path, ran)
    run_id = pipe.run(params={"topic": "kelp"}, dir=tmp_path).run_id
    before = (tmp_path / path).read_bytes()
    away = pipe.run(params={"topic": "klep"}, dir=tmp_path, resume=run_id, budget_usd=0.0)
    assert (away.status, (tmp_path / path).exists()) == ("paused", False)
    (aside,) = tmp_path.glob(f"{path}.bak.*")
    plan = Harness(tmp_path).plan(pipe, resume=run_id, params={"topic": "kelp"})
    assert [(task.action, task.reason) for task in plan.tasks] == [("heal", f"{path} is missing")]
    back = pipe.run(params={"topic": "kelp"}, dir=tmp_path, resume=run_id, budget_usd=9.0)
    assert (back.status, ran, (tmp_path / path).read_bytes()) == ("completed", ["kelp"], before)
    assert back.picture.state.surprises[-1].text == f"{path} was missing; put back from {aside.name}"
    assert aside.exists() != path.startswith("large")  # a large one is not copied: it has its name again
    assert (Harness(tmp_path).verify(run_id).ok, back.cost_usd) == (True, 1.0)


def taken_back_killed_at(root: Path, path: str, run_id: str, number: int) -> bool:
    """Change it back in a process that dies before its `number`-th operation; whether it did."""
    child = os.fork()
    if not child:
        seen: list[str] = []

        def die(op: str, name: str) -> None:
            seen.append(name)
            if len(seen) == number:
                os._exit(9)

        disk.hook = die
        ran: list[str] = []
        uncopied(path, ran).run(params={"topic": "kelp"}, dir=root, resume=run_id, budget_usd=9.0)
        os._exit(len(ran))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9), "its step ran"
    return code == 9


@pytest.mark.parametrize("path", ["film.md", "large.bin"])
@pytest.mark.usefixtures("unsynced")
def test_a_kill_while_it_is_taken_back_loses_nothing(tmp_path: Path, path: str) -> None:
    """Whenever it comes, the file is whole under one of its names, and no step runs again."""
    ran: list[str] = []
    pipe = uncopied(path, ran)
    (tmp_path / "a").mkdir()
    run_id = pipe.run(params={"topic": "kelp"}, dir=tmp_path / "a").run_id
    pipe.run(params={"topic": "klep"}, dir=tmp_path / "a", resume=run_id, budget_usd=0.0)
    for number in every(9, path):
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        is_killed = taken_back_killed_at(tmp_path / "b", path, run_id, number)
        back = pipe.run(params={"topic": "kelp"}, dir=tmp_path / "b", resume=run_id, budget_usd=9.0)
        assert (back.status, ran) == ("completed", ["kelp"])
        assert (tmp_path / "b" / path).read_text().startswith("film of kelp")
        if not is_killed:
            break
    assert number > 20


def test_what_was_set_aside_and_changed_since_is_not_taken_back(tmp_path: Path) -> None:
    """Its name proves nothing: the step runs."""
    ran: list[str] = []
    pipe = uncopied("film.md", ran)
    run_id = pipe.run(params={"topic": "kelp"}, dir=tmp_path).run_id
    pipe.run(params={"topic": "klep"}, dir=tmp_path, resume=run_id, budget_usd=0.0)
    (aside,) = tmp_path.glob("film.md.bak.*")
    aside.write_text(f"x{aside.read_text()[1:]}")
    back = pipe.run(params={"topic": "kelp"}, dir=tmp_path, resume=run_id, budget_usd=9.0)
    assert (back.status, ran) == ("completed", ["kelp", "kelp"])
    assert aside.exists()


def test_a_damaged_file_is_healed_from_one_in_quarantine(tmp_path: Path) -> None:
    """objects/ is gone, and a copy lies there of which only the seal had been damaged."""
    ran: list[str] = []
    pipe = uncopied("film.md", ran)
    run_id = pipe.run(params={"topic": "kelp"}, dir=tmp_path).run_id
    path = tmp_path / "film.md"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"holdfast=1", b"holdfast=x"))
    assert pipe.run(params={"topic": "kelp"}, dir=tmp_path).status == "completed"
    path.write_bytes(b"\0" * 99)
    report = Harness(tmp_path).verify(run_id)
    assert [finding.fix for finding in report.findings] == [f"holdfast resume {run_id} puts it back"]
    again = pipe.run(params={"topic": "kelp"}, dir=tmp_path)
    assert (again.status, ran, path.read_bytes()) == ("completed", ["kelp"], whole)


def test_what_was_edited_before_it_was_out_of_date_is_put_back(project: Project) -> None:
    """The edit was set aside when it was to run again; the accepted version is whole in objects/."""
    path = project.root / "a.md"
    path.write_text("mine " + path.read_text())
    assert project.again("klep", budget_usd=0.0).status == "paused"
    assert (project.again("kelp").status, project.ran) == ("completed", [])
    assert path.read_text().startswith("a of kelp")
    assert [p.read_text()[:4] for p in project.root.glob("a.md.bak.*")] == ["mine"]


def test_what_was_left_out_meanwhile_stays_left_out(project: Project) -> None:
    """A person said so: the work that is there does not overrule them."""
    assert project.again("klep", budget_usd=0.0).status == "paused"
    Harness(project.root).decide("draft[a]", "skip", run_id=project.run_id)
    result = project.again("kelp")
    assert result.picture.state.task("draft[a]").status == "skipped"


def test_what_is_wanted_anew_does_not_count_again(project: Project) -> None:
    """`--redo` names it, whether or not it was to run anyhow."""
    assert project.again("klep", budget_usd=0.0).status == "paused"
    assert project.again("kelp", redo="score[a]").status == "completed"
    assert project.ran == ["score[a]"]


def test_what_a_person_wants_anew_meanwhile_does_not_count_again(project: Project) -> None:
    """It would have run anyway, but not if its inputs come back: the answer is taken."""
    assert project.again("klep", budget_usd=0.0).status == "paused"
    Harness(project.root).decide("score[a]", "redo", run_id=project.run_id)
    assert project.again("kelp").status == "completed"
    assert project.ran == ["score[a]"]


def test_a_plan_says_what_may_count_again(tmp_path: Path) -> None:
    """What stands behind a task that runs counts again if that comes out as it was: its price is not certain."""
    pipe = Pipeline("p", params={"topic": str})

    @pipe.step
    def outline(ctx: Context, topic: str) -> str:
        ctx.usage(cost_usd=1.0)
        return topic

    @pipe.step
    def draft(ctx: Context, outline: str) -> str:
        ctx.usage(cost_usd=1.0)
        return outline

    run_id = pipe.run(params={"topic": "kelp"}, dir=tmp_path).run_id
    away = pipe.run(params={"topic": "klep"}, dir=tmp_path, resume=run_id, budget_usd=3.0)
    assert (away.status, away.picture.state.task("draft").before is not None) == ("paused", True)
    plan = Harness(tmp_path).plan(pipe, resume=run_id, params={"topic": "kelp"})
    assert [(task.id, task.action, task.if_different) for task in plan.tasks] == [
        ("outline", "redo", False),
        ("draft", "redo", True),
    ]
    result = pipe.run(params={"topic": "kelp"}, dir=tmp_path, resume=run_id, budget_usd=99.0)
    assert (result.status, result.cost_usd) == ("completed", 4.0)


def test_a_plan_says_that_it_counts_again(project: Project) -> None:
    """What is whole is reused, what is lost is put back; nothing would run."""
    assert project.again("klep", budget_usd=0.0).status == "paused"
    (project.root / "a.md").unlink()
    planned = {task.id: (task.action, task.reason) for task in project.plan("kelp")}
    assert planned["draft[a]"] == ("heal", "a.md is missing")
    assert planned["draft[b]"] == ("trust", "what it was made from is there again")
    assert {action for action, _ in planned.values()} == {"heal", "trust"}


def test_what_somebody_wants_again_runs_again(project: Project) -> None:
    """A wish is more than an input that was others for a while."""
    assert project.again("klep", budget_usd=0.0).status == "paused"
    assert project.again("kelp").status == "completed"
    Harness(project.root).reject("draft[a]", "draft[a]", "shorter", run_id=project.run_id)
    assert project.again("kelp").status == "completed"
    assert project.ran == ["draft[a]"]
