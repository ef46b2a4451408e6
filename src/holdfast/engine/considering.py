"""Inside every commit: consider what came through, start what there is room for.

advance
  _consider          a node whose producers are all through
    _consider_task   ask the judge; trust it, hold it, or queue it
    _consider_gate   a person's word
    _consider_phase  the hand-off checklist, which is asked outside the commit
  _rewind_due        what was sent back runs again when its started consumers have ended
  _start             record the start; the attempt is dispatched once the batch is durable
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Protocol

from holdfast import clock, decisions
from holdfast import events as ev
from holdfast.artifacts.keeping import LostValueError
from holdfast.artifacts.parts import Ingredients, digest_of_given
from holdfast.artifacts.remembering import Remembering
from holdfast.decisions import Decision
from holdfast.engine.attempt import Attempt, Attempts
from holdfast.engine.board import Asking, Board
from holdfast.engine.scheduler import skipped_producer
from holdfast.engine.survey import Survey
from holdfast.errors import StorageError
from holdfast.pipeline.compiling import Check
from holdfast.pipeline.nodes import OPEN, SETTLE, SKIPPED, Node
from holdfast.state import COMPLETED, RunState, TaskState, fits
from holdfast.state import SKIPPED as STATUS_SKIPPED


class Judge(Protocol):
    """Decides about one task from record and files. Recovery has the real one."""

    @property
    def lacking(self) -> Collection[str]: ...

    def decide(self, node: Node, made_of: Ingredients) -> Decision: ...

    def reinstate(self, node: Node, made_of: Ingredients) -> Iterable[ev.Event]: ...

    def bring_home(self, node: Node) -> Iterable[ev.Event]: ...

    def apply(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterable[ev.Event]: ...

    def is_proved(self, node: Node) -> bool: ...

    def want(self, node: Node) -> bool: ...


class Considering:
    """Moves the scheduler on, one batch at a time."""

    def __init__(
        self, board: Board, judge: Judge, attempts: Attempts, *, concurrency: int, budget_usd: float | None
    ) -> None:
        self.board = board
        self.judge = judge
        self.attempts = attempts
        self.remembering = Remembering(board.inputs)
        self.concurrency = concurrency
        self.budget_usd = budget_usd
        self._is_first = True  # nothing was looked at yet, and nothing has started
        self._artifacts = board.inputs.artifacts
        self._survey: Survey | None = Survey() if board.state.tasks else None  # of a run that is continued

    def advance(self) -> None:
        """Bring everything as far as it can go now."""
        scheduler = self.board.scheduler
        now = clock.monotonic()
        scheduler.release_due(now)
        while True:
            while scheduler.to_consider:
                self._look_at(scheduler.to_consider.popleft())
            if scheduler.recalled:
                self._rewind_due()
            if not scheduler.to_consider:
                break
        self._is_first = False
        if self._survey is not None:
            self._tell_survey(self._survey)
        self._start_some(now)

    def _tell_survey(self, survey: Survey) -> None:
        """Once, when all that can be looked at before anything runs was looked at."""
        self._survey = None
        if survey.is_news and not self.board.state.rebuilt:
            self.board.committer.record(survey.told(self.board.state))

    def _start_some(self, now: float) -> None:
        board = self.board
        room = self.concurrency - len(board.running) - len(board.starting)
        while room > 0 and not board.stopping:
            if self.budget_usd is not None and self._budget_reached(self.budget_usd):
                return
            node = board.scheduler.take(now)
            if node is None:
                return
            self._start(node)
            room -= 1

    def _budget_reached(self, budget: float) -> bool:
        if self.board.state.cost_usd >= budget and self.board.scheduler.has_work():
            self.board.over_budget = True
        return self.board.over_budget

    def _look_at(self, node: Node) -> None:
        """Consider a node. If the machine fails at that, what others have done, or are at, is recorded first.

        What was recorded of the node until then is true, and the next run looks at it afresh.
        """
        try:
            self._consider(node)
        except (OSError, StorageError) as error:
            if self._is_first:  # nothing was done yet
                raise
            self.board.halt(error)

    def _consider(self, node: Node) -> None:
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
            self._pass(node)

    def _pass(self, node: Node) -> None:
        """A virtual node: what it stands for is through."""
        if node.kind == "page":
            self._turn(node)
        elif node.kind == "order":
            self.board.on_order()
        self.board.scheduler.settle(node)

    def _turn(self, page: Node) -> None:
        """A memory file gets the sections that are due."""
        for event in self.remembering.turn(page):
            self.board.committer.record(event)
            if self._survey is not None:
                self._survey.take(event)

    def _consider_task(self, node: Node) -> None:
        board, state = self.board, self.board.state
        if node.id in state.recalls:  # sent back before this process began, or before the node was made
            board.scheduler.recall(node)
            return
        skipped = skipped_producer(node)
        if skipped:
            self._skip(node, skipped)
            return
        made_of = board.inputs.ingredients(node)
        if node.id in state.tasks:  # nothing else can count again, or be elsewhere
            for event in self.judge.reinstate(node, made_of):
                board.committer.record(event)
            for event in self.judge.bring_home(node):
                board.committer.record(event)
        decision = self.judge.decide(node, made_of)
        if self._survey is not None:
            self._survey.add(node, decision, state.task(node.id).status == COMPLETED)
        for event in self.judge.apply(node, decision, made_of):
            board.committer.record(event)
        self._act(node, decision, made_of)

    def _skip(self, node: Node, because_of: str) -> None:
        if self.board.state.task(node.id).status != STATUS_SKIPPED:
            self.board.committer.record(ev.TaskSkipped(step_id=node.id, reason=f"{because_of} was skipped"))
        self.board.scheduler.settle(node, SKIPPED)

    def _act(self, node: Node, decision: Decision, made_of: Ingredients) -> None:
        """Move the scheduler as the decision and the state it left say."""
        board, scheduler = self.board, self.board.scheduler
        record = board.state.task(node.id)
        if decision.action in decisions.WAITS:
            scheduler.hold(node)
        elif record.status == COMPLETED:
            board.through(node)
        elif record.status == STATUS_SKIPPED:
            scheduler.settle(node, SKIPPED)
        elif self._wants_back(node):
            pass  # considered again when what it takes is through again
        else:
            if node.id in board.state.once:
                self._forget_calls(node, made_of)
            board.prepared[node.id] = (made_of, decision.partial)
            half = decision.action in decisions.AGAIN or record.cut_off
            if node.id in scheduler.due:  # considered for another reason: its delay is not over
                scheduler.delay(node, scheduler.due[node.id])
            else:
                scheduler.enqueue(node, half=half)

    def _forget_calls(self, node: Node, made_of: Ingredients) -> None:
        """Begin a new round if the paid calls of this one were made for other inputs: they answer nothing now."""
        if self.board.state.task(node.id).before is not None:  # until it begins: its inputs may come back
            return
        others = [call for call in self.board.state.once[node.id].values() if not fits(call, made_of.digest)]
        before = self.board.inputs.earlier_digest(node, made_of.parts) if others else ""
        if not all(fits(call, before) for call in others):
            record = self.board.state.task(node.id)
            counted = record.failures if record.failed_on == digest_of_given(made_of.parts) else 0
            reason = "what its paid calls were made from has changed"
            self.board.committer.record(ev.TaskInvalidated(step_id=node.id, reason=reason, failures=counted))

    def _wants_back(self, node: Node) -> bool:
        """Whether what is to run, or to be asked, takes something that is lost: then that comes back first."""
        has_large = self._artifacts.files.has_large
        if not self.judge.lacking and not has_large:
            return False
        inputs = self.board.inputs
        lost = [producer for producer in inputs.producers(node) if self.judge.want(producer)]
        if has_large:  # a text is proved when it is loaded, and comes from its copy if it must
            lost += [producer for producer, _ in inputs.spoiled(node)]
        for producer in dict.fromkeys(lost):
            self.board.scheduler.release(producer)
        return bool(lost)

    def _consider_gate(self, node: Node) -> None:
        standing = self.board.state.gates.get(node.id)
        if standing == "approved":
            self.board.scheduler.settle(node)
            return
        if standing is None and was_passed(node, self.board.state, self.judge.is_proved):
            self.board.committer.record(ev.GateApproved(step_id=node.id, by="a finished task behind it"))
            self.board.scheduler.settle(node)
            return
        if standing != "reached":
            self.board.committer.record(ev.GateReached(step_id=node.id, ask=node.spec.ask))
        self.board.scheduler.hold(node)

    def _consider_phase(self, node: Node) -> None:
        board = self.board
        standing = board.state.phases.get(node.id)
        if standing == "started":
            board.scheduler.settle(node)
        elif standing == "approved" or node.spec.name not in board.compiled.checklists:
            self._start_phase(node)
        elif not board.stopping and not self._wants_back(node):
            node.queued = True
            board.asked[node.id] = asking = Asking(node)
            board.to_ask.append(asking)

    def _start_phase(self, node: Node) -> None:
        self.board.committer.record(ev.PhaseStarted(step_id=node.id))
        self.board.scheduler.settle(node)

    def answered(self, asking: Asking) -> None:
        """A checklist was asked. What was opened again meanwhile is asked again when that is through."""
        board, node = self.board, asking.phase
        if board.asked.get(node.id) is not asking:
            return
        del board.asked[node.id]
        if not node.queued or board.graph.nodes.get(node.id) is not node:
            return
        node.queued = False
        if asking.reasons and board.state.phases.get(node.id) != "approved":
            board.committer.record(ev.ChecklistRefused(step_id=node.id, reasons=asking.reasons))
            board.scheduler.hold(node)
        else:
            self._start_phase(node)

    def checklist(self, node: Node) -> tuple[str, ...]:
        """What a phase's checklist objects to. Asked by a worker thread, outside the commit: it may take long."""
        checks = self.board.compiled.checklists[node.spec.name]
        objections = (self._objection(check, node) for check in checks)
        return tuple(objection for objection in objections if objection)

    def _objection(self, check: Check, phase: Node) -> str:
        try:
            return self.attempts.run_checks((check,), phase, None, None)
        except LostValueError as error:  # since it was looked at, a moment ago: nobody can say yes to it
            return str(error)

    def _rewind_due(self) -> None:
        board = self.board
        for node in board.scheduler.recalls_due():
            recall = board.state.recalls.get(node.id)
            if recall is not None:
                feedback = tuple(text for text in recall.feedback if text)
                board.committer.record(ev.TaskRewound(step_id=node.id, feedback=feedback))
            board.scheduler.rewound(node)

    def _start(self, node: Node) -> None:
        board = self.board
        record = board.state.task(node.id)
        number = record.attempt + 1
        made_of, partial = board.prepared.pop(node.id)
        parents = tuple([parent.id for parent in node.parents])
        first = parents[0] if parents else ""
        board.committer.record(
            ev.NodeEntered(
                step_id=node.id,
                node=node.spec.name,
                parent_id=first,
                parents=parents,
                round=record.round,
                attempt=number,
                partial_chars=len(partial or ""),
            )
        )
        board.starting.append(Attempt(node, number, record.round, made_of.digest, made_of.parts, partial, first))

    def heard(self, event: object) -> None:
        """Another process recorded something: a person approved, rejected or asked for another try."""
        if isinstance(event, ev.GateApproved):
            self.board.release(event.step_id)
        elif isinstance(event, ev.Decided):
            self.board.look_again(event.step_id)
        elif isinstance(event, ev.RetryRequested):
            for task in event.step_ids:
                self.board.release(task)
        elif isinstance(event, ev.RewindRequested):
            self.board.recall(event.targets)
            self.board.ask_again(event.step_id)


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
