"""The loop around it all: start, wait, watch deadlines and signals, end. Prints nothing; observers are told.

run                  the caller's thread: nudges the first batch, then sleeps until nothing is left to do, and
                     looks now and then whether another process has recorded something
Considering          inside every commit: what may start (considering.py)
_make_ready          while the disk takes a batch: prepare what it starts, if that is a single attempt
_deliver             once a batch is durable: dispatch what it started, tell the observers
_work_on, _hand_in   worker threads: prepare, run the body (or take what a coroutine gave), judge, hand it in
Outcomes             inside a commit: what an attempt's end does (outcomes.py, entries.py)
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue

import msgspec

from holdfast import clock
from holdfast import events as ev
from holdfast.artifacts.keeping import LostValueError
from holdfast.context import ContextEndedError, current_task
from holdfast.engine import entries
from holdfast.engine.attempt import Attempt, Attempts, describe, discard_rest
from holdfast.engine.board import Asking, Board
from holdfast.engine.commit import Entry, Recorded
from holdfast.engine.considering import Considering, Judge
from holdfast.engine.coroutines import Coroutines
from holdfast.engine.deadlines import Deadlines
from holdfast.engine.outcomes import Outcomes
from holdfast.engine.pool import Pool
from holdfast.engine.standing import standing
from holdfast.engine.workers import Job, Workers
from holdfast.errors import HoldfastError, StorageError
from holdfast.executors.base import Call, Executor, InlineExecutor, Outcome
from holdfast.pipeline.graph import Graph
from holdfast.state import IN_PROGRESS

NAP_MAX_S = 0.5
ECHO_S = 0.05  # how much later than a step whose child it ended a signal may reach us

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
        process_executor: Callable[[], Executor],
        observers: Sequence[Observer],
    ) -> None:
        self.board = board
        self.committer = board.committer
        self.attempts = attempts
        self.observers = list(observers)
        self.interrupted = False
        self.trouble: StorageError | None = None  # what the machine did to one task, and not to the record
        self._looked_after = False  # files that were touched during the run
        self._budget_usd = limits.budget_usd
        self._grace_s = limits.grace_s
        self._outcomes = Outcomes(board, attempts.acceptance)
        self._considering = considering = Considering(
            board, judge, attempts, concurrency=limits.concurrency, budget_usd=limits.budget_usd
        )
        self._inline = InlineExecutor()
        self._pool = Pool(process_executor)
        self.context = contextvars.Context()  # in which the bodies of this run begin
        self._workers = Workers(
            self.committer.pump, self.committer.has_mail, self.context, fail=self.committer.fail
        )
        self._coroutines = Coroutines(
            board.compiled,
            self._workers,
            self.context,
            prepare=self._prepared,
            hand_in=self._hand_in,
            halt=self.halt,
        )
        self._deadlines = Deadlines()
        # SimpleQueue.put may be called from a signal handler; an Event may not.
        self._bell: SimpleQueue[None] = SimpleQueue()
        board.on_trouble = lambda error: self.halt(error, "work on")
        self.committer.on_batch = considering.advance
        self.committer.on_foreign = considering.heard
        self.committer.on_written = self._make_ready
        self.committer.on_durable = self._deliver

    @property
    def graph(self) -> Graph:
        return self.board.graph

    # --- the caller's thread -------------------------------------------------------------------------------

    def call_committer(self) -> None:
        """For coroutines: have a worker thread commit what is in the inbox."""
        self._workers.call_committer()

    def hear(self, events: Sequence[ev.Event]) -> None:
        """Record what somebody wants while the run goes on, and act on it."""
        self.committer.commit(entries.Heard(self._considering, events))

    def run(self) -> str:
        """Work until nothing more can be done; gives the run's status. Raises what the disk or a lock said.

        What the machine did to one task only is in `trouble`: then the record is whole, and says so.
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
            self._close()

    def stop(self) -> None:
        """Start nothing new; what runs may finish within the grace period. A second call ends that at once."""
        if self.interrupted:
            self._grace_s = 0.0
        self.board.stopping = True
        self.interrupted = True
        self._bell.put(None)

    def halt(self, error: OSError | StorageError, doing: str) -> StorageError:
        """The machine failed a task: start nothing new, and let what runs keep what it has been paid for."""
        told = error if isinstance(error, StorageError) else StorageError.from_os(error, doing)
        if self.committer.failed is None:  # else that came first
            self.trouble = self.trouble or told
        self.board.stopping = True
        self._bell.put(None)
        return told

    def _supervise(self) -> None:
        """Sleep until nothing is left to do, minding deadlines, delays and the grace period."""
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
            self._expire(clock.monotonic())
            if self.committer.exclusively(self._something_due):
                self.committer.commit(entries.Nudge())
        if self.committer.failed is not None:
            raise self.trouble or self.committer.failed  # the first: the second may be the same disk's

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
        deadline = self._deadlines.next_at()
        if deadline is not None:
            waits.append(deadline - now)
        due = None if self._starts_nothing() else self.board.scheduler.next_due(now)
        if due is not None:
            waits.append(due)
        return max(0.0, min(waits))

    def _stop(self) -> str:
        """End what still runs, and record how the run stands."""
        for attempt in (*self.board.running.values(), *self.board.overruns.values()):
            attempt.overran = True
            if attempt.ctx is not None:
                attempt.ctx.end("the run was stopped")
        self._coroutines.cancel_all()
        status, reason = IN_PROGRESS, "interrupted"
        if self.trouble is not None:
            reason = self.trouble.message
        elif not self.interrupted:
            status, reason = standing(self.board, budget_usd=self._budget_usd, looked_after=self._looked_after)
        self.committer.commit(entries.Ending(self._outcomes, status, reason))
        if self.committer.failed is not None:
            raise self.trouble or self.committer.failed
        return status

    def _close(self) -> None:
        self._workers.close()
        self._coroutines.close()
        self._pool.close()

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
        if starting:
            self._dispatch(starting)
        asking, self.board.to_ask = self.board.to_ask, []
        if asking:
            self._workers.add([functools.partial(self._ask, one) for one in asking])
        if any(type(one.event) is ev.TasksAdopted for one in recorded):
            recorded = list(_one_by_one(recorded))
        for observer in self.observers:
            observer(recorded)

    def _dispatch(self, starting: Sequence[Attempt]) -> None:
        jobs: list[Job] = []
        coroutines: list[Attempt] = []
        running = self.board.running
        for attempt in starting:
            node = attempt.node
            running[node.id] = attempt
            if node.spec.is_async:
                coroutines.append(attempt)
            else:
                jobs.append(functools.partial(self._work_on, attempt))
        if coroutines:
            self._coroutines.start(coroutines)
        self._workers.add(jobs)

    def _expire(self, now: float) -> None:
        """Declare sync bodies dead whose time is up. Their threads go on; their contexts do not.

        One that has ended has met its deadline, however long its checks take, or the commit before its own.
        """
        while (attempt := self._deadlines.take(now)) is not None:
            if (
                attempt.outcome is None
                and self.board.running.get(attempt.node.id) is attempt
                and not attempt.overran
            ):
                self.committer.commit(entries.Overdue(self._outcomes, attempt))

    # --- worker threads ------------------------------------------------------------------------------------

    def _work_on(self, attempt: Attempt) -> None:
        token = current_task.set(attempt.node.id)
        try:
            outcome = attempt.outcome = self._execute(attempt)
            self._workers.body_ended()
            if self.attempts.is_quick_to_judge(attempt, outcome) and self.committer.has_time():
                self.committer.commit(entries.Unjudged(self._judged, attempt, outcome))
            else:
                self._let_a_signal_in(outcome)
                self.committer.commit(self._judged(attempt, outcome))
        except BaseException as error:  # a mistake of ours: the run would wait for this attempt for ever
            self.committer.commit(entries.Broken(error))
        finally:
            current_task.reset(token)

    def _ask(self, asking: Asking) -> None:
        try:
            asking.reasons = self._considering.checklist(asking.phase)
            self._workers.body_ended()
            self.committer.commit(entries.Answered(self._considering, asking))
        except (OSError, StorageError) as error:
            self.halt(error, "read an input")
            self.committer.commit(entries.Unasked(self.board, asking))
        except BaseException as error:  # a mistake of ours
            self.committer.commit(entries.Broken(error))

    def _execute(self, attempt: Attempt) -> Outcome:
        try:
            call = self._prepared(attempt)
        except Exception as error:
            return Outcome(error=error)
        node = attempt.node
        if node.kind == "step" and node.spec.executor == "process":
            try:
                return self._pool.run(call)
            except StorageError as error:  # the system starts no process
                return Outcome(error=self.halt(error, "start"))
        if call.timeout:
            self._watch(attempt, call.timeout)
        return self._inline.run(call)

    def _watch(self, attempt: Attempt, timeout: float) -> None:
        """Its time runs from now on: the body begins, and its context, which could be ended, is there."""
        attempt.started = clock.monotonic()
        self._deadlines.add(attempt.started + timeout, attempt)
        self._bell.put(None)

    def _prepared(self, attempt: Attempt) -> Call:
        """The call with its inputs. One that the machine cannot read, or a mistake of ours, stops the run."""
        try:
            call = attempt.call or self.attempts.prepare(attempt)
        except (OSError, StorageError) as error:
            raise self.halt(error, "read an input") from error
        except (LostValueError, HoldfastError):
            raise
        except Exception as error:
            self.committer.fail(error)
            raise
        if attempt.overran or self.committer.failed is not None or self.trouble is not None:
            raise ContextEndedError("the run has ended")  # nobody could record what this body is paid for
        return call

    def _judged(self, attempt: Attempt, outcome: Outcome) -> Entry:
        """What an outcome comes to, as an entry. Whatever goes wrong here stops the run, and is told."""
        entry = self._entry_of(attempt, outcome)
        discard_rest(attempt)
        return entry

    def _entry_of(self, attempt: Attempt, outcome: Outcome) -> Entry:
        # After a failure, or the end of the run, an output could no longer be recorded: so none is written.
        stopped = outcome.cancelled and self.board.stopping
        if attempt.overran or stopped or self.committer.failed is not None:
            return entries.Late(self._outcomes, attempt)
        if (self.interrupted or self.trouble is not None) and outcome.broke_off:
            assert outcome.error is not None
            return entries.CutOff(self._outcomes, attempt, describe(outcome.error))
        try:
            if attempt.ctx is not None and attempt.ctx.hit is not None:  # whatever its body made of that
                raise attempt.ctx.hit
            verdict = self.attempts.judge_outcome(attempt, outcome)
        except ContextEndedError:  # by the end of the run, while it was being checked
            return entries.Late(self._outcomes, attempt)
        except (OSError, StorageError) as error:
            return entries.CutOff(self._outcomes, attempt, self.halt(error, "work on").message)
        except BaseException as error:
            self.committer.fail(error)  # at once: the commit to come must not mask it
            return entries.Broken(error)
        return entries.Report(self._outcomes, attempt, verdict, outcome.duration)

    def _let_a_signal_in(self, outcome: Outcome) -> None:
        """Ctrl-C in a terminal also ends what steps have started there, and that may be heard of first."""
        if not self.interrupted and outcome.broke_off:
            clock.sleep(ECHO_S)

    def _hand_in(self, ended: Sequence[Attempt]) -> None:
        """Judge what ran on the loop, in a worker: what went well is one batch, what failed another."""
        through = [(attempt, attempt.outcome) for attempt in ended if attempt.outcome is not None]
        failed = [(attempt, outcome) for attempt, outcome in through if outcome.broke_off]
        self._hand_in_all([pair for pair in through if not pair[1].broke_off])
        if failed:
            self._let_a_signal_in(failed[0][1])
            self._hand_in_all(failed)

    def _hand_in_all(self, through: Sequence[tuple[Attempt, Outcome]]) -> None:
        for attempt, outcome in through:
            token = current_task.set(attempt.node.id)
            self.committer.submit(self._judged(attempt, outcome))
            current_task.reset(token)
        self.committer.pump()


def _one_by_one(recorded: Sequence[Recorded]) -> Iterator[Recorded]:
    """What was recorded, and of tasks that were adopted together each: nobody else need know of that."""
    for one in recorded:
        if type(one.event) is ev.TasksAdopted:
            yield from [Recorded(one.at, adopted) for adopted in one.event.tasks]
        else:
            yield one
