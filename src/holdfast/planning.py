"""What would happen if the run were continued now, and what it would cost. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast import clock
from holdfast import events as ev
from holdfast.choosing import Request, choose
from holdfast.decisions import Planned
from holdfast.folding import fold
from holdfast.layout import ProjectLayout
from holdfast.picture import decode_spec
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.spec import PipelineSpec, renamed_steps
from holdfast.runs import read_run
from holdfast.settings import Settings
from holdfast.state import RunState
from holdfast.walking import looking


@dataclass(frozen=True, slots=True)
class Plan:
    """Every known task with what would be done about it."""

    run_id: str | None
    tasks: list[Planned]
    orphans: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    unknown_items: list[str] = field(default_factory=list)

    @property
    def expected_cost_usd(self) -> float:
        return sum(task.expected_cost_usd or 0.0 for task in self.tasks)


def make_plan(
    compiled: CompiledPipeline,
    layout: ProjectLayout,
    run_id: str | None = None,
    params: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
) -> Plan:
    """The plan for what `run` (or, with `run_id`, `resume`) would do."""
    settings = settings or Settings()
    request = Request(params=dict(params or {}), resume=run_id, settings=settings)
    choice = choose(compiled, layout, request)
    state = RunState(run_id=choice.run_id) if choice.is_new else read_run(layout, choice.run_id).state
    recorded = None if choice.is_new else decode_spec(state)
    changes = _changes(recorded, compiled.spec, state.params, choice.params) if recorded is not None else []
    state.params = choice.params
    state.rebuilt = state.rebuilt or choice.found_again
    if recorded is not None:
        renamed = renamed_steps(recorded, compiled.spec)
        fold(state, ev.PipelineDeclared(spec=state.spec, renamed=renamed), state.seq, clock.now())
        fold(state, ev.RunContinued(fresh_attempts=True), state.seq, clock.now())
    with looking(compiled.spec, layout, state, request, compiled) as walker:
        walker.go()
        return Plan(
            None if choice.is_new else choice.run_id,
            list(walker.planned.values()),
            walker.orphans(),
            changes,
            walker.open_fans(),
        )


def explain(layout: ProjectLayout, run_id: str, task: str) -> list[str]:
    """Why a task ran, was reused, or will run again: from recorded facts and the files as they are now."""
    from holdfast.explaining import tell

    state = read_run(layout, run_id).state
    with looking(decode_spec(state), layout, state, Request()) as walker:
        walker.go()
        return tell(task, walker.state, walker.graph, walker.planned.get(task))


def _changes(
    old: PipelineSpec, new: PipelineSpec, params_before: Mapping[str, Any], params_now: Mapping[str, Any]
) -> list[str]:
    """What differs between the record and the pipeline as it is now, in words."""
    renamed = renamed_steps(old, new)
    before = {step.name: step for step in old.steps}
    now = {step.name: step for step in new.steps}
    words = [
        f"parameter {name}: {params_before.get(name)!r} -> {params_now.get(name)!r}"
        for name in sorted({*params_before, *params_now})
        if params_before.get(name) != params_now.get(name)
    ]
    words += [f"step {a} is now called {b}" for a, b in renamed.items()]
    words += [f"step {name} is new" for name in now if name not in before and name not in renamed.values()]
    words += [f"step {name} is gone" for name in before if name not in now and name not in renamed]
    for name in now.keys() & before.keys():
        if now[name].version != before[name].version:
            words.append(f"step {name}: version {before[name].version} -> {now[name].version}")
        if now[name].writes != before[name].writes:
            words.append(f"step {name} writes to another path: finished files are moved")
    return words
