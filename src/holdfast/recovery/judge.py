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
from holdfast.artifacts.parts import Ingredients, digest_of_given
from holdfast.artifacts.remembering import Remembering
from holdfast.decisions import BACK_AGAIN, Decision
from holdfast.pipeline.nodes import Node
from holdfast.pipeline.spec import StepSpec
from holdfast.recovery import reconcile
from holdfast.recovery.acting import Acting
from holdfast.recovery.backups import Backups
from holdfast.recovery.evidence import Checker, Evidence, Policy
from holdfast.recovery.gathering import Gathering, Migrations
from holdfast.recovery.moving import Moving
from holdfast.recovery.openings import Openings
from holdfast.recovery.sections import SectionJudge, as_refused_edit, is_memory, other_form
from holdfast.state import COMPLETED, LEFT_OUT, NEEDS_REVIEW, PENDING


class Judge:
    """Decides about the tasks of one run. `decide` only reads; `apply` acts."""

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
        self._acting = Acting(inputs, self._gathering, self.openings, self._refusal, may_overwrite=may_overwrite)
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

    def bring_home(self, node: Node) -> Iterable[ev.Event]:
        """Have a finished task's files where the pipeline names them now, before they are judged.

        Gives the events that record it, each to be recorded at once.
        """
        if node.id not in self.state.tasks or not self._moving.is_away(node):
            return ()
        return self._moving.bring_home(node)

    def apply(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterable[ev.Event]:
        """Carry the decision out on the files; gives the events that record it, each to be recorded at once."""
        if decision.action == decisions.TRUST and self.state.task(node.id).decided:
            # An answer holds for one time: it must not lie in wait for an edit that nobody has seen yet.
            return [ev.TaskKept(step_id=node.id, reason="there was nothing to decide")]
        if decision.action in _NO_ACT:
            return ()
        if is_memory(node.spec):
            return self.sections.apply(node, decision, made_of)
        if decision.action == decisions.ADOPT and not self._may_be_older(node, decision):
            return self._acting.apply(node, decision, made_of)  # and there is nothing to do behind it
        return self._applied(node, decision, made_of)

    def _applied(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterator[ev.Event]:
        if decisions.is_unrecorded(decision):
            yield from self._put_back(node, decision, made_of)
            return
        yield from self._make_room(node, decision)
        if decision.action not in _NO_ACT:
            yield from self._acting.apply(node, decision, made_of)
        yield from self.bring_home(node)
        if decision.action in _BRINGS_BACK and self.state.task(node.id).status == COMPLETED:
            yield from self._brought_up(node, decision, made_of)

    def _put_back(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterator[ev.Event]:
        """Have files whole again that no record knows: then they are adopted like any, if `check` lets them."""
        events, is_whole = self._acting.put_back(node, decision)
        yield from events
        again = self.decide(node, made_of) if is_whole else None
        if again is not None and not decisions.is_unrecorded(again):  # on paper no large file is put back
            yield from self.apply(node, again, made_of)

    def _make_room(self, node: Node, decision: Decision) -> Iterator[ev.Event]:
        """Have finished files of other tasks out of the way of those that this one is going to write."""
        if decision.action in decisions.AGAIN or decision.action == decisions.WRITE:
            for path in self.inputs.paths(node).values():
                yield from self._moving.free(path)

    def _brought_up(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterator[ev.Event]:
        """What else is to be done about work that is whole again: to migrate, seal anew, keep or write it."""
        is_older = self._gathering.chain(node, self.state.task(node.id).version) is not None
        may_be_more = decision.action in (decisions.HEAL, decisions.MIGRATE)
        if may_be_more or is_older or _has_other_marker(node, decision):
            again = self.decide(node, made_of)
            yield from self._make_room(node, again)
            yield from self._acting.apply(node, again, made_of) if again.action not in _NO_ACT else ()

    def _may_be_older(self, node: Node, decision: Decision) -> bool:
        """Whether what is adopted may be in the form of an older pipeline: of another version, or marker."""
        return node.spec.name in self._gathering.migrations or _has_other_marker(node, decision)

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


_BRINGS_BACK = frozenset({decisions.HEAL, decisions.ADOPT, decisions.KEEP, decisions.MIGRATE})
_NOT_STARTED = Decision(decisions.RUN, "not started")
_NO_ACT = frozenset({decisions.RUN, decisions.TRUST, decisions.HOLD, decisions.SKIP, decisions.LEAVE})
