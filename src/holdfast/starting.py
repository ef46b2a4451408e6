"""Ctrl-C while the command is still being loaded: one line and status 130, as later on.

Loading takes a while on a cold disk, and nothing of the command line is there yet that could handle a signal. A
program that uses Holdfast as a library is left alone: what Ctrl-C does there is for it to say.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from types import TracebackType

from holdfast.errors import EXIT_INTERRUPTED


def is_command() -> bool:
    """Whether this process is the `holdfast` command, and no program that uses the library."""
    words = getattr(sys, "argv", None) or [""]
    is_module = words[0] == "-m" and sys.orig_argv[1:3] == ["-m", "holdfast"]
    return is_module or os.path.basename(words[0]) == "holdfast"


def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The hook for an exception that nobody handles: an interrupt ends the process here, in one line."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    with suppress(OSError):
        os.write(2, b"Interrupted.\n")
    os._exit(EXIT_INTERRUPTED)  # nothing has been done that could be lost
