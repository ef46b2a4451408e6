"""Everything of one run compared with what its record says. Only looks: changes nothing, takes no lock.

verify                 one report: findings (something is off), notes (nothing is, but worth knowing), counts
  audit                every journal line, every snapshot (runs/auditing.py)
  Inspection           every accepted file, value and paid call; what they were made from; their checks
                       (sessions/inspecting.py)
  _prove_pack          every object of the run's pack

It may run while an engine does. What is read first may be outdated by the time the files are looked at, so a
task with a finding is looked at again if the journal has moved on. Files are read one at a time.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from holdfast.artifacts import looks as look
from holdfast.errors import CheckpointCorruptionError, ForbiddenError, HoldfastError, StorageError
from holdfast.layout import ProjectLayout, objects_path
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.runs.auditing import DIFFERENT, FORBIDDEN, SHORTENED, Flaw, audit
from holdfast.runs.history import name_pipeline, read_history
from holdfast.runs.listing import begin_again, identify, is_bare, run_layout
from holdfast.runs.looking import artifacts_of, objects_of
from holdfast.sessions.inspecting import NO_COPY, Finding, Inspection
from holdfast.state import COMPLETED, RunState
from holdfast.views.soundness import notes_on

Tell = Callable[[str, int], None]
"""Called with what is being looked at, and how many of them were."""

LoadPipeline = Callable[[], CompiledPipeline]

_NAMED_MAX = 3  # files in one line


class Report(msgspec.Struct):
    """What `verify` found."""

    run_id: str
    findings: list[Finding] = []
    notes: list[str] = []
    counts: dict[str, int] = {}  # artifact, object, journal line, snapshot -> how many

    @property
    def ok(self) -> bool:
        return not self.findings


def verify(
    layout: ProjectLayout,
    run_id: str,
    *,
    load: LoadPipeline | None = None,
    tell: Tell = lambda what, done: None,
) -> Report:
    """Look at everything of one run. `load` gives its pipeline; without it no checks are applied."""
    run_layout(layout, run_id)
    try:
        return _Verification(layout, run_id, load, tell).report()
    except OSError as error:
        raise StorageError.from_os(error, "read") from error


class _Verification:
    """One pass over everything; `report` is its order."""

    def __init__(self, layout: ProjectLayout, run_id: str, load: LoadPipeline | None, tell: Tell) -> None:
        self._layout = layout
        self._run = layout.run(run_id)
        self._load = load
        self._tell = tell
        self._report = Report(run_id)
        self._resume = f"holdfast resume {run_id}"

    def report(self) -> Report:
        report = self._report
        self._look_at_the_record()
        state = self._state()
        if state is not None:
            whole = self._prove_objects()
            compiled = self._pipeline()
            report.findings += self._look_at_tasks(state, whole, compiled)
            report.notes += notes_on(self._layout, state)
        return report

    # --- the record ------------------------------------------------------------------------------------------

    def _look_at_the_record(self) -> None:
        found = audit(self._run, lambda lines: self._tell("journal line", lines))
        self._report.counts["journal line"] = found.lines
        self._report.counts["snapshot"] = found.snapshots
        self._report.notes += found.notes
        for flaw in found.flaws:
            self._find(flaw.path, flaw.problem, flaw.detail, self._remedy(flaw))

    def _remedy(self, flaw: Flaw) -> str:
        """What leads out of a flaw of the record."""
        if flaw.problem == FORBIDDEN:
            return f"chmod u+rw {shlex.quote(os.fspath(flaw.path))}"
        if flaw.problem == DIFFERENT:  # it proves itself, so that nobody but us would notice
            return "Move it away: the journal says all that is needed"
        if flaw.path != self._run.journal:
            return f"{self._resume} sets it aside; the journal says the same"
        if flaw.problem == SHORTENED:
            return f"{self._resume} writes the journal anew, with a word about what it lost"
        return f"{self._resume} keeps every line that is whole"

    def _state(self) -> RunState | None:
        """The run as the next `resume` would read it; None, and a finding, if nothing is left to read."""
        try:
            state = read_history(self._run).state
        except (CheckpointCorruptionError, ForbiddenError):
            return None  # told by the audit
        if not state.run_id:
            detail = "it has no readable beginning, and no snapshot stands in"
            self._find(self._run.journal, "lost", detail, self._way_back())
            return None
        return state

    def _way_back(self) -> str:
        """What leads on where nothing of the journal is left: `resume` only if a view names the pipeline."""
        run_id = self._report.run_id
        if is_bare(self._layout, run_id):
            return begin_again(run_id)
        if identify(self._layout, run_id) is None:
            return name_pipeline(run_id)
        return f"{self._resume} rebuilds it from what is left"

    def _find(self, path: Path, problem: str, detail: str, fix: str) -> None:
        """Something is off that belongs to no task."""
        shown = os.path.relpath(path, self._layout.root)
        self._report.findings.append(Finding("", shown, problem, detail, fix))

    # --- objects ---------------------------------------------------------------------------------------------

    def _prove_objects(self) -> set[str]:
        """The small objects of the run that are whole."""
        run_id, whole = self._report.run_id, set()
        with objects_of(self._layout, run_id) as objects:
            for number, (sha, is_whole) in enumerate(objects.prove(), 1):
                self._tell("object", number)
                if is_whole:
                    whole.add(sha)
            damage = objects.damage
        self._report.counts["object"] = len(whole)
        fix = f"{self._resume} makes new copies of what is whole in the project"
        for words in damage:
            self._find(objects_path(self._layout.objects, run_id), look.DAMAGED, words, fix)
        return whole

    # --- tasks -----------------------------------------------------------------------------------------------

    def _look_at_tasks(self, state: RunState, whole: set[str], compiled: CompiledPipeline | None) -> list[Finding]:
        findings = self._one_look(state, whole, compiled, list(state.tasks))
        tasks = dict.fromkeys(finding.task for finding in findings)
        if tasks:
            now = read_history(self._run).state
            if now.seq != state.seq:  # an engine is at work: what was off may have been on its way
                findings = self._one_look(now, set(), compiled, list(tasks), count=False)
        return self._copies_in_one(findings)

    def _copies_in_one(self, findings: list[Finding]) -> list[Finding]:
        """The findings, with all lost copies as one: where one is lost, most are."""
        lost = [finding for finding in findings if finding.problem == NO_COPY]
        if len(lost) < 2:
            return findings
        paths = sorted(finding.path for finding in lost)
        more = f", and {len(paths) - _NAMED_MAX} more" if len(paths) > _NAMED_MAX else ""
        detail = f"of {len(paths)} files: {', '.join(paths[:_NAMED_MAX])}{more}"
        fix = f"{self._resume} makes new ones from the files"
        where = os.path.relpath(self._layout.objects, self._layout.root)
        others = [finding for finding in findings if finding.problem != NO_COPY]
        return [Finding("", where, NO_COPY, detail, fix), *others]

    def _one_look(
        self,
        state: RunState,
        whole: set[str],
        compiled: CompiledPipeline | None,
        tasks: Sequence[str],
        *,
        count: bool = True,
    ) -> list[Finding]:
        findings: list[Finding] = []
        with artifacts_of(self._layout, state.run_id) as artifacts:
            looking = Inspection(state, artifacts, whole, compiled, self._resume, self._layout)
            for task in tasks:
                if state.task(task).status == COMPLETED:
                    findings += looking.findings(task)
                    self._tell("artifact", looking.files)
        if count:
            self._report.counts["artifact"] = looking.files
            self._report.counts["object"] = self._report.counts.get("object", 0) + looking.other_objects
            self._report.counts["check"] = looking.checks
            self._report.notes += looking.notes
        return findings

    def _pipeline(self) -> CompiledPipeline | None:
        if self._load is None:
            return None
        try:
            return self._load()
        except HoldfastError as error:
            words = error.message.splitlines()[0]
            self._report.notes.append(f"the pipeline does not load, so its checks were not applied: {words}")
            return None
