"""The walk over a run's tasks, deciding about each as the engine would: for `plan`, `why` and `recover`.

A walk *looks* (in a state of its own, on paper: stores/paper.py) or *acts* (files are set aside, put back and
adopted, and the events that say so recorded at once). Both decide and do the same, because the code is the same.

Rules. A task that must run gives a result nobody knows yet: what takes it is decided with that input unknown.
Finished work behind it is left alone, for the engine to compare. Items that are only inferred from files and views
suffice to adopt what is sealed; everything else about them waits until their function has run again.

Crash story of acting: that of `Judge.apply`. A walk that is cut off is walked again from the start: what was
done is then on record, and is trusted.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec.structs import replace

from holdfast import clock, decisions
from holdfast import events as ev
from holdfast.artifacts.inputs import UNKNOWN, Inputs
from holdfast.artifacts.looks import CHANGED, FOREIGN, MARKED, SEALED
from holdfast.decisions import BEHIND, MADE_FROM_IT, Decision, Planned, public_action
from holdfast.engine.considering import was_passed
from holdfast.engine.drawing import recorded_graph
from holdfast.engine.scheduler import Scheduler
from holdfast.folding import fold
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.inferring import Items, is_inferred
from holdfast.pipeline.nodes import OK, OPEN, SETTLE, SKIPPED, Node, split_task_id, task_id
from holdfast.pipeline.spec import ItemsSpec
from holdfast.pipeline.standstill import find_standstill, loop_told
from holdfast.recovery.evidence import KEPT_BY_PERSON
from holdfast.recovery.judge import Judge
from holdfast.recovery.sections import is_memory
from holdfast.state import COMPLETED, NEEDS_REVIEW, RunState, TaskState
from holdfast.state import SKIPPED as STATUS_SKIPPED

Record = Callable[[ev.Event], None]

_RUNS = (decisions.RUN, decisions.REDO, decisions.CONTINUE)
_WAITS = (decisions.ASK, decisions.HOLD)
_TOLD = (decisions.WAIT, decisions.NEVER, decisions.PERHAPS)


class Walker:
    """Walks one graph once. Give `record` to act; without it nothing but `state` changes."""

    def __init__(
        self,
        graph: Graph,
        state: RunState,
        inputs: Inputs,
        judge: Judge,
        *,
        known: Items,
        inferred: Items,
        sure: frozenset[tuple[str, ...]] = frozenset(),
        record: Record | None = None,
        rehearses: bool = False,
    ) -> None:
        self.graph = graph
        self.state = state
        self.inputs = inputs
        self.judge = judge
        self.planned: dict[str, Planned] = {}
        self.fresh: set[str] = set()  # will give a result that is not known yet
        self.recorded = 0  # events, or those that would be
        self._known = known  # items functions whose items are on record
        self._inferred = inferred  # items functions whose items were inferred
        self._sure = sure  # paths of inferred items that a view or the record names
        self._proved: set[tuple[str, ...]] = set()  # paths of inferred items that a sealed file proves
        self._kept_later: list[Node] = []  # somebody's edits, that count as soon as their items are known again
        self._recorder = record
        self._rehearses = rehearses  # to look, migrations are called, too: what they write is wanted
        self._scheduler = Scheduler(graph)
        self._costs = average_costs(state)

    # --- going ---------------------------------------------------------------------------------------------

    def go(self) -> None:
        """Walk to the end."""
        while self.advance(1000):
            pass

    def advance(self, nodes: int) -> bool:
        """Consider at most so many nodes; False when all are through."""
        queue = self._scheduler.to_consider
        for _ in range(nodes):
            if not queue:
                self._note_waiting()
                self._forget_unproved()
                return False
            node = queue.popleft()
            if not node.unmet and node.condition == OPEN:
                self._consider(node)
        return True

    def open_fans(self) -> list[str]:
        """Fan-outs whose items are not known yet, or may come out differently."""
        known = {var for var, _ in self.graph.items}
        again = {split_task_id(task)[0] for task in self.fresh}
        return [fan.var for fan in self.graph.spec.items if fan.var not in known or fan.name in again]

    def orphans(self) -> list[str]:
        """Tasks on record that the pipeline no longer has; their files are kept."""
        return [task for task in self.state.tasks if task not in self.graph.nodes]

    def _record(self, event: ev.Event) -> None:
        self.recorded += 1
        if self._recorder is not None:
            self._recorder(event)
        else:
            fold(self.state, event, self.state.seq, clock.now())

    def _note_waiting(self) -> None:
        """What was never reached stands behind something that waits for a person, or for unknown items."""
        held = _held_by(self.graph)
        unreached = [node for node in self.graph.tasks() if node.id not in self.planned]
        loop = find_standstill(self.graph) if any(node.id not in held for node in unreached) else []
        for node in unreached:
            if self.state.task(node.id).status == COMPLETED:
                reason = _not_looked_at(held.get(node.id))
                self._note(node, Decision(decisions.TRUST, reason, about=decisions.WAIT))
            elif loop and node.id not in held:
                self._note(node, Decision(decisions.RUN, _in_a_loop(node, loop), about=decisions.NEVER))
            else:
                self._note(node, Decision(decisions.RUN, _once_through(held.get(node.id))))

    def _forget_unproved(self) -> None:
        """Items that only a file's name suggested, and nothing proved, are none: the file is somebody's own."""
        believed = self._believed()
        for task in [*self.planned] if self._inferred else ():
            node = self.graph.nodes[task]
            if node.path not in believed and self._is_guess(node):
                del self.planned[task]

    def _believed(self) -> set[tuple[str, ...]]:
        """The paths of inferred items that are more than a file's name."""
        paths = (*self._sure, *self._proved)
        return {path[:length] for path in paths for length in range(1, len(path) + 1)}

    def items(self) -> Items:
        """All items there are, also inferred ones that something proves or a view names; after the walk."""
        believed, found = self._believed(), dict(self._known)
        for maker, listed in self._inferred.items():
            parent = split_task_id(maker)[1]
            found[maker] = [item for item in listed if (*parent, item["id"]) in believed]
        return found

    def recorded_graph(self) -> Graph:
        """The graph with its conditions as the record now says; after the walk."""
        if not self.fresh and all(node.condition in (OK, SKIPPED) for node in self.graph.nodes.values()):
            return self.graph  # everything is through: the walk settled each node as the record does
        return recorded_graph(self.graph.spec, self.state, self.items())

    def send_back(self, wished: Mapping[str, str]) -> None:
        """Somebody wants these done again, although they are whole; each with the view that says so."""
        for task, source in wished.items():
            reason = f"{source} was edited: it is to be done again"
            self.planned[task] = replace(self.planned[task], action=decisions.REDO, reason=reason, told_as="")

    def foresee_edits(self) -> None:
        """Tell what was made from a file before somebody edited it, and runs again once that edit counts.

        Nothing is done about it here: the edit waits for its items, and finished work is compared with it then.
        """
        for edited in self._kept_later:
            for consumer in _takers(edited):
                planned = self.planned.get(consumer.id)
                if planned is not None and planned.action not in _RUNS:
                    reason = f"if {edited.id} comes out differently"
                    self._note(consumer, Decision(decisions.REDO, reason, about=BEHIND))
                    for producer in self.inputs.producers(consumer):
                        self._note_perhaps(producer, consumer)

    def tell_running(self, tasks: Iterable[str]) -> None:
        """An engine is at work on these: what is there of them now is not what a later run would find."""
        for task in tasks:
            if task in self.planned:
                self.planned[task] = replace(
                    self.planned[task], action=decisions.RUN, reason=decisions.RUNNING, problem="", told_as=""
                )

    # --- one node ------------------------------------------------------------------------------------------

    def _consider(self, node: Node) -> None:
        if node.is_virtual:
            self._pass(node, any(p in self.fresh for p in self._producers(node)))
        elif node.kind == "gate":
            self._consider_gate(node)
        elif node.kind == "phase":
            self._consider_phase(node)
        else:
            self._consider_task(node)

    def _producers(self, gather: Node) -> Iterator[str]:
        """What a gather waits for: the function that made its items, and their tasks."""
        if gather.kind == "past":
            yield from (section.id for _, section in self.inputs.sections_before(gather))
        if gather.kind != "gather":
            return
        var = self.graph.fan_of(gather.spec.name)[len(gather.path)]
        maker = next(fan.name for fan in self.graph.spec.items if fan.var == var)
        yield task_id(maker, gather.path)
        yield from (inner.id for _, inner in self.inputs.gathered(gather.spec.name, gather.path))

    def _consider_gate(self, node: Node) -> None:
        if self.state.gates.get(node.id) != "approved" and not self._was_passed(node):
            self._scheduler.hold(node)
            return
        if self.state.gates.get(node.id) != "approved":
            self._record(ev.GateApproved(step_id=node.id, by="a finished task behind it"))
        self._scheduler.settle(node)

    def _consider_phase(self, node: Node) -> None:
        if node.id not in self.state.phases and self.state.rebuilt and self._was_passed(node):
            self._record(ev.PhaseStarted(step_id=node.id))
        self._pass(node, fresh=False)

    def _was_passed(self, node: Node) -> bool:
        standing = self.state.gates.get(node.id) if node.kind == "gate" else None
        return standing is None and was_passed(node, self.state, self.judge.is_proved)

    def _consider_task(self, node: Node) -> None:
        skipped = [parent.id for parent in node.parents if parent.condition == SKIPPED]
        if skipped:
            self._note(node, Decision(decisions.SKIP, f"{skipped[0]} was skipped"))
            self._scheduler.settle(node, SKIPPED)
            return
        fresh = [parent.id for parent in node.parents if parent.id in self.fresh] if self.fresh else []
        decision = self._decide(node, fresh)
        self._note(node, decision)
        self._move_on(node, decision)

    def _decide(self, node: Node, fresh: list[str]) -> Decision:
        """The decision about a task, carried out."""
        if node.id in self.state.recalls:
            feedback = "; ".join(filter(None, self.state.recalls[node.id].feedback))
            return Decision(decisions.REDO, f"sent back: {feedback}" if feedback else "sent back")
        news = decisions.BACK_AGAIN if self._reinstate(node, fresh) else ""
        record = self.state.tasks.get(node.id)
        finished = self._finished(node, record, fresh) if fresh and record is not None else None
        if finished is not None:
            return self._decide_behind(node, finished, fresh)
        if record is not None and record.status == NEEDS_REVIEW and record.kind != "rounds":
            return Decision(decisions.RUN, f"failed before, and is tried again: {record.error}")
        return self._judged(node, fresh, news)

    def _judged(self, node: Node, fresh: list[str], news: str) -> Decision:
        """What record and files say of a task, carried out; `news` is why finished work is trusted again."""
        parts = self._parts(node, fresh)
        digest = self.inputs.digest(node, parts)
        news = "the pipeline names another path" if self._bring_home(node) else news
        decision = self.judge.decide(node, parts, digest)
        if news and decision.action == decisions.TRUST:
            decision = replace(decision, reason=news)
        if self._inferred and self._is_guess(node) and not self._may_act_on_guess(node, decision):
            if decision.about in KEPT_BY_PERSON:
                self._kept_later.append(node)
            return replace(decision, reason=f"{decision.reason}; once its items are known again")
        if fresh and decision.action == decisions.ADOPT and self._is_compared(node, decision):
            return _if_different(fresh)
        if (
            decision.action in (decisions.REDO, decisions.CONTINUE)
            and self.state.task(node.id).status != COMPLETED
        ):
            return decision  # what is half finished stays where it is: the next run may be told to continue it
        self._carry_out(node, decision, parts, digest)
        return self._told(node, decision, fresh) if decision.action == decisions.RUN else decision

    def _reinstate(self, node: Node, fresh: list[str]) -> bool:
        """Whether work that was out of date is so no longer: then it counts as finished from here on."""
        if self.state.task(node.id).before is None:
            return False
        parts, before = self._parts(node, fresh), self.recorded
        for event in self.judge.reinstate(node, parts, self.inputs.digest(node, parts)):
            self._record(event)
        return self.recorded > before

    def _bring_home(self, node: Node) -> bool:
        """Have its finished files where the pipeline names them; whether there was anything to do."""
        before = self.recorded
        for event in self.judge.bring_home(node):
            self._record(event)
        return self.recorded > before

    def _carry_out(self, node: Node, decision: Decision, parts: dict[str, str], digest: str) -> None:
        if decision.action == decisions.MIGRATE and self._recorder is None and not self._rehearses:
            self.recorded += 1  # what the pipeline's own function makes of the value is seen when it is called
            return
        for event in self.judge.apply(node, decision, parts, digest):
            self._record(event)

    def _told(self, node: Node, decision: Decision, fresh: list[str]) -> Decision:
        """Why a task must run, where the walk knows better than one look at it."""
        if node.kind == "items" and self.state.rebuilt and node.id not in self.state.tasks:
            return replace(decision, reason="the items it made were lost with the record")
        fresh = fresh or [source.id for source in node.material if source.id in self.fresh]
        return replace(decision, reason=f"after {_listed(fresh)}") if fresh else decision

    def _finished(self, node: Node, record: TaskState, fresh: list[str]) -> TaskState | None:
        """Finished work behind a task that will run; also what was out of date, and may be so no longer then."""
        if record.status == COMPLETED or record.before is None:
            return record if record.status == COMPLETED else None
        parts = self._parts(node, fresh)
        return record.before if self.judge.may_reinstate(node, parts, self.inputs.digest(node, parts)) else None

    def _decide_behind(self, node: Node, record: TaskState, fresh: list[str]) -> Decision:
        """Finished work behind a task that will run: compared when that is through, and left alone until then."""
        parts = self._parts(node, fresh)
        if self.state.task(node.id).status == COMPLETED:
            decision = self.judge.decide(node, parts, self.inputs.digest(node, parts))
            if decision.action == decisions.REDO:
                return decision  # whatever comes out: something else has changed, or is lost
        named = [name for name, part in parts.items() if part == UNKNOWN]
        if all(record.inputs.get(name, "").startswith(UNKNOWN) for name in named):
            reason = f"finished; asked about if it does not fit {_listed(fresh)}"
            return Decision(decisions.TRUST, reason, about=decisions.PERHAPS)
        return _if_different(fresh)

    def _is_compared(self, node: Node, decision: Decision) -> bool:
        """Whether a whole file without a record is adopted only if what it was made from comes out as it was.

        A section stands whatever comes out; and so does, until somebody is asked, all that a lost run has left.
        """
        if self.state.rebuilt or decision.about != "sealed" or is_memory(node.spec):
            return False
        seals = [found.seal for found in decision.looks.values() if found.seal is not None]
        return any(seal.input_digest != UNKNOWN for seal in seals)

    def _parts(self, node: Node, fresh: list[str]) -> dict[str, str]:
        """The digests of a task's inputs; what is not known yet, or only inferred, is unknown."""
        parts = self.inputs.parts(node)
        for parent in node.parents if fresh else ():
            if parent.id in self.fresh:
                parts[parent.identity] = UNKNOWN
        if self._inferred and self._is_guess(node):
            parts["item"] = UNKNOWN
        return parts

    def _is_guess(self, node: Node) -> bool:
        """Whether the item of this task is only inferred."""
        return bool(self._inferred) and is_inferred(self.graph, node, self._inferred)

    def _may_act_on_guess(self, node: Node, decision: Decision) -> bool:
        """What is sealed proves its item; what left no file is believed if something else proves the item."""
        if node.id in self.state.tasks:
            return True
        if decision.about == "sealed" and decision.action == decisions.ADOPT:
            self._proved.add(node.path)
            return True
        return decision.about == "lost" and (node.path in self._sure or self._is_proved(node))

    def _is_proved(self, node: Node) -> bool:
        """Whether a file of the same item proves that there is such an item."""
        if node.path not in self._proved:
            fan = self.graph.fan_of(node.spec.name)[-1]
            beside = (task_id(step.name, node.path) for step in self.graph.spec.steps if step.each == fan)
            if any(self.judge.is_proved(self.graph.nodes[task]) for task in beside):
                self._proved.add(node.path)
        return node.path in self._proved

    def _move_on(self, node: Node, decision: Decision) -> None:
        status = self.state.task(node.id).status
        if decision.action in _WAITS and self.state.rebuilt:
            self._pass(node, fresh=True)  # what is whole behind it is adopted all the same: nobody knows its input
        elif decision.action in _WAITS:
            self._scheduler.hold(node)
        elif decision.action == decisions.SKIP or status == STATUS_SKIPPED:
            self._scheduler.settle(node, SKIPPED)
        elif status == COMPLETED and decision.action not in _RUNS:
            self._pass(node, fresh=False)
        else:
            self._bring_back(node, decision)
            self._pass(node, fresh=True)

    def _bring_back(self, node: Node, decision: Decision) -> None:
        """A task that must run needs what is lost of those it takes from: they come back first."""
        for producer in self.inputs.producers(node) if self.judge.lacking else ():
            if decision.about == BEHIND:
                self._note_perhaps(producer, node)
            elif self.judge.want(producer):
                self._consider_task(producer)

    def _note_perhaps(self, producer: Node, consumer: Node) -> None:
        """What is lost of it comes back only if its consumer runs: nothing is done about it yet."""
        if producer.id not in self.judge.lacking or self.planned[producer.id].if_different:
            return
        self._note(
            producer, Decision(decisions.REDO, f"it is lost, and needed if {consumer.id} runs", about=BEHIND)
        )
        for further in self.inputs.producers(producer):
            self._note_perhaps(further, producer)

    def _pass(self, node: Node, fresh: bool) -> None:
        if fresh:
            self.fresh.add(node.id)
        unknown_items = (
            isinstance(node.spec, ItemsSpec)
            and node.kind == "items"
            and node.id not in self._known
            and node.id not in self._inferred
        )
        if not unknown_items:
            self._scheduler.settle(node, OK)

    def _note(self, node: Node, decision: Decision) -> None:
        action = public_action(decision.action)
        cost = self._costs.get(node.spec.name) if action in _RUNS else None
        noted = self.planned.get(node.id)  # if so, what is lost of it is needed after all
        evidence = noted.evidence if noted is not None else self._evidence(node, decision)
        problem, is_behind = _problem(decision), decision.about == BEHIND
        told_as = decision.about if decision.about in _TOLD else ""
        cost = 0.0 if told_as == decisions.NEVER else cost
        if decision.action == decisions.SKIP or self.state.task(node.id).status == STATUS_SKIPPED:
            told_as = decisions.SKIP
        reason = decision.reason + _gives_way(decision)
        self.planned[node.id] = Planned(node.id, action, reason, cost, evidence, problem, is_behind, told_as)

    def _evidence(self, node: Node, decision: Decision) -> str:
        if decision.about == "lost":
            return self.judge.claims.get(node.id, MADE_FROM_IT)
        if node.kind == "items" and node.id not in self.state.tasks:
            return self.judge.claims.get(node.id, "")
        if decision.action == decisions.ADOPT:
            return _EVIDENCE[decision.about]
        return "journal" if node.id in self.state.tasks else ""


def _takers(producer: Node) -> Iterator[Node]:
    """The tasks that take its output, also of all items together."""
    for consumer, _ in producer.consumers:
        if consumer.kind == "gather":
            yield from _takers(consumer)
        elif consumer.is_task and producer in consumer.parents:
            yield consumer


def _held_by(graph: Graph) -> dict[str, Node]:
    """What waits for a person before each node that cannot be reached: one of several is named."""
    found: dict[str, Node] = {}
    for held in [node for node in graph.nodes.values() if node.stuck]:
        stack = [held]
        while stack:
            for consumer, kind in stack.pop().consumers:
                if kind != SETTLE and consumer.id not in found:
                    found[consumer.id] = held
                    stack.append(consumer)
    return found


def _once_through(held: Node | None) -> str:
    """When a task comes on that is not reached yet."""
    if held is None:
        return "once what it depends on is through"
    if held.kind == "gate":
        return f"after gate {held.id} is approved: holdfast approve {shlex.quote(held.id)}"
    return f"after {held.id}, which needs a person"


def _in_a_loop(node: Node, loop: list[str]) -> str:
    """Why a task cannot be reached though nobody is waited for."""
    return loop_told(loop) if node.id in loop else f"behind {loop[0]}, which waits for itself"


def _not_looked_at(held: Node | None) -> str:
    """Why finished work was not looked at."""
    return f"finished; looked at after {held.id if held is not None else 'what it depends on'}"


def _problem(decision: Decision) -> str:
    """Which of the files that a decision is about are not whole."""
    if not decision.looks or decision.action == decisions.ADOPT:
        return ""
    about = ((path, decision.looks[path].kind) for path in decision.paths if path in decision.looks)
    return ", ".join(f"{path} is {_WORDS.get(kind, kind)}" for path, kind in about if kind != SEALED)


def _if_different(fresh: list[str]) -> Decision:
    return Decision(decisions.REDO, f"if {_listed(fresh)} comes out differently", about=BEHIND)


def _gives_way(decision: Decision) -> str:
    """What a person wrote that a redo, for whatever reason, sets aside: whoever plans wants to know."""
    if decision.action != decisions.REDO:
        return ""
    edited = [path for path in decision.paths if path in decision.looks and decision.looks[path].kind == CHANGED]
    return f"; what you wrote into {', '.join(edited)} is set aside" if edited else ""


_WORDS = {FOREIGN: "another task's", MARKED: "not sealed"}
_EVIDENCE = {
    "sealed": "sealed artifact",
    "marker": "plain marker",
    "exists": "file",
    "kept": "file",
}


def average_costs(state: RunState) -> dict[str, float]:
    """What a task of each step has cost so far, on average."""
    spent: dict[str, list[float]] = {}
    for task, record in state.tasks.items():
        if record.status == COMPLETED:
            spent.setdefault(split_task_id(task)[0], []).append(record.round_cost_usd)
    return {step: sum(costs) / len(costs) for step, costs in spent.items()}


def _listed(ids: list[str]) -> str:
    return ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")
