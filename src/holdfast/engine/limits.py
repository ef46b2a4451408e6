"""Named limits: how many at once, and how many a minute. Pure: the time is given."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from holdfast.pipeline.spec import LimitSpec

MINUTE_S = 60.0


class Limit:
    """One named limit. Every start within any 60 seconds counts against `per_minute`."""

    __slots__ = ("running", "spec", "starts")

    def __init__(self, spec: LimitSpec) -> None:
        self.spec = spec
        self.running = 0
        self.starts: deque[float] = deque()

    def wait_s(self, now: float) -> float | None:
        """0.0 if one may start now, the seconds until one may, or None: when a running one ends."""
        if self.spec.concurrent is not None and self.running >= self.spec.concurrent:
            return None
        if self.spec.per_minute is None:
            return 0.0
        while self.starts and now - self.starts[0] >= MINUTE_S:
            self.starts.popleft()
        if len(self.starts) < self.spec.per_minute:
            return 0.0
        return MINUTE_S - (now - self.starts[0])

    def start(self, now: float) -> None:
        self.running += 1
        if self.spec.per_minute is not None:
            self.starts.append(now)

    def end(self) -> None:
        self.running -= 1


def make_limits(specs: Mapping[str, LimitSpec]) -> dict[str, Limit]:
    return {name: Limit(spec) for name, spec in specs.items()}
