"""Records what the user declared, as given; `compiling.py` decides what is wrong with it."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from holdfast.pipeline.names import printable


class Unset(Enum):
    """Tells "not given" from None where None means something."""

    UNSET = "unset"


class Where(NamedTuple):
    """A place in the user's source."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{printable(os.path.basename(self.file))}:{self.line}"


class DeclaredStep(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One step; options have the types that users should give, not those that they must have given."""

    fn: Callable[..., Any]
    where: Where
    name: Any
    title: Any
    each: Any
    reads: Any
    writes: Any
    appends: Any
    sources: Any
    head: Any
    marker: Any
    after: Any
    phase: Any
    retries: Any
    backoff: Any
    timeout: Any
    retry_on: Any
    no_retry_on: Any
    limit: Any
    check: Any
    on_partial: Any
    on_failure: Any
    version: Any
    executor: Any
    copy: Any
    was: Any
    unknown: Mapping[str, Any]  # options that there are not


class DeclaredItems(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One fan-out: from a function, or from a given list."""

    where: Where
    var: Any
    each: Any
    fn: Callable[..., Any] | None = None
    given: Any = None

    @property
    def name(self) -> str:
        return function_name(self.fn) if self.fn is not None else f"items:{self.var}"


class DeclaredPhase(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    where: Where
    name: Any
    checklist: Any


class DeclaredGate(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    where: Where
    name: Any
    after: Any
    phase: Any
    each: Any
    blocking: Any
    ask: Any
    unknown: Mapping[str, Any]


class DeclaredMigration(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    where: Where
    fn: Callable[..., Any]
    step: Any
    from_version: Any


class Declaration(msgspec.Struct, kw_only=True, eq=False):
    """A whole pipeline as declared so far; lists are in the order of declaration."""

    where: Where
    name: Any
    params: Any
    limits: Any
    overwrite: Any
    steps: list[DeclaredStep] = []
    items: list[DeclaredItems] = []
    phases: list[DeclaredPhase] = []
    gates: list[DeclaredGate] = []
    migrations: list[DeclaredMigration] = []
    phase_mentions: list[Any] = []


class Mistakes:
    """Collects mistakes, and lists them in the order of the source."""

    def __init__(self) -> None:
        self._found: list[tuple[Where, str]] = []

    def add(self, where: Where, text: str) -> None:
        if (where, text) not in self._found:
            self._found.append((where, text))

    def about(self, where: Where, subject: str) -> Subject:
        return Subject(self, where, subject)

    def lines(self) -> list[str]:
        return [f"{where}: {text}" for where, text in sorted(self._found, key=lambda found: found[0])]


class Subject(msgspec.Struct, frozen=True):
    """Names the declared thing that a mistake is about."""

    mistakes: Mistakes
    where: Where
    name: str

    def wrong(self, text: str) -> None:
        self.mistakes.add(self.where, f"{self.name}: {text}")

    def part(self, name: str) -> Subject:
        """A part of it, at the same place: `step draft, check has_sources`."""
        return Subject(self.mistakes, self.where, f"{self.name}, {name}")


def name_list(option: str, value: object, told: Subject) -> tuple[str, ...]:
    """One name, or several, as a tuple, each once; anything else is a mistake."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        told.wrong(f"{option}= must be text or a list of texts, not {printable(value)}.")
        return ()
    return tuple(dict.fromkeys(value))


def function_name(fn: Callable[..., Any]) -> str:
    """The function's own name; for an object without one, its type's, which is no identifier on purpose."""
    return getattr(fn, "__name__", f"<{type(fn).__name__}>")


def where_of(fn: Callable[..., Any], otherwise: Where) -> Where:
    """Where `fn` was written; `otherwise` for callables that have no source of their own."""
    inner = inspect.unwrap(fn)
    code = getattr(inner, "__code__", None)
    return Where(code.co_filename, code.co_firstlineno) if code is not None else otherwise


def caller() -> Where:
    """The line that called the function which asks."""
    frame = sys._getframe(2)
    return Where(frame.f_code.co_filename, frame.f_lineno)


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling `fn` gives a coroutine; sees through partials, wrappers' marks and callable objects."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def is_generator(fn: Callable[..., Any]) -> bool:
    """Whether calling `fn` gives a generator, of either kind, which is no value."""
    return inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn)
