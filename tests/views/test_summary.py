import json

import msgspec
import pytest

from holdfast import events as ev
from holdfast.views.stamp import read_json_stamp
from holdfast.views.summary import cost_line, encode_summary, error_of, shown_status, status_of, summary

from .runs import Story, book, half_written_book, items

NOTHING_KEPT: dict[str, bytes] = {}


def status_document(picture, holder, kept):
    """The document that `--json` prints."""
    return msgspec.to_builtins(status_of(picture, holder, kept))


def test_the_fields_of_the_summary():
    """checkpoint.json has the contract's fields, and parameters and tags at the top level."""
    story = half_written_book().tell(ev.Tagged(fields={"owner": "me"}))
    document = summary(story.picture())
    steps = document.pop("completed_steps")
    assert [step["step"] for step in steps] == ["outline", "research", "draft"]
    assert document == {
        "run_id": "run-1",
        "pipeline": "book",
        "file": "book.py",
        "ordinal": 1,
        "params": {"topic": "Async IO"},
        "tags": {"owner": "me"},
        "status": "in_progress",
        "started_at": "2026-01-09T14:30:23.000Z",
        "updated_at": "2026-01-09T14:30:39.000Z",
        "totals": {
            "tasks": 9,
            "completed": 4,
            "failed": 0,
            "needs_review": 1,
            "blocked": 2,
            "skipped": 0,
            "pending": 1,
            "in_progress": 1,
        },
        "last_completed_step": "draft[ch01]",
        "next_step": "research[ch03]",
        "total_cost_usd": 0.875,
        "wasted_cost_usd": 0.0,
        "total_tokens": 360,
        "error": None,
        "topic": "Async IO",
        "owner": "me",
    }


def test_what_was_sent_back_is_to_be_done():
    """Before anybody has begun it, it is pending, comes next, and its old output does not count."""
    story = Story(book()).finish("outline").tell(ev.RewindRequested(step_id="", targets={"outline": "longer"}))
    document = status_document(story.picture(), None, NOTHING_KEPT.get)
    assert (document["next"], document["next_step"]) == (["outline"], "outline")
    assert (document["totals"]["completed"], document["totals"]["pending"]) == (0, 3)
    outline = document["tasks"][0]
    assert (outline["status"], outline["outputs"], outline["value"]) == ("pending", [], None)


def test_what_waits_for_an_answer_needs_review():
    """As its symbol says, in every document: an edited output still shows what was accepted, and is not done.

    Nor does what was at work when its run was killed come next: nothing happens to it until that is answered.
    """
    asked = ev.QuestionAsked(step_id="outline", about="changed", detail="outline.md was changed")
    half = ev.QuestionAsked(step_id="research[ch03]", about="partial", detail="ch03.md is half finished")
    picture = half_written_book().tell(asked, half).picture()
    document = status_document(picture, None, NOTHING_KEPT.get)
    tasks = {task["id"]: task for task in document["tasks"]}
    assert tasks["outline"]["outputs"] and tasks["outline"]["status"] == "needs_review"
    assert tasks["research[ch03]"]["status"] == "needs_review" and "research[ch03]" not in document["next"]
    counts = document["totals"]
    assert (counts["completed"], counts["needs_review"], counts["pending"]) == (3, 3, 0)
    assert sum(counts.values()) == 2 * counts["tasks"]
    steps = {step["step"]: step["status"] for step in summary(picture)["completed_steps"]}
    assert steps == {"outline": "needs_review", "research": "needs_review", "draft": "in_progress"}


def test_a_step_outside_fan_outs_lists_its_files():
    """Its entry has path, size and hash of each file, its times, its work and what it cost."""
    outline, *_ = summary(half_written_book().picture())["completed_steps"]
    assert outline == {
        "step": "outline",
        "status": "completed",
        "started_at": "2026-01-09T14:30:25.000Z",
        "completed_at": "2026-01-09T14:30:27.000Z",
        "duration_seconds": 1.5,
        "outputs": [{"path": "outline.md", "bytes": 12, "sha256": "ab" * 32}],
        "metrics": {"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.25},
        "error": None,
    }


def test_a_fanned_out_step_counts_its_tasks():
    """One entry stands for all items: how many there are, are done, went wrong, were left out."""
    research = summary(half_written_book().picture())["completed_steps"][1]
    assert research["outputs"] == {"total": 3, "completed": 1, "failed": 1, "skipped": 0}
    assert research["status"] == "in_progress"
    assert research["completed_at"] is None
    assert research["error"] == "no answer"
    assert research["metrics"] == {"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.5}


def test_a_fanned_out_step_counts_what_waits_for_an_answer_or_was_sent_back_as_not_done():
    """Its counts are those of the whole document: neither is completed, and an edit is no failure."""
    story = Story(book()).finish("outline").finish("chapters", value=items("a", "b", "c"))
    story.finish("research[a]", "research[b]", "research[c]")
    story.tell(ev.QuestionAsked(step_id="research[a]", about="changed", detail="a.md was changed"))
    story.tell(ev.RewindRequested(step_id="outline", targets={"research[b]": "again"}))
    *_, research = summary(story.picture())["completed_steps"]
    assert research["outputs"] == {"total": 3, "completed": 1, "failed": 0, "skipped": 0}
    assert (research["status"], research["completed_at"]) == ("needs_review", None)


def research_status(story):
    steps = {step["step"]: step for step in summary(story.picture())["completed_steps"]}
    return steps["research"]["status"], steps["research"]["completed_at"]


def test_the_status_of_a_fanned_out_step():
    """It goes on while anything can, then says what is wrong, and is completed with its last item."""
    story = Story(book()).finish("outline").finish("chapters", value=items("a", "b"))
    assert research_status(story.finish("research[a]")) == ("in_progress", None)
    assert research_status(story.fail("research[b]")) == ("failed", None)
    assert research_status(story.fail("research[b]", status="needs_review")) == ("needs_review", None)
    story.finish("research[b]")
    assert research_status(story) == ("completed", "2026-01-09T14:30:36.000Z")


def test_what_was_sent_back_is_no_output():
    """After a rewind the old file is not listed as the step's output."""
    story = Story(book()).finish("outline", files=["outline.md"])
    story.tell(ev.TaskRewound(step_id="outline", feedback=("shorter",)))
    (outline,) = summary(story.picture())["completed_steps"]
    assert (outline["status"], outline["outputs"], outline["completed_at"]) == ("pending", [], None)


def test_after_a_loss_nobody_knows_which_tokens_went_in_and_which_came_out():
    """A seal has only their sum, so no split is told."""
    story = half_written_book()
    assert cost_line(story.picture()).endswith("360 tokens (300 in, 60 out)")
    story.tell(ev.RunStarted(run_id="run-1", pipeline="book", ordinal=1, rebuilt=True))
    story.tell(ev.TaskAdopted(step_id="outline", node="outline", evidence="sealed", tokens=500))
    assert cost_line(story.picture()).endswith("tokens")


def test_a_parameter_never_hides_a_field():
    """A parameter or tag named like a field, or like the stamp, stays where it is told apart."""
    story = Story(book(), params={"topic": "x", "status": "great", "stamp": 1})
    document = json.loads(encode_summary(story.picture()))
    assert document["status"] == "in_progress"
    assert document["params"] == {"topic": "x", "status": "great", "stamp": 1}
    assert document["stamp"]["run"] == "run-1"


def test_the_written_summary_is_stamped():
    """The bytes of checkpoint.json carry a stamp that fits, as the last member."""
    story = half_written_book()
    data = encode_summary(story.picture())
    stamp = read_json_stamp(data)
    assert (stamp.run, stamp.seq, stamp.fits) == ("run-1", story.state.seq, True)
    assert list(json.loads(data))[-1] == "stamp"


def test_status_json_has_the_contracts_fields():
    """`status --json` says who runs it, where it stands, and lists every task."""
    holder = {"host": "box", "pid": 7, "since": "2026-01-09T14:30:22.000Z"}
    document = status_document(half_written_book().picture(), holder, NOTHING_KEPT.get)
    assert set(document) == {
        "run_id", "pipeline", "params", "tags", "status", "running", "holder", "started_at", "updated_at", "phase",
        "batch", "totals", "last_completed_step", "next_step", "next", "total_cost_usd", "wasted_cost_usd",
        "total_tokens", "error", "tasks",
    }  # fmt: skip
    assert (document["running"], document["holder"]) == (True, holder)
    assert (document["batch"], document["next"]) == (1, ["research[ch03]"])
    assert len(document["tasks"]) == document["totals"]["tasks"] == 9


def test_a_task_in_status_json():
    """A task's entry has its item, attempts, times, files, cost and error."""
    tasks = {
        task["id"]: task
        for task in status_document(half_written_book().picture(), None, NOTHING_KEPT.get)["tasks"]
    }
    assert tasks["research[ch01]"] == {
        "id": "research[ch01]",
        "step": "research",
        "item": "ch01",
        "status": "completed",
        "attempts": 1,
        "round": 0,
        "started_at": "2026-01-09T14:30:30.000Z",
        "completed_at": "2026-01-09T14:30:32.000Z",
        "duration_seconds": 1.5,
        "outputs": [{"path": "research/ch01.md", "bytes": 12, "sha256": "ab" * 32}],
        "value": None,
        "metrics": {"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.5},
        "error": None,
    }
    assert (tasks["draft[ch02]"]["status"], tasks["outline"]["item"]) == ("blocked", None)
    assert tasks["research[ch02]"]["error"] == "no answer"


def test_attempts_whose_output_was_refused_are_counted():
    """Each began a new round, in which none was made yet."""
    story = Story(book())
    for round, status in enumerate(("failed", "failed", "needs_review")):
        story.tell(ev.NodeEntered(step_id="outline", node="outline", round=round, attempt=1))
        refused = {"status": status, "kind": "refused", "round": round, "attempt": 1, "new_round": True}
        story.tell(ev.NodeExited(step_id="outline", node="outline", **refused))
    document = status_document(story.picture(), None, NOTHING_KEPT.get)
    assert {task["id"]: task["attempts"] for task in document["tasks"]}["outline"] == 3


def test_values_are_shown_wherever_they_are_kept():
    """A small value comes from the record, a large one from objects; one that is lost is null."""
    story = Story(book()).finish("outline", value={"title": "x"})
    story.tell(ev.NodeExited(step_id="assemble", node="assemble", status="completed", value_ref="cd" * 32))
    for objects, found in (({"cd" * 32: b'"long"'}, "long"), ({}, None)):
        document = status_document(story.picture(), None, objects.get)
        values = {task["id"]: task["value"] for task in document["tasks"]}
        assert values == {"outline": {"title": "x"}, "assemble": found, "chapters": None}


@pytest.mark.parametrize(("running", "shown"), [(True, "in_progress"), (False, "interrupted")])
def test_a_run_that_nobody_runs_was_interrupted(running, shown):
    """People read `interrupted`; JSON keeps the status and says that nobody runs it."""
    picture = half_written_book().picture()
    assert shown_status("in_progress", error_of(picture), running=running) == shown
    document = status_document(picture, None, NOTHING_KEPT.get)
    assert (document["status"], document["running"], document["holder"]) == ("in_progress", False, None)


def test_a_stopped_run_shows_its_own_status():
    """Paused, failed and completed are the same whether or not a process is there; the reason is the error."""
    picture = half_written_book().tell(ev.RunStopped(status="paused", reason="the budget is used up")).picture()
    assert shown_status("paused", error_of(picture), running=False) == "paused"
    assert summary(picture)["error"] == "the budget is used up"
