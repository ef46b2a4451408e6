"""One seed: draw a pipeline, let things happen to it, finish it, and hold it to what is promised."""

from __future__ import annotations

import shutil
import traceback
from pathlib import Path

from . import oracles
from .histories import happen
from .world import BrokenError, made


def soak(
    seed: int,
    folder: Path,
    *,
    skip: frozenset[int] = frozenset(),
    often: frozenset[str] = frozenset(),
) -> None:
    """Raises BrokenError, with the whole history, if a promise was not kept."""
    shutil.rmtree(folder, ignore_errors=True)
    world, undisturbed = made(folder / "disturbed", seed), made(folder / "undisturbed", seed)
    try:
        happen(world, skip=skip, often=often)
        oracles.finish(world)
        oracles.check_end(world, undisturbed)
    except BrokenError as broken:
        raise BrokenError(f"seed {seed}: {broken}\n" + "\n".join(world.told)) from None


def reduced(seed: int, folder: Path, often: frozenset[str], actions: int = 17) -> tuple[frozenset[int], str]:
    """The fewest actions, dropping one at a time, with which the seed still breaks something; and what."""
    skip: frozenset[int] = frozenset()
    what = broken_by(seed, folder, skip, often)
    for number in range(1, actions):
        tried = skip | {number}
        if told := broken_by(seed, folder, tried, often):
            skip, what = tried, told
    return skip, what


def broken_by(seed: int, folder: Path, skip: frozenset[int], often: frozenset[str]) -> str:
    try:
        soak(seed, folder, skip=skip, often=often)
    except BrokenError as broken:
        return str(broken)
    except Exception:
        return f"seed {seed}: {traceback.format_exc()}"
    return ""
