"""The loop around it all: start, wait, watch the clock and signals, end. Prints nothing; observers are told.

run                  the caller's thread: nudges the first batch, then sleeps until nothing is left to do, and
                     looks now and then whether another process has recorded something
StartingPass         inside every commit: what may start (starting.py)
_make_ready          while the disk takes a batch: prepare what it starts, if that is a single attempt
_deliver             once a batch is durable: begin what it started, tell the observers
Bodies               threads prepare calls and submit them, judge what came of them, and commit (bodies.py)
Outcomes             inside a commit: what an attempt's end does (outcomes.py, entries.py)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue

import msgspec

from holdfast import clock
from holdfast import events as ev
from holdfast.engine import entries
from holdfast.engine.advance import Judge
from holdfast.engine.attempt import Attempt, Attempts
from holdfast.engine.board import Asking, Board
from holdfast.engine.bodies import Bodies
from holdfast.engine.commit import Recorded
from holdfast.engine.outcomes import Outcomes
from holdfast.engine.standing import standing
from holdfast.engine.starting import StartingPass
from holdfast.errors import StorageError
from holdfast.pipeline.graph import Graph
from holdfast.state import IN_PROGRESS

NAP_MAX_S = 0.5

Observer = Callable[[Sequence[Recorded]], None]


class Limits(msgspec.Struct, frozen=True):
    """How much may go on, and for how long."""

    concurrency: int = 8
    budget_usd: float | None = None
    grace_s: float = 10.0


class Runner:
    """Runs one run to its end, or as far as it can go now."""

    def __init__(
        self,
        board: Board,
        *,
        judge: Judge,
        attempts: Attempts,
        limits: Limits,
        reference: str,
        observers: Sequence[Observer],
    ) -> None:
        self.board = board
        self.committer = board.committer
        self.attempts = attempts
        self.observers = list(observers)
        self._looked_after = False  # files that were touched during the run
        self._budget_usd = limits.budget_usd
        self._grace_s = limits.grace_s
        self._outcomes = Outcomes(board, attempts.acceptance)
        self._pass = passing = StartingPass(
            board, judge, attempts, concurrency=limits.concurrency, budget_usd=limits.budget_usd
        )
        self.bodies = Bodies(board, attempts, self._outcomes, width=limits.concurrency, reference=reference)
        # SimpleQueue.put may be called from a signal handler; an Event may not.
        self._bell: SimpleQueue[None] = SimpleQueue()
        board.on_halt = lambda: self._bell.put(None)
        self.committer.on_batch = passing.advance
        self.committer.on_foreign = passing.heard
        self.committer.on_written = self._make_ready
        self.committer.on_durable = self._deliver

    @property
    def graph(self) -> Graph:
        return self.board.graph

    # --- the caller's thread -------------------------------------------------------------------------------

    def hear(self, events: Sequence[ev.Event]) -> None:
        """Record what somebody wants while the run goes on, and act on it."""
        self.committer.commit(entries.Heard(self._pass, events))

    def run(self) -> str:
        """Work until nothing more can be done; gives the run's status. Raises what the disk or a lock said.

        What the machine did to one task only is in `board.trouble`: then the record is whole, and says so.
        """
        try:
            self.committer.commit(entries.Nudge())
            self._supervise()
            if not self._starts_nothing() and self.committer.exclusively(self.board.look_at_touched):
                self._looked_after = True
                self.committer.commit(entries.Nudge())
                self._supervise()
            return self._stop()
        finally:
            self.bodies.close()

    def stop(self) -> None:
        """Start nothing new; what runs may finish within the grace period. A second call ends that at once."""
        if self.board.interrupted:
            self._grace_s = 0.0
        self.board.stopping = True
        self.board.interrupted = True
        self._bell.put(None)

    def _supervise(self) -> None:
        """Sleep until nothing is left to do, minding delays and the grace period."""
        give_up_at: float | None = None
        while not self.committer.exclusively(self._finished):
            now = clock.monotonic()
            if self.board.stopping or self.committer.exclusively(self._only_overruns):
                give_up_at = min(give_up_at or now + self._grace_s, now + self._grace_s)
                if now >= give_up_at:
                    break
            else:
                give_up_at = None
            self._sleep(self.committer.exclusively(lambda: self._patience(now, give_up_at)))  # noqa: B023
            if self.committer.exclusively(self._something_due):
                self.committer.commit(entries.Nudge())
        if self.committer.failed is not None:
            raise self.board.trouble or self.committer.failed  # the first: the second may be the same disk's

    def _sleep(self, seconds: float) -> None:
        try:
            self._bell.get(timeout=seconds)
            while True:
                self._bell.get_nowait()
        except Empty:
            pass

    def _starts_nothing(self) -> bool:
        return self.board.stopping or self.board.over_budget

    def _something_due(self) -> bool:
        """Whether time has passed that something waited for, or a person has spoken."""
        if self.committer.has_news():
            return True
        due = self.board.scheduler.next_due(clock.monotonic())
        return due is not None and due <= 0.001 and not self._starts_nothing()

    def _finished(self) -> bool:
        if self.committer.failed is not None:
            return True
        # Another thread may lead, and not have come to what we submitted: then nothing was considered yet.
        if self.committer.pending or not self.board.is_idle():
            return False
        return self._starts_nothing() or not self.board.scheduler.has_work()

    def _only_overruns(self) -> bool:
        """Whether nothing but bodies that are overdue keeps the run from its end."""
        board = self.board
        if not board.overruns or board.running or board.starting or board.asked:
            return False
        return self._starts_nothing() or not board.scheduler.has_work()

    def _patience(self, now: float, give_up_at: float | None) -> float:
        """How long the caller's thread may sleep."""
        # Never for long: a signal that comes just before the sleep begins does not end it.
        waits = [NAP_MAX_S] if give_up_at is None else [NAP_MAX_S, give_up_at - now]
        due = None if self._starts_nothing() else self.board.scheduler.next_due(now)
        if due is not None:
            waits.append(due)
        return max(0.0, min(waits))

    def _stop(self) -> str:
        """End what still runs, and record how the run stands."""
        self.bodies.stop((*self.board.running.values(), *self.board.overruns.values()))
        status, reason = IN_PROGRESS, "interrupted"
        if self.board.trouble is not None:
            reason = self.board.trouble.message
        elif not self.board.interrupted:
            status, reason = standing(self.board, budget_usd=self._budget_usd, looked_after=self._looked_after)
        self.committer.commit(entries.Ending(self._outcomes, status, reason))
        if self.committer.failed is not None:
            raise self.board.trouble or self.committer.failed
        return status

    # --- once a batch is written, and once it is durable ---------------------------------------------------

    def _make_ready(self) -> None:
        """Prepare the one attempt that this batch starts, as in a chain, while the disk takes the batch.

        Of several, each thread prepares its own; and nothing that takes long may keep others from the sync.
        """
        starting = self.board.starting
        if len(starting) == 1 and self.attempts.inputs.are_at_hand(starting[0].node):
            self.committer.begin_sync()
            self.attempts.prepare_ahead(starting[0])

    def _deliver(self, recorded: Sequence[Recorded]) -> None:
        board = self.board
        starting, board.starting = board.starting, []
        if self.committer.failed is None:
            try:
                self._pass_on(starting, recorded)
            except BaseException as error:
                self.committer.fail(error)  # no descriptor, say: what was to begin would be waited for for ever
        if self.committer.failed is not None or not board.running or board.stopping or board.scheduler.timed:
            self._bell.put(None)

    def _pass_on(self, starting: Sequence[Attempt], recorded: Sequence[Recorded]) -> None:
        for attempt in starting:
            self.board.running[attempt.node.id] = attempt
        self.bodies.begin(starting)
        asking, self.board.to_ask = self.board.to_ask, []
        for one in asking:
            self.bodies.threads.run(partial(self._ask, one))
        for observer in self.observers:
            observer(recorded)

    def _ask(self, asking: Asking) -> None:
        try:
            asking.reasons = self._pass.checklist(asking.phase)
            self.bodies.threads.almost_done()
            self.committer.commit(entries.Answered(self._pass, asking))
        except (OSError, StorageError) as error:
            self.board.halt(error, "read an input")
            self.committer.commit(entries.Unasked(self.board, asking))
        except BaseException as error:  # a mistake of ours
            self.committer.commit(entries.Broken(error))
