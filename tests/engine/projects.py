"""Pipelines that several tests of the engine run."""

from __future__ import annotations

from holdfast import Pipeline


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
