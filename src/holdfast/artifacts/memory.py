"""The format of a memory file: one sealed section an item, and whatever a person wrote between them. Pure.

A section is an opening line, its text, and a seal that covers exactly that text:

    <!-- holdfast section=glossary[ch01] bytes=52 -->
    ...52 bytes...
    <!-- GLOSSARY_COMPLETE holdfast=1 task=glossary[ch01] run=ID round=0 in=HEX sha256=HEX cost=0 tokens=0 -->

Rule 1. The hash decides. Opening line and seal must name one task, and the bytes between must be those the seal
        says; then nothing inside counts as anything but text, whatever it looks like.
Rule 2. What is not a section is a person's, and stays between the sections it stands between.
Rule 3. A section is never touched for the sake of another one.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter

import msgspec

from holdfast import seals
from holdfast.seals import Seal
from holdfast.values import digest, is_text

INTACT = "intact"
EDITED = "edited"  # readable text between its own opening line and its own seal, but another than was sealed
BROKEN = "broken"

_OPENING = re.compile(rb"^<!-- holdfast section=(\S+) bytes=(\d{1,15}) -->", re.MULTILINE)
_ANYWHERE = re.compile(_OPENING.pattern.removeprefix(b"^"))  # a cut may have joined it to what stood above it
_SEAL_LINE = re.compile(rb"^[ \t]*<!-- (?=[^\n]*holdfast=\d)[^\n]* -->[ \t\r]*$", re.MULTILINE)
_OPENING_WORDS = (b"section=", b"bytes=", b"<!-- holdfast")
_LINE_END = re.compile(rb"[ \t\r]*\n")
_read_seal = lru_cache(maxsize=4096)(seals.read_seal)  # a file that grows is read again with every batch
_STARTS_TRIED_MAX = 200
"""Where the text of a section begins whose opening line is gone, is tried line by line, so many times."""


class Block(msgspec.Struct, frozen=True):
    """One section as it was found: `data[start:end]` is all of it, opening line and seal included."""

    task: str
    kind: str
    start: int
    end: int
    body: bytes = b""
    seal: Seal | None = None
    frayed: bool = False  # whole, but its opening line is not as it was written
    alias: str = ""  # of a broken one: the task that its seal names, if that is another

    @property
    def sha256(self) -> str:
        """Of the text that is there now."""
        return self.seal.sha256 if self.kind == INTACT and self.seal is not None else digest(self.body)


class Book(msgspec.Struct, frozen=True):
    """A memory file taken apart; what lies outside the blocks is a person's."""

    data: bytes
    by_task: dict[str, Block]
    aliases: dict[str, Block]  # by the other name of a broken one

    @property
    def blocks(self) -> list[Block]:
        """In the order of the file; at most one of each task."""
        return sorted(self.by_task.values(), key=lambda block: block.start)

    @property
    def is_garbage(self) -> bool:
        """Whether nothing in it is a section, and nothing a person's words: zeros, or another kind of file."""
        return not self.by_task and not is_text(self.data)

    @property
    def is_artifact_of(self) -> str:
        """The task whose file stands here instead, from its first byte to its seal; "" if none does."""
        block = next(iter(self.by_task.values())) if len(self.by_task) == 1 else None
        if block is None or not (block.kind == INTACT and block.frayed):
            return ""
        is_all = self.data.startswith(block.body + b"<!-- ") and not self.data[block.end :].strip()
        return block.task if is_all else ""

    def find(self, names: Iterable[str]) -> Block | None:
        """The block of the task with these names; one of which little is left, if there is no better."""
        for table in (self.by_task, self.aliases):
            for name in names:
                if name in table:
                    return table[name]
        return None


class Section(msgspec.Struct, frozen=True):
    """A section as it shall stand in the file."""

    names: tuple[str, ...]  # the task, and what it was called before
    seal: Seal
    body: bytes | None  # None: nobody has its text any more but, perhaps, the file

    @property
    def task(self) -> str:
        return self.names[0]


class Rewriting(msgspec.Struct, frozen=True):
    """The bytes the file shall have, and what that does to sections that were, or were not, in it."""

    data: bytes
    new: tuple[str, ...] = ()  # tasks whose section was not there
    replaced: dict[str, Block] = {}  # task -> what stood in its place


def write_section(section: Section) -> bytes:
    """The bytes of a whole section."""
    assert section.body is not None
    opening = f"<!-- holdfast section={section.task} bytes={len(section.body)} -->\n".encode()
    return opening + section.body + seals.write_seal(section.seal)


# --- reading ---------------------------------------------------------------------------------------------


def take_apart(data: bytes) -> Book:
    """The sections of a memory file: whole ones first, then what is left of others between them."""
    found: dict[str, Block] = {}
    position = 0
    while (opening := _ANYWHERE.search(data, position)) is not None:
        block = _measured(data, opening)
        position = block.end if block is not None else opening.end()
        if block is not None:
            found.setdefault(block.task, block)  # a second one is text that somebody pasted
    for start, end in _gaps(list(found.values()), len(data)):
        for block in _remains(data, start, end):
            found.setdefault(block.task, block)
    return Book(data, found, {block.alias: block for block in found.values() if block.alias})


def format_if_newer(book: Book) -> int:
    """The format of a section's seal that a newer Holdfast wrote; else 0. What a whole section quotes is text."""
    whole = [block for block in book.blocks if block.kind == INTACT]
    for start, end in _gaps(whole, len(book.data)):
        for line in _SEAL_LINE.finditer(book.data, start, end):
            if number := seals.format_if_newer(line[0]):
                return number
    return 0


def _measured(data: bytes, opening: re.Match[bytes]) -> Block | None:
    """The block that begins here, if it ends where its opening line says and is proved by its seal."""
    start = _text_start(data, opening)
    end = start + int(opening[2])
    seal = _seal_at(data, end)
    if seal is None or seal.task != _name(opening) or digest(data[start:end]) != seal.sha256:
        return None
    return Block(seal.task, INTACT, opening.start(), _line_end(data, end), data[start:end], seal)


def _gaps(blocks: Sequence[Block], size: int) -> Iterator[tuple[int, int]]:
    position = 0
    for block in blocks:
        yield position, block.start
        position = block.end
    yield position, size


def _remains(data: bytes, start: int, end: int) -> Iterator[Block]:
    """What is left of sections between two whole ones."""
    position, sealed = start, _seals(data, start, end)
    while (opening := _OPENING.search(data, position, end)) is not None:
        if opening.start() > position:
            yield from _unopened(data, position, opening.start())
        block = _opened(data, opening, end, sealed)
        yield block
        position = block.end
    yield from _unopened(data, position, end)


def _seals(data: bytes, start: int, end: int) -> dict[str, list[tuple[int, Seal]]]:
    """The seals of each task in a stretch, and where they stand, in their order."""
    found: dict[str, list[tuple[int, Seal]]] = {}
    for line in _SEAL_LINE.finditer(data, start, end):
        seal = _read_seal(line[0])
        if seal is not None:
            found.setdefault(seal.task, []).append((line.start(), seal))
    return found


def _opened(
    data: bytes, opening: re.Match[bytes], limit: int, sealed: Mapping[str, Sequence[tuple[int, Seal]]]
) -> Block:
    """A block that has its opening line, but is not whole as it stands: up to the next seal of its task."""
    task, start = _name(opening), _text_start(data, opening)
    own = sealed.get(task, ())
    following = bisect_left(own, start, key=itemgetter(0))
    if following == len(own):
        end, alias = _guessed_end(data, opening, start, limit)
        return Block(task, BROKEN, opening.start(), end, alias=alias)
    position, seal = own[following]
    body, end = data[start:position], _line_end(data, position)
    if digest(body) == seal.sha256:
        return Block(task, INTACT, opening.start(), end, body, seal, frayed=True)
    return Block(task, EDITED if is_text(body) else BROKEN, opening.start(), end, body, seal)


def _guessed_end(data: bytes, opening: re.Match[bytes], start: int, limit: int) -> tuple[int, str]:
    """Where a block without a seal of its own ended, and whose seal stands there instead."""
    due = start + int(opening[2])
    line = data[due : _line_end(data, due)]
    if due < limit and (line.startswith(b"<!--") or b"holdfast=" in line):
        seal = _read_seal(line)
        return min(limit, due + len(line)), seal.task if seal is not None else ""
    if due < limit and data[due - 1 : due] == b"\n" and is_text(data[start:due]):
        return due, ""  # it is as long as it was, and only its seal was taken away
    following = _OPENING.search(data, opening.end(), limit)
    return following.start() if following is not None else limit, ""


def _unopened(data: bytes, start: int, end: int) -> Iterator[Block]:
    """Texts above a seal whose opening line cannot be read any more: whole ones, and such as are no text."""
    position = start
    for line in _SEAL_LINE.finditer(data, start, end):
        seal = _read_seal(line[0])
        if seal is None:
            continue
        begins = _proved_start(data, position, line.start(), seal.sha256)
        bad = _bad_line(data, position, line.start()) if begins is None else None
        close = _line_end(data, line.start())
        if bad is not None:
            yield Block(seal.task, BROKEN, bad, close, seal=seal)
        elif begins is not None:
            opens = _line_before(data, begins, position)
            yield Block(seal.task, INTACT, opens, close, data[begins : line.start()], seal, frayed=True)
        position = close


def _bad_line(data: bytes, start: int, end: int) -> int | None:
    """The first line that is no text: nobody wrote that, so a section that is damaged begins there, or before."""
    while start < end:
        following = min(end, _line_end(data, start))
        if not is_text(data[start:following]):
            return start
        start = following
    return None


def _proved_start(data: bytes, start: int, end: int, sha256: str) -> int | None:
    position = start
    for _ in range(_STARTS_TRIED_MAX):
        if digest(data[position:end]) == sha256:
            return position
        position = _line_end(data, position)
        if position >= end:
            break
    return end if digest(b"") == sha256 else None


def _line_before(data: bytes, position: int, least: int) -> int:
    """The start of the line above, if that looks like what an opening line may have become.

    A comment alone does not: it may be a person's.
    """
    start = max(least, data.rfind(b"\n", least, max(least, position - 1)) + 1)
    line = data[start:position]
    return start if any(word in line for word in _OPENING_WORDS) else position


def _text_start(data: bytes, opening: re.Match[bytes]) -> int:
    line_end = _LINE_END.match(data, opening.end())
    return line_end.end() if line_end is not None else min(opening.end() + 1, len(data))


def _name(opening: re.Match[bytes]) -> str:
    return opening[1].decode(errors="replace")


def _seal_at(data: bytes, position: int) -> Seal | None:
    return _read_seal(data[position : _line_end(data, position)]) if position < len(data) else None


def _line_end(data: bytes, position: int) -> int:
    """The position behind the line that `position` is in."""
    return data.find(b"\n", position) + 1 or len(data)


# --- writing ---------------------------------------------------------------------------------------------


def rewrite(book: Book, wanted: Sequence[Section], replace: frozenset[str] = frozenset()) -> Rewriting:
    """The file with these sections in it, in their order.

    A section that is whole stays as it is, and so does an edited one, unless `replace` names it. A broken one is
    put back in its place; a missing one goes before those that come after it, or to the end.
    """
    pieces: list[tuple[int, int, bytes]] = []  # from, to, and what stands there then
    missing: list[tuple[int, Section]] = []
    replaced: dict[str, Block] = {}
    ahead = len(book.data)
    for section in reversed(wanted):
        block = book.find(section.names)
        if block is None:
            if section.body is not None:
                missing.append((ahead, section))
            continue
        ahead = min(ahead, block.start)
        text = _replacement(block, section, replace)
        if text is not None:
            pieces.append((block.start, block.end, text))
            if not (block.kind == INTACT and block.sha256 == section.seal.sha256):
                replaced[section.task] = block
    missing.reverse()
    data = _assembled(book.data, pieces, missing)
    return Rewriting(data, tuple(section.task for _, section in missing), replaced)


def _replacement(block: Block, section: Section, replace: frozenset[str]) -> bytes | None:
    """What shall stand in the place of a block; None: what stands there."""
    if block.kind == INTACT and block.sha256 == section.seal.sha256:
        return _mended(block) if block.frayed else None
    if section.body is None or not (block.kind == BROKEN or section.task in replace):
        return None
    return write_section(section)


def _mended(block: Block) -> bytes:
    assert block.seal is not None
    return write_section(Section((block.task,), block.seal, block.body))


def _assembled(data: bytes, pieces: list[tuple[int, int, bytes]], missing: list[tuple[int, Section]]) -> bytes:
    inserted = [(at, at, write_section(section) + b"\n") for at, section in missing if at < len(data)]
    out: list[bytes] = []
    position = 0
    for start, end, text in sorted([*pieces, *inserted], key=lambda piece: piece[:2]):
        out += [data[position:start], text]
        position = end
    out.append(data[position:])
    whole = b"".join(out)
    for at, section in missing:
        if at >= len(data):
            text = write_section(section)
            whole = _without_beginning_of(text, whole)
            whole += _blank_line(whole) + text
    return whole


def _without_beginning_of(text: bytes, above: bytes) -> bytes:
    """What stands above a section, but for the part of its own opening line that a cut has left at the end."""
    line = above.rfind(b"\n") + 1
    is_torn = above.startswith(b"<!--", line) and text.startswith(above[line:])
    return above[:line] if is_torn else above


def _blank_line(above: bytes) -> bytes:
    """What sets a new section off from what stands above it."""
    if not above or above.endswith(b"\n\n"):
        return b""
    return b"\n" if above.endswith(b"\n") else b"\n\n"
