"""The machine cannot read or write for one task: the run stops, and what others are being paid for is kept."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness import PATIENCE_S, Harness
from holdfast import Context, Pipeline, Rewind
from holdfast.artifacts.bookshelf import Bookshelf
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.keeping import Artifacts
from holdfast.context import current_task
from holdfast.engine.attempt import Attempt
from holdfast.engine.host import StepHost
from holdfast.engine.outcomes import Outcomes
from holdfast.errors import InTheWayError, StorageError
from holdfast.executors.processes import ProcessExecutor
from holdfast.stores import disk
from holdfast.stores.objects import LocalObjects
from holdfast.stores.tree import LocalFiles


class Shop:
    """A step with a paid call that ends after another task has met an error of the machine."""

    def __init__(self, *, is_async: bool) -> None:
        self.pipe, self.paid = Pipeline("p"), []
        self.begun, self.hit = threading.Event(), threading.Event()
        self.pipe.step(name="source", writes="source.md")(lambda: "text\n")
        self.pipe.step(name="reader", writes="out.md")(lambda source: source)
        self.pipe.step(name="behind")(lambda reader: reader)
        self.pipe.step(name="buyer")(self.buy_async if is_async else self.buy)
        self.pipe.step(name="seller")(lambda buyer: f"{buyer} sold")

    def fail(self, *_: Any, **__: Any) -> Any:
        assert self.begun.wait(PATIENCE_S)
        self.hit.set()
        raise OSError(errno.EIO, os.strerror(errno.EIO), "source.md")

    def buy(self, ctx: Context) -> str:
        return ctx.once("call", self.pay)

    async def buy_async(self, ctx: Context) -> str:
        return await ctx.once("call", asyncio.to_thread, self.pay)

    def pay(self) -> str:
        self.paid.append("call")
        self.begun.set()
        assert self.hit.wait(PATIENCE_S)
        time.sleep(0.05)  # so that the error is heard of first
        return "dear"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("place", ["input", "stage", "land"])
def test_a_paid_call_that_is_under_way_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, is_async: bool
) -> None:
    """It ends within the grace period, and is on record with its step; nothing new begins, nothing is used up."""
    shop = Shop(is_async=is_async)
    reals = {"stage": LocalFiles.stage, "land": LocalFiles.land}

    def all_but_one(tree: LocalFiles, *args: Any, **how: Any) -> Any:
        is_hit = args[0] == "out.md" or getattr(args[0], "path", "") == "out.md"
        return shop.fail() if is_hit else reals[place](tree, *args, **how)

    with monkeypatch.context() as patch:
        if place == "input":
            patch.setattr(Artifacts, "load", shop.fail)
        else:
            patch.setattr(LocalFiles, place, all_but_one)
        with pytest.raises(StorageError, match=r"source\.md: Input/output error"):
            shop.pipe.run(dir=tmp_path)
    assert [exit_["status"] for exit_ in Harness(tmp_path).events("node_exit", task="buyer")] == ["completed"]
    assert not Harness(tmp_path).events("node_exit", task="reader")
    assert not [
        event for event in Harness(tmp_path).events("node_enter") if event["step_id"] in ("behind", "seller")
    ]
    (stopped,) = Harness(tmp_path).events("run_stopped")
    assert "Input/output error" in stopped["reason"]
    assert "Input/output error" in (tmp_path / "RESUME.md").read_text()
    result = shop.pipe.run(dir=tmp_path)
    assert (result.status, result.outputs["seller"], shop.paid) == ("completed", "dear sold", ["call"])


def test_a_process_that_the_system_does_not_start_costs_no_call_of_another_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(is_async=False)

    def refused(*_: Any) -> Any:
        assert shop.begun.wait(PATIENCE_S)
        shop.hit.set()
        raise StorageError("Could not start a worker process: no more of them.")

    shop.pipe.step(name="elsewhere", executor="process")(_in_a_process)
    with monkeypatch.context() as patch:
        patch.setattr(ProcessExecutor, "_take", refused)
        with pytest.raises(StorageError, match="worker process"):
            shop.pipe.run(dir=tmp_path)
    assert [exit_["status"] for exit_ in Harness(tmp_path).events("node_exit", task="buyer")] == ["completed"]
    assert not Harness(tmp_path).events("node_exit", task="elsewhere")


def only_for(task: str, patch: pytest.MonkeyPatch, place: Any, name: str, fail: Callable[..., Any]) -> None:
    """Let that fail where it is called in the name of `task`."""
    real = getattr(place, name)

    def call(*args: Any, **how: Any) -> Any:
        return (fail if current_task.get() == task else real)(*args, **how)

    patch.setattr(place, name, call)


def a_stream(shop: Shop, patch: pytest.MonkeyPatch) -> None:
    """It cannot append to its growing file, and its body goes on as if nothing were."""

    def tell(ctx: Context, source: str) -> str:
        with suppress(Exception):
            ctx.write("It begins.")
        return source

    shop.pipe.step(name="hit", writes="story.md", retries=0)(tell)
    only_for("hit", patch, LocalFiles, "append", shop.fail)


def room_to_pay(shop: Shop, patch: pytest.MonkeyPatch) -> None:
    """There is little room left when it is about to pay."""

    def pay(ctx: Context, source: str) -> str:
        with suppress(Exception):
            return ctx.once("call", lambda: source)
        return "nothing"

    shop.pipe.step(name="hit", retries=0)(pay)
    only_for("hit", patch, disk, "room_left", shop.fail)


def a_result(shop: Shop, patch: pytest.MonkeyPatch) -> None:
    """The result of its paid call does not fit."""
    shop.pipe.step(name="hit", retries=0)(lambda ctx, source: len(ctx.once("call", lambda: source * 10_000)))
    only_for("hit", patch, LocalObjects, "put", shop.fail)


def a_replay(shop: Shop, patch: pytest.MonkeyPatch) -> None:
    """The result of an earlier attempt's paid call cannot be read."""

    def again(ctx: Context, source: str) -> int:
        text = ctx.once("call", lambda: source * 10_000)
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return len(text)

    shop.pipe.step(name="hit", retries=1, backoff=0)(again)
    only_for("hit", patch, LocalObjects, "get", shop.fail)


def what_was_sent_back(shop: Shop, patch: pytest.MonkeyPatch) -> None:
    def revise(ctx: Context) -> str:
        return f"not {ctx.previous}" if ctx.round else "first"

    def look(hit: str) -> str:
        if hit == "first":
            raise Rewind("hit", feedback="no")
        return hit

    shop.pipe.step(name="hit", writes="hit.md", retries=0)(revise)
    shop.pipe.step(name="look")(look)
    only_for("hit", patch, Artifacts, "load", shop.fail)


def a_check(shop: Shop, patch: pytest.MonkeyPatch) -> None:
    """Its check cannot pay for a look at it: that is no objection."""

    def looks_well(output: str, ctx: Context) -> bool:
        return ctx.once("look", lambda: True)

    shop.pipe.step(name="hit", check=looks_well, retries=0)(lambda source: source)
    only_for("hit", patch, disk, "room_left", shop.fail)


def a_memory_file(shop: Shop, patch: pytest.MonkeyPatch) -> None:
    shop.pipe.items("part", [{"id": "one"}])
    shop.pipe.step(name="hit", each="part", appends="notes.md")(lambda source, part: source)
    patch.setattr(Bookshelf, "replace", shop.fail)


def a_file_from_outside(shop: Shop, patch: pytest.MonkeyPatch) -> None:
    shop.pipe.step(name="hit", reads="in.csv")(lambda source: source)
    patch.setattr(Inputs, "reads_digest", shop.fail)


def a_checklist(shop: Shop, patch: pytest.MonkeyPatch) -> None:
    """What it looks at cannot be read."""
    shop.pipe.phase("Last", checklist=[lambda source: source == "text\n"])
    shop.pipe.step(name="hit", phase="Last")(lambda: 1)
    patch.setattr(Artifacts, "load", shop.fail)


def a_loop(shop: Shop, patch: pytest.MonkeyPatch) -> None:
    """The system has no descriptor for the event loop of the first async step."""

    async def later(source: str) -> str:
        return source

    shop.pipe.step(name="hit", retries=0)(later)
    patch.setattr(asyncio, "new_event_loop", shop.fail)


@pytest.mark.parametrize(
    "place",
    [
        a_stream,
        room_to_pay,
        a_result,
        a_replay,
        what_was_sent_back,
        a_check,
        a_memory_file,
        a_file_from_outside,
        a_checklist,
        a_loop,
    ],
)
def test_wherever_the_machine_fails_one_task_what_another_is_paid_for_is_kept(
    tmp_path: Path, place: Callable[[Shop, pytest.MonkeyPatch], None]
) -> None:
    """And the one that was hit has not failed, whatever its body made of that; the next run has it done."""
    shop = Shop(is_async=False)
    with pytest.MonkeyPatch.context() as patch:
        place(shop, patch)
        with pytest.raises(StorageError, match="Input/output error"):
            shop.pipe.run(dir=tmp_path)
    assert [exit_["status"] for exit_ in Harness(tmp_path).events("node_exit", task="buyer")] == ["completed"]
    (stopped,) = Harness(tmp_path).events("run_stopped")
    assert "Input/output error" in stopped["reason"]
    assert not Harness(tmp_path).events("checklist_refused")
    cut_off = {event["step_id"] for event in Harness(tmp_path).events("cut_off")}
    assert ("hit" in cut_off) == (place not in (a_memory_file, a_file_from_outside, a_checklist))
    assert not any("Input/output" in exit_.get("error", "") for exit_ in Harness(tmp_path).events("node_exit"))
    again = shop.pipe.run(dir=tmp_path)
    assert (again.status, again.outputs["seller"], shop.paid) == ("completed", "dear sold", ["call"])


def test_a_check_that_the_end_of_the_run_cuts_off_has_not_objected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The grace period is over while it is at work: no attempt is used up, and its step's paid call is kept."""
    (tmp_path / "holdfast.toml").write_text("[run]\ngrace_s = 0\n")
    shop, stopped, handed_in = Shop(is_async=False), threading.Event(), threading.Event()

    def look(output: str, ctx: Context) -> bool:
        shop.begun.set()
        assert stopped.wait(PATIENCE_S)
        return ctx.once("look", lambda: True)

    def end_and_tell(outcomes: Outcomes, attempt: Attempt) -> bool:
        is_ended = end(outcomes, attempt)
        if attempt.node.id == "checked":
            handed_in.set()
        return is_ended

    def end_and_let_it_look(host: StepHost, why: str, **how: Any) -> None:
        end_host(host, why, **how)
        if host.facts.task_id == "checked" and "stopped" in why:  # its context is over, and the record still open
            stopped.set()
            assert handed_in.wait(PATIENCE_S)

    def pay() -> str:
        return shop.paid.append("made") or "made"

    end, end_host = Outcomes.end, StepHost.end
    shop.pipe.step(name="checked", check=look, retries=0)(lambda ctx: ctx.once("make", pay))
    with monkeypatch.context() as patch:
        patch.setattr(Artifacts, "load", shop.fail)
        patch.setattr(Outcomes, "end", end_and_tell)
        patch.setattr(StepHost, "end", end_and_let_it_look)
        with pytest.raises(StorageError, match="Input/output error"):
            shop.pipe.run(dir=tmp_path)
    assert not Harness(tmp_path).events("node_exit", task="checked")
    assert shop.pipe.run(dir=tmp_path).status == "completed"
    assert shop.paid.count("made") == 1


def test_a_section_that_cannot_be_put_into_its_memory_file_is_not_made_again(tmp_path: Path) -> None:
    """It was paid for, and is on record with the others: the file is written from them by the next run."""
    pipe, made = Pipeline("p"), []
    pipe.items("part", [{"id": "one"}, {"id": "two"}])
    pipe.step(name="note", each="part", appends="notes.md")(lambda part: made.append(part) or f"about {part}\n")

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "notes.md")

    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(StorageError, match=r"notes\.md: Input/output error"),
    ):
        patch.setattr(Bookshelf, "replace", fail)
        pipe.run(dir=tmp_path)
    assert "Input/output error" in (tmp_path / "RESUME.md").read_text()
    assert pipe.run(dir=tmp_path).status == "completed"
    assert sorted(made) == ["one", "two"]


def cut_off_by_the_stop(shop: Shop, ctx: Context) -> Path:
    """It breaks off after another step was hit."""
    shop.begun.set()
    assert shop.hit.wait(PATIENCE_S)
    time.sleep(0.05)  # so that the error is heard of first
    raise ValueError("half a film")


def hit_itself(shop: Shop, ctx: Context) -> Path:
    """All of it is there, and cannot be put into its place."""
    shop.begun.set()
    return ctx.out


@pytest.mark.parametrize(
    ("end", "hit"),
    [
        (cut_off_by_the_stop, (Artifacts, "load")),
        (hit_itself, (LocalFiles, "stage")),
        (hit_itself, (LocalFiles, "land")),
    ],
    ids=["cut off", "not staged", "not landed"],
)
def test_what_a_step_leaves_at_ctx_out_does_not_stay_on_the_disk(
    tmp_path: Path, end: Callable[[Shop, Context], Path], hit: tuple[type, str]
) -> None:
    """No attempt is ever given it, and a process that runs one pipeline after another would never be rid of it."""
    shop, left, is_left = Shop(is_async=False), [], threading.Event()

    def film(ctx: Context) -> Path:
        ctx.out.write_bytes(b"film" * 1000)
        left.append(ctx.out)
        is_left.set()
        return end(shop, ctx)

    def fail_then(*_: Any, **__: Any) -> Any:
        assert is_left.wait(PATIENCE_S)
        return shop.fail()

    shop.pipe.step(name="film", writes="film.bin", retries=0)(film)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(StorageError, match="Input/output error"):
        patch.setattr(*hit, fail_then)
        shop.pipe.run(dir=tmp_path)
    assert "film" in {event["step_id"] for event in Harness(tmp_path).events("cut_off")}
    assert not list(left[0].parent.iterdir())


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
    assert Harness(tmp_path).events("run_stopped")


def _in_a_process() -> str:
    return "done"


def linked_elsewhere(folder: Path) -> Callable[[], None]:
    """Put a link to an empty folder in the place of a folder; what this gives undoes that."""
    moved, other = folder.with_name("moved"), folder.with_name("other")
    folder.rename(moved)
    other.mkdir()
    folder.symlink_to(other)

    def undo() -> None:
        folder.unlink()
        moved.rename(folder)

    return undo


def test_a_link_among_the_folders_costs_no_step_that_has_ended(tmp_path: Path) -> None:
    """What is looked at when it ends stands behind a link: its own end is recorded, and it is not made again."""
    pipe, made = Pipeline("p", params={"topic": str}), []
    pipe.step(name="plan")(lambda topic: made.append(topic) or topic)
    pipe.step(name="draft", writes="drafts/a.md")(lambda plan: f"on {plan}\n")
    assert pipe.run(dir=tmp_path, params={"topic": "kelp"}).status == "completed"
    run = pipe.run(dir=tmp_path, params={"topic": "kelp"}).run_id
    undo = linked_elsewhere(tmp_path / "drafts")
    for _ in range(2):
        with pytest.raises(InTheWayError, match="drafts is a symbolic link") as refused:
            pipe.run(dir=tmp_path, resume=run, params={"topic": "eel"})
        assert refused.value.exit_code == 6
    undo()
    assert pipe.run(dir=tmp_path, resume=run, params={"topic": "eel"}).outputs["draft"] == "on eel\n"
    assert made == ["kelp", "eel"]


def test_a_link_that_is_put_in_the_way_of_an_output_uses_up_no_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is what runs beside it lost: the run stops as it does when a disk fails."""
    monkeypatch.setattr("holdfast.stores.folders._FRESH_S", 0.0)
    shop, undone = Shop(is_async=False), []

    def write(ctx: Context) -> str:
        assert shop.begun.wait(PATIENCE_S)
        if not undone:
            undone.append(linked_elsewhere(tmp_path / "drafts"))
        shop.hit.set()
        return "text\n"

    (tmp_path / "drafts").mkdir()
    shop.pipe.step(name="draft", writes="drafts/a.md")(write)
    with pytest.raises(InTheWayError, match="drafts is a symbolic link"):
        shop.pipe.run(dir=tmp_path)
    assert not Harness(tmp_path).events("node_exit", task="draft")
    assert [exit_["status"] for exit_ in Harness(tmp_path).events("node_exit", task="buyer")] == ["completed"]
    undone[0]()
    assert shop.pipe.run(dir=tmp_path).status == "completed"
    assert (shop.paid, (tmp_path / "drafts" / "a.md").read_text()[:5]) == (["call"], "text\n")


def test_runs_of_one_program_leave_no_descriptor(tmp_path: Path) -> None:
    """What a run leaves in memory may be collected late; it holds nothing open until then."""
    pipe = Pipeline("p")
    pipe.items("part", ["a", "b"])

    @pipe.step(each="part", writes="parts/{part}.md")
    def piece(part: str) -> str:
        return part

    pipe.run(dir=tmp_path)
    gc.collect()
    before = len(os.listdir("/dev/fd"))
    for _ in range(3):
        pipe.run(dir=tmp_path, force=True)
    assert len(os.listdir("/dev/fd")) == before
