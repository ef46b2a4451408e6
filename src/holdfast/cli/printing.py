"""Everything that is printed goes through here: made harmless for a terminal, and unhurt by a closed pipe.

A closed pipe is somebody who has read enough, and a closed terminal has nobody at it: the rest goes nowhere.
Another error of stdout is an UnprintableError, told once on stderr; one of stderr can be told to nobody. A stream
that failed is not written to again.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from holdfast import clock
from holdfast.errors import UnprintableError
from holdfast.escaping import harmless_json, terminal
from holdfast.streams import Heedless, is_read, silence, unwrapped
from holdfast.wording import addressed, all_writable

if TYPE_CHECKING:
    from holdfast.project import Project

T = TypeVar("T")

_CELL_MAX = 40
_COLUMNS = ("run", "pipeline", "status", "done", "cost")


_IN_PLAIN_LETTERS = "holdfast-plain"
_SIGNS = {"✅": "ok", "⏳": "..", "❌": "XX", "⚠": "!!", "\ufe0f": "", "—": "-"}  # each as wide as in a table
_SIGNS |= {"✓": "ok", "✗": "XX", "↩": "<-", "↻": "->", "»": ">", "•": "*"}


def _in_plain_letters(error: UnicodeError) -> tuple[str | bytes, int]:
    """Our own signs where a stream cannot take them: readable, as their numbers would not be."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    sign = error.object[error.start]
    if sign not in _SIGNS:
        one = UnicodeEncodeError(error.encoding, error.object, error.start, error.start + 1, error.reason)
        return codecs.backslashreplace_errors(one)
    return _SIGNS[sign], error.start + 1


codecs.register_error(_IN_PLAIN_LETTERS, _in_plain_letters)


def say(text: str = "", *, err: bool = False, multiline: bool = False) -> None:
    """Print a line, on stderr if `err`, and let it be seen at once."""
    stream = sys.stderr if err else sys.stdout
    _write(stream, terminal(text, multiline=multiline) + "\n", at_once=err or stream.isatty())


def say_all(lines: Iterable[str], *, err: bool = False) -> None:
    for line in lines:
        say(line, err=err)


def say_pages_behind(project: Project, run_id: str | None, directory: str) -> None:
    """Say on stderr which pages do not tell the newest of a run, and who writes them."""
    pages = project.pages_behind(run_id)
    if pages:
        words = f"{' and '.join(pages)} {'is' if len(pages) == 1 else 'are'} behind the record"
        say(f"{words}; written anew by: {addressed('holdfast status', directory)}", err=True)


def first_of(things: Sequence[T], limit: int, shown: Callable[[T], str], *, rest: str) -> Iterator[str]:
    """A line for each of the first, and in place of the others the words `rest` with their number."""
    yield from map(shown, things[:limit])
    if len(things) > limit:
        yield rest.format(len(things) - limit)


def print_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    import msgspec

    try:
        data = msgspec.json.encode(document)
    except UnicodeEncodeError:  # the name of a file, or a word of the command line, that is no UTF-8
        data = msgspec.json.encode(all_writable(msgspec.to_builtins(document)))
    write_out(harmless_json(msgspec.json.format(data, indent=2).decode()) + "\n")


def print_result(document: Any, lines: Iterable[str], *, as_json: bool) -> None:
    """Print what a command found: the document itself with --json, else the lines about it."""
    if as_json:
        print_json(document)
    else:
        say_all(lines)


def write_out(text: str) -> None:
    """Write text that is harmless already."""
    _write(sys.stdout, text, at_once=False)


def flush() -> None:
    """Write out what is buffered."""
    for stream in (sys.stderr, sys.stdout):
        _write(stream, "", at_once=True)


def _write(stream: TextIO, text: str, *, at_once: bool) -> None:
    out = unwrapped(stream)
    try:
        with stream.lock if isinstance(stream, Heedless) else nullcontext():
            out.write(text)
            if at_once:
                out.flush()
    except OSError as error:
        is_gone = isinstance(error, BrokenPipeError) or not is_read(out)
        silence(out)
        if stream is sys.stdout and not is_gone:
            raise UnprintableError.from_os(error, "write to stdout") from error


def escape_what_cannot_be_encoded() -> None:
    """In a locale without ✓, print letters instead of failing; of other people's words, their numbers."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_IN_PLAIN_LETTERS)


def can_be_redrawn() -> bool:
    """Whether stderr is a terminal that can move its cursor back."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def tag_heading(name: str, params: Collection[str]) -> str:
    """What a tag is shown as: if a parameter, or a column of `list`, has the same name, it says that it is one."""
    return f"{name} (tag)" if name in params or name in _COLUMNS else name


def money(usd: float) -> str:
    """`$0.0042`, `$0.123`, `$1,234.50`: more digits where they matter."""
    if usd and abs(usd) < 0.01:
        return f"${usd:.4f}"
    return f"${usd:.3f}" if 0 < abs(usd) < 1 else f"${usd:,.2f}"


def size(count: int) -> str:
    """`512 B`, `1.5 MB`."""
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def hour(at: float) -> str:
    """The local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def day_and_hour(iso: str) -> str:
    """A recorded time as people here write it."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(clock.parse_iso(iso)))
    except (ValueError, OverflowError, OSError):
        return iso


def plain(value: Any) -> str:
    """A parameter or tag as text: strings as they are, all else as JSON."""
    if isinstance(value, str):
        return value
    import msgspec

    return msgspec.json.encode(value).decode()


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned lines; long cells are cut."""
    from holdfast.views.matrix import clipped, display_width

    shown = [[clipped(terminal(cell), _CELL_MAX) for cell in row] for row in (headings, *rows)]
    widths = [max(display_width(row[n]) for row in shown) for n in range(len(headings))]
    return [
        "  ".join(
            cell + " " * (width - display_width(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in shown
    ]
