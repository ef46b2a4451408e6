"""Says what is done about a task, as actions: on its files first, then what is recorded of it (actions.py)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from holdfast import decisions, seals
from holdfast import events as ev
from holdfast.artifacts import looks as look
from holdfast.artifacts.acceptance import Acceptance
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.keeping import LostValueError
from holdfast.artifacts.looks import Look
from holdfast.artifacts.offers import MIGRATED, PERSON, Offer, offer_of, with_files
from holdfast.artifacts.parts import Ingredients
from holdfast.artifacts.products import OutputRefusedError, part_path, seal_of
from holdfast.decisions import Action, Decision, Foretold, Step
from holdfast.errors import ValueRefusedError
from holdfast.pipeline.nodes import Node
from holdfast.recovery.actions import Accept, Do, PutBack, Say, SealAnew, SetAside, performed
from holdfast.recovery.adopting import Adopting, as_known, taken
from holdfast.recovery.evidence import Checker
from holdfast.recovery.gathering import Gathering
from holdfast.recovery.migrating import migrated, mistake
from holdfast.recovery.openings import Openings
from holdfast.recovery.seeing import as_sealed, edited_file, file_seen
from holdfast.seals import Seal
from holdfast.state import COMPLETED, Accepted, TaskState


class Acting:
    """Acts on the files of one run's tasks."""

    def __init__(
        self,
        inputs: Inputs,
        gathering: Gathering,
        openings: Openings,
        refusal: Checker,
        quarantine: Path,
        *,
        may_overwrite: bool,
    ) -> None:
        self.state = inputs.state
        self.inputs = inputs
        self.artifacts = inputs.artifacts
        self.openings = openings
        self.quarantine = quarantine
        self.may_overwrite = may_overwrite  # other runs' files, if objects/ has them
        self.acceptance = Acceptance(inputs, may_overwrite=may_overwrite)
        self.adopting = Adopting(inputs, self.acceptance, openings)
        self._sealed_files = self.acceptance.sealed_files
        self._gathering = gathering
        self._refusal = refusal
        self._acts: dict[str, Callable[[Node, Decision, Ingredients], Iterable[Action]]] = {
            decisions.HEAL: self._heal,
            decisions.ADOPT: self.adopting.adopt,
            decisions.REDO: self._redo,
            decisions.CONTINUE: self._continue,
            decisions.ASK: self._ask,
            decisions.KEEP: self._keep,
            decisions.MIGRATE: self._migrate,
            decisions.MOVE: self._mark_anew,
            decisions.WRITE: self._write,
        }

    def actions(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterable[Action]:
        """What carries the decision out. Each is to be done before the next is asked for."""
        return self._acts[decision.action](node, decision, made_of)

    def refusal_of_edit(self, node: Node, decision: Decision) -> str:
        """What `check` objects to in the files as they are now; "" if nothing."""
        kept = self._edited(node, decision)
        return self._refusal(node, lambda: self._given(node, kept))

    def _given(self, node: Node, kept: Accepted) -> Any:
        """What consumers would be given of files that are kept: in the form of the step's version."""
        version = self.state.task(node.id).version
        return migrated(node.id, version, self._gathering.chain(node, version) or (), self.artifacts.load(kept))

    def _edited(self, node: Node, decision: Decision) -> Accepted:
        """What is accepted if the files are kept as they are now. Touches nothing."""
        accepted = self.state.task(node.id).accepted or Accepted()
        files = []
        for file in accepted.files:
            found = decision.looks.get(file.path) or self._gathering.check(file, node)
            record, body = edited_file(node, file, found)
            if found.kind == look.CHANGED:
                self.artifacts.recent.keep(record.sha256, body)
            files.append(record)
        return Accepted(tuple(files), accepted.value, accepted.value_ref)

    def _heal(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterator[Action]:
        record = self.state.task(node.id)
        accepted = record.accepted or Accepted()
        if not accepted.files:
            yield self.openings.keep(decision)
            words = f"the value of {node.id} was missing from objects/ and was made again from {decision.paths[0]}"
            yield Say(ev.StateMended(findings=(words,)))
        for file in accepted.files:
            if file.path not in decision.paths:
                continue
            found = decision.looks.get(file.path) or self._gathering.check(file, node)
            is_whole = yield from self._make_whole(node, file, found)
            if not is_whole:
                reason = f"{file.path} is {found.kind}, and the copy in objects/ is damaged"
                yield Say(ev.TaskInvalidated(step_id=node.id, reason=reason, damaged=True))
                return

    def put_back(self, node: Node, decision: Decision) -> Iterator[Action]:
        """Put files that no record knows back as their seals name them, as far as that can be done.

        Killed in between, the next run finds some more of them whole, and what their seals say of the others.
        """
        for path in decision.paths:
            found = decision.looks[path]
            assert found.seal is not None, "a file that no seal speaks for"
            # Until it is replaced, nothing but its seal says which copy is meant.
            yield from self._put_away(node.id, path, found, is_copied=seals.is_inline(path))
            file, body = as_sealed(path, found.seal), b""
            if file.kind != "path":
                body = self.artifacts.objects.get(file.sha256) or b""
            back = PutBack(self.artifacts, self._sealed_files, node.id, file, found.seal, found.kind, body=body)
            yield back
            if not back.is_done:
                return

    def _make_whole(self, node: Node, file: ev.FileRecord, found: Look) -> Generator[Action, None, bool]:
        """Set a damaged file aside and put the accepted one back; also says whether that could be done."""
        seal = seal_of(self.state.run_id, node, self.state.task(node.id))
        if found.is_whole:
            yield from self._mend_seal(node.id, file, seal)
            return True
        yield from self._put_away(node.id, file.path, found)
        problem = _described(found) if found.kind == look.FOREIGN else found.kind
        backups = self._gathering.backups
        back = PutBack(self.artifacts, self._sealed_files, node.id, file, seal, problem, backups)
        yield back
        return back.is_done

    def _mend_seal(self, task: str, file: ev.FileRecord, seal: Seal) -> Iterator[Action]:
        """Seal a file anew of which only the seal is damaged; what was there is kept, the bytes need no copy."""
        path, beside = file.path, seals.seal_path(file.path)
        if seals.is_inline(path):
            yield self._to_quarantine(task, path, label="seal", is_copied=True)
        elif self.artifacts.files.exists(beside):
            yield self._to_quarantine(task, beside)
        healed = ev.ArtifactHealed(step_id=task, path=path, problem="damaged in its seal", resealed=True)
        yield SealAnew(self._sealed_files, file, seal, healed)

    def _to_quarantine(self, task: str, path: str, *, label: str = "", is_copied: bool = False) -> SetAside:
        return SetAside(self.artifacts, task, path, look.DAMAGED, self.quarantine, label, is_copied)

    def _put_away(
        self, task: str, path: str, found: Look, why: str = "", *, is_copied: bool = False
    ) -> Iterator[Action]:
        """Set a doubtful file aside: a person's beside the original, damage in quarantine.

        It is told by how it looks, if `why` does not say more. `is_copied`: it stays where it is until another
        takes its place.
        """
        why = why or _described(found)
        if is_copied:
            where, label = (None, "") if found.kind == look.CHANGED else (self.quarantine, "damaged")
            yield SetAside(self.artifacts, task, path, why, where, label, is_copied=True)
            return
        if not seals.is_inline(path):
            yield from self._make_room_for_seal(task, path)
        if found.kind == look.MISSING or not self.artifacts.files.exists(path):
            return
        if self.may_overwrite and self.artifacts.is_spare(found, self.state.run_id):
            return
        is_damage = found.kind in (look.DAMAGED, look.EMPTY)
        yield SetAside(self.artifacts, task, path, why, self.quarantine if is_damage else None)

    def _make_room_for_seal(self, task: str, path: str) -> Iterator[Action]:
        """Set aside what stands where the seal beside a file belongs, and is no file."""
        beside = seals.seal_path(path)
        found = self.artifacts.tree.look(beside)
        if found is not None and not found.is_file:
            yield self._to_quarantine(task, beside)

    def _redo(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterator[Action]:
        record = self.state.task(node.id)
        for path in dict.fromkeys((*decision.paths, *self._new_paths(node, record))):
            found = decision.looks.get(path) or self._look(node, record, path)
            yield from self._put_away(node.id, path, found, _why_whole(decision, found))
        if record.status == COMPLETED:
            is_lost = decision.about in (decisions.DAMAGED, decisions.VALUE)
            is_stale = decision.about == decisions.STALE
            reason = decision.reason
            yield Say(ev.TaskInvalidated(step_id=node.id, reason=reason, damaged=is_lost, stale=is_stale))

    def _new_paths(self, node: Node, record: TaskState) -> list[str]:
        """Where a finished task has no file yet, and will write: nobody has looked at what stands there."""
        known = {file.path for file in record.accepted.files} if record.accepted is not None else set()
        paths = self.inputs.paths(node).values() if record.status == COMPLETED else ()
        return [path for path in paths if path not in known]

    def _look(self, node: Node, record: TaskState, path: str) -> Look:
        files = record.accepted.files if record.accepted and record.status == COMPLETED else ()
        for file in files:
            if file.path == path:
                return self.artifacts.files.check(file, node.names)
        return self.artifacts.files.look(path, node.names, node.spec.marker)

    def _continue(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterator[Action]:
        """The half-finished text stays as NAME.part: what the step streams is appended to it."""
        final = next(iter(self.inputs.paths(node).values()))
        tree = self.artifacts.tree

        def rename() -> Iterable[ev.Event]:
            tree.rename(final, part_path(final))
            return ()

        if tree.look(final) is not None and tree.look(part_path(final)) is None:
            yield Do(Foretold(steps=[Step("rename", final, part_path(final))]), rename)

    def _ask(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterator[Action]:
        if self.state.task(node.id).question != decision.about:
            yield Say(ev.QuestionAsked(step_id=node.id, about=decision.about, detail=decision.reason))

    def _keep(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterator[Action]:
        """Accept the files as they are now, against the inputs as they are now."""
        record = self.state.task(node.id)
        accepted = record.accepted or Accepted()
        is_whole = yield from self._mend_siblings(node, decision, accepted)
        if not is_whole:
            reason = "a file beside the one that is kept is damaged, and objects/ has no whole copy"
            yield from self._redo(node, replace(decision, reason=reason, paths=tuple(decision.looks)), made_of)
            return
        found = [self._kept_file(node, decision, file) for file in accepted.files]
        kept = replace(accepted, files=tuple([file for file, _ in found]))
        refusal = self._refusal(node, lambda: self._given(node, kept))
        if refusal:
            reason = f"its check refuses it as it is: {refusal}"
            yield from self._redo(node, replace(decision, reason=reason), made_of)
            return
        made_from = {"input_digest": made_of.comparable, "inputs": as_known(record, made_of.parts)}
        known = record.output_digest if kept == accepted else ""
        made = replace(record, output_digest=known, **made_from)
        ref, reason = accepted.value_ref, decision.reason
        yield taken(
            self.acceptance,
            "keep",
            node,
            found,
            with_files(offer_of(node, PERSON, made, reason=reason), node, kept.files, ref),
            lambda: self.acceptance.offer_found(node, found, made, by=PERSON, value_ref=ref, reason=reason),
        )

    def _mend_siblings(self, node: Node, decision: Decision, accepted: Accepted) -> Generator[Action, None, bool]:
        """Make whole what is damaged beside a file that is kept; also says whether that could be done."""
        looks = [(file, decision.looks.get(file.path)) for file in accepted.files]
        bad = [(f, seen) for f, seen in looks if seen is not None and seen.kind not in (look.SEALED, look.CHANGED)]
        if not all(seen.is_whole or self._gathering.can_heal(file) for file, seen in bad):
            return False
        for file, found in bad:
            is_whole = yield from self._make_whole(node, file, found)
            if not is_whole:
                return False
        return True

    def _mark_anew(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterator[Action]:
        """Give whole files the marker that the pipeline names now. Killed in between, each has one of the two."""
        record = self.state.task(node.id)
        seal = seal_of(self.state.run_id, node, record)
        for file in record.accepted.files if record.accepted is not None else ():
            if file.path in decision.paths:
                yield SealAnew(self._sealed_files, file, seal)
        yield Say(ev.TaskKept(step_id=node.id, reason=decision.reason))

    def _kept_file(
        self, node: Node, decision: Decision, file: ev.FileRecord
    ) -> tuple[ev.FileRecord, bytes | None]:
        """A file as it is accepted from now on, and its bytes if they are others."""
        found = decision.looks.get(file.path) or self.artifacts.files.check(file, node.names)
        record, body = edited_file(node, file, found)
        return record, None if record is file else body

    def _migrate(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterator[Action]:
        """What the pipeline's own function makes of an output is seen when it is called."""
        accepted = self.state.task(node.id).accepted or Accepted()
        steps = [Step("migrate", file.path) for file in accepted.files]
        yield Do(Foretold(steps=steps), lambda: self._migrated(node, decision, made_of))

    def _migrated(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterable[ev.Event]:
        record = self.state.task(node.id)
        accepted = record.accepted or Accepted()
        made_from = {"input_digest": made_of.comparable, "inputs": as_known(record, made_of.parts)}
        now = replace(record, version=node.spec.version, **made_from)
        left, version = self._left_by_migration(node, decision, accepted)
        events = _decided_before(node, decision, record, is_left=left is not None)
        try:
            landed = self._in_new_form(node, left or accepted, version or record.version, now)
        except LostValueError as error:  # cut off before, and the old form has no copy
            reason = f"its migration was cut off: {error}"
            paths = tuple(file.path for file in accepted.files)
            return performed(self._redo(node, replace(decision, reason=reason, paths=paths), made_of))
        return [*events, *landed]

    def _write(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterator[Action]:
        """Have a finished value in the files that its step names by now; its consumers know it as before."""
        made = replace(self.state.task(node.id), accepted=None)

        def make() -> Offer:
            output = self.artifacts.load(self.state.task(node.id).accepted or Accepted())
            return self.acceptance.offer(node, output, made, by=MIGRATED, reason=decision.reason)

        yield Accept(self.acceptance, "write", make, None, decision.paths)

    def _left_by_migration(
        self, node: Node, decision: Decision, accepted: Accepted
    ) -> tuple[Accepted | None, int]:
        """The files as a migration left them that was killed before its record, and the version of that form.

        None if one of them is still the old, or is of another version: the pipeline may have been edited since.
        """
        looks = [decision.looks.get(file.path) for file in accepted.files]
        seals_found = [seen.seal for seen in looks if seen is not None and seen.seal is not None]
        versions = {seal.step_version for seal in seals_found}
        rests = {self.artifacts.rest_of(seal) for seal in seals_found}
        is_left = len(seals_found) == len(looks) and versions and self.state.task(node.id).version not in versions
        if not is_left or len(versions) > 1 or None in rests:
            return None, 0
        files = []
        for file, seen in zip(accepted.files, looks, strict=True):
            assert seen is not None and seen.seal is not None
            is_same = seen.seal.sha256 == file.sha256
            record, body = file_seen(node, file.key, file.path, seen)
            if not is_same and record.stored:
                self.artifacts.objects.put(body, record.sha256)
            files.append(file if is_same else record)
        return Accepted(tuple(files), value_ref=rests.pop() or ""), versions.pop()

    def _in_new_form(self, node: Node, accepted: Accepted, version: int, now: TaskState) -> list[ev.Event]:
        """Have the output of that version in the form of the step's; gives the events that record it."""
        now = replace(now, accepted=accepted)
        if version == node.spec.version:
            offer = self.acceptance.offer_found(
                node,
                [(file, None) for file in accepted.files],
                now,
                by=MIGRATED,
                is_sealed=True,
                value_ref=accepted.value_ref,
            )
            return list(self.acceptance.land(offer))
        rungs = self._gathering.chain(node, version) or ()
        output = migrated(node.id, version, rungs, self.artifacts.load(accepted))
        try:
            offer = self.acceptance.offer(node, output, now, by=MIGRATED)
        except (OutputRefusedError, ValueRefusedError) as error:
            raise mistake(node.id, node.spec.version - 1, f"gives what cannot be stored: {error}") from error
        return list(self.acceptance.land(offer))


_WHY_ASIDE = {
    look.SEALED: "whole, and is made anew",
    look.CHANGED: "edited",
    look.MARKED: "not proved to be complete",
}
"""Why a file is set aside, where the kind of file does not say it."""


def _described(found: Look) -> str:
    """What a file that is set aside was."""
    return found.detail if found.kind == look.FOREIGN else _WHY_ASIDE.get(found.kind, found.kind)


def _why_whole(decision: Decision, found: Look) -> str:
    """Why a file is set aside, if not for how it looks."""
    if decision.about == decisions.REFUSED:
        return decision.reason
    is_whole = decision.about == decisions.VALUE and found.kind == look.SEALED
    return "whole, but the value beside it is lost" if is_whole else ""


def _decided_before(node: Node, decision: Decision, record: TaskState, *, is_left: bool) -> list[ev.Event]:
    """What is recorded of a person's answer before a migration, which must not lie in wait for a later edit.

    Only the seals that a killed migration left know of an edit that was kept before it.
    """
    sealed = [seen.seal for seen in decision.looks.values() if seen.seal is not None and is_left]
    known = next((seal.known_as for seal in sealed if seal.known_as not in ("", record.output_digest)), "")
    reason = "an edit was kept" if known else "there was nothing to decide"
    return [ev.TaskKept(step_id=node.id, reason=reason, output_digest=known)] if known or record.decided else []
