"""A pipeline with files that kills its own process: after so many steps, or at its first one, noting the time."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time

import workloads
from holdfast import Pipeline

KILL_AFTER = int(os.environ.get("BENCH_KILL_AFTER", "0"))
FIRST_BODY_FILE = os.environ.get("BENCH_FIRST_BODY_FILE", "")
ITEMS = int(os.environ.get("BENCH_ITEMS", "1"))

_bodies = itertools.count()
_dying = threading.Lock()


def _body(number: int, item: str, **_: object) -> str:
    if FIRST_BODY_FILE:
        _note_time_and_die()
    if next(_bodies) >= KILL_AFTER:
        os.kill(os.getpid(), signal.SIGKILL)
    return workloads.text(item, number)


def _note_time_and_die() -> None:
    now = time.time_ns()
    with _dying:  # never released: another body that began as early must not write over the time
        with open(FIRST_BODY_FILE, "w", encoding="ascii") as file:
            file.write(str(now))
        os.kill(os.getpid(), signal.SIGKILL)


pipe: Pipeline = workloads.dependent_steps("killed", ITEMS, _body, files=True)
