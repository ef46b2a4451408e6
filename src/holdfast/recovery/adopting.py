"""Files, or less than files, that prove a task to be done: taken over into the record without running anything.

What is taken over, and how it looks, is said here; acceptance.py does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast import events as ev
from holdfast import seals
from holdfast.artifacts import looks as look
from holdfast.artifacts.acceptance import Acceptance
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.looks import Look
from holdfast.artifacts.offers import ADOPTED, Offer, Stream, offer_of, with_files
from holdfast.artifacts.parts import UNKNOWN, Ingredients, shorten
from holdfast.artifacts.products import for_file, no_rest, output_digest, part_path, seal_of, spend_told
from holdfast.decisions import Action, Decision
from holdfast.pipeline.nodes import Node
from holdfast.recovery.actions import Accept
from holdfast.recovery.openings import Openings
from holdfast.recovery.seeing import file_seen
from holdfast.seals import Seal
from holdfast.state import COMPLETED, Accepted, TaskState
from holdfast.values import digest

_LEFT_OVER = (look.HALF, look.EMPTY, look.DAMAGED)


class Adopting:
    """Takes over what is found of one run's tasks."""

    def __init__(self, inputs: Inputs, acceptance: Acceptance, openings: Openings) -> None:
        self.state = inputs.state
        self.inputs = inputs
        self.artifacts = inputs.artifacts
        self.acceptance = acceptance
        self.openings = openings

    def adopt(self, node: Node, decision: Decision, made_of: Ingredients) -> Iterator[Action]:
        """Take over what was found."""
        paths = self.inputs.paths(node)
        if not paths:
            yield self._without_files(node, decision, made_of)
            return
        found = self._found(node, decision, paths)
        if decision.about in ("marker", "exists"):
            made_of = self._believed(node, made_of)
        seen = [file_seen(node, *one) for one in found]
        seal = _seal_of(found)
        made = self._made(node, decision, seal, made_of)
        files = tuple([record for record, _ in seen])
        is_sealed = decision.about == "sealed"
        known_as = seal.known_as if seal is not None and is_sealed else ""
        rest = seal.value_digest if seal else no_rest(node)
        made = replace(made, output_digest=known_as or output_digest(files, rest))
        sealed_as = None if is_sealed else self._sealed_as(node, made, seal, made_of)
        edited = frozenset([path for _, path, how in found if how.kind == look.CHANGED])
        streams = tuple(self._streams(node, decision, found)) if "ctx" in node.spec.sources else ()
        ref = seal.value_digest if seal else ""
        outline = with_files(offer_of(node, ADOPTED, made, streams=streams), node, files, ref)
        yield taken(
            self.acceptance,
            "adopt",
            node,
            seen,
            outline,
            lambda: self.acceptance.offer_found(
                node,
                seen,
                made,
                by=ADOPTED,
                is_sealed=is_sealed,
                sealed_as=sealed_as,
                edited=edited,
                streams=streams,
                value_ref=ref,
            ),
            looks={path: how for _, path, how in found} if is_sealed else {},
        )

    def _believed(self, node: Node, made_of: Ingredients) -> Ingredients:
        """What a file without a seal may have been made from: not what a body of this run has made since."""
        anew = [one.part for one in node.parents if one.is_task and not self.state.task(one.id).evidence]
        return Ingredients(made_of.parts | dict.fromkeys(anew, UNKNOWN), made_of.digest)

    def _made(self, node: Node, decision: Decision, seal: Seal | None, made_of: Ingredients) -> TaskState:
        """The task as what is adopted of it says: files that prove themselves say what is recorded.

        Where an input is unknown, a seal still knows it: its digest is what it is compared with later.
        """
        cost_usd, tokens = spend_told(seal, self.state.run_id)
        made = TaskState(
            status=COMPLETED,
            round=seal.round if seal else self.state.task(node.id).round,
            version=_version_of(node, seal),
            input_digest=made_of.comparable,
            inputs=shorten(made_of.parts),
            evidence=decision.about,
            value_lost=seal is not None and self.artifacts.rest_of(seal) is None,
            cost_usd=cost_usd,
            input_tokens=tokens,
        )
        if decision.about != "sealed":
            return made
        assert seal is not None, "sealed files without a seal"
        same = seal.input_digest == made_of.digest
        inputs = _compared_later(made_of.parts, seal, is_same=same)
        return replace(made, input_digest=seal.input_digest, inputs=inputs)

    def _sealed_as(self, node: Node, made: TaskState, old: Seal | None, made_of: Ingredients) -> TaskState:
        """What goes into the seals of what is adopted without one: what the record, or an older seal, knows."""
        known = self.state.task(node.id)
        inputs = as_known(known, made_of.parts)
        known = replace(known, version=made.version, input_digest=made_of.comparable, inputs=inputs)
        if old is None:
            return known
        return replace(known, cost_usd=made.cost_usd, input_tokens=made.input_tokens, output_tokens=0)

    def _found(self, node: Node, decision: Decision, paths: Mapping[str, str]) -> list[tuple[str, str, Look]]:
        """Each file of a task that is adopted: its key, its path, and how it (or its NAME.part) looks."""
        found = []
        for key, path in paths.items():
            seen = decision.looks.get(part_path(path) if _is_stream_meant(decision, path) else path)
            found.append((key, path, seen or self.artifacts.files.look(path, node.names, node.spec.marker)))
        return found

    def _without_files(self, node: Node, decision: Decision, made_of: Ingredients) -> Action:
        """A task of which nothing is left but that it was done; or the text that opens a memory file."""
        if decision.looks:
            made, text = self.openings.made(node, decision, made_of)
            ref = digest(text)
            known = replace(made, accepted=Accepted(value_ref=ref), output_digest=ref)
            outline = offer_of(node, ADOPTED, known)
            return Accept(self.acceptance, "adopt", lambda: self.acceptance.offer_value(node, text, made), outline)
        made = replace(self._made(node, decision, None, made_of), round=0, output_digest=UNKNOWN, value_lost=True)
        offer = with_files(offer_of(node, ADOPTED, made), node, (), "")
        return Accept(self.acceptance, "adopt", lambda: offer, offer)

    def _streams(self, node: Node, decision: Decision, found: Sequence[tuple[str, str, Look]]) -> Iterator[Stream]:
        """What lies beside the output as NAME.part: a stream that has become it goes, any other is set aside."""
        for _, path, seen in found:
            part = part_path(path)
            stream = decision.looks.get(part)
            if _is_stream_meant(decision, path):
                yield Stream(part, True)
            elif decision.about == "sealed" and stream is not None and stream.kind in _LEFT_OVER:
                yield Stream(part, _has_become(seen, stream, node.spec.marker or ""), stream.kind)

    def output_seen(self, node: Node, decision: Decision) -> Any:
        """The output of a task that would be adopted, from what was read of it."""
        files, rest = [], ""
        for key, path, found in self._found(node, decision, self.inputs.paths(node)):
            record, body = file_seen(node, key, path, found)
            self.artifacts.recent.keep(record.sha256, body)
            rest = (self.artifacts.rest_of(found.seal) or "") if found.seal else rest
            files.append(record)
        return self.artifacts.load(Accepted(tuple(files), value_ref=rest))


def taken(
    acceptance: Acceptance,
    do: str,
    node: Node,
    seen: Sequence[tuple[ev.FileRecord, bytes | None]],
    outline: Offer,
    make: Callable[[], Offer],
    looks: Mapping[str, Look] | None = None,
) -> Action:
    """Files that lie there as the task's output: as they look, or with the seal that they get."""
    if looks:  # they stay as they are
        return Accept(acceptance, do, make, outline, [one.part for one in outline.streams], looks)
    seal = seal_of(acceptance.state.run_id, node, outline.made)
    sealed = {file.path: Look(look.SEALED, body=body or b"", seal=for_file(seal, file)) for file, body in seen}
    return Accept(acceptance, do, make, outline, list(sealed), sealed)


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
