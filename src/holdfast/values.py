"""Values as JSON holds them: checked strictly on the way in, hashed as stored, read back on the way out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from math import isfinite
from typing import Any

import msgspec

from holdfast.errors import ValueRefusedError

INLINE_VALUE_MAX = 2048
"""Values up to this many bytes stand in the journal itself; larger ones are kept once, by hash."""

DEPTH_MAX = 200
"""Deeper nesting is refused: readers in other languages, and our own decoder, have a limit too."""

_PLACE_MAX = 200  # characters of a field's place that are told

_encode = msgspec.json.Encoder().encode
_encode_in_order = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode


def encode_json(value: Any, where: str = "value", *, encode: Callable[[Any], bytes] = _encode) -> bytes:
    """The JSON bytes of `value`; ValueRefusedError names the field that JSON cannot hold faithfully."""
    _check(value, where, 0)
    try:
        return encode(value)
    except UnicodeEncodeError:
        raise _refused(where, "text with a lone surrogate") from None
    except ValueError:
        raise _refused(where, "a number of too many digits") from None


decode_json: Callable[[bytes | memoryview | msgspec.Raw], Any] = _decode
"""The value in these bytes, a fresh copy at every call."""


def is_text(data: bytes) -> bool:
    """Whether all of `data` is text that a person could have written."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def is_json(data: bytes) -> bool:
    """Whether all of `data` is one JSON value."""
    try:
        _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def digest(data: bytes) -> str:
    """Hex SHA-256: the only hash that decides anything."""
    return hashlib.sha256(data).hexdigest()


def digest_of_fields(value: Any) -> str:
    """The digest of what a person wrote by name: in which order the names stand says nothing."""
    return digest(encode_json(value, encode=_encode_in_order))


def is_same(one: Any, other: Any) -> bool:
    """Whether somebody who gives the one means the other: 1 is 1.0, but `true` is not 1, as it is in Python."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _check(value: Any, where: str, depth: int) -> None:
    # Exact types first: they are nearly all there is, and msgspec would take far more than JSON has.
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return
    if depth > DEPTH_MAX:
        raise _refused(where, f"nesting deeper than {DEPTH_MAX}")
    if kind is dict:
        _check_dict(value, where, depth)
    elif kind is list or kind is tuple:
        for index, item in enumerate(value):
            _check(item, f"{where}[{index}]", depth + 1)
    elif kind is float:
        if not isfinite(value):
            raise _refused(where, f"{value!r}, which JSON has no number for")
    else:
        raise _refused(where, f"a {kind.__module__}.{kind.__qualname__}".replace("builtins.", ""))


def _check_dict(value: dict[Any, Any], where: str, depth: int) -> None:
    for key, item in value.items():
        if type(key) is not str:
            raise _refused(where, f"a key that is not text: {_shown(key)}")
        kind = type(item)
        if kind is not str and kind is not int:
            _check(item, f"{where}.{key}", depth + 1)


def _shown(key: Any) -> str:
    """A key in words; of one that is somebody's own object only the type, for nobody knows what its words do."""
    return f"{key!r:.40}" if type(key) in (int, float, bool, type(None), bytes) else f"a {type(key).__qualname__}"


def _refused(where: str, what: str) -> ValueRefusedError:
    shown = where if len(where) <= _PLACE_MAX else f"{where[: _PLACE_MAX // 2]}...{where[-_PLACE_MAX // 2 :]}"
    return ValueRefusedError(
        f"{shown} is {what}; a value must be JSON: text, numbers, true, false, null, lists, dicts with text keys.",
        where=where,
    )
