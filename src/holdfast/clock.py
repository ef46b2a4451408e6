"""The time, through one door, so that tests own it. Time decorates; sequence numbers decide."""

from __future__ import annotations

import time
from datetime import datetime
from functools import lru_cache


def now() -> float:
    """Seconds since the epoch, to the millisecond that files keep. May jump; never used to order anything."""
    return int(time.time() * 1000) / 1000


monotonic = time.monotonic
"""Seconds that only go forward within this process: for durations, timeouts and delays."""

sleep = time.sleep
"""Let some seconds pass."""


@lru_cache(maxsize=128)
def iso(seconds: float) -> str:
    """`2026-01-09T14:30:22.123Z`, as every file of Holdfast writes a time; remembered: each view asks again."""
    whole, millis = divmod(round(seconds * 1000), 1000)
    return f"{_iso_second(whole)}.{millis:03d}Z"


_last_second: tuple[int, str] = (-1, "")


def _iso_second(second: int) -> str:
    """The part up to the second, remembered: events come many to a second."""
    global _last_second
    known, text = _last_second  # one look: another thread may be writing another time
    if known != second:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        _last_second = (second, text)
    return text


def parse_iso(text: str) -> float:
    """The inverse of `iso`; ValueError if it is not a time."""
    return datetime.fromisoformat(text).timestamp()
