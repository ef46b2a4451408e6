r"""One event, one line of a journal: JSON that proves itself and the line before it.

    {"seq":12,"ts":"2026-01-09T14:30:22.123Z","v":1,"event":"node_exit",...,"prev":"16 hex","sum":"16 hex"}\n

`sum` is the first 16 hex digits of the SHA-256 of all bytes before `,"sum":`. `prev` is the `sum` of the
line before, sixteen zeros in the first. Envelope members stand exactly there: seq, ts, v first, prev and
sum last, without spaces. Every format version keeps this frame, so that a line written by a newer Holdfast
is told from damage.

Events of a newer minor version, which this one does not know, read as `Unknown`.
"""

from __future__ import annotations

import operator
import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec

from holdfast.errors import CheckpointCorruptionError, FormatTooNewError, ValueRefusedError
from holdfast.events import KINDS, Event, NodeExited, OnceRecorded, PipelineDeclared, ValueMigrated
from holdfast.journal.upgrade import FORMAT, upgrade
from holdfast.stores.protocols import Position
from holdfast.wording import all_writable

LINE_MAX = 16 << 20
NO_SUM = "0" * 16
RESERVED = ("seq", "ts", "v", "prev", "sum")

SUM_BYTES = len(b',"sum":""}\n') + 16
PREV_BYTES = len(b',"prev":""') + 16
CARRYING_RAW = frozenset({PipelineDeclared, NodeExited, ValueMigrated, OnceRecorded})

EVENT_MAX = LINE_MAX - 1024
"""Bytes of an event in other people's words: a line of the journal, and some room for what stands around it."""

_HEAD = re.compile(rb'\{"seq":([1-9]\d{0,17}),"ts":"([0-9TZ:.+-]{1,40})","v":([1-9]\d{0,8}),')
_TAIL = re.compile(rb',"prev":"([0-9a-f]{16})","sum":"([0-9a-f]{16})"\}\n')


# What would silently become text: it is refused instead.
_NO_WORDS = (bytes, bytearray, datetime, date, timedelta, UUID, Decimal)
_KNOWN = frozenset(kind.__struct_config__.tag for kind in KINDS)
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(reduce(operator.or_, KINDS))
_well_formed = msgspec.json.Decoder(msgspec.Raw).decode
_members = msgspec.json.Decoder(dict[str, Any]).decode


class Unknown(msgspec.Struct, frozen=True):
    """An event this version does not know, or no event at all. It changes nothing and is kept as it is."""

    event: str


class Line(msgspec.Struct, frozen=True, gc=False):
    """One good line: `raw` with its newline; `hint` as its position has it."""

    seq: int
    ts: str
    raw: bytes
    hint: Any = None

    def event(self) -> dict[str, Any]:
        """The event in today's format: seq, ts and its own fields, without v, prev and sum."""
        event = _members(self.raw)
        v = event.pop("v")
        del event["prev"], event["sum"]
        return upgrade(event, v)

    @property
    def sum(self) -> str:
        return self.raw[-SUM_BYTES + 8 : -3].decode("ascii")

    @property
    def prev(self) -> str:
        return self.raw[-SUM_BYTES - 17 : -SUM_BYTES - 1].decode("ascii")

    @property
    def hash(self) -> str:
        """The hash of its event without its chain."""
        return hash_of(self.raw)

    @property
    def position(self) -> Position:
        return Position(self.seq, self.hash, self.hint)


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """What every line has around its event."""

    seq: int
    ts: str
    v: int
    prev: str
    sum: str


class LineDamaged(Exception):  # noqa: N818 - a finding about bytes, caught by every reader; not an error of the user's
    """The line is not what was written; the reason is the message."""


_decode = msgspec.json.Decoder(Envelope).decode


def encode_line(seq: int, ts: str, body: bytes, prev: str) -> tuple[bytes, str]:
    """The line for the JSON object `body` (without envelope), and its sum."""
    if body[:1] != b"{" or b"\n" in body:
        raise ValueError("the body of a line must be one JSON object on one line")
    members = memoryview(body)[1:-1]
    head = f'{{"seq":{seq},"ts":"{ts}","v":{FORMAT}{"," if members else ""}'
    return close_line(b"".join((head.encode(), members)), prev)


def close_line(head: bytes, prev: str) -> tuple[bytes, str]:
    """`head`, everything before `,"prev":`, as a whole line chained to `prev`; and its sum."""
    chained, hashed = f',"prev":"{prev}"'.encode(), sha256(head)
    hashed.update(chained)
    digest = hashed.hexdigest()[:16]
    line = b"".join((head, chained, f',"sum":"{digest}"}}\n'.encode()))
    if len(line) > LINE_MAX:
        raise ValueRefusedError(
            f"An event of {len(line)} bytes is larger than {LINE_MAX}.",
            where="event",
            fix="Keep it in a file.",
        )
    return line, digest


def check_line(line: bytes) -> Envelope:
    """The envelope of a whole line with its newline; LineDamaged says what is wrong with it."""
    if len(line) > LINE_MAX:
        raise LineDamaged(f"longer than {LINE_MAX} bytes")
    frame_start = _HEAD.match(line)
    frame_end = _TAIL.fullmatch(line, max(0, len(line) - SUM_BYTES - PREV_BYTES))
    if frame_start is None or frame_end is None:
        raise LineDamaged("not a line of a journal")
    if sha256(memoryview(line)[:-SUM_BYTES]).hexdigest()[:16].encode() != frame_end[2]:
        raise LineDamaged("its checksum does not fit")
    if int(frame_start[3]) > FORMAT:
        raise FormatTooNewError(
            f"The journal has a line of format {int(frame_start[3])}; this Holdfast knows up to {FORMAT}.",
            fix="Use the newer Holdfast that wrote it. Nothing was changed.",
        )
    return _strict(line, frame_start, frame_end)


def sum_after(line: bytes, prev: bytes) -> bytes:
    """The sum of a line that proves itself and continues the one whose sum is `prev`; b"" otherwise.

    Its frame and its event are not looked at: a chain of such sums that begins at the first line and ends at a
    known one holds just the lines that were written.
    """
    found = sha256(line[:-SUM_BYTES]).hexdigest()[:16].encode()
    if line.endswith(b',"prev":"%b","sum":"%b"}\n' % (prev, found)):
        return found
    return b""


def _strict(line: bytes, frame_start: re.Match[bytes], frame_end: re.Match[bytes]) -> Envelope:
    """The envelope if the whole line is strict JSON and no member of it is there a second time."""
    try:
        if not line.isascii():
            line.decode("utf-8")
        envelope = _decode(line)
    except UnicodeDecodeError:
        raise LineDamaged("not UTF-8") from None
    except RecursionError:
        raise LineDamaged("nested too deeply") from None
    except msgspec.MsgspecError as error:
        raise LineDamaged(f"not JSON: {error}") from None
    # The decoder takes the last of two equal keys, the frame gives the first or the last: they must agree.
    framed = Envelope(
        int(frame_start[1]),
        frame_start[2].decode(),
        int(frame_start[3]),
        frame_end[1].decode(),
        frame_end[2].decode(),
    )
    if envelope != framed:
        raise LineDamaged("a member of its envelope is there twice")
    return envelope


def hash_of(line: bytes) -> str:
    """The hash of a line's event without its chain: of all bytes before `,"prev":`."""
    return sha256(memoryview(line)[: -SUM_BYTES - PREV_BYTES]).hexdigest()[:16]


def encode_event(event: Event) -> bytes:
    """The JSON object of `event`, tag first, without the journal's envelope."""
    data = _encoder.encode(event)
    if type(event) in CARRYING_RAW:
        _well_formed(data)  # a raw value is copied as it is: what cannot be read back must not be written
    return data


def checked_event(event: Event) -> Event:
    """`event`, which holds other people's words, as it will be read back; what the journal cannot hold is refused.

    Lone surrogates are spelt out; anything that is not of its field's type would make the journal unreadable. One
    that is too long is the mistake of whoever says it: in the journal it would stop all others, too.
    """
    name = type(event).__struct_config__.tag
    try:
        found = msgspec.convert(all_writable(msgspec.to_builtins(event, builtin_types=_NO_WORDS)), type(event))
    except (msgspec.ValidationError, TypeError) as error:
        raise ValueRefusedError(f"{name}: {error}.", where="event") from None
    size = len(encode_event(found))
    if size > EVENT_MAX:
        words = f"{name}: {size} bytes are more than the {EVENT_MAX} that one line of the journal holds."
        raise ValueRefusedError(words, where="event", fix="Keep it in a file.")
    return found


def decode_event(line: bytes) -> Event | Unknown:
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
