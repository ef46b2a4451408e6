"""The files of a plain pipeline, in the order in which a walk comes to their tasks, without a graph. Pure.

Whoever reads files ahead can begin with them while the graph is still being made. Of anything that makes the order
hard to tell, or a path more than a name between two words, nothing is foreseen; the graph tells then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.pipeline import templates
from holdfast.pipeline.inferring import Items
from holdfast.pipeline.nodes import TAKEN
from holdfast.pipeline.spec import ItemsSpec, PipelineSpec, StepSpec

_Sides = tuple[str, str]


def foreseen_files(spec: PipelineSpec, items: Items) -> list[str]:
    """The path of every task's file; none if they cannot be foreseen. `items` are those made by functions."""
    if spec.phases or spec.gates or spec.memories or any(step.after for step in spec.steps):
        return []
    ids = {fan.var: _plain_ids(fan, items) for fan in spec.items}
    sides = {step.name: _sides(step) for step in spec.steps if step.writes is not None}
    if None in sides.values() or not all(ids.values()):
        return []
    levels = _levels(spec)
    found: list[str] = []
    for level in sorted(set(levels.values())):
        here = [step for step in spec.steps if levels[step.name] == level and step.name in sides]
        for each in dict.fromkeys(step.each for step in here):
            around = [one for step in here if step.each == each and (one := sides[step.name]) is not None]
            listed = ids[each] if each is not None else [""]
            found += [f"{before}{item}{behind}" for item in listed for before, behind in around]
    return found


def _plain_ids(fan: ItemsSpec, items: Items) -> list[str]:
    """The items of a fan-out outside all others, in no other order than they are listed; else none."""
    listed = fan.given if fan.given is not None else items.get(fan.name, [])
    if fan.each is not None or any("after" in item or "batch" in item for item in listed):
        return []
    ids = [item["id"] for item in listed]
    return ids if all(map(templates.is_plain, ids)) else []


def _sides(step: StepSpec) -> _Sides | None:
    """What stands before and behind the item in the path of a step's only file."""
    if not isinstance(step.writes, str):
        return None
    if step.each is not None:
        return templates.around(step.writes, step.each)
    is_path = not templates.fields(step.writes) and templates.check_path(step.writes) is None
    return (step.writes, "") if is_path else None


def _levels(spec: PipelineSpec) -> dict[str, int]:
    """How many others each step, or items function, comes behind, one after the other."""
    makers = {fan.var: fan.name for fan in spec.items if fan.given is None}
    before = {producer.name: list(_taken(producer, makers)) for producer in spec.producers}
    levels: dict[str, int] = {}
    waiting: Sequence[str] = list(before)
    while waiting:
        known = [name for name in waiting if all(other in levels for other in before[name])]
        levels |= {name: 1 + max((levels[other] for other in before[name]), default=-1) for name in known}
        waiting = [name for name in waiting if name not in levels] if known else ()
    return dict.fromkeys(before, 0) | levels


def _taken(producer: StepSpec | ItemsSpec, makers: dict[str, str]) -> Iterator[str]:
    yield from (source.name for source in producer.sources.values() if source.kind in TAKEN)
    if producer.each in makers:
        yield makers[producer.each]
