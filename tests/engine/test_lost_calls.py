"""Results of paid calls that objects/ no longer has: made once more, told, and never in the way for ever."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast import Context, Pipeline

from .projects import events_of


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
        (pack,) = objects.glob("*.pack")
        pack.write_bytes(pack.read_bytes().replace(b"xxx", b"xox", 1))
    paid.fails = False
    assert paid.make().run(dir=tmp_path).status == "completed"
    assert paid.calls == ["large", "small", "large"]
    (mended,) = events_of(tmp_path, "state_mended")
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
    assert [event.get("round", 0) for event in events_of(tmp_path, "node_enter")] == [0, 0]
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
    (mended,) = events_of(tmp_path, "state_mended")
    assert not any("paid call" in finding for finding in mended["findings"])
