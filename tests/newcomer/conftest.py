"""A project to try things in, and the processes that work on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .project import Processes, Project


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    started = Processes(tmp_path_factory.mktemp("processes"))
    yield started
    started.close()


@pytest.fixture
def project(tmp_path: Path, processes: Processes) -> Project:
    return Project(tmp_path, processes)
