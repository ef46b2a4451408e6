"""Results of paid calls that objects/ no longer has: made once more, told, and never in the way for ever."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from holdfast import Context, Pipeline


class Paid:
    """A pipeline whose step makes a large and a small paid call, and fails until told otherwise."""

    def __init__(self, *, fails: bool = True, copy: bool = True) -> None:
        self.calls: list[str] = []
        self.fails = fails
        self.copy = copy

    def make(self) -> Pipeline:
        pipe = Pipeline("p")

        @pipe.step(writes="a.md", retries=0, copy=self.copy)
        def a(ctx: Context) -> str:
            large: str = ctx.once("large", self.pay, "large", "x" * 5000)
            small: str = ctx.once("small", self.pay, "small", "y")
            if self.fails:
                raise RuntimeError("not yet")
            return large + small

        return pipe

    def pay(self, key: str, result: str) -> str:
        self.calls.append(key)
        return result


@pytest.mark.parametrize("how", ["lost", "rotten"])
def test_a_call_whose_result_is_lost_is_made_again(tmp_path: Path, how: str) -> None:
    """Only that one; the run says so, and completes."""
    paid = Paid()
    assert paid.make().run(dir=tmp_path).status == "failed"
    objects = tmp_path / ".holdfast" / "objects"
    if how == "lost":
        shutil.rmtree(objects)
    else:
        (pack,) = objects.glob("*/*.pack")
        pack.write_bytes(pack.read_bytes().replace(b"xxx", b"xox", 1))
    paid.fails = False
    assert paid.make().run(dir=tmp_path).status == "completed"
    assert paid.calls == ["large", "small", "large"]
    (mended,) = Harness(tmp_path).events("state_mended")
    assert mended["lost_calls"] == {"a": ["large"]}
    assert any("paid call 'large'" in finding for finding in mended["findings"])


@pytest.mark.parametrize("damage", ["deleted", "emptied", "cut"])
def test_a_finished_file_without_a_copy_is_made_again_from_its_paid_calls(tmp_path: Path, damage: str) -> None:
    """It runs once more, in the same round, and pays nothing."""
    paid = Paid(fails=False, copy=False)
    assert paid.make().run(dir=tmp_path).status == "completed"
    text = (tmp_path / "a.md").read_bytes()
    if damage == "deleted":
        (tmp_path / "a.md").unlink()
    else:
        (tmp_path / "a.md").write_bytes(text[:2000] if damage == "cut" else b"")
    result = paid.make().run(dir=tmp_path)
    assert (result.status, paid.calls) == ("completed", ["large", "small"])
    assert [event.get("round", 0) for event in Harness(tmp_path).events("node_enter")] == [0, 0]
    assert (tmp_path / "a.md").read_bytes() == text


def test_a_finished_step_pays_again_only_for_what_is_lost_with_its_file(tmp_path: Path) -> None:
    """The file and objects/ are gone: the small result is in the journal, the large one is paid for again."""
    paid = Paid(fails=False)
    assert paid.make().run(dir=tmp_path).status == "completed"
    shutil.rmtree(tmp_path / ".holdfast" / "objects")
    (tmp_path / "a.md").unlink()
    assert paid.make().run(dir=tmp_path).status == "completed"
    assert paid.calls == ["large", "small", "large"]


def test_lost_results_of_finished_work_are_nobodys_concern(tmp_path: Path) -> None:
    """The file is whole: nothing runs, nothing is said of its paid calls, and its copy is made again."""
    paid = Paid(fails=False)
    assert paid.make().run(dir=tmp_path).status == "completed"
    shutil.rmtree(tmp_path / ".holdfast" / "objects")
    assert paid.make().run(dir=tmp_path).status == "completed"
    assert paid.calls == ["large", "small"]
    (mended,) = Harness(tmp_path).events("state_mended")
    assert not any("paid call" in finding for finding in mended["findings"])


class Asked:
    """A paid call about a topic that another step names."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: list[str] = []
        self.fails = False

    def run(self, topic: str = "kelp", version: int = 1, redo: tuple[str, ...] = ()) -> str:
        pipe = Pipeline("p")

        @pipe.step(version=len(topic))
        def named() -> str:
            return topic

        @pipe.step(writes="a.md", retries=0, copy=False, version=version)
        def a(ctx: Context, named: str) -> str:
            answer: str = ctx.once("ask", self.ask, f"{named} {version}")
            ctx.usage(cost_usd=1.0)
            if self.fails:
                raise RuntimeError("not yet")
            return answer

        result = Harness(self.root).run(pipe, redo=redo)
        self.cost, self.wasted = result.cost_usd, result.picture.state.wasted_cost_usd
        return result.status

    def ask(self, question: str) -> str:
        self.asked.append(question)
        return f"about {question}\n"


CHANGES: list[dict[str, Any]] = [{"topic": "seaweed"}, {"version": 2}, {"redo": ("a",)}]


@pytest.mark.parametrize("change", CHANGES, ids=["input", "version", "redo"])
@pytest.mark.parametrize("loss", ["failed", "deleted"])
def test_a_call_that_was_made_for_something_else_is_not_replayed(
    tmp_path: Path, loss: str, change: dict[str, Any]
) -> None:
    """The step begins a new round and asks again; what was paid for the old answer counts as wasted."""
    project = Asked(tmp_path)
    project.fails = loss == "failed"
    project.run()
    if not project.fails:
        (tmp_path / "a.md").unlink()
        project.fails = True
        assert project.run() == "failed"  # it would replay the call, and is to run again
    project.fails = False
    assert project.run(**change) == "completed"
    question = f"{change.get('topic', 'kelp')} {change.get('version', 1)}"
    assert project.asked == ["kelp 1", question]
    assert (tmp_path / "a.md").read_text().startswith(f"about {question}\n")
    assert (project.cost, project.wasted) == (2.0, 1.0)
    (entered,) = Harness(tmp_path).events("node_enter", task="a")[-1:]
    assert entered["round"] == 1


def test_a_call_is_replayed_for_a_step_that_was_renamed(tmp_path: Path) -> None:
    """It is the same step, made from the same: nothing is paid for again."""
    asked: list[str] = []

    def pipeline(name: str, *, fails: bool) -> Pipeline:
        pipe = Pipeline("p")

        @pipe.step(name=name, was=[] if name == "old" else "old", writes="a.md", retries=0)
        def step(ctx: Context) -> str:
            answer: str = ctx.once("ask", lambda: asked.append(name) or "answer\n")
            assert not fails
            return answer

        return pipe

    pipeline("old", fails=True).run(dir=tmp_path)
    assert pipeline("new", fails=False).run(dir=tmp_path).status == "completed"
    assert asked == ["old"]


def test_more_lost_calls_than_a_line_of_the_journal_holds(tmp_path: Path) -> None:
    """They are told in several: the run can be opened, and makes them again."""
    pipe, calls = Pipeline("p"), []
    key = "k" * 1_000_000

    @pipe.step(retries=0)
    def step(ctx: Context) -> int:
        for number in range(20):
            ctx.once(f"{number} {key}", lambda: calls.append(1) or "r" * 3000)
        if len(calls) == 20:
            raise RuntimeError("not yet")
        return len(calls)

    assert pipe.run(dir=tmp_path).status == "failed"
    shutil.rmtree(tmp_path / ".holdfast" / "objects")
    result = pipe.run(dir=tmp_path)
    assert (result.status, result.outputs["step"]) == ("completed", 40)
    assert len(Harness(tmp_path).events("state_mended")) > 1
