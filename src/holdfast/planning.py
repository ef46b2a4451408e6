"""What would happen if the run were continued now, and what it would cost. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from holdfast import clock, decisions
from holdfast import events as ev
from holdfast.artifacts import Artifacts, output_digest
from holdfast.choosing import Request, choose
from holdfast.decisions import Decision, public_action
from holdfast.engine.scheduler import Scheduler
from holdfast.inputs import Inputs, known_items, shorten
from holdfast.layout import ProjectLayout
from holdfast.picture import decode_spec
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.graph import OK, OPEN, SKIPPED, Graph, Node, build_graph, split_task_id, task_id
from holdfast.pipeline.spec import ItemsSpec, PipelineSpec, renamed_steps
from holdfast.recovery.evidence import Policy
from holdfast.recovery.judge import Judge, Migrations
from holdfast.runs import list_runs, read_run
from holdfast.settings import Settings
from holdfast.state import COMPLETED, NEEDS_REVIEW, RunState, fold
from holdfast.stores.objects import ObjectStore
from holdfast.stores.tree import WorkTree


@dataclass(frozen=True, slots=True)
class Planned:
    """One task of a plan; `action` is one of trust heal adopt redo continue ask run."""

    id: str
    action: str
    reason: str
    expected_cost_usd: float | None = None


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
    choice = choose(compiled, layout, Request(params=dict(params or {}), resume=run_id, settings=settings))
    lost = RunState(run_id=choice.run_id, rebuilt=choice.found_again)
    state = lost if choice.is_new else read_run(layout, choice.run_id).state
    recorded = None if choice.is_new else decode_spec(state)
    changes = _changes(recorded, compiled.spec, state.params, choice.params) if recorded is not None else []
    state.params = choice.params
    if recorded is not None:
        renamed = renamed_steps(recorded, compiled.spec)
        fold(state, ev.PipelineDeclared(spec=state.spec, renamed=renamed), state.seq, clock.now())
        fold(state, ev.RunContinued(fresh_attempts=True), state.seq, clock.now())
    with _looking(compiled.spec, layout, state, settings, compiled.migrations) as planner:
        planner.go()
        tasks = list(planner.planned.values())
        known = {node.id for node in planner.graph.tasks()}
        return Plan(
            None if choice.is_new else choice.run_id,
            tasks,
            [task for task in state.tasks if task not in known],
            changes,
            planner.open_fans(),
        )


def explain(layout: ProjectLayout, run_id: str, task: str) -> list[str]:
    """Why a task ran, was reused, or will run again: from recorded facts and the files as they are now."""
    from holdfast.explaining import tell

    state = read_run(layout, run_id).state
    spec = decode_spec(state)
    with _looking(spec, layout, state, Settings(), {}) as planner:
        planner.go()
        return tell(task, planner.state, planner.graph, planner.planned.get(task))


@contextmanager
def _looking(
    spec: PipelineSpec, layout: ProjectLayout, state: RunState, settings: Settings, migrations: Migrations
) -> Iterator[_Planner]:
    objects = ObjectStore(layout.objects, state.run_id, layout.tmp, read_only=True)
    tree = WorkTree(layout.root, layout.tmp)
    try:
        artifacts = Artifacts(tree, objects)
        items = known_items(spec, state, artifacts)
        # The items as they are on record: the best guess, also for a function that runs again.
        graph = build_graph(spec, items)
        inputs = Inputs(graph, state, artifacts, layout.root)
        judge = Judge(
            state,
            inputs,
            artifacts,
            policy=Policy(settings.on_changed, settings.on_partial),
            quarantine=layout.run(state.run_id).quarantine,
            checker=lambda node, load: "",
            migrations=migrations,
            living_runs=frozenset(info.run_id for info in list_runs(layout)) - {state.run_id},
        )
        yield _Planner(graph, state, inputs, judge, items)
    finally:
        objects.close()
        tree.close()


class _Planner:
    """Walks the graph as the engine would, deciding without acting."""

    def __init__(
        self,
        graph: Graph,
        state: RunState,
        inputs: Inputs,
        judge: Judge,
        items: Mapping[str, list[dict[str, Any]]],
    ) -> None:
        self.graph = graph
        self.state = state
        self.inputs = inputs
        self.judge = judge
        self.items = items
        self.planned: dict[str, Planned] = {}
        self._scheduler = Scheduler(graph)
        self._fresh: set[str] = set()  # will give a result that is not known yet
        self._costs = average_costs(state)

    def go(self) -> None:
        queue = self._scheduler.to_consider
        while queue:
            node = queue.popleft()
            if not node.unmet and node.condition == OPEN:
                self._consider(node)
        for node in self.graph.tasks():
            if node.id not in self.planned:
                self._note(node, self._waiting(node))

    def open_fans(self) -> list[str]:
        """Fan-outs whose items are not known yet, or may come out differently."""
        known = {var for var, _ in self.graph.items}
        again = {split_task_id(task)[0] for task in self._fresh}
        return [fan.var for fan in self.graph.spec.items if fan.var not in known or fan.name in again]

    def _waiting(self, node: Node) -> Decision:
        record = self.state.task(node.id)
        if record.status == COMPLETED:
            return Decision(decisions.TRUST, "finished; what it depends on waits for a person")
        return Decision(decisions.RUN, "once what it depends on is through")

    def _consider(self, node: Node) -> None:
        if node.is_virtual:
            self._pass(node, any(p in self._fresh for p in self._producers(node)))
        elif node.kind == "gate":
            approved = self.state.gates.get(node.id) == "approved"
            self._scheduler.settle(node) if approved else self._scheduler.hold(node)
        elif node.kind == "phase":
            self._pass(node, fresh=False)
        else:
            self._consider_task(node)

    def _producers(self, gather: Node) -> list[str]:
        """What a gather waits for: its items' tasks, and the function that made the items."""
        if gather.kind != "gather":
            return []
        var = self.graph.fan_of(gather.spec.name)[len(gather.path)]
        maker = next(fan.name for fan in self.graph.spec.items if fan.var == var)
        inner = [inner.id for _, inner in self.inputs.gathered(gather.spec.name, gather.path)]
        return [*inner, task_id(maker, gather.path)]

    def _consider_task(self, node: Node) -> None:
        fresh = [parent.id for parent in node.parents if parent.id in self._fresh]
        decision = self._downstream(node, fresh) if fresh else self._decide(node)
        self._note(node, decision)
        if decision.action in (decisions.ASK, decisions.HOLD):
            self._scheduler.hold(node)
            return
        if decision.action == decisions.SKIP:
            self._scheduler.settle(node, SKIPPED)
            return
        will_run = decision.action in (decisions.RUN, decisions.REDO, decisions.CONTINUE)
        self._pass(node, will_run)

    def _downstream(self, node: Node, fresh: list[str]) -> Decision:
        """A task behind one that will run: it runs again only if what it takes comes out differently."""
        record = self.state.task(node.id)
        if record.status == COMPLETED:
            return Decision(decisions.REDO, f"if {_listed(fresh)} comes out differently")
        if record.status == NEEDS_REVIEW:
            return Decision(decisions.HOLD, record.error)
        return Decision(decisions.RUN, f"after {_listed(fresh)}")

    def _decide(self, node: Node) -> Decision:
        parts = self.inputs.parts(node)
        digest = self.inputs.digest(node, parts)
        decision = self.judge.decide(node, parts, digest)
        if decision.action == decisions.ADOPT:
            self._pretend_adopted(node, parts, digest)
        return decision

    def _pretend_adopted(self, node: Node, parts: Mapping[str, str], digest: str) -> None:
        """Let what depends on it see the output it would have. Only this plan's own state knows."""
        files, value = [], ""
        for key, path in self.inputs.paths(node).items():
            found = self.judge.artifacts.look(path, node.names, node.spec.marker)
            sha = found.seal.sha256 if found.seal else ""
            value = found.seal.value_digest if found.seal else value
            added = bool(found.seal and found.seal.newline_added)
            files.append(ev.FileRecord(key, path, len(found.body), sha, "text", added))
        event = ev.TaskAdopted(
            step_id=node.id,
            node=node.spec.name,
            evidence="sealed",
            input_digest=digest,
            inputs=shorten(parts),
            output_digest=output_digest(files, value),
            files=tuple(files),
        )
        fold(self.state, event, self.state.seq, clock.now())

    def _pass(self, node: Node, fresh: bool) -> None:
        if fresh:
            self._fresh.add(node.id)
        unknown_items = isinstance(node.spec, ItemsSpec) and node.kind == "items" and node.id not in self.items
        if not unknown_items:
            self._scheduler.settle(node, OK)

    def _note(self, node: Node, decision: Decision) -> None:
        action = public_action(decision.action)
        runs = action in (decisions.RUN, decisions.REDO, decisions.CONTINUE)
        cost = self._costs.get(node.spec.name) if runs else None
        self.planned[node.id] = Planned(node.id, action, decision.reason, cost)


def average_costs(state: RunState) -> dict[str, float]:
    """What a task of each step has cost so far, on average."""
    spent: dict[str, list[float]] = {}
    for task, record in state.tasks.items():
        if record.status == COMPLETED:
            spent.setdefault(split_task_id(task)[0], []).append(record.round_cost_usd)
    return {step: sum(costs) / len(costs) for step, costs in spent.items()}


def _listed(ids: list[str]) -> str:
    return ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")


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
