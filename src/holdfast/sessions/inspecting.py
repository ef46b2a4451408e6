"""The finished tasks of a run, one by one, as the judge sees them, and what no run looks at. Only looks.

A finding says what the next run would do about it, for it is the same decision. Besides there are copies in
objects/, and checks, which are applied again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from holdfast import decisions
from holdfast.artifacts import looks as look
from holdfast.artifacts.inputs import Inputs, known_items
from holdfast.artifacts.keeping import Artifacts, LostValueError
from holdfast.artifacts.parts import UNKNOWN, Ingredients
from holdfast.context import Context
from holdfast.decisions import Decision
from holdfast.engine.attempt import Attempts
from holdfast.engine.drawing import draw
from holdfast.engine.host import StepHost
from holdfast.engine.recorder import Recorder
from holdfast.errors import InTheWayError
from holdfast.events import FileRecord
from holdfast.host import Facts
from holdfast.layout import ProjectLayout
from holdfast.pipeline.compiling import Check, CompiledPipeline
from holdfast.pipeline.nodes import Node
from holdfast.pipeline.unfolding import build_graph
from holdfast.runs.choosing import Choice, Request
from holdfast.sessions.judging import judge_for
from holdfast.state import COMPLETED, Accepted, RunState, TaskState
from holdfast.views.picture import decode_spec

NO_COPY = "no copy"


class Finding(msgspec.Struct, frozen=True):
    """One thing that is not as the record says."""

    task: str  # "" for what belongs to no task
    path: str  # relative to the project
    problem: str
    detail: str
    fix: str


class Inspection:
    """The finished tasks of one state, looked at one by one."""

    def __init__(
        self,
        state: RunState,
        artifacts: Artifacts,
        whole: set[str],
        compiled: CompiledPipeline | None,
        resume: str,
        layout: ProjectLayout,
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
        self._inputs = Inputs(self._graph, state, artifacts, layout.root)
        same_run, quarantine = Choice(state.run_id, False, state.params), layout.run(state.run_id).quarantine
        migrations = compiled.migrations if compiled is not None else {}
        self._judge = judge_for(self._inputs, layout, Request(), same_run, quarantine, None, {}, migrations)
        self._orphans = frozenset(draw(state, artifacts.load).orphans())
        self._taken = {file.path for task in state.tasks for file in self._files(task)} if self._orphans else set()
        self._checks = compiled.checks if compiled is not None else {}
        if compiled is not None:
            self._attempts = Attempts(self._inputs, compiled, _NO_RECORDER)

    def findings(self, task: str) -> Iterator[Finding]:
        """All that is off about one finished task."""
        record, node = self._state.task(task), self._graph.nodes.get(task)
        if record.value_lost:
            self.notes.append(f"the value of {task} was lost with the record; it is made again when it is needed")
        if node is None or not node.is_task or task in self._orphans:
            self.notes += self._of_an_orphan(task, record)
            return
        accepted = record.accepted or Accepted()
        self.files += len(accepted.files)
        try:
            decision = self._judge.decide(node, self._made_of(node))
        except InTheWayError as error:  # a folder on the way is a link, or no folder
            fix = f"mend that, then: {self._resume}"
            yield from (Finding(task, file.path, look.DAMAGED, error.message, fix) for file in accepted.files)
            return
        off = [found for file in accepted.files if (found := self._file(task, file, decision)) is not None]
        off += [
            found for ref in self._refs(task, record) if (found := self._value(task, ref, decision)) is not None
        ]
        yield from off
        yield from self._opening(node)
        yield from self._misfit(node, decision)
        if not off:
            yield from self._refusals(node, accepted)

    def _made_of(self, node: Node) -> Ingredients:
        """What a task is made of now; what is not through yet is unknown."""
        parts = self._inputs.parts(node)
        for parent in node.parents:
            if parent.is_task and self._state.task(parent.id).status != COMPLETED:
                parts[parent.part] = UNKNOWN
        return Ingredients(parts, self._inputs.digest(node, parts))

    def _files(self, task: str) -> Sequence[FileRecord]:
        """The files that a task of the pipeline has now."""
        accepted = self._state.task(task).accepted if task not in self._orphans else None
        return accepted.files if accepted is not None else ()

    def _of_an_orphan(self, task: str, record: TaskState) -> Iterator[str]:
        """What is off about a task that the pipeline no longer has: nothing puts it back, and nothing needs it."""
        for file in record.accepted.files if record.accepted is not None else ():
            if file.path not in self._taken:
                self.files += 1
                seen = self._artifacts.files.check(file, (task,))
                if seen.kind != look.SEALED:
                    detail = f" ({seen.detail})" if seen.detail else ""
                    yield f"{task} is no longer in the pipeline: {file.path} is {seen.kind}{detail}"

    # --- content ---------------------------------------------------------------------------------------------

    def _file(self, task: str, file: FileRecord, decision: Decision) -> Finding | None:
        """What is off about a file, and what a run would do about it."""
        seen = decision.looks.get(file.path)
        if seen is None or seen.kind == look.SEALED:
            return self._copy(task, file)
        fix = f"{self._resume} makes it again"
        if decision.action == decisions.HEAL:
            fix = f"{self._resume} {'seals it anew' if seen.is_whole else 'puts it back'}"
        elif decision.action == decisions.ASK and seen.kind == look.CHANGED:
            fix = f"{self._resume} --on-changed restore (or keep)"
            fix += "" if self._judge.can_heal(file) else "; its copy is lost, so restore makes it again"
        detail = seen.detail or ("not what was accepted" if seen.kind == look.CHANGED else "")
        return Finding(task, file.path, seen.kind, detail, fix)

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

    def _value(self, task: str, ref: str, decision: Decision) -> Finding | None:
        if self._has(ref):
            return None
        fix = f"{self._resume} {'puts it back' if decision.action == decisions.HEAL else 'makes it again'}"
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

    def _misfit(self, node: Node, decision: Decision) -> Iterator[Finding]:
        """Made from inputs that are no longer the recorded ones. In a run that goes on, that is work to come."""
        is_asked = decision.action == decisions.ASK and decision.about == "input"
        if decision.about != decisions.STALE and not is_asked:
            return
        if self._state.status == COMPLETED:
            accepted = self._state.task(node.id).accepted or Accepted()
            path = next((file.path for file in accepted.files), "")
            fix = f"{self._resume} {'asks about it' if is_asked else 'makes it again'}"
            yield Finding(node.id, path, "stale", decision.reason, fix)
        else:
            self.notes.append(
                f"{node.id} will be {'asked about' if is_asked else 'made again'}: {decision.reason}"
            )

    def _refusals(self, node: Node, accepted: Accepted) -> Iterator[Finding]:
        checks = self._checks.get(node.spec.name, ())
        if not checks:
            return
        try:
            output = self._artifacts.load(accepted)
            refusal = self._first_objection(checks, node, output)
        except LostValueError as error:
            self.notes.append(f"the checks of {node.id} were not applied: {error}")
            return
        if refusal:
            path = accepted.files[0].path if accepted.files else ""
            yield Finding(node.id, path, "refused", refusal, f"{self._resume} --redo '{node.id}'")

    def _first_objection(self, checks: Iterable[Check], node: Node, output: Any) -> str:
        """What the first check says that objects; one that does more than look keeps no other from looking."""
        for check in checks:
            refusal = self._objection(check, node, output)
            if refusal is None:
                words = f"the check {check.name} of {node.id} wants to record something, so it was not applied"
                self.notes.append(words)
                continue
            self.checks += 1
            if refusal:
                return refusal
        return ""

    def _objection(self, check: Check, node: Node, output: Any) -> str | None:
        """What a check says, "" if nothing; None if it wanted to record or to pay for something meanwhile."""
        host = _RefusingHost(
            _NO_RECORDER,
            Facts(
                run_id=self._state.run_id,
                task_id=node.id,
                dir=self._inputs.root,
                item=node.item or {},
                params=self._state.params,
            ),
        )
        refusal = self._attempts.run_checks((check,), node, Context(host, host.facts), output)
        return None if refusal and host.was_asked else refusal


class _RefusingHost(StepHost):
    """For a check when nothing may happen: there is no way to write or to pay."""

    was_asked = False

    def _alive(self, *, for_call: bool = False) -> None:
        self.was_asked = True
        self.end("verify only looks")
        super()._alive()


_NO_RECORDER: Recorder = None  # type: ignore[assignment]  # nobody comes as far as to use it
