"""All state lost, and more: nothing is passed off as finished, and nothing whole is paid for unasked."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from harness import Harness, RunResult
from holdfast import Context, Pipeline, Rewind
from holdfast.artifacts.sealed_files import SealedFiles
from holdfast.errors import StorageError, UsageError
from holdfast.views.shelf import ViewShelf


class Project:
    """A draft, a review of it that is only a value, and a final text from both; `made` lists what ran."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.made: list[str] = []
        self.words = "first"
        (root / "in.txt").write_text("notes")

    def run(self, **params: object) -> RunResult:
        self.made.clear()
        return self.pipeline().run(params, dir=self.root)

    def lose(self, *names: str) -> None:
        shutil.rmtree(self.root / ".holdfast")
        for name in names:
            (self.root / name).unlink()

    def decide(self, result: RunResult, task: str, choice: str) -> None:
        Harness(self.root).decide(task, choice, run_id=result.run_id)

    def pipeline(self) -> Pipeline:
        pipe = Pipeline("p", params={"mood": (str, "calm")})

        @pipe.step(writes="draft.md")
        def draft() -> str:
            self.made.append("draft")
            return f"{self.words} words\n"

        @pipe.step
        def review(draft: str) -> dict[str, bool]:
            self.made.append("review")
            if "bad" in draft:
                raise Rewind("draft", feedback="bad words")
            return {"ok": True}

        @pipe.step(writes={"text": "final.md", "table": "final.csv"}, reads="in.txt")
        def final(draft: str, review: dict[str, bool], mood: str) -> dict[str, str]:
            self.made.append("final")
            return {"text": f"{mood}: {draft}", "table": "1,2\n"}

        return pipe


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    assert made.run().status == "completed"
    return made


def test_other_parameters_than_the_files_were_made_with_are_refused(project: Project) -> None:
    """Also where another input of the file is lost: its seal names each."""
    project.lose()
    with pytest.raises(UsageError, match="another mood"):
        project.run(mood="wild")
    assert project.run().status == "completed"
    assert not project.made


def test_a_file_that_is_read_and_has_changed_is_noticed(project: Project) -> None:
    """The lost value of the review does not hide it."""
    project.lose()
    (project.root / "in.txt").write_text("other notes")
    assert project.run().status == "completed"
    assert project.made == ["review", "final"]


def test_a_draft_that_came_out_differently_is_asked_about(project: Project) -> None:
    """What was made from the lost one is not finished unasked, although its other input is unknown."""
    project.lose("draft.md")
    project.words = "bad"
    result = project.run()
    assert (result.status, project.made) == ("paused", ["draft"])
    project.words = "good"
    project.decide(result, "final", "redo")
    assert project.run().status == "completed"
    assert "good words" in (project.root / "final.md").read_text()


def test_an_edit_that_is_kept_redoes_what_depends_on_it(project: Project) -> None:
    """A person decided: no second question is asked."""
    project.lose()
    path = project.root / "draft.md"
    path.write_text(path.read_text().replace("first", "MY"))
    result = project.run()
    assert result.status == "paused"
    project.decide(result, "draft", "keep")
    assert project.run().status == "completed"
    assert "MY words" in (project.root / "final.md").read_text()


def test_gates_before_adopted_items_count_as_approved(tmp_path: Path) -> None:
    """Also those after batches of items that a function makes, and before that function; the last asks again."""
    made: list[str] = []

    def pipeline() -> Pipeline:
        pipe = Pipeline("gated")

        @pipe.step
        def seed() -> list[dict[str, object]]:
            return [{"id": name, "batch": batch} for batch, name in enumerate("abc", start=1)]

        pipe.gate("plan_ok", after=["seed"])

        @pipe.items("part")
        def parts(seed: list[dict[str, object]]) -> list[dict[str, object]]:
            return seed

        @pipe.step(each="part", phase="Writing", writes="{part}.md")
        def note(part: str) -> str:
            made.append(part)
            return f"note {part}\n"

        pipe.gate("batch_ok", each="part")
        return pipe

    harness = Harness(tmp_path)
    for gate in ("plan_ok", "batch_ok[batch-1]", "batch_ok[batch-2]", "batch_ok[batch-3]"):
        result = pipeline().run(dir=tmp_path)
        assert [need.task for need in result.picture.needs()] == [gate]
        harness.approve(gate, run_id=result.run_id)
    assert pipeline().run(dir=tmp_path).status == "completed"
    shutil.rmtree(harness.state)
    result = pipeline().run(dir=tmp_path)
    assert [need.task for need in result.picture.needs()] == ["batch_ok[batch-3]"]
    assert made == ["a", "b", "c"]


def test_an_edit_of_one_item_that_is_kept_redoes_what_gathers_it(tmp_path: Path) -> None:
    """Also through a gather: the person decided, and is not asked twice."""

    def pipeline() -> Pipeline:
        pipe = Pipeline("gathered")
        pipe.items("part", ["a", "b"])

        @pipe.step(each="part", writes="{part}.md")
        def note(part: str) -> str:
            return f"note {part}\n"

        @pipe.step(writes="report.md")
        def report(note: dict[str, str]) -> str:
            return "".join(note.values())

        return pipe

    pipeline().run(dir=tmp_path)
    shutil.rmtree(tmp_path / ".holdfast")
    path = tmp_path / "a.md"
    path.write_text(path.read_text().replace("note a", "MY note a"))
    result = pipeline().run(dir=tmp_path)
    Harness(tmp_path).decide("note[a]", "keep", run_id=result.run_id)
    assert pipeline().run(dir=tmp_path).status == "completed"
    assert "MY note a" in (tmp_path / "report.md").read_text()


def test_an_edit_that_is_kept_redoes_a_value_that_was_lost(tmp_path: Path) -> None:
    """What was made from the words before the edit does not count, also if nothing is left that says so."""

    def pipeline() -> Pipeline:
        pipe = Pipeline("valued")

        @pipe.step(writes="outline.md")
        def outline() -> str:
            return "the words\n"

        @pipe.step
        def research(outline: str) -> str:
            return outline.upper()

        @pipe.step(writes="draft.md")
        def draft(research: str) -> str:
            return research

        return pipe

    pipeline().run(dir=tmp_path)
    shutil.rmtree(tmp_path / ".holdfast")
    path = tmp_path / "outline.md"
    path.write_text(path.read_text().replace("the words", "MY words"))
    harness = Harness(tmp_path)
    harness.decide("outline", "keep", run_id=pipeline().run(dir=tmp_path).run_id)
    result = pipeline().run(dir=tmp_path)
    assert (result.status, result.needs_review) == ("paused", ["draft"])
    harness.decide("draft", "redo", run_id=result.run_id)
    assert pipeline().run(dir=tmp_path).status == "completed"
    assert "MY WORDS" in (tmp_path / "draft.md").read_text()


def test_what_is_kept_although_an_input_differs_is_not_asked_about_again(project: Project) -> None:
    """Also if another of its inputs is still lost, and if everything is lost once more."""
    project.lose("draft.md")
    project.words = "other"
    result = project.run()
    assert result.needs_review == ["final"]
    project.decide(result, "final", "keep")
    assert project.run().status == "completed"
    assert Harness(project.root).verify(result.run_id).findings == []
    assert (project.run().status, project.made) == ("completed", [])
    project.lose()
    assert (project.run().status, project.made) == ("completed", [])


def test_one_of_several_files_that_was_edited_can_be_kept(project: Project) -> None:
    """The answer ends the question, and nothing runs."""
    project.lose()
    path = project.root / "final.md"
    path.write_text(path.read_text().replace("calm", "CALM"))
    result = project.run()
    assert result.status == "paused"
    project.decide(result, "final", "keep")
    assert (project.run().status, project.made) == ("completed", [])
    assert "CALM" in path.read_text()


def test_keeping_one_file_sets_what_was_done_to_the_other_aside(project: Project) -> None:
    """With its record: the text is kept; the table is put back, and what was in it is in quarantine."""
    text, table = project.root / "final.md", project.root / "final.csv"
    text.write_text(text.read_text().replace("calm", "CALM"))
    table.write_text("1,2\n9,9\n")
    result = project.run()
    project.decide(result, "final", "keep")
    assert project.run().status == "completed"
    assert "CALM" in text.read_text()
    assert table.read_text() == "1,2\n"
    assert [p for p in project.root.rglob("*") if p.is_file() and b"9,9" in p.read_bytes()]


def test_lost_copies_alone_cost_nothing(project: Project) -> None:
    """Values that nothing unfinished needs are not made again."""
    shutil.rmtree(project.root / ".holdfast" / "objects")
    assert (project.run().status, project.made) == ("completed", [])


@pytest.mark.parametrize(
    ("task", "choice", "words"),
    [
        ("draft", "keep", "as they were accepted"),
        ("draft", "restore", "as they were accepted"),
        ("draft", "continue", "not half finished"),
        ("review", "keep", "no files"),
    ],
)
def test_an_answer_to_nothing_is_refused(project: Project, task: str, choice: str, words: str) -> None:
    """It would lie in wait for an edit that nobody has seen yet."""
    result = project.run()
    with pytest.raises(UsageError, match=words):
        project.decide(result, task, choice)


def test_an_edit_that_nothing_can_tell_from_damage_cannot_be_kept(project: Project) -> None:
    """A table has its seal beside it: `keep` says so instead of promising."""
    result = project.run()
    (project.root / "final.csv").write_text("1,2\n9,9\n")
    with pytest.raises(UsageError, match="nobody can tell"):
        project.decide(result, "final", "keep")


def test_verify_is_clean_after_a_loss(project: Project) -> None:
    """What is known to be lost, and made again when it is needed, is a note."""
    project.lose()
    result = project.run()
    report = Harness(project.root).verify(result.run_id)
    assert report.ok, report.findings
    assert any("review" in note for note in report.notes)


def test_a_page_of_a_run_that_is_gone_is_called_what_it_is(project: Project) -> None:
    """With state and files gone a new run begins; it is this project's own page that is kept."""
    (old,) = (project.root / ".holdfast" / "runs").iterdir()
    page = (project.root / "checkpoint.md").read_text()
    project.lose("draft.md", "final.md", "final.csv", "final.csv.seal")
    assert project.pipeline().run(dir=project.root, run_id="second").status == "completed"
    told = {event["path"]: event["reason"] for event in Harness(project.root).events("artifact_set_aside")}
    assert told["checkpoint.md"] == f"written for run {old.name}, of which there is no record"
    assert page in [kept.read_text() for kept in project.root.glob("checkpoint.md.bak.*")]


@pytest.mark.parametrize("how", ["run", "recover"])
def test_the_letter_of_a_lost_run_is_kept_if_it_has_notes(tmp_path: Path, how: str) -> None:
    """They were in the record and in RESUME.md, which is written anew: nothing else has them now."""
    project = Project(tmp_path)
    run_id = project.run().run_id
    Harness(tmp_path).note("Ask Ada before printing.", run_id=run_id)
    project.lose()
    if how == "run":
        project.run()
    else:
        pipe = project.pipeline()
        Harness(tmp_path).recover(pipe)
    (kept,) = tmp_path.glob("RESUME.md.bak.*")
    assert "Ask Ada before printing." in kept.read_text()
    assert "RESUME.md.bak" in (tmp_path / "RESUME.md").read_text()


def test_the_letter_of_a_lost_run_outlives_a_kill_just_after_the_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run knows of no loss any more, and writes the page anew."""
    project = Project(tmp_path)
    Harness(tmp_path).note("Ask Ada before printing.", run_id=project.run().run_id)
    project.lose()
    with monkeypatch.context() as patched:
        patched.setattr(ViewShelf, "keep_pages", killed)
        with pytest.raises(KeyboardInterrupt):
            project.run()
    project.run()
    assert any("Ask Ada before printing." in page.read_text() for page in tmp_path.glob("RESUME.md*"))


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_the_letter_of_a_lost_run_that_has_no_notes_is_written_anew(tmp_path: Path) -> None:
    """All that it said is there again."""
    project = Project(tmp_path)
    project.run()
    project.lose()
    project.run()
    assert not list(tmp_path.glob("RESUME.md.bak.*"))


def test_a_record_without_its_beginning_is_gone_through_once(tmp_path: Path) -> None:
    """By the run that finds it so; the next one has nothing to do, and sets no page of its own aside."""
    fails = True
    pipe = Pipeline("p")

    @pipe.step(writes="a.md", retries=0)
    def a() -> str:
        return "a\n" if not fails else str(1 // 0)

    assert pipe.run(dir=tmp_path, run_id="r").status == "failed"
    journal = Harness(tmp_path).journal()
    journal.write_bytes(b"torn\n" + b"".join(journal.read_bytes().splitlines(keepends=True)[2:]))
    for path in [*tmp_path.glob("*.md"), *journal.parent.glob("checkpoint*")]:
        path.unlink()
    fails = False
    assert pipe.run(dir=tmp_path, run_id="r").status == "completed"
    assert len(Harness(tmp_path).events("recovered")) == 1
    assert pipe.run(dir=tmp_path).status == "completed"
    assert len(Harness(tmp_path).events("recovered")) == 1
    assert not list(tmp_path.glob("*.bak.*"))


def edited_beside_a_lost_file(pipe: Pipeline, root: Path) -> RunResult:
    pipe.run(dir=root)
    (root / "text.md").write_text((root / "text.md").read_text().replace("words", "my words"))
    (root / "more.md").rename(root / "more.old")
    shutil.rmtree(root / ".holdfast")
    return pipe.run(dir=root)


def test_an_edit_beside_a_lost_file_can_be_kept_once_that_is_back(tmp_path: Path) -> None:
    """Before that the answer is refused: it would be promised, and the same asked again."""
    pipe = Pipeline("p")

    @pipe.step(writes={"text": "text.md", "more": "more.md"})
    def both() -> dict[str, str]:
        return {"text": "words\n", "more": "more\n"}

    result = edited_beside_a_lost_file(pipe, tmp_path)
    with pytest.raises(UsageError, match=r"only be asked about again after .keep.: .*more\.md is not whole"):
        Harness(tmp_path).decide("both", "keep", run_id=result.run_id)
    (tmp_path / "more.old").rename(tmp_path / "more.md")
    Harness(tmp_path).decide("both", "keep", run_id=result.run_id)
    result = pipe.run(dir=tmp_path)
    assert (result.status, result.outputs["both"]["text"]) == ("completed", "my words\n")


def test_an_edit_beside_a_lost_file_is_not_said_to_be_kept(tmp_path: Path) -> None:
    """With the record lost nothing puts the other file back: the way out is named first, and why."""
    made: list[str] = []
    pipe = Pipeline("p")

    @pipe.step(writes={"text": "text.md", "more": "more.md"})
    def both() -> dict[str, str]:
        made.append("both")
        return {"text": "words\n", "more": "more\n"}

    result = edited_beside_a_lost_file(pipe, tmp_path)
    (need,) = result.picture.needs()
    assert "cannot be kept, for more.md is not whole" in need.why
    assert need.command == "holdfast decide both redo   (or: keep)"
    Harness(tmp_path).decide("both", "redo", run_id=result.run_id)
    assert (pipe.run(dir=tmp_path).status, made) == ("completed", ["both", "both"])
    assert [path.read_text()[:8] for path in tmp_path.glob("text.md.bak.*")] == ["my words"]


def test_a_budget_is_not_lifted_by_the_loss_of_the_record(tmp_path: Path) -> None:
    """RESUME.md has it: the run that is found again pauses as before, `plan` says so, and a higher one goes on."""
    made: list[str] = []
    pipe = Pipeline("p")
    pipe.items("n", ["a", "b", "c"])

    @pipe.step(each="n", writes="{n}.md")
    def note(ctx: Context, n: str) -> str:
        ctx.usage(cost_usd=1.0)
        made.append(n)
        return f"{n}\n"

    assert pipe.run(dir=tmp_path, budget_usd=1.5, concurrency=1).status == "paused"
    for times in range(2):  # the letter that is written anew has it, too
        shutil.rmtree(tmp_path / ".holdfast")
        plan = Harness(tmp_path).plan(pipe)
        assert (plan.cost_usd, plan.budget_usd) == (pytest.approx(2.0), 1.5)
        if times:
            Harness(tmp_path).recover(pipe)
        assert (pipe.run(dir=tmp_path, concurrency=1).status, made) == ("paused", ["a", "b"])
    assert (pipe.run(dir=tmp_path, budget_usd=9).status, made) == ("completed", ["a", "b", "c"])


def test_work_that_was_sent_back_behind_lost_lines_is_not_believed(tmp_path: Path) -> None:
    """Rounds are counted by the words of the journal: with some of them lost, a seal's may be the higher one."""
    pipe, made = Pipeline("p"), []

    @pipe.step(writes="plan.md")
    def plan(ctx: Context) -> str:
        made.append(ctx.feedback)
        return f"{len(made)}"

    result = pipe.run(dir=tmp_path)
    for feedback in ("more", "still more", "less"):
        result = pipe.run(dir=tmp_path) if feedback != "more" else result
        Harness(tmp_path).reject("plan", "plan", feedback, run_id=result.run_id)
    journal = Harness(tmp_path).journal()
    for file in journal.parent.glob("checkpoint_*"):
        file.unlink()
    lines = journal.read_bytes().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if b'"run_stopped"' in line)
    last = max(number for number, line in enumerate(lines) if b'"rewind_requested"' in line)
    journal.write_bytes(b"".join([*lines[:first], *lines[last:]]))
    assert pipe.run(dir=tmp_path).status == "completed"
    assert made == [[], ["more"], ["still more"], ["less"]]


class Copied:
    """A text, and a table with its seal beside it, whose run is lost but for objects/; `made` lists what ran."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.made: list[str] = []
        self.refuses = ""
        self.text, self.table = root / "text.md", root / "table.csv"
        assert self.run().status == "completed"
        shutil.rmtree(root / ".holdfast" / "runs")

    def run(self) -> RunResult:
        self.made.clear()
        return self.pipeline().run(dir=self.root)

    def pipeline(self) -> Pipeline:
        pipe = Pipeline("p")

        @pipe.step(writes="text.md", check=lambda text: self.refuses)
        def text() -> str:
            self.made.append("text")
            return "words\n"

        @pipe.step(writes="table.csv")
        def table(text: str) -> str:
            self.made.append("table")
            return "1,2\n"

        return pipe

    def edit(self) -> None:
        self.text.write_text(self.text.read_text().replace("words", "my words"))

    def restore(self) -> None:
        (self.root / "holdfast.toml").write_text('[run]\non_changed = "restore"\n')


@pytest.mark.parametrize("harm", ["no text", "another table", "an empty table", "no table"])
def test_what_objects_has_is_not_made_again_though_no_record_names_it(tmp_path: Path, harm: str) -> None:
    """The seal names it: inside the file, or in NAME.seal."""
    copied = Copied(tmp_path)
    if harm == "no text":
        copied.text.write_bytes(copied.text.read_bytes().replace(b"words", b"w\0\xffds"))
    elif harm == "no table":
        copied.table.unlink()
    else:
        copied.table.write_text("9,9\n" if harm == "another table" else "")
    planned = Harness(tmp_path).plan(copied.pipeline()).tasks
    result = copied.run()
    assert (result.status, copied.made) == ("completed", [])
    assert sorted(task.action for task in planned) == ["adopt", "heal"]
    assert result.outputs == {"text": "words\n", "table": "1,2\n"}
    assert not Harness(tmp_path).verify(result.run_id).findings


def test_an_edit_is_restored_from_the_copy_that_its_seal_names(tmp_path: Path) -> None:
    """Nothing is paid for, and the edit lies beside."""
    copied = Copied(tmp_path)
    copied.edit()
    copied.restore()
    result = copied.run()
    assert (result.status, copied.made, result.outputs["text"]) == ("completed", [], "words\n")
    assert [path.read_text()[:8] for path in tmp_path.glob("text.md.bak.*")] == ["my words"]


def test_an_edit_without_a_record_may_be_answered_with_restore_where_there_is_a_copy(tmp_path: Path) -> None:
    """And not where there is none: then only the step could make it again."""
    copied = Copied(tmp_path)
    copied.edit()
    result = copied.run()
    (need,) = result.picture.needs()
    assert need.command == "holdfast decide text keep   (or: restore, redo)"
    Harness(tmp_path).decide("text", "restore", run_id=result.run_id)
    assert (copied.run().outputs["text"], copied.made) == ("words\n", [])
    copied.edit()
    shutil.rmtree(tmp_path / ".holdfast")
    result = copied.run()
    (need,) = result.picture.needs()
    assert need.command == "holdfast decide text keep   (or: redo)"
    with pytest.raises(UsageError, match="waits for another answer"):
        Harness(tmp_path).decide("text", "restore", run_id=result.run_id)


def test_a_copy_that_check_refuses_now_is_not_put_back_as_finished(tmp_path: Path) -> None:
    """It is adopted like any file that is found whole, or not at all."""
    copied = Copied(tmp_path)
    copied.edit()
    copied.restore()
    copied.refuses = "too short"
    assert copied.run().status == "failed"
    assert "text" in copied.made


def test_a_file_that_is_to_be_made_again_is_not_put_back_from_its_copy(tmp_path: Path) -> None:
    """A person's `redo` comes before what its seal names."""
    copied = Copied(tmp_path)
    copied.edit()
    result = copied.run()
    Harness(tmp_path).decide("text", "redo", run_id=result.run_id)
    assert (copied.run().status, copied.made) == ("completed", ["text"])


def test_a_restore_without_a_record_that_is_cut_off_finds_its_copy_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The edit stays where it is until it is replaced: only its seal knows which copy is meant."""

    def failing(files: SealedFiles, record: object, seal: object) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "text.md")

    copied = Copied(tmp_path)
    copied.edit()
    copied.restore()
    with monkeypatch.context() as patch, pytest.raises(StorageError):
        patch.setattr(SealedFiles, "put_back", failing)
        copied.run()
    assert (copied.run().outputs["text"], copied.made) == ("words\n", [])


def test_a_large_file_is_foreseen_to_be_put_back_though_its_record_is_lost(tmp_path: Path) -> None:
    """On paper nothing is copied, so it looks damaged still: that is not decided about again and again."""
    pipe = Pipeline("p")

    @pipe.step(writes="large.bin")
    def large(ctx: Context) -> Path:
        ctx.out.write_bytes(b"\xff large")
        return ctx.out

    assert pipe.run(dir=tmp_path).status == "completed"
    shutil.rmtree(tmp_path / ".holdfast" / "runs")
    (tmp_path / "large.bin").write_bytes(b"\xfe another")
    (planned,) = Harness(tmp_path).plan(pipe).tasks
    assert planned.action == "heal"
    assert pipe.run(dir=tmp_path).status == "completed"
    assert (tmp_path / "large.bin").read_bytes() == b"\xff large"
