"""What the verbs of `Project` give. The fields of each are the document that `--json` prints, in that order.

What a result was made from stands beside its fields, as `found`: for those that draw it, and in no document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import astuple, replace

from holdfast.errors import EXIT_DAMAGE, EXIT_OK
from holdfast.layout import ProjectLayout
from holdfast.runs.looking import objects_of
from holdfast.state import COMPLETED
from holdfast.views.soundness import note_on_todos
from holdfast.views.summary import Status, status_of
from holdfast.wording import addressed

if TYPE_CHECKING:
    from holdfast.project.clean import Cleaned, Doomed
    from holdfast.project.plan import Plan
    from holdfast.project.recover import Recovery
    from holdfast.project.run import RunResult
    from holdfast.project.scan import Scanned
    from holdfast.project.verify import Report
    from holdfast.recovery.scan import FileFinding
    from holdfast.recovery.strangers import Stranger
    from holdfast.runs.listing import RunInfo
    from holdfast.sessions.inspecting import Finding
    from holdfast.views.picture import Picture

F = TypeVar("F")
R = TypeVar("R", bound="Result[Any]")


class Result(Struct, Generic[F], frozen=True, dict=True):
    """A document, with what it was made from beside it."""

    @property
    def found(self) -> F:
        return cast(F, self.__dict__["found"])

    @property
    def about(self) -> str:
        """The name of the pipeline, where it is not among the fields."""
        return cast(str, self.__dict__["about"])


def beside(result: R, found: Any, about: str = "") -> R:
    """`result`, with what it was made from."""
    result.__dict__.update(found=found, about=about)
    return result


class RunEntry(Result["RunInfo"], frozen=True, dict=True):
    """One of the runs of a project."""

    run_id: str
    pipeline: str
    params: Mapping[str, Any]
    tags: Mapping[str, Any]
    status: str
    running: bool
    done: int
    skipped: int
    total: int
    total_cost_usd: float
    started_at: str | None
    updated_at: str | None
    problem: str | None


def run_entry(info: RunInfo, *, running: bool) -> RunEntry:
    entry = RunEntry(
        info.run_id,
        info.pipeline,
        info.params,
        info.tags,
        info.status,
        running,
        info.done,
        info.skipped,
        info.total,
        info.cost_usd,
        info.started_at or None,
        info.updated_at or None,
        info.problem or None,
    )
    return beside(entry, info)


class PlannedTask(Struct, frozen=True, gc=False):
    """What a run would do about a task."""

    id: str
    action: str
    reason: str
    expected_cost_usd: float | None
    if_different: bool


class PlanResult(Result["Plan"], frozen=True, dict=True):
    """What a run would do, and what that would cost."""

    run_id: str | None
    tasks: list[PlannedTask]
    orphans: list[str]
    changes: list[str]
    unknown_items: list[str]
    gates: list[str]
    expected_cost_usd: float
    most_cost_usd: float
    cost_usd: float
    budget_usd: float | None
    record_lost: bool
    running: bool


def plan_result(plan: Plan, pipeline: str) -> PlanResult:
    result = PlanResult(
        plan.run_id,
        [PlannedTask(t.id, t.action, t.reason, t.expected_cost_usd, t.if_different) for t in plan.tasks],
        plan.orphans,
        plan.changes,
        plan.unknown_items,
        plan.gates,
        plan.expected_cost_usd,
        plan.most_cost_usd,
        plan.cost_usd,
        plan.budget_usd,
        plan.is_lost,
        plan.is_running,
    )
    return beside(result, plan, pipeline)


class RecoveredTask(Struct, frozen=True, gc=False):
    """What a recovery did, or would do, about a task, and by what evidence."""

    id: str
    action: str
    reason: str
    evidence: str | None
    if_different: bool


class Disagreed(Struct, frozen=True):
    """Two sources that do not say the same of a task."""

    task: str
    said: dict[str, str]
    believed: str | None
    is_wish: bool


class DiskAction(Struct, frozen=True):
    """One change on the disk."""

    do: str
    path: str
    to: str | None


class RecoverResult(Result["Recovery"], frozen=True, dict=True):
    """What was found of a run, and what was done about it, or would be."""

    run_id: str | None
    dry_run: bool
    record_lost: bool
    tasks: list[RecoveredTask]
    orphans: list[str]
    disagreements: list[Disagreed]
    remarks: list[str]
    kept: list[str]
    unknown_items: list[str]
    not_up_to_date: str | None
    events: int
    actions: list[DiskAction]

    @property
    def exit_code(self) -> int:
        return self.found.exit_code


def recover_result(pipeline: str, recovery: Recovery, *, dry_run: bool) -> RecoverResult:
    result = RecoverResult(
        recovery.run_id if recovery.found_anything else None,
        dry_run,
        recovery.is_lost,
        [RecoveredTask(t.id, t.action, t.reason, t.evidence or None, t.if_different) for t in recovery.tasks],
        recovery.orphans,
        [Disagreed(one.task, one.said, one.believed or None, one.is_wish) for one in recovery.disagreements],
        list(recovery.remarks),
        recovery.kept,
        recovery.unknown_items,
        recovery.not_up_to_date or None,
        recovery.recorded,
        [DiskAction(one.do, one.path, one.to or None) for one in recovery.actions],
    )
    return beside(result, recovery, pipeline)


class VerifyResult(Result["Report"], frozen=True, dict=True):
    """What is off about a run, and what was looked at."""

    run_id: str
    ok: bool
    findings: list[Finding]
    notes: list[str]
    checked: dict[str, int]

    @property
    def exit_code(self) -> int:
        return EXIT_OK if self.ok else EXIT_DAMAGE


def verify_result(report: Report, directory: str) -> VerifyResult:
    """The command in every remedy is the one that has to be typed in `directory`."""
    command = f"holdfast resume {report.run_id}"
    typed = addressed(command, directory)

    def fixed(fix: str) -> str:
        """In most, words follow the command; in the others it is the last thing."""
        return fix.replace(command, typed) if command in fix else addressed(fix, directory)

    findings = [replace(finding, fix=fixed(finding.fix)) for finding in report.findings]
    checked = {f"{name.replace(' ', '_')}s": number for name, number in report.counts.items()}
    return beside(VerifyResult(report.run_id, report.ok, findings, report.notes, checked), report)


class ScanResult(Result["Scanned"], frozen=True, dict=True):
    """What the files alone say."""

    pipeline: str
    run_id: str | None
    counts: dict[str, int]
    files: list[FileFinding]
    strangers: list[Stranger]
    unknown_items: list[str]


def scan_result(pipeline: str, scanned: Scanned) -> ScanResult:
    counts = dict(Counter(finding.kind for finding in scanned.findings))
    found, strangers, unknown = scanned.findings, scanned.strangers, scanned.unknown_items
    return beside(ScanResult(pipeline, scanned.run_id or None, counts, found, strangers, unknown), scanned)


class WhyResult(Struct, frozen=True):
    """What is known of a task, a gate or a phase."""

    run_id: str
    task: str
    lines: list[str]


class Recorded(Result[str], frozen=True, dict=True):
    """A word of a person that is on record; `found` is the view that does not show it, and why, or ""."""

    run_id: str
    message: str
    running: bool
    continue_with: str | None = field(name="continue")  # None: an engine takes it up, or the run is over


def recorded(
    layout: ProjectLayout, directory: str, picture: Picture, message: str, *, is_running: bool
) -> Recorded:
    """`message` says what was recorded; the picture is of the run as it is now."""
    is_over = is_running or picture.state.status == COMPLETED
    command = None if is_over else addressed(picture.continue_command(), directory)
    behind = "" if is_running else note_on_todos(layout, picture.state)
    return beside(Recorded(picture.state.run_id, message, is_running, command), behind)


class CleanResult(Struct, frozen=True):
    """What was removed, or would be."""

    runs: tuple[Doomed, ...]
    finished: tuple[str, ...]
    dry_run: bool


def clean_result(cleaned: Cleaned, *, dry_run: bool) -> CleanResult:
    return CleanResult(cleaned.runs, cleaned.finished, dry_run)


class RunDocument(Status, frozen=True, kw_only=True):
    """How a run stands after `run`; what was believed, left alone or left behind is there if any was."""

    unread: int | UnsetType = UNSET
    left_alone: list[str] | UnsetType = UNSET
    not_up_to_date: str | UnsetType = UNSET
    exit_code: int


def run_document(result: RunResult) -> RunDocument:
    picture = result.picture
    with objects_of(result.layout, result.run_id) as objects:
        status = status_of(picture, None, objects.get)
    return RunDocument(
        *astuple(status),
        unread=result.unread or UNSET,
        left_alone=list(result.left_alone) or UNSET,
        not_up_to_date=result.not_up_to_date or UNSET,
        exit_code=result.exit_code,
    )
