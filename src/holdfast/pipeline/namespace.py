"""Every name of a pipeline, each with one meaning: a parameter's name decides where it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.errors import DefinitionError
from holdfast.pipeline.declared import Declaration, DeclaredGate, DeclaredItems, DeclaredStep, Mistakes, Where
from holdfast.pipeline.loops import find_loop
from holdfast.pipeline.names import check_item_id, check_name, did_you_mean, fold, printable
from holdfast.pipeline.params import ParamSet

_TASKS = ("step", "items function", "gate")


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
    # Unsound entries are told; the sound names still count, or every use of them would be told too.
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
