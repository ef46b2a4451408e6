"""A few seeds of the soak; `python -m tests.soak --seeds 0..500` tries more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from .soaking import soak

SEEDS = range(5)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_to_a_project_its_promises_are_kept(seed: int, tmp_path: Path) -> None:
    """Right artifacts, nothing paid or run twice without need, no word of a person lost, views that agree."""
    soak(seed, tmp_path)
