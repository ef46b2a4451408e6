"""Which of many places a crash test tries: a sample, drawn with a printed seed; or all.

HOLDFAST_CRASH_POINTS=all tries every one, as `make proof` does. HOLDFAST_CRASH_SEED=N repeats a sample.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator, Sequence

ALL = os.environ.get("HOLDFAST_CRASH_POINTS") == "all"
SEED = int(os.environ.get("HOLDFAST_CRASH_SEED") or random.SystemRandom().randrange(10**6))


def sampled(places: Sequence[int], count: int, salt: str) -> list[int]:
    """So many of the places, in their order; the salt makes samples differ between tests."""
    if ALL:
        return list(places)
    return sorted(dice(salt).sample(places, min(count, len(places))))


def every(step: int, salt: str) -> Iterator[int]:
    """1, 2, 3 and so on, for a test that sees when it is past the last place; or one in so many of them."""
    return itertools.count(1) if ALL else itertools.count(dice(salt).randint(1, step), step)


def dice(salt: str) -> random.Random:
    """Dice that fall the same again with the same seed, which is printed."""
    print(f"HOLDFAST_CRASH_SEED={SEED}")
    return random.Random(f"{SEED} {salt}")
