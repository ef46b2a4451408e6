"""One node of the graph of tasks, its edges and conditions, and how nodes are named. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.pipeline.spec import ItemsSpec, PipelineSpec, StepSpec

DATA, AFTER, SETTLE = 0, 1, 2

OPEN, HELD, OK, SKIPPED = 0, 1, 2, 3
"""A node's condition; `engine/scheduler.py` has the theory."""

SATISFIED = (
    (False, False, True, True),  # DATA
    (False, False, True, True),  # AFTER
    (False, True, True, True),  # SETTLE
)
"""Whether an edge of this kind is satisfied by a producer in that condition."""

VIRTUAL = ("gather", "order", "past", "until", "page")
"""The kinds of nodes at which nothing happens: they only join edges."""

TAKEN = ("step", "items", "memory")
"""The kinds of sources that are outputs of other tasks: a node has a parent for each of them, in their order."""

Path = tuple[str, ...]
Producer = StepSpec | ItemsSpec


class Node(msgspec.Struct, eq=False):
    """One node. The scheduler keeps its counters here, so that an event costs a few attribute writes."""

    id: str
    kind: str  # step | items | gate | phase | gather | order | past | until | page
    spec: Any
    path: Path
    item: dict[str, Any] | None = None
    part: str = ""  # the name that its output has among the inputs of other tasks
    is_task: bool = False
    is_virtual: bool = False
    order: int = 0
    rank: int = 0
    parents: tuple[Node, ...] = ()  # what it takes, in the order of the parameters
    comes_after: tuple[Node, ...] = ()  # order nodes of the items that its own names in `after`
    material: tuple[Node, ...] = ()  # what a section may be made from, the best first; or what an order waits for
    consumers: list[tuple[Node, int]] = []
    # --- the scheduler's ---
    unmet: int = 0
    blockers: int = 0
    condition: int = OPEN
    stuck: bool = False
    queued: bool = False
    running: bool = False
    recalled: bool = False
    digest: str = ""

    def __repr__(self) -> str:
        return f"<{self.kind} {self.id}>"

    def goes_with(self, *, is_finished: bool) -> tuple[Node, ...]:
        """The tasks with any of which this one is left out: those that it takes, and of items its own comes after.

        Finished work stays, whatever was only to be done before it.
        """
        after = () if is_finished else self.comes_after
        return (*self.parents, *[task for order in after for task in order.material]) if after else self.parents

    @property
    def names(self) -> tuple[str, ...]:
        """Its id, and the ids it had under the step's earlier names: seals may carry those."""
        was = getattr(self.spec, "was", ())
        return (self.id, *[task_id(name, self.path) for name in was]) if was else (self.id,)


def task_id(name: str, path: Path) -> str:
    """`draft[ch05]`, `scrape[st-1/u3]`, `outline`."""
    return f"{name}[{'/'.join(path)}]" if path else name


def step_of(task: str) -> str:
    """The name in a task's id, or a gate's."""
    return task.partition("[")[0]


def part_name(identity: str) -> str:
    """The name of an output among a task's inputs, some of which are no outputs and have names of their own."""
    return f"step {identity}" if identity in ("version", "item", "reads") else identity


def split_task_id(text: str) -> tuple[str, Path]:
    name, bracket, rest = text.partition("[")
    return name, tuple(rest[:-1].split("/")) if bracket else ()


def called_now(task: str, spec: PipelineSpec, known: Container[str]) -> str:
    """The id, of those known, of a task that is meant by an earlier name of its step; else as it was given."""
    if task in known:
        return task
    name, path = split_task_id(task)
    renamed = [task_id(step.name, path) for step in spec.steps if name in step.was]
    return next((now for now in renamed if now in known), task)


def as_items(value: Any) -> list[dict[str, Any]]:
    """The items that a function returned, in one form: a dict with "id" for each."""
    return [item if isinstance(item, dict) else {"id": item} for item in value]


def gather_id(name: str, path: Path) -> str:
    return task_id(name, (*path, "*"))


def before_id(name: str, path: Path) -> str:
    """The node that gathers all sections which the item at `path` comes after."""
    return task_id(name, (*path[:-1], f"before {path[-1]}"))


def page_id(name: str, parent: Path, batch: int | None) -> str:
    """The node that is through when a batch (None: the head) can be written."""
    return task_id(f"page:{name}", (*parent, "head" if batch is None else f"batch {batch}"))


def batch_of(page: Node) -> int | None:
    """The batch of a page; None for the head."""
    last = page.id.rpartition("[")[2].rpartition("/")[2]
    return None if last == "head]" else int(last[len("batch ") : -1])


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
