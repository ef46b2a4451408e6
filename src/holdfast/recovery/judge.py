"""Judges the tasks of one run: gathers the evidence (gathering.py), decides (reconcile.py), acts (acting.py).

Tasks whose output is a section of a memory file have rules of their own: sections.py, and openings.py for the text
that opens such a file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from holdfast import decisions
from holdfast import events as ev
from holdfast.artifacts import looks as look
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.keeping import LostValueError
from holdfast.artifacts.parts import UNKNOWN, Ingredients, digest_of_given
from holdfast.artifacts.remembering import Remembering
from holdfast.decisions import BACK_AGAIN, Action, Decision
from holdfast.pipeline.nodes import Node
from holdfast.pipeline.spec import StepSpec
from holdfast.recovery import reconcile
from holdfast.recovery.acting import Acting
from holdfast.recovery.actions import Say
from holdfast.recovery.backups import Backups
from holdfast.recovery.evidence import Checker, Evidence, Policy
from holdfast.recovery.gathering import Gathering, Migrations
from holdfast.recovery.moving import Moving
from holdfast.recovery.openings import Openings
from holdfast.recovery.sections import SectionJudge, as_refused_edit, is_memory, other_form
from holdfast.state import LEFT_OUT, NEEDS_REVIEW, PENDING, TaskState


class Judge:
    """Decides about the tasks of one run. `decide` only reads; `actions` says what to do about it."""

    def __init__(
        self,
        inputs: Inputs,
        *,
        policy: Policy,
        quarantine: Path,
        checker: Checker,
        migrations: Migrations,
        living_runs: frozenset[str],
        take_over: bool,
        claims: Mapping[str, str],
        own_file: str,
    ) -> None:
        self.state = inputs.state
        self.inputs = inputs
        self.artifacts = inputs.artifacts
        self.policy = policy
        self.checker = checker
        self.living_runs = living_runs
        self.claims = claims  # task -> the view that says it was done, for a run whose record is lost
        self.sections = SectionJudge(inputs, Remembering(inputs), self._refusal, living_runs)
        self.openings = Openings(inputs, self._refusal, living_runs)
        self._gathering = Gathering(
            inputs,
            self.sections,
            Backups(inputs.artifacts, quarantine),
            migrations=migrations,
            living_runs=living_runs,
            take_over=take_over,
            claims=self.claims,
        )
        is_forced = not policy.adopt or bool(policy.in_the_way)
        may_overwrite = take_over and not is_forced  # --force sets aside whatever it meets
        self._acting = Acting(
            inputs, self._gathering, self.openings, self._refusal, quarantine, may_overwrite=may_overwrite
        )
        self._moving = Moving(inputs, self._claimed_by)
        self._lacking: set[str] = set()  # finished tasks of which something is lost, and left alone so far
        self._wanted: set[str] = set()
        self.left_alone: dict[str, tuple[str, ...]] = {}  # task -> what is missing of it, and nobody needs now
        self._policies: dict[str, Policy] = {}  # by what is done about half-finished output
        self._claims = {own_file.casefold(): "the pipeline itself"}  # path -> who writes there

    # --- deciding ------------------------------------------------------------------------------------------

    def decide(self, node: Node, made_of: Ingredients) -> Decision:
        """What is to be done about this task. Read-only."""
        spec = node.spec
        record = self.state.tasks.get(node.id)
        reshaped = other_form(spec, record) if record is not None else None
        if reshaped is not None or is_memory(spec):
            return reshaped or self._decide_section(node, made_of)
        if record is None and not spec.writes and not self.state.rebuilt:
            return _NOT_STARTED
        paths = self.inputs.paths(node)
        if record is None and not paths:
            opening = self.openings.decide(node, made_of) if self.policy.adopt else None
            if opening is not None or not isinstance(spec, StepSpec):
                return opening or _NOT_STARTED
        other = self._claimed_by(node, paths)
        if other:
            return _shares_its_path(other)
        if record is None and spec.writes and self._gathering.nothing_there(node, paths):
            return _NOT_STARTED
        wanted = node.id in self._wanted or node.kind == "items"  # without its items nothing can go on
        evidence = self._gathering.gather(node, record, paths, made_of, wanted=wanted)
        decision = reconcile.decide(evidence, self._policy(spec))
        if decision.action == decisions.TRUST:
            decision = reconcile.other_marker(evidence) or decision
        if decision.action not in _NO_ACT:
            decision = self._seen(node, decision, evidence)
        is_lost = evidence.value_lost and decision.action != decisions.REDO
        if decision.action == decisions.LEAVE or decision.about == "lost" or is_lost:
            self._lacking.add(node.id)
        # A value that was lost with the record is told where that is; it may wait.
        if decision.action == decisions.LEAVE and not evidence.record.value_lost:
            self.left_alone[node.id] = decision.paths or (f"the value of {node.id}",)
        return decision

    def _decide_section(self, node: Node, made_of: Ingredients) -> Decision:
        other = self._claimed_by(node, {"": self.sections.path(node)})
        if other:
            return _shares_its_path(other)
        return self.sections.decide(node, self._policy(node.spec), made_of)

    def _seen(self, node: Node, decision: Decision, evidence: Evidence) -> Decision:
        """The decision with what was read for it; an output that `check` refuses is not adopted."""
        if decision.about == decisions.VALUE and not evidence.files:
            return self.openings.healing(node, evidence.record) or decision
        looks = {**evidence.parts_files, **evidence.files} if evidence.parts_files else evidence.files
        decision = replace(decision, looks=looks)
        if decision.action == decisions.KEEP and evidence.of_kind(look.CHANGED):
            refusal = self._acting.refusal_of_edit(node, decision)
            return as_refused_edit(decision, refusal) if refusal else decision
        if decision.action != decisions.ADOPT or not evidence.files:
            return decision
        refusal = self._refusal(node, lambda: self._acting.adopting.output_seen(node, decision))
        if not refusal:
            return decision
        reason = f"{decisions.REFUSED}: {refusal}"
        action = decisions.HOLD if evidence.record.status == NEEDS_REVIEW else decisions.REDO
        return replace(decision, action=action, reason=reason, about=decisions.REFUSED)

    def can_heal(self, file: ev.FileRecord) -> bool:
        """Whether a damaged file can be put back."""
        return self._gathering.can_heal(file)

    @property
    def lacking(self) -> Collection[str]:
        return self._lacking

    def want(self, node: Node) -> bool:
        """A task that must run takes this one's output: True if something of it is lost and comes back first."""
        if node.id not in self._lacking:
            return False
        self._lacking.discard(node.id)
        self.left_alone.pop(node.id, None)
        self._wanted.add(node.id)
        return True

    def is_proved(self, node: Node) -> bool:
        """Whether a task without any record has whole sealed files: a run that is lost now has finished it."""
        if is_memory(node.spec):
            return self.policy.adopt and node.id not in self.state.tasks and self.sections.is_proved(node)
        paths = self.inputs.paths(node)
        if node.id in self.state.tasks or not paths or not self.policy.adopt:
            return False
        found = [self.artifacts.files.look(path, node.names, None) for path in paths.values()]
        return all(seen.kind == look.SEALED for seen in found) and not any(
            seen.seal is not None and seen.seal.run in self.living_runs for seen in found
        )

    def _claimed_by(self, node: Node, paths: Mapping[str, str]) -> str:
        """Another task that writes to the same path: items made at run time cannot be compared at load.

        A memory file is its step's: all items have their sections in it.
        """
        name = node.spec.name if is_memory(node.spec) else node.id
        for path in paths.values():
            owner = self._claims.setdefault(path.casefold(), name)
            if owner != name:
                return owner
        return ""

    def _policy(self, spec: Any) -> Policy:
        """What was said beforehand: by the step, and by the settings or the command line, which win."""
        wanted = self.policy.on_partial or spec.on_partial or "redo"
        policy = self._policies.get(wanted)
        if policy is None:
            policy = self._policies[wanted] = replace(self.policy, on_partial=wanted)
        return policy

    # --- acting --------------------------------------------------------------------------------------------

    def reinstate(self, node: Node, made_of: Ingredients) -> Iterable[ev.Event]:
        """Have work count as finished again that was out of date and is so no longer, before it is judged.

        Its files are not looked at: what was lost or edited meanwhile is dealt with as in all finished work. What
        was left out only because a producer was is taken up: this is asked once no producer is left out. What
        failed, and is given something else by now, begins a new round with all its attempts.
        """
        record = self.state.task(node.id)
        if record.kind == LEFT_OUT:
            return [ev.TaskTakenUp(step_id=node.id)]
        if record.failed_on and record.failed_on_other(digest_of_given(made_of.parts)):
            return [ev.TaskInvalidated(step_id=node.id, reason="what it failed on has changed")]
        evidence = self._may_be_back(node, made_of)
        if evidence is None or (reconcile.lacks_input(evidence) and not is_memory(node.spec)):
            return ()
        return [ev.TaskReinstated(step_id=node.id, reason=BACK_AGAIN)]

    def may_reinstate(self, node: Node, made_of: Ingredients) -> bool:
        """Whether work that was out of date would count again if inputs that are unknown come out as they were."""
        return self._may_be_back(node, made_of) is not None

    def _may_be_back(self, node: Node, made_of: Ingredients) -> Evidence | None:
        record = self.state.tasks.get(node.id)
        if record is None or record.before is None or record.status != PENDING:
            return None
        evidence = self._gathering.gather_inputs(node, record.before, made_of)
        if is_memory(node.spec):
            return evidence if self.sections.is_back(node, record.before) else None
        return evidence if reconcile.may_be_back(evidence) else None

    def bring_home(self, node: Node) -> Iterable[Action]:
        """Have a finished task's files where the pipeline names them now, before they are judged."""
        if node.id not in self.state.tasks or not self._moving.is_away(node):
            return ()
        return self._moving.bring_home(node)

    def actions(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterable[Action]:
        """What carries the decision out. Each is to be done before the next is asked for."""
        if decision.action == decisions.TRUST and self.state.task(node.id).decided:
            # An answer holds for one time: it must not lie in wait for an edit that nobody has seen yet.
            return [Say(ev.TaskKept(step_id=node.id, reason="there was nothing to decide"))]
        if decision.action in _NO_ACT:
            return ()
        if is_memory(node.spec):
            return self.sections.actions(node, decision, made_of)
        if decisions.is_unrecorded(decision):
            return self._acting.put_back(node, decision)
        if decision.action in _MAKES_ROOM:
            return self._make_room(node, decision, made_of)
        return self._acting.actions(node, decision, made_of)

    def _make_room(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterator[Action]:
        """Have finished files of other tasks out of the way of those that this one is going to write, then act."""
        for path in self.inputs.paths(node).values():
            yield from self._moving.free(path)
        yield from self._acting.actions(node, decision, made_of)

    def may_be_more(self, node: Node, decision: Decision, made_of: Ingredients) -> bool:
        """Whether work that is whole again may have to be adopted, migrated, sealed anew or asked about now."""
        if is_memory(node.spec):
            return False
        if decision.action != decisions.ADOPT:
            return decision.action in _LOOKED_AT_AGAIN
        if node.spec.name in self._gathering.migrations or _has_other_marker(node, decision):
            return True
        # What a lost run has left is believed first, and then compared.
        return self.state.rebuilt and _is_misfit(self.state.task(node.id), made_of)

    def _refusal(self, node: Node, load: Callable[[], Any]) -> str:
        """What `check` objects to; nothing if what it would look at is lost."""
        try:
            return self.checker(node, load)
        except LostValueError:
            return ""


def _shares_its_path(other: str) -> Decision:
    return Decision(decisions.ASK, f"it would write to the same file as {other}", about="path")


def _has_other_marker(node: Node, decision: Decision) -> bool:
    """Whether files were adopted that have another marker than their step has now: its name may be another."""
    if decision.action != decisions.ADOPT or decision.about != "sealed":
        return False
    markers = {found.seal.marker for found in decision.looks.values() if found.seal is not None}
    return not markers <= {node.spec.marker or ""}


def _is_misfit(record: TaskState, made_of: Ingredients) -> bool:
    """Whether an input is known that is not on record as what it is now: the work says that it was another."""
    return any(
        part.startswith(UNKNOWN) and made_of.parts.get(name, UNKNOWN) != UNKNOWN
        for name, part in record.inputs.items()
    )


_LOOKED_AT_AGAIN = frozenset({decisions.HEAL, decisions.KEEP, decisions.MIGRATE, decisions.MOVE, decisions.WRITE})
_MAKES_ROOM = decisions.AGAIN | {decisions.WRITE}
_NOT_STARTED = Decision(decisions.RUN, "not started")
_NO_ACT = frozenset({decisions.RUN, decisions.TRUST, decisions.HOLD, decisions.SKIP, decisions.LEAVE})
