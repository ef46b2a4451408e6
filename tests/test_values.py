"""Values: strict JSON in, the same out."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ValueRefusedError
from holdfast.values import DEPTH_MAX, decode_json, encode_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_json_comes_back_as_it_was(value: object) -> None:
    """Whatever JSON can hold is read back equal."""
    assert decode_json(encode_json(value)) == value


def test_tuples_become_lists() -> None:
    """A tuple is read back as a list, as the contract says."""
    assert decode_json(encode_json({"a": (1, (2, 3))})) == {"a": [1, [2, 3]]}


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": {"b": {1, 2}}}, "value.a.b"),
        ([1, b"x"], "value[1]"),
        ({"t": datetime.datetime(2026, 1, 1)}, "value.t"),
        ({"x": [float("nan")]}, "value.x[0]"),
        (float("inf"), "value"),
        ({"k": {1: 2}}, "value.k"),
        ({"o": object()}, "value.o"),
    ],
)
def test_what_json_cannot_hold_is_refused_by_place(value: object, where: str) -> None:
    """Sets, bytes, times, NaN, other keys and objects are refused, naming the field; never turned into text."""
    with pytest.raises(ValueRefusedError) as refused:
        encode_json(value)
    assert refused.value.where == where
    assert isinstance(refused.value, TypeError)


def test_deep_nesting_is_refused_not_a_crash() -> None:
    """Nesting beyond the limit is one clear error, not a RecursionError."""
    value: object = 1
    for _ in range(DEPTH_MAX + 5):
        value = [value]
    with pytest.raises(ValueRefusedError, match=r"^.{,300} is nesting deeper than"):
        encode_json(value)


def test_lone_surrogates_are_refused() -> None:
    """Text that no file can hold is refused."""
    with pytest.raises(ValueRefusedError, match="surrogate"):
        encode_json({"a": "\ud800"})
