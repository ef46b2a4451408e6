"""Files, or less than files, that prove a task to be done: taken over into the record without running anything.

Crash story: copies and seals come before the event. Killed in between, the next run finds the same files, sealed
at best, and takes them over again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast import events as ev
from holdfast import seals
from holdfast.artifacts import looks as look
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.looks import Look
from holdfast.artifacts.parts import UNKNOWN, Ingredients, shorten
from holdfast.artifacts.products import output_digest, part_path
from holdfast.decisions import Decision
from holdfast.pipeline.nodes import Node
from holdfast.recovery.openings import Openings
from holdfast.recovery.sealing import no_rest, set_seal, spend_told
from holdfast.recovery.seeing import file_seen
from holdfast.seals import Seal
from holdfast.state import Accepted, TaskState


class Adopting:
    """Takes over what is found of one run's tasks."""

    def __init__(self, inputs: Inputs, openings: Openings) -> None:
        self.state = inputs.state
        self.inputs = inputs
        self.artifacts = inputs.artifacts
        self.openings = openings

    def adopt(self, node: Node, decision: Decision, made_of: Ingredients) -> list[ev.Event]:
        """Keep a copy, seal what is not sealed, and give the event that records it."""
        paths = self.inputs.paths(node)
        if not paths:
            if decision.looks:
                self.openings.keep(decision)
            return [self._adopted_without_files(node, decision, made_of)]
        found = self._found(node, decision, paths)
        if decision.about == "sealed":
            return self._adopt_sealed(node, decision, found, made_of)
        aside = list(self._take_parts(node, decision, paths))
        seen = [file_seen(node, *one) for one in found]
        files = tuple([self.keep_copy(*one) for one in seen])
        seal = _seal_of(found)
        self._seal_found(node, found, seen, made_of)
        rest = self.artifacts.rest_of(seal) if seal else ""
        cost_usd, tokens = spend_told(seal, self.state.run_id)
        adopted = ev.TaskAdopted(
            step_id=node.id,
            node=node.spec.name,
            evidence=decision.about,
            round=seal.round if seal else self.state.task(node.id).round,
            version=_version_of(node, seal),
            input_digest=made_of.comparable,
            inputs=shorten(made_of.parts),
            output_digest=output_digest(files, seal.value_digest if seal else no_rest(node)),
            files=files,
            value_ref=seal.value_digest if seal and rest != "" else "",
            value_lost=rest is None,
            cost_usd=cost_usd,
            tokens=tokens,
        )
        return [*aside, adopted]

    def _seal_found(
        self,
        node: Node,
        found: Sequence[tuple[str, str, Look]],
        seen: Sequence[tuple[ev.FileRecord, bytes]],
        made_of: Ingredients,
    ) -> None:
        """Seal what is adopted as one set; what an older seal knows of cost and value goes on into the new ones.

        Edited files come last: killed before that, the next run finds the edit, and not two sets.
        """
        old = _seal_of(found)
        accepted = Accepted(tuple([record for record, _ in seen]), value_ref=old.value_digest if old else "")
        seal = self._seal_against(node, accepted, made_of, _version_of(node, old))
        if old is not None:
            cost_usd, tokens = spend_told(old, seal.run)
            seal = seals.vary(seal, cost_usd=cost_usd, tokens=tokens)
        edited = {path for _, path, how in found if how.kind == look.CHANGED}
        for record, body in sorted(seen, key=lambda one: one[0].path in edited):
            self.artifacts.reseal(record, seal, body=body, sync=True)

    def _adopt_sealed(
        self, node: Node, decision: Decision, found: Sequence[tuple[str, str, Look]], made_of: Ingredients
    ) -> list[ev.Event]:
        """Take over files that prove themselves: what their seal says is what is recorded."""
        streams = "ctx" in node.spec.sources
        aside = list(self._clear_streams(node, decision, found)) if streams else []
        files = tuple([self.keep_copy(*file_seen(node, *one)) for one in found])
        seal = _seal_of(found)
        assert seal is not None, "sealed files without a seal"
        rest = self.artifacts.rest_of(seal) if seal.value_digest else ""
        cost_usd, tokens = spend_told(seal, self.state.run_id)
        adopted = ev.TaskAdopted(
            step_id=node.id,
            node=node.spec.name,
            evidence=decision.about,
            round=seal.round,
            version=seal.step_version,
            # Where an input is unknown, the seal still knows it: its digest is what it is compared with later.
            input_digest=seal.input_digest,
            inputs=_compared_later(made_of.parts, seal, is_same=seal.input_digest == made_of.digest),
            output_digest=seal.known_as or output_digest(files, seal.value_digest),
            files=files,
            value_ref=seal.value_digest if rest != "" else "",
            value_lost=rest is None,
            cost_usd=cost_usd,
            tokens=tokens,
        )
        return [*aside, adopted]

    def _found(self, node: Node, decision: Decision, paths: Mapping[str, str]) -> list[tuple[str, str, Look]]:
        """Each file of a task that is adopted: its key, its path, and how it (or its NAME.part) looks."""
        found = []
        for key, path in paths.items():
            seen = decision.looks.get(part_path(path) if _is_stream_meant(decision, path) else path)
            found.append((key, path, seen or self.artifacts.files.look(path, node.names, node.spec.marker)))
        return found

    def _adopted_without_files(self, node: Node, decision: Decision, made_of: Ingredients) -> ev.TaskAdopted:
        """A task of which nothing is left but that it was done; or the text that opens a memory file."""
        if decision.looks:
            return self.openings.adoption(node, decision, made_of)
        return ev.TaskAdopted(
            step_id=node.id,
            node=node.spec.name,
            evidence=decision.about,
            version=node.spec.version,
            input_digest=made_of.comparable,
            inputs=shorten(made_of.parts),
            output_digest=UNKNOWN,
            value_lost=True,
        )

    def _take_parts(self, node: Node, decision: Decision, paths: Mapping[str, str]) -> Iterator[ev.Event]:
        """A half-finished file that is kept as it is gets its final name; whatever else has that is set aside."""
        tree = self.artifacts.tree
        for path in paths.values():
            if not _is_stream_meant(decision, path):
                continue
            found = decision.looks.get(path)  # none of an earlier round's that objects/ keeps
            if found is not None and found.kind not in (look.MISSING, look.EMPTY):
                to = tree.back_up(path)
                yield ev.ArtifactSetAside(step_id=node.id, path=path, to=to, reason=found.detail or found.kind)
            tree.rename(part_path(path), path)

    def _clear_streams(
        self, node: Node, decision: Decision, found: Sequence[tuple[str, str, Look]]
    ) -> Iterator[ev.Event]:
        """A stream that has become the output goes, as its step would have had it; anything else is set aside."""
        tree = self.artifacts.tree
        for _, path, seen in found:
            stream = decision.looks.get(part_path(path))
            if stream is None or stream.kind not in (look.HALF, look.EMPTY, look.DAMAGED):
                continue
            if _has_become(seen, stream, node.spec.marker or ""):
                tree.make_durable(path)  # its step may have been killed a moment ago
                tree.remove(part_path(path), sync=True)
            else:
                to = tree.back_up(part_path(path))
                yield ev.ArtifactSetAside(step_id=node.id, path=part_path(path), to=to, reason=stream.kind)

    def keep_copy(self, record: ev.FileRecord, body: bytes) -> ev.FileRecord:
        """Put a copy into objects/, if its step wants one; gives the record."""
        if record.stored:
            self.artifacts.objects.put(body, record.sha256)
        return record

    def output_seen(self, node: Node, decision: Decision) -> Any:
        """The output of a task that would be adopted, from what was read of it."""
        files, rest = [], ""
        for key, path, found in self._found(node, decision, self.inputs.paths(node)):
            record, body = file_seen(node, key, path, found)
            self.artifacts.recent.keep(record.sha256, body)
            rest = (self.artifacts.rest_of(found.seal) or "") if found.seal else rest
            files.append(record)
        return self.artifacts.load(Accepted(tuple(files), value_ref=rest))

    def seal_anew(self, node: Node, accepted: Accepted, made_of: Ingredients, version: int) -> None:
        """Seal the files of a task against these inputs, as made by this version of its step.

        Synced: they are written anew, and until that is on record nothing else leads to what was in them.
        """
        seal = self._seal_against(node, accepted, made_of, version)
        for file in accepted.files:
            self.artifacts.reseal(file, seal, sync=True)

    def _seal_against(self, node: Node, accepted: Accepted, made_of: Ingredients, version: int) -> Seal:
        known = self.state.task(node.id)
        made_from = {"input_digest": made_of.comparable, "inputs": as_known(known, made_of.parts)}
        record = replace(known, version=version, **made_from)
        return set_seal(self.state.run_id, node, record, accepted)


def _seal_of(found: Sequence[tuple[str, str, Look]]) -> Seal | None:
    """The seal of a task's files: of the first that has one, for all of a set say the same."""
    for _, _, seen in found:
        if seen.seal is not None:
            return seen.seal
    return None


def _is_stream_meant(decision: Decision, path: str) -> bool:
    """Whether NAME.part is what a person lets stand: it was asked about, and nothing under the name itself was."""
    return part_path(path) in decision.paths and path not in decision.paths


def _has_become(output: Look, stream: Look, marker: str) -> bool:
    """Whether all that was streamed is in the output. Of a stream that could not be read nobody can tell."""
    if not stream.body:
        return stream.kind == look.EMPTY
    return output.body.startswith(seals.without_marker(stream.body, marker))


def _version_of(node: Node, seal: Seal | None) -> int:
    """Which version of the step made a file: as its seal says, else the one there is."""
    return seal.step_version if seal is not None else int(node.spec.version)


def _compared_later(parts: Mapping[str, str], seal: Seal, *, is_same: bool) -> dict[str, str]:
    """The inputs of a sealed file; one that is unknown, or another than the seal's: "?" and what the seal says."""
    now = shorten(parts)
    if is_same and UNKNOWN not in parts.values():
        return now
    then = {name: part.removeprefix(UNKNOWN) for name, part in seal.made_from.items()}
    # A seal that names its inputs names all that were known: another was none, or is not known.
    same = {name: then.get(name, "") for name in now} if then else now
    return {
        name: part if part != UNKNOWN and same[name] == part else f"{UNKNOWN}{then.get(name, '')}"
        for name, part in now.items()
    }


def as_known(record: TaskState, parts: Mapping[str, str]) -> dict[str, str]:
    """The inputs as they are now; one that is unknown as it is on record, where its seal may have named it."""
    now = shorten(parts)
    return {name: record.inputs.get(name, part) if part == UNKNOWN else part for name, part in now.items()}
