"""Declarations whose own names are mistakes: no table has them, and what else is wrong with them is told here.

Whoever mends the name would otherwise be told of the rest only then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.errors import DefinitionError
from holdfast.pipeline import options, outputs, resolve
from holdfast.pipeline.declared import Declaration, DeclaredItems, DeclaredStep, Mistakes, Subject, function_name
from holdfast.pipeline.names import normalise_items, printable
from holdfast.pipeline.namespace import Namespace
from holdfast.pipeline.resolve import Scope


class Known(msgspec.Struct, frozen=True):
    """What declarations may name."""

    names: Namespace
    limits: Collection[str]
    phases: Collection[str]
    gate_phases: Collection[str]  # those that a gate may come after


def check_nameless(declared: Declaration, known: Known, mistakes: Mistakes) -> None:
    """Tell what is wrong with the options, paths, parameters and items of all whose names count for nothing."""
    names = known.names
    for step in declared.steps:
        if not _is_in(names.steps, step.name, step):
            _check_step(step, known, mistakes)
    for items in declared.items:
        if not _is_in(names.fans, items.var, items) or (items.fn and not _is_in(names.makers, items.name, items)):
            _check_items(items, names, mistakes)
    for gate in declared.gates:
        if not _is_in(names.gates, gate.name, gate):
            told = mistakes.about(gate.where, f"gate {printable(gate.name)}")
            options.gate_options(gate, names, known.gate_phases, told)


def _is_in(table: Mapping[str, Any], name: object, entry: object) -> bool:
    return isinstance(name, str) and table.get(name) is entry


def _check_step(step: DeclaredStep, known: Known, mistakes: Mistakes) -> None:
    step = replace(step, name=printable(step.name))
    told = mistakes.about(step.where, f"step {step.name}")
    scope = Scope.of(known.names, step.each, has_source=bool(step.appends and step.sources))
    spec = options.step_options(step, known.names, known.limits, known.phases, told)
    outputs.check_paths(spec, scope, told)
    resolve.require_value(step.fn, told)
    resolve.sources_of(step.fn, scope, told)
    for fn in options.functions("check", step.check, told):
        resolve.check_sources(fn, step.name, scope, told.part(f"check {function_name(fn)}"))
    options.exception_classes("retry_on", step.retry_on, told)
    options.exception_classes("no_retry_on", step.no_retry_on, told)


def _check_items(items: DeclaredItems, names: Namespace, mistakes: Mistakes) -> None:
    told = mistakes.about(items.where, f"items {printable(items.name if items.fn else items.var)}")
    if items.fn is None:
        given_items(items.given, told)
        return
    resolve.require_value(items.fn, told)
    resolve.sources_of(items.fn, Scope.of(names, items.each), told)


def given_items(raw: object, told: Subject) -> tuple[dict[str, Any], ...]:
    """The items of a given list; mistakes are told, and there are none then."""
    try:
        return tuple(normalise_items(raw, told.name))
    except DefinitionError as error:
        for line in error.mistakes:
            told.mistakes.add(told.where, line)
        return ()
