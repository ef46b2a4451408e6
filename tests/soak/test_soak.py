"""A few seeds of the soak; `python -m tests.soak --seeds 0..500` tries more of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .processes import Processes, processes
from .soaking import soak

SEEDS = range(5)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with processes(tmp_path_factory.mktemp("processes")) as made:
        yield made


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_to_a_project_its_promises_are_kept(seed: int, start: Processes, tmp_path: Path) -> None:
    """Right artifacts, nothing paid or run twice without need, no word of a person lost, views that agree."""
    soak(seed, tmp_path, start)
