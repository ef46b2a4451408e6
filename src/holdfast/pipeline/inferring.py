"""The items of a fan-out whose items function has no record, as files and views name them. Pure.

Only the ids come back: the other fields of such an item are unknown, and so is whether these are all. Items that
a view lists come first, in its order; the rest follow, sorted. A file's name alone suggests an item; that
it is one, its seal has to prove.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.pipeline import templates
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.names import check_item_id, fold
from holdfast.pipeline.nodes import Node, Path, split_task_id, task_id
from holdfast.pipeline.spec import ItemsSpec, PipelineSpec, StepSpec

Items = dict[str, list[dict[str, Any]]]


class FilePattern:
    """Recognises the paths of a step's files, and the item that a path speaks of."""

    def __init__(self, step: StepSpec, fan: Path, template: str, values: Mapping[str, str]) -> None:
        self.step = step.name
        self.fan = fan
        segments = template.split("/")
        # `{a}-{b}.md` can be read in more than one way: then only the seal knows.
        self.is_plain = all(sum(field in fan for field in templates.fields(part)) <= 1 for part in segments)
        self._whole = re.compile(_expression(template, fan, values))
        last_text, last_field = templates.parse(template)[-1]
        self._ending = last_text if last_field is None else ""
        self._folders = [
            re.compile(_expression("/".join(segments[:depth]), fan, values)) for depth in range(1, len(segments))
        ]

    def item_at(self, path: str) -> Path | None:
        """The item whose file would have this path."""
        match = self._whole.fullmatch(path) if path.endswith(self._ending) else None
        return tuple(match[var] for var in self.fan) if match is not None else None

    def item_of(self, task: str) -> Path | None:
        """The item of a task of this step."""
        name, path = split_task_id(task)
        return path if name == self.step and len(path) == len(self.fan) else None

    def may_be_folder(self, path: str, depth: int) -> bool:
        """Whether a file of the step may lie in this folder, the `depth`-th on its way."""
        return self._folders[depth - 1].fullmatch(path) is not None


def _expression(template: str, fan: Path, values: Mapping[str, str]) -> str:
    """The template as a regular expression with a group for each item; what is not known matches anything."""
    pieces, seen = [], set()
    for text, field in templates.parse(template):
        pieces.append(re.escape(text))
        if field is None:
            continue
        if field in seen:
            pieces.append(f"(?P={field})")
        elif field in fan:
            seen.add(field)
            pieces.append(f"(?P<{field}>[^/]+)")
        else:
            pieces.append(re.escape(values[field]) if values.get(field) else "[^/]+")
    return "".join(pieces)


def item_paths(spec: PipelineSpec, tasks: Iterable[str]) -> dict[str, list[Path]]:
    """The items that these task ids speak of, by fan-out."""
    fans = {producer.name: spec.fan_path(producer.each) for producer in spec.producers}
    found: dict[str, dict[Path, None]] = {}
    for task in tasks:
        name, path = split_task_id(task)
        fan = fans.get(name, ())
        if path and len(path) == len(fan):
            found.setdefault(fan[-1], {})[path] = None
    return {var: list(paths) for var, paths in found.items()}


def infer_items(
    spec: PipelineSpec,
    known: Iterable[str],
    listed: Sequence[Mapping[str, Sequence[Path]]],
    named: Mapping[str, Iterable[Path]],
) -> Items:
    """Items by the id of the function that would make them; functions in `known` have their own.

    `listed` are views' items, fan-out variable -> paths in the view's order, the most trusted first; `named` are
    those that files suggest.
    """
    makers = {fan.var: fan for fan in spec.items if fan.given is None}
    have = set(known)
    found: dict[str, dict[str, str]] = {}  # maker -> folded id -> id
    for var, path in _in_order(listed, named):
        for depth, level in enumerate(spec.fan_path(var)):
            fan = makers.get(level)
            if fan is not None and depth < len(path):
                _add(found, have, fan, path[:depth], path[depth])
    return {maker: [{"id": name} for name in names.values()] for maker, names in found.items() if names}


def is_inferred(graph: Graph, node: Node, inferred: Mapping[str, Any]) -> bool:
    """Whether the item of a task, or one around it, is only inferred: its function is in `inferred`."""
    if not inferred or not node.path:
        return False
    fan = graph.fan_of(node.spec.name)
    return any(task_id(graph.maker(var), node.path[:depth]) in inferred for depth, var in enumerate(fan))


def _in_order(
    listed: Sequence[Mapping[str, Sequence[Path]]], named: Mapping[str, Iterable[Path]]
) -> Iterator[tuple[str, Path]]:
    for view in listed:
        for var, paths in view.items():
            yield from ((var, path) for path in paths)
    for var, suggested in named.items():
        yield from ((var, path) for path in sorted(set(suggested)))


def _add(found: dict[str, dict[str, str]], have: set[str], fan: ItemsSpec, parent: Path, name: str) -> None:
    maker = task_id(fan.name, parent)
    if maker in have:
        return
    names = found.setdefault(maker, {})
    folded = fold(name)
    if folded not in names and check_item_id(name) is None:
        names[folded] = name
