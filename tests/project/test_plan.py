"""Plans: what would run, why, and what it would cost; nothing is changed by asking."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.engine.projects import waiting_pipeline

from harness import Harness
from holdfast import Context, Pipeline
from holdfast.project.results import PlanResult


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


def actions(plan: PlanResult) -> dict[str, str]:
    return {task.id: task.action for task in plan.tasks}


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def test_a_plan_of_nothing_done_runs_everything(tmp_path: Path) -> None:
    """Before the first run every known task is to run, and nothing is created."""
    plan = Harness(tmp_path).plan(book())
    assert plan.run_id is None
    assert set(actions(plan).values()) == {"run"}
    assert list(tmp_path.iterdir()) == []


def test_a_plan_of_a_finished_run_trusts_everything(tmp_path: Path) -> None:
    """Asking changes no byte."""
    book().run(dir=tmp_path)
    before = files(tmp_path)
    plan = Harness(tmp_path).plan(book())
    assert set(actions(plan).values()) == {"trust"}
    assert plan.expected_cost_usd == 0.0
    assert files(tmp_path) == before


def test_a_record_that_lost_its_beginning_is_planned_with_what_is_left_of_it(tmp_path: Path) -> None:
    """What the next run takes up is foretold, and not refused: no good line is lost with the first ones."""
    ran = book().run(dir=tmp_path)
    journal = Harness(tmp_path).journal()
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[2:]))
    for snapshot in journal.parent.glob("checkpoint_*"):
        snapshot.unlink()
    plan = Harness(tmp_path).plan(book())
    assert plan.record_lost and plan.run_id == ran.run_id
    assert set(actions(plan).values()) == {"trust"}


def test_a_raised_version_is_planned_with_its_cost(tmp_path: Path) -> None:
    """The step's tasks are redone, at what they cost before; the rest only if they differ."""
    book().run(dir=tmp_path)
    plan = Harness(tmp_path).plan(book(version=2))
    assert actions(plan) == {"outline": "trust", "draft[a]": "redo", "draft[b]": "redo", "bind": "redo"}
    assert plan.changes == ["step draft: version 1 -> 2"]
    assert plan.expected_cost_usd == 1.0
    reasons = {task.id: task.reason for task in plan.tasks}
    assert reasons["draft[a]"] == "its version was raised from 1 to 2"
    assert "comes out differently" in reasons["bind"]


def test_a_changed_parameter_says_so(tmp_path: Path) -> None:
    """The plan names the parameter, and the task that takes it."""
    run = book().run(dir=tmp_path)
    plan = Harness(tmp_path).plan(book(), resume=run.run_id, params={"topic": "y"})
    assert plan.changes == ["parameter topic: 'x' -> 'y'"]
    assert actions(plan)["outline"] == "redo"


def test_damage_and_edits_are_seen(tmp_path: Path) -> None:
    """A damaged artifact is to be healed, an edited one asked about; dependents of it are not run."""
    book().run(dir=tmp_path)
    (tmp_path / "drafts" / "a.md").write_bytes(b"cut")
    edited = tmp_path / "outline.md"
    edited.write_text(edited.read_text().replace("# x", "# better"))
    plan = Harness(tmp_path).plan(book())
    assert actions(plan)["outline"] == "ask"
    assert edited.read_text().startswith("# better")


def test_an_edit_that_gives_way_to_a_redo_is_foretold(tmp_path: Path) -> None:
    """Whatever its step runs again for: nobody is asked about the edit, so the plan says what becomes of it."""
    book().run(dir=tmp_path)
    edited = tmp_path / "drafts" / "a.md"
    edited.write_text(edited.read_text().replace("a of", "all of"))
    plan = Harness(tmp_path).plan(book(version=2))
    reasons = {task.id: task.reason for task in plan.tasks if task.action == "redo"}
    assert reasons["draft[a]"] == f"{reasons['draft[b]']}; what you wrote into drafts/a.md is set aside"


def test_an_item_that_vanished_is_an_orphan(tmp_path: Path) -> None:
    """Nothing is silently dropped: its task is listed, its file stays."""
    book().run(dir=tmp_path)
    plan = Harness(tmp_path).plan(book(drop="b"))
    assert plan.orphans == ["draft[b]"]
    assert (tmp_path / "drafts" / "b.md").exists()


def test_a_renamed_step_keeps_its_work(tmp_path: Path) -> None:
    """With was= nothing runs again; without, it is removed and new."""
    book(title="drafting").run(dir=tmp_path)
    kept = Harness(tmp_path).plan(book(title="writing", was="drafting"))
    assert actions(kept)["writing[a]"] == "trust"
    assert kept.changes == [
        "step drafting is now called writing",
        "step writing has another marker: finished files are sealed anew",  # its default comes from the name
    ]


def test_what_changed_in_a_renamed_step_is_told_too_in_the_order_of_the_pipeline(tmp_path: Path) -> None:
    """A new name hides no raised version, path or marker; and two plans of the same say the same."""

    def chain(version: int, names: list[str], was: list[str]) -> Pipeline:
        pipe = Pipeline("chain")
        for name, old in zip(names, was, strict=True):
            pipe.step(name=name, was=old or (), writes=f"{name}.md", marker=name.upper(), version=version)(
                lambda: "text"
            )
        return pipe

    chain(1, ["a", "b", "c"], ["", "", ""]).run(dir=tmp_path)
    plan = Harness(tmp_path).plan(chain(2, ["x", "b", "z"], ["a", "", "c"]))
    path = "writes to another path: finished files are moved"
    marker = "has another marker: finished files are sealed anew"
    assert plan.changes == [
        *("step a is now called x", "step c is now called z"),
        *("step x: version 1 -> 2", f"step x {path}", f"step x {marker}"),
        "step b: version 1 -> 2",
        *("step z: version 1 -> 2", f"step z {path}", f"step z {marker}"),
    ]


def test_a_file_that_a_finished_step_has_not_written_yet_is_told(tmp_path: Path) -> None:
    """Finished work is not redone for it, so nobody shall believe that it will be there, or was moved."""

    def one(writes: str | dict[str, str] | None) -> Pipeline:
        pipe = Pipeline("one")
        pipe.step(name="a", marker="A", writes=writes)(lambda: {"x": "text", "y": "more"})
        return pipe

    def changes(writes: str | dict[str, str] | None) -> list[str]:
        return Harness(tmp_path).plan(one(writes)).changes

    one({"x": "x.md"}).run(dir=tmp_path)
    again = "of finished work only when it is done again, as with --redo"
    assert changes({"x": "x.md", "y": "y.md"}) == [f"step a writes y.md, too: {again}"]
    assert changes({"y": "x.md"}) == [
        f"step a writes x.md, too: {again}",
        "step a no longer writes x.md: finished files stay",
    ]
    assert changes({"x": "z.md"}) == ["step a writes to another path: finished files are moved"]


def test_a_file_for_what_was_a_value_is_told(tmp_path: Path) -> None:
    """That is no move: there was no file."""

    def one(writes: str | None) -> Pipeline:
        pipe = Pipeline("one")
        pipe.step(name="a", writes=writes)(lambda: "text")
        return pipe

    one(None).run(dir=tmp_path)
    plan = Harness(tmp_path).plan(one("a.md"))
    assert plan.changes == ["step a writes a.md, now: what it gave before is written there, if it can be"]
    assert [(task.action, task.reason) for task in plan.tasks] == [("trust", "its value is written to a.md")]


def test_why_tells_from_recorded_facts(tmp_path: Path) -> None:
    """What it was made from, how it came to be, what happens next."""
    run = book().run(dir=tmp_path)
    lines = Harness(tmp_path).why("draft[a]", run.run_id)
    assert "completed" in lines
    assert "made from outline" in lines
    assert "next: nothing, it is used as it is (intact" in lines


def test_what_runs_only_perhaps_is_counted_and_priced_apart(tmp_path: Path) -> None:
    """A draft is done again for certain; that the book behind it is, depends on how it comes out."""

    def pipeline(version: int) -> Pipeline:
        pipe = Pipeline("p")

        @pipe.step(version=version)
        def first(ctx: Context) -> int:
            ctx.usage(cost_usd=0.25)
            return 1

        @pipe.step
        def second(ctx: Context, first: int) -> int:
            ctx.usage(cost_usd=0.5)
            return first

        return pipe

    pipeline(1).run(dir=tmp_path)
    plan = Harness(tmp_path).plan(pipeline(2))
    assert {task.id: (task.action, task.if_different) for task in plan.tasks} == {
        "first": ("redo", False),
        "second": ("redo", True),
    }
    assert (plan.expected_cost_usd, plan.most_cost_usd) == (0.25, 0.75)


def test_a_task_behind_a_gate_names_the_gate(tmp_path: Path) -> None:
    """And the command that opens it, also behind another task and for a gate that is not reached yet."""
    pipe = Pipeline("p")

    @pipe.step
    def first() -> int:
        return 1

    pipe.gate("publish_ok", after=["first"])

    @pipe.step(after=["publish_ok"])
    def second() -> int:
        return 2

    @pipe.step
    def third(second: int) -> int:
        return second

    reason = "after gate publish_ok is approved: holdfast approve publish_ok"
    for _ in range(2):
        plan = Harness(tmp_path).plan(pipe)
        reasons = {task.id: task.reason for task in plan.tasks}
        assert (reasons["second"], reasons["third"]) == (reason, reason)
        pipe.run(dir=tmp_path)


def test_a_gate_with_nothing_behind_it_is_told(tmp_path: Path) -> None:
    """The run is not complete without its answer: a plan that names only tasks would promise that."""
    pipe = Pipeline("p")

    @pipe.step
    def first() -> int:
        return 1

    pipe.gate("publish_ok", after=["first"])
    pipe.gate("seen", after=["first"], blocking=False)
    harness = Harness(tmp_path)
    for _ in range(2):
        assert harness.plan(pipe).gates == ["publish_ok", "seen"]
        run = pipe.run(dir=tmp_path)
    assert run.status == "paused"
    harness.approve("publish_ok", run_id=run.run_id)
    assert harness.plan(pipe).gates == ["seen"]
    harness.approve("seen", run_id=run.run_id)
    assert harness.plan(pipe).gates == []


def test_tasks_that_wait_for_each_other_never_start(tmp_path: Path) -> None:
    """Where only the items that a function made show it, the plan and `why` say what the run would fail with."""
    pipe = waiting_pipeline()

    @pipe.step
    def end(review: dict[str, str]) -> int:
        return len(review)

    assert pipe.run(dir=tmp_path).status == "failed"
    plan = Harness(tmp_path).plan(pipe)
    never = {task.id: task.reason for task in plan.found.tasks if task.group == "never"}
    names = "review[a] -> ok -> draft[b] -> review[a]"
    loop = f"these wait for each other: {names}; change the pipeline so that they do not"
    assert never == {
        "review[a]": loop,
        "draft[b]": loop,
        "review[b]": "behind review[a], which waits for itself",
        "end": "behind review[a], which waits for itself",
    }
    assert f"  next: it never starts: {loop}" in Harness(tmp_path).why("draft[b]", plan.run_id or "")


def test_a_cut_off_or_failed_task_has_one_reason(tmp_path: Path) -> None:
    """`plan` and `recover --dry-run` say the same of it, though only one of them continues the run."""
    pipe = Pipeline("p")

    @pipe.step(retries=5, backoff=0.0)
    def broken() -> int:
        raise RuntimeError("no luck")

    pipe.run(dir=tmp_path, run_id="one")
    harness = Harness(tmp_path)
    again = {"event": "node_enter", "step_id": "broken", "node": "broken", "attempt": 7}
    failed = {**again, "event": "node_exit", "status": "failed", "error": "no luck"}
    for event, reason in (
        (None, "failed before, and is tried again: "),
        (again, "an earlier attempt was cut off"),
        (failed, "failed before, and is tried again: "),
    ):
        if event is not None:
            harness.append(**event)
        (planned,) = harness.plan(pipe, resume="one").tasks
        (foreseen,) = harness.recover(pipe, dry_run=True).tasks
        assert planned.reason == foreseen.reason
        assert planned.reason.startswith(reason)


def test_a_section_comes_after_its_source(tmp_path: Path) -> None:
    """Where the source must run first, that is why the section is not there yet."""
    pipe, is_broken = Pipeline("p"), [True]
    pipe.items("ch", ["a"])

    @pipe.step(each="ch", retries=0)
    def draft(ch: str) -> str:
        if is_broken:
            raise ValueError
        return ch

    @pipe.step(each="ch", appends="glossary.md", sources=["draft"])
    def glossary(ch: str, source: str) -> str:
        return source

    pipe.run(dir=tmp_path)
    plan = Harness(tmp_path).plan(pipe)
    assert {task.id: task.reason for task in plan.tasks}["glossary[a]"] == "after draft[a]"


def test_a_plan_knows_the_budget(tmp_path: Path) -> None:
    """What was spent reaches what may be spent: nothing of it would start."""
    book().run(dir=tmp_path, budget_usd=0.5, concurrency=1)
    plan = Harness(tmp_path).plan(book())
    assert (plan.cost_usd, plan.budget_usd) == (0.5, 0.5)
    (tmp_path / "holdfast.toml").write_text("[run]\nbudget_usd = 2.0\n")
    assert Harness(tmp_path).plan(book()).budget_usd == 2.0


def test_what_runs_now_is_not_called_cut_off(tmp_path: Path) -> None:
    """While an engine is at work, plan and why say of its tasks that they run, whatever lies there of them."""
    pipe, told = Pipeline("p"), {}

    @pipe.step(writes="a.md")
    def a(ctx: Context) -> str:
        ctx.write("half of it")
        plan = Harness(tmp_path).plan(pipe, resume=ctx.run_id)
        told["plan"] = [plan.running, *((task.action, task.reason) for task in plan.tasks)]
        told["why"] = Harness(tmp_path).why("a", ctx.run_id)
        raise SystemExit

    result = pipe.run(dir=tmp_path)
    assert told["plan"] == [True, ("run", "it is running now")]
    assert told["why"] == "a: in progress\n  attempt 1 is running now"
    after = Harness(tmp_path).plan(pipe, resume=result.run_id)
    assert (after.running, after.tasks[0].reason) == (
        False,
        "a.md.part is there, but nothing proves that it is complete",
    )


def lossy(*, version: int = 1) -> Pipeline:
    """outline and score leave no file; cover, draft and final leave one without a copy."""
    pipe = Pipeline("lossy", params={"size": (int, 1)})

    @pipe.step
    def outline() -> str:
        return "kelp"

    @pipe.step(writes="cover.md", copy=False)
    def cover(outline: str) -> str:
        return f"# {outline}\n"

    @pipe.step(writes="draft.md", copy=False, version=version)
    def draft(outline: str, size: int) -> str:
        return f"{outline} {version} {size}\n"

    @pipe.step
    def score(draft: str) -> int:
        return len(draft)

    @pipe.step(writes="final.md", copy=False)
    def final(draft: str, score: int) -> str:
        return f"{draft} {score}\n"

    return pipe


def rebuilt(root: Path) -> Harness:
    """Such a project after the loss of all state: everything was adopted, and nothing ran."""
    lossy().run(dir=root)
    shutil.rmtree(root / ".holdfast")
    result = lossy().run(dir=root)
    assert result.status == "completed"
    assert result.picture.state.task("score").value_lost
    return Harness(root)


def certain(plan: PlanResult) -> set[str]:
    return {task.id for task in plan.tasks if task.action in ("run", "redo") and not task.if_different}


def test_behind_a_lost_input_that_comes_back_a_raised_version_still_counts(tmp_path: Path) -> None:
    """The cover needs the outline again; whatever that gives, the draft is made by a newer version."""
    harness = rebuilt(tmp_path)
    (tmp_path / "cover.md").unlink()
    assert {"outline", "cover", "draft"} <= certain(harness.plan(lossy(version=2)))


def test_behind_work_that_is_redone_a_lost_value_that_is_needed_comes_back(tmp_path: Path) -> None:
    """Draft and final are gone, and final takes the score: nobody has that any more."""
    harness = rebuilt(tmp_path)
    (tmp_path / "draft.md").unlink()
    (tmp_path / "final.md").unlink()
    assert certain(harness.plan(lossy())) == {"outline", "draft", "score", "final"}


def test_behind_work_that_is_redone_a_changed_parameter_is_certain(tmp_path: Path) -> None:
    """The draft runs also if the outline comes out as it was; what takes it, only if it differs."""
    run_id = lossy().run(dir=tmp_path).run_id
    Harness(tmp_path).decide("outline", "redo", run_id=run_id)
    plan = Harness(tmp_path).plan(lossy(), resume=run_id, params={"size": 2})
    assert certain(plan) == {"outline", "draft"}


def test_a_lost_value_that_may_be_needed_is_not_certain(tmp_path: Path) -> None:
    """The draft is done again; only if it differs does the final run, and need the score."""
    harness = rebuilt(tmp_path)
    run_id = harness.plan(lossy()).run_id or ""
    harness.decide("draft", "redo", run_id=run_id)
    plan = harness.plan(lossy(), resume=run_id)
    assert certain(plan) == {"outline", "draft"}
    assert {task.id for task in plan.tasks if task.if_different} == {"score", "final"}
    result = lossy().run(dir=tmp_path, resume=run_id)
    assert (result.status, result.picture.state.task("score").value_lost) == ("completed", True)


def test_a_lost_value_that_only_what_may_run_needs_is_not_certain(tmp_path: Path) -> None:
    """Nothing changes it: it comes back only if what takes it runs."""
    pipe = Pipeline("p")
    pipe.step(lambda: "draft", name="draft", writes="draft.md")
    pipe.step(lambda: 1, name="score")

    @pipe.step(writes="final.md")
    def final(draft: str, score: int) -> str:
        return f"{draft} {score}"

    run_id = pipe.run(dir=tmp_path).run_id
    shutil.rmtree(tmp_path / ".holdfast")
    pipe.run(dir=tmp_path)
    Harness(tmp_path).decide("draft", "redo", run_id=run_id)
    plan = Harness(tmp_path).plan(pipe, resume=run_id)
    assert {task.id: (task.action, task.if_different) for task in plan.tasks} == {
        "draft": ("redo", False),
        "score": ("redo", True),
        "final": ("redo", True),
    }


def test_an_edit_that_counts_only_once_its_items_are_known_is_foreseen(tmp_path: Path) -> None:
    """After a loss it waits for them; what was made before the edit is not called trusted, and then runs."""
    pipe, ran = Pipeline("p"), []

    @pipe.items("part")
    def parts() -> list[str]:
        return ["a", "b"]

    @pipe.step(each="part", writes="d/{part}.md")
    def draft(ctx: Context, part: str) -> str:
        ran.append(ctx.task_id)
        return part

    @pipe.step(each="part")
    def score(ctx: Context, draft: str) -> int:
        ran.append(ctx.task_id)
        return len(draft)

    @pipe.step(each="part", writes="f/{part}.md")
    def final(ctx: Context, draft: str, score: int) -> str:
        ran.append(ctx.task_id)
        return f"{draft} {score}"

    run_id = pipe.run(dir=tmp_path).run_id
    shutil.rmtree(tmp_path / ".holdfast")
    edited = tmp_path / "d/b.md"
    edited.write_text("mine " + edited.read_text())
    (tmp_path / "holdfast.toml").write_text('[run]\non_changed = "keep"\n')
    plan = Harness(tmp_path).plan(pipe, resume=run_id)
    planned = {task.id: (task.action, task.if_different) for task in plan.tasks}
    assert planned["draft[b]"] == ("adopt", False)
    assert planned["score[b]"] == planned["final[b]"] == ("redo", True)
    ran.clear()
    Harness(tmp_path).run(pipe, resume=run_id)
    assert set(ran) == {"score[b]", "final[b]"}
    assert {planned[f"{step}[a]"] for step in ("draft", "score", "final")} == {("adopt", False)}


def killed_before_the_record_of(task: str, root: Path) -> None:
    """A run as a kill leaves it: what `task` made is there, and the record ends before it."""
    (run,) = (root / ".holdfast" / "runs").iterdir()
    for snapshot in run.glob("checkpoint_*"):
        snapshot.unlink()
    lines = (run / "events.jsonl").read_bytes().splitlines(keepends=True)
    ends = [number for number, line in enumerate(lines) if b'"node_exit"' in line and task.encode() in line]
    (run / "events.jsonl").write_bytes(b"".join(lines[: ends[0]]))


def story(version: int, ran: list[str]) -> Pipeline:
    """A plan, and chapters that are made from it."""
    pipe = Pipeline("story")
    pipe.items("ch", ["a", "b"])

    @pipe.step(version=version, writes="plan.md")
    def plan(ctx: Context) -> str:
        ran.append(ctx.task_id)
        return f"plan {version}"

    @pipe.step(each="ch", writes="{ch}.md")
    def chapter(ctx: Context, ch: str, plan: str) -> str:
        ran.append(ctx.task_id)
        ctx.usage(cost_usd=0.5)
        return f"{ch} by {plan}"

    return pipe


def test_a_whole_file_without_a_record_waits_for_what_it_was_made_from(tmp_path: Path) -> None:
    """Its plan is made anew, and comes out differently: it is not called adopted, and then runs."""
    ran: list[str] = []
    run_id = story(1, ran).run(dir=tmp_path, concurrency=1).run_id
    killed_before_the_record_of("chapter[b]", tmp_path)
    ran.clear()
    plan = Harness(tmp_path).plan(story(2, ran), resume=run_id)
    found = {task.id: (task.action, task.if_different) for task in plan.tasks}
    assert found == {"plan": ("redo", False), "chapter[a]": ("redo", True), "chapter[b]": ("redo", True)}
    assert plan.most_cost_usd == 1.0
    assert story(2, ran).run(dir=tmp_path, resume=run_id, concurrency=1).status == "completed"
    assert ran == ["plan", "chapter[a]", "chapter[b]"]


def test_a_whole_file_without_a_record_is_adopted_if_what_it_was_made_from_stands(tmp_path: Path) -> None:
    """Nothing else is unknown about it."""
    ran: list[str] = []
    run_id = story(1, ran).run(dir=tmp_path, concurrency=1).run_id
    killed_before_the_record_of("chapter[b]", tmp_path)
    plan = Harness(tmp_path).plan(story(1, ran), resume=run_id)
    assert actions(plan)["chapter[b]"] == "adopt"


def test_recover_leaves_such_a_file_to_the_run_which_asks_nobody(tmp_path: Path) -> None:
    """It is compared like finished work when its plan is there again; recovery does not record it before."""
    ran: list[str] = []
    run_id = story(1, ran).run(dir=tmp_path, concurrency=1).run_id
    killed_before_the_record_of("chapter[b]", tmp_path)
    harness = Harness(tmp_path)
    recovery = harness.recover(story(2, ran))
    assert {task.action for task in recovery.tasks} == {"redo"}
    ran.clear()
    assert story(2, ran).run(dir=tmp_path, resume=run_id, concurrency=1).status == "completed"
    assert ran == ["plan", "chapter[a]", "chapter[b]"]


def test_what_takes_a_section_that_is_made_again_runs_only_perhaps(tmp_path: Path) -> None:
    """A chapter receives the sections before its own: the first of them is certain, the chapter behind is not."""

    def pipeline(version: int) -> Pipeline:
        pipe = Pipeline("p")
        pipe.items("part", ["a", {"id": "b", "after": ["a"]}])

        @pipe.step(each="part")
        def text(part: str, notes: dict[str, str]) -> str:
            return part

        @pipe.step(each="part", appends="notes.md", sources="text", version=version)
        def notes(source: str) -> str:
            return source

        return pipe

    pipeline(1).run(dir=tmp_path)
    plan = Harness(tmp_path).plan(pipeline(2))
    assert {task.id: (task.action, task.if_different) for task in plan.tasks} == {
        "text[a]": ("trust", False),
        "text[b]": ("redo", True),
        "notes[a]": ("redo", False),
        "notes[b]": ("redo", False),
    }


def test_a_section_all_of_whose_sources_are_left_out_is_not_to_run(tmp_path: Path) -> None:
    """`plan` leaves out what the run then leaves out."""
    pipe = Pipeline("p")
    pipe.items("part", ["a", "b"])

    @pipe.step(each="part")
    def text(part: str) -> str:
        if part == "a":
            raise RuntimeError("no")
        return part

    @pipe.step(each="part", appends="notes.md", sources="text")
    def notes(source: str) -> str:
        return source

    @pipe.step
    def index(notes: dict[str, str]) -> list[str]:
        return [*notes]

    harness = Harness(tmp_path)
    harness.decide("text[a]", "skip", run_id=pipe.run(dir=tmp_path).run_id)
    planned = {task.id: task.reason for task in harness.plan(pipe).tasks}
    assert planned["notes[a]"] == "text[a] was skipped"
    assert planned["index"] == "not started"
    assert pipe.run(dir=tmp_path).picture.record("notes[a]").status == "skipped"


def test_a_file_with_words_below_its_seal_still_makes_its_lost_copy_again(tmp_path: Path) -> None:
    """With objects/ lost, what was accepted still stands above the words: it is put back, as plan and why say."""
    harness = Harness(tmp_path)
    run_id = harness.run(book()).run_id
    shutil.rmtree(harness.objects)
    with (tmp_path / "drafts/a.md").open("a") as file:
        file.write("A remark.\n")
    before = files(tmp_path)
    plan = harness.plan(book())
    assert actions(plan)["draft[a]"] == "heal"
    assert plan.expected_cost_usd == 0.0
    assert "objects/ has no whole copy" not in harness.why("draft[a]", run_id)
    assert files(tmp_path) == before
    result = harness.run(book())
    assert (result.status, result.cost_usd) == ("completed", 1.0)


def test_what_is_left_out_behind_a_gate_is_not_said_to_run(tmp_path: Path) -> None:
    """A plan does not get past a gate, but knows what a person left out there, and what goes with it."""
    pipe = Pipeline("gated")

    @pipe.step(writes="draft.md")
    def draft() -> str:
        return "words\n"

    pipe.gate("ok", after=["draft"])

    @pipe.step(writes="review.md")
    def review(draft: str) -> str:
        return "fine\n"

    @pipe.step(writes="final.md")
    def final(review: str) -> str:
        return "all\n"

    harness = Harness(tmp_path)
    harness.decide("review", "skip", run_id=pipe.run(dir=tmp_path).run_id)
    plan = harness.plan(pipe)
    told = {task.id: (task.told_as, task.reason) for task in plan.found.tasks}
    assert told["review"] == ("skip", "skipped by a person")
    assert told["final"] == ("skip", "review was skipped")
    assert actions(plan)["final"] == actions(plan)["review"] == "trust"
