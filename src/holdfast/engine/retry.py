"""When to try again: exponential back-off with jitter, and the wish of the exception."""

from __future__ import annotations

import random
from math import inf

from holdfast.executors.protocol import RemoteError

DELAY_MAX_S = 600.0
"""No delay of our own is longer; a server's `retry_after` is honoured whatever it says."""


def retry_delay_s(backoff: float, failures: int, error: BaseException | None, rng: random.Random) -> float:
    """Seconds before the next attempt, after `failures` (1 or more) of them.

    The exception's `retry_after` is a floor: trying sooner is known to be useless.
    """
    base = min(DELAY_MAX_S, backoff * 2.0 ** min(failures - 1, 30))
    delay = base * rng.uniform(0.5, 1.0)
    return max(delay, _wished(error))


def _wished(error: BaseException | None) -> float:
    try:
        seconds = float(getattr(error, "retry_after", None) or 0.0)
    except BaseException:  # other people's code, in the middle of a commit
        return 0.0
    return seconds if 0.0 < seconds < inf else 0.0


def may_retry(
    error: BaseException,
    *,
    failures: int,
    retries: int,
    retry_on: tuple[type[BaseException], ...],
    no_retry_on: tuple[type[BaseException], ...],
) -> bool:
    """Whether another attempt is due after this many failures, the last one being `error`."""
    if failures > retries or _is_one_of(error, no_retry_on):
        return False
    return not retry_on or _is_one_of(error, retry_on)


def _is_one_of(error: BaseException, classes: tuple[type[BaseException], ...]) -> bool:
    # An error from a worker process comes with the names of its classes instead of the classes.
    if type(error) is RemoteError:
        return any(cls.__name__ in error.kinds for cls in classes)
    # As `except` sees it: by its real bases, without asking it.
    return any(base is cls for base in type(error).__mro__ for cls in classes)
