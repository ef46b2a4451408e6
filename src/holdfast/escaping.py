"""Text from outside, made harmless for where it is shown: on a terminal, or in Markdown. Pure.

Titles, errors, notes and sections are written by models and by other people's code. Whatever they contain, it
may change nothing but its own place: no cursor moves, no reversed lines, no further table cell, no heading,
no HTML. What was harmless stays as it was, so that ordinary names read as they were written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

# Control sequences are dropped whole: an error with colours in it should read as its words.
_SEQUENCE = re.compile(
    r"""\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)      # an operating system command, up to its end
      | \x1b[PX^_][^\x1b]*\x1b\\               # other strings for the terminal
      | (?:\x1b\[|\x9b)[0-?]*[\ -/]*[@-~]      # cursor, colour, erase
      | \x1b[\ -/]*[0-~]                       # two-character sequences
    """,
    re.VERBOSE,
)
_NEWLINE = re.compile("\r\n|[\r\n\x0b\x0c\x85\u2028\u2029]")
# C0, DEL, C1; marks and overrides of writing direction; invisible tags; surrogates, which no file can hold.
_UNSAFE = re.compile(
    "[\x00-\x09\x0e-\x1f\x7f-\x84\x86-\x9f"
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_UNSAFE_IN_JSON = re.compile(f"{_UNSAFE.pattern}|[\x0b\x0c\x85\u2028\u2029]")
_HARMLESS_LINE = re.compile(r"[\w .,;:/()'\"%@=+?!—–-]*\Z")

_ANYWHERE = re.compile(r"[\\`*|\[\]<>~$]|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_MEANT = {entity: char for char, entity in _ENTITIES.items()} | {"&quot;": '"', "&#39;": "'", "&nbsp;": " "}
_WRITTEN = re.compile(r"\\([!-/:-@\[-`{-~])|&(?:lt|gt|amp|quot|nbsp|#39);")
_TICKS = re.compile("`+")
_TASK_ID = re.compile(r"((?<![\w`])[^\W\d]\w*\[[^\[\]`\s|]+\])")
# What begins a heading, a list or an underline when it stands first in a line.
_FIRST = re.compile(r"(?:#{1,6}|[-+=]+)(?=\s|\Z)|\d{1,9}(?=[.)](?:\s|\Z))")

_HEADING = re.compile(r"((?:[ \t>]|[-*+][ \t]|\d{1,9}[.)][ \t])*)(#{1,6})(?=[ \t]|\Z)")
_UNDERLINE = re.compile(r"([ \t>]*)((?:=+|-+)[ \t]*)\Z")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_FENCE_OPENS = re.compile(r"(`{3,})[^`]*\Z|(~{3,})")
_OWN_COMMENT = re.compile(r"<!--(?=\s*holdfast)")


def terminal(text: str, *, multiline: bool = False) -> str:
    """`text` without anything that a terminal would obey; on one line unless `multiline`."""
    if text.isprintable() and (text.isascii() or _UNSAFE.search(text) is None):
        return text
    text = _SEQUENCE.sub("", text)
    text = _NEWLINE.sub("\n" if multiline else " ", text)
    return _UNSAFE.sub(_visible, text)


def terminal_all(texts: Sequence[str]) -> Sequence[str]:
    """Each of these as `terminal` gives it. Nearly always they are harmless, and one look at all of them tells."""
    together = "".join(texts)
    return texts if terminal(together) == together else [terminal(text) for text in texts]


def markdown_cell(text: str) -> str:
    """`text` as the content of one table cell: one line, and nothing in it is markup."""
    line = terminal(text).strip()
    return line if _is_plain(line) else _ANYWHERE.sub(_escaped, line)


def markdown_cells(texts: Sequence[str]) -> Sequence[str]:
    """Each of these as `markdown_cell` gives it; as in `terminal_all`, one look may tell."""
    together = "".join(texts)
    is_plain = " " not in together and _is_plain(together) and terminal(together) == together
    return texts if is_plain else [markdown_cell(text) for text in texts]


def markdown_line(text: str) -> str:
    """`text` as one line of running Markdown, also where a line or a list item begins."""
    line = markdown_cell(text)
    first = _FIRST.match(line)
    if first is None:
        return line
    # A number is a list only with what follows it; the others are markup by themselves.
    at = first.end() if first[0].isdigit() else 0
    return f"{line[:at]}\\{line[at:]}"


def markdown_code(text: str) -> str:
    """`text` as a code span: for commands, task ids and paths."""
    line = terminal(text).strip()
    longest = max((len(run) for run in _TICKS.findall(line)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def markdown_words(text: str) -> str:
    """`text` as one line of running Markdown in which task ids, such as `draft[ch01]`, are code."""
    line = terminal(text).strip()
    if _is_plain(line):
        return line
    pieces = _TASK_ID.split(line)  # every second piece is a task id
    return "".join(
        markdown_code(piece) if n % 2 else _ANYWHERE.sub(_escaped, piece) for n, piece in enumerate(pieces)
    )


def markdown_text(written: str) -> str:
    """What a reader of a cell or line sees: the escapes of `markdown_cell` undone."""
    if "\\" not in written and "&" not in written:
        return written.strip()
    return _WRITTEN.sub(lambda match: match[1] or _MEANT[match[0]], written).strip()


def code_text(written: str) -> tuple[str, str] | None:
    """The content of the code span that `written` begins with, as `markdown_code` took it, and what follows it."""
    runs = _TICKS.finditer(written)
    opening = next(runs, None)
    if opening is None or opening.start():
        return None
    closing = next((run for run in runs if len(run[0]) == len(opening[0])), None)
    if closing is None:
        return None
    inside = written[opening.end() : closing.start()]
    padded = inside[:1] == " " == inside[-1:]
    return inside[1:-1] if padded else inside, written[closing.end() :]


def exact_json(value: Any) -> str:
    """`value` as JSON on one line that comes back exactly: nothing in it is obeyed, or begins a comment."""
    return harmless_json(msgspec.json.encode(value).decode().replace("<!--", "\\u003c!--"))


def harmless_json(text: str) -> str:
    """The same JSON, with an escape for each character that a terminal or a reader would obey."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE_IN_JSON.sub(_json_escape, text)


def markdown_block(text: str) -> str:
    """`text`, which is Markdown itself, so that it stays within a section whose heading is of the second level.

    Its headings become smaller than that heading, HTML is shown and not obeyed, and a code fence left open is
    closed. Only fences at the margin count: an indented one may belong to a list, and where that ends is not
    for us to guess, so text inside it is treated like any other.
    """
    lines: list[str] = []
    fence = ""
    for line in terminal(text, multiline=True).strip("\n").split("\n"):
        if fence:
            lines.append(_OWN_COMMENT.sub("< !--", line))
            fence = "" if _closes(line, fence) else fence
        else:
            opening = _FENCE_OPENS.match(line)
            fence = (opening[1] or opening[2]) if opening else ""
            lines.append(_TAG.sub("&lt;", line) if fence else _tamed(line, lines))
    if fence:
        lines.append(fence)
    return "\n".join(lines)


def _is_plain(line: str) -> bool:
    """Whether nothing in it needs a second look; an underscore does, unless it stands inside a word."""
    return _HARMLESS_LINE.match(line) is not None and "_" not in line


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))


def _visible(match: re.Match[str]) -> str:
    """A character that must not be obeyed, as its number; a tab is only a space."""
    code = ord(match[0])
    if code == 9:
        return " "
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped(match: re.Match[str]) -> str:
    return _ENTITIES.get(match[0]) or "\\" + match[0]


def _closes(line: str, fence: str) -> bool:
    bare = line.rstrip(" \t")
    marks = bare.lstrip(" ")
    return len(bare) - len(marks) < 4 and len(marks) >= len(fence) and not marks.strip(fence[0])


def _tamed(line: str, before: list[str]) -> str:
    """One line outside code: headings lowered, underlines that would make one escaped, HTML shown."""
    heading = _HEADING.match(line)
    if heading:
        level = min(6, len(heading[2]) + 2)
        line = heading[1] + "#" * level + line[heading.end() :]
    elif before and before[-1].strip():
        underline = _UNDERLINE.match(line)
        if underline:
            line = underline[1] + "\\" + underline[2]
    return _TAG.sub("&lt;", line)
