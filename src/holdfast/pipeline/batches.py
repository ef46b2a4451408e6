"""The order of items: which batch each is in, and how many wait for it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any


def given_batches(items: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the items say in which batch they are."""
    return any("batch" in item for item in items)


def items_before(items: Sequence[Mapping[str, Any]], item: str) -> list[str]:
    """The items that this one comes after, directly or not, and those of lower batches where batches are given."""
    after = {entry["id"]: entry.get("after", ()) for entry in items}
    found: set[str] = set()
    if given_batches(items):
        numbers = batch_numbers(items)
        found = {name for name, number in numbers.items() if number < numbers[item]}
    stack = list(after[item])
    while stack:
        name = stack.pop()
        found.add(name)
        stack += [other for other in after[name] if other not in found]
    return [name for name in after if name in found]


def batch_numbers(items: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Each item's batch: as given, else its depth in `after`, from 1."""
    if given_batches(items):
        return {item["id"]: item.get("batch", 1) for item in items}
    if not _given_order(items):
        return {item["id"]: 1 for item in items}
    before = {item["id"]: item.get("after", ()) for item in items}
    depth: dict[str, int] = {}
    for name in before:
        _depth(name, before, depth)
    return depth


def _given_order(items: Sequence[Mapping[str, Any]]) -> bool:
    """Whether some item says which others it comes after."""
    return any(item.get("after") for item in items)


def _depth(name: str, before: dict[str, Any], depth: dict[str, int]) -> None:
    stack = [name]
    while stack:
        top = stack[-1]
        if top in depth:  # several wait for it
            stack.pop()
            continue
        waiting = [other for other in before[top] if other not in depth]
        if waiting:
            stack += waiting
        else:
            depth[top] = 1 + max((depth[other] for other in before[top]), default=0)
            stack.pop()


def waiting_items(items: list[dict[str, Any]]) -> dict[str, int]:
    """How many items wait, directly or not, for each one."""
    numbers = batch_numbers(items)
    if given_batches(items):
        sizes = Counter(numbers.values())
        later = {batch: sum(size for other, size in sizes.items() if other > batch) for batch in sizes}
        return {name: later[number] for name, number in numbers.items()}
    if not _given_order(items):
        return dict.fromkeys(numbers, 0)
    position = {item["id"]: index for index, item in enumerate(items)}
    after_me = dict.fromkeys(position, 0)  # bit sets: item index -> waits for me
    for item in sorted(items, key=lambda item: -numbers[item["id"]]):
        mine = after_me[item["id"]] | (1 << position[item["id"]])
        for before in item.get("after", ()):
            after_me[before] |= mine
    return {name: bits.bit_count() for name, bits in after_me.items()}
