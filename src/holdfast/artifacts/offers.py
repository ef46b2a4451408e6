"""What is on offer: an output that is checked, kept, sealed and staged, as data; and the event that accepts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast import events as ev
from holdfast.artifacts.products import EMPTY_REST, OutputRefusedError, output_digest, value_digest
from holdfast.events import NO_VALUE, FileRecord
from holdfast.pipeline.nodes import Node
from holdfast.seals import Seal
from holdfast.state import COMPLETED, Accepted, TaskState
from holdfast.stores.protocols import Staged

BODY, ADOPTED, PERSON, MIGRATED = "body", "adopted", "person", "migrated"
"""Who offers: a step that ran, a file that proves itself, a person who keeps what is there, a change of form."""


class ObjectedError(OutputRefusedError):
    """A check objects to an output."""

    def __init__(self, objection: str, output: Any) -> None:
        super().__init__(objection)
        self.output = output


class OvertakenError(Exception):
    """An offer that may not land any more: the task has gone on without it."""


class Stream(msgspec.Struct, frozen=True):
    """A half-finished text beside an output; it goes if the output has all of it, else it is set aside."""

    part: str
    is_within: bool
    reason: str = ""  # told with what is set aside


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """An output that is not in its place yet."""

    by: str
    task: str
    names: tuple[str, ...]  # of the task: the one it has, and those it had before
    step: str
    made: TaskState  # the task as it will be on record: round, inputs, output, cost
    seal: Seal | None = None  # what the seals of its files share; None if nothing is sealed
    staged: tuple[Staged, ...] = ()
    streams: tuple[Stream, ...] = ()
    parent_id: str = ""
    reason: str = ""

    @property
    def files(self) -> tuple[FileRecord, ...]:
        return self.made.accepted.files if self.made.accepted is not None else ()


def offer_of(node: Node, by: str, made: TaskState, **facts: Any) -> Offer:
    """An offer that nothing is staged for yet."""
    return Offer(by=by, task=node.id, names=tuple(node.names), step=node.spec.name, made=made, **facts)


def with_files(offer: Offer, node: Node, files: Sequence[FileRecord], ref: str) -> Offer:
    """The offer of these files and the value beside them, and the digest that consumers know both by."""
    accepted = Accepted(tuple(files), NO_VALUE, "" if ref == EMPTY_REST else ref)
    known = offer.made.output_digest or output_digest(accepted.files, value_digest(node, accepted))
    return replace(offer, made=replace(offer.made, accepted=accepted, output_digest=known))


def event_of(offer: Offer) -> ev.Event:
    """The word that an output is accepted."""
    made, accepted = offer.made, offer.made.accepted or Accepted()
    if offer.by == BODY:
        return ev.NodeExited(
            step_id=offer.task,
            node=offer.step,
            status=COMPLETED,
            parent_id=offer.parent_id,
            round=made.round,
            attempt=made.attempt,
            version=made.version,
            duration=made.duration,
            input_digest=made.input_digest,
            inputs=made.inputs,
            output_digest=made.output_digest,
            files=accepted.files,
            value=accepted.value,
            value_ref=accepted.value_ref,
        )
    if offer.by == ADOPTED:
        return ev.TaskAdopted(
            step_id=offer.task,
            node=offer.step,
            evidence=made.evidence,
            round=made.round,
            version=made.version,
            input_digest=made.input_digest,
            inputs=made.inputs,
            output_digest=made.output_digest,
            files=accepted.files,
            value_ref=accepted.value_ref,
            value_lost=made.value_lost,
            cost_usd=made.cost_usd,
            tokens=made.input_tokens,
        )
    if offer.by == PERSON:
        return ev.TaskKept(
            step_id=offer.task,
            reason=offer.reason,
            input_digest=made.input_digest,
            inputs=made.inputs,
            output_digest=made.output_digest,
            files=accepted.files,
        )
    return ev.ValueMigrated(
        step_id=offer.task,
        version=made.version,
        reason=offer.reason,
        input_digest=made.input_digest,
        inputs=made.inputs,
        files=accepted.files,
        value=accepted.value,
        value_ref=accepted.value_ref,
    )
