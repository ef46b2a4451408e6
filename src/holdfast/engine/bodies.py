"""The bodies of a run: each is prepared and goes to its executor; what came of it is judged, and handed in.

_begin       a thread prepares calls, and submits them to the executor of their step
_overdue     the time of a body is up that cannot be ended
_ended       it has ended, and a thread is told
_hand_in     judges that, and has it committed; of coroutines, all that end meanwhile in one batch
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Sequence
from functools import partial

from holdfast import clock
from holdfast.artifacts.keeping import LostValueError
from holdfast.context import current_task
from holdfast.engine import entries
from holdfast.engine.attempt import Attempt, Attempts, describe
from holdfast.engine.board import Board
from holdfast.engine.commit import Entry
from holdfast.engine.outcomes import Outcomes
from holdfast.errors import HoldfastError, StorageError
from holdfast.executors.protocol import Call, Executor, Outcome
from holdfast.executors.threads import ThreadExecutor
from holdfast.host import ContextEndedError

ECHO_S = 0.05  # how much later than a step whose child it ended a signal may reach us


class Bodies:
    """Begins the attempts of one run, and hands in how they ended."""

    def __init__(
        self, board: Board, attempts: Attempts, outcomes: Outcomes, *, width: int, reference: str
    ) -> None:
        self.board = board
        self.committer = board.committer
        self.attempts = attempts
        self.context = contextvars.Context()  # in which each of the bodies begins
        self.threads = ThreadExecutor(width, self.context, fail=self.committer.fail)
        self._outcomes = outcomes
        self._reference = reference  # FILE.py:NAME, by which worker processes load the pipeline
        self._executors: dict[str, Executor] = {"thread": self.threads}
        self._has_called_committer = False
        self._failed: list[Attempt] = []  # coroutines, on their way to a thread that hands them in
        self._hands_in_failed = False
        self._mutex = threading.Lock()

    def begin(self, starting: Sequence[Attempt]) -> None:
        """Have threads prepare these: one for all coroutines, and of the others one for each."""
        coroutines = [attempt for attempt in starting if attempt.node.spec.is_async]
        if coroutines:
            self.threads.run(partial(self._begin, self._executor_of(coroutines[0]), coroutines))
        for attempt in starting:
            if not attempt.node.spec.is_async:
                self.threads.run(partial(self._begin, self._executor_of(attempt), (attempt,)))

    def stop(self, attempts: Sequence[Attempt]) -> None:
        """Nothing more is recorded of these; those that can be ended are."""
        for attempt in attempts:
            attempt.overran = True
            if attempt.host is not None:
                attempt.host.end("the run was stopped")
            if attempt.handle is not None:
                attempt.handle.cancel()

    def close(self) -> None:
        for executor in self._executors.values():
            executor.close()

    def call_committer(self) -> None:
        """For coroutines: have a thread commit what is in the inbox."""
        if not self._has_called_committer:
            self._has_called_committer = True
            self.threads.run(self._pump)

    def _pump(self) -> None:
        self._has_called_committer = False
        self.threads.almost_done()
        self.committer.pump()

    def _executor_of(self, attempt: Attempt) -> Executor:
        """The one in which its body runs, made when the first needs it."""
        node = attempt.node
        kind = node.spec.executor if node.kind == "step" else "thread"
        kind = "loop" if node.spec.is_async else kind
        if kind not in self._executors:
            self._executors[kind] = self._made(kind)
        return self._executors[kind]

    def _made(self, kind: str) -> Executor:
        if kind == "loop":
            from holdfast.executors.loop import LoopExecutor  # asyncio is loaded only where steps use it

            return LoopExecutor(self.threads, self.context, told=self.committer.pump)
        from holdfast.executors.processes import ProcessExecutor

        return ProcessExecutor(self.threads, self._reference)

    # --- in threads ----------------------------------------------------------------------------------------

    def _begin(self, executor: Executor, attempts: Sequence[Attempt]) -> None:
        """Prepare these attempts, then submit them: in one go, so that a loop wakes up once for all."""
        self.threads.almost_done()
        for attempt, call in [(attempt, self._ready(attempt)) for attempt in attempts]:
            if call is not None:
                attempt.handle = handle = executor.submit(call, attempt.host)
                handle.done(partial(self._ended, attempt), partial(self._overdue, attempt))

    def _ready(self, attempt: Attempt) -> Call | None:
        """The call, prepared; None if there is none, and the attempt has ended with that."""
        token = current_task.set(attempt.node.id)
        try:
            return self._prepared(attempt)
        except Exception as error:
            attempt.outcome = Outcome(error=error)
            self._hand_in(attempt, attempt.outcome)
            return None
        finally:
            current_task.reset(token)

    def _overdue(self, attempt: Attempt) -> None:
        """Declare a body dead whose time is up. Its thread goes on; its context does not.

        One that has ended has met its deadline, however long its checks take, or the commit before its own.
        """
        if attempt.outcome is None and self.board.running.get(attempt.node.id) is attempt and not attempt.overran:
            self.committer.commit(entries.Overdue(self._outcomes, attempt))

    def _ended(self, attempt: Attempt, outcome: Outcome) -> None:
        """A body has ended. What follows of a coroutine must not take long: others wait to be told."""
        attempt.handle, attempt.outcome = None, outcome
        is_async = attempt.node.spec.is_async
        if not outcome.has_begun and isinstance(outcome.error, OSError | StorageError):
            outcome.error = self.board.halt(outcome.error, "start an event loop" if is_async else "start")
        if not is_async:
            self._hand_in(attempt, outcome)
        elif self.board.compiled.checks.get(attempt.node.spec.name):
            self.threads.run(partial(self._hand_in, attempt, outcome))
        elif outcome.broke_off:
            self._hand_in_later(attempt)
        else:
            self._submit_judged(attempt, outcome)  # and the loop's executor has all of them committed

    def _hand_in(self, attempt: Attempt, outcome: Outcome) -> None:
        """Judge what came of an attempt, and commit it."""
        token = current_task.set(attempt.node.id)
        try:
            if self.attempts.is_quick_to_judge(attempt, outcome) and self.committer.has_time():
                self.committer.commit(entries.Unjudged(self._judged, attempt, outcome))
            else:
                self._let_a_signal_in(outcome)
                self.committer.commit(self._judged(attempt, outcome))
        except BaseException as error:  # a mistake of ours: the run would wait for this attempt for ever
            self.committer.commit(entries.Broken(error))
        finally:
            current_task.reset(token)

    def _hand_in_later(self, attempt: Attempt) -> None:
        """Have one thread hand in all coroutines that fail meanwhile: each waits for a signal first."""
        with self._mutex:
            self._failed.append(attempt)
            is_handed_in, self._hands_in_failed = self._hands_in_failed, True
        if not is_handed_in:
            self.threads.run(self._hand_in_failed)

    def _hand_in_failed(self) -> None:
        while True:
            with self._mutex:
                failed, self._failed = self._failed, []
                if not failed:
                    self._hands_in_failed = False
                    return
            for number, attempt in enumerate(failed):
                assert attempt.outcome is not None
                if not number:
                    self._let_a_signal_in(attempt.outcome)
                self._submit_judged(attempt, attempt.outcome)
            self.committer.pump()

    def _submit_judged(self, attempt: Attempt, outcome: Outcome) -> None:
        token = current_task.set(attempt.node.id)
        try:
            self.committer.submit(self._judged(attempt, outcome))
        except BaseException as error:  # a mistake of ours
            self.committer.submit(entries.Broken(error))
        finally:
            current_task.reset(token)

    def _prepared(self, attempt: Attempt) -> Call:
        """The call with its inputs. One that the machine cannot read, or a mistake of ours, stops the run."""
        try:
            call = attempt.call or self.attempts.prepare(attempt)
        except (OSError, StorageError) as error:
            raise self.board.halt(error, "read an input") from error
        except (LostValueError, HoldfastError):
            raise
        except Exception as error:
            self.committer.fail(error)
            raise
        if attempt.overran or self.committer.failed is not None or self.board.trouble is not None:
            raise ContextEndedError("the run has ended")  # nobody could record what this body is paid for
        return call

    def _judged(self, attempt: Attempt, outcome: Outcome) -> Entry:
        """What an outcome comes to, as an entry. Whatever goes wrong here stops the run, and is told."""
        entry = self._entry_of(attempt, outcome)
        self.attempts.discard_rest(attempt)
        return entry

    def _entry_of(self, attempt: Attempt, outcome: Outcome) -> Entry:
        # After a failure, or the end of the run, an output could no longer be recorded: so none is written.
        stopped = outcome.cancelled and self.board.stopping
        if attempt.overran or stopped or self.committer.failed is not None:
            return entries.Late(self._outcomes, attempt)
        if (self.board.interrupted or self.board.trouble is not None) and outcome.broke_off:
            assert outcome.error is not None
            return entries.CutOff(self._outcomes, attempt, describe(outcome.error))
        try:
            if attempt.host is not None and attempt.host.hit is not None:  # whatever its body made of that
                raise attempt.host.hit
            verdict = self.attempts.judge_outcome(attempt, outcome)
        except ContextEndedError:  # by the end of the run, while it was being checked
            return entries.Late(self._outcomes, attempt)
        except (OSError, StorageError) as error:
            return entries.CutOff(self._outcomes, attempt, self.board.halt(error, "work on").message)
        except BaseException as error:
            self.committer.fail(error)  # at once: the commit to come must not mask it
            return entries.Broken(error)
        return entries.Report(self._outcomes, attempt, verdict, outcome.duration)

    def _let_a_signal_in(self, outcome: Outcome) -> None:
        """Ctrl-C in a terminal also ends what steps have started there, and that may be heard of first."""
        if not self.board.interrupted and outcome.broke_off:
            clock.sleep(ECHO_S)
