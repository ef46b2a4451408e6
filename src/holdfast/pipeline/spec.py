"""A pipeline as plain data: what the journal records, and all that planning needs.

The user's functions stay in `definition.py`. This half is JSON, so that `status`, `why` and `plan` can
draw the graph of a run without loading, or trusting, the pipeline's file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import msgspec


class Source(msgspec.Struct, frozen=True, array_like=True):
    """Where one parameter of a function comes from."""

    kind: str  # "step" | "items" | "memory" | "item" | "param" | "ctx" | "source" (of a check: "output")
    name: str


class StepSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step, fully resolved: every parameter has a source."""

    name: str
    title: str
    sources: dict[str, Source] = {}  # parameter -> source, in the order of the signature; defaults are left out
    each: str | None = None
    reads: tuple[str, ...] = ()
    writes: str | dict[str, str] | None = None
    forms: dict[str, str] = {}  # output key -> json | bytes | path, where consumers receive a file as no text
    appends: str | None = None  # the memory file that its text is a section of
    material: tuple[str, ...] = ()  # `sources=`: steps of the same item, the best first
    head: str | None = None  # the step whose text opens the memory file
    marker: str | None = None
    after: tuple[str, ...] = ()
    phase: str | None = None
    retries: int = 0
    backoff: float = 1.0
    timeout: float | None = None
    limit: str | None = None
    on_partial: str | None = None  # None: as the settings say (default redo)
    on_failure: str = "review"
    version: int = 1
    executor: str = "thread"
    copy: bool = True
    was: tuple[str, ...] = ()
    is_async: bool = False

    @property
    def identity(self) -> str:
        """The name that digests use: the oldest, so that a rename changes no digest."""
        return self.was[0] if self.was else self.name

    @property
    def files(self) -> dict[str, str]:
        """Output key -> path template; the key of a single file is the empty string."""
        if self.writes is None:
            return {}
        return {"": self.writes} if isinstance(self.writes, str) else self.writes


class ItemsSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fan-out: `var` takes each item's id; the items are given, or come from the function `name`."""

    var: str
    name: str  # the function's name; for given items "items:VAR", which is no task
    each: str | None = None  # the enclosing fan-out's variable
    sources: dict[str, Source] = {}
    given: tuple[dict[str, Any], ...] | None = None  # normalised: every item is a dict with "id"
    is_async: bool = False

    # What a step may say and an items function may not: its task is asked the same questions.
    reads: ClassVar[tuple[str, ...]] = ()
    writes: ClassVar[None] = None
    appends: ClassVar[None] = None
    head: ClassVar[None] = None
    marker: ClassVar[None] = None
    retries: ClassVar[int] = 0
    backoff: ClassVar[float] = 1.0
    timeout: ClassVar[None] = None
    on_partial: ClassVar[None] = None
    on_failure: ClassVar[str] = "review"
    version: ClassVar[int] = 1
    executor: ClassVar[str] = "thread"

    @property
    def identity(self) -> str:
        """The name that digests use."""
        return self.name


class PhaseSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    checklist: tuple[str, ...] = ()  # names of the functions, for display
    checklist_sources: tuple[dict[str, Source], ...] = ()


class GateSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    after: tuple[str, ...] = ()
    phase: str | None = None
    each: str | None = None
    blocking: bool = True
    ask: str = ""


class LimitSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    concurrent: int | None = None
    per_minute: int | None = None


class PipelineSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that planning needs to know of a pipeline; recorded in the journal whenever it changes."""

    name: str
    params: tuple[str, ...] = ()
    overwrite: bool = False
    limits: dict[str, LimitSpec] = {}
    steps: tuple[StepSpec, ...] = ()
    items: tuple[ItemsSpec, ...] = ()
    phases: tuple[PhaseSpec, ...] = ()
    gates: tuple[GateSpec, ...] = ()

    @property
    def producers(self) -> tuple[StepSpec | ItemsSpec, ...]:
        """Everything that gives an output, or stands for a fan-out."""
        return (*self.steps, *self.items)

    @property
    def memories(self) -> tuple[StepSpec, ...]:
        """The steps that keep a memory file."""
        return tuple(step for step in self.steps if step.appends is not None)

    @property
    def makes_items(self) -> bool:
        """Whether a function makes the items of some fan-out: then they may be lost."""
        return any(fan.given is None for fan in self.items)

    def fan_path(self, var: str | None) -> tuple[str, ...]:
        """The fan-outs around `var`, outermost first, `var` itself last; () outside all."""
        if var is None:
            return ()
        path: list[str] = []
        parents = {spec.var: spec.each for spec in self.items}
        while var is not None and var not in path:
            path.append(var)
            var = parents.get(var)
        return tuple(reversed(path))


def shared_depth(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many fan-outs two steps are in together, told by their `fan_path`s."""
    if one == other:
        return len(one)
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return length


def renamed_steps(old: PipelineSpec, new: PipelineSpec) -> dict[str, str]:
    """Old name -> new, for steps that declare (`was`) an earlier name which `old` still has."""
    had = {step.name for step in old.steps}
    return {
        earlier: step.name for step in new.steps if step.name not in had for earlier in step.was if earlier in had
    }


def with_names_on_record(old: PipelineSpec, new: PipelineSpec) -> PipelineSpec:
    """`new`, whose steps keep the names that `old` knows them by, even if `was` no longer says so.

    Digests use the oldest: a second rename that names only the first one's name, or `was` taken out again, would
    otherwise redo finished work.
    """
    if not any(step.was for step in (*old.steps, *new.steps)):
        return new
    known = {step.name: step for step in old.steps}
    present = {step.name for step in new.steps}
    return msgspec.structs.replace(
        new, steps=tuple([_with_earlier_names(step, known, present - {step.name}) for step in new.steps])
    )


def _with_earlier_names(step: StepSpec, known: dict[str, StepSpec], others: set[str]) -> StepSpec:
    before = next((known[name] for name in (step.name, *reversed(step.was)) if name in known), None)
    if before is None:
        return step
    oldest, *names = dict.fromkeys([*before.was, before.name, *step.was])
    if oldest in others:  # a new step has taken the name over, and with it whatever has it in its digest
        return step
    names = [name for name in names if name != step.name and name not in others]
    is_unnamed = oldest == step.name and not names
    return msgspec.structs.replace(step, was=() if is_unnamed else (oldest, *names))


def heads(spec: PipelineSpec) -> dict[str, str]:
    """Step -> the memory step whose file its text opens."""
    return {step.head: step.name for step in spec.steps if step.head is not None}


def step_edges(spec: PipelineSpec) -> dict[str, set[str]]:
    """Producer -> consumers, by name: data, order, and membership in a fan-out made by a function.

    Sections of earlier items are left out: by name alone they would make loops that the items do not have.
    """
    makers = {fan.var: fan.name for fan in spec.items if fan.given is None}
    edges: dict[str, set[str]] = {s.name: set() for s in spec.producers}
    for consumer in spec.producers:
        for source in consumer.sources.values():
            if source.kind in ("step", "items") and source.name in edges:
                edges[source.name].add(consumer.name)
        if consumer.each in makers:
            edges[makers[consumer.each]].add(consumer.name)
    for gate in spec.gates:
        edges[gate.name] = set()
    for step in spec.steps:
        for name in (*step.after, *step.material, *((step.head,) if step.head else ())):
            edges[name].add(step.name)
    for gate in spec.gates:
        for name in gate.after:
            edges[name].add(gate.name)
    return edges


def before_a_phase(spec: PipelineSpec) -> set[str]:
    """The names of steps that a later phase waits for."""
    used = [p.name for p in spec.phases if any(step.phase == p.name for step in spec.steps)]
    return {step.name for step in spec.steps if step.phase in used[:-1]}


class Reach:
    """Everything downstream of each name, as bit sets: a thousand steps stay cheap."""

    def __init__(self, edges: Mapping[str, Iterable[str]]) -> None:
        self.position = {name: index for index, name in enumerate(edges)}
        self.bits: dict[str, int] = {}
        for name in _leaves_first(edges):
            mine = 0
            for consumer in edges.get(name, ()):
                mine |= self.bits[consumer] | 1 << self.position[consumer]
            self.bits[name] = mine

    def mask(self, names: Iterable[str]) -> int:
        return sum(1 << self.position[name] for name in set(names) if name in self.position)


def _leaves_first(edges: Mapping[str, Iterable[str]]) -> list[str]:
    order: list[str] = []
    seen: set[str] = set()
    for root in reversed(list(edges)):  # most are declared after what they take: then nothing has to be gone down
        stack: list[tuple[str, bool]] = [(root, False)]
        while stack:
            name, leaving = stack.pop()
            if leaving:
                order.append(name)
            elif name not in seen:
                seen.add(name)
                stack.append((name, True))
                stack += [(consumer, False) for consumer in edges.get(name, ()) if consumer not in seen]
    return order


def weights(spec: PipelineSpec, fans: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """How much each step holds up: its descendants, one that fans out further counting as many."""
    reach = Reach(step_edges(spec))
    depths = {name: len(fans.get(name, ())) for name in reach.bits}
    deeper = {depth: reach.mask(name for name in depths if depths[name] > depth) for depth in set(depths.values())}
    return {
        name: bits.bit_count() + 99 * (bits & deeper[depths[name]]).bit_count()
        for name, bits in reach.bits.items()
    }


def blocking_gates(spec: PipelineSpec) -> dict[str, list[GateSpec]]:
    """Step or items function -> the gates that hold it: behind what it takes, comes after, or is made by."""
    held: dict[str, list[GateSpec]] = {}
    gates = [gate for gate in spec.gates if gate.blocking and gate.after and gate.each is None]
    if not gates:
        return held
    edges = step_edges(spec)
    reach = Reach(edges)
    passing = {gate.name for gate in spec.gates}
    for gate in gates:
        watched = reach.mask(gate.after)
        ahead = {name for name, bits in reach.bits.items() if bits & watched} | set(gate.after)
        behind = {consumer for name in gate.after for consumer in edges.get(name, ())} - ahead
        told_so = {step.name for step in spec.steps if gate.name in step.after}
        for name in behind - told_so - passing:
            held.setdefault(name, []).append(gate)
    return held
