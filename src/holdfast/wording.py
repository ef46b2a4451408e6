"""Words as people say them, and as UTF-8 can hold them. Pure."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

_OWN = os.path.dirname(__file__) + os.sep
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
_QUOTED_COMMAND = re.compile(r"'(holdfast [a-z][^']*)'")
_LAST_COMMAND = re.compile(r"(?:^|(?<=: ))holdfast [a-z](?!.*--help).*?(?=   \(|$)")
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def counted(number: int, one: str, many: str = "") -> str:
    """`1 line`, `2 lines`. Where more than the noun bends: `counted(n, "line is lost", "lines are lost")`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def of_all(names: Sequence[str], one: str, many: str) -> str:
    """`of_all(paths, "is there", "are there")`: `a.md is there`, `a.md, b.md are there`."""
    return f"{', '.join(names)} {one if len(names) == 1 else many}"


def span(seconds: float) -> str:
    """`0.4s`, `42s`, `3m 05s`, `2h 10m`."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {rest:02d}s"


def writable(text: str) -> str:
    """`text` with each lone surrogate spelt out: half a character, as `json.loads` gives it, fits into no file."""
    return str.encode(text, "utf-8", "backslashreplace").decode()  # also of a class with other ideas of that


def all_writable(value: Any) -> Any:
    """`value`, a document, with `writable` applied to every text in it."""
    if isinstance(value, str):
        return writable(value)
    if isinstance(value, dict):
        return {writable(key): all_writable(inner) for key, inner in value.items()}
    return [all_writable(inner) for inner in value] if isinstance(value, list | tuple) else value


def shortened(text: str, limit: int) -> str:
    """`text`, or as much of its beginning as fits: a step may note a whole book."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def some_of(names: Sequence[str], limit: int = 5) -> str:
    """`a, b, c and 4 more`."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def message_of(error: BaseException) -> str:
    """What an exception says; other people's classes may fail even at that."""
    try:
        return writable(str(error))
    except BaseException as failure:
        return f"its message cannot be had ({type(failure).__name__})"


def raised_at(error: BaseException) -> str:
    """` (book.py:15)`: the last line of people's own code on the way to an error, "" if it was never in any.

    The innermost line is seldom theirs: a file that is not there is noticed somewhere in `pathlib.py`.
    """
    outside = [one for one in _lines(error.__traceback__) if not one[0].startswith(_OWN)]
    theirs = [one for one in outside if _is_somebodys_own(one[0])] or outside
    return writable(f" ({os.path.basename(theirs[-1][0])}:{theirs[-1][1]})") if theirs else ""


def _lines(trace: TracebackType | None) -> Iterator[tuple[str, int]]:
    """File and line of each call, outermost first."""
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next


def _is_somebodys_own(filename: str) -> bool:
    """Whether this is neither Python's own nor an installed package."""
    if filename.startswith((_STANDARD_LIBRARY, "<")):
        return False
    return not any(folder in filename for folder in _INSTALLED)


def addressed(text: str, directory: str, run_id: str = "") -> str:
    """A command, or a sentence with commands, as they must be typed here: with --dir, and with --run where another
    would be meant.

    In a sentence a command stands in single quotes, or behind a colon, up to the end or to a remark (set off by
    three spaces). All that Holdfast suggests goes through here; what names a folder already is left as it is.
    """
    options = f" --run {run_id}" if run_id else ""
    options += f" --dir {shlex.quote(directory)}" if directory != "." else ""
    if not options or " --dir " in text:
        return text
    if not _QUOTED_COMMAND.search(text):
        return _LAST_COMMAND.sub(lambda found: found[0] + options, text)
    mark = "" if "'" in options else "'"  # no quotes within quotes
    return _QUOTED_COMMAND.sub(lambda found: f"{mark}{found[1]}{options}{mark}", text)
