"""Why a task stands where it stands."""

from __future__ import annotations

from pathlib import Path

from holdfast import Pipeline
from holdfast.layout import ProjectLayout
from holdfast.planning import explain


def why(root: Path, run_id: str, task: str) -> str:
    return "\n".join(explain(ProjectLayout(root), run_id, task))


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
        assert told.count("which needs a person") == 1
        assert "  waits for find[b], which needs a person" in told
    assert "waits for" not in why(tmp_path, run.run_id, "write[a]")
    assert why(tmp_path, run.run_id, "find[b]").startswith("find[b]: needs_review")


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
    assert "waits for read_it, which needs a person" in why(tmp_path, run.run_id, "behind_gate")
    assert "waits for phase:two, which needs a person" in why(tmp_path, run.run_id, "behind_checklist")


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
    assert "ran again because: changed since: param n" in why(tmp_path, run.run_id, "first")
    assert "ran again because: changed since: first" in why(tmp_path, run.run_id, "second")


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
