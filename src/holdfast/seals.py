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

import hashlib
import re
from collections.abc import Mapping
from urllib.parse import quote, unquote

import msgspec

from holdfast.layout import SEAL_SUFFIX

FORMAT = 1

INLINE = (".md", ".markdown", ".html", ".htm", ".xml", ".svg")


class Seal(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a seal says; `_said` gives the fields in this order."""

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


# The words that every seal has, in their order, then those that many have; what follows differs from seal to seal.
# Of a group no repeat is possessive: Python before 3.11.5 would match wrongly then.
_PAIRS = r"[^ :,]*+:[^ :,]*+(?:,[^ :,]*+:[^ :,]*+)*"
_SEAL = re.compile(
    r"<!-- (?:([^ ]++) )?holdfast=(\d++) task=([^ ]*+) run=([^ ]*+) round=(\d++) in=([^ ]*+) sha256=([^ ]*+)"
    r"(?: cost=([0-9.]++) tokens=(\d++))?(?: (eol=added))?(?: from=(" + _PAIRS + r"))?(?: sum=[0-9a-f]++)?"
    r"((?: (?!cost=|tokens=)[a-z0-9]++=[^ ]*+)*) -->"
)
_INPUTS = re.compile(_PAIRS)
_ANY_FORMAT = re.compile(rb"<!-- (?:[^ ]++ )?holdfast=(\d{1,9}) .* sum=[0-9a-f]++ -->")
_SUM_DIGITS = 12
_ALWAYS = (b"holdfast", b"task", b"run", b"round", b"in", b"sha256", b"cost", b"tokens")
_RARE = (("set", ""), ("version", "1"), ("kind", "text"), ("value", ""), ("known", ""))
_WITHOUT_SUM = frozenset([*_ALWAYS, b"eol", b"set", b"value", b"version", b"kind", b"from"])

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
        f"holdfast={FORMAT}",
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


def name_inputs(parts: Mapping[str, str]) -> str:
    """Inputs and their digests as a seal has them."""
    return ",".join([f"{_quoted(name)}:{_quoted(part)}" for name, part in parts.items()])


def _quoted(text: str) -> str:
    return text if text.isascii() and text.isalnum() else quote(text, "")


def read_seal(line: bytes) -> Seal | None:
    """The seal in one line, or None: nearly a seal is no seal."""
    line = line.strip()
    if not line.startswith(b"<!-- ") or not _is_sound(line):
        return None
    try:
        match = _SEAL.fullmatch(line.decode())
        return _said(match) if match is not None else None
    except (msgspec.ValidationError, UnicodeDecodeError):
        return None


def _said(match: re.Match[str]) -> Seal | None:
    """The seal that such a line is; None if it is of another format."""
    marker, version, task, run, round_, made, sha256, cost, tokens, eol, made_from, others = match.groups("")
    more = dict([word.split("=", 1) for word in others.split(" ")[1:]]) if others else {}
    inputs = more.get("from", made_from)
    if version != str(FORMAT) or ("from" in more and _INPUTS.fullmatch(inputs) is None):
        return None
    is_added = bool(eol) or more.get("eol") == "added"
    said = (task, run, round_, made, sha256, marker, cost or "0", tokens or "0", is_added, inputs)
    rare = [more.get(name, usual) for name, usual in _RARE] if more else ()
    return msgspec.convert((*said, *rare), Seal, strict=False)  # numbers come as text


def seal_sum(line: bytes) -> bytes:
    """What the last word of a seal says of all before it."""
    return hashlib.sha256(line).hexdigest()[:_SUM_DIGITS].encode()


def _is_sound(line: bytes) -> bool:
    """Whether a seal is as it was written: its sum fits.

    One without a sum is an earlier version's, and has nothing in it that those did not write: else it would be
    one whose sum was damaged beyond recognition.
    """
    covered, is_there, rest = line.rpartition(b" sum=")
    if is_there:
        return rest == b"%b -->" % seal_sum(covered)
    words = [word.split(b"=", 1) for word in line.split(b" ") if b"=" in word]
    return all(name in _WITHOUT_SUM and b"=" not in value for name, value in words)


def _last_line(data: bytes) -> tuple[int, bytes]:
    """Where the last line that is not blank begins, and the line without blanks around it."""
    if data.endswith(b">\n"):  # as in nearly all: nothing has to be copied
        start = data.rfind(b"\n", 0, -1) + 1
        return start, data[start:-1].lstrip()
    text = data.rstrip()
    start = text.rfind(b"\n") + 1
    return start, text[start:].lstrip()


def format_if_newer(data: bytes) -> int:
    """The format of the seal at the end, if a newer Holdfast wrote it; else 0."""
    line = _last_line(data)[1]
    match = _ANY_FORMAT.fullmatch(line)
    if match is None or int(match[1]) <= FORMAT or not _is_sound(line):
        return 0
    return int(match[1])


def take_apart(data: bytes) -> Sealed:
    """An inline-sealed file as body and seal. Blank lines below the seal are forgiven."""
    start, line = _last_line(data)
    seal = read_seal(line)
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
