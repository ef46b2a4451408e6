"""The body of a journal's line: an event as JSON, and back. The envelope (`seq`, `ts`, sums) is `codec.py`'s.

Unknown events, from a newer minor version, read as `Unknown`.
"""

from __future__ import annotations

import operator
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any
from uuid import UUID

import msgspec

from holdfast.errors import CheckpointCorruptionError, ValueRefusedError
from holdfast.events import KINDS, Event, NodeExited, OnceRecorded, PipelineDeclared, ValueMigrated
from holdfast.journal.codec import LINE_MAX
from holdfast.wording import all_writable

CARRYING_RAW = frozenset({PipelineDeclared, NodeExited, ValueMigrated, OnceRecorded})

EVENT_MAX = LINE_MAX - 1024
"""Bytes of an event in other people's words: a line of the journal, and some room for what stands around it."""

# What would silently become text: it is refused instead.
_NO_WORDS = (bytes, bytearray, datetime, date, timedelta, UUID, Decimal)
_KNOWN = frozenset(kind.__struct_config__.tag for kind in KINDS)
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(reduce(operator.or_, KINDS))
_well_formed = msgspec.json.Decoder(msgspec.Raw).decode


class Unknown(msgspec.Struct, frozen=True):
    """An event this version does not know, or no event at all. It changes nothing and is kept as it is."""

    event: str


def encode(event: Event) -> bytes:
    """The JSON object of `event`, tag first, without the journal's envelope."""
    data = _encoder.encode(event)
    if type(event) in CARRYING_RAW:
        _well_formed(data)  # a raw value is copied as it is: what cannot be read back must not be written
    return data


def checked(event: Event) -> Event:
    """`event`, which holds other people's words, as it will be read back; what the journal cannot hold is refused.

    Lone surrogates are spelt out; anything that is not of its field's type would make the journal unreadable. One
    that is too long is the mistake of whoever says it: in the journal it would stop all others, too.
    """
    name = type(event).__struct_config__.tag
    try:
        found = msgspec.convert(all_writable(msgspec.to_builtins(event, builtin_types=_NO_WORDS)), type(event))
    except (msgspec.ValidationError, TypeError) as error:
        raise ValueRefusedError(f"{name}: {error}.", where="event") from None
    size = len(encode(found))
    if size > EVENT_MAX:
        words = f"{name}: {size} bytes are more than the {EVENT_MAX} that one line of the journal holds."
        raise ValueRefusedError(words, where="event", fix="Keep it in a file.")
    return found


def decode(line: bytes) -> Event | Unknown:
    """The event in a journal line whose checksum was verified. A known one that does not read is damage."""
    try:
        event: Event = _decoder.decode(line)
    except msgspec.ValidationError as error:
        name = _name_in(line)
        if name in _KNOWN:
            raise CheckpointCorruptionError(
                f"A line of the journal ({name}) does not read: {error}.",
                fix="Was it written by another version of Holdfast?",
            ) from error
        return Unknown(name)
    return event


def _name_in(line: bytes) -> str:
    name = msgspec.json.decode(line, type=dict[str, Any]).get("event")
    return name if isinstance(name, str) else ""
