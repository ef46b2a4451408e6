"""The machine cannot read or write for one task: the run stops, and what others are being paid for is kept."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Pipeline
from holdfast.artifacts.keeping import Artifacts
from holdfast.errors import StorageError
from holdfast.executors.processes import ProcessExecutor
from holdfast.stores.tree import WorkTree

from .projects import PATIENCE_S, events_of, exits_of


class Shop:
    """A step with a paid call that ends after another task has met an error of the machine."""

    def __init__(self, *, is_async: bool) -> None:
        self.pipe, self.paid, self.hit = Pipeline("p"), [], threading.Event()
        self.pipe.step(name="source", writes="source.md")(lambda: "text\n")
        self.pipe.step(name="reader", writes="out.md")(lambda source: source)
        self.pipe.step(name="behind")(lambda reader: reader)
        self.pipe.step(name="buyer")(self.buy_async if is_async else self.buy)
        self.pipe.step(name="seller")(lambda buyer: f"{buyer} sold")

    def fail(self, *_: Any, **__: Any) -> Any:
        self.hit.set()
        raise OSError(errno.EIO, os.strerror(errno.EIO), "source.md")

    def buy(self, ctx: Context) -> str:
        return ctx.once("call", self.pay)

    async def buy_async(self, ctx: Context) -> str:
        return await ctx.once("call", asyncio.to_thread, self.pay)

    def pay(self) -> str:
        self.paid.append("call")
        assert self.hit.wait(PATIENCE_S)
        time.sleep(0.05)  # so that the error is heard of first
        return "dear"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("place", ["input", "output"])
def test_a_paid_call_that_is_under_way_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, is_async: bool
) -> None:
    """It ends within the grace period, and is on record with its step; nothing new begins, nothing is used up."""
    shop, write = Shop(is_async=is_async), WorkTree.write

    def write_but_one(tree: WorkTree, rel: str, data: bytes, **how: Any) -> Any:
        return shop.fail() if rel == "out.md" else write(tree, rel, data, **how)

    with monkeypatch.context() as patch:
        if place == "input":
            patch.setattr(Artifacts, "load", shop.fail)
        else:
            patch.setattr(WorkTree, "write", write_but_one)
        with pytest.raises(StorageError, match=r"source\.md: Input/output error"):
            shop.pipe.run(dir=tmp_path)
    assert [exit_["status"] for exit_ in exits_of(tmp_path, "buyer")] == ["completed"]
    assert not list(exits_of(tmp_path, "reader"))
    assert not [event for event in events_of(tmp_path, "node_enter") if event["step_id"] in ("behind", "seller")]
    (stopped,) = events_of(tmp_path, "run_stopped")
    assert "Input/output error" in stopped["reason"]
    assert "Input/output error" in (tmp_path / "RESUME.md").read_text()
    result = shop.pipe.run(dir=tmp_path)
    assert (result.status, result.outputs["seller"], shop.paid) == ("completed", "dear sold", ["call"])


def test_a_process_that_the_system_does_not_start_costs_no_call_of_another_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(is_async=False)

    def refused(*_: Any) -> Any:
        shop.hit.set()
        raise StorageError("Could not start a worker process: no more of them.")

    shop.pipe.step(name="elsewhere", executor="process")(_in_a_process)
    with monkeypatch.context() as patch:
        patch.setattr(ProcessExecutor, "run", refused)
        with pytest.raises(StorageError, match="worker process"):
            shop.pipe.run(dir=tmp_path)
    assert [exit_["status"] for exit_ in exits_of(tmp_path, "buyer")] == ["completed"]
    assert not list(exits_of(tmp_path, "elsewhere"))


def test_a_machine_that_cannot_write_the_pages_either_is_told_of_by_its_first_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the journal has everything."""
    shop = Shop(is_async=False)
    monkeypatch.setattr(Artifacts, "load", shop.fail)

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "RESUME.md")

    monkeypatch.setattr("holdfast.views.shelf.ViewShelf.write", full)
    with pytest.raises(StorageError, match="Input/output error"):
        shop.pipe.run(dir=tmp_path)
    assert events_of(tmp_path, "run_stopped")


def _in_a_process() -> str:
    return "done"
