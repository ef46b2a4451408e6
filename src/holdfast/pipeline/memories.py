"""Memory steps: `appends`, `sources` and `head`, checked against the rest of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast import seals
from holdfast.pipeline.declared import DeclaredStep, Subject, name_list
from holdfast.pipeline.loops import reachable
from holdfast.pipeline.names import did_you_mean, printable
from holdfast.pipeline.namespace import Namespace
from holdfast.pipeline.spec import PipelineSpec

Options = tuple[str | None, tuple[str, ...], str | None]


def memory_options(step: DeclaredStep, names: Namespace, told: Subject) -> Options:
    """The file, the steps it is made from and the one that opens it; mistakes are told and left out."""
    if step.appends is None:
        for option in ("sources", "head"):
            if getattr(step, option):
                told.wrong(f"{option}= goes with appends=, which names the memory file. Add it, or leave it out.")
        return None, (), None
    if not isinstance(step.appends, str):
        told.wrong(f"appends= must be a path, not {printable(step.appends)}.")
        return None, (), None
    _check_company(step, told)
    return step.appends, _material(step, names, told), _head(step, names, told)


def _check_company(step: DeclaredStep, told: Subject) -> None:
    """What the other options must be for a step that keeps a memory file."""
    if step.writes is not None:
        told.wrong("has writes= and appends=. A section is a step's only output: leave one of them out.")
    if step.each is None:
        told.wrong('appends= needs each=: a memory file has one section an item. Add each="...".')
    if not seals.is_inline(step.appends):
        shown, known = printable(step.appends), " ".join(seals.INLINE)
        told.wrong(f"appends='{shown}' must end in one of {known}: comments keep its sections apart.")
    if step.copy is False:
        told.wrong("copy=False does not go with appends=: until its batch is done, a section is only in objects/.")


def _material(step: DeclaredStep, names: Namespace, told: Subject) -> tuple[str, ...]:
    sound = []
    for name in name_list("sources", step.sources, told):
        other = names.steps.get(name)
        if other is None:
            told.wrong(f"sources='{printable(name)}' names no step.{did_you_mean(name, names.steps)}")
        elif name == step.name:
            told.wrong(f"sources='{name}' is the step itself.")
        elif other.each != step.each:
            told.wrong(f"sources='{name}' is not a step of the same items. Name steps with each='{step.each}'.")
        else:
            sound.append(name)
    return tuple(sound)


def _head(step: DeclaredStep, names: Namespace, told: Subject) -> str | None:
    head = step.head
    if head is None:
        return None
    other = names.steps.get(head) if isinstance(head, str) else None
    if other is None:
        told.wrong(f"head='{printable(head)}' names no step.{did_you_mean(head, names.steps)}")
        return None
    around = names.fan_path(step.each)[:-1]
    if other.each is not None and other.each not in around:
        told.wrong(f"head='{head}' runs once per {other.each}, but the file is opened once. Name a step outside.")
        return None
    if isinstance(other.writes, Mapping):
        told.wrong(f"head='{head}' gives several files, but a file is opened by one text.")
        return None
    return str(head)


def never_there(spec: PipelineSpec, edges: Mapping[str, list[str]]) -> Iterator[tuple[str, str, str]]:
    """Consumers of earlier sections that would wait for themselves: (consumer, memory step, what is between).

    Inside the fan-out an item waits for the sections of items before it. If such a section waits for something
    outside, which in turn waits for the consumer's step as a whole, the first item would wait for the last.
    """
    for consumer in spec.producers:
        for source in consumer.sources.values():
            if source.kind != "memory":
                continue
            inside = _inside(spec, source.name)
            behind = reachable(source.name, edges)
            for name in sorted(behind - inside):
                if consumer.name in reachable(name, edges):
                    yield consumer.name, source.name, name
                    break


def _inside(spec: PipelineSpec, memory: str) -> set[str]:
    var = next(step.each for step in spec.steps if step.name == memory)
    return {producer.name for producer in spec.producers if var in spec.fan_path(producer.each)}


def heads(spec: PipelineSpec) -> dict[str, str]:
    """Step -> the memory step whose file its text opens."""
    return {step.head: step.name for step in spec.steps if step.head is not None}
