"""Children that a step forks: signals mean to them what they meant before a run listened for them.

`multiprocessing` with fork copies our handlers into the child, where they stop nothing: its `terminate()` would be
ignored, and whoever waits for the child would wait for ever.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any

_meant: dict[signal.Signals, Any] = {}


def have_children_take(meant: Mapping[signal.Signals, Any]) -> None:
    """Give these handlers to every child that is forked from now on; none gives it ours, as they are."""
    _meant.clear()
    _meant.update(meant)


def _in_child() -> None:
    try:
        for number, handler in _meant.items():
            signal.signal(number, handler)
        if _meant:
            signal.set_wakeup_fd(-1)  # its signals are not to be written into our socket
    except ValueError:
        pass  # not forked from a thread that counts as the child's main one: nothing can be done


os.register_at_fork(after_in_child=_in_child)
