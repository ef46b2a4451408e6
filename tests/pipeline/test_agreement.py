"""Types along a dependency that exclude each other."""

import pytest
from declaring import only, told

from holdfast.pipeline.definition import Pipeline


@pytest.mark.parametrize(
    ("producer", "consumer", "expected"),
    [
        (str, bytes, "parameter plan is annotated bytes, but plan gives str"),
        (int, str, "plan gives int"),
        (None, str, "plan gives none"),
        (str | None, int, "plan gives none or str"),
    ],
)
def test_annotations_that_exclude_each_other(producer, consumer, expected):
    """A consumer that can never take what its producer returns is told."""
    pipe = Pipeline("p")

    def plan(): ...
    def work(plan): ...

    plan.__annotations__["return"] = producer
    work.__annotations__["plan"] = consumer
    pipe.step(plan)
    pipe.step(work)
    assert expected in only(pipe)


def test_gathered_outputs_are_dicts():
    """Outside the fan-out a parameter receives a dict; an annotation that excludes it is told."""
    pipe = Pipeline("p")
    pipe.items("part", ["a"])

    @pipe.step(each="part")
    def draft(part: str) -> str: ...

    @pipe.step
    def bind(draft: str): ...

    @pipe.step
    def count(draft: dict[str, int]): ...

    @pipe.step(each="part")
    def review(draft: dict): ...

    @pipe.step
    def fine(draft: dict[str, str]): ...

    lines = told(pipe)
    assert [line.split(":")[0] for line in lines] == ["step bind", "step count", "step review"]
    assert "in a dict by item" in lines[0]
    assert "in a dict by item" not in lines[2]


def test_types_of_items_ids_keys_and_checks():
    """An id is text, items are a list, keys need a dict, and a check takes what the step returns."""
    pipe = Pipeline("p")

    @pipe.items("part")
    def parts() -> str: ...

    @pipe.step(each="part")
    def draft(part: dict) -> str: ...

    @pipe.step(writes={"a": "a.md"})
    def keyed(parts: str) -> str: ...

    def counted(output: int): ...

    @pipe.step(check=counted)
    def plan() -> str: ...

    expected = ["return a list", "ctx.item", "return a dict", "parts gives list", "plan gives str"]
    lines = told(pipe)
    assert len(lines) == 5
    for text in expected:
        assert any(text in line for line in lines), text


def test_a_streamed_file_is_text():
    """A step with a file that returns None has streamed it: its consumers receive text."""
    pipe = Pipeline("p")

    @pipe.step(writes="a.md")
    def draft(ctx) -> None: ...

    @pipe.step
    def work(draft: str): ...

    assert pipe.compile()
