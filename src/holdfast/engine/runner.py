"""The loop: decide, record, execute, verify, record. Prints nothing; observers hear of what is recorded.

run                       the caller's thread: starts, waits, watches deadlines and signals
  _advance                inside every commit: consider what came through, start what there is room for
    _consider             ask the judge about one task; trust it, hold it, or queue it
    _start                record the start; the attempt is dispatched once the batch is durable
  _work_on                a worker thread, or the loop: prepare, run the body, judge the outcome, report
  Report.apply            inside a commit: record the outcome and move the scheduler
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from holdfast import clock, decisions
from holdfast import events as ev
from holdfast.artifacts import LostValueError
from holdfast.context import current_task
from holdfast.decisions import Decision
from holdfast.engine.attempt import Attempt, Attempts, Verdict
from holdfast.engine.commit import Committer, Recorded
from holdfast.engine.retry import may_retry, retry_delay_s
from holdfast.engine.scheduler import Scheduler
from holdfast.engine.workers import Job, Workers
from holdfast.errors import HoldfastError
from holdfast.executors.base import Call, Executor, InlineExecutor, Outcome
from holdfast.inputs import Inputs, known_items
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.graph import (
    OK,
    OPEN,
    SETTLE,
    SKIPPED,
    Graph,
    Node,
    as_items,
    build_graph,
    split_task_id,
)
from holdfast.pipeline.rewind import Rewind
from holdfast.pipeline.spec import ItemsSpec, StepSpec
from holdfast.state import COMPLETED, FAILED, IN_PROGRESS, NEEDS_REVIEW, PAUSED, RunState, rounds_key
from holdfast.state import SKIPPED as STATUS_SKIPPED

if TYPE_CHECKING:
    from holdfast.executors.loop import LoopExecutor


class Judge(Protocol):
    """Decides about one task from record and files. Recovery has the real one."""

    def decide(self, node: Node, parts: Mapping[str, str], input_digest: str) -> Decision: ...

    def apply(
        self, node: Node, decision: Decision, parts: Mapping[str, str], input_digest: str
    ) -> Sequence[ev.Event]: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may go on, and for how long."""

    concurrency: int = 8
    budget_usd: float | None = None
    grace_s: float = 10.0


NAP_MAX_S = 0.5

Observer = Callable[[Sequence[Recorded]], None]


class Runner:
    """Runs one run to its end, or as far as it can go now."""

    def __init__(
        self,
        *,
        state: RunState,
        graph: Graph,
        compiled: CompiledPipeline,
        inputs: Inputs,
        judge: Judge,
        attempts: Attempts,
        committer: Committer,
        limits: Limits,
        process_executor: Callable[[], Executor],
        observers: Sequence[Observer] = (),
        rng: random.Random | None = None,
    ) -> None:
        self.state = state
        self.graph = graph
        self.scheduler = Scheduler(graph)
        self.compiled = compiled
        self.inputs = inputs
        self.judge = judge
        self.attempts = attempts
        self.committer = committer
        self.limits = limits
        self.observers = list(observers)
        self.interrupted = False
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not secrets
        self._inline = InlineExecutor()
        self._loop: LoopExecutor | None = None
        self._make_processes = process_executor
        self._processes: Executor | None = None
        self._workers = Workers(committer.pump, lambda: committer.waiting)
        self._prepared: dict[str, tuple[dict[str, str], str, str | None]] = {}
        self._starting: list[Attempt] = []
        self._running: dict[str, Attempt] = {}
        self._overruns: dict[str, Attempt] = {}
        self._deadlines: list[tuple[float, int, Attempt]] = []
        self._numbers = itertools.count()
        self._stopping = False
        self._over_budget = False
        # SimpleQueue.put may be called from a signal handler; an Event may not.
        self._bell: SimpleQueue[None] = SimpleQueue()
        committer.on_batch = self._advance
        committer.on_foreign = self._heard
        committer.on_durable = self._deliver

    # --- the caller's thread -------------------------------------------------------------------------------

    def call_committer(self) -> None:
        """For coroutines: have a worker thread commit what is in the inbox."""
        self._workers.call_committer()

    def run(self) -> str:
        """Work until nothing more can be done; gives the run's status. Raises what the disk or a lock said."""
        self._commit(_Nudge())
        try:
            self._supervise()
            return self._stop()
        finally:
            self._close()

    def stop(self) -> None:
        """Start nothing new; what runs may finish within the grace period. A second call ends that at once."""
        if self._stopping:
            self.limits = replace(self.limits, grace_s=0.0)
        self._stopping = True
        self.interrupted = True
        self._bell.put(None)

    def _supervise(self) -> None:
        """Sleep until nothing is left to do, minding deadlines, delays and the grace period."""
        give_up_at: float | None = None
        while not self.committer.exclusively(self._finished):
            now = clock.monotonic()
            if self._stopping or self.committer.exclusively(self._only_overruns):
                give_up_at = min(give_up_at or now + self.limits.grace_s, now + self.limits.grace_s)
                if now >= give_up_at:
                    break
            else:
                give_up_at = None
            self._sleep(self.committer.exclusively(lambda: self._patience(now, give_up_at)))  # noqa: B023
            self._expire(clock.monotonic())
            if self.committer.exclusively(self._something_due):
                self._commit(_Nudge())
        if self.committer.failed is not None:
            raise self.committer.failed

    def _sleep(self, seconds: float) -> None:
        try:
            self._bell.get(timeout=seconds)
            while True:
                self._bell.get_nowait()
        except Empty:
            pass

    def _something_due(self) -> bool:
        due = self.scheduler.next_due(clock.monotonic())
        return due is not None and due <= 0.001 and not self._stopping and not self._over_budget

    def _finished(self) -> bool:
        if self.committer.failed is not None:
            return True
        if self._running or self._starting or self._overruns:
            return False
        return self._stopping or self._over_budget or not self.scheduler.has_work()

    def _only_overruns(self) -> bool:
        return bool(self._overruns) and not self._running and not self._starting and not self.scheduler.has_work()

    def _patience(self, now: float, give_up_at: float | None) -> float:
        """How long the caller's thread may sleep."""
        waits = [] if give_up_at is None else [give_up_at - now]
        if self._deadlines:
            waits.append(self._deadlines[0][0] - now)
        due = None if self._stopping or self._over_budget else self.scheduler.next_due(now)
        if due is not None:
            waits.append(due)
        # Never for long: a signal that comes just before the sleep begins does not end it.
        return max(0.0, min([*waits, NAP_MAX_S]))

    def _commit(self, entry: Any) -> None:
        self.committer.submit(entry)
        self.committer.pump()

    def _stop(self) -> str:
        """End what still runs, and record how the run stands."""
        for attempt in list(self._running.values()):
            attempt.overran = True
            if attempt.ctx is not None:
                attempt.ctx.end("the run was stopped")
        if self._loop is not None:
            self._loop.cancel_all()
        status, reason = self._standing()
        self._commit(_Ending(self, status, reason))
        if self.committer.failed is not None:
            raise self.committer.failed
        return status

    def _standing(self) -> tuple[str, str]:
        if self.interrupted:
            return IN_PROGRESS, "interrupted"
        tasks = [self.state.task(node.id) for node in self.graph.tasks()]
        if self._overruns or any(
            t.status == FAILED or (t.status == NEEDS_REVIEW and t.kind != "rounds") for t in tasks
        ):
            return FAILED, "a task used up its attempts"
        if self._over_budget:
            return PAUSED, f"the budget of ${self.limits.budget_usd:g} is used up"
        unsettled = [n for n in self.graph.nodes.values() if n.condition not in (OK, SKIPPED) and not n.is_virtual]
        if any(node.stuck for node in unsettled):
            return PAUSED, "waiting for a person"
        if unsettled:
            names = ", ".join(node.id for node in unsettled[:5])
            return FAILED, f"nothing can start, though nothing waits for a person: see why {names}"
        return COMPLETED, ""

    def _close(self) -> None:
        self._workers.close()
        if self._loop is not None:
            self._loop.close()
        if self._processes is not None:
            self._processes.close()

    # --- inside a commit -----------------------------------------------------------------------------------

    def _advance(self) -> None:
        scheduler = self.scheduler
        now = clock.monotonic()
        scheduler.release_due(now)
        while True:
            while scheduler.to_consider:
                self._consider(scheduler.to_consider.popleft())
            if scheduler.recalled:
                self._rewind_due()
            if not scheduler.to_consider:
                break
        self._start_some(now)

    def _start_some(self, now: float) -> None:
        room = self.limits.concurrency - len(self._running) - len(self._starting)
        while room > 0 and not self._stopping:
            if self.limits.budget_usd is not None and self._budget_reached(self.limits.budget_usd):
                return
            node = self.scheduler.take(now)
            if node is None:
                return
            self._start(node)
            room -= 1

    def _budget_reached(self, budget: float) -> bool:
        if self.state.cost_usd >= budget and self.scheduler.has_work():
            self._over_budget = True
        return self._over_budget

    def _consider(self, node: Node) -> None:
        """Look at a node whose producers are all through."""
        if node.unmet or node.running or node.queued or node.recalled or node.condition != OPEN:
            return
        if node.is_virtual:
            self.scheduler.settle(node)
        elif node.kind == "gate":
            self._consider_gate(node)
        elif node.kind == "phase":
            self._consider_phase(node)
        else:
            self._consider_task(node)

    def _consider_task(self, node: Node) -> None:
        if node.id in self.state.recalls:  # sent back before this process began, or before the node was made
            self.scheduler.recall(node)
            return
        skipped = self._skipped_parent(node)
        if skipped:
            if self.state.task(node.id).status != STATUS_SKIPPED:
                self.committer.record(ev.TaskSkipped(step_id=node.id, reason=f"{skipped} was skipped"))
            self.scheduler.settle(node, SKIPPED)
            return
        parts = self.inputs.parts(node)
        digest = self.inputs.digest(node, parts)
        decision = self.judge.decide(node, parts, digest)
        for event in self.judge.apply(node, decision, parts, digest):
            self.committer.record(event)
        self._act(node, decision, parts, digest)

    def _skipped_parent(self, node: Node) -> str:
        for parent in node.parents:
            if parent.condition == SKIPPED:
                return parent.id
        return ""

    def _act(self, node: Node, decision: Decision, parts: dict[str, str], digest: str) -> None:
        """Move the scheduler as the decision and the state it left say."""
        status = self.state.task(node.id).status
        if decision.action in (decisions.ASK, decisions.HOLD):
            self.scheduler.hold(node)
        elif status == COMPLETED:
            self._through(node)
        elif status == STATUS_SKIPPED:
            self.scheduler.settle(node, SKIPPED)
        else:
            self._prepared[node.id] = (parts, digest, decision.partial)
            half = decision.action in (decisions.CONTINUE, decisions.REDO) or self.state.task(node.id).cut_off
            self.scheduler.enqueue(node, half=half)

    def _through(self, node: Node) -> None:
        """A completed task: an items function first unfolds what it made."""
        if isinstance(node.spec, ItemsSpec):
            self._expand(node)
        self.scheduler.settle(node)

    def _expand(self, node: Node) -> None:
        accepted = self.state.task(node.id).accepted
        assert accepted is not None
        items = as_items(self.inputs.artifacts.load_value(accepted.value, accepted.value_ref))
        if self.graph.items.get((node.spec.var, node.path)) == items:
            return
        self.graph.expand(node.spec.var, node.path, items)
        self.scheduler.take_fresh()

    def _consider_gate(self, node: Node) -> None:
        standing = self.state.gates.get(node.id)
        if standing == "approved":
            self.scheduler.settle(node)
            return
        if standing is None:
            self.committer.record(ev.GateReached(step_id=node.id, ask=node.spec.ask))
        self.scheduler.hold(node)

    def _consider_phase(self, node: Node) -> None:
        if self.state.phases.get(node.id) not in ("approved", "started"):
            reasons = self._checklist(node)
            if reasons:
                self.committer.record(ev.ChecklistRefused(step_id=node.id, reasons=reasons))
                self.scheduler.hold(node)
                return
            self.committer.record(ev.PhaseStarted(step_id=node.id))
        self.scheduler.settle(node)

    def _checklist(self, node: Node) -> tuple[str, ...]:
        checks = self.compiled.checklists.get(node.spec.name, ())
        objections = (self.attempts.run_checks((check,), node, None, None) for check in checks)
        return tuple(objection for objection in objections if objection)

    def _rewind_due(self) -> None:
        for node in self.scheduler.recalls_due():
            recall = self.state.recalls.get(node.id)
            if recall is not None:
                feedback = tuple(text for text in recall.feedback if text)
                self.committer.record(ev.TaskRewound(step_id=node.id, feedback=feedback))
            self.scheduler.rewound(node)

    def _start(self, node: Node) -> None:
        record = self.state.task(node.id)
        parts, digest, partial = self._prepared[node.id]
        attempt = Attempt(node, record.attempt + 1, record.round, digest, parts, partial)
        parents = node.parent_ids
        self.committer.record(
            ev.NodeEntered(
                step_id=node.id,
                node=node.spec.name,
                parent_id=parents[0],
                parents=parents if parents[0] else (),
                round=attempt.round,
                attempt=attempt.number,
            )
        )
        self._starting.append(attempt)

    def _heard(self, event: Any) -> None:
        """Another process recorded something: a person approved, rejected or asked for another try."""
        if isinstance(event, ev.GateApproved):
            self._release(event.step_id)
        elif isinstance(event, ev.RetryRequested):
            for task in event.step_ids:
                self._release(task)
        elif isinstance(event, ev.RewindRequested):
            self.recall(event.targets)
            self._release(event.step_id)

    def _release(self, node_id: str) -> None:
        node = self.graph.nodes.get(node_id)
        if node is not None and node.stuck:
            self.scheduler.release(node)

    def recall(self, targets: Mapping[str, str]) -> None:
        """Send these tasks' outputs back, once their started consumers have ended."""
        for target in targets:
            node = self.graph.nodes.get(target)
            if node is not None:
                self.scheduler.recall(node)

    # --- once a batch is durable ---------------------------------------------------------------------------

    def _deliver(self, recorded: Sequence[Recorded]) -> None:
        starting, self._starting = self._starting, []
        if self.committer.failed is not None:
            self._bell.put(None)
            return
        jobs: list[Job] = []
        for attempt in starting:
            self._running[attempt.node.id] = attempt
            attempt.started = clock.monotonic()
            spec = attempt.node.spec
            if spec.is_async:
                self._start_async(attempt)
            else:
                if isinstance(spec, StepSpec) and spec.timeout and spec.executor == "thread":
                    self._watch(attempt, spec.timeout)
                jobs.append(lambda attempt=attempt: self._work_on(attempt))  # type: ignore[misc]
        self._workers.add(jobs)
        for observer in self.observers:
            observer(recorded)
        if not self._running or self._stopping or self.scheduler.timed:
            self._bell.put(None)

    def _watch(self, attempt: Attempt, timeout: float) -> None:
        heapq.heappush(self._deadlines, (attempt.started + timeout, next(self._numbers), attempt))
        self._bell.put(None)

    def _expire(self, now: float) -> None:
        """Declare sync bodies dead whose time is up. Their threads go on; their contexts do not."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, _, attempt = heapq.heappop(self._deadlines)
            if self._running.get(attempt.node.id) is attempt and not attempt.overran:
                self._commit(_Overrun(self, attempt))

    # --- worker threads and the loop -----------------------------------------------------------------------

    def _work_on(self, attempt: Attempt) -> None:
        token = current_task.set(attempt.node.id)
        try:
            outcome = self._execute(attempt)
            self._workers.body_ended()
            self._report(attempt, outcome)
        finally:
            current_task.reset(token)

    def _execute(self, attempt: Attempt) -> Outcome:
        try:
            call = self.attempts.prepare(attempt)
        except (LostValueError, HoldfastError) as error:
            return Outcome(error=error)
        spec = attempt.node.spec
        if isinstance(spec, StepSpec) and spec.executor == "process":
            return self._process_pool().run(call)
        return self._inline.run(call)

    def _process_pool(self) -> Executor:
        if self._processes is None:
            self._processes = self._make_processes()
        return self._processes

    def _start_async(self, attempt: Attempt) -> None:
        spec = attempt.node.spec
        timeout = spec.timeout if isinstance(spec, StepSpec) else None
        call = Call(attempt.node.id, self.compiled.functions[spec.name], {}, timeout)

        def prepare(call: Call) -> None:
            current_task.set(attempt.node.id)
            call.arguments = self.attempts.prepare(attempt).arguments

        def done(outcome: Outcome) -> None:
            self._workers.add([lambda: self._report_for(attempt, outcome)])

        self._event_loop().start(call, prepare, done)

    def _event_loop(self) -> LoopExecutor:
        if self._loop is None:
            from holdfast.executors.loop import LoopExecutor  # asyncio is loaded only where steps use it

            self._loop = LoopExecutor()
        return self._loop

    def _report_for(self, attempt: Attempt, outcome: Outcome) -> None:
        """The same for a body that ran on the loop: its checks and log lines belong to its task too."""
        token = current_task.set(attempt.node.id)
        try:
            self._report(attempt, outcome)
        finally:
            current_task.reset(token)

    def _report(self, attempt: Attempt, outcome: Outcome) -> None:
        """Judge an outcome and hand it in. Whatever goes wrong here stops the run, and is told."""
        # After a failure, or the end of the run, an output could no longer be recorded: so none is written.
        if attempt.overran or self.committer.failed is not None or (outcome.cancelled and self._stopping):
            self._commit(_Late(self, attempt))
            return
        try:
            verdict = self.attempts.judge_outcome(attempt, outcome)
        except BaseException as error:
            self.committer.fail(error)  # at once: the commit below may meet the same disk, and must not mask it
            self._commit(_Broken(self, error))
            return
        self._commit(Report(self, attempt, verdict, outcome))

    # --- what reports do inside a commit -------------------------------------------------------------------

    def end_attempt(self, attempt: Attempt) -> bool:
        """Forget a running attempt; False if it is not the running one any more."""
        if self._running.get(attempt.node.id) is not attempt:
            return False
        del self._running[attempt.node.id]
        if attempt.ctx is not None:
            attempt.ctx.end("this attempt is over")
        self.scheduler.end(attempt.node)
        return True

    def accept(self, attempt: Attempt, verdict: Verdict) -> None:
        node = attempt.node
        assert verdict.exited is not None
        self.committer.record(verdict.exited)
        self._prepared.pop(node.id, None)
        if node.unmet or node.recalled or self.graph.nodes.get(node.id) is not node:
            return  # a producer was opened meanwhile: it is looked at again when that is through
        if self._needs_rebuild(node, verdict):
            self.rebuild()
        else:
            self._through(node)

    def _needs_rebuild(self, node: Node, verdict: Verdict) -> bool:
        """Items that a function made before, and now made differently: the graph is drawn anew."""
        if not isinstance(node.spec, ItemsSpec):
            return False
        known = self.graph.items.get((node.spec.var, node.path))
        return known is not None and known != verdict.items

    def rebuild(self) -> None:
        """Draw the graph anew from the state; finished work is recognised by id and considered again."""
        limits = self.scheduler.limits
        items = known_items(self.graph.spec, self.state, self.inputs.artifacts)
        self.graph = self.inputs.graph = build_graph(self.graph.spec, items)
        self.scheduler = Scheduler(self.graph)
        self.scheduler.limits = limits
        for attempt in (*self._running.values(), *self._starting, *self._overruns.values()):
            node = self.graph.nodes.get(attempt.node.id)
            if node is not None:  # else its item has vanished: what it gives is recorded and left alone
                attempt.node = node
                node.running = True
                self.scheduler.running[node.id] = node
        self.recall(dict.fromkeys(self.state.recalls, ""))

    def send_back(self, attempt: Attempt, rewind: Rewind, duration: float) -> None:
        node = attempt.node
        problem, targets = self._targets(node, rewind)
        if problem:
            self._exit(attempt, NEEDS_REVIEW, kind="definition", error=problem, duration=duration)
            self.scheduler.hold(node)
            return
        used = [t for t in targets if self.state.rounds.get(rounds_key(node.id, t), 0) >= rewind.rounds]
        if used:
            words = "; ".join(text for text in targets.values() if text)
            error = f"sent {', '.join(used)} back {rewind.rounds} times and still objects: {words}"
            self._exit(attempt, NEEDS_REVIEW, kind="rounds", error=error, duration=duration)
            self.scheduler.hold(node)
            return
        keep = self._kept(node, targets, rewind)
        self.committer.record(
            ev.RewindRequested(step_id=node.id, targets=targets, keep=keep, duration=round(duration, 6))
        )
        self.recall(targets)

    def _targets(self, node: Node, rewind: Rewind) -> tuple[str, dict[str, str]]:
        """The tasks meant by a Rewind, or what is wrong with it."""
        targets: dict[str, str] = {}
        for wanted, feedback in rewind.targets.items():
            name, path = split_task_id(wanted)
            if name not in self.compiled.functions:
                return f"Rewind names {wanted!r:.80}, which is no step", {}
            target = wanted if path else self.graph.related(name, node.path, self.graph.fan_of(node.spec.name))
            found = self.graph.nodes.get(target)
            if found is None or not found.is_task:
                return (
                    f"Rewind to {wanted!r:.80} does not say which item: give a task id such as {name}[ITEM]",
                    {},
                )
            if not _is_upstream(found, node):
                return f"Rewind to {target}, which is not upstream of {node.id}", {}
            targets[target] = feedback
        return "", targets

    def _kept(self, node: Node, targets: Mapping[str, str], rewind: Rewind) -> tuple[str, ...]:
        fan = self.graph.fan_of(node.spec.name)
        ids = [name if "[" in name else self.graph.related(name, node.path, fan) for name in rewind.keep]
        return tuple(i for i in ids if self.state.task(i).status in (COMPLETED, IN_PROGRESS) and i != node.id)

    def fail(self, attempt: Attempt, verdict: Verdict, duration: float) -> None:
        """Record a failed attempt: another one is due, or a person is."""
        node, spec = attempt.node, attempt.node.spec
        record = self.state.task(node.id)
        assert verdict.error is not None
        again = verdict.kind != "definition" and may_retry(
            verdict.error,
            failures=record.failures + 1,
            retries=getattr(spec, "retries", 0),
            retry_on=self.compiled.retry_on.get(spec.name, ()),
            no_retry_on=self.compiled.no_retry_on.get(spec.name, ()),
        )
        for event in verdict.set_aside:
            self.committer.record(event)
        if again:
            self._try_again(attempt, verdict, record.failures + 1, duration)
        elif getattr(spec, "on_failure", "review") == "skip":
            self._exit_failed(attempt, verdict, STATUS_SKIPPED, duration)
            self.scheduler.settle(node, SKIPPED)
        else:
            self._exit_failed(attempt, verdict, NEEDS_REVIEW, duration)
            self.scheduler.hold(node)

    def _try_again(self, attempt: Attempt, verdict: Verdict, failures: int, duration: float) -> None:
        node = attempt.node
        delay = retry_delay_s(getattr(node.spec, "backoff", 1.0), failures, verdict.error, self._rng)
        self._exit_failed(attempt, verdict, FAILED, duration, delay)
        if not attempt.overran:
            self.scheduler.delay(node, clock.monotonic() + delay)

    def _exit_failed(
        self, attempt: Attempt, verdict: Verdict, status: str, duration: float, delay: float = 0.0
    ) -> None:
        self._exit(
            attempt,
            status,
            kind=verdict.kind,
            error=verdict.message,
            duration=duration,
            retry_in=round(delay, 3),
            new_round=verdict.new_round,
        )

    def _exit(self, attempt: Attempt, status: str, *, duration: float, **facts: Any) -> None:
        self.committer.record(
            ev.NodeExited(
                step_id=attempt.node.id,
                node=attempt.node.spec.name,
                status=status,
                parent_id=attempt.node.parent_ids[0],
                round=attempt.round,
                attempt=attempt.number,
                duration=round(duration, 6),
                **facts,
            )
        )

    def overrun(self, attempt: Attempt) -> None:
        """Its time is up, its thread goes on: fail the attempt, keep any retry from overlapping it."""
        timeout = attempt.node.spec.timeout
        del self._running[attempt.node.id]
        self._overruns[attempt.node.id] = attempt
        attempt.overran = True
        if attempt.ctx is not None:
            attempt.ctx.end(f"it timed out after {timeout:g} s")
        self.committer.record(ev.Overran(step_id=attempt.node.id, timeout=timeout))
        error = TimeoutError(f"timed out after {timeout:g} s")
        words = f"timed out after {timeout:g} s, and its thread is still running"
        self.fail(
            attempt, Verdict(error=error, kind="timeout", message=words), clock.monotonic() - attempt.started
        )

    def overrun_ended(self, attempt: Attempt) -> None:
        """A body that had been declared dead has come back: now a retry may start."""
        if self._overruns.pop(attempt.node.id, None) is attempt:
            self.scheduler.end(attempt.node)
            if self.state.task(attempt.node.id).status == FAILED:
                self.scheduler.delay(attempt.node, clock.monotonic())
        else:
            self.end_attempt(attempt)

    def give_up_overruns(self) -> None:
        """The end of the run: bodies that never came back need a person."""
        for attempt in self._overruns.values():
            if self.state.task(attempt.node.id).status == FAILED:
                error = "still running after its timeout when everything else was done"
                self._exit(attempt, NEEDS_REVIEW, kind="timeout", error=error, duration=0.0)


@dataclass(slots=True)
class Report:
    """An attempt's verdict, on its way into the journal."""

    runner: Runner
    attempt: Attempt
    verdict: Verdict
    outcome: Outcome
    durable: bool = True

    def apply(self) -> None:
        runner, attempt, verdict = self.runner, self.attempt, self.verdict
        if not runner.end_attempt(attempt):
            return
        if verdict.exited is not None:
            runner.accept(attempt, verdict)
        elif verdict.rewind is not None:
            runner.send_back(attempt, verdict.rewind, self.outcome.duration)
        else:
            runner.fail(attempt, verdict, self.outcome.duration)

    def done(self, error: BaseException | None) -> None:
        """Nobody waits for a report."""


class _Entry:
    durable = False

    def apply(self) -> None:
        """Nothing to record."""

    def done(self, error: BaseException | None) -> None:
        """Nobody waits."""


class _Nudge(_Entry):
    """Makes a batch happen, so that what became due is considered and started."""

    durable = True


class _Overrun(_Entry):
    durable = True

    def __init__(self, runner: Runner, attempt: Attempt) -> None:
        self.runner, self.attempt = runner, attempt

    def apply(self) -> None:
        if self.runner._running.get(self.attempt.node.id) is self.attempt:
            self.runner.overrun(self.attempt)


class _Late(_Entry):
    """A body that ended after it had been declared dead, or was cancelled by a stop."""

    def __init__(self, runner: Runner, attempt: Attempt) -> None:
        self.runner, self.attempt = runner, attempt

    def apply(self) -> None:
        self.runner.overrun_ended(self.attempt)


class _Broken(_Entry):
    """Something of ours, or the disk, failed while an outcome was judged: the run stops."""

    def __init__(self, runner: Runner, error: BaseException) -> None:
        self.runner, self.error = runner, error

    def apply(self) -> None:
        raise self.error


class _Ending(_Entry):
    """The last entry of a run."""

    durable = True

    def __init__(self, runner: Runner, status: str, reason: str) -> None:
        self.runner, self.status, self.reason = runner, status, reason

    def apply(self) -> None:
        self.runner.give_up_overruns()
        self.runner._stopping = True
        self.runner.committer.record(ev.RunStopped(status=self.status, reason=self.reason))


def _is_upstream(target: Node, node: Node) -> bool:
    """Whether `node` depends on `target`, through whatever lies between."""
    seen: set[Node] = {target}
    stack = [target]
    while stack:
        for consumer, kind in stack.pop().consumers:
            if consumer is node:
                return True
            if consumer not in seen and kind != SETTLE:
                seen.add(consumer)
                stack.append(consumer)
    return False
