"""What would happen if the run were continued now, and what it would cost. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast import clock
from holdfast import events as ev
from holdfast.decisions import Planned
from holdfast.folding import fold
from holdfast.layout import ProjectLayout
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.graph import all_before
from holdfast.pipeline.nodes import called_now
from holdfast.pipeline.spec import PipelineSpec, StepSpec, renamed_steps
from holdfast.recovery.sources import NO_VIEWS, read_views
from holdfast.runs.choosing import Choice, Request, choose
from holdfast.runs.listing import holder_of, read_run
from holdfast.runs.looking import as_recorded
from holdfast.sessions.editing import foreseen_wishes, lost_wishes, turned_back
from holdfast.sessions.plan_pass import looking
from holdfast.settings import Settings
from holdfast.state import IN_PROGRESS, RunState
from holdfast.values import is_same
from holdfast.views.picture import decode_spec, needs_of


class Plan(msgspec.Struct, frozen=True):
    """Every known task with what would be done about it."""

    run_id: str | None
    tasks: list[Planned]
    orphans: list[str] = []
    changes: list[str] = []
    unknown_items: list[str] = []
    gates: list[str] = []  # at which it would wait for a person, also if nothing stands behind them

    cost_usd: float = 0.0  # spent so far
    budget_usd: float | None = None
    is_lost: bool = False  # the record of the run is, and would be made anew from its files and views
    is_running: bool = False  # an engine is at work on it

    @property
    def is_over_budget(self) -> bool:
        """Whether nothing would start, because what may be spent is spent."""
        return self.budget_usd is not None and self.cost_usd >= self.budget_usd

    @property
    def expected_cost_usd(self) -> float:
        """Of what would run for certain."""
        return sum(task.expected_cost_usd or 0.0 for task in self.tasks if not task.if_different)

    @property
    def most_cost_usd(self) -> float:
        """With all that would run only if what it was made from comes out differently."""
        return sum(task.expected_cost_usd or 0.0 for task in self.tasks)


def make_plan(
    compiled: CompiledPipeline,
    layout: ProjectLayout,
    run_id: str | None = None,
    params: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
    known_params: Mapping[str, Any] | None = None,
) -> Plan:
    """The plan for what `run` (or, with `run_id`, `resume`) would do; `known_params` are those of a lost run."""
    request = Request(dict(params or {}), run_id, settings=settings or Settings(), known_params=known_params or {})
    choice = choose(compiled, layout, request)
    state = RunState() if choice.is_new else read_run(layout, choice.run_id, must_begin=False).state
    compiled = as_recorded(compiled, state)
    is_running = not choice.is_new and holder_of(layout, choice.run_id) is not None
    running = _begun(state) if is_running else []
    is_lost = choice.found_again or (not choice.is_new and not state.run_id)  # all of it, or its beginning
    changes = _continue(state, compiled, layout, choice) if state.run_id else []
    state.run_id, state.params = choice.run_id, choice.params
    state.rebuilt = state.rebuilt or is_lost
    state.budget_usd = choice.budget_usd if state.budget_usd is None else state.budget_usd
    views = read_views(layout, compiled.spec, choice.run_id) if state.rebuilt else NO_VIEWS
    with looking(compiled.spec, layout, state, request, compiled, views) as passed:
        passed.go()
        passed.foresee_edits()
        passed.report.tell_running(running)
        if state.rebuilt:
            passed.report.send_back(turned_back(lost_wishes(layout, compiled.spec, state, views)))
        return Plan(
            None if choice.is_new and not choice.found_again else choice.run_id,
            list(passed.planned.values()),
            passed.orphans(),
            changes,
            passed.open_fans(),
            passed.open_gates(),
            state.cost_usd,
            state.budget_usd if request.settings.budget_usd is None else request.settings.budget_usd,
            is_lost,
            is_running,
        )


def _continue(state: RunState, compiled: CompiledPipeline, layout: ProjectLayout, choice: Choice) -> list[str]:
    """Bring `state` to where a continued run begins, and tell what differs from where it stopped."""
    recorded = decode_spec(state)
    wishes = foreseen_wishes(layout, compiled.spec, state)
    changes = [*_changes(recorded, compiled.spec, state.params, choice.params), *_wanted(wishes)]
    declared = ev.PipelineDeclared(spec=state.spec, renamed=renamed_steps(recorded, compiled.spec))
    for event in (declared, ev.RunContinued(fresh_attempts=True), *wishes):
        fold(state, event, state.seq, clock.now())
    return changes


def _begun(state: RunState) -> list[str]:
    """The tasks whose attempt has begun and not ended."""
    return [task for task, record in state.tasks.items() if record.status == IN_PROGRESS]


def _wanted(wishes: Sequence[ev.Event]) -> list[str]:
    """What somebody asked for by editing a view, in words."""
    words = {"redo": "is to be done again", "done": "is said to be done; it counts only if a file proves it"}
    return [
        f"{wish.source} was edited: {wish.step_id} {words.get(wish.wanted, wish.wanted)}"
        for wish in wishes
        if isinstance(wish, ev.ViewEdited)
    ]


def explain(
    layout: ProjectLayout,
    run_id: str,
    task: str,
    *,
    typed: Callable[[str], str] = str,
    settings: Settings | None = None,
) -> list[str]:
    """Why a task ran, was reused, or will run again: from recorded facts and the files as they are now.

    `typed` gives a command as it has to be typed where the reader is.
    """
    from holdfast.project.why import tell

    state = read_run(layout, run_id).state
    spec = decode_spec(state)
    for wish in foreseen_wishes(layout, spec, state):
        fold(state, wish, state.seq, clock.now())
    running = _begun(state) if holder_of(layout, state.run_id) is not None else []
    with looking(spec, layout, state, Request(settings=settings or Settings())) as passed:
        now = called_now(task, spec, passed.graph.nodes)
        node = passed.graph.nodes.get(now)
        passed.go(all_before(passed.graph, node) if node is not None else ())
        passed.report.tell_running(running)
        needs = [replace(need, command=typed(need.command)) for need in needs_of(passed.state, spec)]
        renamed = [f"{task} is now called {now}"] if now != task else []
        planned = passed.planned.get(now)
        planned = planned and replace(planned, reason=typed(planned.reason))
        return renamed + tell(now, passed.state, passed.graph, planned, needs)


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
        if not is_same(params_before.get(name), params_now.get(name))
    ]
    words += [f"step {a} is now called {b}" for a, b in renamed.items()]
    words += [f"step {name} is new" for name in now if name not in before and name not in renamed.values()]
    words += [f"step {name} is gone" for name in before if name not in now and name not in renamed]
    called_before = {b: a for a, b in renamed.items()}
    for name, step in now.items():
        known = before.get(called_before.get(name, name))
        if known is not None:
            words += _changes_of(step, known)
    return words


def _changes_of(step: StepSpec, known: StepSpec) -> Iterator[str]:
    """What differs in one step; `known` is the same one on record, perhaps by another name."""
    if step.version != known.version:
        yield f"step {step.name}: version {known.version} -> {step.version}"
    then, now = known.files, step.files
    if any(now.get(key, path) != path for key, path in then.items()):
        yield f"step {step.name} writes to another path: finished files are moved"
    for path in [path for key, path in now.items() if key not in then]:
        again = "too: of finished work only when it is done again, as with --redo"
        here = "now: what it gave before is written there, if it can be"
        yield f"step {step.name} writes {path}, {again if then else here}"
    for path in [path for key, path in then.items() if key not in now]:
        yield f"step {step.name} no longer writes {path}: finished files stay"
    if then and step.marker != known.marker:
        yield f"step {step.name} has another marker: finished files are sealed anew"
