"""Do the types along each dependency agree? Told only where two annotations exclude each other."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from holdfast.pipeline.annotations import EVERYTHING, conflict, dict_values, hints_of, kinds, returned
from holdfast.pipeline.declared import Subject
from holdfast.pipeline.memories import heads
from holdfast.pipeline.names import printable
from holdfast.pipeline.spec import ItemsSpec, PipelineSpec, Source, StepSpec, shared_depth

Functions = Mapping[str, Callable[..., Any]]
Producers = Mapping[str, StepSpec | ItemsSpec]


def check_returns(spec: PipelineSpec, functions: Functions, told: Mapping[str, Subject]) -> None:
    """Tell functions whose own return annotation cannot be what is asked of them."""
    for items in _made(spec):
        if "list" not in _returned_kinds(functions[items.name]):
            told[items.name].wrong("must return a list of items, by its annotation it does not.")
    for step in spec.steps:
        if isinstance(step.writes, dict) and "dict" not in _returned_kinds(functions[step.name]):
            told[step.name].wrong("writes= names keys, so it must return a dict; by its annotation it does not.")
        if step.appends is not None and "str" not in _returned_kinds(functions[step.name]):
            told[step.name].wrong("appends= needs text, so it must return str; by its annotation it does not.")
    for head, memory in heads(spec).items():
        if not _output_kinds(_step(spec, head), functions[head]) & {"str"}:
            told[memory].wrong(f"head='{head}' must give text; by its annotation it does not.")


def forms(step: StepSpec, fn: Callable[..., Any]) -> dict[str, str]:
    """How consumers receive each file that is no text, as far as the annotation tells; by key."""
    if isinstance(step.writes, dict):
        inner = dict_values(returned(hints_of(fn).get("return", Any)))
        admitted = frozenset().union(*(kinds(annotation) for annotation in inner))
        found = {key: _form(template, admitted) for key, template in step.writes.items()}
    else:
        found = {"": _form(step.writes, _output_kinds(step, fn))} if step.writes is not None else {}
    return {key: form for key, form in found.items() if form != "text"}


def _form(template: str, admitted: frozenset[str]) -> str:
    if admitted == EVERYTHING:  # then the name says more than the annotation
        return "json" if template.lower().endswith(".json") else "text"
    if "str" in admitted:
        return "text"
    return next((form for form in ("bytes", "path") if form in admitted), "json")


class Consumer(msgspec.Struct, frozen=True):
    """A function that takes inputs: a step, an items function, a check or an entry of a checklist."""

    fn: Callable[..., Any]
    sources: Mapping[str, Source]
    each: str | None
    told: Subject


def check_inputs(consumer: Consumer, spec: PipelineSpec, producers: Producers, functions: Functions) -> None:
    """Tell parameters whose annotation excludes what they will receive."""
    hints = hints_of(consumer.fn)
    for parameter, source in consumer.sources.items():
        if parameter not in hints:
            continue
        if source.kind == "item":
            _compare_id(parameter, hints[parameter], consumer.told)
        elif source.kind == "memory":
            _compare_sections(parameter, hints[parameter], source.name, consumer.told)
        elif source.kind in ("step", "items", "output"):
            _compare(parameter, hints[parameter], consumer, spec, producers, functions)


def _compare_id(parameter: str, annotation: Any, told: Subject) -> None:
    if conflict(frozenset({"str"}), annotation, 0):
        told.wrong(
            f"parameter {parameter} receives the item's id, which is text, but is annotated"
            f" {_shown(annotation)}. The item's fields are in ctx.item."
        )


def _compare(
    parameter: str,
    annotation: Any,
    consumer: Consumer,
    spec: PipelineSpec,
    producers: Producers,
    functions: Functions,
) -> None:
    source = consumer.sources[parameter]
    producer = producers[source.name]
    produced = _output_kinds(producer, functions[producer.name])
    fan = spec.fan_path(producer.each)
    levels = len(fan) - shared_depth(fan, spec.fan_path(consumer.each))  # fan-outs that only the producer is in
    if conflict(produced, annotation, levels):
        gathered = " in a dict by item" if levels else ""
        consumer.told.wrong(
            f"parameter {parameter} is annotated {_shown(annotation)}, but {producer.name} gives"
            f" {' or '.join(sorted(produced))}{gathered}. Change one of the two."
        )


def _compare_sections(parameter: str, annotation: Any, memory: str, told: Subject) -> None:
    if conflict(frozenset({"str"}), annotation, 1):
        told.wrong(
            f"parameter {parameter} receives the sections of {memory} in a dict by item, but is annotated"
            f" {_shown(annotation)}. Change it to dict[str, str]."
        )


def _step(spec: PipelineSpec, name: str) -> StepSpec:
    return next(step for step in spec.steps if step.name == name)


def _made(spec: PipelineSpec) -> list[ItemsSpec]:
    return [items for items in spec.items if items.given is None]


def _returned_kinds(fn: Callable[..., Any]) -> frozenset[str]:
    return kinds(returned(hints_of(fn).get("return", Any)))


def _output_kinds(step: StepSpec | ItemsSpec, fn: Callable[..., Any]) -> frozenset[str]:
    """What consumers of the step receive; for a step that streams its file, None stands for the text."""
    if isinstance(step, ItemsSpec):
        return frozenset({"list"})
    produced = _returned_kinds(fn)
    if isinstance(step.writes, dict):
        return produced & {"dict"} or EVERYTHING
    if step.writes is not None and "none" in produced and produced != EVERYTHING:
        return (produced - {"none"}) | {"str"}
    return produced


def _shown(annotation: Any) -> str:
    return printable(inspect.formatannotation(annotation))
