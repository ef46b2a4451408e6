"""The standard streams of a process: closed ones get a place, and what steps print there fails no step.

A descriptor that was closed before we began is the next one that an opened file gets: the journal could become
what a step's program takes for its stdout. So the three are taken before anything else is opened.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO

_STANDARD = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
_GONE = (errno.EPIPE, errno.EIO)


def give_closed_streams_a_place() -> None:
    """A stream that was closed before we began (`>&-`) is None to Python: it leads nowhere, for children too."""
    for number, (name, mode) in enumerate(_STANDARD):
        if getattr(sys, name) is None:
            place = _open_nowhere(number)
            setattr(sys, name, open(place, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - for good


def _open_nowhere(number: int) -> int:
    """The null device as this descriptor, or as another one if something else has it already."""
    place = os.open(os.devnull, os.O_RDWR)
    if place > number and not _is_open(number):
        os.dup2(place, number)
        os.close(place)
        return number
    os.set_inheritable(place, place == number)
    return place


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def silence(stream: TextIO) -> None:
    """Nobody reads it any more: send the rest to nowhere, also the interpreter's own last flush."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass  # a stream without descriptor: a test's


class Heedless:
    """A stream for what steps print: that it cannot be written is no failure of theirs.

    `failed` is why, unless its reader, or its terminal, has only gone.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failed: OSError | None = None

    def write(self, text: str) -> int:
        self._heedless(lambda: self._stream.write(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        self._heedless(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _heedless(self, call: Callable[[], object]) -> None:
        try:
            call()
        except OSError as error:
            if error.errno not in _GONE:
                self.failed = self.failed or error
            silence(self._stream)
