"""The pass that starts what is open: inside every commit, as far as there is room.

advance
  Pass.consider      a node whose producers are all through (advance.py)
  _rewind_due        what was sent back runs again when its started consumers have ended
  _start             record the start; the attempt is dispatched once the batch is durable
"""

from __future__ import annotations

from holdfast import clock, decisions
from holdfast import events as ev
from holdfast.artifacts.keeping import LostValueError
from holdfast.artifacts.parts import Ingredients, digest_of_given
from holdfast.artifacts.remembering import Remembering
from holdfast.decisions import Decision
from holdfast.engine.advance import Judge, Pass
from holdfast.engine.attempt import Attempt, Attempts
from holdfast.engine.board import Asking, Board
from holdfast.engine.scheduler import Scheduler
from holdfast.engine.survey import Survey
from holdfast.errors import StorageError
from holdfast.pipeline.compiling import Check
from holdfast.pipeline.nodes import Node
from holdfast.state import fits


class StartingPass(Pass):
    """Moves the scheduler on, one batch at a time."""

    def __init__(
        self, board: Board, judge: Judge, attempts: Attempts, *, concurrency: int, budget_usd: float | None
    ) -> None:
        super().__init__(board.inputs, judge)
        self.board = board
        self.attempts = attempts
        self.remembering = Remembering(board.inputs)
        self.concurrency = concurrency
        self.budget_usd = budget_usd
        self._is_first = True  # nothing was looked at yet, and nothing has started
        self._survey: Survey | None = Survey() if board.state.tasks else None  # of a run that is continued

    @property
    def scheduler(self) -> Scheduler:
        return self.board.scheduler

    def record(self, event: ev.Event) -> None:
        self.board.committer.record(event)

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
        if self._is_first:
            self.look_behind()
            self._is_first = False
        if self._survey is not None:
            self._tell_survey(self._survey)
        self._start_some(now)

    def _tell_survey(self, survey: Survey) -> None:
        """Once, when all that can be looked at before anything runs was looked at."""
        self._survey = None
        if survey.is_news and not self.board.state.rebuilt:
            self.record(survey.told(self.board.state))

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
            self.consider(node)
        except (OSError, StorageError) as error:
            if self._is_first:  # nothing was done yet
                raise
            self.board.halt(error)

    # --- what is done about each -----------------------------------------------------------------------------

    def tell(self, node: Node, decision: Decision, *, was_completed: bool) -> None:
        if self._survey is not None:
            self._survey.add(node, decision, was_completed)

    def through(self, node: Node) -> None:
        self.board.through(node)

    def wait(self, node: Node) -> None:
        self.scheduler.hold(node)

    def send_back(self, node: Node) -> None:
        self.scheduler.recall(node)

    def join(self, node: Node) -> None:
        if node.kind == "page":
            self._turn(node)
        elif node.kind == "order":
            self.board.on_order()
        self.scheduler.settle(node)

    def _turn(self, page: Node) -> None:
        """A memory file gets the sections that are due."""
        for event in self.remembering.turn(page):
            self.record(event)
            if self._survey is not None:
                self._survey.take(event)

    def open(self, node: Node, decision: Decision, made_of: Ingredients) -> None:
        board, scheduler = self.board, self.scheduler
        if node.id in board.state.once:
            self._forget_calls(node, made_of)
        board.prepared[node.id] = (made_of, decision.partial)
        half = decision.action in decisions.AGAIN or board.state.task(node.id).cut_off
        if node.id in scheduler.due:  # considered for another reason: its delay is not over
            scheduler.delay(node, scheduler.due[node.id])
        else:
            scheduler.enqueue(node, half=half)

    def _forget_calls(self, node: Node, made_of: Ingredients) -> None:
        """Begin a new round if the paid calls of this one were made for other inputs: they answer nothing now."""
        if self.board.state.task(node.id).before is not None:  # until it begins: its inputs may come back
            return
        others = [call for call in self.board.state.once[node.id].values() if not fits(call, made_of.digest)]
        before = self.inputs.earlier_digest(node, made_of.parts) if others else ""
        if not all(fits(call, before) for call in others):
            record = self.board.state.task(node.id)
            counted = record.failures if record.failed_on == digest_of_given(made_of.parts) else 0
            reason = "what its paid calls were made from has changed"
            self.record(ev.TaskInvalidated(step_id=node.id, reason=reason, failures=counted))

    def lost_producers(self, node: Node) -> list[Node]:
        lost = super().lost_producers(node)
        if self.inputs.artifacts.files.has_large:  # a text is proved when it is loaded, and comes from its copy
            lost += [producer for producer, _ in self.inputs.spoiled(node)]
        return lost

    def stop_at(self, gate: Node) -> None:
        if self.state.gates.get(gate.id) != "reached":
            self.record(ev.GateReached(step_id=gate.id, ask=gate.spec.ask))
        self.scheduler.hold(gate)

    def enter(self, phase: Node) -> None:
        board = self.board
        if self.state.phases.get(phase.id) == "approved" or phase.spec.name not in board.compiled.checklists:
            self.begin(phase)
        elif not board.stopping and not self.wants_back(phase):
            phase.queued = True
            board.asked[phase.id] = asking = Asking(phase)
            board.to_ask.append(asking)

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
            self.record(ev.ChecklistRefused(step_id=node.id, reasons=asking.reasons))
            board.scheduler.hold(node)
        else:
            self.begin(node)

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
                self.record(ev.TaskRewound(step_id=node.id, feedback=feedback))
            board.scheduler.rewound(node)

    def _start(self, node: Node) -> None:
        board = self.board
        record = board.state.task(node.id)
        number = record.attempt + 1
        made_of, partial = board.prepared.pop(node.id)
        parents = tuple([parent.id for parent in node.parents])
        first = parents[0] if parents else ""
        self.record(
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
