"""Ctrl-C while the command is still being loaded: one line and status 130, as later on.

Loading takes a while on a cold disk, and nothing of the command line is there yet that could handle a signal. A
program that uses Holdfast as a library is left alone: what Ctrl-C does there is for it to say.

The process ends within the handler. KeyboardInterrupt would be raised wherever the loading has got to, and not all
that is loaded lets it through: msgspec forgets one that stops its import of datetime, and crashes a moment later.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from types import FrameType, TracebackType
from typing import NoReturn

from holdfast.errors import EXIT_INTERRUPTED
from holdfast.signals import to_be_heard


def is_command() -> bool:
    """Whether this process is the `holdfast` command, and no program that uses the library.

    Nor a process that a step has spawned: it has the arguments of the command, but was not started with them.
    """
    words = getattr(sys, "argv", None) or [""]
    is_module = words[0] == "-m" and sys.orig_argv[1:3] == ["-m", "holdfast"]
    return is_module or (os.path.basename(words[0]) == "holdfast" and words[0] in sys.orig_argv)


def hear() -> None:
    """From here on a signal ends the process in one line, until the command line is there to handle it."""
    sys.excepthook = tell
    for number in to_be_heard():
        signal.signal(number, _end)


def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The hook for an exception that nobody handles: an interrupt ends the process here, in one line."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    _end()


def _end(number: int = signal.SIGINT, frame: FrameType | None = None) -> NoReturn:
    with suppress(OSError):
        os.write(2, b"Interrupted.\n")
    os._exit(EXIT_INTERRUPTED)  # nothing has been done that could be lost
