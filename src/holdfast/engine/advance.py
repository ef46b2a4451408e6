"""The pass over a run: look, decide, act, look again, until each task is trusted, runs, or waits for a person.

There is one pass for all who decide. It considers the nodes whose producers are all through. Only two things
differ: the engine starts what is open, and waits at gates (starting.py); `plan`, `why` and `recover` start
nothing, and go on behind it with an output that is not known yet (sessions/plan_pass.py).

consider
  _consider_task     skip it, or settle it, then trust it, hold it, or open it
    settle           look, decide, act; again, as long as there may be more to be done
  _consider_gate     a person's word
  _consider_phase    the hand-off checklist

Crash story: that of the actions (recovery/actions.py). A pass that is cut off begins anew: what was done is then
on record, and is trusted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Protocol

from msgspec.structs import replace

from holdfast import decisions
from holdfast import events as ev
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.parts import Ingredients
from holdfast.decisions import Action, Decision
from holdfast.engine.scheduler import Scheduler, skipped_producer
from holdfast.pipeline.nodes import HELD, OPEN, SETTLE, SKIPPED, Node
from holdfast.state import COMPLETED, RunState, TaskState
from holdfast.state import SKIPPED as STATUS_SKIPPED

ACTIONS_MAX = 16
"""More actions on one task are our mistake, or a file that is another one each time: a question, never a hang."""

_ENDS = decisions.RUNS | decisions.WAITS


class Judge(Protocol):
    """Decides about one task from record and files. Recovery has the real one."""

    @property
    def lacking(self) -> Collection[str]: ...

    def decide(self, node: Node, made_of: Ingredients) -> Decision: ...

    def reinstate(self, node: Node, made_of: Ingredients) -> Iterable[ev.Event]: ...

    def bring_home(self, node: Node) -> Iterable[Action]: ...

    def actions(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterable[Action]: ...

    def may_be_more(self, node: Node, decision: Decision, made_of: Ingredients) -> bool: ...

    def is_proved(self, node: Node) -> bool: ...

    def want(self, node: Node) -> bool: ...


class Pass(ABC):
    """Considers the nodes of one graph; whoever inherits says what becomes of what is open."""

    def __init__(self, inputs: Inputs, judge: Judge) -> None:
        self.inputs = inputs
        self.state = inputs.state
        self.judge = judge

    # --- what differs --------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def scheduler(self) -> Scheduler:
        """The counters over the graph as it is now."""

    @abstractmethod
    def record(self, event: ev.Event) -> None:
        """Write an event down, and fold it into the state."""

    @abstractmethod
    def tell(self, node: Node, decision: Decision, *, was_completed: bool) -> None:
        """Take down what was decided about a task."""

    @abstractmethod
    def through(self, node: Node) -> None:
        """Go on behind a finished task; one that makes items unfolds them."""

    @abstractmethod
    def open(self, node: Node, decision: Decision, made_of: Ingredients) -> None:
        """Deal with a task that must run, and takes nothing that is lost."""

    @abstractmethod
    def wait(self, node: Node) -> None:
        """Deal with a task that waits for a person."""

    @abstractmethod
    def send_back(self, node: Node) -> None:
        """Deal with a task whose output was sent back."""

    @abstractmethod
    def join(self, node: Node) -> None:
        """Go on behind a virtual node."""

    @abstractmethod
    def stop_at(self, gate: Node) -> None:
        """Deal with a gate that nobody has approved."""

    @abstractmethod
    def enter(self, phase: Node) -> None:
        """Deal with a phase that has not begun."""

    # --- one node ------------------------------------------------------------------------------------------

    def consider(self, node: Node) -> None:
        """Look at a node whose producers are all through."""
        if node.unmet or node.running or node.queued or node.recalled or node.condition != OPEN:
            return
        if node.is_task:
            self._consider_task(node)
        elif node.kind == "gate":
            self._consider_gate(node)
        elif node.kind == "phase":
            self._consider_phase(node)
        else:
            self.join(node)

    def _consider_task(self, node: Node) -> None:
        if node.id in self.state.recalls:  # sent back before this process began, or before the node was made
            self.send_back(node)
            return
        skipped = skipped_producer(node, is_finished=self.state.task(node.id).status == COMPLETED)
        if skipped:
            self._skip(node, skipped)
            return
        made_of = self.made_of(node)
        self.move_on(node, self.settle(node, made_of), made_of)

    def look_behind(self) -> None:
        """Look at finished work that waits behind a question: damage there is healed whatever the answer is.

        What it was made from counts as recorded. It is compared once the answer is there.
        """
        for node in list(self.inputs.graph.nodes.values()):
            record = self.state.tasks.get(node.id)
            if record is None or record.status != COMPLETED or node.condition != HELD or node.stuck:
                continue
            made_of = Ingredients(dict(record.inputs), record.input_digest)
            if self.settle(node, made_of).action in decisions.WAITS:
                self.wait(node)

    def _skip(self, node: Node, because_of: str) -> None:
        reason = f"{because_of} was skipped"
        if self.state.task(node.id).status != STATUS_SKIPPED:
            self.record(ev.TaskSkipped(step_id=node.id, reason=reason))
        self.tell(node, Decision(decisions.SKIP, reason), was_completed=False)
        self.scheduler.settle(node, SKIPPED)

    def made_of(self, node: Node) -> Ingredients:
        """What a task would be made of now."""
        return self.inputs.ingredients(node)

    def settle(self, node: Node, made_of: Ingredients) -> Decision:
        """Look at a task, decide, act, and look again; gives the decision that tells most of what was done."""
        news = self._made_current(node, made_of)
        was_completed = self.state.task(node.id).status == COMPLETED
        decision = told = self.judge.decide(node, made_of)
        for _ in range(ACTIONS_MAX):
            if not self.act(node, decision, made_of):
                break
            news = self._made_current(node, made_of) or news
            decision = self.judge.decide(node, made_of)
            told = decision if decision.action in _ENDS else told
        else:
            told = Decision(decisions.ASK, f"it was found otherwise {ACTIONS_MAX} times", about="changed")
            self.act(node, told, made_of)
        if news and told.action == decisions.TRUST:
            told = replace(told, reason=news)
        told = self.worded(node, told, made_of)
        self.tell(node, told, was_completed=was_completed)
        return told

    def _made_current(self, node: Node, made_of: Ingredients) -> str:
        """Have work count again that was out of date, and its files where they belong; says which was done."""
        if node.id not in self.state.tasks:  # nothing else can count again, or be elsewhere
            return ""
        is_back = self.record_all(self.judge.reinstate(node, made_of))
        is_moved = self.carry_out(self.judge.bring_home(node))
        return "the pipeline names another path" if is_moved else decisions.BACK_AGAIN if is_back else ""

    def act(self, node: Node, decision: Decision, made_of: Ingredients) -> bool:
        """Carry a decision out; whether the task is to be looked at again."""
        is_done = self.carry_out(self.judge.actions(node, decision, made_of))
        return is_done and self.judge.may_be_more(node, decision, made_of)

    def worded(self, node: Node, decision: Decision, made_of: Ingredients) -> Decision:
        """Give the decision as it is told."""
        return decision

    def carry_out(self, actions: Iterable[Action]) -> bool:
        """Perform each action, and record it, before the next is asked for; whether anything was recorded."""
        has_any = False
        for action in actions:
            has_any = self.record_all(action.perform()) or has_any
        return has_any

    def record_all(self, events: Iterable[ev.Event]) -> bool:
        """Record each event before the next thing is done; whether there was any."""
        has_any = False
        for event in events:
            self.record(event)
            has_any = True
        return has_any

    def move_on(self, node: Node, decision: Decision, made_of: Ingredients) -> None:
        """Move the scheduler as the decision and the state it left say."""
        status = self.state.task(node.id).status
        if decision.action in decisions.WAITS:
            self.wait(node)
        elif status == STATUS_SKIPPED:
            self.scheduler.settle(node, SKIPPED)
        elif status == COMPLETED and decision.action not in decisions.RUNS:
            self.through(node)
        elif not self.wants_back(node, decision):
            self.open(node, decision, made_of)

    def wants_back(self, node: Node, decision: Decision | None = None) -> bool:
        """Whether what is to run, or to be asked, takes something that is lost: then that comes back first."""
        lost = list(dict.fromkeys(self.lost_producers(node)))
        for producer in lost:
            self.scheduler.release(producer)
        return bool(lost)

    def lost_producers(self, node: Node) -> list[Node]:
        """The tasks whose output this one takes, and of which something is lost."""
        if not self.judge.lacking:
            return []
        return [producer for producer in self.inputs.producers(node) if self.judge.want(producer)]

    # --- barriers ------------------------------------------------------------------------------------------

    def _consider_gate(self, gate: Node) -> None:
        standing = self.state.gates.get(gate.id)
        if standing is None and was_passed(gate, self.state, self.judge.is_proved):
            self.record(ev.GateApproved(step_id=gate.id, by="a finished task behind it"))
        elif standing != "approved":
            self.stop_at(gate)
            return
        self.scheduler.settle(gate)

    def _consider_phase(self, phase: Node) -> None:
        standing, state = self.state.phases.get(phase.id), self.state
        if standing is None and state.rebuilt and was_passed(phase, state, self.judge.is_proved):
            self.begin(phase)
        elif standing == "started":
            self.scheduler.settle(phase)
        else:
            self.enter(phase)

    def begin(self, phase: Node) -> None:
        """Record that a phase has begun."""
        self.record(ev.PhaseStarted(step_id=phase.id))
        self.scheduler.settle(phase)


def was_passed(barrier: Node, state: RunState, is_proved: Callable[[Node], bool]) -> bool:
    """Whether a gate or phase without a record was passed: a task behind it is whole, or was found to be.

    That says something only where the word for it may be lost: else a gate that nobody approved was not passed,
    and what lies behind it was made before it was declared.
    """
    if not (state.rebuilt or state.lost):
        return False
    return any(is_proved(task) or _was_finished(state.task(task.id)) for task in _behind(barrier, state.rebuilt))


def _was_finished(record: TaskState) -> bool:
    """Whether a run that was lost had finished it: what others wrote, or a person let stand, tells of no run."""
    return record.status == COMPLETED and record.evidence not in ("", "marker", "exists", "kept")


def _behind(barrier: Node, is_lost: bool) -> Iterator[Node]:
    """The tasks that a gate or phase holds; in a lost run also those behind tasks that leave no files."""
    stack, seen = [barrier], {barrier}
    while stack:
        for consumer, kind in stack.pop().consumers:
            if consumer in seen or kind == SETTLE:  # such an edge lets through what waits for a person
                continue
            seen.add(consumer)
            if consumer.is_task:
                yield consumer
            if not consumer.is_task or (is_lost and not _leaves_files(consumer)):
                stack.append(consumer)


def _leaves_files(task: Node) -> bool:
    return task.kind == "step" and bool(task.spec.writes or task.spec.appends)
