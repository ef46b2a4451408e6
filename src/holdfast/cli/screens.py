"""Which console fits where the output goes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from holdfast.cli.console import Console, PlainConsole


def make_console(attempts_of: Mapping[str, int], *, quiet: bool) -> Console:
    """The console that fits where stderr goes."""
    if quiet:
        return Console()
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from holdfast.cli.live import LiveConsole

        return LiveConsole(attempts_of)
    return PlainConsole(attempts_of)
