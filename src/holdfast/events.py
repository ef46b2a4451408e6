"""What happened: one frozen struct per event, in the words of the journal.

A field with its default value is not written. How an event becomes a line of the journal: `journal/lines.py`.
"""

from __future__ import annotations

from typing import Any

import msgspec

NO_VALUE = msgspec.Raw()
"""No value at all. Always this object: a field is left out of the journal only if it is the very default."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    """The base of all events."""


class FileRecord(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One accepted file: its bytes above the seal hash to `sha256`."""

    key: str  # "" for the single file of a step, else the key of `writes`
    path: str
    size: int
    sha256: str
    kind: str  # "text" | "json" | "bytes" | "path": the form in which consumers receive it; or a section's kind
    newline_added: bool = False
    stored: bool = True  # a copy is in objects/
    mark: str = ""  # size, time and inode when it was written or read in full: what --quick compares
    by_hand: bool = False  # a person edited it, and the edit was kept


# --- the run ---------------------------------------------------------------------------------------------


class RunStarted(Event, frozen=True, kw_only=True, tag="run_started"):
    run_id: str
    pipeline: str
    ordinal: int
    params: dict[str, Any] = {}
    file: str = ""  # FILE.py[:NAME], relative to the project where possible
    budget_usd: float | None = None
    host: str = ""
    pid: int = 0
    holdfast: str = ""
    rebuilt: bool = False  # the record was lost: this one is made from what the files and views say
    forced: bool = False  # --force: what is in its way is set aside


class Recovered(Event, frozen=True, kw_only=True, tag="recovered"):
    """The record was compared with what is there: how many tasks got which decision, how far it rewinds."""

    counts: dict[str, int] = {}
    again: tuple[str, ...] = ()  # finished tasks that run again, the first of them
    behind: int = 0  # finished tasks behind those: looked at again when they are through
    waiting: int = 0  # finished tasks not looked at yet: they stand behind one that is asked about
    disagreements: tuple[str, ...] = ()


class PipelineDeclared(Event, frozen=True, kw_only=True, tag="pipeline_declared"):
    """The pipeline as data, recorded whenever it differs from what was recorded before."""

    spec: msgspec.Raw
    renamed: dict[str, str] = {}  # old step name -> new


class RunContinued(Event, frozen=True, kw_only=True, tag="run_continued"):
    params: dict[str, Any] | None = None
    file: str = ""
    fresh_attempts: bool = False
    budget_usd: float | None = None  # if it was given anew
    host: str = ""
    pid: int = 0


class RunStopped(Event, frozen=True, kw_only=True, tag="run_stopped"):
    status: str  # completed | failed | paused | in_progress (interrupted)
    reason: str = ""


class SnapshotWritten(Event, frozen=True, kw_only=True, tag="snapshot_written"):
    number: int


# --- tasks -----------------------------------------------------------------------------------------------


class NodeEntered(Event, frozen=True, kw_only=True, tag="node_enter"):
    step_id: str
    node: str
    parent_id: str = ""
    parents: tuple[str, ...] = ()
    round: int = 0
    attempt: int = 1
    partial_chars: int = 0  # so much half-finished text is handed to it


class NodeExited(Event, frozen=True, kw_only=True, tag="node_exit"):
    """An attempt ended: `completed`, or `failed` (another is due), `needs_review` or `skipped`."""

    step_id: str
    node: str
    status: str
    parent_id: str = ""
    round: int = 0
    attempt: int = 1
    version: int = 1
    duration: float = 0.0
    input_digest: str = msgspec.field(default="", name="in")
    inputs: dict[str, str] = {}  # each input's digest, shortened: what `why` compares
    output_digest: str = msgspec.field(default="", name="out")
    files: tuple[FileRecord, ...] = ()
    value: msgspec.Raw = NO_VALUE
    value_ref: str = ""
    error: str = ""
    kind: str = ""  # of a failure: error | timeout | refused | rounds | definition
    failed_on: str = ""  # of a failure: the digest of what the task was given, files from outside left out
    new_round: bool = False  # a refused output: nothing of this round is replayed
    retry_in: float = 0.0
    # What is on record as spent on the task until now: the lines that told of it may be lost one day.
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0


class TaskAdopted(Event, frozen=True, kw_only=True, tag="task_adopted"):
    """A whole artifact without a record was believed; `evidence` says what kind of proof it carried.

    Of a `lost` one there is no artifact, only what was made from it, or a view's word.
    """

    step_id: str
    node: str
    evidence: str  # sealed | marker | exists | kept (a person said so) | lost (see below)
    round: int = 0
    version: int = 1
    input_digest: str = msgspec.field(default="", name="in")
    inputs: dict[str, str] = {}
    output_digest: str = msgspec.field(default="", name="out")
    files: tuple[FileRecord, ...] = ()
    value_ref: str = ""
    value_lost: bool = False  # it gave a value that nobody has any more; it runs again if a task needs that
    cost_usd: float = 0.0
    tokens: int = 0


class TaskInvalidated(Event, frozen=True, kw_only=True, tag="task_invalidated"):
    """Finished work that will run again: in a new round, or, if it is only lost, in the same."""

    step_id: str
    reason: str
    damaged: bool = False  # nobody objected, it is lost: the same round, whose paid calls are replayed
    stale: bool = False  # nobody objected: its inputs are others, and may become the old ones again
    failures: int = 0  # attempts that count on: only files from outside have changed, perhaps by the step itself


class TaskReinstated(Event, frozen=True, kw_only=True, tag="task_reinstated"):
    """Finished work that was to run again, and is made from the inputs that are there again: it never ran."""

    step_id: str
    reason: str


class TaskKept(Event, frozen=True, kw_only=True, tag="task_kept"):
    """Finished work that stays accepted: against another input (`keep`), or with an edit."""

    step_id: str
    reason: str
    input_digest: str = msgspec.field(default="", name="in")
    inputs: dict[str, str] = {}
    output_digest: str = msgspec.field(default="", name="out")
    files: tuple[FileRecord, ...] = ()


class ValueMigrated(Event, frozen=True, kw_only=True, tag="value_migrated"):
    """An output brought from an older step version, or into a file; consumers know it by its old digest."""

    step_id: str
    version: int
    reason: str = ""  # if not for another version
    input_digest: str = msgspec.field(default="", name="in")
    inputs: dict[str, str] = {}
    files: tuple[FileRecord, ...] = ()
    value: msgspec.Raw = NO_VALUE
    value_ref: str = ""


class TaskSkipped(Event, frozen=True, kw_only=True, tag="task_skipped"):
    """A task is left out, because a producer was."""

    step_id: str
    reason: str


class TaskTakenUp(Event, frozen=True, kw_only=True, tag="task_taken_up"):
    """A task that was left out because a producer was, which is not left out any more."""

    step_id: str


class ArtifactHealed(Event, frozen=True, kw_only=True, tag="artifact_healed"):
    step_id: str
    path: str
    problem: str
    resealed: bool = False  # only the seal was damaged: what is above it needed no copy
    source: str = ""  # what had been set aside, and was put back; "" for objects/


class ArtifactSetAside(Event, frozen=True, kw_only=True, tag="artifact_set_aside"):
    step_id: str
    path: str
    to: str
    reason: str


class ArtifactMoved(Event, frozen=True, kw_only=True, tag="artifact_moved"):
    """A finished file has another path: the one that the pipeline names now, or one on the way there."""

    step_id: str
    path: str
    to: str
    files: tuple[FileRecord, ...] = ()  # all of the task, as they are from now on


class MemoryWritten(Event, frozen=True, kw_only=True, tag="memory_written"):
    """A memory file was written: with these sections, which it did not have before, or mended."""

    step_id: str  # the memory step
    path: str
    sections: tuple[str, ...] = ()  # tasks
    sha256: str = ""  # of the whole file


class QuestionAsked(Event, frozen=True, kw_only=True, tag="question_asked"):
    """Something that a person must decide before this task can go on."""

    step_id: str
    about: str  # changed | unrecorded | partial | input | path
    detail: str


class CutOff(Event, frozen=True, kw_only=True, tag="cut_off"):
    """An attempt met an error of the machine, or one while the run was being stopped: it does not count."""

    step_id: str
    error: str


class Overran(Event, frozen=True, kw_only=True, tag="overran"):
    """A sync step went on after its timeout; its context is dead."""

    step_id: str
    timeout: float


# --- sending back ----------------------------------------------------------------------------------------


class RewindRequested(Event, frozen=True, kw_only=True, tag="rewind_requested"):
    step_id: str  # the raiser: a task, a gate, or "" for a person
    targets: dict[str, str]  # task id -> feedback
    keep: tuple[str, ...] = ()  # task ids
    duration: float = 0.0


class TaskRewound(Event, frozen=True, kw_only=True, tag="task_rewound"):
    step_id: str
    feedback: tuple[str, ...]


# --- paid calls and spend --------------------------------------------------------------------------------


class OnceRecorded(Event, frozen=True, kw_only=True, tag="once_recorded"):
    step_id: str
    key: str
    round: int = 0
    kind: str = "json"  # json | bytes
    result: msgspec.Raw = NO_VALUE
    result_ref: str = ""
    spent: float = 0.0  # reported inside the call: no longer lost if the attempt fails
    input_digest: str = msgspec.field(default="", name="in")
    awaited: bool = False  # the step awaits it, and so it does a replay


class UsageRecorded(Event, frozen=True, kw_only=True, tag="usage"):
    step_id: str
    round: int = 0
    once: str = ""  # the paid call after which it was reported; "" for none
    inside: bool = False  # reported while that call was still running
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    model: str = ""


# --- what a step, or a person, says ----------------------------------------------------------------------


class SectionWritten(Event, frozen=True, kw_only=True, tag="section"):
    step_id: str
    title: str = ""
    text: str = ""
    sources: tuple[str, ...] = ()


class NoteAdded(Event, frozen=True, kw_only=True, tag="note"):
    text: str
    step_id: str = ""
    impact: str = ""


class DecisionMade(Event, frozen=True, kw_only=True, tag="decision"):
    what: str
    why: str
    step_id: str = ""
    outcome: str = ""


class Logged(Event, frozen=True, kw_only=True, tag="log"):
    step_id: str
    name: str
    fields: dict[str, Any] = {}


class Tagged(Event, frozen=True, kw_only=True, tag="tag"):
    fields: dict[str, Any]
    step_id: str = ""


# --- people ----------------------------------------------------------------------------------------------


class GateReached(Event, frozen=True, kw_only=True, tag="gate_reached"):
    step_id: str
    ask: str = ""


class GateApproved(Event, frozen=True, kw_only=True, tag="gate_approved"):
    step_id: str
    by: str = ""


class ChecklistRefused(Event, frozen=True, kw_only=True, tag="checklist_refused"):
    step_id: str  # "phase:NAME"
    reasons: tuple[str, ...]


class PhaseStarted(Event, frozen=True, kw_only=True, tag="phase_started"):
    step_id: str


class RetryRequested(Event, frozen=True, kw_only=True, tag="retry_requested"):
    step_ids: tuple[str, ...]


class RedoRequested(Event, frozen=True, kw_only=True, tag="redo_requested"):
    """`--redo`: finished work that a person wants done again."""

    step_ids: tuple[str, ...]


class Decided(Event, frozen=True, kw_only=True, tag="decided"):
    """A person's answer about one task; it is carried out when the task is next looked at."""

    step_id: str
    choice: str  # keep | restore | redo | continue | skip
    by: str = ""


class ViewEdited(Event, frozen=True, kw_only=True, tag="view_edited"):
    """Somebody changed a view by hand: a claim that a task is done, or a wish to have it done again."""

    source: str  # checkpoint.md | todos.db
    step_id: str
    wanted: str  # done | redo
    said: str = ""  # what the view says now
    was: str = ""


class JournalRepaired(Event, frozen=True, kw_only=True, tag="journal_repaired"):
    """A damaged journal was written anew with all its good lines; `missing` are the numbers of the lost ones."""

    findings: tuple[str, ...] = ()
    findings_total: int = 0
    missing: tuple[tuple[int, int], ...] = ()  # first and last of each gap
    missing_total: int = 0
    torn_bytes: int = 0
    kept_as: str = ""


class StateMended(Event, frozen=True, kw_only=True, tag="state_mended"):
    """Something of the run's own state was lost or damaged, and what was done about it."""

    findings: tuple[str, ...]
    lost_calls: dict[str, tuple[str, ...]] = {}  # task -> keys of paid calls whose results are gone


KINDS: tuple[type[Event], ...] = tuple(Event.__subclasses__())
"""All of them, in the order of this page."""
