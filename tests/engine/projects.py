"""Pipelines that several tests of the engine run, and a disk that fails for good."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast import Pipeline
from holdfast.stores import disk


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
