"""One node of the graph of tasks, its edges and conditions, and how nodes are named. Pure."""

from __future__ import annotations

from collections.abc import Container
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
    """What an output is called among a task's inputs, some of which are no outputs and have names of their own."""
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
    """What an items function returned, in one form: a dict with "id" for each."""
    return [item if isinstance(item, dict) else {"id": item} for item in value]


def gather_id(name: str, path: Path) -> str:
    return task_id(name, (*path, "*"))
