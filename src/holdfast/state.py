"""What is true: a run's state, as the fold of its journal (folding/) makes it.

Task statuses: pending, in_progress, completed, failed (another attempt is due), needs_review, skipped. That a
task is *blocked* follows from the graph and is never stored.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.events import NO_VALUE, FileRecord

PENDING = "pending"
IN_PROGRESS = "in_progress"
COMPLETED = "completed"
FAILED = "failed"
NEEDS_REVIEW = "needs_review"
BLOCKED = "blocked"
SKIPPED = "skipped"
PAUSED = "paused"

WAITS_FOR_PERSON = "waiting for a person"
USED_UP = "a task used up its attempts"
"""Why a run stopped, where a person's word leads on."""

LEFT_OUT = "left out"
"""The kind of a task that was skipped only because a producer was."""

SENT_BACK = "sent back"
"""How a gate stands in whose name work was rejected, until that work is there again."""


class Accepted(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a task gave: files and, or, a value (inline, or in objects/ by hash)."""

    files: tuple[FileRecord, ...] = ()
    value: msgspec.Raw = NO_VALUE
    value_ref: str = ""


class TaskState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One task. Replaced, never changed, so that a copy of the table is a consistent picture."""

    status: str = PENDING
    round: int = 0
    attempt: int = 0  # attempts begun in this round
    failures: int = 0  # attempts used up since the last fresh set
    failed_on: str = ""  # the digest of what the task was given then; "" if something of it was not known
    started_at: float | None = None
    completed_at: float | None = None
    duration: float = 0.0
    version: int = 1
    input_digest: str = ""
    inputs: dict[str, str] = {}
    output_digest: str = ""
    accepted: Accepted | None = None
    previous: Accepted | None = None  # what was sent back before this round; kept, in case its output is lost
    feedback: tuple[str, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    round_cost_usd: float = 0.0  # spent in this round: thrown away with it
    loose_cost_usd: float = 0.0  # spent in the latest attempt outside any paid call: lost with what it made
    cut_off_cost_usd: float = 0.0  # the same of an attempt cut off, or lost, in case its output is found whole
    error: str = ""
    kind: str = ""  # of the failure, or `LEFT_OUT`
    question: str = ""  # changed | partial | input | path: waits for a person
    decided: str = ""  # keep | restore | redo | continue: a person's answer, not yet carried out
    value_lost: bool = False  # adopted without its value, which nobody has any more
    cut_off: bool = False  # an attempt was interrupted: half-finished work may lie about
    evidence: str = ""  # how it came to be completed, if not by running here; of an open task: see `claimed`
    redo_reason: str = ""  # why it runs again; kept when it has, for `why`
    before: TaskState | None = None  # finished work whose inputs changed, until it begins to run again

    @property
    def has_failed(self) -> bool:
        """Whether it used up its attempts; one that sent work back too often has not failed, though it waits."""
        return self.status == NEEDS_REVIEW and self.kind != "rounds"

    def failed_on_other(self, given: str) -> bool:
        """Whether its attempts failed on something else than it is given now: that says nothing about this.

        Not if it sent work back too often, or a person left it out: that stands whatever comes.
        """
        is_open = self.status in (FAILED, NEEDS_REVIEW) and self.kind != "rounds"
        is_given_up = self.status == SKIPPED and self.kind not in ("", LEFT_OUT)
        return bool(given) and (is_open or is_given_up) and self.failed_on not in ("", given)

    @property
    def claimed(self) -> str:
        """The view in which somebody said that it is done, although it is not."""
        return self.evidence if self.status != COMPLETED else ""


class OnceRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A paid call's result, and how many usage reports are booked for it."""

    kind: str
    result: msgspec.Raw = NO_VALUE
    result_ref: str = ""
    usages: int = 0
    made_from: str = ""  # how the digest of its task's inputs began: for others, it is no result
    awaited: bool = False


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str
    impact: str = ""
    task: str = ""
    at: float = 0.0


class DecisionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    what: str
    why: str
    outcome: str = ""
    task: str = ""
    at: float = 0.0


class Section(msgspec.Struct, frozen=True, omit_defaults=True):
    title: str
    text: str
    sources: tuple[str, ...] = ()


class Recall(msgspec.Struct, frozen=True, omit_defaults=True):
    """Objections to one task's output, collected until every started consumer has ended."""

    feedback: tuple[str, ...] = ()
    raisers: tuple[str, ...] = ()


class RunState(msgspec.Struct, omit_defaults=True):
    """A run. Only `fold` changes it."""

    run_id: str = ""
    pipeline: str = ""
    ordinal: int = 0
    file: str = ""
    params: dict[str, Any] = {}
    tags: dict[str, Any] = {}
    spec: msgspec.Raw = NO_VALUE
    status: str = PENDING
    reason: str = ""  # why it stopped
    rebuilt: bool = False  # the record was lost, and the evidence has not been gone through to its end yet
    forced: bool = False  # what runs before it left in its way is set aside
    lost: bool = False  # some of its record was lost once, perhaps what a person had said
    budget_usd: float | None = None  # stays until another one is given
    host: str = ""
    pid: int = 0
    seq: int = 0
    started_at: float | None = None
    updated_at: float | None = None
    tasks: dict[str, TaskState] = {}
    once: dict[str, dict[str, OnceRecord]] = {}
    rounds: dict[str, int] = {}  # "raiser -> target" -> times sent back
    recalls: dict[str, Recall] = {}
    keeps: dict[str, str] = {}  # task id -> the raiser that wants it kept
    gates: dict[str, str] = {}  # gate id -> reached | approved | sent back
    phases: dict[str, str] = {}  # "phase:NAME" -> started | the checklist's refusal
    notes: list[Note] = []
    decisions: list[DecisionRecord] = []
    sections: dict[str, Section] = {}
    memories: dict[str, str] = {}  # memory file -> the step that keeps it
    surprises: list[Note] = []  # healed, set aside, asked, invalidated, repaired
    cost_usd: float = 0.0
    wasted_cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    last_completed: str = ""
    snapshot_number: int = 0

    def task(self, task_id: str) -> TaskState:
        return self.tasks.get(task_id, _NOTHING)


_NOTHING = TaskState()


def fits(record: OnceRecord, input_digest: str) -> bool:
    """Whether a paid call was made for these inputs, as far as anybody can tell."""
    return input_digest.startswith(record.made_from)


SENDS_BACK = " -> "


def rounds_key(raiser: str, target: str) -> str:
    return f"{raiser}{SENDS_BACK}{target}"
