"""One node of the graph of tasks, its edges and conditions, and how nodes are named. Pure."""

from __future__ import annotations

from typing import Any

from holdfast.pipeline.spec import ItemsSpec, StepSpec

DATA, AFTER, SETTLE = 0, 1, 2

OPEN, HELD, OK, SKIPPED = 0, 1, 2, 3
"""A node's condition; `engine/scheduler.py` has the theory."""

SATISFIED = (
    (False, False, True, True),  # DATA
    (False, False, True, True),  # AFTER
    (False, True, True, True),  # SETTLE
)
"""Whether an edge of this kind is satisfied by a producer in that condition."""

TAKEN = ("step", "items", "memory")
"""The kinds of sources that are outputs of other tasks: a node has a parent for each of them, in their order."""

Path = tuple[str, ...]
Producer = StepSpec | ItemsSpec


class Node:
    """One node. The scheduler keeps its counters here, so that an event costs a few attribute writes."""

    __slots__ = (
        "blockers",
        "condition",
        "consumers",
        "digest",
        "id",
        "identity",
        "is_task",
        "is_virtual",
        "item",
        "kind",
        "material",
        "order",
        "parents",
        "path",
        "queued",
        "rank",
        "recalled",
        "running",
        "spec",
        "stuck",
        "unmet",
    )

    def __init__(self, node_id: str, kind: str, spec: Any, path: Path, item: dict[str, Any] | None) -> None:
        self.id = node_id
        self.kind = kind  # step | items | gate | phase | gather | order | past | until | page
        self.is_task = kind in ("step", "items")
        self.is_virtual = kind in ("gather", "order", "past", "until", "page")
        self.spec = spec
        self.identity: str = getattr(spec, "identity", "")  # the name by which digests know its output
        self.path = path
        self.item = item
        self.order = 0
        self.rank = 0
        self.parents: tuple[Node, ...] = ()  # what it takes, in the order of the parameters
        self.material: tuple[Node, ...] = ()  # of a memory step: what its section may be made from, the best first
        self.consumers: list[tuple[Node, int]] = []
        # --- the scheduler's ---
        self.unmet = 0
        self.blockers = 0
        self.condition = 0
        self.stuck = False
        self.queued = False
        self.running = False
        self.recalled = False
        self.digest = ""

    def __repr__(self) -> str:
        return f"<{self.kind} {self.id}>"

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


def split_task_id(text: str) -> tuple[str, Path]:
    name, bracket, rest = text.partition("[")
    return name, tuple(rest[:-1].split("/")) if bracket else ()


def as_items(value: Any) -> list[dict[str, Any]]:
    """What an items function returned, in one form: a dict with "id" for each."""
    return [item if isinstance(item, dict) else {"id": item} for item in value]


def gather_id(name: str, path: Path) -> str:
    return f"{name}[{'/'.join((*path, '*'))}]"
