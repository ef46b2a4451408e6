"""Says what an annotation admits, in the terms of JSON: what a step returns, and how consumers receive it.

What is not understood (Any, TypeVar, a class of the user's own, a name that cannot be resolved) admits everything.
"""

from __future__ import annotations

import collections
import os
import pathlib
import types
import typing
from collections import abc
from collections.abc import Callable
from typing import Any

from holdfast.pipeline.declared import Subject
from holdfast.pipeline.spec import StepSpec

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


def check_return(step: StepSpec, fn: Callable[..., Any], told: Subject) -> None:
    """Tell a step whose own return annotation cannot be what its options ask for."""
    admitted = kinds(returned(hints_of(fn).get("return", Any)))
    if isinstance(step.writes, dict) and "dict" not in admitted:
        told.wrong("writes= names keys, so it must return a dict; by its annotation it does not.")
    if step.appends is not None and "str" not in admitted:
        told.wrong("appends= needs text, so it must return str; by its annotation it does not.")


def check_list(fn: Callable[..., Any], told: Subject) -> None:
    """Tell an items function that by its return annotation gives no list."""
    if "list" not in kinds(returned(hints_of(fn).get("return", Any))):
        told.wrong("must return a list of items, by its annotation it does not.")


def forms(step: StepSpec, fn: Callable[..., Any]) -> dict[str, str]:
    """How consumers receive each file that is no text, as far as the annotation tells; by key."""
    produced = returned(hints_of(fn).get("return", Any))
    if isinstance(step.writes, dict):
        admitted = frozenset().union(*(kinds(annotation) for annotation in _dict_values(produced)))
    else:
        admitted = kinds(produced)
        if "none" in admitted and admitted != EVERYTHING:  # it streams its file, which is text
            admitted = (admitted - {"none"}) | {"str"}
    found = {key: _form(template, admitted) for key, template in step.files.items()}
    return {key: form for key, form in found.items() if form != "text"}


def _form(template: str, admitted: frozenset[str]) -> str:
    if admitted == EVERYTHING:  # then the name says more than the annotation
        return "json" if template.lower().endswith(".json") else "text"
    if "str" in admitted:
        return "text"
    return next((form for form in ("bytes", "path") if form in admitted), "json")


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


def _dict_values(annotation: Any) -> list[Any]:
    """What the values of a dict so annotated are annotated."""
    plain = _unwrapped(annotation)
    if _is_union(plain):
        members = [member for member in typing.get_args(plain) if "dict" in kinds(member)]
        return [value for member in members for value in _dict_values(member)]
    args = typing.get_args(plain)
    is_mapping = kinds(plain) == _DICT and len(args) == 2
    return [args[1]] if is_mapping else [Any]
