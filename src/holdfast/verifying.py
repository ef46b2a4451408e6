"""Everything of one run compared with what its record says. Only looks: changes nothing, takes no lock.

verify                 one report: findings (something is off), notes (nothing is, but worth knowing), counts
  audit                every journal line, every snapshot (auditing.py)
  _Tasks               every accepted file, value and paid call; what they were made from; their checks
  _prove_pack          every object of the run's pack

It may run while an engine does. What is read first may be outdated by the time the files are looked at, so a
task with a finding is looked at again if the journal has moved on. Files are read one at a time.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast import looks as look
from holdfast.artifacts import Artifacts, LostValueError
from holdfast.auditing import DIFFERENT, FORBIDDEN, SHORTENED, TORN, Flaw, audit
from holdfast.context import Context, Desk
from holdfast.engine.attempt import Attempts
from holdfast.engine.drawing import draw
from holdfast.errors import CheckpointCorruptionError, HoldfastError, StorageError, UsageError
from holdfast.events import FileRecord
from holdfast.history import read_history
from holdfast.inputs import Inputs, differing, known_items
from holdfast.layout import ProjectLayout
from holdfast.looks import UNREADABLE
from holdfast.picture import decode_spec
from holdfast.pipeline.compiling import Check, CompiledPipeline
from holdfast.pipeline.graph import build_graph
from holdfast.pipeline.nodes import Node
from holdfast.runs import run_layout
from holdfast.state import COMPLETED, Accepted, RunState, TaskState
from holdfast.stores import atomic
from holdfast.stores.objects import ObjectStore
from holdfast.stores.packs import Pack
from holdfast.stores.tree import WorkTree
from holdfast.views.stamp import Stamp, read_json_stamp, read_stamp

Tell = Callable[[str, int], None]
"""Called with what is being looked at, and how many of them were."""

LoadPipeline = Callable[[], CompiledPipeline]

NO_COPY = "no copy"

_NAMED_MAX = 3  # files in one line
_VIEW_MAX = 64 << 20
_SQLITE = b"SQLite format 3\0"
_LOOKS_AT_A_TAIL = 5
_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as the record says."""

    task: str  # "" for what belongs to no task
    path: str  # relative to the project
    problem: str
    detail: str
    fix: str


@dataclass
class Report:
    """What `verify` found."""

    run_id: str
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)  # artifact, object, journal line, snapshot -> how many

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
            whole = self._prove_pack()
            compiled = self._pipeline()
            report.findings += self._look_at_tasks(state, whole, compiled)
            report.notes += _view_notes(self._layout, state)
        return report

    # --- the record ------------------------------------------------------------------------------------------

    def _look_at_the_record(self) -> None:
        found = audit(self._run, lambda lines: self._tell("journal line", lines))
        self._report.counts["journal line"] = found.lines
        self._report.counts["snapshot"] = found.snapshots
        self._report.notes += found.notes
        for flaw in found.flaws:
            self._find("", flaw.path, flaw.problem, flaw.detail, self._remedy(flaw))

    def _remedy(self, flaw: Flaw) -> str:
        """What leads out of a flaw of the record."""
        if flaw.problem == FORBIDDEN:
            return f"chmod u+rw {shlex.quote(os.path.relpath(flaw.path, self._layout.root))}"
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
        except CheckpointCorruptionError:
            return None  # told by the audit, line by line
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise
            return None  # so was this
        if not state.run_id:
            fix = f"{self._resume} rebuilds it from what is left"
            self._find(
                "", self._run.journal, "lost", "it has no readable beginning, and no snapshot stands in", fix
            )
            return None
        return state

    def _find(self, task: str, path: Path, problem: str, detail: str, fix: str) -> None:
        shown = os.path.relpath(path, self._layout.root)
        self._report.findings.append(Finding(task, shown, problem, detail, fix))

    # --- objects ---------------------------------------------------------------------------------------------

    def _prove_pack(self) -> set[str]:
        """The objects of the run's own pack that are whole."""
        pack = Pack(self._layout.objects / f"{self._report.run_id}.pack")
        whole: set[str] = set()
        try:
            torn = _scanned(pack)
            for number, (sha, is_whole) in enumerate(pack.prove(), 1):
                self._tell("object", number)
                if is_whole:
                    whole.add(sha)
                else:
                    pack.damage.append(f"{pack.path.name}: object {sha[:12]} is damaged")
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise
            torn = 0
            pack.damage.append(error.strerror or "cannot be read")
        self._report.counts["object"] = len(pack.objects)
        fix = f"{self._resume} makes new copies of what is whole in the project"
        for words in pack.damage:
            self._find("", pack.path, look.DAMAGED, words.removeprefix(f"{pack.path.name}: "), fix)
        if torn:
            self._find("", pack.path, TORN, f"{torn} bytes after its last whole object", self._resume)
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
        objects = ObjectStore(self._layout.objects, state.run_id, self._layout.tmp, read_only=True)
        tree = WorkTree(self._layout.root, self._layout.tmp)
        try:
            looking = _Tasks(state, Artifacts(tree, objects), whole, compiled, self._resume, self._layout.root)
            findings: list[Finding] = []
            for task in tasks:
                if state.task(task).status == COMPLETED:
                    findings += looking.findings(task)
                    self._tell("artifact", looking.files)
        finally:
            objects.close()
            tree.close()
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


class _Tasks:
    """The finished tasks of one state, looked at one by one."""

    def __init__(
        self,
        state: RunState,
        artifacts: Artifacts,
        whole: set[str],
        compiled: CompiledPipeline | None,
        resume: str,
        root: Path,
    ) -> None:
        self.files = 0
        self.other_objects = 0  # not in the run's own pack: large ones, and those another run kept first
        self.checks = 0
        self.notes: list[str] = []
        self._opened: set[str] = set()  # memory files whose beginning was looked at
        self._state = state
        self._artifacts = artifacts
        self._whole = whole
        self._resume = resume
        spec = decode_spec(state)
        self._graph = build_graph(spec, known_items(spec, state, artifacts))
        self._inputs = Inputs(self._graph, state, artifacts, root)
        self._orphans = frozenset(draw(state, artifacts.load).orphans())
        self._taken = {file.path for task in state.tasks for file in self._files(task)} if self._orphans else set()
        self._checks = compiled.checks if compiled is not None else {}
        if compiled is not None:
            self._attempts = Attempts(state, self._inputs, artifacts, compiled, root, _NO_DESK)

    def findings(self, task: str) -> Iterator[Finding]:
        """All that is off about one finished task."""
        record, node = self._state.task(task), self._graph.nodes.get(task)
        accepted = record.accepted or Accepted()
        names = node.names if node is not None else (task,)
        found = [self._file(task, file, names) or self._copy(task, file) for file in accepted.files]
        found += [self._value(task, ref) for ref in self._refs(task, record)]
        if record.value_lost:
            self.notes.append(f"the value of {task} was lost with the record; it is made again when it is needed")
        off = [finding for finding in found if finding is not None]
        if task in self._orphans:
            self.notes += [_of_an_orphan(finding) for finding in off if finding.path not in self._taken]
            return
        yield from off
        if node is not None and node.is_task:
            yield from self._opening(node)
            yield from self._staleness(node, record)
            if not off:
                yield from self._refusals(node, accepted)

    def _files(self, task: str) -> Sequence[FileRecord]:
        """The files that a task of the pipeline has now."""
        accepted = self._state.task(task).accepted if task not in self._orphans else None
        return accepted.files if accepted is not None else ()

    # --- content ---------------------------------------------------------------------------------------------

    def _file(self, task: str, file: FileRecord, names: Sequence[str]) -> Finding | None:
        self.files += 1
        try:
            seen = self._artifacts.check(file, names)
        except UsageError as error:  # a folder on the way is a link, or no folder
            return Finding(task, file.path, look.DAMAGED, error.message, f"mend that, then: {self._resume}")
        if seen.kind == look.SEALED:
            return None
        can_heal = self._artifacts.can_heal(file)
        if seen.kind == look.CHANGED:
            fix = f"{self._resume} --on-changed restore (or keep)"
            fix += "" if can_heal else "; its copy is lost, so restore makes it again"
            return Finding(task, file.path, seen.kind, seen.detail or "not what was accepted", fix)
        if seen.is_whole:
            return Finding(task, file.path, seen.kind, seen.detail, f"{self._resume} seals it anew")
        fix = f"{self._resume} puts it back" if can_heal else f"{self._resume} makes it again"
        return Finding(task, file.path, seen.kind, seen.detail, fix)

    def _copy(self, task: str, file: FileRecord) -> Finding | None:
        """Of a file that is whole: a copy can be made from it."""
        if not file.stored or self._has(file.sha256):
            return None
        fix = f"{self._resume} makes a new one from the file"
        return Finding(task, file.path, NO_COPY, f"objects/ has no whole {file.sha256[:12]}", fix)

    def _opening(self, node: Node) -> Iterator[Finding]:
        """The text that opens a memory file belongs to another task than its sections, and is looked at once."""
        head = self._inputs.head_of(node)
        path = self._inputs.memory_path(node.spec, node.path) if head is not None else ""
        if head is None or path in self._opened or path not in self._state.memories:
            return
        self._opened.add(path)
        seen = self._artifacts.sections.look(path, head.names)
        # One that a person edited is left as it is.
        if seen.kind not in (look.MISSING, look.DAMAGED) or not self._has_text(self._state.task(head.id)):
            return
        yield Finding(head.id, path, seen.kind, seen.detail, f"{self._resume} puts it back")

    def _has_text(self, record: TaskState) -> bool:
        """Whether what it gave is still there to be put back."""
        if record.status != COMPLETED or record.accepted is None or record.value_lost:
            return False
        try:
            self._artifacts.load(record.accepted)
        except LostValueError:
            return False
        return True

    def _value(self, task: str, ref: str) -> Finding | None:
        if self._has(ref):
            return None
        fix = f"{self._resume} makes it again"
        return Finding(task, "", "value lost", f"objects/ has no whole {ref[:12]}", fix)

    def _refs(self, task: str, record: TaskState) -> list[str]:
        """The values of a task that are kept by hash."""
        accepted = record.accepted
        # A value that went with the record is known to be lost: a note says so.
        is_kept = accepted is not None and accepted.value_ref and not record.value_lost
        refs = [accepted.value_ref] if accepted is not None and is_kept else []
        # A paid call of finished work is needed only if that is lost too.
        calls = self._state.once.get(task, {}) if record.status != COMPLETED else {}
        return refs + [once.result_ref for once in calls.values() if once.result_ref]

    def _has(self, sha: str) -> bool:
        if sha in self._whole:
            return True
        self.other_objects += 1
        return self._artifacts.objects.is_whole(sha)

    # --- meaning ---------------------------------------------------------------------------------------------

    def _staleness(self, node: Node, record: TaskState) -> Iterator[Finding]:
        """Made from inputs that are no longer the recorded ones. In a run that goes on, that is work to come."""
        if getattr(node.spec, "appends", None):
            return  # a section once accepted stands
        if node.id in self._state.keeps or any(not self._is_through(parent) for parent in node.parents):
            return
        parts = self._inputs.parts(node)
        if self._inputs.digest(node, parts) == record.input_digest:
            return
        changed = differing(record.inputs, parts)
        if not changed:
            return
        words = "changed since it was made: " + ", ".join(changed)
        if self._state.status == COMPLETED:
            path = next((f.path for f in record.accepted.files), "") if record.accepted is not None else ""
            yield Finding(node.id, path, "stale", words, f"{self._resume} makes it again")
        else:
            self.notes.append(f"{node.id} will be made again: {words}")

    def _is_through(self, parent: Node) -> bool:
        return not parent.is_task or self._state.task(parent.id).status == COMPLETED

    def _refusals(self, node: Node, accepted: Accepted) -> Iterator[Finding]:
        checks = self._checks.get(node.spec.name, ())
        if not checks:
            return
        try:
            output = self._artifacts.load(accepted)
            refusal = self._objection(checks, node, output)
        except LostValueError as error:
            self.notes.append(f"the checks of {node.id} were not applied: {error}")
            return
        self.checks += len(checks)
        if refusal:
            path = accepted.files[0].path if accepted.files else ""
            yield Finding(node.id, path, "refused", refusal, f"{self._resume} --redo '{node.id}'")

    def _objection(self, checks: Sequence[Check], node: Node, output: Any) -> str:
        """What the checks say; nothing may be recorded or paid for meanwhile."""
        ctx = _LookingContext(
            _NO_DESK,
            run_id=self._state.run_id,
            task_id=node.id,
            item=node.item,
            params=self._state.params,
            directory=self._inputs.root,
        )
        refusal = self._attempts.run_checks(tuple(checks), node, ctx, output)
        if refusal and ctx.was_asked:
            self.notes.append(f"the check of {node.id} wants to record something, so it was not applied")
            return ""
        return refusal


class _LookingContext(Context):
    """What a check sees when nothing may happen: its place in the run, and no way to write or to pay."""

    was_asked = False

    def _alive(self) -> None:
        self.was_asked = True
        self.end("verify only looks")
        super()._alive()


_NO_DESK: Desk = None  # type: ignore[assignment]  # nobody comes as far as to use it


def _of_an_orphan(finding: Finding) -> str:
    """What is off about a task that the pipeline no longer has: nothing puts it back, and nothing needs it."""
    detail = f" ({finding.detail})" if finding.detail else ""
    what = f"{finding.path} is " if finding.path else ""
    return f"{finding.task} is no longer in the pipeline: {what}{finding.problem}{detail}"


def _scanned(pack: Pack) -> int:
    """Scan the pack; gives the bytes of a torn tail that is no append under way."""
    for attempt in range(_LOOKS_AT_A_TAIL):
        if attempt:
            time.sleep(_PAUSE_S)
        pack.refresh()
        try:
            torn = os.lstat(pack.path).st_size - pack.end
        except FileNotFoundError:
            return 0
        if torn <= 0:
            return 0
    return torn


# --- views -----------------------------------------------------------------------------------------------------


def _view_notes(layout: ProjectLayout, state: RunState) -> Iterator[str]:
    """Views are derived: whatever is wrong with one is worth a word, and no more."""
    run = layout.run(state.run_id)
    pages = [layout.checkpoint_view, layout.resume_view, run.summary, *([run.progress] if state.sections else [])]
    problems = {path: _view_problem(path, state.run_id, state.seq) for path in pages}
    problems[layout.todos_db] = _database_problem(layout.todos_db)
    for path, words in problems.items():
        if words:
            yield f"{os.path.relpath(path, layout.root)} {words}; the next run writes it anew"


def _database_problem(path: Path) -> str:
    try:
        fd = atomic.open_regular(os.fspath(path))
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        return "is no file that can be read"
    try:
        return "" if os.read(fd, len(_SQLITE)) == _SQLITE else "is no database"
    finally:
        os.close(fd)


def _view_problem(path: Path, run_id: str, seq: int) -> str:
    try:
        data = atomic.read_file(path, limit=_VIEW_MAX)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        return "is no file that can be read"
    stamp = _stamp_of(path, data)
    if stamp is None:
        return "carries no stamp"
    if stamp.run != run_id:
        return ""  # another run's turn was later
    if not stamp.fits:
        return "was edited"
    return "is older than the journal" if stamp.seq < seq else ""


def _stamp_of(path: Path, data: bytes) -> Stamp | None:
    if path.suffix == ".json":
        return read_json_stamp(data)
    return read_stamp(data.decode("utf-8", "surrogateescape"))
