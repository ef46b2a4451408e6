"""Tasks whose output is a section of a memory file: gather the evidence, and carry the decision out.

A section once accepted stands: no change of what it was made from makes it stale, only a raised version does. The
file is shared, so it is never set aside as a whole: `artifacts/remembering.py` mends it, and keeps a copy
of what was there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from holdfast import decisions, seals
from holdfast import events as ev
from holdfast.artifacts import looks as look
from holdfast.artifacts.acceptance import Acceptance
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.keeping import Artifacts
from holdfast.artifacts.looks import Look
from holdfast.artifacts.offers import ADOPTED, PERSON, Offer, offer_of, with_files
from holdfast.artifacts.parts import Ingredients, shorten
from holdfast.artifacts.products import SECTION, UNWRITTEN, spend_told
from holdfast.artifacts.remembering import Remembering
from holdfast.decisions import Action, Decision, Foretold, Step
from holdfast.pipeline.nodes import Node
from holdfast.pipeline.spec import StepSpec
from holdfast.recovery import reconcile
from holdfast.recovery.actions import Accept, Do, Say
from holdfast.recovery.evidence import Checker, Evidence, Policy
from holdfast.seals import Seal
from holdfast.state import COMPLETED, Accepted, TaskState
from holdfast.values import digest
from holdfast.wording import of_all


class SectionJudge:
    """Decides about sections for the judge."""

    def __init__(self, inputs: Inputs, remembering: Remembering, refusal: Checker, living: frozenset[str]) -> None:
        self.inputs = inputs
        self.remembering = remembering
        self.acceptance = Acceptance(inputs)
        self._refusal = refusal
        self._living_runs = living
        self._mended: dict[str, Decision] = {}  # put back together with another section, and not yet asked about

    @property
    def artifacts(self) -> Artifacts:
        return self.inputs.artifacts

    def path(self, node: Node) -> str:
        """The memory file that the task's section belongs into."""
        return self.inputs.memory_path(node.spec, node.path)

    def is_proved(self, node: Node) -> bool:
        """Whether the file has a whole section of this task, which no run that is on record has made."""
        found = self.artifacts.sections.look(self.path(node), node.names)
        return found.kind == look.SEALED and found.seal is not None and found.seal.run not in self._living_runs

    def is_back(self, node: Node, finished: TaskState) -> bool:
        """Whether a section that was out of date is so no longer: nothing but the version makes it so."""
        return finished.version == int(node.spec.version)

    # --- deciding ------------------------------------------------------------------------------------------

    def decide(self, node: Node, policy: Policy, made_of: Ingredients) -> Decision:
        """What is to be done about this task. Read-only."""
        if node.id in self._mended:
            return self._mended[node.id]
        state = self.inputs.state
        record = state.tasks.get(node.id)
        known = record or TaskState()
        evidence = Evidence(
            run_id=state.run_id,
            record=known,
            recorded=record is not None,
            input_digest=made_of.digest,
            parts=made_of.parts,
            version=node.spec.version,
            marker=node.spec.marker,
            living_runs=self._living_runs,
        )
        finished = known.status == COMPLETED and known.accepted is not None
        evidence = self._finished(node, evidence) if finished else self._open(node, evidence)
        decision = reconcile.decide(evidence, policy)
        decision = replace(decision, looks=evidence.files)
        return self._checked(node, decision) if decision.action in (decisions.ADOPT, decisions.KEEP) else decision

    def _finished(self, node: Node, evidence: Evidence) -> Evidence:
        assert evidence.record.accepted is not None
        (file,) = evidence.record.accepted.files
        found = self.artifacts.files.check(file, node.names)
        target = self.path(node)
        where = file.path
        if found.kind == look.MISSING and target != file.path:  # another section has taken the file along
            found = self.artifacts.files.check(replace(file, path=target), node.names)
            where = target if found.kind == look.CHANGED else file.path  # an edit is dealt with where it stands
        same_version = evidence.record.version == evidence.version
        return replace(
            evidence,
            input_digest=evidence.record.input_digest if same_version else evidence.input_digest,
            parts=evidence.record.inputs,  # of what it is made from, nothing but the version counts
            files={where: found},
            healable={where: self.artifacts.objects.get(file.sha256) is not None},
            moved={file.path: target} if target != file.path else {},
        )

    def _open(self, node: Node, evidence: Evidence) -> Evidence:
        """Of a task that is not finished: a section that is whole, or was edited. Anything less is made anew."""
        path = self.path(node)
        found = self.artifacts.sections.look(path, node.names)
        if found.seal is None or found.kind not in (look.SEALED, look.CHANGED):
            return evidence
        if evidence.recorded and found.seal.round < evidence.record.round:
            return evidence  # an earlier round's: it is replaced when this one's is there
        if found.seal.step_version != evidence.version or not self._is_ours(node, evidence, found.seal):
            return evidence
        return replace(evidence, input_digest=found.seal.input_digest, files={path: found})

    def _is_ours(self, node: Node, evidence: Evidence, seal: Seal) -> bool:
        """Whether a section was made by this run, or by another one from just what would be used now."""
        if seal.run == evidence.run_id or seal.run in self._living_runs:  # a living run's is asked about
            return True
        return seal.input_digest in self.inputs.section_digests(node, evidence.parts)

    def _checked(self, node: Node, decision: Decision) -> Decision:
        """The decision to adopt, or to keep an edit, unless `check` refuses what stands there."""
        (found,) = decision.looks.values()
        refusal = self._refusal(node, lambda: section_text(found))
        if not refusal:
            return decision
        if decision.action == decisions.KEEP:
            return as_refused_edit(decision, refusal)
        reason = f"{decisions.REFUSED}: {refusal}"
        return replace(decision, action=decisions.REDO, reason=reason, about=decisions.REFUSED)

    # --- acting --------------------------------------------------------------------------------------------

    def actions(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterator[Action]:
        """What carries the decision out."""
        record = self.inputs.state.task(node.id)
        if decision.action == decisions.HEAL:
            yield Do(self._healing(node, decision), lambda: self._heal(node, decision))
        elif decision.action == decisions.MOVE:
            moved = self._moved(node, decision.reason, "")
            (old,) = decision.paths
            steps = [Step("move", old, self.path(node))]
            yield Do(Foretold([moved], steps=steps), lambda: self._move(node, decision))
        elif decision.action == decisions.ADOPT:
            yield self._adopt(node, decision, made_of)
        elif decision.action == decisions.KEEP:
            yield self._keep(node, decision)
        elif decision.action == decisions.REDO and record.status == COMPLETED:
            is_lost = decision.about in (decisions.DAMAGED, decisions.VALUE)
            is_stale, reason = decision.about == decisions.STALE, decision.reason
            yield Say(ev.TaskInvalidated(step_id=node.id, reason=reason, damaged=is_lost, stale=is_stale))
        elif decision.action == decisions.ASK and record.question != decision.about:
            yield Say(ev.QuestionAsked(step_id=node.id, about=decision.about, detail=decision.reason))

    def _healing(self, node: Node, decision: Decision) -> Foretold:
        (path,) = decision.paths
        if path != self.path(node):
            return Foretold([self._moved(node, decision.reason, UNWRITTEN)])
        healed = ev.ArtifactHealed(step_id=node.id, path=path, problem=decision.looks[path].kind)
        return Foretold([healed], steps=[Step("put back", path)])

    def _heal(self, node: Node, decision: Decision) -> list[ev.Event]:
        (path,) = decision.paths
        if path != self.path(node):
            return [self._moved(node, decision.reason, UNWRITTEN)]  # it is written there with its batch
        if self._mended.pop(node.id, None) is not None:
            return []
        with_it = self._lost_with(node, path)
        self._mended |= with_it
        events = self.remembering.mend(path, node, with_it)
        moved = self._moved(node, decision.reason, "")
        if all(self.artifacts.files.check(file, node.names).kind == look.SEALED for file in moved.files):
            accepted = self.inputs.state.task(node.id).accepted or Accepted()
            return [*events, moved] if moved.files != accepted.files else events
        reason = f"its section in {path} is lost, and the copy in objects/ is damaged"
        return [*events, ev.TaskInvalidated(step_id=node.id, reason=reason, damaged=True)]

    def _lost_with(self, node: Node, path: str) -> dict[str, Decision]:
        """What would be decided about the other sections that one writing puts back; so it is decided."""
        found = {}
        for other in self.inputs.remembered(node.spec, path):
            record = self.inputs.state.task(other.id)
            if other is not node and record.status == COMPLETED and record.accepted is not None:
                decision = self.decide(other, Policy(), Ingredients({}, ""))
                if decision.action == decisions.HEAL:
                    found[other.id] = decision
        return found

    def _adopt(self, node: Node, decision: Decision, made_of: Ingredients) -> Action:
        ((path, found),) = decision.looks.items()
        assert found.seal is not None
        cost_usd, tokens = spend_told(found.seal, self.inputs.state.run_id)
        made = TaskState(
            round=max(found.seal.round, self.inputs.state.task(node.id).round),
            version=found.seal.step_version,
            input_digest=found.seal.input_digest,
            inputs=shorten(made_of.parts),
            evidence=decision.about,
            cost_usd=cost_usd,
            input_tokens=tokens,
        )
        return self._take(node, "adopt", path, found, made, by=ADOPTED, is_sealed=decision.about == "sealed")

    def _keep(self, node: Node, decision: Decision) -> Action:
        """Accept what a person wrote; what it was made from does not change with it."""
        ((path, found),) = decision.looks.items()
        made = replace(self.inputs.state.task(node.id), output_digest="")
        return self._take(node, "keep", path, found, made, by=PERSON, reason=decision.reason)

    def _take(
        self,
        node: Node,
        do: str,
        path: str,
        found: Look,
        made: TaskState,
        *,
        by: str,
        is_sealed: bool = False,
        reason: str = "",
    ) -> Action:
        """A section as it stands there as its task's output."""
        section = (section_seen(path, found), section_body(found))

        def make() -> Offer:
            return self.acceptance.offer_found(node, [section], made, by=by, is_sealed=is_sealed, reason=reason)

        outline = with_files(offer_of(node, by, made, reason=reason), node, [section[0]], "")
        return Accept(self.acceptance, do, make, outline, [] if is_sealed else [path])

    def _move(self, node: Node, decision: Decision) -> list[ev.Event]:
        """The pipeline names another file: the first section to be asked for takes the whole file there."""
        (old,) = decision.paths
        new, tree = self.path(node), self.artifacts.tree
        if tree.look(old) is not None and tree.look(new) is None:
            tree.rename(old, new, sync=True)  # a person's notes in it are nowhere else
        moved = self._moved(node, decision.reason, "")
        is_there = all(self.artifacts.files.check(file, node.names).kind == look.SEALED for file in moved.files)
        # Somebody's file may have the new name: the section is written into it with its batch.
        return [moved if is_there else self._moved(node, decision.reason, UNWRITTEN)]

    def _moved(self, node: Node, reason: str, kind: str) -> ev.TaskKept:
        accepted = self.inputs.state.task(node.id).accepted or Accepted()
        files = tuple(replace(file, path=self.path(node), kind=kind or file.kind) for file in accepted.files)
        return ev.TaskKept(step_id=node.id, reason=reason, files=files)


def other_form(spec: Any, record: TaskState | None) -> Decision | None:
    """What to do about a task that was a section of a memory file and is no longer, or the other way round."""
    if record is None or record.status != COMPLETED or record.accepted is None:
        return None
    was = any(file.kind in (SECTION, UNWRITTEN) for file in record.accepted.files)
    if was == is_memory(spec):
        return None
    words = "its output is no longer a section of a memory file" if was else "its output was not a section before"
    return Decision(decisions.REDO, words)


def as_refused_edit(decision: Decision, refusal: str) -> Decision:
    """The decision to keep an edit, as a question: `check` objects to it."""
    edited = of_all(decision.paths, "was edited", "were edited")
    reason = f"{edited}, and its check refuses that: {refusal}"
    return replace(decision, action=decisions.ASK, reason=reason, about="changed")


def is_memory(spec: Any) -> bool:
    """Whether the task's output is a section of a memory file."""
    return isinstance(spec, StepSpec) and spec.appends is not None


def section_body(found: Look) -> bytes:
    """The bytes of a section as it stands, ending in a newline, as a section does."""
    return found.body if found.kind == look.SEALED else seals.with_newline(found.body)[0]


def section_seen(path: str, found: Look) -> ev.FileRecord:
    """The record of a section that is accepted as it stands in the file."""
    body = section_body(found)
    added = found.kind == look.SEALED and found.seal is not None and found.seal.newline_added
    is_edited = found.kind == look.CHANGED
    return ev.FileRecord("", path, len(body), digest(body), SECTION, added, by_hand=is_edited)


def section_text(found: Look) -> str:
    """The text as its author, or whoever edited it, wrote it."""
    added = found.kind == look.SEALED and found.seal is not None and found.seal.newline_added
    return seals.author_body(section_body(found), added).decode()
