"""Where each parameter of a function comes from.

The order: `ctx`; `source` of a memory step; a step; an items function; an item variable around the function; a
run parameter; the parameter's own default. A name cannot be two of these (`namespace.py` sees to that, and
`source` is told), so the order decides nothing but which table is asked first.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.pipeline.annotations import hints_of, is_context
from holdfast.pipeline.declared import Subject, is_async, is_generator
from holdfast.pipeline.names import did_you_mean, printable
from holdfast.pipeline.namespace import Namespace
from holdfast.pipeline.spec import Source

_UNNAMED = {
    inspect.Parameter.VAR_POSITIONAL: "*{}: say by name what the function takes",
    inspect.Parameter.VAR_KEYWORD: "**{}: say by name what the function takes",
    inspect.Parameter.POSITIONAL_ONLY: "{} is positional-only: values are passed by name, remove the /",
}


class Scope(msgspec.Struct, frozen=True):
    """What a function can see: the pipeline's names, and the fan-outs around it."""

    names: Namespace
    path: tuple[str, ...]
    each_known: bool = True  # False: its each= is a mistake already told, which may explain an unknown name
    has_source: bool = False  # a memory step with sources=, whose parameter `source` is the best of them

    @classmethod
    def of(cls, names: Namespace, each: Any, *, has_source: bool = False) -> Scope:
        known = names.each_known(each)
        return cls(names, names.fan_path(each) if known else (), known, has_source)


def sources_of(fn: Callable[..., Any], scope: Scope, told: Subject) -> dict[str, Source]:
    """Parameter -> source, in the order of the signature; those that keep their default are left out."""
    return _resolve(_parameters(fn, told), fn, scope, told)


def check_sources(fn: Callable[..., Any], step: str, scope: Scope, told: Subject) -> dict[str, Source]:
    """The same for a check, whose first parameter receives the step's output."""
    _require_plain(fn, told)
    parameters = _parameters(fn, told)
    if not parameters:
        told.wrong("takes no parameter; its first one receives the output.")
        return {}
    first, *others = parameters
    if first.name == "ctx" or is_context(hints_of(fn).get(first.name)):
        told.wrong("the first parameter receives the output; put ctx after it.")
    return {first.name: Source("output", step), **_resolve(others, fn, scope, told)}


def checklist_sources(fn: Callable[..., Any], scope: Scope, told: Subject) -> dict[str, Source]:
    """The same for a checklist function, which stands outside every fan-out."""
    _require_plain(fn, told)
    return sources_of(fn, scope, told)


def require_one_parameter(fn: Callable[..., Any], told: Subject) -> None:
    """A migration takes the old value and returns the new one."""
    _require_plain(fn, told)
    needed = [p for p in _parameters(fn, told)[1:] if p.default is p.empty]
    if needed or not _parameters(fn, told):
        told.wrong("a migration takes one parameter, the value to change.")


def require_value(fn: Callable[..., Any], told: Subject) -> None:
    """A step or an items function gives a value, not something that makes values later."""
    if is_generator(fn):
        told.wrong("is a generator; return the value (or a list) instead of yielding.")


def _require_plain(fn: Callable[..., Any], told: Subject) -> None:
    # The coroutine or generator itself would be true, and so accept everything.
    if is_async(fn) or is_generator(fn):
        told.wrong("must be a plain function, without async and yield.")


def _parameters(fn: Callable[..., Any], told: Subject) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        told.wrong("its parameters cannot be read. Wrap it in a function that names them.")
        return []
    for parameter in parameters:
        if parameter.kind in _UNNAMED:
            told.wrong(f"parameter {_UNNAMED[parameter.kind].format(parameter.name)}.")
    return [parameter for parameter in parameters if parameter.kind not in _UNNAMED]


def _resolve(
    parameters: Sequence[inspect.Parameter], fn: Callable[..., Any], scope: Scope, told: Subject
) -> dict[str, Source]:
    hints = hints_of(fn)
    found: dict[str, Source] = {}
    for parameter in parameters:
        if parameter.name != "ctx" and is_context(hints.get(parameter.name)):
            told.wrong(f"parameter {parameter.name} is a Context; name it ctx.")
            continue
        source = _source(parameter.name, scope)
        if source is not None:
            found[parameter.name] = source
        elif parameter.default is parameter.empty:
            _tell_unknown(parameter.name, scope, told)
    return found


def _source(name: str, scope: Scope) -> Source | None:
    if name == "ctx":
        return Source("ctx", name)
    if name == "source" and scope.has_source:
        return Source("source", name)
    if name in scope.names.steps:
        return Source("memory" if _is_memory_inside(name, scope) else "step", name)
    tables = {"items": scope.names.makers, "item": scope.path, "param": scope.names.params.names}
    return next((Source(kind, name) for kind, known in tables.items() if name in known), None)


def _is_memory_inside(name: str, scope: Scope) -> bool:
    """Whether a function in the fan-out of a memory step names it: it receives the sections of earlier items."""
    step = scope.names.steps[name]
    return isinstance(step.appends, str) and step.each in scope.path


def _tell_unknown(name: str, scope: Scope, told: Subject) -> None:
    names = scope.names
    shown = printable(name)
    if name in names.fans and scope.each_known:
        told.wrong(f'parameter {shown} names the items of a fan-out that this is not in. Add each="{shown}".')
    elif name == "source":
        told.wrong("parameter source is what a memory step is made from. Add appends=... and sources=[...].")
    elif name in names.gates:
        told.wrong(f'parameter {shown} is a gate, which has no output. Use after="{shown}".')
    elif name not in names.fans:
        known = [*names.steps, *names.makers, *scope.path, *names.params.names, "ctx"]
        told.wrong(
            f"parameter {shown} names no step, items function, item variable or run parameter."
            f"{did_you_mean(name, known)} Rename it, declare it in params=, or give it a default."
        )
