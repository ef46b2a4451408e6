"""The one acceptance, in two halves: what a task gave is offered outside the commit, and lands inside it.

offer        from a value: what a body returned, what a migration made of an output, what an agent hands in
offer_found  from files that lie there: one that proves itself and is adopted, an edit that a person keeps
land         inside the commit: its turn, room, rename, and the event that records it

What is on offer is checked, has its copies in objects/, and its files sealed and staged. An offer is data: it may
wait for the lock, and whoever makes it may be anywhere. Nothing else checks, keeps, seals or records an output.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast import events as ev
from holdfast import seals
from holdfast.artifacts import memory
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.memory import Section
from holdfast.artifacts.obstacles import Obstacles
from holdfast.artifacts.offers import (
    ADOPTED,
    BODY,
    MIGRATED,
    ObjectedError,
    Offer,
    OvertakenError,
    Stream,
    event_of,
    offer_of,
    with_files,
)
from holdfast.artifacts.parts import Ingredients
from holdfast.artifacts.products import (
    NOTHING,
    SECTION,
    UNWRITTEN,
    OutputRefusedError,
    for_file,
    large_file,
    part_path,
    plain_output,
    prepare_file,
    seal_of,
    split_output,
)
from holdfast.artifacts.sealed_files import SealedFiles
from holdfast.events import FileRecord
from holdfast.layout import PART_SUFFIX
from holdfast.pipeline.nodes import Node
from holdfast.pipeline.spec import StepSpec, heads
from holdfast.seals import Seal
from holdfast.state import COMPLETED, Accepted, TaskState
from holdfast.stores.protocols import Staged
from holdfast.values import INLINE_VALUE_MAX, digest, encode_json

Body = bytes | Path | None
"""The bytes above a seal: held, in a large file that a step wrote, or (None) lying in their place."""


def no_objection(output: Any) -> str:
    """The check of an output to which nobody has anything to say."""
    return ""


class Acceptance:
    """Accepts the outputs of one run's tasks. `offer` is safe to use from several threads."""

    def __init__(self, inputs: Inputs, *, may_overwrite: bool = False) -> None:
        self.state = inputs.state
        self.inputs = inputs
        self.artifacts = inputs.artifacts
        self.sealed_files = SealedFiles(inputs.artifacts)
        self._obstacles = Obstacles(inputs, may_overwrite=may_overwrite)
        self._heads = heads(inputs.graph.spec)

    # --- offering: outside the commit ----------------------------------------------------------------------

    def offer(
        self,
        node: Node,
        output: Any,
        made: TaskState,
        *,
        by: str = BODY,
        check: Callable[[Any], str] = no_objection,
        is_streamed: bool = False,
        parent_id: str = "",
        reason: str = "",
    ) -> Offer:
        """Check an output, keep it and seal it, as something that may land.

        `made` is the task as it will be; its output is the form that is replaced, if one is, and its digest what
        consumers go on to know it by. Raises OutputRefusedError or ValueRefusedError for what is not as the step
        declares it.
        """
        is_items = node.kind == "items"
        if not is_items:
            output = self._checked(node.spec, output, check)
        if is_items or (node.spec.appends is None and node.spec.writes is None):
            made = self._with_value(made, output, node.id if is_items else "value")
            return offer_of(node, by, made, parent_id=parent_id, reason=reason)
        offer = offer_of(node, by, made, parent_id=parent_id, reason=reason)
        if node.spec.appends is not None:
            return self._of_section(offer, node, output)
        return self._of_files(offer, node, output, is_streamed=is_streamed)

    def offer_found(
        self,
        node: Node,
        found: Sequence[tuple[FileRecord, bytes | None]],
        made: TaskState,
        *,
        by: str,
        is_sealed: bool = False,
        sealed_as: TaskState | None = None,
        edited: Collection[str] = (),
        streams: tuple[Stream, ...] = (),
        value_ref: str = "",
        reason: str = "",
    ) -> Offer:
        """Take files that lie there as an output: what `is_sealed` is left as it is, the rest gets its seal.

        A file without bytes is whole in its place. `sealed_as` is what the seal says of the task, if that is more
        than is recorded. Edited files land last: killed before that, the next run finds the edit, not two sets.
        """
        for record, body in found:
            if body is not None:
                self._keep(record, body)
        offer = offer_of(node, by, made, streams=streams, reason=reason)
        offer = with_files(offer, node, [record for record, _ in found], value_ref)
        if is_sealed:
            return offer
        known = {"accepted": offer.made.accepted, "output_digest": offer.made.output_digest}
        seal = seal_of(self.state.run_id, node, replace(sealed_as or made, **known))
        return self._staged(offer, sorted(found, key=lambda one: one[0].path in edited), seal, sync=True)

    def offer_value(self, node: Node, data: bytes, made: TaskState) -> Offer:
        """Take the JSON text of a value that was found as an output."""
        ref = self.artifacts.objects.put(data)
        made = replace(made, accepted=Accepted(value_ref=ref), output_digest=ref)
        return offer_of(node, ADOPTED, made)

    def _checked(self, spec: StepSpec, output: Any, check: Callable[[Any], str]) -> Any:
        """The output in Python's own types, to which nobody objects."""
        if spec.writes is not None or spec.appends is not None:
            output = plain_output(spec, output)
        opened = self._heads.get(spec.name)
        if opened and not issubclass(type(output), str):
            raise OutputRefusedError(f"returned {type(output).__name__}, but {opened} begins with its text")
        objection = check(output)
        if objection:
            raise ObjectedError(objection, output)
        return output

    def _with_value(self, made: TaskState, value: Any, where: str) -> TaskState:
        """A JSON value is on record itself, or in objects/ by its hash if it is long."""
        data = encode_json(value, where)
        if len(data) <= INLINE_VALUE_MAX:
            accepted, known = Accepted(value=msgspec.Raw(data)), digest(data)
        else:
            known = self.artifacts.objects.put(data)
            accepted = Accepted(value_ref=known)
        return replace(made, accepted=accepted, output_digest=made.output_digest or known)

    def _of_section(self, offer: Offer, node: Node, output: Any) -> Offer:
        """A section is only in objects/ until its batch is written."""
        if not isinstance(output, str):
            raise OutputRefusedError(f"returned {type(output).__name__}, but appends needs text")
        record, body = prepare_file(node.spec, self.inputs.memory_path(node.spec, node.path), output)
        self._keep(record, body)
        return with_files(offer, node, [replace(record, kind=UNWRITTEN)], "")

    def _of_files(self, offer: Offer, node: Node, output: Any, *, is_streamed: bool) -> Offer:
        before = {file.key: file for file in offer.files}
        pieces, rest = split_output(node.spec, output)
        paths = {**self.inputs.paths(node), **{key: file.path for key, file in before.items()}}
        found = [
            self._prepared(node.spec, key, paths[key], piece, before.get(key)) for key, piece in pieces.items()
        ]
        ref = self._keep_rest(rest)
        if len(before) > 1:
            self._keep_before(before, found)
        if before or ref:  # files that a kill or power cut leaves without a record name the value by its hash
            self.artifacts.objects.sync()
        for record, body in found:
            if body is not None:
                self._keep(record, body)
        offer = with_files(offer, node, [record for record, _ in found], ref)
        if is_streamed:
            offer = replace(offer, streams=self._streams(next(iter(paths.values())), output))
        seal = seal_of(self.state.run_id, node, offer.made)
        # After a power cut, an earlier version that is still in its place would look like somebody's edit; and a
        # text that grew in its NAME.part is nowhere else once that is removed.
        sync = offer.by != BODY or is_streamed or any(self._is_taken(path) for path in paths.values())
        return self._staged(offer, found, seal, sync=sync)

    def _is_taken(self, path: str) -> bool:
        return self.artifacts.tree.look(path) is not None

    def _prepared(
        self, spec: StepSpec, key: str, path: str, piece: Any, before: FileRecord | None
    ) -> tuple[FileRecord, Body]:
        """One file of an output. A large one that another form has taken over is left where it is."""
        if isinstance(piece, Path) and before is not None:
            if piece != self.artifacts.tree.root / before.path:
                raise OutputRefusedError(f"the file {piece.name}, which cannot take the place of {before.path}")
            return before, None
        body: Body
        if isinstance(piece, Path):
            claimed = self.artifacts.tree.claim(piece, ends_line=seals.is_inline(path))
            record, body = large_file(path, piece, claimed)
        else:
            record, body = prepare_file(spec, path, piece)
        return replace(record, key=key, stored=spec.copy), body

    def _keep(self, record: FileRecord, body: bytes | Path) -> None:
        """Put a copy into objects/, if its step wants one."""
        if isinstance(body, Path):
            self.artifacts.files.has_large = True
            if record.stored:
                self.artifacts.objects.put_blocks(self.artifacts.tree.blocks(body))
        elif record.stored:
            self.artifacts.objects.put(body, record.sha256)
            self.artifacts.recent.keep(record.sha256, body)

    def _keep_rest(self, rest: Any) -> str:
        """Keep the value beside files by its hash; gives that, "" if there is none."""
        data = encode_json(rest) if rest is not NOTHING else b""
        return self.artifacts.objects.put(data) if rest is not NOTHING and rest else ""

    def _keep_before(self, before: Mapping[str, FileRecord], found: Sequence[tuple[FileRecord, Body]]) -> None:
        """Keep the old form of a set of files: all of it is wanted if the new one is cut off halfway."""
        for record, body in found:
            old = before.get(record.key)
            if old is not None and body is not None and not old.stored:
                self.artifacts.objects.put(self.artifacts.body(old), old.sha256)

    def _streams(self, path: str, output: Any) -> tuple[Stream, ...]:
        """What is left of the stream that has become the output, or has not: then it is a person's to look at."""
        part, tree = part_path(path), self.artifacts.tree
        if tree.look(part) is None:
            return ()
        return (Stream(part, isinstance(output, str) and output.encode().startswith(tree.read(part))),)

    def _staged(self, offer: Offer, found: Sequence[tuple[FileRecord, Body]], seal: Seal, *, sync: bool) -> Offer:
        """The offer with its files sealed and ready to land, in this order."""
        marked: dict[str, FileRecord] = {}
        staged: list[Staged] = []
        try:
            for record, body in found:
                if record.kind == SECTION:  # drawn into its memory file when it lands
                    marked[record.key] = record
                    continue
                if offer.by == MIGRATED and body is not None and not seals.is_inline(record.path):
                    staged.append(self._announced(record, seal))
                marked[record.key], more = self.sealed_files.stage(record, body, seal, sync=sync)
                staged += more
        except BaseException:
            self.sealed_files.discard(staged)
            raise
        accepted = offer.made.accepted or Accepted()
        accepted = replace(accepted, files=tuple([marked[file.key] for file in offer.files]))
        return replace(offer, made=replace(offer.made, accepted=accepted), seal=seal, staged=tuple(staged))

    def _announced(self, record: FileRecord, seal: Seal) -> Staged:
        """The seal beside a file, speaking for what will replace it, too: whenever a kill comes, one fits."""
        old = self.artifacts.files.seal_beside(record.path)
        lines = b"".join(seals.write_seal(one) for one in (old, for_file(seal, record)) if one is not None)
        return self.sealed_files.stage_beside(record.path, lines, sync=not record.stored)

    # --- landing: inside the commit ------------------------------------------------------------------------

    def land(self, offer: Offer, now: Ingredients | None = None) -> Iterator[ev.Event]:
        """Let an output take its place; gives the events, each to be recorded at once, the last accepts it.

        `now` is what the task would be made of by now, from whoever has no hold on its turn: OvertakenError if
        that has changed, or the task has gone on. The attempt that is running holds its turn: its output is
        recorded with the inputs it had, and found out of date when it is judged.

        Crash story, write by write. Objects are in the run's pack, and synced before the journal is appended to.
        Staged, not landed: the tree is as it was, and the next start clears the temporary away. Of a body nothing
            was reported, and what it journaled with `ctx.once` is replayed.
        Set aside, not landed: the next run finds nothing, or NAME.bak, and runs the task.
        Landed in part: of several files some have the seal of the new set, and no set is believed that is not
            whole; a file with its seal beside it has none that fits until that has landed. In a migration the seal
            beside it speaks for both forms.
        Landed, not recorded: the file is whole and sealed, and is adopted for nothing. After a power cut it may be
            empty, and its task runs again: nobody was told. One without a copy, or in the place of another
            version, was synced with its name before.
        The stream removed, not recorded: what has its text was synced before it, and is adopted.
        Recorded, not synced: as not recorded, or as done.
        """
        if self._has_landed(offer):
            self.withdraw(offer)
            return
        try:
            self._require_turn(offer, now)
            yield from self._make_room(offer)
            self.sealed_files.land(offer.staged)
        except BaseException:
            self.withdraw(offer)
            raise
        self._draw_sections(offer)
        yield from self._clear_streams(offer)
        yield event_of(offer)

    def foretell(self, offer: Offer) -> ev.Event:
        """The event that would accept an offer, for which nothing needs to be staged yet."""
        return event_of(offer)

    def withdraw(self, offer: Offer) -> None:
        """Remove what is staged of an offer that does not land. What it gave stays in objects/."""
        self.sealed_files.discard(offer.staged)

    def _has_landed(self, offer: Offer) -> bool:
        """Whether the same output, of the same round and made from the same inputs, is on record already."""
        if offer.by != BODY:
            return False
        record, made = self.state.task(offer.task), offer.made
        then = (record.round, record.input_digest, record.output_digest)
        return record.status == COMPLETED and then == (made.round, made.input_digest, made.output_digest)

    def _require_turn(self, offer: Offer, now: Ingredients | None) -> None:
        if now is None:
            return
        record = self.state.task(offer.task)
        if record.status == COMPLETED or record.round != offer.made.round:
            raise OvertakenError(f"{offer.task} has gone on without this output")
        if now.digest != offer.made.input_digest:
            raise OvertakenError(f"what {offer.task} is made from has changed since it was begun")

    def _make_room(self, offer: Offer) -> Iterator[ev.Event]:
        """Set aside what stands in the way; an empty file, too, if it has come there while a step ran."""
        landing = {one.path for one in offer.staged}
        for file in offer.files:
            if file.kind == UNWRITTEN:
                yield from self._obstacles.copy_section(offer.task, file.path)
            elif file.path in landing:
                yield from self._obstacles.set_aside(offer.task, offer.names, file, also_empty=offer.by == BODY)

    def _draw_sections(self, offer: Offer) -> None:
        """Give an edited section a seal over what the person wrote; nothing else in the file moves."""
        for file in offer.files if offer.seal is not None else ():
            if file.kind == SECTION and offer.seal is not None:
                section = Section(offer.names, for_file(offer.seal, file), self.artifacts.body(file))
                book = self.artifacts.books.read(file.path)
                rewritten = memory.rewrite(book, [section], frozenset({offer.task}))
                self.artifacts.books.replace(file.path, rewritten.data)

    def _clear_streams(self, offer: Offer) -> Iterator[ev.Event]:
        """A stream that has become the output goes; anything else is set aside."""
        tree = self.artifacts.tree
        for stream in offer.streams:
            if stream.is_within:
                if not offer.staged:  # what has its text may be of a step that was killed a moment ago
                    tree.sync(stream.part.removesuffix(PART_SUFFIX))
                tree.remove(stream.part, sync=True)  # else it would look half-finished after a power cut
            else:
                to = tree.set_aside(stream.part, beside=True)
                if stream.reason:
                    yield ev.ArtifactSetAside(step_id=offer.task, path=stream.part, to=to, reason=stream.reason)
