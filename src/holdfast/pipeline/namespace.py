"""Says what every name of a pipeline means, and so where each parameter of a function comes from.

The order: `ctx`; `source` of a memory step; a step; an items function; an item variable around the function; a
run parameter; the parameter's own default. A name cannot be two of these (`gather_names` tells it, and so does
compiling for `source`), so the order decides nothing but which table is asked first.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.errors import DefinitionError
from holdfast.pipeline.annotations import hints_of, is_context
from holdfast.pipeline.declared import (
    Declaration,
    DeclaredGate,
    DeclaredItems,
    DeclaredStep,
    Mistakes,
    Subject,
    Where,
    is_async,
    is_generator,
)
from holdfast.pipeline.names import check_item_id, check_name, did_you_mean, find_loop, fold, printable
from holdfast.pipeline.params import ParamSet
from holdfast.pipeline.spec import Source

_TASKS = ("step", "items function", "gate")
_UNNAMED = {
    inspect.Parameter.VAR_POSITIONAL: "*{}: say by name what the function takes",
    inspect.Parameter.VAR_KEYWORD: "**{}: say by name what the function takes",
    inspect.Parameter.POSITIONAL_ONLY: "{} is positional-only: values are passed by name, remove the /",
}


class Namespace(msgspec.Struct, frozen=True):
    """The declarations whose names are sound and unique, by name."""

    steps: dict[str, DeclaredStep]
    makers: dict[str, DeclaredItems]  # items functions
    fans: dict[str, DeclaredItems]  # fan-outs by variable, given ones too
    gates: dict[str, DeclaredGate]
    params: ParamSet

    def fan_path(self, var: str | None) -> tuple[str, ...]:
        """The fan-outs around `var`, outermost first, `var` itself last; () outside all."""
        path: list[str] = []
        while var in self.fans and var not in path:
            path.append(var)
            var = self.fans[var].each
        return tuple(reversed(path))

    def each_known(self, each: object) -> bool:
        """False if `each`, or a fan-out around it, is a mistake: then much else cannot be judged."""
        seen: set[str] = set()
        while each is not None:
            if not isinstance(each, str) or each not in self.fans or each in seen:
                return False
            seen.add(each)
            each = self.fans[each].each
        return True

    def orderable(self) -> list[str]:
        """The names that `after=` may mention."""
        return [*self.steps, *self.makers, *self.gates]


def is_in(table: Mapping[str, Any], name: object, entry: object) -> bool:
    """Whether the declaration counts under its name; else the name is a mistake."""
    return isinstance(name, str) and table.get(name) is entry


def gather_names(declared: Declaration, mistakes: Mistakes) -> Namespace:
    """The names of a pipeline; unsound, repeated and ambiguous ones are mistakes and left out."""
    params = _params(declared, mistakes)
    seen = {name: f"run parameter {name}" for name in params.names}
    names = Namespace(steps={}, makers={}, fans={}, gates={}, params=params)
    for kind, name, where, entry in _in_source_order(declared):
        if _settle(kind, name, where, seen, mistakes):
            _table(names, kind)[name] = entry
    _check_nesting(names, mistakes)
    return names


def _in_source_order(declared: Declaration) -> Iterator[tuple[str, Any, Where, Any]]:
    for step in declared.steps:
        yield "step", step.name, step.where, step
    for items in declared.items:
        yield "fan-out variable", items.var, items.where, items
        if items.fn is not None:
            yield "items function", items.name, items.where, items
    for gate in declared.gates:
        yield "gate", gate.name, gate.where, gate


def _table(names: Namespace, kind: str) -> dict[str, Any]:
    tables: dict[str, dict[str, Any]] = {
        "step": names.steps,
        "fan-out variable": names.fans,
        "items function": names.makers,
        "gate": names.gates,
    }
    return tables[kind]


def _settle(kind: str, name: object, where: Where, seen: dict[str, str], mistakes: Mistakes) -> bool:
    # A gate is never a parameter, so its name need not be an identifier.
    problem = check_item_id(name) if kind == "gate" else check_name(name)
    if problem or not isinstance(name, str):
        hint = " Give it another with name=." if kind == "step" else ""
        mistakes.add(where, f"{kind} '{printable(name)}': the name {problem}.{hint}")
        return False
    this = f"{kind} {name}"
    other = seen.setdefault(name, this)
    if other is this:
        _settle_case(kind, name, where, seen, mistakes)
        return True
    if other == this:
        mistakes.add(where, f"{this}: there is another {kind} of that name. Rename one.")
    else:
        mistakes.add(where, f"{this}: the name is ambiguous, there is also the {other}. Rename one.")
    # Of two tasks only the first counts. A name that is a task and a value stays known as both, so that one
    # bad name does not make every mention of it a mistake.
    return (kind in _TASKS) != other.startswith(_TASKS)


def _settle_case(kind: str, name: str, where: Where, seen: dict[str, str], mistakes: Mistakes) -> None:
    """Tasks have files named after them (logs), so their names must differ in more than case."""
    if kind != "fan-out variable":
        this = f"{kind} {name}"
        other = seen.setdefault(f"folded {fold(name)}", this)
        if other != this:
            mistakes.add(where, f"{this}: the name differs from {other} only in case. Rename one.")


def _params(declared: Declaration, mistakes: Mistakes) -> ParamSet:
    try:
        return ParamSet(declared.params)
    except DefinitionError as error:
        for line in error.mistakes:
            mistakes.add(declared.where, line)
    good = declared.params if isinstance(declared.params, dict) else {}
    # Unsound entries are mistakes; the sound names still count, or every use of them would be told too.
    return ParamSet({name: str for name in good if check_name(name) is None})


def _check_nesting(names: Namespace, mistakes: Mistakes) -> None:
    for var, items in names.fans.items():
        if items.each is not None and not _parents(items, names):
            mistakes.add(items.where, unknown_each(f"fan-out {var}", items.each, names))
    loop = find_loop({var: _parents(items, names) for var, items in names.fans.items()})
    if loop:
        mistakes.add(names.fans[loop[0]].where, f"fan-outs lie inside each other: {' -> '.join(loop)}.")


def _parents(items: DeclaredItems, names: Namespace) -> tuple[str, ...]:
    return (items.each,) if isinstance(items.each, str) and items.each in names.fans else ()


def unknown_each(subject: str, each: object, names: Namespace) -> str:
    """The line that tells an `each=` which names no fan-out."""
    known = ", ".join(names.fans) or "none"
    return (
        f"{subject}: each='{printable(each)}' names no fan-out.{did_you_mean(each, names.fans)}"
        f' Declare it with pipe.items("..."); known: {known}.'
    )


class Scope(msgspec.Struct, frozen=True):
    """Holds what a function can see: the pipeline's names, and the fan-outs around it."""

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
