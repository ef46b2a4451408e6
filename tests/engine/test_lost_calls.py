"""Results of paid calls that objects/ no longer has: made once more, told, and never in the way for ever."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast import Context, Pipeline

from .projects import events_of


class Paid:
    """A pipeline whose step makes a large and a small paid call, and fails until told otherwise."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails = True

    def make(self) -> Pipeline:
        pipe = Pipeline("p")

        @pipe.step(writes="a.md", retries=0)
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
