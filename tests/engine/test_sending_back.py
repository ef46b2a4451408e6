"""Rewind: objections arrive together, rounds are counted, accepted reviews can be kept."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from harness import PATIENCE_S, Harness, RunResult, in_thread
from holdfast import Context, Pipeline, Rewind
from holdfast.artifacts.keeping import Artifacts
from holdfast.errors import StorageError
from holdfast.stores import disk


def test_a_disk_that_cannot_read_what_was_sent_back_stops_the_run(tmp_path: Path) -> None:
    """That is no failure of the step that asks for it: no attempt is used up, and the next run goes on there."""
    pipe, seen = Pipeline("p"), []

    @pipe.step(writes="draft.md")
    def draft(ctx: Context) -> str:
        if ctx.feedback:
            with pytest.MonkeyPatch.context() as patch:
                if not seen:
                    patch.setattr(Artifacts, "load", failing)
                seen.append(ctx.round)
                return f"not {ctx.previous}"
        return "first\n"

    @pipe.step
    def review(draft: str) -> str:
        if draft == "first\n":
            raise Rewind("draft", feedback="no")
        return draft

    def failing(artifacts: Artifacts, accepted: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "draft.md")

    with pytest.raises(StorageError, match="Input/output error"):
        pipe.run(dir=tmp_path)
    assert pipe.run(dir=tmp_path).outputs["review"] == "not first\n"
    assert seen == [1, 1]
    assert {event.get("status") for event in Harness(tmp_path).events("node_exit", task="draft")} == {"completed"}


def test_three_reviewers_object_together(tmp_path: Path) -> None:
    """The draft is redone once with all objections, and sees what was sent back."""
    pipe, seen = Pipeline("p"), []

    @pipe.step(writes="draft.md")
    def draft(ctx: Context) -> str:
        seen.append((ctx.round, sorted(ctx.feedback), ctx.previous, ctx.attempt))
        return f"round {ctx.round}\n"

    def reviewer(name: str) -> None:
        @pipe.step(name=name)
        def review(draft: str) -> str:
            if draft == "round 0\n":
                raise Rewind("draft", feedback=f"{name} objects")
            return "fine"

    for name in ("r1", "r2", "r3"):
        reviewer(name)
    result = pipe.run(dir=tmp_path, concurrency=4)
    assert result.status == "completed"
    objections = ["r1 objects", "r2 objects", "r3 objects"]
    assert seen == [(0, [], None, 1), (1, objections, "round 0\n", 1)]


def test_objections_from_far_behind_arrive_together(tmp_path: Path) -> None:
    """A reviewer of what was made from it is waited for, too: it objects to the same round, not to the next."""
    pipe, seen = Pipeline("p"), []
    slow_began, pause = threading.Event(), threading.Event()

    @pipe.step
    def outline(ctx: Context) -> int:
        seen.append((ctx.round, sorted(ctx.feedback)))
        return ctx.round

    @pipe.step
    def draft(outline: int) -> int:
        return outline

    @pipe.step
    def quick(draft: int) -> None:
        assert slow_began.wait(PATIENCE_S)
        if draft == 0:
            raise Rewind("outline", feedback="quick objects")

    @pipe.step
    def slow(draft: int) -> None:
        slow_began.set()
        if draft == 0:
            while not Harness(tmp_path).events("rewind_requested"):
                pause.wait(0.01)
            raise Rewind("outline", feedback="slow objects")

    assert in_thread(lambda: pipe.run(dir=tmp_path)).status == "completed"
    assert seen == [(0, []), (1, ["quick objects", "slow objects"])]


def test_what_is_lost_is_made_again_with_the_same_words(tmp_path: Path) -> None:
    """A draft damaged after a round is redone with that round's feedback, so that nobody has to object again."""
    pipe, seen = Pipeline("p"), []

    @pipe.step(writes="draft.md", copy=False)
    def draft(ctx: Context) -> str:
        seen.append(tuple(ctx.feedback))
        return "longer\n" if ctx.feedback else "short\n"

    @pipe.step
    def review(draft: str) -> str:
        if draft == "short\n":
            raise Rewind("draft", feedback="too short")
        return "fine"

    assert pipe.run(dir=tmp_path).status == "completed"
    for _ in range(2):
        (tmp_path / "draft.md").unlink()
        assert pipe.run(dir=tmp_path).status == "completed"
    assert seen == [(), ("too short",), ("too short",), ("too short",)]
    assert len(Harness(tmp_path).events("node_exit", task="review")) == 1


def test_other_work_does_not_get_old_feedback(tmp_path: Path) -> None:
    """Changed inputs begin anew: what was said about another draft is not repeated."""
    seen: list[tuple[str, ...]] = []

    def pipeline(version: int) -> Pipeline:
        pipe = Pipeline("p")

        @pipe.step(version=version)
        def draft(ctx: Context) -> str:
            seen.append(tuple(ctx.feedback))
            return f"draft {version} {ctx.round}"

        @pipe.step
        def review(draft: str) -> str:
            if draft == "draft 1 0":
                raise Rewind("draft", feedback="too short")
            return "fine"

        return pipe

    pipeline(1).run(dir=tmp_path)
    assert pipeline(2).run(dir=tmp_path).status == "completed"
    assert seen == [(), ("too short",), ()]


def test_whoever_sends_back_has_all_its_attempts_in_the_new_round(tmp_path: Path) -> None:
    """What went wrong before its objection is over: it does not count any more."""
    pipe = Pipeline("p")

    @pipe.step(writes="draft.md")
    def draft(ctx: Context) -> str:
        return f"round {ctx.round}\n"

    @pipe.step(retries=1, backoff=0.0001)
    def review(ctx: Context, draft: str) -> str:
        if ctx.attempt == 1:
            raise ConnectionError("busy")
        if draft == "round 0\n":
            raise Rewind("draft", feedback="no")
        return "fine"

    result = pipe.run(dir=tmp_path)
    assert (result.status, result.outputs.get("review")) == ("completed", "fine")
    tried = Harness(tmp_path).events("node_enter", task="review")
    assert [(event.get("round", 0), event.get("attempt", 1)) for event in tried] == [
        (0, 1),
        (0, 2),
        (1, 1),
        (1, 2),
    ]


def test_used_up_rounds_wait_for_a_person(tmp_path: Path) -> None:
    """After `rounds` objections the raiser needs review, exit 3, and another run does not begin anew."""
    pipe, drafts = Pipeline("p"), []

    @pipe.step
    def draft() -> int:
        drafts.append(1)
        return len(drafts)

    @pipe.step
    def review(draft: int) -> str:
        raise Rewind("draft", feedback="never", rounds=2)

    result = pipe.run(dir=tmp_path)
    assert (result.status, result.exit_code, result.needs_review) == ("paused", 3, ["review"])
    assert len(drafts) == 3
    assert Harness(tmp_path).events("node_exit", task="review")[-1]["kind"] == "rounds"
    assert pipe.run(dir=tmp_path).exit_code == 3
    assert len(drafts) == 3


def test_a_review_that_was_under_way_is_kept_too(tmp_path: Path) -> None:
    """`keep` holds for a reviewer that accepts after the objection was raised: it is not paid for twice."""
    pipe, runs = Pipeline("p"), list[str]()

    @pipe.step(writes="draft.md")
    def draft(ctx: Context) -> str:
        return f"round {ctx.round}\n"

    @pipe.step(writes="strict.md")
    def strict(draft: str) -> str:
        runs.append("strict")
        if draft == "round 0\n":
            raise Rewind("draft", feedback="again", keep=["slow"])
        return "accepted\n"

    @pipe.step(writes="slow.md")
    def slow(draft: str) -> str:
        runs.append("slow")
        while not Harness(tmp_path).events("rewind_requested"):
            pass
        return "accepted\n"

    assert in_thread(lambda: pipe.run(dir=tmp_path)).status == "completed"
    assert sorted(runs) == ["slow", "strict", "strict"]
    assert [event["step_id"] for event in Harness(tmp_path).events("task_kept")] == ["slow"]


def test_a_kept_review_is_sealed_anew_against_the_new_input(tmp_path: Path) -> None:
    """`keep` spares a reviewer that had accepted; the kept file proves the new input."""
    pipe, runs = Pipeline("p"), []

    @pipe.step(writes="draft.md")
    def draft(ctx: Context) -> str:
        return f"round {ctx.round}\n"

    @pipe.step(writes="kind.md")
    def kind(draft: str) -> str:
        runs.append("kind")
        return "accepted\n"

    @pipe.step(writes="strict.md")
    def strict(draft: str, kind: str) -> str:
        runs.append("strict")
        if draft == "round 0\n":
            raise Rewind("draft", feedback="again", keep=["kind"])
        return "accepted\n"

    result = pipe.run(dir=tmp_path)
    assert (result.status, runs) == ("completed", ["kind", "strict", "strict"])
    kept = Harness(tmp_path).events("task_kept")
    assert [event["step_id"] for event in kept] == ["kind"]
    assert f"in={kept[0]['in']}" in (tmp_path / "kind.md").read_text().splitlines()[-1]
    pipe.run(dir=tmp_path)
    assert runs == ["kind", "strict", "strict"]


def reviewed_book(runs: list[str], keep: list[str]) -> Pipeline:
    """Two chapters, each with a review; the editor, outside the items, sends the first one back once."""
    pipe = Pipeline("p")
    pipe.items("n", ["a", "b"])

    @pipe.step(each="n")
    def draft(ctx: Context, n: str) -> str:
        runs.append(f"draft {n}")
        return f"{n}{ctx.round}"

    @pipe.step(each="n", writes="{n}.md")
    def review(n: str, draft: str) -> str:
        runs.append(f"review {n}")
        return "accepted\n"

    @pipe.step
    def editor(draft: dict[str, str], review: dict[str, str]) -> str:
        if draft["a"] == "a0":
            raise Rewind({"draft[a]": "again"}, keep=keep)
        return "fine"

    return pipe


@pytest.mark.parametrize("keep", ["review", "review[a]"])
def test_a_gatherer_keeps_the_reviews_of_all_items(tmp_path: Path, keep: str) -> None:
    """From outside the items, `keep` means every item's task that would be redone, and no other."""
    runs: list[str] = []
    assert reviewed_book(runs, [keep]).run(dir=tmp_path).status == "completed"
    assert sorted(runs) == ["draft a", "draft a", "draft b", "review a", "review b"]
    assert [event["keep"] for event in Harness(tmp_path).events("rewind_requested")] == [["review[a]"]]
    assert [event["step_id"] for event in Harness(tmp_path).events("task_kept")] == ["review[a]"]


def test_a_keep_for_one_rewind_holds_for_no_later_one(tmp_path: Path) -> None:
    """A review that one Rewind named but did not touch is done again when its own draft is redone."""
    runs: list[str] = []
    pipe = reviewed_book(runs, ["review"])
    pipe.run(dir=tmp_path)
    runs.clear()
    Harness(tmp_path).append(event="rewind_requested", step_id="editor", targets={"draft[b]": "longer"})
    assert pipe.run(dir=tmp_path).status == "completed"
    assert runs == ["draft b", "review b"]


def test_keeping_a_task_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    """`keep` with the id of no task needs review, in one line that names it."""
    result = reviewed_book([], ["review[z]"]).run(dir=tmp_path)
    (exited,) = Harness(tmp_path).events("node_exit", task="editor")
    assert (result.status, exited["status"]) == ("failed", "needs_review")
    assert exited["error"] == "Rewind keeps 'review[z]', and there is no such task"


def test_a_gatherer_sends_back_single_items(tmp_path: Path) -> None:
    """A dict of task ids sends back exactly those, each with its own words."""
    pipe, made = Pipeline("p"), []
    pipe.items("n", ["a", "b", "c"])

    @pipe.step(each="n")
    def draft(ctx: Context, n: str) -> str:
        made.append((n, tuple(ctx.feedback)))
        return f"{n}{ctx.round}"

    @pipe.step
    def editor(draft: dict[str, str]) -> str:
        if draft["a"] == "a0":
            raise Rewind({"draft[a]": "too long", "draft[c]": "too short"})
        return " ".join(draft.values())

    result = pipe.run(dir=tmp_path)
    assert result.outputs["editor"] == "a1 b0 c1"
    assert sorted(made) == [("a", ()), ("a", ("too long",)), ("b", ()), ("c", ()), ("c", ("too short",))]


def test_a_rewind_to_what_is_not_upstream_is_a_mistake(tmp_path: Path) -> None:
    """It is told as a mistake of the pipeline, and nothing is sent back."""
    pipe = Pipeline("p")

    @pipe.step
    def first() -> int:
        raise Rewind("second")

    @pipe.step
    def second(first: int) -> int:
        return first

    result = pipe.run(dir=tmp_path)
    assert result.needs_review == ["first"]
    assert "not upstream" in Harness(tmp_path).events("node_exit", task="first")[0]["error"]


@pytest.mark.parametrize(
    ("to", "told"),
    [("draft[zz]", "Rewind names 'draft[zz]', and there is no such task"), ("draft", "does not say which item")],
)
def test_a_rewind_to_a_task_that_is_not_there_says_so(tmp_path: Path, to: str, told: str) -> None:
    """A wrong item and a missing one are different mistakes."""
    pipe = Pipeline("p")
    pipe.items("x", ["a", "b"])

    @pipe.step(each="x")
    def draft(x: str) -> str:
        return x

    @pipe.step
    def review(draft: dict[str, str]) -> str:
        raise Rewind(to)

    assert pipe.run(dir=tmp_path).needs_review == ["review"]
    assert told in Harness(tmp_path).events("node_exit", task="review")[0]["error"]


@pytest.mark.parametrize(("feedback", "told"), (("too short", ": too short"), ("", "")))
def test_one_round_is_told_as_once(tmp_path: Path, feedback: str, told: str) -> None:
    """Words are for people: sent back once, not 1 times; and no colon before nothing."""
    pipe = Pipeline("p")

    @pipe.step
    def draft() -> str:
        return "text"

    @pipe.step
    def review(draft: str) -> str:
        raise Rewind("draft", feedback, rounds=1)

    pipe.run(dir=tmp_path)
    assert (
        Harness(tmp_path).events("node_exit", task="review")[0]["error"]
        == f"sent draft back once and still objects{told}"
    )


def test_files_of_two_rounds_are_no_set(tmp_path: Path) -> None:
    """Cut off while the files of a new round are placed: what was sent back is not adopted beside them."""
    pipe, placed = Pipeline("p"), list[str]()

    @pipe.step(writes={"a": "a.md", "b": "b.csv"})
    def both(ctx: Context) -> dict[str, str]:
        return {"a": f"round {ctx.round}\n", "b": f"round {ctx.round}\n"}

    @pipe.step
    def review(both: dict[str, str]) -> dict[str, str]:
        if both["b"] == "round 0\n":
            raise Rewind("both", feedback="again")
        return both

    def fail(op: str, path: str) -> None:
        placed.extend([path] if op == "rename" and path == "b.csv" else [])
        if len(placed) == 2:  # of the second round: a.md is there already
            raise OSError(errno.EIO, "cut off", path)

    disk.hook = fail
    try:
        with pytest.raises(StorageError):
            pipe.run(dir=tmp_path)
    finally:
        disk.hook = None
    assert (tmp_path / "a.md").read_text().startswith("round 1")
    assert (tmp_path / "b.csv").read_text() == "round 0\n"
    result = pipe.run(dir=tmp_path)
    assert result.outputs["review"] == {"a": "round 1\n", "b": "round 1\n"}


def test_a_kept_review_whose_file_was_lost_is_put_back_and_kept(tmp_path: Path) -> None:
    """Both happen in the run that finishes the new round: the next one has nothing to do."""
    fails = [True]
    pipe = Pipeline("p")

    @pipe.step(writes="draft.md")
    def draft(ctx: Context) -> str:
        if ctx.round and fails[0]:
            raise RuntimeError("not now")
        return f"round {ctx.round}\n"

    @pipe.step(writes="kind.md")
    def kind(draft: str) -> str:
        assert draft == "round 0\n", "it is to be kept"
        return "fine\n"

    @pipe.step
    def strict(draft: str, kind: str) -> str:
        if draft == "round 0\n":
            raise Rewind("draft", feedback="again", keep=["kind"])
        return "fine"

    assert pipe.run(dir=tmp_path).status == "failed"
    (tmp_path / "kind.md").unlink()
    fails[0] = False
    assert pipe.run(dir=tmp_path).status == "completed"
    assert len(Harness(tmp_path).events("artifact_healed")) == 1
    assert len(Harness(tmp_path).events("task_kept")) == 1
    assert pipe.run(dir=tmp_path).status == "completed"
    assert len(Harness(tmp_path).events("task_kept")) == 1


@pytest.mark.parametrize("change", ["", "version", "parameter"])
def test_what_is_kept_is_kept_only_against_what_was_sent_back(tmp_path: Path, change: str) -> None:
    """A raised version, or another parameter, is a person's own wish, and nobody's `keep` stands against it."""
    made: list[str] = []
    fails = [True]

    def book(version: int) -> Pipeline:
        pipe = Pipeline("p", params={"tone": (str, "calm")})

        @pipe.step(writes="draft.md")
        def draft(ctx: Context) -> str:
            if ctx.round and fails:
                raise RuntimeError("cut off")
            return f"draft {ctx.round}\n"

        @pipe.step(writes="facts.md", version=version)
        def facts(draft: str, tone: str) -> str:
            made.append(f"{version} {tone}")
            return f"facts of {draft}"

        @pipe.step(after=["facts"])
        def style(draft: str) -> str:
            if draft == "draft 0\n":
                raise Rewind("draft", feedback="again", keep=["facts"])
            return "fine"

        return pipe

    run_id = book(1).run(dir=tmp_path).run_id
    fails.clear()
    version, tone = (2 if change == "version" else 1), ("loud" if change == "parameter" else "calm")
    (facts,) = [
        task
        for task in Harness(tmp_path).plan(book(version), resume=run_id, params={"tone": tone}).tasks
        if task.id == "facts"
    ]
    assert facts.action == ("redo" if change else "trust")
    assert book(version).run({"tone": tone}, dir=tmp_path, resume=run_id).status == "completed"
    assert made == ["1 calm", *([f"{version} {tone}"] if change else [])]


class Reviewed:
    """A draft; `strict` fails on its first form, and `editor` sends that back. `seen` lists what `strict` saw."""

    def __init__(self, root: Path, *, on_failure: str = "review", is_same: bool = False) -> None:
        self.root = root
        self.seen: list[str] = []
        self.on_failure = on_failure
        self.is_same = is_same  # the draft comes out as before
        self.objects = True
        self.attempts = 1

    def run(self, *, no_retry: bool = False, concurrency: int = 1) -> RunResult:
        self.seen.clear()
        return Harness(self.root).run(self.pipeline(), no_retry=no_retry, concurrency=concurrency)

    def pipeline(self) -> Pipeline:
        pipe, has_failed = Pipeline("p"), threading.Event()

        @pipe.step(writes="draft.md")
        def draft(ctx: Context) -> str:
            return "draft" if self.is_same else f"draft {ctx.round}"

        @pipe.step(retries=self.attempts - 1, backoff=0, on_failure=self.on_failure)
        def strict(ctx: Context, draft: str) -> str:
            self.seen.append(f"{draft}, attempt {ctx.attempt}")
            if draft != "draft 0" and not self.is_same:
                return "fine"
            if ctx.attempt == self.attempts:
                has_failed.set()
            raise ValueError("cannot read that")

        @pipe.step
        def editor(ctx: Context, draft: str) -> str:
            if self.objects and ctx.round == 0:
                assert has_failed.wait(PATIENCE_S)
                raise Rewind("draft", feedback="no")
            return "fine"

        @pipe.step
        def both(strict: str, editor: str) -> str:
            return f"{strict} {editor}"

        return pipe


@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("on_failure", ["review", "skip"])
def test_who_failed_on_what_was_sent_back_has_all_attempts_on_what_takes_its_place(
    tmp_path: Path, on_failure: str, concurrency: int
) -> None:
    """In the same run, whether it had failed before the objection came or fails after it."""
    project = Reviewed(tmp_path, on_failure=on_failure)
    project.attempts = concurrency
    result = project.run(concurrency=concurrency)
    failed = [f"draft 0, attempt {number}" for number in range(1, concurrency + 1)]
    assert (result.status, project.seen) == ("completed", [*failed, "draft 1, attempt 1"])
    assert result.outputs["both"] == "fine fine"


@pytest.mark.parametrize("on_failure", ["review", "skip"])
def test_who_failed_on_what_comes_back_as_it_was_is_not_tried_again(tmp_path: Path, on_failure: str) -> None:
    """Nothing has changed that could help it."""
    project = Reviewed(tmp_path, on_failure=on_failure, is_same=True)
    result = project.run()
    assert (result.status, project.seen) == (
        "failed" if on_failure == "review" else "completed",
        ["draft, attempt 1"],
    )


@pytest.mark.parametrize("on_failure", ["review", "skip"])
def test_who_failed_in_an_earlier_process_is_tried_on_new_work_with_no_retry(
    tmp_path: Path, on_failure: str
) -> None:
    """A person sends the draft back: `--no-retry` is about what failed as it was."""
    project = Reviewed(tmp_path, on_failure=on_failure)
    project.objects = False
    run_id = project.run().run_id
    assert project.seen == ["draft 0, attempt 1"]
    project.run(no_retry=True)
    assert not project.seen
    Harness(tmp_path).reject("draft", "draft", "no", run_id=run_id)
    assert project.run(no_retry=True).status == "completed"
    assert project.seen == ["draft 1, attempt 1"]


def test_who_objects_too_often_waits_for_a_person_whatever_comes(tmp_path: Path) -> None:
    """Its rounds are used up: that another reviewer has the draft made once more does not change it."""
    pipe, seen = Pipeline("p"), list[str]()

    @pipe.step
    def draft(ctx: Context) -> str:
        return f"draft {ctx.round}"

    @pipe.step
    def first(draft: str) -> str:
        seen.append(draft)
        raise Rewind("draft", feedback="no", rounds=1)

    @pipe.step
    def second(draft: str) -> str:
        if draft != "draft 2":
            raise Rewind("draft", feedback="nor I")
        return "fine"

    result = pipe.run(dir=tmp_path, concurrency=1)
    assert (result.status, result.needs_review) == ("paused", ["first"])
    assert seen == ["draft 0", "draft 1"]
    assert result.outputs["second"] == "fine"
