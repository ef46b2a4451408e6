"""The pass that starts nothing: what `plan` and `why` tell, and `recover` does.

It *looks* (what its actions foretell is folded into a state of its own, and files are looked at as they would then
be) or *acts* (each action is performed, and recorded). Both decide alike, because the code is the same.

Rules. A task that must run gives a result nobody knows yet: what takes it is decided with that input unknown.
Finished work behind it is left alone, for the engine to compare. Items that are only inferred from files and views
suffice to adopt what is sealed; everything else about them waits until their function has run again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from holdfast import clock, decisions
from holdfast import events as ev
from holdfast.artifacts.inputs import Inputs, known_items
from holdfast.artifacts.keeping import Artifacts
from holdfast.artifacts.parts import UNKNOWN, Ingredients
from holdfast.decisions import BEHIND, Action, Decision, Step
from holdfast.engine.advance import Pass
from holdfast.engine.attempt import Attempts
from holdfast.engine.drawing import recorded_graph
from holdfast.engine.recorder import NoRecorder
from holdfast.engine.scheduler import Scheduler
from holdfast.folding import fold
from holdfast.layout import ProjectLayout
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.inferring import Items
from holdfast.pipeline.nodes import OK, SKIPPED, Node, step_of, task_id
from holdfast.pipeline.spec import PipelineSpec
from holdfast.pipeline.unfolding import build_graph
from holdfast.recovery.evidence import KEPT_BY_PERSON
from holdfast.recovery.judge import Judge
from holdfast.recovery.scan import infer
from holdfast.recovery.sections import is_memory
from holdfast.recovery.sources import NO_VIEWS, Views
from holdfast.runs.choosing import Choice, Request
from holdfast.runs.looking import artifacts_of
from holdfast.sessions.inferred_items import InferredItems
from holdfast.sessions.judging import judge_for
from holdfast.sessions.plan_report import PlanReport
from holdfast.state import COMPLETED, RunState, TaskState
from holdfast.wording import some_of

Record = Callable[[ev.Event], None]

_NAMED_MAX = 3
_OPAQUE = frozenset({decisions.MIGRATE, decisions.WRITE})


class PlanPass(Pass):
    """Goes over one graph once. Give `record` to act; without it nothing but `state` changes."""

    def __init__(
        self,
        inputs: Inputs,
        judge: Judge,
        *,
        known: Items,
        inferred: Items,
        sure: frozenset[tuple[str, ...]],
        record: Record | None,
    ) -> None:
        super().__init__(inputs, judge)
        self.judge: Judge = judge
        self.graph = inputs.graph
        self.report = PlanReport(inputs.state, judge.claims)
        self.planned = self.report.planned
        self.pending: set[str] = set()  # will give a result that is not known yet
        self.recorded = 0  # events, or those that would be
        self.steps: list[Step] = []  # of a pass that only looks: what would be done to the files, in that order
        self._known = known  # items functions whose items are on record
        self._inferred = InferredItems(self.graph, judge, inferred, sure)
        self._edited: dict[Node, None] = {}  # somebody's edits, that count as soon as their items are known again
        self._recorder = record
        self._scheduler = Scheduler(self.graph)
        self._only: Collection[Node] | None = None

    @property
    def scheduler(self) -> Scheduler:
        return self._scheduler

    def record(self, event: ev.Event) -> None:
        self.recorded += 1
        if self._recorder is not None:
            self._recorder(event)
        else:
            fold(self.state, event, self.state.seq, clock.now())

    # --- going ---------------------------------------------------------------------------------------------

    def go(self, only: Collection[Node] | None = None) -> None:
        """Go over all of it, or `only` over these nodes."""
        self._only = only
        while self.advance(1000):
            pass

    def advance(self, nodes: int) -> bool:
        """Consider at most so many nodes; False when all are through."""
        queue = self._scheduler.to_consider
        for _ in range(nodes):
            if not queue:
                self._finish()
                return False
            node = queue.popleft()
            if self._only is None or node in self._only:
                self.consider(node)
        return True

    def _finish(self) -> None:
        known = set(self.planned)
        self.look_behind()
        for task in self.planned.keys() - known:
            if self.planned[task].action == decisions.TRUST:
                del self.planned[task]  # whole, and compared with what it is made from after the answer
        if self._only is None:
            self.report.note_unreached(self.graph, self.graph.nodes.values())
        else:
            self.report.note_unreached(self.graph, self._only)
        for task in self._inferred.unproved(self.planned):
            del self.planned[task]

    # --- what it comes to ----------------------------------------------------------------------------------

    def open_fans(self) -> list[str]:
        """Fan-outs whose items are not known yet, or may come out differently."""
        known = {var for var, _ in self.graph.items}
        again = {step_of(task) for task in self.pending}
        return [fan.var for fan in self.graph.spec.items if fan.var not in known or fan.name in again]

    def open_gates(self) -> list[str]:
        """Gates that the run would come to, and at which it would wait for a person."""
        return [node.id for node in self.graph.nodes.values() if node.kind == "gate" and node.stuck]

    def orphans(self) -> list[str]:
        """Tasks on record that the pipeline no longer has; their files are kept."""
        return [task for task in self.state.tasks if task not in self.graph.nodes]

    def recorded_graph(self) -> Graph:
        """The graph with its conditions as the record now says; after the pass."""
        if not self.pending and {node.condition for node in self.graph.nodes.values()} <= {OK, SKIPPED}:
            return self.graph  # everything is through: the pass settled each node as the record does
        return recorded_graph(self.graph.spec, self.state, {**self._known, **self._inferred.items()})

    def foresee_edits(self) -> None:
        """Tell what was made from a file before somebody edited it, and runs again once that edit counts.

        Nothing is done about it here: the edit waits for its items, and finished work is compared with it then.
        """
        for edited in self._edited:
            for consumer in _takers(edited):
                planned = self.planned.get(consumer.id)
                if planned is not None and planned.action not in decisions.RUNS:
                    self.report.note(consumer, _if_different([edited.id]))
                    self._note_wanted(consumer)

    # --- one node ------------------------------------------------------------------------------------------

    def tell(self, node: Node, decision: Decision, *, was_completed: bool) -> None:
        self.report.note(node, decision)

    def through(self, node: Node) -> None:
        self._pass(node, is_pending=False)

    def open(self, node: Node, decision: Decision, made_of: Ingredients) -> None:
        self._pass(node, is_pending=True)

    def wait(self, node: Node) -> None:
        if self.state.rebuilt:  # what is whole behind it is adopted all the same: nobody knows its input
            self._pass(node, is_pending=True)
        else:
            self._scheduler.hold(node)

    def send_back(self, node: Node) -> None:
        feedback = "; ".join(filter(None, self.state.recalls[node.id].feedback))
        decision = Decision(decisions.REDO, f"sent back: {feedback}" if feedback else "sent back")
        self.report.note(node, decision)
        self.move_on(node, decision, self.made_of(node))

    def join(self, node: Node) -> None:
        self._pass(node, is_pending=any(p in self.pending for p in self._joined(node)))

    def _joined(self, gather: Node) -> Iterator[str]:
        """What a gather waits for: the function that made its items, and their tasks."""
        if gather.kind == "past":
            yield from (section.id for _, section in self.inputs.sections_before(gather))
        if gather.kind != "gather":
            return
        var = self.graph.fan_of(gather.spec.name)[len(gather.path)]
        yield task_id(self.graph.maker(var), gather.path)
        yield from (inner.id for _, inner in self.inputs.gathered(gather.spec.name, gather.path))

    def stop_at(self, gate: Node) -> None:
        self._scheduler.hold(gate)

    def enter(self, phase: Node) -> None:
        self._scheduler.settle(phase)

    def _pass(self, node: Node, *, is_pending: bool) -> None:
        if is_pending:
            self.pending.add(node.id)
        else:
            self.pending.discard(node.id)
        if node.kind != "items" or node.id in self._known or node.id in self._inferred.by_maker:
            self._scheduler.settle(node)

    # --- deciding ------------------------------------------------------------------------------------------

    def settle(self, node: Node, made_of: Ingredients) -> Decision:
        behind = self._pending_before(node)
        finished = self._finished(node, made_of) if behind and node.id in self.state.tasks else None
        if finished is None:
            return super().settle(node, made_of)
        decision = self._decide_behind(node, finished, behind, made_of)
        self.report.note(node, decision)
        return decision

    def act(self, node: Node, decision: Decision, made_of: Ingredients) -> bool:
        is_finished = self.state.task(node.id).status == COMPLETED
        if decision.action in decisions.AGAIN and not is_finished:
            return False  # what is half finished stays where it is: the next run may be told to continue it
        if self._held_back(node, decision) is not None:
            return False
        may_be_more = super().act(node, decision, made_of)
        # What a function of the pipeline's makes of an output is seen when it is called.
        return may_be_more and (self._recorder is not None or decision.action not in _OPAQUE)

    def carry_out(self, actions: Iterable[Action]) -> bool:
        if self._recorder is not None:
            return super().carry_out(actions)
        before = self.recorded
        for action in actions:
            foretold = action.foretell()
            self.record_all(foretold.events)
            self.steps += foretold.steps
            self.inputs.artifacts.files.foretold.update(foretold.looks)
        return self.recorded > before

    def worded(self, node: Node, decision: Decision, made_of: Ingredients) -> Decision:
        held_back = self._held_back(node, decision)
        if held_back is not None:
            return held_back
        record = self.state.task(node.id)
        if decision.action == decisions.HOLD and record.kind != "rounds":
            return Decision(decisions.RUN, f"failed before, and is tried again: {record.error}")
        if decision.action != decisions.RUN:
            return decision
        if node.kind == "items" and self.state.rebuilt and node.id not in self.state.tasks:
            return replace(decision, reason="the items it made were lost with the record")
        behind = self._pending_before(node) or [one.id for one in node.material if one.id in self.pending]
        return replace(decision, reason=f"after {some_of(behind, _NAMED_MAX)}") if behind else decision

    def _held_back(self, node: Node, decision: Decision) -> Decision | None:
        """What is told of a decision that is not carried out before more is known; None of most."""
        if self._inferred.covers(node) and not self._inferred.may_act(node, decision):
            if decision.about in KEPT_BY_PERSON:
                self._edited[node] = None
            return replace(decision, reason=f"{decision.reason}; once its items are known again")
        behind = self._pending_before(node)
        if behind and self._is_compared(node, decision):
            return _if_different(behind)
        return None

    def _is_compared(self, node: Node, decision: Decision) -> bool:
        """Whether a whole file without a record is adopted only if what it was made from comes out as it was.

        A section stands whatever comes out; and so does, until somebody is asked, all that a lost run has left.
        """
        if decision.about not in ("sealed", decisions.UNRECORDED) or self.state.rebuilt or is_memory(node.spec):
            return False
        seals = [found.seal for found in decision.looks.values() if found.seal is not None]
        return any(seal.input_digest != UNKNOWN for seal in seals)

    def _pending_before(self, node: Node) -> list[str]:
        """Which of what it takes is not known yet."""
        return [parent.id for parent in node.parents if parent.id in self.pending] if self.pending else []

    def _finished(self, node: Node, made_of: Ingredients) -> TaskState | None:
        """Finished work behind a task that will run; also what was out of date, and may be so no longer then."""
        self.record_all(self.judge.reinstate(node, made_of))
        record = self.state.task(node.id)
        if record.status == COMPLETED or record.before is None:
            return record if record.status == COMPLETED else None
        return record.before if self.judge.may_reinstate(node, made_of) else None

    def _decide_behind(self, node: Node, record: TaskState, behind: list[str], made_of: Ingredients) -> Decision:
        """Finished work behind a task that will run: compared when that is through, and left alone until then."""
        if self.state.task(node.id).status == COMPLETED:
            decision = self.judge.decide(node, made_of)
            if decision.action == decisions.REDO:
                return decision  # whatever comes out: something else has changed, or is lost
            if decision.action == decisions.TRUST and node.id in self.state.keeps:
                by = self.state.keeps[node.id]
                return replace(decision, reason=f"kept by {by}, whatever comes out before it")
        named = [name for name, part in made_of.parts.items() if part == UNKNOWN]
        if all(record.inputs.get(name, "").startswith(UNKNOWN) for name in named):
            reason = f"finished; asked about if it does not fit {some_of(behind, _NAMED_MAX)}"
            return Decision(decisions.TRUST, reason, about=decisions.PERHAPS)
        return _if_different(behind)

    def made_of(self, node: Node) -> Ingredients:
        """What a task would be made of; what is not known yet, or only inferred, is unknown."""
        parts = self.inputs.parts(node)
        for parent in node.parents if self.pending else ():
            if parent.id in self.pending:
                parts[parent.part] = UNKNOWN
        if self._inferred.covers(node):
            parts["item"] = UNKNOWN
            # Nor is it known which items its own comes after: names have no order.
            parts |= {parent.part: UNKNOWN for parent in node.parents if parent.kind == "past"}
        return Ingredients(parts, self.inputs.digest(node, parts))

    # --- what is lost --------------------------------------------------------------------------------------

    def wants_back(self, node: Node, decision: Decision | None = None) -> bool:
        """Have what is lost come back, too. The task is passed all the same: what it gives is unknown anyway."""
        if decision is not None and decision.about == BEHIND:
            self._note_wanted(node)
        else:
            super().wants_back(node, decision)
        return False

    def _note_wanted(self, consumer: Node) -> None:
        """What is lost of what it takes comes back only if it runs: nothing is done about it yet."""
        for producer in self.inputs.producers(consumer) if self.judge.lacking else ():
            if producer.id not in self.judge.lacking or self.planned[producer.id].if_different:
                continue
            reason = f"it is lost, and needed if {consumer.id} runs"
            self.report.note(producer, Decision(decisions.REDO, reason, about=BEHIND))
            self._note_wanted(producer)


def _takers(producer: Node) -> Iterator[Node]:
    """The tasks that take its output, also of all items together."""
    for consumer, _ in producer.consumers:
        if consumer.kind == "gather":
            yield from _takers(consumer)
        elif consumer.is_task and producer in consumer.parents:
            yield consumer


def _if_different(before: list[str]) -> Decision:
    return Decision(decisions.REDO, f"if {some_of(before, _NAMED_MAX)} comes out differently", about=BEHIND)


# --- beginning one -----------------------------------------------------------------------------------------


@contextmanager
def looking(
    spec: PipelineSpec,
    layout: ProjectLayout,
    state: RunState,
    request: Request,
    compiled: CompiledPipeline | None = None,
    views: Views = NO_VIEWS,
) -> Iterator[PlanPass]:
    """A pass that changes nothing on disk. Without `compiled` no `check` is asked."""
    quarantine = layout.run(state.run_id).quarantine
    choice = Choice(state.run_id, False, state.params)

    def make_judge(inputs: Inputs) -> Judge:
        recorder = NoRecorder(inputs.artifacts.objects, inputs.artifacts.tree)
        attempts = Attempts(inputs, compiled, recorder) if compiled else None
        return judge_for(inputs, layout, request, choice, quarantine, attempts, views.done)

    with artifacts_of(layout, state.run_id, quick=request.quick) as artifacts:
        if not request.quick:
            deque(artifacts.objects.prove(), maxlen=0)  # what is damaged is known as that from then on
        yield pass_over(spec, state, artifacts, make_judge, views=views)


def pass_over(
    spec: PipelineSpec,
    state: RunState,
    artifacts: Artifacts,
    make_judge: Callable[[Inputs], Judge],
    *,
    views: Views,
    record: Record | None = None,
) -> PlanPass:
    """A pass over all tasks that can be known: also those of items that files and views only suggest."""
    known, inferred, sure = known_items(spec, state, artifacts), Items(), frozenset[tuple[str, ...]]()
    if state.rebuilt or state.tasks:  # a new run has none to be found
        inferred, sure = infer(spec, known, state.tasks, lambda: views, artifacts.tree, state)
    graph = build_graph(spec, {**known, **inferred})
    inputs = Inputs(graph, state, artifacts, artifacts.tree.root)
    judge = make_judge(inputs)
    return PlanPass(inputs, judge, known=known, inferred=inferred, sure=sure, record=record)
