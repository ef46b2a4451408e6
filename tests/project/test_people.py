"""What people decide is checked against the run, recorded once, and nothing is written for a wrong name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Harness, RunResult
from holdfast import Context, Pipeline
from holdfast.errors import UnknownRunError, UsageError


def make_pipeline(answers: dict[str, Any]) -> Pipeline:
    pipe = Pipeline("book")
    pipe.items("chapter", ["ch01", "ch02"])

    @pipe.step(each="chapter", phase="Writing")
    def draft(ctx: Context, chapter: str) -> str:
        if answers.get(chapter) == "fail":
            raise RuntimeError("no luck")
        return f"{chapter} {'; '.join(ctx.feedback)}"

    @pipe.step(phase="Binding")
    def bind(draft: dict[str, str]) -> str:
        return " / ".join(draft.values())

    pipe.gate("publish_ok", after=["bind"])
    pipe.gate("read_ok", each="chapter", blocking=False)
    pipe.phase("Writing")
    pipe.phase("Binding", checklist=[lambda: answers["checklist"]] if "checklist" in answers else [])

    @pipe.step(after=["publish_ok"])
    def publish(bind: str) -> str:
        return bind

    return pipe


class Book(Harness):
    """A run of the pipeline above."""

    def __init__(self, root: Path, **answers: Any) -> None:
        super().__init__(root)
        self.pipe = make_pipeline(answers)
        self.answers = answers
        self.run()

    def run(self) -> RunResult:
        return self.pipe.run(dir=self.root, run_id="one")


MakeBook = Callable[..., Book]


@pytest.fixture
def book(tmp_path: Path) -> MakeBook:
    return lambda **answers: Book(tmp_path, **answers)


def refused(made: Book, act: Callable[[], str]) -> str:
    """The message with which `act` is refused; the journal must be as it was."""
    before = made.events()
    with pytest.raises(UsageError) as caught:
        act()
    assert made.events() == before
    return str(caught.value)


def test_approve_records_who_and_what(book: MakeBook) -> None:
    """Approving a gate appends one event, and the next run passes it."""
    made = book()
    assert made.approve("publish_ok", by="ada") == "publish_ok is approved."
    event = made.events()[-1]
    assert (event["event"], event["step_id"], event["by"]) == ("gate_approved", "publish_ok", "ada")
    made.run()
    assert made.picture().status("publish") == "completed"


def test_approving_twice_records_once(book: MakeBook) -> None:
    """A gate that is approved already is said to be, and nothing more is written."""
    made = book()
    made.approve("publish_ok")
    before = made.events()
    assert made.approve("publish_ok") == "publish_ok is approved already."
    assert made.events() == before


def test_gate_may_be_approved_before_it_is_reached(book: MakeBook) -> None:
    """A gate that the run has not come to can be approved, and that is said."""
    made = book(ch01="fail")
    assert made.approve("publish_ok").endswith("it is not reached yet.")


def test_gate_of_a_batch_has_its_own_name(book: MakeBook) -> None:
    """A gate after every batch is approved batch by batch."""
    made = book()
    assert made.approve("read_ok[batch-1]") == "read_ok[batch-1] is approved."


def test_a_gate_after_every_batch_is_known_by_its_name_where_one_batch_waits(book: MakeBook) -> None:
    """`approve read_ok` means the batch that waits; when none does, that is said, and which there are."""
    made = book()
    assert made.approve("read_ok") == "read_ok[batch-1] is approved."
    message = refused(made, lambda: made.approve("read_ok"))
    assert message.startswith("read_ok asks after every batch, and none of these waits for approval now.")
    assert message.endswith("Name the one that is meant: read_ok[batch-1].")


def test_of_several_batches_that_wait_one_has_to_be_named(tmp_path: Path) -> None:
    """Fan-outs inside each other come to the gate side by side: nobody can tell which one is meant."""
    pipe = Pipeline("p")
    pipe.items("part", ["a", "b"])
    pipe.items("page", ["x"], each="part")

    @pipe.step(each="page")
    def write(page: str) -> str:
        return page

    pipe.gate("read_ok", each="page")
    pipe.run(dir=tmp_path, run_id="one")
    with pytest.raises(UsageError, match=r"2 of these wait for approval now.*read_ok\[a/batch-1\], read_ok\["):
        Harness(tmp_path).approve("read_ok", run_id="one")


def test_refused_checklist_can_be_overruled(book: MakeBook) -> None:
    """A phase whose checklist objects is passed by approving phase:NAME."""
    made = book(checklist="too short")
    assert made.approve("phase:Binding") == "phase:Binding is approved."
    made.run()
    assert made.picture().status("bind") == "completed"


def test_a_phase_is_known_by_its_name_alone(book: MakeBook) -> None:
    """Where nothing else is called so, `approve Binding` means the phase."""
    made = book(checklist="too short")
    assert made.approve("Binding") == "phase:Binding is approved."


@pytest.mark.parametrize("name", ["publish", "publsh_ok", "", "../x", "a\x1b[2Jb", "x" * 5000])
def test_wrong_gate_names_write_nothing(book: MakeBook, name: str) -> None:
    """A name that is no gate is refused in one printable line."""
    made = book()
    message = refused(made, lambda: made.approve(name))
    assert message.isprintable()
    assert len(message) < 500


def test_misspelt_gate_gets_a_suggestion(book: MakeBook) -> None:
    """The gate that was probably meant is named."""
    made = book()
    message = refused(made, lambda: made.approve("publsh_ok"))
    assert message.endswith("Did you mean publish_ok?")


def test_reject_sends_back_with_feedback(book: MakeBook) -> None:
    """A rejected task is done again with the feedback, and what depends on it too."""
    made = book()
    assert made.reject("publish_ok", "draft[ch01]", "shorter") == "draft[ch01] is sent back."
    result = made.run()
    assert result.outputs["draft"]["ch01"] == "ch01 shorter"
    assert result.outputs["bind"] == "ch01 shorter / ch02 "


def test_a_rejected_gate_asks_again_when_the_work_is_there(tmp_path: Path) -> None:
    """An approval does not outlast a rejection by the same gate: what is redone is not published unseen."""
    made = Book(tmp_path)
    made.approve("publish_ok")
    made.reject("publish_ok", "bind", "nicer")
    assert not [need for need in made.picture().needs() if need.task == "publish_ok"]
    result = made.run()
    assert (result.status, result.picture.status("publish")) == ("paused", "blocked")
    assert [event["step_id"] for event in made.events() if event["event"] == "gate_reached"].count(
        "publish_ok"
    ) == 2
    made.approve("publish_ok")
    assert made.run().picture.status("publish") == "completed"


def test_an_overruled_checklist_is_asked_again_after_a_rejection(book: MakeBook) -> None:
    """A person who sends work back in the name of a phase takes back that it may begin."""
    made = book(checklist="too short")
    made.approve("phase:Binding")
    made.reject("phase:Binding", "draft[ch01]", "longer")
    assert [need.task for need in made.run().picture.needs() if "phase" in need.task] == ["phase:Binding"]


def test_reject_needs_finished_work(book: MakeBook) -> None:
    """Only a completed task can be sent back, once at a time, and with words."""
    made = book(ch01="fail")
    reject = made.reject
    assert "needs review" in refused(made, lambda: reject("bind", "draft[ch01]", "x"))
    assert "no task" in refused(made, lambda: reject("bind", "nosuch", "x"))
    assert "no gate" in refused(made, lambda: reject("nosuch", "draft[ch02]", "x"))
    assert "empty" in refused(made, lambda: reject("bind", "draft[ch02]", " "))
    reject("publish_ok", "draft[ch02]", "x")
    assert "already" in refused(made, lambda: reject("publish_ok", "draft[ch02]", "x"))


def test_retry_gives_a_fresh_set_of_attempts(book: MakeBook) -> None:
    """A task that used up its attempts is pending again after retry."""
    made = book(ch01="fail")
    assert made.retry(["draft[ch01]"]) == "To be tried again: draft[ch01]."
    assert made.picture().status("draft[ch01]") == "pending"


def test_retry_all_takes_only_what_failed(book: MakeBook) -> None:
    """--all means the failed tasks; where there are none, nothing is recorded."""
    made = book(ch01="fail")
    made.retry()
    assert made.events()[-1]["step_ids"] == ["draft[ch01]"]
    before = made.events()
    assert made.retry() == "There is nothing to retry."
    assert made.events() == before


def test_retry_of_what_did_not_fail_names_its_status(book: MakeBook) -> None:
    """A completed task is not retried; the message says its status and how to do it again."""
    made = book(ch01="fail")
    message = refused(made, lambda: made.retry(["draft[ch01]", "draft[ch02]"]))
    assert "draft[ch02] is completed" in message
    assert "--redo 'draft[ch02]'" in message


def test_note_is_kept(book: MakeBook) -> None:
    """A note is in the run's state; bytes that are no text are spelt out, an empty one is refused."""
    made = book()
    made.note("mind the \udcff gap")
    assert [note.text for note in made.picture().state.notes] == ["mind the \\udcff gap"]
    assert "empty" in refused(made, lambda: made.note("\n"))


def test_unknown_run_creates_nothing(tmp_path: Path) -> None:
    """Deciding about a run that does not exist is an error and leaves the folder empty."""
    harness = Harness(tmp_path)
    with pytest.raises(UnknownRunError):
        harness.note("words", run_id="nosuch")
    assert list(tmp_path.iterdir()) == []


def test_a_decision_counts_although_the_journal_was_lost(tmp_path: Path) -> None:
    """With events.jsonl gone and a snapshot left, what is approved comes after all that the snapshot knows."""
    pipe = Pipeline("p")

    @pipe.step
    def one() -> int:
        return 1

    pipe.gate("g", after=["one"])

    @pipe.step(after=["g"])
    def two() -> int:
        return 2

    waiting = pipe.run(dir=tmp_path)
    assert waiting.status == "paused"
    harness = Harness(tmp_path)
    harness.journal(waiting.run_id).unlink()
    harness.approve("g", run_id=waiting.run_id)
    assert pipe.run(dir=tmp_path).status == "completed"


def test_a_finished_run_with_a_wish_is_the_run_to_continue(tmp_path: Path) -> None:
    """Summary, views, `newest` and the record agree that it is not finished; then it is again."""
    pipe = Pipeline("p")

    @pipe.step
    def first() -> int:
        return 1

    assert pipe.run(dir=tmp_path, run_id="one").status == "completed"
    assert pipe.run(dir=tmp_path, run_id="two", force=True).status == "completed"
    harness = Harness(tmp_path)
    harness.decide("first", "redo", run_id="one")
    assert harness.picture().state.run_id == "one"
    assert {run.run_id: run.status for run in harness.project.runs()}["one"] == "in_progress"
    assert json.loads((harness.folder("one") / "checkpoint.json").read_text())["status"] == "in_progress"
    assert "This run is not finished" in (harness.root / "RESUME.md").read_text()
    assert "holdfast resume one" in (harness.root / "checkpoint.md").read_text()
    assert pipe.run(dir=tmp_path, resume="one").status == "completed"
    assert harness.picture().state.run_id == "two"


def test_decisions_stand_in_resume_md(book: MakeBook) -> None:
    """Who decided what, and to what end."""
    made = book()
    made.reject("publish_ok", "draft[ch01]", "shorter *please*")
    made.approve("read_ok[batch-1]", by="ada")
    letter = made.read("RESUME.md")
    assert "- sent back in the name of publish_ok (`draft[ch01]`); reason: shorter" in letter
    assert "- approved by ada (`read_ok[batch-1]`); outcome: what stands behind it may start" in letter


def test_skip_names_what_goes_with_it(book: MakeBook) -> None:
    """Who skips a task is told at once what is left out with it, and what is made without it."""
    made = book(ch01="fail")
    assert made.decide("draft[ch01]", "skip") == (
        "draft[ch01]: it will be left out by the next resume. To be made without it: bind."
    )
    assert made.run().outputs["bind"] == "ch02 "


def test_skip_names_what_needs_the_output(tmp_path: Path) -> None:
    """Tasks that cannot run without what is skipped are named; sections with another source stay."""
    pipe = Pipeline("book")
    pipe.items("chapter", ["ch01", "ch02"])

    @pipe.step(each="chapter")
    def draft(chapter: str) -> str:
        return chapter

    @pipe.step(each="chapter")
    def facts(draft: str) -> str:
        raise RuntimeError("no luck")

    @pipe.step(each="chapter")
    def merge(draft: str, facts: str) -> str:
        return draft + facts

    @pipe.step(each="chapter")
    def layout(merge: str) -> str:
        return merge

    @pipe.step(each="chapter", appends="terms.md", sources=["merge", "draft"])
    def terms(source: str) -> str:
        return source

    @pipe.step
    def bind(layout: dict[str, str]) -> list[str]:
        return list(layout)

    pipe.run(dir=tmp_path, run_id="one")
    told = Harness(tmp_path).decide("facts[ch02]", "skip", run_id="one")
    assert told.endswith("So will what needs its output: merge[ch02], layout[ch02]. To be made without it: bind.")


@pytest.mark.parametrize("name", ["draft", "draft[ch9]"])
def test_a_step_without_its_item_is_answered_with_its_tasks(book: MakeBook, name: str) -> None:
    """Whoever names a step, or an item that is none, is told the tasks there are, not one that looks alike."""
    made = book()
    message = refused(made, lambda: made.decide(name, "redo"))
    assert message == f"There is no task '{name}'. There are: draft[ch01], draft[ch02]."


@pytest.mark.parametrize("act", ["retry", "decide", "reject"])
def test_a_renamed_step_is_known_by_its_old_name(tmp_path: Path, act: str) -> None:
    """As `why` knows it: who has the old page before them names what stands there."""
    fails = [act != "reject"]

    def pipeline(name: str, *was: str) -> Pipeline:
        pipe = Pipeline("book")
        pipe.items("chapter", ["ch01"])

        @pipe.step(name=name, was=list(was), each="chapter", retries=0)
        def draft(chapter: str) -> str:
            if fails[0]:
                raise RuntimeError("no luck")
            return chapter

        return pipe

    pipeline("draft").run(dir=tmp_path, run_id="one")
    pipeline("write", "draft").run(dir=tmp_path, run_id="one")
    harness, old = Harness(tmp_path), "draft[ch01]"
    if act == "retry":
        assert harness.retry([old], run_id="one") == "To be tried again: write[ch01]."
    elif act == "decide":
        assert harness.decide(old, "skip", run_id="one").startswith("write[ch01]: it will be left out")
    else:
        assert harness.reject(old, old, "More salt.", run_id="one") == "write[ch01] is sent back."


def test_a_task_that_was_cut_off_may_object(tmp_path: Path) -> None:
    """It is on record as in progress, but nobody runs it: what it takes can be sent back in its name."""
    here, copy = tmp_path / "here", tmp_path / "copy"
    here.mkdir()
    pipe = Pipeline("book")

    @pipe.step
    def draft(ctx: Context) -> str:
        return "; ".join(ctx.feedback)

    @pipe.step
    def bind(draft: str) -> str:
        if not copy.exists():
            shutil.copytree(here, copy)  # as a kill would leave it
        return draft

    pipe.run(dir=here, run_id="one")
    assert Harness(copy).reject("bind", "draft", "more", run_id="one") == "draft is sent back."
    assert pipe.run(dir=copy).outputs["bind"] == "more"
