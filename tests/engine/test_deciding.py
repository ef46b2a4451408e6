"""A person's answer about one task: what each choice does, and where it means nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness import Harness, RunResult
from holdfast import Context, Pipeline
from holdfast.errors import UsageError


class Project:
    """draft -> review, where a body can be told to fail; `made` lists what ran."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.made: list[str] = []
        self.fails = ""
        self.version = 1
        self.partial: list[str | None] = []
        self.run_id = ""

    def run(self, **options: object) -> RunResult:
        self.made.clear()
        result = self.pipeline().run(dir=self.root, **options)  # type: ignore[arg-type]
        self.run_id = result.run_id
        return result

    def decide(self, task: str, choice: str) -> str:
        return Harness(self.root).decide(task, choice, run_id=self.run_id)

    def pipeline(self) -> Pipeline:
        pipe = Pipeline("p")

        def no_swearing(draft: str) -> str:
            return "it swears" if "damn" in draft else ""

        @pipe.step(
            writes="draft.md", marker="DRAFT_COMPLETE", on_partial="ask", check=no_swearing, version=self.version
        )
        def draft(ctx: Context) -> str:
            self.made.append("draft")
            self.partial.append(ctx.partial)
            if self.fails == "draft":
                raise ValueError("no")
            return "the draft\n"

        @pipe.step(writes="review.md")
        def review(draft: str) -> str:
            self.made.append("review")
            return f"read: {draft}"

        return pipe


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def edited(project: Project) -> None:
    assert project.run().status == "completed"
    path = project.root / "draft.md"
    path.write_text(path.read_text().replace("the draft", "MY draft"))
    assert project.run().status == "paused"


def half_finished(project: Project, text: str) -> None:
    (project.root / "draft.md").write_text(text)
    assert project.run().status == "paused"


LONG = "A sentence that is long enough to be worth something. " * 4 + "\n"


def test_keep_accepts_an_edit_and_redoes_what_depends_on_it(project: Project) -> None:
    """The edited text is sealed anew; the review of it runs again."""
    edited(project)
    project.decide("draft", "keep")
    assert (project.run().status, project.made) == ("completed", ["review"])
    assert (project.root / "review.md").read_text().startswith("read: MY draft")


def test_an_answer_about_an_edit_that_was_undone_does_not_wait_for_the_next(project: Project) -> None:
    """It was given for what stood there then: another edit is asked about, as the first was."""
    path = project.root / "draft.md"
    project.run()
    original = path.read_text()
    path.write_text(original.replace("the draft", "MY draft"))
    project.run()
    project.decide("draft", "keep")
    path.write_text(original)
    assert (project.run().status, project.made) == ("completed", [])
    path.write_text(original.replace("the draft", "a slip"))
    assert (project.run().status, project.made) == ("paused", [])


@pytest.mark.parametrize("wish", ["sent back", "new inputs"])
def test_an_edit_that_was_kept_is_set_aside_when_its_step_runs_again(project: Project, wish: str) -> None:
    """No step can make a person's words again: they stay beside the file, not only in objects/."""
    edited(project)
    project.decide("draft", "keep")
    project.run()
    if wish == "sent back":
        project.decide("draft", "redo")
    project.version = 1 if wish == "sent back" else 2
    assert (project.run().status, project.made) == ("completed", ["draft", "review"])
    (kept,) = project.root.glob("draft.md.bak.*")
    assert kept.read_text().startswith("MY draft")
    assert (project.root / "draft.md").read_text().startswith("the draft")
    project.decide("draft", "redo")
    assert (project.run().status, project.made) == ("completed", ["draft"])
    assert list(project.root.glob("draft.md.bak.*")) == [kept]


def test_an_edit_that_check_refuses_is_asked_about_again(project: Project) -> None:
    """`keep` does not turn into a paid redo: the edit stays in its place, and the question says why."""
    project.run()
    path = project.root / "draft.md"
    path.write_text(path.read_text().replace("the draft", "the damn draft"))
    project.run()
    project.decide("draft", "keep")
    assert (project.run().status, project.made) == ("paused", [])
    (need,) = Harness(project.root).picture(project.run_id).needs()
    assert "it swears" in need.why
    assert "damn" in path.read_text()
    project.decide("draft", "restore")
    assert (project.run().status, project.made) == ("completed", [])


def test_restore_puts_the_accepted_version_back_and_keeps_the_edit_aside(project: Project) -> None:
    """Nothing runs; the edit is beside the file."""
    edited(project)
    project.decide("draft", "restore")
    assert (project.run().status, project.made) == ("completed", [])
    assert (project.root / "draft.md").read_text().startswith("the draft")
    (kept,) = project.root.glob("draft.md.bak.*")
    assert kept.read_text().startswith("MY draft")


def test_redo_of_an_edited_file_sets_the_edit_aside(project: Project) -> None:
    """The step runs; same bytes come out, so the review is not made again."""
    edited(project)
    project.decide("draft", "redo")
    assert (project.run().status, project.made) == ("completed", ["draft"])
    assert [p.read_text()[:8] for p in project.root.glob("draft.md.bak.*")] == ["MY draft"]


def test_an_answer_holds_for_one_question_only(project: Project) -> None:
    """A second edit is asked about again."""
    edited(project)
    project.decide("draft", "keep")
    project.run()
    path = project.root / "draft.md"
    path.write_text(path.read_text().replace("MY draft", "another draft"))
    assert project.run().status == "paused"


def test_keep_seals_what_looks_complete(project: Project) -> None:
    """Half-finished text is asked about with a recommendation; `keep` accepts it as it is."""
    half_finished(project, LONG)
    (need,) = Harness(project.root).picture(project.run_id).needs()
    assert "keep is recommended" in need.why
    assert need.command == "holdfast decide draft keep   (or: redo, continue)"
    assert project.decide("draft", "keep").endswith("will be kept and accepted as it is by the next resume.")
    assert (project.run().status, project.made) == ("completed", ["review"])
    record = Harness(project.root).picture(project.run_id).record("draft")
    assert record.evidence == "kept"
    assert (project.root / "draft.md").read_text().startswith(LONG)
    assert "DRAFT_COMPLETE holdfast=1" in (project.root / "draft.md").read_text()


def test_one_of_two_files_half_finished_is_kept_only_when_the_other_is_there(tmp_path: Path) -> None:
    """Until then the question does not recommend it, and the answer is refused: it would be asked again."""
    pipe = Pipeline("p")

    @pipe.step(writes={"text": "text.md", "more": "more.md"}, on_partial="ask")
    def both() -> dict[str, str]:
        raise AssertionError("it is there")

    (tmp_path / "text.md").write_text(LONG)
    result = pipe.run(dir=tmp_path)
    (need,) = result.picture.needs()
    assert need.why.endswith("cannot be kept, for more.md is not whole: redo is recommended")
    with pytest.raises(UsageError, match=r"more\.md is not whole"):
        Harness(tmp_path).decide("both", "keep", run_id=result.run_id)
    (tmp_path / "more.md").write_text("more\n")
    Harness(tmp_path).decide("both", "keep", run_id=result.run_id)
    assert pipe.run(dir=tmp_path).outputs["both"] == {"text": LONG, "more": "more\n"}


def test_keep_takes_a_part_file_under_its_final_name(project: Project) -> None:
    """What was streamed before a kill is kept as it is."""
    (project.root / "draft.md.part").write_text(LONG)
    assert project.run().status == "paused"
    project.decide("draft", "keep")
    assert (project.run().status, project.made) == ("completed", ["review"])
    assert not (project.root / "draft.md.part").exists()


@pytest.mark.parametrize("name", ["empty", "zeros", "of another task", "folder"])
def test_keep_means_the_part_file_whatever_stands_under_its_final_name(project: Project, name: str) -> None:
    """That is what was asked about: nothing else is accepted, and what was there is set aside."""
    pipe = Pipeline("other")
    pipe.step(name="stranger", writes="stranger.md")(lambda: "somebody else's\n")
    draft = project.root / "draft.md"
    (project.root / "draft.md.part").write_text(LONG)
    if name == "folder":
        draft.mkdir()
    elif name == "of another task":
        pipe.run(dir=project.root)
        shutil.rmtree(project.root / ".holdfast")
        (project.root / "stranger.md").rename(draft)
    else:
        draft.write_bytes(b"\0" * 100 if name == "zeros" else b"")
    assert project.run().status == "paused"
    project.decide("draft", "keep")
    result = project.run()
    assert (result.status, project.made, result.outputs["draft"]) == ("completed", ["review"], LONG)
    assert not (project.root / "draft.md.part").exists()
    assert len(list(project.root.glob("draft.md.bak.*"))) == (0 if name == "empty" else 1)


def test_continue_hands_the_half_finished_text_over(project: Project) -> None:
    """The step receives it as ctx.partial, and whoever reads RESUME.md is told."""
    half_finished(project, LONG)
    project.decide("draft", "continue")
    assert project.run().status == "completed"
    assert project.partial == [LONG]
    assert f"{len(LONG):,} characters of half-finished text" in (project.root / "RESUME.md").read_text()


def test_redo_backs_half_finished_text_up(project: Project) -> None:
    """It is set aside beside the original, never deleted."""
    half_finished(project, LONG)
    project.decide("draft", "redo")
    assert (project.run().status, project.made) == ("completed", ["draft", "review"])
    assert [p.read_text() for p in project.root.glob("draft.md.bak.*")] == [LONG]


def test_skip_leaves_a_failed_task_and_what_depends_on_it_out(project: Project) -> None:
    """The run completes without them."""
    project.fails = "draft"
    assert project.run().status == "failed"
    project.decide("draft", "skip")
    assert (project.run().status, project.made) == ("completed", [])


def test_redo_of_finished_work_runs_it_again(project: Project) -> None:
    """Without any question it is like sending it back."""
    project.run()
    project.decide("draft", "redo")
    assert (project.run().status, project.made) == ("completed", ["draft"])


@pytest.mark.parametrize(
    ("task", "choice", "words"),
    [
        ("nothing", "keep", "no task 'nothing'"),
        ("review", "restore", "never accepted"),
        ("review", "redo", "not done yet"),
    ],
)
def test_an_answer_that_means_nothing_is_refused(project: Project, task: str, choice: str, words: str) -> None:
    """One line that says why; nothing is recorded."""
    project.fails = "draft"
    project.run()
    with pytest.raises(UsageError, match=words):
        project.decide(task, choice)


def test_a_question_takes_only_what_answers_it(project: Project) -> None:
    """Recording anything else would promise what nobody carries out, and ask the same again."""
    edited(project)
    with pytest.raises(UsageError, match="'continue' is no answer") as refused:
        project.decide("draft", "continue")
    assert refused.value.fix == "Use keep, restore, redo or skip."


def test_half_finished_work_that_was_never_accepted_cannot_be_restored(project: Project) -> None:
    """The message names what can be done instead."""
    half_finished(project, LONG)
    with pytest.raises(UsageError, match="'restore' is no answer") as refused:
        project.decide("draft", "restore")
    assert refused.value.fix == "Use keep, redo, continue or skip."


def test_finished_work_cannot_be_skipped(project: Project) -> None:
    """There is nothing to leave out."""
    project.run()
    with pytest.raises(UsageError, match="finished"):
        project.decide("draft", "skip")


@pytest.mark.parametrize("second", ["keep", "restore"])
def test_an_edit_that_was_given_up_is_not_promised_back(project: Project, second: str) -> None:
    """After `skip` the later answer would do nothing: it is refused."""
    edited(project)
    project.decide("draft", "skip")
    with pytest.raises(UsageError, match=f"There is nothing to {second} about draft: it is left out"):
        project.decide("draft", second)


class Moody:
    """plan -> draft, with a plan that comes out differently each time; after a loss the draft is asked about."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.made: list[str] = []

    def run(self) -> RunResult:
        pipe = Pipeline("p")
        pipe.step(name="plan")(lambda: self.made.append("plan") or self.made.count("plan"))
        pipe.step(name="draft", writes="draft.md")(lambda ctx, plan: self.made.append("draft") or "the draft\n")
        pipe.step(name="extra", writes="extra.md")(lambda plan: "an extra\n")
        return pipe.run(dir=self.root, run_id="one")

    def decide(self, choice: str) -> str:
        return Harness(self.root).decide("draft", choice, run_id="one")


@pytest.fixture
def moody(tmp_path: Path) -> Moody:
    """Its record is lost, a file that takes the plan is too, and the draft waits for an answer."""
    made = Moody(tmp_path)
    assert made.run().status == "completed"
    shutil.rmtree(tmp_path / ".holdfast")
    (tmp_path / "extra.md").unlink()
    result = made.run()
    assert (result.status, result.needs_review, made.made) == ("paused", ["draft"], ["plan", "draft", "plan"])
    return made


def test_the_same_answer_may_be_given_twice(moody: Moody) -> None:
    """Who was cut off, or does not remember, says it again; it is no mistake, and holds."""
    assert moody.decide("keep") == moody.decide("keep")
    assert (moody.run().status, moody.made) == ("completed", ["plan", "draft", "plan"])


def test_a_redo_of_whole_work_is_taken_back(moody: Moody) -> None:
    """It stands there as it was accepted, and nothing has begun: kept after all, it is not made again."""
    moody.decide("redo")
    moody.decide("keep")
    assert (moody.run().status, moody.made) == ("completed", ["plan", "draft", "plan"])


def test_the_half_of_a_new_round_is_kept_beside_whole_work_of_the_last(moody: Moody) -> None:
    """What the step had begun to stream when it was cut off is younger than the file that was given up."""
    moody.decide("redo")
    Harness(moody.root).append("one", event="task_rewound", step_id="draft", feedback=[])
    (moody.root / "draft.md.part").write_text(LONG)
    moody.decide("keep")
    assert (moody.run().status, moody.made) == ("completed", ["plan", "draft", "plan"])
    assert (moody.root / "draft.md").read_text().startswith(LONG)
