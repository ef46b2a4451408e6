"""The signals that ask a process to end."""

from __future__ import annotations

import signal

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def to_be_heard() -> list[signal.Signals]:
    """Those of them that are not ignored: nohup, or a shell that runs us in the background, said so.

    Nor those that a host written in C handles itself: Python could not give them back.
    """
    return [number for number in ENDING if signal.getsignal(number) not in (signal.SIG_IGN, None)]
