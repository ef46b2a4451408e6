"""Who judges what a body gave: the leader of a commit if it is small files, else the thread that ran the body."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from harness import PATIENCE_S, in_thread
from holdfast import Context, Pipeline
from holdfast.engine import commit
from holdfast.engine.attempt import QUICK_BYTES_MAX, Attempts
from holdfast.engine.commit import Committer, Entry


def judges(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Task -> whether it was judged inside a commit, filled as tasks end."""
    found: dict[str, bool] = {}
    leading = threading.local()
    take, judge = Committer._take, Attempts.judge_outcome

    def taking(committer: Committer) -> list[Entry]:
        leading.now = True
        try:
            return take(committer)
        finally:
            leading.now = False

    def judging(attempts: Attempts, attempt: Any, outcome: Any) -> Any:
        found[attempt.node.id] = getattr(leading, "now", False)
        return judge(attempts, attempt, outcome)

    monkeypatch.setattr(Committer, "_take", taking)
    monkeypatch.setattr(Attempts, "judge_outcome", judging)
    return found


def test_the_leader_judges_small_files_and_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check, an exception, items, large files and values stay with the thread that ran the body."""
    monkeypatch.setattr(commit, "QUICK_SYNC_S", 1000.0)
    found = judges(monkeypatch)
    pipe = Pipeline("p")
    pipe.step(lambda: 1, name="value")
    pipe.step(lambda: "text", name="file", writes="file.md")
    pipe.step(lambda: {"a": "x", "b": b"y"}, name="files", writes={"a": "a.md", "b": "b.bin"})
    pipe.step(lambda: "x" * QUICK_BYTES_MAX + "y", name="large", writes="large.md")
    pipe.step(lambda: "text", name="checked", writes="checked.md", check=lambda output: True)
    pipe.step(lambda: 1 / 0, name="failing", retries=0)

    @pipe.step(writes="made.bin")
    def made(ctx: Context) -> Path:
        ctx.out.write_bytes(b"1")
        return ctx.out

    @pipe.items("one")
    def some() -> list[str]:
        return ["a"]

    pipe.step(lambda one: one, name="each", each="one", writes="each-{one}.md")
    pipe.run(dir=tmp_path)
    assert {task for task, by_leader in found.items() if by_leader} == {"file", "files", "each[a]"}
    assert {task for task, by_leader in found.items() if not by_leader} == {
        "value",
        "large",
        "checked",
        "failing",
        "made",
        "some",
    }


def test_a_check_may_record_while_others_commit(tmp_path: Path) -> None:
    """It asks the committer itself: the leader of a commit would wait for ever for itself."""
    pipe = Pipeline("p")
    pipe.items("n", [str(number) for number in range(20)])

    def paid(output: str, ctx: Context) -> bool:
        return bool(ctx.once("check", lambda: len(output)))

    pipe.step(lambda n: f"text {n}", name="text", each="n", writes="{n}.md", check=paid)
    pipe.step(lambda n: n, name="value", each="n")
    assert in_thread(lambda: pipe.run(dir=tmp_path, concurrency=8)).status == "completed"


def test_on_a_slow_disk_every_thread_stores_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread that stored for all would make them wait for each other."""
    monkeypatch.setattr(commit, "QUICK_SYNC_S", 0.0)
    found = judges(monkeypatch)
    pipe = Pipeline("p")
    pipe.items("n", [str(number) for number in range(20)])
    pipe.step(lambda n: n, name="text", each="n", writes="{n}.md")
    pipe.run(dir=tmp_path, concurrency=1)
    assert list(found.values()) == [False] * 20


@pytest.mark.parametrize("where", ["is_quick_to_judge", "judge_outcome"])
def test_a_mistake_of_ours_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Wherever a worker meets it: nobody would ever hear of that attempt again."""

    def broken(*_: Any) -> None:
        raise AttributeError("a mistake of ours")

    monkeypatch.setattr(commit, "QUICK_SYNC_S", 1000.0)  # else, on a busy disk, nobody asks whether it is quick
    monkeypatch.setattr(Attempts, where, broken)
    pipe = Pipeline("p")
    pipe.step(lambda: 1, name="a")
    raised: list[BaseException] = []

    def run() -> None:
        try:
            pipe.run(dir=tmp_path)
        except AttributeError as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert [str(error) for error in raised] == ["a mistake of ours"]


def judged(pages: list[str], *, is_async: bool = False) -> Pipeline:
    """One page, of which a paid judge approves if it is good; `pages` is what the judge was paid for."""
    pipe = Pipeline("p")

    def judge(ctx: Context, page: str) -> str:
        pages.append(page)
        ctx.usage(cost_usd=1)
        return "" if page.startswith("good") else "is bad"

    async def judge_async(ctx: Context, page: str) -> str:
        return judge(ctx, page)

    def approves(output: str, ctx: Context) -> str:
        if is_async:
            return str(asyncio.run(ctx.once("judge", judge_async, ctx, output)))
        return str(ctx.once("judge", judge, ctx, output))

    @pipe.step(writes="page.md", marker=None, check=approves)
    def page() -> str:
        return "good, made\n"

    return pipe


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(("found", "paid"), [("good, found\n", 1), ("bad\n", 2)])
def test_a_check_of_what_is_adopted_may_make_paid_calls(
    tmp_path: Path, found: str, paid: int, is_async: bool
) -> None:
    """It is asked within a commit, for which it must not wait; its answer is about that file alone."""
    (tmp_path / "page.md").write_text(found)
    pages: list[str] = []
    result = in_thread(lambda: judged(pages, is_async=is_async).run(dir=tmp_path))
    assert (result.status, result.cost_usd) == ("completed", paid)
    assert pages == [found, "good, made\n"][:paid]


@pytest.mark.parametrize("edit", ["good, edited\n", "bad\n"])
def test_a_check_of_an_edit_is_not_answered_by_what_was_paid_for_before_it(tmp_path: Path, edit: str) -> None:
    """The judge has approved of another text: it is asked about the one that a person wants to keep."""
    pages: list[str] = []
    pipe = judged(pages)
    assert pipe.run(dir=tmp_path).status == "completed"
    page = tmp_path / "page.md"
    page.write_text(page.read_text().replace("good, made\n", edit))
    (tmp_path / "holdfast.toml").write_text('[run]\non_changed = "keep"\n')
    result = pipe.run(dir=tmp_path)
    assert (result.status, pages[-1]) == ("completed" if edit.startswith("good") else "paused", edit)


def test_a_check_of_an_async_step_refuses_and_accepts(tmp_path: Path) -> None:
    """It is asked by a worker of its own, so that the loop goes on, and what it says counts."""
    pipe, seen = Pipeline("p"), []

    def long_enough(output: str) -> str | None:
        seen.append((output, threading.current_thread().name == "holdfast-loop"))
        return None if len(output) > 1 else "it is too short"

    @pipe.step(check=long_enough, retries=1, backoff=0.0)
    async def page(ctx: Context) -> str:
        return "x" * ctx.attempt * (ctx.round + 1)

    assert in_thread(lambda: pipe.run(dir=tmp_path)).outputs["page"] == "xx"
    assert seen == [("x", False), ("xx", False)]
