"""What is skipped because a producer was comes along when that producer is there after all."""

from __future__ import annotations

from pathlib import Path

from harness import Harness
from holdfast import Pipeline


def skipping(*, fails: bool) -> tuple[Pipeline, list[str]]:
    """One chapter of two fails and is left out, and with it all that is made from it but the book."""
    pipe = Pipeline("p")
    begun: list[str] = []
    pipe.items("c", ["x", "y"])

    @pipe.step(each="c", on_failure="skip", writes="drafts/{c}.md")
    def draft(c: str) -> str:
        begun.append(f"draft[{c}]")
        if c == "x" and fails:
            raise RuntimeError("no")
        return f"{c}\n"

    @pipe.step(each="c", writes="reviews/{c}.md")
    def review(c: str, draft: str) -> str:
        begun.append(f"review[{c}]")
        return f"good: {draft}"

    @pipe.step(each="c")
    def length(c: str, review: str) -> int:
        begun.append(f"length[{c}]")
        return len(review)

    @pipe.step
    def book(length: dict[str, int]) -> list[str]:
        begun.append("book")
        return sorted(length)

    return pipe, begun


def test_what_was_left_out_for_a_producer_is_done_once_that_is_there(tmp_path: Path) -> None:
    pipe, _ = skipping(fails=True)
    assert pipe.run(dir=tmp_path, run_id="one").outputs["book"] == ["y"]
    Harness(tmp_path).append(event="retry_requested", step_ids=["draft[x]"])

    pipe, begun = skipping(fails=False)
    result = pipe.run(dir=tmp_path, resume="one")
    assert begun == ["draft[x]", "review[x]", "length[x]", "book"]
    assert result.outputs["book"] == ["x", "y"]

    pipe, begun = skipping(fails=False)
    pipe.run(dir=tmp_path, resume="one")
    assert begun == []


def test_what_is_left_out_again_is_told_so(tmp_path: Path) -> None:
    for resume in (None, "one"):
        pipe, begun = skipping(fails=True)
        result = pipe.run(dir=tmp_path, run_id=None if resume else "one", resume=resume)
        assert result.outputs["book"] == ["y"]
        Harness(tmp_path).append(event="retry_requested", step_ids=["draft[x]"])
    assert begun == ["draft[x]"]
    assert {result.picture.status(task) for task in ("draft[x]", "review[x]", "length[x]")} == {"skipped"}


def test_what_a_person_skipped_stays_so_when_its_producer_is_there(tmp_path: Path) -> None:
    pipe, _ = skipping(fails=True)
    pipe.run(dir=tmp_path, run_id="one")
    Harness(tmp_path).append(event="decided", step_id="review[x]", choice="skip")
    Harness(tmp_path).append(event="retry_requested", step_ids=["draft[x]"])

    pipe, begun = skipping(fails=False)
    pipe.run(dir=tmp_path, resume="one")
    assert begun == ["draft[x]"]
