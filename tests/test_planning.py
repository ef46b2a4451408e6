"""Plans: what would run, why, and what it would cost; nothing is changed by asking."""

from __future__ import annotations

from pathlib import Path

from holdfast import Context, Pipeline
from holdfast.layout import ProjectLayout
from holdfast.planning import Plan, explain, make_plan


def book(version: int = 1, *, drop: str = "", title: str = "draft", was: str = "") -> Pipeline:
    pipe = Pipeline("book", params={"topic": (str, "x")})

    @pipe.step(writes="outline.md")
    def outline(topic: str) -> str:
        return f"# {topic}\n"

    pipe.items("ch", [name for name in ("a", "b") if name != drop])

    @pipe.step(name=title, each="ch", writes="drafts/{ch}.md", version=version, was=was or ())
    def draft(ctx: Context, ch: str, outline: str) -> str:
        ctx.usage(cost_usd=0.5)
        return f"{ch} of {outline}"

    if title == "draft":

        @pipe.step(writes="book.md")
        def bind(draft: dict[str, str]) -> str:
            return "".join(draft.values())

    return pipe


def actions(plan: Plan) -> dict[str, str]:
    return {task.id: task.action for task in plan.tasks}


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def test_a_plan_of_nothing_done_runs_everything(tmp_path: Path) -> None:
    """Before the first run every known task is to run, and nothing is created."""
    plan = make_plan(book().compile(), ProjectLayout(tmp_path))
    assert plan.run_id is None
    assert set(actions(plan).values()) == {"run"}
    assert list(tmp_path.iterdir()) == []


def test_a_plan_of_a_finished_run_trusts_everything(tmp_path: Path) -> None:
    """Asking changes no byte."""
    book().run(dir=tmp_path)
    before = files(tmp_path)
    plan = make_plan(book().compile(), ProjectLayout(tmp_path))
    assert set(actions(plan).values()) == {"trust"}
    assert plan.expected_cost_usd == 0.0
    assert files(tmp_path) == before


def test_a_raised_version_is_planned_with_its_cost(tmp_path: Path) -> None:
    """The step's tasks are redone, at what they cost before; the rest only if they differ."""
    book().run(dir=tmp_path)
    plan = make_plan(book(version=2).compile(), ProjectLayout(tmp_path))
    assert actions(plan) == {"outline": "trust", "draft[a]": "redo", "draft[b]": "redo", "bind": "redo"}
    assert plan.changes == ["step draft: version 1 -> 2"]
    assert plan.expected_cost_usd == 1.0
    reasons = {task.id: task.reason for task in plan.tasks}
    assert reasons["draft[a]"] == "its version was raised from 1 to 2"
    assert "comes out differently" in reasons["bind"]


def test_a_changed_parameter_says_so(tmp_path: Path) -> None:
    """The plan names the parameter, and the task that takes it."""
    run = book().run(dir=tmp_path)
    plan = make_plan(book().compile(), ProjectLayout(tmp_path), run.run_id, {"topic": "y"})
    assert plan.changes == ["parameter topic: 'x' -> 'y'"]
    assert actions(plan)["outline"] == "redo"


def test_damage_and_edits_are_seen(tmp_path: Path) -> None:
    """A damaged artifact is to be healed, an edited one asked about; dependents of it are not run."""
    book().run(dir=tmp_path)
    (tmp_path / "drafts" / "a.md").write_bytes(b"cut")
    edited = tmp_path / "outline.md"
    edited.write_text(edited.read_text().replace("# x", "# better"))
    plan = make_plan(book().compile(), ProjectLayout(tmp_path))
    assert actions(plan)["outline"] == "ask"
    assert edited.read_text().startswith("# better")


def test_an_item_that_vanished_is_an_orphan(tmp_path: Path) -> None:
    """Nothing is silently dropped: its task is listed, its file stays."""
    book().run(dir=tmp_path)
    plan = make_plan(book(drop="b").compile(), ProjectLayout(tmp_path))
    assert plan.orphans == ["draft[b]"]
    assert (tmp_path / "drafts" / "b.md").exists()


def test_a_renamed_step_keeps_its_work(tmp_path: Path) -> None:
    """With was= nothing runs again; without, it is removed and new."""
    book(title="drafting").run(dir=tmp_path)
    kept = make_plan(book(title="writing", was="drafting").compile(), ProjectLayout(tmp_path))
    assert actions(kept)["writing[a]"] == "trust"
    assert kept.changes == ["step drafting is now called writing"]


def test_why_tells_from_recorded_facts(tmp_path: Path) -> None:
    """What it was made from, how it came to be, what happens next."""
    run = book().run(dir=tmp_path)
    lines = "\n".join(explain(ProjectLayout(tmp_path), run.run_id, "draft[a]"))
    assert "completed" in lines
    assert "made from outline" in lines
    assert "next: trust" in lines
