"""What is known of one task: its record, and its files as they are now. Read-only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast import events as ev
from holdfast import seals
from holdfast.artifacts import looks as look
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.keeping import LostValueError
from holdfast.artifacts.looks import Look
from holdfast.artifacts.parts import UNKNOWN, Ingredients
from holdfast.artifacts.products import OutputRefusedError, part_path, set_digest, split_output
from holdfast.pipeline.nodes import Node
from holdfast.recovery.backups import Backups
from holdfast.recovery.evidence import KEPT_BY_PERSON, Evidence
from holdfast.recovery.sections import SectionJudge, is_memory
from holdfast.recovery.seeing import as_sealed, as_taken, file_seen
from holdfast.seals import Seal
from holdfast.state import COMPLETED, Accepted, TaskState
from holdfast.values import digest

_NOTHING = TaskState()

_MAY_BE_COPIED = (look.CHANGED, look.DAMAGED, look.MISSING, look.EMPTY)

Migrations = Mapping[str, Mapping[int, Callable[[Any], Any]]]


_Rare = dict[str, Any]
"""What `Evidence` says of few tasks, by the names of its fields: most are gathered without."""


class Gathering:
    """Looks at the tasks of one run."""

    def __init__(
        self,
        inputs: Inputs,
        sections: SectionJudge,
        backups: Backups,
        *,
        migrations: Migrations,
        living_runs: frozenset[str],
        take_over: bool,
        claims: Mapping[str, str],
    ) -> None:
        self.state = inputs.state
        self.inputs = inputs
        self.artifacts = inputs.artifacts
        self.sections = sections
        self.backups = backups
        self.migrations = migrations
        self.living_runs = living_runs
        self.take_over = take_over
        self.claims = claims
        self._listings: dict[str, frozenset[str]] = {}  # folder -> what was in it when we first looked
        self._behind: dict[str, str] = {}  # task without files -> one behind it that left a file; "": none did

    def gather(
        self, node: Node, record: TaskState | None, paths: Mapping[str, str], made_of: Ingredients, *, wanted: bool
    ) -> Evidence:
        """All that is known of a task now, whose files are `paths`. Read-only."""
        known = record or _NOTHING
        finished = known.accepted if known.status == COMPLETED else None
        files, rare = self._open_files(node, known, paths) if finished is None else self._files(node, finished)
        if finished is not None and _are_newer(files, known.round) and self._is_overtaken(files, paths):
            rare |= {"is_overtaken": True, "value_lost": self._lacks_value(files)}
        if wanted:
            rare["wanted"] = True
        if finished is not None and paths and not finished.files and self._can_be_written(node, finished):
            rare["unwritten"] = tuple(paths.values())
        if not paths:
            rare["was_done"] = self._was_done(node)
        evidence = self._evidence(node, known, files, made_of, recorded=record is not None)
        if rare:
            evidence = replace(evidence, **rare)
        if evidence.version == 1:  # there is nothing to migrate from
            return evidence
        made_by = known.version if finished is not None else _sealed_version(files)
        return self._with_migration(node, evidence, made_by)

    def _can_be_written(self, node: Node, accepted: Accepted) -> bool:
        """Whether a value is one that the step's files could be made of; what is lost cannot."""
        try:
            split_output(node.spec, self.artifacts.load(accepted))
        except (OutputRefusedError, LostValueError):
            return False
        return True

    def gather_inputs(self, node: Node, finished: TaskState, made_of: Ingredients) -> Evidence:
        """What finished work was made from, and what is there now; its files are not looked at."""
        evidence = self._evidence(node, finished, {}, made_of, recorded=True)
        return self._with_migration(node, evidence, finished.version)

    def _evidence(
        self, node: Node, known: TaskState, files: Mapping[str, Look], made_of: Ingredients, *, recorded: bool
    ) -> Evidence:
        is_of_others = _is_of_others(files, made_of.digest)
        return Evidence(
            files=files,
            run_id=self.state.run_id,
            record=known,
            recorded=recorded,
            input_digest=made_of.digest,
            earlier_digest=self.inputs.earlier_digest(node, made_of.parts) if is_of_others else "",
            parts=made_of.parts,
            version=node.spec.version,
            kept_by=self.state.keeps.get(node.id, ""),
            marker=node.spec.marker,
            living_runs=self.living_runs,
            taken=self._taken(node, known) if node.parents and known.input_digest != made_of.digest else {},
            is_rebuilt=self.state.rebuilt,
            lacks_lines=self.state.lost,
        )

    def _taken(self, node: Node, record: TaskState) -> dict[str, bool]:
        """The inputs that are outputs of other tasks, and whether a person kept those as they are."""
        if not record.inputs:
            return {parent.part: False for parent in node.parents}
        # Asked only of what was adopted with an input unknown: to look through gathers takes time.
        return {
            parent.part: record.inputs.get(parent.part, "").startswith(UNKNOWN) and self._is_kept(parent)
            for parent in node.parents
        }

    def _is_kept(self, producer: Node) -> bool:
        if producer.kind != "gather":
            return self.state.task(producer.id).evidence in KEPT_BY_PERSON
        inner = self.inputs.gathered(producer.spec.name, producer.path)
        return any(self._is_kept(node) for _, node in inner)

    def _files(self, node: Node, accepted: Accepted) -> tuple[dict[str, Look], _Rare]:
        """How the files of a finished task are now."""
        files = accepted.files
        looks = {f.path: self._unmixed(f, files, self.check(f, node)) for f in files}
        bad = [f for f in files if looks[f.path].kind != look.SEALED]
        lost = self.state.task(node.id).value_lost or not self.artifacts.is_stored(accepted)
        uncopied = frozenset([f.path for f in files if not f.stored])
        rare: _Rare = {"uncopied": uncopied} if uncopied else {}
        if bad or lost:
            healable = {f.path: looks[f.path].is_whole or self.can_heal(f) for f in bad}
            rare |= {"healable": healable, "value_lost": lost, "consumed": _is_consumed(node)}
        return looks, rare

    def _is_overtaken(self, files: Mapping[str, Look], paths: Mapping[str, str]) -> bool:
        """Whether files of a later round than is on record are this run's, whole, and where they belong now."""
        return set(files) == set(paths.values()) and all(
            found.seal is not None
            and found.seal.run == self.state.run_id
            and (found.kind == look.SEALED or digest(found.body) == found.seal.sha256)
            for found in files.values()
        )

    def _lacks_value(self, files: Mapping[str, Look]) -> bool:
        """Whether a seal of these tells of a value that belongs to them, and that is not to be had."""
        seals = [found.seal for found in files.values() if found.seal is not None]
        return any(seal.value_digest and self.artifacts.rest_of(seal) is None for seal in seals)

    def can_heal(self, file: ev.FileRecord) -> bool:
        """Whether the accepted bytes are in objects/, or can be put there from the file, or were set aside."""
        return self.artifacts.can_heal(file) or self.artifacts.can_be_kept(file) or bool(self.backups.find(file))

    def _unmixed(self, file: ev.FileRecord, files: Sequence[ev.FileRecord], found: Look) -> Look:
        """How a file looks: if it holds another one of its step, whole, it is no edit. A copy puts that right."""
        if found.kind != look.CHANGED or found.seal is None or len(files) == 1:
            return found
        others = {other.sha256 for other in files if other.key != file.key} - {file.sha256}
        is_others = found.seal.sha256 in others and digest(found.body) == found.seal.sha256
        if not is_others or not self.artifacts.can_heal(file):
            return found
        return replace(found, kind=look.DAMAGED, detail="holds another file of its step")

    def _with_migration(self, node: Node, evidence: Evidence, made_by: int) -> Evidence:
        if not 0 < made_by < evidence.version or self.chain(node, made_by) is None:
            return evidence
        old = self.inputs.parts(node, made_by)
        return replace(evidence, migratable=True, old_version_digest=self.inputs.digest(node, old))

    def check(self, file: ev.FileRecord, node: Node) -> Look:
        """An accepted file as it is now. With `overwrite`, another run's whole file is in the way, not an edit;
        and what a migration wrote that was killed before its record is none either."""
        found = self.artifacts.files.check(file, node.names)
        if found.kind != look.CHANGED or found.seal is None:
            return found
        if self.take_over and found.seal.run != self.state.run_id:
            return replace(found, kind=look.FOREIGN, detail="another run's")
        return replace(found, kind=look.SEALED, detail="") if self._is_migrated(node, found, found.seal) else found

    def _is_migrated(self, node: Node, found: Look, seal: Seal) -> bool:
        record = self.state.task(node.id)
        ours = (seal.run, seal.round) == (self.state.run_id, record.round)
        is_newer = record.version < seal.step_version <= node.spec.version
        return ours and is_newer and digest(found.body) == seal.sha256

    def _open_files(
        self, node: Node, record: TaskState, paths: Mapping[str, str]
    ) -> tuple[dict[str, Look], _Rare]:
        """What lies where an unfinished task would write."""
        files: dict[str, Look] = {}
        rare: _Rare = {}
        for key, path in paths.items():
            files[path] = self._open_file(node, key, path)
        files = _as_before_sealing(node, paths, files) if len(files) > 1 else files
        if self._lacks_value(files):
            rare["value_lost"] = True
        if record.accepted is None and look.HALF in {found.kind for found in files.values()}:
            rare["behind"] = self._unproved_behind(node)
        if paths and "ctx" in node.spec.sources:  # nobody else streams, or can be given what was streamed
            rare["parts_files"] = {part_path(path): self._stream(node, key, path) for key, path in paths.items()}
        if record.accepted is None:
            rare |= self._copied(files)
        if record.accepted is None and record.previous is None:
            return files, rare
        current = self._without_superseded(record, files, value_lost="value_lost" in rare)
        return current, rare | {"is_partial": len(current) < len(files)}

    def _open_file(self, node: Node, key: str, path: str) -> Look:
        found = self.artifacts.files.look(path, node.names, node.spec.marker)
        if found.kind in (look.MISSING, look.EMPTY) and not seals.is_inline(path):
            seal = self.artifacts.files.seal_beside(path)  # it may have been left behind
            is_ours = seal is not None and seal.task in node.names and seal.run == self.state.run_id
            return replace(found, seal=seal) if is_ours else found
        return found if found.kind == look.SEALED else as_taken(node, key, path, found)

    def _copied(self, files: Mapping[str, Look]) -> _Rare:
        """Of files that no record knows: whether objects/ has what the seals of this run name."""
        bad = {path: found.seal for path, found in files.items() if found.kind in _MAY_BE_COPIED}
        ours = {path: seal for path, seal in bad.items() if seal is not None and seal.run == self.state.run_id}
        healable = {path: self.artifacts.can_heal(as_sealed(path, seal)) for path, seal in ours.items()}
        return {"healable": healable} if healable else {}

    def _stream(self, node: Node, key: str, path: str) -> Look:
        return as_taken(node, key, path, self.artifacts.files.look(part_path(path), node.names, None))

    def _without_superseded(
        self, record: TaskState, files: dict[str, Look], *, value_lost: bool
    ) -> dict[str, Look]:
        """Leave out an accepted version that objects/ keeps, and that is made again: it may be written over.

        That is an earlier round's, and one whose value is lost.
        """
        old = record.accepted or record.previous
        if old is None:
            return files
        kept = {f.path: f.sha256 for f in old.files if f.stored and self.artifacts.objects.has(f.sha256)}
        return {
            path: found
            for path, found in files.items()
            if not (
                found.seal is not None
                and (found.seal.round < record.round or value_lost)
                and kept.get(path) == digest(found.body)
            )
        }

    def chain(self, node: Node, version: int) -> list[Callable[[Any], Any]] | None:
        """The migrations from `version` to the step's, or None if a rung is missing."""
        rungs = self.migrations.get(node.spec.name)
        wanted = range(version, node.spec.version) if rungs else range(0)
        return [rungs[v] for v in wanted] if rungs and wanted and all(v in rungs for v in wanted) else None

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
        if node.id in self._behind:
            return self._behind[node.id]
        before: dict[str, str] = {node.id: ""}  # each node that was met, and the one before it
        stack = [node]
        while stack:
            one = stack.pop()
            for consumer, _ in one.consumers:
                if consumer.id in before:
                    continue
                before[consumer.id] = one.id
                found = self._left_by(consumer)
                if found is None:
                    stack.append(consumer)
                elif found:
                    self._remember(before, one.id, found)
                    return found
        self._behind |= dict.fromkeys(before, "")
        return ""

    def _unproved_behind(self, node: Node) -> str:
        """A task behind this one whose file has no seal of this run: nothing says what it was made from."""
        behind = self._made_from(node)
        if not behind:
            return ""
        consumer = self.inputs.graph.nodes[behind]
        looks = [
            self.artifacts.files.look(path, consumer.names, None) for path in self.inputs.paths(consumer).values()
        ]
        is_proved = all(found.seal is not None and found.seal.run == self.state.run_id for found in looks)
        return "" if is_proved else behind

    def _left_by(self, node: Node) -> str | None:
        """The task that left a file, this one or one behind it; "" if none did, None if that is to be seen."""
        if node.id in self._behind:
            return self._behind[node.id]
        if is_memory(node.spec) and node.is_task and self.sections.is_proved(node):
            return node.id
        paths = self.inputs.paths(node) if node.is_task else None
        if paths:
            return "" if self.nothing_there(node, paths) else node.id
        return None

    def _remember(self, before: Mapping[str, str], last: str, found: str) -> None:
        """What was found behind `last` is behind all on the way to it, too."""
        while last:
            self._behind[last] = found
            last = before[last]

    def nothing_there(self, node: Node, paths: Mapping[str, str]) -> bool:
        """The common case of a task that never began: no file of its own, whole or half.

        Told from one listing of each folder, made when it is first needed: a look at every single file, inside the
        commit, would hold all others up. What appears later is met by `Attempts` before it would be written over.
        """
        for path in paths.values():
            if self._is_listed(path) or ("ctx" in node.spec.sources and self._is_listed(part_path(path))):
                return False
            if not seals.is_inline(path) and self._is_listed(seals.seal_path(path)):
                return False
        return True

    def _is_listed(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        names = self._listings.get(folder)
        if names is None:
            names = self._listings[folder] = self.artifacts.tree.names(folder)
        return name in names


def _is_of_others(files: Mapping[str, Look], input_digest: str) -> bool:
    """Whether a seal names other inputs."""
    return any(found.seal is not None and found.seal.input_digest != input_digest for found in files.values())


def _as_before_sealing(node: Node, paths: Mapping[str, str], files: dict[str, Look]) -> dict[str, Look]:
    """The files as others had left them, if whoever adopted them was killed when some had got their seals.

    Such a seal names the set of all of them as they lie there.
    """
    kinds = {found.kind for found in files.values()}
    if look.SEALED not in kinds or kinds - {look.SEALED} not in ({look.MARKED}, {look.HALF}):
        return files
    found = set_digest([file_seen(node, key, path, files[path])[0] for key, path in paths.items()])
    if any(seen.seal is not None and seen.seal.set_digest != found for seen in files.values()):
        return files
    (kind,) = kinds - {look.SEALED}
    return {path: replace(seen, kind=kind) for path, seen in files.items()}


def _are_newer(files: Mapping[str, Look], round_: int) -> bool:
    """Whether every file says that it is of a later round. Asked of every finished task."""
    for found in files.values():
        if found.seal is None or found.seal.round <= round_:
            return False
    return bool(files)


def _sealed_version(files: Mapping[str, Look]) -> int:
    """The version of its step that made a task's sealed files; 0 if there are none."""
    return min((found.seal.step_version for found in files.values() if found.seal is not None), default=0)


def _is_consumed(node: Node) -> bool:
    """Whether other tasks take its output, or wait for it."""
    return bool([consumer for consumer, _ in node.consumers if consumer.kind != "order"])
