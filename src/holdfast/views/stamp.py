"""The last line of a view: which run, at which sequence number, and the hash of all above it. Pure.

A stamp that fits says that nobody edited the view, however old it is. One that does not fit still says which
moment the view was drawn at, so that the difference is what someone wants.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

from holdfast.escaping import harmless_json

_LINE = re.compile(
    r"^<!-- holdfast view run=(\S*) seq=([0-9]{1,18}) sha256=([0-9a-f]{64}) -->[ \t\r]*$", re.MULTILINE
)
_JSON_KEY = b'"stamp":'
VIEW_BYTES_MAX = 64 << 20
"""A view that is larger is not read: nobody wrote that by hand, nor did we."""


class Stamp(msgspec.Struct, frozen=True):
    run: str
    seq: int
    fits: bool


def stamp(text: str, run_id: str, seq: int) -> str:
    """`text` with its stamp as the last line, after an empty one."""
    body = text.rstrip("\n") + "\n\n"
    return f"{body}<!-- holdfast view run={run_id} seq={seq} sha256={_sha256(_bytes(body))} -->\n"


def read_stamp(text: str) -> Stamp | None:
    """The last stamp in `text`; it fits if the text above is unchanged and nothing was added below."""
    stamps = list(_LINE.finditer(text))
    if not stamps:
        return None
    found = stamps[-1]
    unchanged = _sha256(_bytes(text[: found.start()])) == found[3]
    return Stamp(found[1], int(found[2]), unchanged and not text[found.end() :].strip())


def stamp_json(document: dict[str, Any], run_id: str, seq: int) -> bytes:
    """`document` as readable JSON; its last member is the stamp, with the hash of all bytes before that."""
    body = msgspec.json.format(harmless_json(msgspec.json.encode(document).decode()), indent=2).encode()
    head = body.rstrip(b"}").rstrip() + (b",\n  " if document else b"\n  ")
    mark = {"run": run_id, "seq": seq, "sha256": _sha256(head)}
    return head + _JSON_KEY + b" " + msgspec.json.encode(mark) + b"\n}\n"


def read_json_stamp(data: bytes) -> Stamp | None:
    """The stamp of a JSON view; None if the bytes are no JSON or carry none."""
    try:
        mark = msgspec.json.decode(data)["stamp"]
        run, seq, sha256 = str(mark["run"]), int(mark["seq"]), str(mark["sha256"])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LookupError, TypeError, ValueError):
        return None
    return Stamp(run, seq, _sha256(data[: data.rfind(_JSON_KEY)]) == sha256)


def _bytes(text: str) -> bytes:
    # A file that is no UTF-8 may have been read with surrogates in it: it shall not fit, and not raise.
    return text.encode("utf-8", "surrogatepass")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
