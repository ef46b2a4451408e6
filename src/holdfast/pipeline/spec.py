"""A pipeline as plain data: what the journal records, and all that planning needs.

The user's functions stay in `definition.py`. This half is JSON, so that `status`, `why` and `plan` can
draw the graph of a run without loading, or trusting, the pipeline's file.
"""

from __future__ import annotations

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
    """Everything planning needs to know of a pipeline; recorded in the journal whenever it changes."""

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
    """`new`, whose steps go on having the names that `old` knows them by, though nobody says so any more.

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
