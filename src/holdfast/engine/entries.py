"""What goes into the committer's inbox, and what each entry does inside its batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast import events as ev
from holdfast.engine.attempt import Attempt, Verdict
from holdfast.engine.board import Asking, Board
from holdfast.engine.commit import Entry
from holdfast.engine.outcomes import Outcomes
from holdfast.engine.starting import StartingPass
from holdfast.executors.protocol import Outcome
from holdfast.state import COMPLETED


class Nudge(Entry):
    """Makes a batch happen, so that what became due is considered and started."""


class Heard(Entry):
    """What somebody wants, noticed by this process itself: recorded, and acted on as if another had done so."""

    def __init__(self, passing: StartingPass, events: Sequence[ev.Event]) -> None:
        self.passing, self.events = passing, events

    def apply(self) -> None:
        for event in self.events:
            self.passing.board.committer.record(event)
            self.passing.heard(event)


class Unjudged(Entry):
    """How an attempt ended, to be judged by whoever leads the commit."""

    __slots__ = ("attempt", "judge", "judged", "outcome")

    def __init__(self, judge: Callable[[Attempt, Outcome], Entry], attempt: Attempt, outcome: Outcome) -> None:
        self.judge = judge
        self.attempt = attempt
        self.outcome = outcome

    def ready(self) -> None:
        self.judged = self.judge(self.attempt, self.outcome)

    def apply(self) -> None:
        self.judged.apply()

    def done(self, error: BaseException | None) -> None:
        self.judged.done(error)


class Report(Entry):
    """An attempt's verdict, on its way into the journal."""

    __slots__ = ("attempt", "duration", "outcomes", "verdict")

    def __init__(self, outcomes: Outcomes, attempt: Attempt, verdict: Verdict, duration: float) -> None:
        self.outcomes = outcomes
        self.attempt = attempt
        self.verdict = verdict
        self.duration = duration

    def apply(self) -> None:
        verdict = self.verdict
        if not self.outcomes.end(self.attempt):
            self.outcomes.withdraw(verdict)
            self.outcomes.came_back(self.attempt)  # its time ran out just as it ended
            return
        if verdict.offer is not None:
            self.outcomes.accept(self.attempt, verdict)
        elif verdict.rewind is not None:
            self.outcomes.send_back(self.attempt, verdict.rewind, self.duration)
        else:
            self.outcomes.fail(self.attempt, verdict, self.duration)

    def done(self, error: BaseException | None) -> None:
        if error is not None:
            self.outcomes.withdraw(self.verdict)


class Overdue(Entry):
    """The time of a sync body is up."""

    def __init__(self, outcomes: Outcomes, attempt: Attempt) -> None:
        self.outcomes, self.attempt = outcomes, attempt

    def apply(self) -> None:
        self.outcomes.overrun(self.attempt)


class Late(Entry):
    """A body that ended after it had been declared dead, or was cancelled by a stop."""

    durable = False

    def __init__(self, outcomes: Outcomes, attempt: Attempt) -> None:
        self.outcomes, self.attempt = outcomes, attempt

    def apply(self) -> None:
        self.outcomes.came_back(self.attempt)


class CutOff(Entry):
    """A body that met an error of the machine, or any while the run was being stopped: told, not counted."""

    def __init__(self, outcomes: Outcomes, attempt: Attempt, error: str) -> None:
        self.outcomes, self.attempt, self.error = outcomes, attempt, error

    def apply(self) -> None:
        self.outcomes.board.committer.record(ev.CutOff(step_id=self.attempt.node.id, error=self.error))
        self.outcomes.came_back(self.attempt)


class Answered(Entry):
    """What a phase's checklist said."""

    def __init__(self, passing: StartingPass, asking: Asking) -> None:
        self.passing, self.asking = passing, asking

    def apply(self) -> None:
        self.passing.answered(self.asking)


class Unasked(Entry):
    """A phase's checklist could not be asked: the next run asks it."""

    def __init__(self, board: Board, asking: Asking) -> None:
        self.board, self.asking = board, asking

    def apply(self) -> None:
        self.board.asked.pop(self.asking.phase.id, None)


class Broken(Entry):
    """Something of ours failed while an outcome was judged: the run stops."""

    durable = False

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def apply(self) -> None:
        raise self.error


class Ending(Entry):
    """The last entry of a run."""

    def __init__(self, outcomes: Outcomes, status: str, reason: str) -> None:
        self.outcomes, self.status, self.reason = outcomes, status, reason

    def apply(self) -> None:
        self.outcomes.give_up_overruns()
        if self.status == COMPLETED:
            self.outcomes.let_orphans_go()
        self.outcomes.board.stopping = True
        self.outcomes.board.committer.record(ev.RunStopped(status=self.status, reason=self.reason))
