"""What an annotation admits, in the terms of JSON: enough to see that two of them exclude each other.

Only certain contradictions count. Whatever is not understood (Any, TypeVar, a class of the user's own, a
name that cannot be resolved) admits everything.
"""

from __future__ import annotations

import collections
import os
import pathlib
import types
import typing
from collections import abc
from typing import Any

EVERYTHING = frozenset({"str", "bytes", "dict", "list", "int", "float", "bool", "none", "path"})

_DICT = frozenset({"dict"})
_LIST = frozenset({"list"})
_CLASS_KINDS: dict[Any, frozenset[str]] = {
    str: frozenset({"str"}),
    bytes: frozenset({"bytes"}),
    bool: frozenset({"bool"}),
    int: frozenset({"int"}),
    float: frozenset({"float"}),
    types.NoneType: frozenset({"none"}),
    dict: _DICT,
    collections.OrderedDict: _DICT,
    abc.Mapping: _DICT,
    abc.MutableMapping: _DICT,
    list: _LIST,
    tuple: _LIST,
    abc.MutableSequence: _LIST,
    abc.Sequence: frozenset({"list", "str", "bytes"}),
    abc.Iterable: frozenset({"list", "dict", "str", "bytes"}),
    abc.Collection: frozenset({"list", "dict", "str", "bytes"}),
    pathlib.Path: frozenset({"path"}),
    pathlib.PurePath: frozenset({"path"}),
    os.PathLike: frozenset({"path"}),
}
# What a consumer takes beside what its annotation says, as type checkers see it too.
_WIDER = {"float": frozenset({"int", "bool"}), "int": frozenset({"bool"})}


def hints_of(fn: Any) -> dict[str, Any]:
    """The annotations of `fn`, text resolved; empty where they cannot be."""
    target = fn if hasattr(fn, "__annotations__") or isinstance(fn, type) else getattr(fn, "__call__", fn)  # noqa: B004
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception:  # a name that exists only for type checkers, or any code at all, may stand there
        return {}


def kinds(annotation: Any) -> frozenset[str]:
    """The kinds of value that `annotation` admits."""
    plain = _unwrapped(annotation)
    if plain is None:
        return frozenset({"none"})
    if _is_union(plain):
        return frozenset().union(*(kinds(member) for member in typing.get_args(plain)))
    if typing.get_origin(plain) is typing.Literal:
        return frozenset().union(*(kinds(type(value)) for value in typing.get_args(plain)))
    if typing.is_typeddict(plain):
        return _DICT
    target = typing.get_origin(plain) or plain
    return _CLASS_KINDS.get(target, EVERYTHING) if isinstance(target, type) else EVERYTHING


def returned(annotation: Any) -> Any:
    """What a function so annotated gives in the end: an awaitable's result, or the annotation itself."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is abc.Coroutine and len(args) == 3:
        return args[2]
    if origin is abc.Awaitable and args:
        return args[0]
    return Any if annotation in (abc.Coroutine, abc.Awaitable) else annotation


def conflict(produced: frozenset[str], annotation: Any, levels: int) -> bool:
    """Whether a consumer so annotated can never take `produced`, gathered into `levels` dicts by item."""
    admitted = kinds(annotation)
    if levels == 0:
        wider = admitted.union(*(_WIDER.get(kind, frozenset()) for kind in admitted))
        return not (produced & wider)
    if "dict" not in admitted:
        return True
    return all(conflict(produced, value, levels - 1) for value in dict_values(annotation))


def is_context(annotation: Any) -> bool:
    """Whether it is Holdfast's Context, known by name so that nothing has to be imported for it."""
    plain = _unwrapped(annotation)
    if _is_union(plain):
        return any(is_context(member) for member in typing.get_args(plain))
    module = getattr(plain, "__module__", "")
    return getattr(plain, "__name__", "") == "Context" and str(module).split(".")[0] == "holdfast"


def _unwrapped(annotation: Any) -> Any:
    """Without Annotated, NewType and `type X = ...` around it."""
    seen = 0
    while seen < 20:  # a recursive alias never ends
        seen += 1
        if typing.get_origin(annotation) is typing.Annotated:
            annotation = typing.get_args(annotation)[0]
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return annotation
    return Any


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def dict_values(annotation: Any) -> list[Any]:
    """What the values of a dict so annotated are annotated."""
    plain = _unwrapped(annotation)
    if _is_union(plain):
        members = [member for member in typing.get_args(plain) if "dict" in kinds(member)]
        return [value for member in members for value in dict_values(member)]
    args = typing.get_args(plain)
    is_mapping = kinds(plain) == _DICT and len(args) == 2
    return [args[1]] if is_mapping else [Any]
