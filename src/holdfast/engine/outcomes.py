"""What an attempt's end does to the run, inside a commit: accepted, sent back, failed, or out of time."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from holdfast import clock
from holdfast import events as ev
from holdfast.artifacts.acceptance import Acceptance
from holdfast.artifacts.parts import digest_of_given
from holdfast.engine.attempt import Attempt, Verdict
from holdfast.engine.board import Board
from holdfast.engine.retry import may_retry, retry_delay_s
from holdfast.engine.scheduler import made_from
from holdfast.errors import StorageError
from holdfast.pipeline.nodes import OPEN, SETTLE, SKIPPED, Node, split_task_id
from holdfast.pipeline.rewind import Rewind
from holdfast.state import COMPLETED, FAILED, IN_PROGRESS, NEEDS_REVIEW, TaskState, rounds_key
from holdfast.state import SKIPPED as STATUS_SKIPPED


class Outcomes:
    """Records how attempts ended, and moves the scheduler."""

    def __init__(self, board: Board, acceptance: Acceptance) -> None:
        self.board = board
        self._acceptance = acceptance
        self._rng = random.Random()  # noqa: S311 - jitter, not secrets

    def end(self, attempt: Attempt) -> bool:
        """Forget a running attempt; False if it is not the running one any more."""
        board = self.board
        if board.running.get(attempt.node.id) is not attempt:
            return False
        del board.running[attempt.node.id]
        if attempt.host is not None:
            attempt.host.end("this attempt is over")
        board.scheduler.end(attempt.node)
        return True

    def accept(self, attempt: Attempt, verdict: Verdict) -> None:
        """Its output counts. What was opened meanwhile is looked at again when that is through."""
        board, node = self.board, attempt.node
        if not self._landed(node, verdict):
            return
        board.made[node.id] = None
        if node.unmet or node.recalled or board.graph.nodes.get(node.id) is not node:
            return
        if node.kind == "items" and self._made_others(node, verdict):
            board.rebuild()
        else:
            board.through(node)

    def _landed(self, node: Node, verdict: Verdict) -> bool:
        """Land what it offers; False if the machine, or the task, does not let it: that is told, not counted."""
        board = self.board
        assert verdict.offer is not None
        try:
            for event in self._acceptance.land(verdict.offer):
                told = _with_spend(event, board.state.task(node.id)) if type(event) is ev.NodeExited else event
                board.committer.record(told)
        except (OSError, StorageError) as error:
            board.committer.record(ev.CutOff(step_id=node.id, error=board.halt(error).message))
            return False
        return True

    def withdraw(self, verdict: Verdict) -> None:
        """An output whose attempt ran out of time as it ended, or that nobody could record, does not land."""
        if verdict.offer is not None:
            self._acceptance.withdraw(verdict.offer)

    def _made_others(self, node: Node, verdict: Verdict) -> bool:
        """Whether an items function made items before, and other ones now."""
        known = self.board.graph.items.get((node.spec.var, node.path))
        return known is not None and known != verdict.items

    # --- sent back -----------------------------------------------------------------------------------------

    def send_back(self, attempt: Attempt, rewind: Rewind, duration: float) -> None:
        """It raised Rewind: its targets run again, unless the rounds are used up."""
        board, node = self.board, attempt.node
        problem, targets = self._targets(node, rewind)
        if problem:
            self._needs_person(attempt, "definition", problem, duration)
            return
        used = [t for t in targets if board.state.rounds.get(rounds_key(node.id, t), 0) >= rewind.rounds]
        if used:
            words = "; ".join(text for text in targets.values() if text)
            often = "once" if rewind.rounds == 1 else f"{rewind.rounds} times"
            error = f"sent {', '.join(used)} back {often} and still objects" + (f": {words}" if words else "")
            self._needs_person(attempt, "rounds", error, duration)
            return
        keep = self._kept(node, rewind, targets)
        board.committer.record(
            ev.RewindRequested(step_id=node.id, targets=targets, keep=keep, duration=round(duration, 6))
        )
        board.recall(targets)

    def _targets(self, node: Node, rewind: Rewind) -> tuple[str, dict[str, str]]:
        """The tasks meant by a Rewind, or what is wrong with it."""
        graph = self.board.graph
        targets: dict[str, str] = {}
        for wanted, feedback in rewind.targets.items():
            name, path = split_task_id(wanted)
            if name not in self.board.compiled.functions:
                return f"Rewind names {wanted!r:.80}, which is no step", {}
            target = wanted if path else graph.related(name, node.path, graph.fan_of(node.spec.name))
            found = graph.nodes.get(target)
            if path and (found is None or not found.is_task):
                return f"Rewind names {wanted!r:.80}, and there is no such task", {}
            if found is None or not found.is_task:
                return f"Rewind to {wanted!r:.80} does not say which item: give an id such as {name}[ITEM]", {}
            if not _is_upstream(found, node):
                return f"Rewind to {target}, which is not upstream of {node.id}", {}
            targets[target] = feedback
        return self._wrong_keep(rewind), targets

    def _wrong_keep(self, rewind: Rewind) -> str:
        """What is wrong with the names that a Rewind keeps, or nothing."""
        for kept in rewind.keep:
            name, path = split_task_id(kept)
            if name not in self.board.compiled.functions:
                return f"Rewind keeps {kept!r:.80}, which is no step"
            if path and kept not in self.board.graph.nodes:
                return f"Rewind keeps {kept!r:.80}, and there is no such task"
        return ""

    def _kept(self, node: Node, rewind: Rewind, targets: Iterable[str]) -> tuple[str, ...]:
        """The tasks that stay accepted. One that takes nothing of what is sent back needs no such word."""
        if not rewind.keep:
            return ()
        graph, state = self.board.graph, self.board.state
        fan = graph.fan_of(node.spec.name)
        named = [_named_part(k if "[" in k else graph.related(k, node.path, fan)) for k in rewind.keep]
        return tuple(
            task.id
            for task in made_from(graph.nodes[target] for target in targets)
            if any(task.spec.name == name and task.path[: len(path)] == path for name, path in named)
            and task is not node
            and state.task(task.id).status in (COMPLETED, IN_PROGRESS)
        )

    def _needs_person(self, attempt: Attempt, kind: str, error: str, duration: float) -> None:
        self._exit(attempt, NEEDS_REVIEW, kind=kind, error=error, duration=duration)
        self.board.scheduler.hold(attempt.node)

    # --- failed --------------------------------------------------------------------------------------------

    def fail(self, attempt: Attempt, verdict: Verdict, duration: float) -> None:
        """Record a failed attempt: another one is due, or a person is. Its input may be open again."""
        node, spec = attempt.node, attempt.node.spec
        failures = self.board.state.task(node.id).failures + 1
        for event in verdict.set_aside:
            self.board.committer.record(event)
        if self._may_retry(spec, verdict, failures):
            self._try_again(attempt, verdict, failures, duration)
        elif spec.on_failure == "skip":
            self._exit_failed(attempt, verdict, STATUS_SKIPPED, duration)
            if not node.unmet:  # else it is looked at again when that is through
                self.board.scheduler.settle(node, SKIPPED)
        else:
            self._exit_failed(attempt, verdict, NEEDS_REVIEW, duration)
            self.board.scheduler.hold(node)

    def _may_retry(self, spec: Any, verdict: Verdict, failures: int) -> bool:
        assert verdict.error is not None
        compiled = self.board.compiled
        return verdict.kind != "definition" and may_retry(
            verdict.error,
            failures=failures,
            retries=spec.retries,
            retry_on=compiled.retry_on.get(spec.name, ()),
            no_retry_on=compiled.no_retry_on.get(spec.name, ()),
        )

    def _try_again(self, attempt: Attempt, verdict: Verdict, failures: int, duration: float) -> None:
        node = attempt.node
        delay = retry_delay_s(node.spec.backoff, failures, verdict.error, self._rng)
        self._exit_failed(attempt, verdict, FAILED, duration, delay)
        if not attempt.overran:  # else when its thread has come back: no retry overlaps it
            self.board.scheduler.delay(node, clock.monotonic() + delay)

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
        exited = ev.NodeExited(
            step_id=attempt.node.id,
            node=attempt.node.spec.name,
            status=status,
            parent_id=attempt.parent_id,
            round=attempt.round,
            attempt=attempt.number,
            duration=round(duration, 6),
            failed_on=digest_of_given(attempt.parts),
            **facts,
        )
        self.board.committer.record(_with_spend(exited, self.board.state.task(attempt.node.id)))

    # --- out of time ---------------------------------------------------------------------------------------

    def overrun(self, attempt: Attempt) -> None:
        """Its time is up, its thread goes on: fail the attempt, keep any retry from overlapping it."""
        if self.board.running.get(attempt.node.id) is not attempt:
            return
        del self.board.running[attempt.node.id]
        self.board.overruns[attempt.node.id] = attempt
        attempt.overran = True
        if attempt.handle is not None:
            attempt.handle.cancel()  # it gives up its place
        self.board.scheduler.give_room(attempt.node)
        words = f"timed out after {attempt.node.spec.timeout:g} s"
        if attempt.host is not None:
            # No retry begins before the thread has ended: what it is paying for now, the retry need not pay again.
            attempt.host.end(f"it {words}", keeps_calls=True)
        self.board.committer.record(ev.Overran(step_id=attempt.node.id, timeout=attempt.node.spec.timeout))
        verdict = Verdict(
            error=TimeoutError(words), kind="timeout", message=f"{words}, and its thread is still running"
        )
        self.fail(attempt, verdict, attempt.node.spec.timeout)

    def came_back(self, attempt: Attempt) -> None:
        """A body that had been declared dead, or stopped, has ended: now a retry may start."""
        if self.board.overruns.pop(attempt.node.id, None) is not attempt:
            self.end(attempt)
            return
        node = attempt.node
        if attempt.host is not None:
            attempt.host.end("this attempt is over")
        self.board.scheduler.end_overdue(node)
        if self.board.state.task(node.id).status == FAILED:
            self.board.scheduler.delay(node, clock.monotonic())
        elif node.condition == OPEN and self.board.graph.nodes.get(node.id) is node:
            self.board.scheduler.release(node)  # a person has spoken meanwhile: while it ran, nobody could look

    def give_up_overruns(self) -> None:
        """The end of the run: bodies that never came back need a person."""
        for attempt in self.board.overruns.values():
            if self.board.state.task(attempt.node.id).status == FAILED:
                error = "still running after its timeout when everything else was done"
                self._exit(attempt, NEEDS_REVIEW, kind="timeout", error=error, duration=0.0)

    def let_orphans_go(self) -> None:
        """The end of a complete run: what was sent back and has left the pipeline is redone only if it returns."""
        board = self.board
        for task, recall in list(board.state.recalls.items()):
            if task not in board.graph.nodes:
                board.committer.record(ev.TaskRewound(step_id=task, feedback=tuple(filter(None, recall.feedback))))


def _with_spend(exited: ev.NodeExited, task: TaskState) -> ev.NodeExited:
    """The word of an attempt's end, with what was booked for the task until now, if anything was."""
    if not (task.cost_usd or task.input_tokens or task.output_tokens):
        return exited
    return replace(
        exited, input_tokens=task.input_tokens, output_tokens=task.output_tokens, cost_usd=task.cost_usd
    )


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


def _named_part(node_id: str) -> tuple[str, tuple[str, ...]]:
    """A step and the item around what is meant of it: `review[st-1/*]` is all of `review` below `st-1`."""
    name, path = split_task_id(node_id)
    return name, path[:-1] if path[-1:] == ("*",) else path
