"""Why a task stands where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Harness
from holdfast import Pipeline, Rewind
from holdfast.errors import UsageError


def why(root: Path, run_id: str, task: str) -> str:
    return Harness(root).why(task, run_id)


def broken_chain() -> Pipeline:
    pipe = Pipeline("p")
    pipe.items("part", ["a", "b", "c"])

    @pipe.step(each="part")
    def find(part: str) -> str:
        if part == "b":
            raise RuntimeError("no luck")
        return part

    @pipe.step(each="part")
    def write(find: str) -> str:
        return find

    @pipe.step
    def bind(write: dict[str, str]) -> str:
        return "".join(write.values())

    return pipe


def test_a_blocked_task_names_what_it_waits_for(tmp_path: Path) -> None:
    """However long the chain is, also through a gather: the task that needs a person, and no other."""
    run = broken_chain().run(dir=tmp_path)
    for task in ("write[b]", "bind"):
        told = why(tmp_path, run.run_id, task)
        assert told.startswith(f"{task}: blocked\n")
        assert told.count("waits for") == 1
        assert told.endswith("\n  next: waits for find[b]: holdfast retry 'find[b]'")
    assert "waits for" not in why(tmp_path, run.run_id, "write[a]")
    told = why(tmp_path, run.run_id, "find[b]")
    assert told.startswith("find[b]: needs review\n")
    assert told.endswith("\n  next: it waits for a person: holdfast retry 'find[b]'")


def test_a_section_names_what_it_may_be_made_from(tmp_path: Path) -> None:
    """A memory step takes no output by name, but it has sources."""
    pipe = Pipeline("p")
    pipe.items("part", ["a"])

    @pipe.step(each="part", writes="{part}.md")
    def draft(part: str) -> str:
        return part

    @pipe.step(each="part", appends="terms.md", sources=["draft"])
    def terms(source: str) -> str:
        return source

    run = pipe.run(dir=tmp_path)
    assert "  its source is the first that is whole of draft[a]\n" in why(tmp_path, run.run_id, "terms[a]")


def test_finished_work_that_is_asked_about_or_was_sent_back_is_not_told_as_completed(tmp_path: Path) -> None:
    """`why` uses the words of `status`."""
    pipe = Pipeline("p")

    @pipe.step(writes="a.md")
    def a() -> str:
        return "text"

    run = pipe.run(dir=tmp_path)
    assert why(tmp_path, run.run_id, "a").startswith("a: completed\n")
    (tmp_path / "a.md").write_text("my " + (tmp_path / "a.md").read_text())
    assert pipe.run(dir=tmp_path).status == "paused"
    assert why(tmp_path, run.run_id, "a").startswith("a: needs review\n")
    Harness(tmp_path).reject("a", "a", "better", run_id=run.run_id)
    assert why(tmp_path, run.run_id, "a").startswith("a: sent back\n")
    assert Harness(tmp_path).picture(run.run_id).needs() == []


def test_a_task_behind_a_gate_or_a_checklist_names_it(tmp_path: Path) -> None:
    """A gate that was reached and a phase whose checklist objects are waited for like tasks."""
    pipe = Pipeline("p")
    pipe.phase("one")

    @pipe.step(phase="one")
    def first() -> str:
        return "text"

    pipe.gate("read_it", after=["first"])
    pipe.phase("two", checklist=[lambda: "not yet"])

    @pipe.step(after=["first"])
    def behind_gate() -> str:
        return "text"

    @pipe.step(phase="two")
    def behind_checklist() -> str:
        return "text"

    run = pipe.run(dir=tmp_path)
    assert "next: waits for read_it: holdfast approve read_it" in why(tmp_path, run.run_id, "behind_gate")
    waits = "next: waits for phase:two: holdfast approve phase:two"
    assert waits in why(tmp_path, run.run_id, "behind_checklist")
    assert why(tmp_path, run.run_id, "read_it") == "read_it: waits for approval\n  next: holdfast approve read_it"
    told = why(tmp_path, run.run_id, "phase:two")
    assert told == "phase:two: its checklist says: not yet\n  next: holdfast approve phase:two"
    assert why(tmp_path, run.run_id, "phase:one") == "phase:one: started"


def test_a_gate_that_is_not_reached_names_what_comes_before(tmp_path: Path) -> None:
    """Approved, it says that, and nothing more."""
    pipe = Pipeline("p")

    @pipe.step
    def first() -> str:
        raise RuntimeError("no luck")

    pipe.gate("read_it", after=["first"], ask="Read it")
    run = pipe.run(dir=tmp_path)
    told = "read_it: not reached yet\n  next: waits for first: holdfast retry first"
    assert why(tmp_path, run.run_id, "read_it") == told
    Harness(tmp_path).approve("read_it", run_id=run.run_id)
    assert why(tmp_path, run.run_id, "read_it") == "read_it: approved"


def test_used_up_rounds_are_told_as_what_they_are(tmp_path: Path) -> None:
    """They are no failed attempts, and what leads on is a decision."""
    pipe = Pipeline("p")

    @pipe.step
    def draft() -> str:
        return "text"

    @pipe.step
    def review(draft: str) -> str:
        raise Rewind("draft", feedback="weak", rounds=1)

    told = why(tmp_path, pipe.run(dir=tmp_path).run_id, "review")
    assert "\n  needs a person: it has sent work back as often as it may\n" in told
    assert told.endswith("\n  next: it waits for a person: holdfast decide review redo   (or: skip)")


def test_a_question_is_no_error(tmp_path: Path) -> None:
    """An edited file is told as a question, with the command that answers it."""
    pipe = Pipeline("p")

    @pipe.step(writes="a.md")
    def first() -> str:
        return "text"

    run = pipe.run(dir=tmp_path)
    (tmp_path / "a.md").write_text("more " + (tmp_path / "a.md").read_text())
    told = why(tmp_path, run.run_id, "first")
    assert "  question: a.md was changed after it was accepted" in told
    assert "last error" not in told
    assert "\n  next: it waits for a person: holdfast decide first keep" in told


def test_a_task_that_ran_again_says_why(tmp_path: Path) -> None:
    """Also when it is finished: what had changed, or what a reviewer said."""
    pipe = Pipeline("p", params={"n": int})

    @pipe.step
    def first(n: int) -> int:
        return n

    @pipe.step
    def second(first: int) -> int:
        return first

    run = pipe.run({"n": 1}, dir=tmp_path)
    pipe.run({"n": 2}, dir=tmp_path, resume=run.run_id)
    assert "ran again because: what it was made from has changed: param n" in why(tmp_path, run.run_id, "first")
    assert "ran again because: what it was made from has changed: first" in why(tmp_path, run.run_id, "second")


def test_a_task_that_is_to_run_again_was_not_done_again_yet(tmp_path: Path) -> None:
    """What it reads has changed since: its round is told as one to come."""
    pipe = Pipeline("p")

    @pipe.step(reads="in.csv")
    def first() -> int:
        return 1

    (tmp_path / "in.csv").write_text("1")
    run = pipe.run(dir=tmp_path)
    (tmp_path / "in.csv").write_text("2")
    told = why(tmp_path, run.run_id, "first")
    assert "  round 1: it ran before, and is done again\n  runs again because: " in told
    assert "was done again" not in told
    pipe.run(dir=tmp_path)
    assert "  round 1: it ran before, and was done again\n" in why(tmp_path, run.run_id, "first")


def test_an_output_without_its_form_was_refused_by_no_check(tmp_path: Path) -> None:
    """A step that gives nothing for its file has no check that could have refused it."""
    pipe = Pipeline("p")

    @pipe.step(writes="a.md")
    def first() -> None:
        return None

    told = why(tmp_path, pipe.run(dir=tmp_path).run_id, "first")
    assert "  needs a person after 1 failed attempt, the output of the last one refused\n" in told
    assert "  last error: returned nothing, but writes a.md\n" in told
    assert "check" not in told


def test_order_alone_does_not_make_a_task_wait(tmp_path: Path) -> None:
    """An item that comes after one that needs a person goes on; nothing says that it waits."""
    pipe = Pipeline("p")
    pipe.items("part", ["a", {"id": "b", "after": ["a"]}])

    @pipe.step(each="part", phase="one")
    def find(part: str) -> str:
        if part == "a":
            raise RuntimeError("no luck")
        return part

    run = pipe.run(dir=tmp_path)
    assert "needs a person" not in why(tmp_path, run.run_id, "find[b]")


def test_a_renamed_task_is_known_by_both_names(tmp_path: Path) -> None:
    """Asked for by its old name it says what it is called now, and so does what was made from it."""

    before, now = Pipeline("p"), Pipeline("p")
    before.step(name="draft")(lambda: 1)
    before.step(name="last")(lambda draft: draft)
    now.step(name="script", was="draft")(lambda: 1)
    now.step(name="last")(lambda script: script)
    run_id = before.run(dir=tmp_path).run_id
    with pytest.raises(UsageError, match="old name until the next run"):
        why(tmp_path, run_id, "script")
    now.run(dir=tmp_path)
    told = why(tmp_path, run_id, "script")
    assert why(tmp_path, run_id, "draft") == f"draft is now called script\n{told}"
    assert "made from script: " in why(tmp_path, run_id, "last")


def test_settings_count_as_they_do_for_a_run(tmp_path: Path) -> None:
    """What holdfast.toml says of edits, the next run does: so it is what is told."""
    pipe = Pipeline("p")
    pipe.step(name="a", writes="a.md")(lambda: "text\n")
    run = pipe.run(dir=tmp_path)
    path = tmp_path / "a.md"
    path.write_text(path.read_text().replace("text", "my text"))
    assert "next: it waits for a person" in why(tmp_path, run.run_id, "a")
    (tmp_path / "holdfast.toml").write_text('[run]\non_changed = "keep"\n')
    assert "next: nothing, it is used as it is (a.md was edited, and the edit is kept)" in why(
        tmp_path, run.run_id, "a"
    )
