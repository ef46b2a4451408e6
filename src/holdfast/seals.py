"""Proof: the seal, written as the last line of an artifact (or beside it), and read back.

A seal binds a body to its task: `<!-- DRAFT_COMPLETE holdfast=1 task=draft[ch05] run=ID round=0 in=HEX
sha256=HEX cost=0.0123 tokens=456 -->`. `sha256` covers every byte above the seal line. Formats with a comment
syntax carry it as their last line; all others have it alone in `NAME.seal`.

Rules: a seal counts only as the last non-blank line. `eol=added` says that the newline before the seal is ours,
not the author's. `set=HEX` binds several files of one step together. `from=NAME:HEX,...` names each input by the
beginning of its digest, so that a file can be compared also where some are lost. `sum=HEX`, the last word, covers
the line itself: a seal that was damaged is no seal. Nothing here opens a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote, unquote

import msgspec

from holdfast.layout import SEAL_SUFFIX
from holdfast.stores.reader import SEAL_VERSION, last_line, newer_format, seal_sum, seal_told

FORMAT = int(SEAL_VERSION)

INLINE = (".md", ".markdown", ".html", ".htm", ".xml", ".svg")


class Seal(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a seal says; `seal_told` gives the fields in this order."""

    task: str
    run: str
    round: int
    input_digest: str
    sha256: str
    marker: str = ""
    cost_usd: float = 0.0
    tokens: int = 0
    newline_added: bool = False
    inputs: str = ""  # as `name_inputs` writes them; read only where they matter, which is seldom
    set_digest: str = ""
    step_version: int = 1
    kind: str = "text"
    value_digest: str = ""  # of the value a step gave beside its files; it is kept in objects/ by this name
    known_as: str = ""  # of a migrated output: the digest that its consumers know it by

    @property
    def made_from(self) -> dict[str, str]:
        """Each input's digest, shortened: which of them differ, when not all are known."""
        pairs = dict([pair.split(":") for pair in self.inputs.split(",")]) if self.inputs else {}
        if "%" in self.inputs:
            return {unquote(name): unquote(part) for name, part in pairs.items()}
        return pairs


class Sealed(msgspec.Struct, frozen=True):
    """A file taken apart: the bytes above the seal line, and the seal, if the last line is one."""

    body: bytes
    seal: Seal | None


_SPENT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?) tokens=([0-9]{1,18})( eol=added)?")

_decode = msgspec.json.Decoder(Seal, strict=False).decode  # numbers come as text

vary = msgspec.structs.replace
"""A seal with some of its facts changed."""


def is_inline(path: str) -> bool:
    """Whether files of this name carry their seal inside."""
    return path.endswith(INLINE) or path.lower().endswith(INLINE)


def seal_path(path: str) -> str:
    return path + SEAL_SUFFIX


def with_newline(body: bytes) -> tuple[bytes, bool]:
    """The body as it stands above an inline seal, and whether a newline had to be added."""
    if not body or body.endswith(b"\n"):
        return body, False
    return body + b"\n", True


def author_body(body: bytes, newline_added: bool) -> bytes:
    """The inverse of `with_newline`: what the step returned."""
    return body[:-1] if newline_added else body


def write_seal(seal: Seal) -> bytes:
    """The seal line, newline included."""
    words = [seal.marker] if seal.marker else []
    words += [
        f"holdfast={SEAL_VERSION.decode()}",
        f"task={seal.task}",
        f"run={seal.run}",
        f"round={seal.round}",
        f"in={seal.input_digest}",
        f"sha256={seal.sha256}",
        f"cost={seal.cost_usd:.6f}".rstrip("0").rstrip("."),
        f"tokens={seal.tokens}",
    ]
    if seal.newline_added:
        words.append("eol=added")
    if seal.set_digest:
        words.append(f"set={seal.set_digest}")
    if seal.value_digest:
        words.append(f"value={seal.value_digest}")
    if seal.step_version != 1:
        words.append(f"version={seal.step_version}")
    if seal.kind != "text":
        words.append(f"kind={seal.kind}")
    if seal.known_as:
        words.append(f"known={seal.known_as}")
    if seal.inputs:
        words.append(f"from={seal.inputs}")
    line = f"<!-- {' '.join(words)}".encode()
    return b"%b sum=%b -->\n" % (line, seal_sum(line))


def usual_beginning(marker: str, run: str) -> str:
    """How seals of a step begin whose work was never sent back, with places for task, input digest and hash."""
    words = f"{marker} holdfast" if marker else "holdfast"
    fixed = f"<!-- {words}={SEAL_VERSION.decode()} task=\0 run={run} round=0 in=\0 sha256=\0 cost="
    return fixed.replace("%", "%%").replace("\0", "%s")


def usual_ending(line: bytes, beginning: str) -> tuple[float, int, bool] | None:
    """Cost, tokens, and whether a newline was added, of a sound seal that begins so and names its inputs.

    None if it begins otherwise, or says more than that. Of thousands of seals nearly all are as they should be,
    and little of them has to be read.
    """
    text = line.decode("utf-8", "replace")
    if not text.startswith(beginning):
        return None
    spent, _, rest = text[len(beginning) :].partition(" from=")
    return _spent(spent) if " sum=" in rest and rest.count(" ") == 2 else None


@lru_cache(maxsize=1024)
def _spent(words: str) -> tuple[float, int, bool] | None:
    found = _SPENT.fullmatch(words)
    return (float(found[1]), int(found[2]), bool(found[3])) if found is not None else None


def name_inputs(parts: Mapping[str, str]) -> str:
    """Inputs and their digests as a seal has them."""
    return ",".join([f"{_quoted(name)}:{_quoted(part)}" for name, part in parts.items()])


def _quoted(text: str) -> str:
    return text if text.isascii() and text.isalnum() else quote(text, "")


def read_seal(line: bytes) -> Seal | None:
    """The seal in one line, or None: nearly a seal is no seal."""
    return seal_of(seal_told(line.strip()))


def seal_of(told: bytes) -> Seal | None:
    """The seal that says this, as `seal_told` gives it."""
    try:
        return _decode(told) if told else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def format_if_newer(data: bytes) -> int:
    """The format of the seal at the end, if a newer Holdfast wrote it; else 0."""
    return newer_format(last_line(data)[1])


def take_apart(data: bytes) -> Sealed:
    """An inline-sealed file as body and seal. Blank lines below the seal are forgiven."""
    start, line = last_line(data)
    seal = seal_of(seal_told(line))
    return Sealed(data, None) if seal is None else Sealed(data[:start], seal)


def ends_in_marker(data: bytes, marker: str) -> bool:
    """Whether the last non-blank line is exactly this plain marker, bare or as a comment, and no quotation."""
    return bool(marker) and _plain_marker(data) == marker.encode() and not _is_in_code_block(data)


def without_marker(data: bytes, marker: str) -> bytes:
    """The text above a plain marker that is its last line; unchanged if there is none."""
    if not ends_in_marker(data, marker):
        return data
    text = data.rstrip()
    return data[: text.rfind(b"\n") + 1]


def _is_in_code_block(data: bytes) -> bool:
    """Whether a fence is open at the end: the last line is then quoted, by a text that was cut off there."""
    opened = b""
    for line in data.splitlines():
        text = line.strip()
        fence = text[: len(text) - len(text.lstrip(text[:1]))]
        if not opened:
            opened = fence if _opens_block(fence, text[len(fence) :]) else b""
        elif text == fence and fence.startswith(opened):
            opened = b""
    return bool(opened)


def _opens_block(fence: bytes, behind: bytes) -> bool:
    """Whether a line that begins so opens a block; one with more backticks in it is text with code in it."""
    return len(fence) >= 3 and (fence[:1] == b"~" or (fence[:1] == b"`" and b"`" not in behind))


def _plain_marker(data: bytes) -> bytes:
    text = data.rstrip()
    last = text[text.rfind(b"\n") + 1 :].strip()
    if last.startswith(b"<!--") and last.endswith(b"-->"):
        last = last[4:-3].strip()
    return last
