"""What annotations admit, and when a step's own cannot be what its options ask for."""

from collections.abc import Awaitable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict, TypeVar

import pytest
from declaring import told

from holdfast.pipeline.annotations import EVERYTHING, hints_of, is_context, kinds, returned
from holdfast.pipeline.definition import Pipeline

Chapter = NewType("Chapter", str)
T = TypeVar("T")


class Plan(TypedDict):
    title: str


class Context:
    """A class of the user's own that happens to be called so."""


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (str, {"str"}),
        (None, {"none"}),
        (dict[str, Any], {"dict"}),
        (Mapping[str, int], {"dict"}),
        (Plan, {"dict"}),
        (list, {"list"}),
        (tuple[int, ...], {"list"}),
        (Sequence[str], {"list", "str", "bytes"}),
        (Iterable[str], {"list", "dict", "str", "bytes"}),
        (str | None, {"str", "none"}),
        (Optional[bytes], {"bytes", "none"}),  # noqa: UP045 - the old spelling is what is tested
        (Literal["a", 1], {"str", "int"}),
        (Annotated[float, "x"], {"float"}),
        (Chapter, {"str"}),
        (Path, {"path"}),
        (Any, EVERYTHING),
        (T, EVERYTHING),
        (object, EVERYTHING),
        (Context, EVERYTHING),
        ("unresolved", EVERYTHING),
    ],
)
def test_kinds(annotation, expected):
    """An annotation admits its kinds of JSON value; what is not understood admits all."""
    assert kinds(annotation) == expected


def test_awaitables_give_their_result():
    """A function that returns an awaitable produces what awaiting it gives."""
    assert returned(Awaitable[str]) is str
    assert returned(Coroutine[Any, Any, int]) is int
    assert returned(dict) is dict


def test_hints_that_cannot_be_resolved_are_no_hints():
    """A name that exists only for type checkers turns the check off."""

    def step(x: "Nowhere") -> str: ...  # noqa: F821

    assert hints_of(step) == {}
    assert hints_of(object()) == {}


def test_only_holdfasts_context_is_the_context():
    """A class of the user's own with that name is not taken for it, Holdfast's is, also in a union."""
    own = type("Context", (), {"__module__": "holdfast.context"})
    assert is_context(own)
    assert is_context(own | None)
    assert not is_context(Context)
    assert not is_context(None)


def test_own_annotations_that_cannot_be_right():
    """A list of items is a list, and keys need a dict; types along edges are not compared."""
    pipe = Pipeline("p")

    @pipe.items("part")
    def parts() -> str: ...

    @pipe.step(each="part")
    def draft(part: dict) -> str: ...

    @pipe.step(writes={"a": "a.md"})
    def keyed(parts: str) -> str: ...

    lines = told(pipe)
    assert [line.split(":")[0] for line in lines] == ["items parts", "step keyed"]
    assert "return a list" in lines[0]
    assert "return a dict" in lines[1]
