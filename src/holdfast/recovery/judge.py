"""Gathers the evidence about a task, decides (reconcile.py), and carries the decision out.

Crash story: a doubtful file is set aside, or a file put back, before the event that says so is recorded. Killed
in between, the next run finds the new state of the files and decides again from there: every action leaves
the files in a state from which the same decision, or a more trusting one, follows.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from holdfast import artifacts as look
from holdfast import decisions, seals
from holdfast import events as ev
from holdfast.artifacts import Artifacts, Look, LostValueError, output_digest, part_path, task_seal
from holdfast.decisions import Decision
from holdfast.inputs import UNKNOWN, Inputs, shorten
from holdfast.pipeline.graph import Node
from holdfast.pipeline.spec import StepSpec
from holdfast.recovery import reconcile
from holdfast.recovery.evidence import Evidence, Policy
from holdfast.recovery.openings import Openings
from holdfast.recovery.sections import Sections, is_memory, other_form
from holdfast.recovery.seeing import edited_file, file_seen
from holdfast.remembering import Remembering
from holdfast.seals import Seal
from holdfast.state import COMPLETED, Accepted, RunState, TaskState
from holdfast.values import digest

Checker = Callable[[Node, Callable[[], Any]], str]
"""The objection to a task's output, or ""; the output is loaded only if there is something to check."""

Migrations = Mapping[str, Mapping[int, Callable[[Any], Any]]]


class Judge:
    """Decides about the tasks of one run. `decide` only reads; `apply` acts."""

    def __init__(
        self,
        state: RunState,
        inputs: Inputs,
        artifacts: Artifacts,
        *,
        policy: Policy,
        quarantine: Path,
        checker: Checker,
        migrations: Migrations,
        living_runs: frozenset[str] = frozenset(),
        take_over: bool = False,
        claims: Mapping[str, str] | None = None,
    ) -> None:
        self.state = state
        self.inputs = inputs
        self.artifacts = artifacts
        self.policy = policy
        self.quarantine = quarantine
        self.checker = checker
        self.migrations = migrations
        self.living_runs = living_runs
        self.take_over = take_over
        self.claims = claims or {}  # task -> the view that says it was done, for a run whose record is lost
        self._lacking: set[str] = set()  # finished tasks of which something is lost, and left alone so far
        self._wanted: set[str] = set()
        self._policies: dict[str, Policy] = {}  # by what is done about half-finished output
        self.sections = Sections(inputs, Remembering(inputs, quarantine), self._refusal, living_runs)
        self.openings = Openings(inputs, self._refusal, living_runs)
        self._claims: dict[str, str] = {}
        self._listings: dict[str, frozenset[str]] = {}  # folder -> what was in it when we first looked

    # --- deciding ------------------------------------------------------------------------------------------

    def decide(self, node: Node, parts: Mapping[str, str], input_digest: str) -> Decision:
        """What is to be done about this task. Read-only."""
        spec = node.spec
        record = self.state.tasks.get(node.id)
        reshaped = other_form(spec, record)
        if reshaped is not None or is_memory(spec):
            return reshaped or self.sections.decide(node, self._policy(spec), parts, input_digest)
        if record is None and self.state.rebuilt and not self.inputs.paths(node) and self.policy.adopt:
            opening = self.openings.decide(node, parts, input_digest)
            if opening is not None:
                return opening
        if record is None and not (isinstance(spec, StepSpec) and (spec.writes or self.state.rebuilt)):
            return _NOT_STARTED
        other = self._claimed_by(node)
        if other:
            return Decision(decisions.ASK, f"it would write to the same file as {other}", about="path")
        if record is None and spec.writes and self._nothing_there(node):
            return _NOT_STARTED
        evidence = self._gather(node, record, parts, input_digest)
        decision = reconcile.decide(evidence, self._policy(spec))
        if decision.action not in _NO_ACT:
            decision = self._seen(node, decision, evidence)
        if decision.action == decisions.LEAVE or decision.about == "lost" or evidence.value_lost:
            self._lacking.add(node.id)
        return decision

    def _seen(self, node: Node, decision: Decision, evidence: Evidence) -> Decision:
        """The decision with what was read for it; an output that `check` refuses is not adopted."""
        looks = {**evidence.parts_files, **evidence.files} if evidence.parts_files else evidence.files
        decision = replace(decision, looks=looks)
        if decision.action != decisions.ADOPT or not evidence.files:
            return decision
        refusal = self._refusal(node, lambda: self._output_seen(node, decision))
        if not refusal:
            return decision
        return replace(decision, action=decisions.REDO, reason=f"refused on adoption: {refusal}", about="")

    @property
    def lacking(self) -> Collection[str]:
        return self._lacking

    def want(self, node: Node) -> bool:
        """A task that must run takes this one's output: True if something of it is lost and comes back first."""
        if node.id not in self._lacking:
            return False
        self._lacking.discard(node.id)
        self._wanted.add(node.id)
        return True

    def _was_done(self, node: Node) -> str:
        """What says that a lost run had finished this task without files: a view, or what was made from it."""
        if not self.state.rebuilt or node.id in self.state.tasks or node.kind != "step":
            return ""
        claim = self.claims.get(node.id)
        if claim:
            return f"{claim} says that it was done"
        made = self._made_from(node)
        return f"{made} was made from it" if made else ""

    def _made_from(self, node: Node) -> str:
        """A task behind this one that left a file: it cannot have begun before this one was through.

        That the file is there is enough: if it does not prove itself, its task runs, and wants the lost value.
        """
        seen, stack = {node.id}, [node]
        while stack:
            for consumer, _ in stack.pop().consumers:
                if consumer.id in seen:
                    continue
                seen.add(consumer.id)
                if is_memory(consumer.spec) and consumer.is_task and self.sections.is_proved(consumer):
                    return consumer.id
                if consumer.is_task and self.inputs.paths(consumer):
                    if not self._nothing_there(consumer):
                        return consumer.id
                    continue
                stack.append(consumer)
        return ""

    def is_proved(self, node: Node) -> bool:
        """Whether a task without any record has whole sealed files: a run that is lost now has finished it."""
        if is_memory(node.spec):
            return self.policy.adopt and node.id not in self.state.tasks and self.sections.is_proved(node)
        paths = self.inputs.paths(node)
        if node.id in self.state.tasks or not paths or not self.policy.adopt:
            return False
        found = [self.artifacts.look(path, node.names, None) for path in paths.values()]
        return all(seen.seal is not None and seen.kind == look.SEALED for seen in found) and not any(
            seen.seal is not None and seen.seal.run in self.living_runs for seen in found
        )

    def _nothing_there(self, node: Node) -> bool:
        """The common case of a task that never began: no file of its own, whole or half.

        Told from one listing of each folder, made when it is first needed: a look at every single file, inside the
        commit, would hold all others up. What appears later is met by `Attempts` before it would be written over.
        """
        for path in self.inputs.paths(node).values():
            folder, _, name = path.rpartition("/")
            names = self._listings.get(folder)
            if names is None:
                names = self._listings[folder] = self.artifacts.tree.names(folder)
            if name in names or ("ctx" in node.spec.sources and part_path(name) in names):
                return False
        return True

    def _claimed_by(self, node: Node) -> str:
        """Another task that writes to the same path: items made at run time cannot be compared at load."""
        for path in self.inputs.paths(node).values():
            owner = self._claims.setdefault(path.casefold(), node.id)
            if owner != node.id:
                return owner
        return ""

    def _policy(self, spec: Any) -> Policy:
        """What was said beforehand: by the step, and by the settings or the command line, which win."""
        wanted = self.policy.on_partial or getattr(spec, "on_partial", None) or "redo"
        policy = self._policies.get(wanted)
        if policy is None:
            policy = self._policies[wanted] = replace(self.policy, on_partial=wanted)
        return policy

    def _gather(
        self, node: Node, record: TaskState | None, parts: Mapping[str, str], input_digest: str
    ) -> Evidence:
        known = record or TaskState()
        finished = known.status == COMPLETED and known.accepted is not None
        facts: dict[str, Any] = self._open_facts(node, known) if not finished else {}
        evidence = Evidence(
            task=node.id,
            run_id=self.state.run_id,
            record=known,
            recorded=record is not None,
            input_digest=input_digest,
            parts=parts,
            version=getattr(node.spec, "version", 1),
            kept_by=self.state.keeps.get(node.id, ""),
            marker=getattr(node.spec, "marker", None),
            living_runs=self.living_runs,
            consumed=any(consumer.kind != "order" for consumer, _ in node.consumers),
            wanted=node.id in self._wanted,
            was_done=self._was_done(node) if not self.inputs.paths(node) else "",
            **facts,
        )
        return self._gather_completed(node, evidence, known.accepted) if finished and known.accepted else evidence

    def _gather_completed(self, node: Node, evidence: Evidence, accepted: Accepted) -> Evidence:
        paths = self.inputs.paths(node)
        looks = {file.path: self._check(file, node) for file in accepted.files}
        bad = [f for f in accepted.files if looks[f.path].kind != look.SEALED]
        moved = {f.path: paths[f.key] for f in accepted.files if paths.get(f.key, f.path) != f.path}
        evidence = replace(
            evidence,
            files=looks,
            moved=moved,
            healable={f.path: self.artifacts.can_heal(f) for f in bad},
            value_lost=evidence.record.value_lost or not self.artifacts.is_stored(accepted),
            uncopied=frozenset(f.path for f in accepted.files if not f.stored),
        )
        if evidence.record.version < evidence.version and self._chain(node, evidence.record.version) is not None:
            old = self.inputs.parts(node, evidence.record.version)
            return replace(evidence, migratable=True, old_version_digest=self.inputs.digest(node, old))
        return evidence

    def _check(self, file: ev.FileRecord, node: Node) -> Look:
        """An accepted file as it is now. With `overwrite`, another run's whole file is in the way, not an edit."""
        found = self.artifacts.check(file, node.names)
        theirs = found.seal is not None and found.seal.run != self.state.run_id
        if self.take_over and theirs and found.kind == look.CHANGED:
            return replace(found, kind=look.FOREIGN, detail="another run's")
        return found

    def _open_facts(self, node: Node, record: TaskState) -> dict[str, Any]:
        """What lies where an unfinished task would write."""
        files: dict[str, Look] = {}
        parts: dict[str, Look] = {}
        for path in self.inputs.paths(node).values():
            found = self.artifacts.look(path, node.names, node.spec.marker)
            if found.kind != look.MISSING or record.accepted is None or not record.round:
                files[path] = found
            if "ctx" in node.spec.sources:  # nobody else streams, or can be given what was streamed
                parts[part_path(path)] = self.artifacts.look(part_path(path), node.names, None)
        lost = any(seen.seal is not None and self.artifacts.rest_of(seen.seal) is None for seen in files.values())
        return {"files": self._without_superseded(record, files), "parts_files": parts, "value_lost": lost}

    def _without_superseded(self, record: TaskState, files: dict[str, Look]) -> dict[str, Look]:
        """Leave out an earlier round's accepted version that objects/ keeps: it may be written over."""
        old = record.accepted or record.previous
        if old is None:
            return files
        kept = {f.path: f.sha256 for f in old.files if f.stored and self.artifacts.objects.has(f.sha256)}
        return {
            path: found
            for path, found in files.items()
            if not (
                found.seal is not None and found.seal.round < record.round and kept.get(path) == digest(found.body)
            )
        }

    def _chain(self, node: Node, version: int) -> list[Callable[[Any], Any]] | None:
        """The migrations from `version` to the step's, or None if a rung is missing."""
        rungs = self.migrations.get(node.spec.name, {})
        wanted = range(version, node.spec.version)
        return [rungs[v] for v in wanted] if wanted and all(v in rungs for v in wanted) else None

    # --- acting --------------------------------------------------------------------------------------------

    def apply(
        self, node: Node, decision: Decision, parts: Mapping[str, str], input_digest: str
    ) -> Sequence[ev.Event]:
        """Carry the decision out on the files; gives the events that record it."""
        if decision.action in _NO_ACT:
            return ()
        if is_memory(node.spec):
            return self.sections.apply(node, decision, parts, input_digest)
        acts: dict[str, Callable[[Node, Decision, Mapping[str, str], str], list[ev.Event]]] = {
            decisions.HEAL: self._heal,
            decisions.ADOPT: self._adopt,
            decisions.REDO: self._redo,
            decisions.CONTINUE: self._continue,
            decisions.ASK: self._ask,
            decisions.KEEP: self._keep,
            decisions.MOVE: self._move,
            decisions.MIGRATE: self._migrate,
        }
        return acts[decision.action](node, decision, parts, input_digest)

    def foresee(
        self, node: Node, decision: Decision, parts: Mapping[str, str], input_digest: str
    ) -> Sequence[ev.Event]:
        """The events of `apply` that decisions about other tasks hang on. Touches nothing."""
        if is_memory(node.spec):
            return self.sections.foresee(node, decision, parts, input_digest)
        if decision.action == decisions.ADOPT and not self.inputs.paths(node):
            return [self._adopted_without_files(node, decision, parts, input_digest)]
        if decision.action == decisions.ADOPT:
            files = tuple(file_seen(node, *seen)[0] for seen in self._found(node, decision))
            return [self._adoption(node, decision, parts, input_digest, files)]
        if decision.action == decisions.KEEP:
            return self._foresee_kept(node, decision, parts, input_digest)
        if decision.action == decisions.REDO and self.state.task(node.id).status == COMPLETED:
            return [ev.TaskInvalidated(step_id=node.id, reason=decision.reason)]
        return self._ask(node, decision, parts, input_digest) if decision.action == decisions.ASK else ()

    def _foresee_kept(
        self, node: Node, decision: Decision, parts: Mapping[str, str], digest_: str
    ) -> Sequence[ev.Event]:
        accepted = self.state.task(node.id).accepted or Accepted()
        found = {file.path: decision.looks.get(file.path) or self._check(file, node) for file in accepted.files}
        edited = [edited_file(node, file, found[file.path]) for file in accepted.files]
        for file, body in edited:
            if found[file.path].kind == look.CHANGED:
                self.artifacts.remember(file.sha256, body)
        files = tuple(file for file, _ in edited)
        kept = Accepted(files, accepted.value, accepted.value_ref)
        refusal = self._refusal(node, lambda: self.artifacts.load(kept))
        if refusal:
            return [ev.TaskInvalidated(step_id=node.id, reason=f"refused when kept: {refusal}")]
        return [self._kept(node, decision, parts, digest_, files)]

    def _seal_for(self, node: Node, input_digest: str, record: TaskState) -> Seal:
        return task_seal(node.id, node.spec, self.state.run_id, input_digest, record)

    def _heal(self, node: Node, decision: Decision, parts: Mapping[str, str], digest_: str) -> list[ev.Event]:
        record = self.state.task(node.id)
        accepted = record.accepted or Accepted()
        events: list[ev.Event] = []
        for file in accepted.files:
            if file.path not in decision.paths:
                continue
            found = decision.looks.get(file.path) or self._check(file, node)
            events += self._put_away(node.id, file.path, found)
            if not self.artifacts.heal(file, self._set_seal(node, record, accepted)):
                reason = f"{file.path} is {found.kind}, and the copy in objects/ is damaged"
                return [*events, ev.TaskInvalidated(step_id=node.id, reason=reason)]
            events.append(ev.ArtifactHealed(step_id=node.id, path=file.path, problem=found.kind))
        return events

    def _set_seal(self, node: Node, record: TaskState, accepted: Accepted) -> Seal:
        seal = self._seal_for(node, record.input_digest, record)
        return seals.vary(
            seal, set_digest=look.set_digest(accepted.files), value_digest=_value_digest(node, accepted)
        )

    def _put_away(self, task: str, path: str, found: Look) -> list[ev.Event]:
        """Set a doubtful file aside: a person's beside the original, damage in quarantine."""
        tree = self.artifacts.tree
        beside = tree.stat(seals.seal_path(path)) if not seals.is_inline(path) else None
        if beside is not None and not stat.S_ISREG(beside.st_mode):
            tree.set_aside(seals.seal_path(path), self.quarantine)
        if found.kind == look.MISSING or tree.stat(path) is None:
            return []
        if found.kind in (look.DAMAGED, look.EMPTY):
            to = tree.set_aside(path, self.quarantine).name
            to = f"{self.quarantine.name}/{to}"
        else:
            to = tree.back_up(path)
        return [ev.ArtifactSetAside(step_id=task, path=path, to=to, reason=_WHY_ASIDE.get(found.kind, found.kind))]

    def _adopt(self, node: Node, decision: Decision, parts: Mapping[str, str], digest_: str) -> list[ev.Event]:
        paths = self.inputs.paths(node)
        if not paths:
            if decision.looks:
                self.openings.keep(decision)
            return [self._adopted_without_files(node, decision, parts, digest_)]
        found = self._found(node, decision)
        if decision.about != "sealed":
            self._take_parts(paths)
        files = tuple(self._keep_copy(*file_seen(node, *seen)) for seen in found)
        if decision.about != "sealed":
            self._seal_anew(node, Accepted(files), _comparable(digest_, parts), self.state.task(node.id))
        return [self._adoption(node, decision, parts, digest_, files)]

    def _adoption(
        self,
        node: Node,
        decision: Decision,
        parts: Mapping[str, str],
        digest_: str,
        files: tuple[ev.FileRecord, ...],
    ) -> ev.TaskAdopted:
        seal = next((seen.seal for _, _, seen in self._found(node, decision) if seen.seal), None)
        rest = self.artifacts.rest_of(seal) if seal else ""
        # Where an input is unknown, the seal still knows it: its digest is what the input is compared with later.
        known_by = seal.input_digest if seal and decision.about == "sealed" else _comparable(digest_, parts)
        return ev.TaskAdopted(
            step_id=node.id,
            node=node.spec.name,
            evidence=decision.about,
            round=seal.round if seal else self.state.task(node.id).round,
            version=seal.step_version if seal else node.spec.version,
            input_digest=known_by,
            inputs=shorten(parts),
            output_digest=output_digest(files, seal.value_digest if seal else _no_rest(node)),
            files=files,
            value_ref=seal.value_digest if seal and rest != "" else "",
            value_lost=rest is None,
            cost_usd=seal.cost_usd if seal else 0.0,
            tokens=seal.tokens if seal else 0,
        )

    def _found(self, node: Node, decision: Decision) -> list[tuple[str, str, Look]]:
        """Each file of a task that is adopted: its key, its path, and how it (or its NAME.part) looks."""
        found = []
        for key, path in self.inputs.paths(node).items():
            seen = decision.looks.get(path)
            if seen is None or seen.kind == look.MISSING:
                seen = decision.looks.get(part_path(path), seen)
            found.append((key, path, seen or self.artifacts.look(path, node.names, node.spec.marker)))
        return found

    def _adopted_without_files(
        self, node: Node, decision: Decision, parts: Mapping[str, str], digest_: str
    ) -> ev.TaskAdopted:
        """A task of which nothing is left but that it was done; or the text that opens a memory file."""
        if decision.looks:
            return self.openings.adoption(node, decision, parts)
        return ev.TaskAdopted(
            step_id=node.id,
            node=node.spec.name,
            evidence=decision.about,
            version=node.spec.version,
            input_digest=_comparable(digest_, parts),
            inputs=shorten(parts),
            output_digest=UNKNOWN,
            value_lost=True,
        )

    def _take_parts(self, paths: Mapping[str, str]) -> None:
        """A half-finished file that is kept as it is gets its final name."""
        tree = self.artifacts.tree
        for path in paths.values():
            if not tree.exists(path) and tree.exists(part_path(path)):
                tree.rename(part_path(path), path)

    def _keep_copy(self, record: ev.FileRecord, body: bytes) -> ev.FileRecord:
        if record.stored:
            self.artifacts.objects.put(body, record.sha256)
        return record

    def _output_seen(self, node: Node, decision: Decision) -> Any:
        """The output of a task that would be adopted, from what was read of it."""
        files, rest = [], ""
        for key, path, found in self._found(node, decision):
            record, body = file_seen(node, key, path, found)
            self.artifacts.remember(record.sha256, body)
            rest = (self.artifacts.rest_of(found.seal) or "") if found.seal else rest
            files.append(record)
        return self.artifacts.load(Accepted(tuple(files), value_ref=rest))

    def _refusal(self, node: Node, load: Callable[[], Any]) -> str:
        """What `check` objects to; nothing if what it would look at is lost."""
        try:
            return self.checker(node, load)
        except LostValueError:
            return ""

    def _seal_anew(self, node: Node, accepted: Accepted, input_digest: str, record: TaskState) -> None:
        seal = self._set_seal(node, msgspec.structs.replace(record, input_digest=input_digest), accepted)
        for file in accepted.files:
            self.artifacts.reseal(file, seal)

    def _redo(self, node: Node, decision: Decision, parts: Mapping[str, str], digest_: str) -> list[ev.Event]:
        events: list[ev.Event] = []
        record = self.state.task(node.id)
        for path in decision.paths:
            events += self._put_away(node.id, path, decision.looks.get(path) or self._look(node, record, path))
        if record.status == COMPLETED:
            events.append(ev.TaskInvalidated(step_id=node.id, reason=decision.reason))
        return events

    def _look(self, node: Node, record: TaskState, path: str) -> Look:
        files = record.accepted.files if record.accepted and record.status == COMPLETED else ()
        for file in files:
            if file.path == path:
                return self.artifacts.check(file, node.names)
        return self.artifacts.look(path, node.names, node.spec.marker)

    def _continue(self, node: Node, decision: Decision, parts: Mapping[str, str], digest_: str) -> list[ev.Event]:
        """The half-finished text stays as NAME.part: what the step streams is appended to it."""
        final = next(iter(self.inputs.paths(node).values()))
        if self.artifacts.tree.exists(final) and not self.artifacts.tree.exists(part_path(final)):
            self.artifacts.tree.rename(final, part_path(final))
        return []

    def _ask(self, node: Node, decision: Decision, parts: Mapping[str, str], digest_: str) -> list[ev.Event]:
        if self.state.task(node.id).question == decision.about:
            return []
        return [ev.QuestionAsked(step_id=node.id, about=decision.about, detail=decision.reason)]

    def _keep(self, node: Node, decision: Decision, parts: Mapping[str, str], digest_: str) -> list[ev.Event]:
        """Accept the files as they are now, against the inputs as they are now."""
        record = self.state.task(node.id)
        accepted = record.accepted or Accepted()
        files = tuple(self._kept_file(node, decision, file) for file in accepted.files)
        kept = Accepted(files, accepted.value, accepted.value_ref)
        refusal = self._refusal(node, lambda: self.artifacts.load(kept))
        if refusal:
            return self._redo(node, replace(decision, reason=f"refused when kept: {refusal}"), parts, digest_)
        self._seal_anew(node, kept, _comparable(digest_, parts), record)
        return [self._kept(node, decision, parts, digest_, files)]

    def _kept(
        self,
        node: Node,
        decision: Decision,
        parts: Mapping[str, str],
        digest_: str,
        files: tuple[ev.FileRecord, ...],
    ) -> ev.TaskKept:
        accepted = self.state.task(node.id).accepted or Accepted()
        same = files == accepted.files
        return ev.TaskKept(
            step_id=node.id,
            reason=decision.reason,
            input_digest=_comparable(digest_, parts),
            inputs=shorten(parts),
            output_digest="" if same else output_digest(files, _value_digest(node, accepted)),
            files=files,
        )

    def _kept_file(self, node: Node, decision: Decision, file: ev.FileRecord) -> ev.FileRecord:
        found = decision.looks.get(file.path) or self.artifacts.check(file, node.names)
        record, body = edited_file(node, file, found)
        return record if record is file else self._keep_copy(record, body)

    def _move(self, node: Node, decision: Decision, parts: Mapping[str, str], digest_: str) -> list[ev.Event]:
        record = self.state.task(node.id)
        accepted = record.accepted or Accepted()
        paths = self.inputs.paths(node)
        moved = tuple(look.replace_record(f, path=paths.get(f.key, f.path)) for f in accepted.files)
        for old, new in zip(accepted.files, moved, strict=True):
            if old.path != new.path:
                self.artifacts.move(old, new, self._set_seal(node, record, accepted))
        return [ev.TaskKept(step_id=node.id, reason=decision.reason, files=moved)]

    def _migrate(self, node: Node, decision: Decision, parts: Mapping[str, str], digest_: str) -> list[ev.Event]:
        record = self.state.task(node.id)
        accepted = record.accepted or Accepted()
        value = self.artifacts.load_value(accepted.value, accepted.value_ref)
        for rung in self._chain(node, record.version) or ():
            value = rung(value)
        raw, ref, _ = self.artifacts.store_value(value, f"the migrated value of {node.id}")
        return [
            ev.ValueMigrated(
                step_id=node.id,
                version=node.spec.version,
                input_digest=digest_,
                inputs=shorten(parts),
                value=raw,
                value_ref=ref,
            )
        ]


_WHY_ASIDE = {
    look.SEALED: "made from other inputs, or in another round",
    look.FOREIGN: "sealed by another task",
    look.CHANGED: "edited",
    look.MARKED: "there without proof",
}
"""Why a file is set aside, where the kind of file does not say it."""

_NOT_STARTED = Decision(decisions.RUN, "not started")
_NO_ACT = frozenset({decisions.RUN, decisions.TRUST, decisions.HOLD, decisions.SKIP, decisions.LEAVE})


def _comparable(input_digest: str, parts: Mapping[str, str]) -> str:
    """The digest of all inputs; unknown if one of them is: then there is nothing to compare with later."""
    return UNKNOWN if UNKNOWN in parts.values() else input_digest


def _value_digest(node: Node, accepted: Accepted) -> str:
    if accepted.value_ref:
        return accepted.value_ref
    data = bytes(accepted.value)
    return digest(data) if data else _no_rest(node)


def _no_rest(node: Node) -> str:
    """What stands for the value of a step that may give one beside its files, and gave none."""
    return look.EMPTY_REST if isinstance(node.spec.writes, dict) else ""
