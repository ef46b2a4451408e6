"""Which console fits where the output goes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TextIO

from holdfast.cli.console import Console, PlainConsole
from holdfast.cli.printing import can_be_redrawn


def make_console(attempts_of: Mapping[str, int], *, quiet: bool) -> Console:
    """The console that fits where stderr goes."""
    if quiet:
        return Console()
    if can_be_redrawn() and _takes_signs(sys.stderr):
        from holdfast.cli.live import LiveConsole

        return LiveConsole(attempts_of)
    return PlainConsole(attempts_of)


def _takes_signs(stream: TextIO) -> bool:
    """Whether our signs can be shown there: the letters in their place are wider, and would break the picture."""
    try:
        "⏳─…".encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
