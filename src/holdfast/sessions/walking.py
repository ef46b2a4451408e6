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

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from holdfast import clock, decisions
from holdfast import events as ev
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.parts import UNKNOWN, Ingredients
from holdfast.decisions import BEHIND, Decision
from holdfast.engine.considering import was_passed
from holdfast.engine.drawing import recorded_graph
from holdfast.engine.scheduler import Scheduler, skipped_producer
from holdfast.folding import fold
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.inferring import Items
from holdfast.pipeline.nodes import OK, OPEN, SKIPPED, Node, step_of, task_id
from holdfast.recovery.evidence import KEPT_BY_PERSON
from holdfast.recovery.judge import Judge
from holdfast.recovery.sections import is_memory
from holdfast.sessions.guesses import Guesses
from holdfast.sessions.noting import Notes
from holdfast.state import COMPLETED, LEFT_OUT, TaskState
from holdfast.state import SKIPPED as STATUS_SKIPPED
from holdfast.wording import some_of

Record = Callable[[ev.Event], None]

_NAMED_MAX = 3


class Walker:
    """Walks one graph once. Give `record` to act; without it nothing but `state` changes."""

    def __init__(
        self,
        inputs: Inputs,
        judge: Judge,
        *,
        known: Items,
        inferred: Items,
        sure: frozenset[tuple[str, ...]],
        record: Record | None,
        rehearses: bool,
    ) -> None:
        self.graph = inputs.graph
        self.state = inputs.state
        self.inputs = inputs
        self.judge = judge
        self.notes = Notes(inputs.state, judge.claims)
        self.planned = self.notes.planned
        self.fresh: set[str] = set()  # will give a result that is not known yet
        self.recorded = 0  # events, or those that would be
        self._known = known  # items functions whose items are on record
        self._guesses = Guesses(self.graph, judge, inferred, sure)
        self._kept_later: list[Node] = []  # somebody's edits, that count as soon as their items are known again
        self._recorder = record
        self._rehearses = rehearses  # to look, migrations are called, too: what they write is wanted
        self._scheduler = Scheduler(self.graph)

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
                self._finish()
                return False
            node = queue.popleft()
            if not node.unmet and node.condition == OPEN:
                self._consider(node)
        return True

    def _finish(self) -> None:
        self.notes.note_unreached(self.graph)
        for task in self._guesses.unproved(self.planned):
            del self.planned[task]

    def open_fans(self) -> list[str]:
        """Fan-outs whose items are not known yet, or may come out differently."""
        known = {var for var, _ in self.graph.items}
        again = {step_of(task) for task in self.fresh}
        return [fan.var for fan in self.graph.spec.items if fan.var not in known or fan.name in again]

    def open_gates(self) -> list[str]:
        """Gates that the run would come to, and at which it would wait for a person."""
        return [node.id for node in self.graph.nodes.values() if node.kind == "gate" and node.stuck]

    def orphans(self) -> list[str]:
        """Tasks on record that the pipeline no longer has; their files are kept."""
        return [task for task in self.state.tasks if task not in self.graph.nodes]

    def _record(self, event: ev.Event) -> None:
        self.recorded += 1
        if self._recorder is not None:
            self._recorder(event)
        else:
            fold(self.state, event, self.state.seq, clock.now())

    def recorded_graph(self) -> Graph:
        """The graph with its conditions as the record now says; after the walk."""
        if not self.fresh and {node.condition for node in self.graph.nodes.values()} <= {OK, SKIPPED}:
            return self.graph  # everything is through: the walk settled each node as the record does
        return recorded_graph(self.graph.spec, self.state, {**self._known, **self._guesses.items()})

    def foresee_edits(self) -> None:
        """Tell what was made from a file before somebody edited it, and runs again once that edit counts.

        Nothing is done about it here: the edit waits for its items, and finished work is compared with it then.
        """
        for edited in self._kept_later:
            for consumer in _takers(edited):
                planned = self.planned.get(consumer.id)
                if planned is not None and planned.action not in decisions.RUNS:
                    reason = f"if {edited.id} comes out differently"
                    self.notes.note(consumer, Decision(decisions.REDO, reason, about=BEHIND))
                    for producer in self.inputs.producers(consumer):
                        self._note_perhaps(producer, consumer)

    # --- one node ------------------------------------------------------------------------------------------

    def _consider(self, node: Node) -> None:
        if node.is_task:
            self._consider_task(node)
        elif node.is_virtual:
            self._pass(node, any(p in self.fresh for p in self._producers(node)))
        elif node.kind == "gate":
            self._consider_gate(node)
        else:
            self._consider_phase(node)

    def _producers(self, gather: Node) -> Iterator[str]:
        """What a gather waits for: the function that made its items, and their tasks."""
        if gather.kind == "past":
            yield from (section.id for _, section in self.inputs.sections_before(gather))
        if gather.kind != "gather":
            return
        var = self.graph.fan_of(gather.spec.name)[len(gather.path)]
        yield task_id(self.graph.maker(var), gather.path)
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
        skipped = skipped_producer(node)
        if skipped:
            self.notes.note(node, Decision(decisions.SKIP, f"{skipped} was skipped"))
            self._scheduler.settle(node, SKIPPED)
            return
        fresh = [parent.id for parent in node.parents if parent.id in self.fresh] if self.fresh else []
        decision = self._decide(node, fresh)
        self.notes.note(node, decision)
        self._move_on(node, decision)

    def _decide(self, node: Node, fresh: list[str]) -> Decision:
        """The decision about a task, carried out."""
        if node.id in self.state.recalls:
            feedback = "; ".join(filter(None, self.state.recalls[node.id].feedback))
            return Decision(decisions.REDO, f"sent back: {feedback}" if feedback else "sent back")
        record = self.state.tasks.get(node.id)
        if record is None:
            return self._judged(node, fresh, "")
        may_count = record.before is not None or record.kind == LEFT_OUT or record.failed_on
        news = decisions.BACK_AGAIN if may_count and self._reinstate(node) else ""
        record = self.state.tasks[node.id]
        finished = self._finished(node, record) if fresh else None
        if finished is not None:
            return self._decide_behind(node, finished, fresh)
        decision = self._judged(node, fresh, "the pipeline names another path" if self._bring_home(node) else news)
        if decision.action == decisions.HOLD and record.kind != "rounds":
            return Decision(decisions.RUN, f"failed before, and is tried again: {record.error}")
        return decision

    def _judged(self, node: Node, fresh: list[str], news: str) -> Decision:
        """What record and files say of a task, carried out; `news` is why finished work is trusted again."""
        made_of = self._ingredients(node)
        decision = self.judge.decide(node, made_of)
        if news and decision.action == decisions.TRUST:
            decision = replace(decision, reason=news)
        if self._guesses.covers(node) and not self._guesses.may_act(node, decision):
            if decision.about in KEPT_BY_PERSON:
                self._kept_later.append(node)
            return replace(decision, reason=f"{decision.reason}; once its items are known again")
        adopts = decision.action == decisions.ADOPT or decisions.is_unrecorded(decision)
        if fresh and adopts and self._is_compared(node, decision):
            return _if_different(fresh)
        if decision.action in decisions.AGAIN and self.state.task(node.id).status != COMPLETED:
            return decision  # what is half finished stays where it is: the next run may be told to continue it
        self._carry_out(node, decision, made_of)
        if adopts:
            return self._asked_at_once(node, decision, made_of)
        return self._told(node, decision, fresh) if decision.action == decisions.RUN else decision

    def _asked_at_once(self, node: Node, decision: Decision, made_of: Ingredients) -> Decision:
        """What a lost run has left is believed first, and then compared: that is not left to the next recovery."""
        if not self.state.rebuilt or not _is_misfit(self.state.task(node.id), made_of):
            return decision
        again = self.judge.decide(node, made_of)
        if again.action != decisions.ASK:
            return decision
        self._carry_out(node, again, made_of)
        return again

    def _reinstate(self, node: Node) -> bool:
        """Whether work that was out of date is so no longer: then it counts as finished from here on."""
        before = self.recorded
        for event in self.judge.reinstate(node, self._ingredients(node)):
            self._record(event)
        return self.recorded > before

    def _bring_home(self, node: Node) -> bool:
        """Have its finished files where the pipeline names them; whether there was anything to do."""
        before = self.recorded
        for event in self.judge.bring_home(node):
            self._record(event)
        return self.recorded > before

    def _carry_out(self, node: Node, decision: Decision, made_of: Ingredients) -> None:
        if decision.action == decisions.MIGRATE and self._recorder is None and not self._rehearses:
            self.recorded += 1  # what the pipeline's own function makes of the value is seen when it is called
            return
        for event in self.judge.apply(node, decision, made_of):
            self._record(event)

    def _told(self, node: Node, decision: Decision, fresh: list[str]) -> Decision:
        """Why a task must run, where the walk knows better than one look at it."""
        if node.kind == "items" and self.state.rebuilt and node.id not in self.state.tasks:
            return replace(decision, reason="the items it made were lost with the record")
        fresh = fresh or [source.id for source in node.material if source.id in self.fresh]
        return replace(decision, reason=f"after {some_of(fresh, _NAMED_MAX)}") if fresh else decision

    def _finished(self, node: Node, record: TaskState) -> TaskState | None:
        """Finished work behind a task that will run; also what was out of date, and may be so no longer then."""
        if record.status == COMPLETED or record.before is None:
            return record if record.status == COMPLETED else None
        return record.before if self.judge.may_reinstate(node, self._ingredients(node)) else None

    def _decide_behind(self, node: Node, record: TaskState, fresh: list[str]) -> Decision:
        """Finished work behind a task that will run: compared when that is through, and left alone until then."""
        made_of = self._ingredients(node)
        if self.state.task(node.id).status == COMPLETED:
            decision = self.judge.decide(node, made_of)
            if decision.action == decisions.REDO:
                return decision  # whatever comes out: something else has changed, or is lost
            if decision.action == decisions.TRUST and node.id in self.state.keeps:
                return replace(
                    decision, reason=f"kept by {self.state.keeps[node.id]}, whatever comes out before it"
                )
        named = [name for name, part in made_of.parts.items() if part == UNKNOWN]
        if all(record.inputs.get(name, "").startswith(UNKNOWN) for name in named):
            reason = f"finished; asked about if it does not fit {some_of(fresh, _NAMED_MAX)}"
            return Decision(decisions.TRUST, reason, about=decisions.PERHAPS)
        return _if_different(fresh)

    def _is_compared(self, node: Node, decision: Decision) -> bool:
        """Whether a whole file without a record is adopted only if what it was made from comes out as it was.

        A section stands whatever comes out; and so does, until somebody is asked, all that a lost run has left.
        """
        if self.state.rebuilt or decision.about not in ("sealed", decisions.UNRECORDED) or is_memory(node.spec):
            return False
        seals = [found.seal for found in decision.looks.values() if found.seal is not None]
        return any(seal.input_digest != UNKNOWN for seal in seals)

    def _ingredients(self, node: Node) -> Ingredients:
        parts = self._parts(node)
        return Ingredients(parts, self.inputs.digest(node, parts))

    def _parts(self, node: Node) -> dict[str, str]:
        """What a task would be made of; what is not known yet, or only inferred, is unknown."""
        parts = self.inputs.parts(node)
        for parent in node.parents if self.fresh else ():
            if parent.id in self.fresh:
                parts[parent.part] = UNKNOWN
        if self._guesses.inferred and self._guesses.covers(node):
            parts["item"] = UNKNOWN
            # Nor is it known which items its own comes after: names have no order.
            parts |= {parent.part: UNKNOWN for parent in node.parents if parent.kind == "past"}
        return parts

    def _move_on(self, node: Node, decision: Decision) -> None:
        status = self.state.task(node.id).status
        if decision.action in decisions.WAITS and self.state.rebuilt:
            self._pass(node, fresh=True)  # what is whole behind it is adopted all the same: nobody knows its input
        elif decision.action in decisions.WAITS:
            self._scheduler.hold(node)
        elif decision.action == decisions.SKIP or status == STATUS_SKIPPED:
            self._scheduler.settle(node, SKIPPED)
        elif status == COMPLETED and decision.action not in decisions.RUNS:
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
        self.notes.note(
            producer, Decision(decisions.REDO, f"it is lost, and needed if {consumer.id} runs", about=BEHIND)
        )
        for further in self.inputs.producers(producer):
            self._note_perhaps(further, producer)

    def _pass(self, node: Node, fresh: bool) -> None:
        if fresh:
            self.fresh.add(node.id)
        if node.kind != "items" or node.id in self._known or node.id in self._guesses.inferred:
            self._scheduler.settle(node, OK)


def _is_misfit(record: TaskState, made_of: Ingredients) -> bool:
    """Whether an input is known that is not on record as what it is now: the work says that it was another."""
    return any(
        part.startswith(UNKNOWN) and made_of.parts.get(name, UNKNOWN) != UNKNOWN
        for name, part in record.inputs.items()
    )


def _takers(producer: Node) -> Iterator[Node]:
    """The tasks that take its output, also of all items together."""
    for consumer, _ in producer.consumers:
        if consumer.kind == "gather":
            yield from _takers(consumer)
        elif consumer.is_task and producer in consumer.parents:
            yield consumer


def _if_different(fresh: list[str]) -> Decision:
    return Decision(decisions.REDO, f"if {some_of(fresh, _NAMED_MAX)} comes out differently", about=BEHIND)
