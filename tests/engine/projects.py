"""What engine tests share: reading a project's journal, a run that must not hang, a disk that fails for good."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast import EventLog, Pipeline
from holdfast.journal.read import scan
from holdfast.layout import ProjectLayout
from holdfast.stores import disk

PATIENCE_S = 30


def journal_of(project: Path) -> Path:
    (run,) = ProjectLayout(project).runs.iterdir()
    return run / "events.jsonl"


def events_of(project: Path, name: str = "") -> list[dict[str, Any]]:
    events = [line.event() for line in scan(journal_of(project))]
    return [event for event in events if not name or event["event"] == name]


def exits_of(project: Path, task: str) -> Iterator[dict[str, Any]]:
    return (event for event in events_of(project, "node_exit") if event["step_id"] == task)


def say(project: Path, **event: Any) -> None:
    """Record something as another process would: `approve`, `retry`, `note`."""
    layout = ProjectLayout(project)
    with EventLog(journal_of(project), lock_path=layout.append_lock) as log:
        log.append(event)


def in_thread(call: Callable[[], Any]) -> Any:
    """The result of `call` in a thread of its own; a hang is a failure."""
    box: list[Any] = []

    def run() -> None:
        try:
            box.append(call())
        except BaseException as error:
            box.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert box, "the engine hangs"
    return box[0]


@contextmanager
def failing_from(operation: int, *, torn: bool = False) -> Iterator[None]:
    """A disk that fails at its n-th operation, and at all after that; `torn`: half of a write is done first."""
    passed = 0

    def refuse(path: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def fail(op: str, path: str) -> None:
        nonlocal passed
        passed += 1
        if torn and passed == operation and op == "write":
            raise disk.TornWrite(lambda: refuse(path))
        if passed >= operation:
            refuse(path)

    disk.hook = fail
    try:
        yield
    finally:
        disk.hook = None


def gated_pipeline(*, gated: bool) -> Pipeline:
    """Two files and a step that fails; `gated` puts a gate before the second file, and mends the step."""
    pipe = Pipeline("p")

    @pipe.step(writes="a.md")
    def a() -> str:
        return "a"

    @pipe.step(writes="b.md")
    def b(a: str) -> str:
        return "b"

    if gated:
        pipe.gate("look", after=["a"])

    @pipe.step(retries=0)
    def c(b: str) -> int:
        return 1 if gated else 1 // 0

    return pipe


def waiting_pipeline(phase: str = "One") -> Pipeline:
    """A gate after all drafts, one of which comes after the review of another: within one phase a circle."""
    pipe = Pipeline("p")

    @pipe.items("n")
    def ns() -> list[object]:
        return ["a", {"id": "b", "after": ["a"]}]

    @pipe.step(each="n", phase="One")
    def draft(n: str) -> str:
        return n

    @pipe.step(each="n", phase=phase)
    def review(draft: str) -> str:
        return draft

    pipe.gate("ok", after=["draft"])
    return pipe
