"""How a run stands: the state seen through its graph. What every view, `status` and `list` are drawn from. Pure.

`blocked`, "what can start" and "what needs a person" follow from graph and state, and are worked out here, once.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from holdfast.pipeline.nodes import Path, batch_numbers, split_task_id, step_of, task_id
from holdfast.pipeline.spec import PipelineSpec
from holdfast.state import (
    BLOCKED,
    COMPLETED,
    FAILED,
    IN_PROGRESS,
    NEEDS_REVIEW,
    PENDING,
    USED_UP,
    WAITS_FOR_PERSON,
    RunState,
    TaskState,
)
from holdfast.state import SKIPPED as STATUS_SKIPPED

_ANSWERS = {
    "changed": ("keep", "restore", "redo"),
    "unrecorded": ("keep", "restore", "redo"),
    "partial": ("redo", "continue", "keep"),
    "input": ("keep", "redo"),
}

GONE = "is no longer in the pipeline: its item or its step is gone"
"""What is wrong with an orphan."""

READY = "all that was asked is answered, so it can be continued"
"""Why a run stands still that waited for people, and does no longer."""

_spec_decoder = msgspec.json.Decoder(PipelineSpec)


class Need(msgspec.Struct, frozen=True):
    """Something only a person can do, and the command for it."""

    task: str
    why: str
    command: str


class Picture(msgspec.Struct, frozen=True, dict=True):
    """One moment of a run."""

    state: RunState
    spec: PipelineSpec
    items: Mapping[tuple[str, Path], list[dict[str, Any]]]
    tasks: tuple[str, ...]  # all known tasks, in the pipeline's order
    blocked: frozenset[str] = frozenset()
    ready: tuple[str, ...] = ()  # could start now
    unexpanded: tuple[str, ...] = ()  # fan-out variables whose items are not known yet
    counts: dict[str, int] = {}
    is_left: bool = False  # no engine is at work on it, whatever the record says: it was killed

    @property
    def is_at_rest(self) -> bool:
        """Whether nobody works on what is in progress: the run was stopped, or killed."""
        return self.is_left or bool(self.state.reason)

    def status(self, task: str) -> str:
        """A task's status as people see it: what was sent back is to be done, also before anybody has begun."""
        record = self.state.tasks.get(task)
        status = record.status if record is not None else PENDING
        if status == COMPLETED and task in self.state.recalls:
            status = PENDING
        return BLOCKED if status == PENDING and task in self.blocked else status

    @cached_property
    def by_step(self) -> dict[str, list[str]]:
        """The known tasks of each step and items function that has any."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for task in self.tasks:
            found[task.partition("[")[0]].append(task)
        return dict(found)

    @cached_property
    def settled(self) -> frozenset[str]:
        """The tasks that are completed, and nothing is asked about them or sent back: mostly nearly all."""
        found = [task for task, r in self.state.tasks.items() if r.status == COMPLETED and not r.question]
        return frozenset(found).difference(self.state.recalls)

    @cached_property
    def is_settled(self) -> bool:
        """Whether that is so of all known tasks."""
        return self.settled.issuperset(self.tasks)

    @cached_property
    def talked_about(self) -> dict[str, TaskState]:
        """The records of tasks of which there is more to say than that they are done: mostly few."""
        settled = self.settled
        return {task: r for task, r in self.state.tasks.items() if r.error or r.cut_off or task not in settled}

    @cached_property
    def open_tasks(self) -> list[str]:
        """The tasks that are not finished, as people see it."""
        if self.is_settled:
            return []
        unsettled = (task for task in self.tasks if task not in self.settled)
        return [task for task in unsettled if self.status(task) not in (COMPLETED, STATUS_SKIPPED)]

    def record(self, task: str) -> TaskState:
        return self.state.task(task)

    def rows(self, var: str) -> list[Path]:
        """All known items of a fan-out, in their order, whichever of them became known first."""
        paths: list[Path] = [()]
        for level in self.spec.fan_path(var):
            paths = [(*path, item["id"]) for path in paths for item in self.items.get((level, path), ())]
        return paths

    def batches(self, var: str) -> dict[Path, int]:
        """Each item's batch number."""
        numbers: dict[Path, int] = {}
        for (name, parent), items in self.items.items():
            if name == var:
                numbers |= {(*parent, key): number for key, number in batch_numbers(items).items()}
        return numbers

    def orphans(self) -> list[str]:
        """Tasks on record that the pipeline no longer has; their files are kept."""
        known = set(self.tasks)
        unknown = [task for task in self.state.tasks if task not in known]
        if not unknown:
            return []
        ids = {place: {item["id"] for item in listed} for place, listed in self.items.items()}
        fans = {spec.name: self.spec.fan_path(spec.each) for spec in self.spec.producers}
        return [task for task in unknown if not _is_hidden(task, fans, ids)]

    @property
    def phase(self) -> str | None:
        """The phase that is on: of those that have begun the first with work left, for work may be sent back."""
        begun = [p.name for p in self.spec.phases if self.state.phases.get(f"phase:{p.name}") == "started"]
        if not begun:
            return self.spec.phases[0].name if self.spec.phases else None
        unfinished = {step_of(task) for task in self.open_tasks}
        left = {s.phase for s in self.spec.steps if s.name in unfinished or s.each in self.unexpanded}
        return next((name for name in begun if name in left), begun[-1])

    @property
    def batch(self) -> int | None:
        """The lowest batch of the phase that is on, in its first fan-out that still has something to do."""
        if self.done + self.skipped == self.total:
            return None
        phase = self.phase
        for fan in self.spec.items:
            steps = [step.name for step in self.spec.steps if step.each == fan.var and step.phase == phase]
            open_rows = [row for row in self.rows(fan.var) if any(self._is_open(name, row) for name in steps)]
            if open_rows:
                numbers = self.batches(fan.var)
                return min(numbers[row] for row in open_rows)
        return None

    def _is_open(self, step: str, row: Path) -> bool:
        return self.status(task_id(step, row)) not in (COMPLETED, STATUS_SKIPPED)

    @property
    def done(self) -> int:
        return self.counts.get(COMPLETED, 0)

    @property
    def skipped(self) -> int:
        return self.counts.get(STATUS_SKIPPED, 0)

    @property
    def total(self) -> int:
        return len(self.tasks)

    def next_steps(self) -> list[str]:
        """Tasks that run, are due, or could start: what happens when the run continues."""
        ready = dict.fromkeys(self.ready)
        records = [(task, self.state.task(task)) for task in self.open_tasks]
        status = {task: record.status for task, record in records if not record.question}
        # One that failed waits for what was sent back meanwhile, like any other.
        going = [task for task, now in status.items() if now == IN_PROGRESS or (now == FAILED and task in ready)]
        return list(dict.fromkeys([*going, *ready]))

    @property
    def reason(self) -> str:
        """Why it stopped, as far as that still holds: people may have answered since."""
        if self.state.reason not in (WAITS_FOR_PERSON, USED_UP):
            return self.state.reason
        needs = self.needs()
        if not needs:
            return READY
        return USED_UP if any(self.state.task(need.task).has_failed for need in needs) else WAITS_FOR_PERSON

    def continue_command(self) -> str:
        """The command that continues; one that waits for money says how much."""
        return _continue_command(self.state)

    def needs(self) -> list[Need]:
        """Everything that waits for a person; what is no longer in the pipeline waits for nobody."""
        return list(self._needs)

    @cached_property
    def _needs(self) -> list[Need]:
        found = _needs_among(self.state, self.spec, self.talked_about)
        gone = {*self.orphans(), *self._orphaned_gates()} if found else ()
        return [need for need in found if need.task not in gone]

    def gates(self) -> list[str]:
        """Every gate known so far, also those after each batch."""
        found: dict[str, None] = {}
        for gate in self.spec.gates:
            if gate.each is None:
                found[gate.name] = None
                continue
            for path, number in self.batches(gate.each).items():
                found[task_id(gate.name, (*path[:-1], f"batch-{number}"))] = None
        return list(found)

    def _orphaned_gates(self) -> list[str]:
        """Gates on record that the pipeline no longer has; of items that are not known nobody can tell."""
        known = set(self.gates())
        hidden = {gate.name for gate in self.spec.gates if gate.each in self.unexpanded}
        return [gate for gate in self.state.gates if gate not in known and step_of(gate) not in hidden]


def is_sent_back(state: RunState, task: str) -> bool:
    """Whether a finished task is to be done again as soon as nobody uses what it gave."""
    return task in state.recalls and state.task(task).status == COMPLETED


def needs_of(state: RunState, spec: PipelineSpec) -> list[Need]:
    """Everything that waits for a person; no graph is needed to tell."""
    return _needs_among(state, spec, state.tasks)


def _needs_among(state: RunState, spec: PipelineSpec, tasks: Mapping[str, TaskState]) -> list[Need]:
    told = _task_needs(state, tasks)
    return [*told, *_gate_needs(state, spec), *_phase_needs(state), *_budget_needs(state)]


def _is_hidden(
    task: str, fans: Mapping[str, Sequence[str]], ids: Mapping[tuple[str, tuple[str, ...]], Collection[str]]
) -> bool:
    """Whether its items are to be made anew: until then nobody can tell whether the pipeline has it."""
    name, path = split_task_id(task)
    for depth, (var, item) in enumerate(zip(fans.get(name, ()), path, strict=False)):
        listed = ids.get((var, path[:depth]))
        if listed is None or item not in listed:
            return listed is None
    return False


def _task_needs(state: RunState, tasks: Mapping[str, TaskState]) -> Iterator[Need]:
    for task, record in tasks.items():
        if not record.question and record.status != NEEDS_REVIEW:
            continue
        choices = answers(record)
        if choices:
            first, *others = choices
            command = f"holdfast decide {shlex.quote(task)} {first}   (or: {', '.join(others)})"
            yield Need(task, record.error, command)
        elif record.question == "path":
            yield Need(task, record.error, f"{_continue_command(state)}   (after moving that file away)")
        elif record.kind == "rounds":
            yield Need(task, record.error, f"holdfast decide {shlex.quote(task)} redo   (or: skip)")
        elif record.status == NEEDS_REVIEW:
            yield Need(task, record.error, f"holdfast retry {shlex.quote(task)}")


def _gate_needs(state: RunState, spec: PipelineSpec) -> Iterator[Need]:
    asks = {gate.name: gate.ask for gate in spec.gates}
    for gate, standing in state.gates.items():
        if standing == "reached":
            ask = asks.get(step_of(gate)) or "waits for approval"
            yield Need(gate, ask, f"holdfast approve {shlex.quote(gate)}")


def _phase_needs(state: RunState) -> Iterator[Need]:
    for phase, standing in state.phases.items():
        if standing.startswith("refused: "):
            yield Need(phase, "its checklist says: " + standing[9:], f"holdfast approve {shlex.quote(phase)}")


def _budget_needs(state: RunState) -> Iterator[Need]:
    if state.reason.startswith("the budget"):
        yield Need("budget", state.reason, _continue_command(state))


def _continue_command(state: RunState) -> str:
    command = f"holdfast resume {state.run_id}"
    if state.reason.startswith("the budget"):
        return f"{command} --budget {max(state.cost_usd * 2, 0.01):.2f}"
    return command


def answers(record: TaskState) -> tuple[str, ...]:
    """What a person may decide about the question that a task waits with, what is recommended first."""
    choices = _ANSWERS.get(record.question, ())
    if record.accepted is None and record.question == "changed":  # its record was lost, and there is no copy
        choices = tuple(choice for choice in choices if choice != "restore")
    return tuple(sorted(choices, key=lambda choice: not record.error.endswith(f": {choice} is recommended")))


def decode_spec(state: RunState) -> PipelineSpec:
    """The pipeline as the journal recorded it."""
    data = bytes(state.spec)
    return _spec_decoder.decode(data) if data else PipelineSpec(name=state.pipeline)
