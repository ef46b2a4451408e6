"""Reads the structure of Markdown that anybody may have written: headings, list items and tables. Pure.

Only what stands at the margin counts: code, fenced or indented, comments and quotes are text. One pass over the
lines without recursion or backtracking: any text can be read, in time that grows with its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

_FENCE = re.compile(r" {0,3}(`{3,}[^`]*|~{3,}.*)\Z")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?\Z")
_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])[ \t]+(.*)\Z")
_DELIMITER = re.compile(r"[ \t]*:?-+:?[ \t]*\Z")
_PIPE = re.compile(r"\\.|\|", re.DOTALL)


class Heading(msgspec.Struct, frozen=True):
    level: int
    text: str


class Item(msgspec.Struct, frozen=True):
    """One item of a list, without its bullet or number."""

    text: str


class TableHead(msgspec.Struct, frozen=True):
    """The first row of a table; its other rows follow."""

    cells: list[str]


class TableRow(msgspec.Struct, frozen=True):
    line: str

    @property
    def cells(self) -> list[str]:
        return cells(self.line)


Block = Heading | Item | TableHead | TableRow


def blocks(text: str) -> Iterator[Block]:
    """Headings, list items and rows of tables, in their order, as they are written."""
    lines = list(_margin_lines(text))
    in_table = False
    skip = False
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if skip:  # the line of dashes below a head
            skip = False
        elif in_table and _may_be_row(line):
            yield TableRow(line)
        elif _may_be_row(line) and is_delimiter(below):
            in_table = skip = True
            yield TableHead(cells(line))
        else:
            in_table = False
            yield from _block(line)


def _may_be_row(line: str) -> bool:
    if line[:1] == "|":
        return True
    return "|" in line and (line.lstrip(" ").startswith("|") or not (_ITEM.match(line) or _HEADING.match(line)))


def cells(line: str) -> list[str]:
    """The cells of a row, stripped and still escaped; a pipe behind a backslash is text."""
    parts = line.split("|") if "\\" not in line else _split_escaped(line)
    parts = [part.strip() for part in parts]
    if parts and not parts[0]:
        del parts[0]
    if parts and not parts[-1]:
        del parts[-1]
    return parts


def is_delimiter(line: str) -> bool:
    """Whether this is the line of dashes that makes the line above it the head of a table."""
    return "-" in line and "|" in line and all(_DELIMITER.match(cell) for cell in cells(line))


def _split_escaped(line: str) -> list[str]:
    parts, start = [], 0
    for found in _PIPE.finditer(line):
        if found[0] == "|":
            parts.append(line[start : found.start()])
            start = found.end()
    return [*parts, line[start:]]


def _block(line: str) -> Iterator[Block]:
    heading = _HEADING.match(line)
    if heading is not None:
        yield Heading(len(heading[1]), (heading[2] or "").strip())
        return
    item = _ITEM.match(line)
    if item is not None:
        yield Item(item[1].strip())


def _margin_lines(text: str) -> Iterator[str]:
    """The lines that are no code and no comment; for each of those an empty one, which ends a table."""
    fence, in_comment = "", False
    for line in text.replace("\r\n", "\n").split("\n"):
        if line[:1] == "|" and not (in_comment or fence or "<!--" in line):
            yield line  # nearly all of a long page
        elif in_comment:
            in_comment = "-->" not in line
            yield ""
        elif fence:
            fence = "" if _closes(line, fence) else fence
            yield ""
        elif line.startswith(("    ", "\t")):
            yield ""
        elif opening := _FENCE.match(line):
            fence = opening[1]
            yield ""
        elif "<!--" in line:
            shown, in_comment = _without_comments(line)
            yield shown
        else:
            yield line


def _without_comments(line: str) -> tuple[str, bool]:
    """What a reader sees of the line, and whether a comment goes on below it."""
    shown, at = [], 0
    while (start := line.find("<!--", at)) >= 0:
        shown.append(line[at:start])
        end = line.find("-->", start + 4)
        if end < 0:
            return "".join(shown), True
        at = end + 3
    return "".join(shown) + line[at:], False


def _closes(line: str, fence: str) -> bool:
    mark = fence[0]
    wanted = len(fence) - len(fence.lstrip(mark))
    bare = line.strip(" \t")
    return len(line) - len(line.lstrip(" ")) < 4 and len(bare) >= wanted and not bare.strip(mark)
