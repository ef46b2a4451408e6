r"""One event, one line: JSON that proves itself and the line before it.

    {"seq":12,"ts":"2026-01-09T14:30:22.123Z","v":1,"event":"node_exit",...,"prev":"16 hex","sum":"16 hex"}\n

`sum` is the first 16 hex digits of the SHA-256 of all bytes before `,"sum":`. `prev` is the `sum` of the
line before, sixteen zeros in the first. Envelope members stand exactly there: seq, ts, v first, prev and
sum last, without spaces. Every format version keeps this frame, so that a line written by a newer Holdfast
is told from damage.
"""

from __future__ import annotations

import re
from hashlib import sha256

import msgspec

from holdfast.errors import FormatTooNewError, ValueRefusedError

FORMAT = 1
LINE_MAX = 16 << 20
NO_SUM = "0" * 16
RESERVED = ("seq", "ts", "v", "prev", "sum")

SUM_BYTES = len(b',"sum":""}\n') + 16
PREV_BYTES = len(b',"prev":""') + 16
_HEAD = re.compile(rb'\{"seq":([1-9]\d{0,17}),"ts":"([0-9TZ:.+-]{1,40})","v":([1-9]\d{0,8}),')
_TAIL = re.compile(rb',"prev":"([0-9a-f]{16})","sum":"([0-9a-f]{16})"\}\n')


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
