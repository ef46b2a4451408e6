"""What annotations admit, and when two of them exclude each other."""

from collections.abc import Awaitable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict, TypeVar

import pytest

from holdfast.pipeline.annotations import EVERYTHING, conflict, hints_of, is_context, kinds, returned

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


@pytest.mark.parametrize(
    ("produced", "annotation", "levels", "expected"),
    [
        (str, str, 0, False),
        (str, bytes, 0, True),
        (str, dict, 0, True),
        (int, float, 0, False),
        (bool, int, 0, False),
        (float, int, 0, True),
        (str, str | None, 0, False),
        (str, dict[str, str], 1, False),
        (str, dict, 1, False),
        (str, str, 1, True),
        (str, dict[str, int], 1, True),
        (str, dict[str, int] | None, 1, True),
        (str, dict[str, dict[str, str]], 2, False),
        (str, dict[str, str], 2, True),
        (str, Plan, 1, False),
        (Any, dict[str, int], 1, False),
        (str, Any, 3, False),
    ],
)
def test_conflicts(produced, annotation, levels, expected):
    """Only annotations that exclude each other conflict; gathering adds one dict a level."""
    assert conflict(kinds(produced), annotation, levels) is expected


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
