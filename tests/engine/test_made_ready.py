"""While the disk takes a batch, the one attempt that it starts is made ready; its body begins after the sync."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Pipeline
from holdfast.engine.attempt import Attempt, Attempts
from holdfast.executors.protocol import Call
from holdfast.stores import disk


def chain(body: Callable[[str], None]) -> Pipeline:
    pipe = Pipeline("chain")

    @pipe.step
    def first() -> int:
        body("first")
        return 1

    @pipe.step
    def second(first: int) -> int:
        body("second")
        return first + 1

    @pipe.step
    def third(second: int, ctx: Any) -> int:
        body("third")
        return second + int(ctx.attempt)

    @pipe.step
    def fourth(third: int) -> int:
        body("fourth")
        return third + 1

    return pipe


def test_a_body_begins_after_the_sync_of_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    begin, sync, prepare = disk.begin_sync, disk.sync_data, Attempts.prepare

    def begin_sync(fd: int, offset: int, length: int) -> None:
        seen.append("begin")
        begin(fd, offset, length)

    def sync_data(fd: int, path: str = "") -> None:
        sync(fd, path)
        seen.append("sync")

    def noted(self: Attempts, attempt: Attempt) -> Call:
        seen.append(f"prepare {attempt.node.id}")
        return prepare(self, attempt)

    monkeypatch.setattr(disk, "begin_sync", begin_sync)
    monkeypatch.setattr(disk, "sync_data", sync_data)
    monkeypatch.setattr(Attempts, "prepare", noted)
    result = chain(lambda name: seen.append(f"body {name}")).run(dir=tmp_path)

    assert result.outputs["fourth"] == 4
    for name in ("first", "second", "third", "fourth"):
        at = seen.index(f"body {name}")
        assert seen[at - 3 : at] == ["begin", f"prepare {name}", "sync"]


def test_what_cannot_be_prepared_then_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed: set[str] = set()
    begun: list[str] = []
    prepare = Attempts.prepare

    def failing_once(self: Attempts, attempt: Attempt) -> Call:
        if attempt.node.id not in failed:
            failed.add(attempt.node.id)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return prepare(self, attempt)

    monkeypatch.setattr(Attempts, "prepare", failing_once)
    result = chain(begun.append).run(dir=tmp_path)

    assert result.status == "completed"
    assert begun == ["first", "second", "third", "fourth"]


@pytest.mark.parametrize("several", [2, 5])
def test_of_several_each_thread_prepares_its_own(
    several: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Attempts, attempt: Attempt) -> None:
        raise AssertionError(f"{attempt.node.id} was prepared by the thread that commits")

    pipe = Pipeline("wide")
    pipe.items("n", [str(number) for number in range(several)])

    @pipe.step(each="n")
    def one(n: str) -> str:
        return n

    monkeypatch.setattr(Attempts, "prepare_ahead", refused)
    assert pipe.run(dir=tmp_path).status == "completed"


def test_a_file_that_a_step_takes_is_not_read_before_the_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead: list[str] = []
    monkeypatch.setattr(Attempts, "prepare_ahead", lambda self, attempt: ahead.append(attempt.node.id))
    pipe = Pipeline("files")

    @pipe.step(writes="text.md")
    def text() -> str:
        return "text\n"

    @pipe.step
    def read(text: str) -> int:
        return len(text)

    assert pipe.run(dir=tmp_path).status == "completed"
    assert ahead == ["text"]
