"""A read that fails once, wherever it is: cannot read is not absent.

The run stops with what the system said, or does without what it could not read; nothing runs or is paid for again,
neither then nor by the next run. Which of the reads fail is said in sampling.py.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import StorageError
from sampling import SEED, sampled

from .harness import Trial, texts, uninterrupted

READS = ("open", "stat", "lstat", "scandir", "listdir", "read", "pread", "fstat")
WRITING = os.O_WRONLY | os.O_RDWR
SAMPLE = 6
_readlink = os.readlink


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    folder = tmp_path_factory.mktemp("calm")
    uninterrupted(folder)
    return Trial(folder)


@contextmanager
def failing_read(project: Path, number: int) -> Iterator[Callable[[], int]]:
    """Within the block, that one of the reads below `project` fails; gives how many there have been."""
    counter = itertools.count(1)
    seen = [0]

    def failing(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if _is_below(project, name, args, named.get("dir_fd")):
                seen[0] = next(counter)
                if seen[0] == number:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*args, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in READS:
            patch.setattr(os, name, failing(name, getattr(os, name)))
        yield lambda: seen[0]


def _is_below(project: Path, name: str, args: tuple[Any, ...], dir_fd: int | None) -> bool:
    """Whether it reads something of the project. What is opened to be written has tests of its own."""
    if name == "open" and args[1] & WRITING:
        return False
    target = args[0] if args else "."
    try:
        if isinstance(target, int):
            path = _readlink(f"/proc/self/fd/{target}")
        else:
            folder = _readlink(f"/proc/self/fd/{dir_fd}") if dir_fd is not None else os.curdir
            path = os.path.join(folder, os.fspath(target))
    except OSError:
        return False
    return str(path).startswith(str(project))


def keep_all(project: Path) -> None:
    """A finished run, as it is."""


def lose_state(project: Path) -> None:
    shutil.rmtree(project / ".holdfast")


def lose_an_artifact(project: Path) -> None:
    (project / "research" / "ch02.md").unlink()


def _prepared(calm: Trial, folder: Path, disaster: Callable[[Path], None]) -> Trial:
    trial = Trial(folder)
    shutil.copytree(calm.project, trial.project)
    disaster(trial.project)
    trial.log.touch()
    return trial


@pytest.mark.parametrize("disaster", [keep_all, lose_state, lose_an_artifact])
def test_a_read_that_fails_costs_nothing(tmp_path: Path, calm: Trial, disaster: Callable[[Path], None]) -> None:
    """The run ends as if nothing had been, or clearly; the next one is complete, and has paid for nothing."""
    counted = _prepared(calm, tmp_path / "counted", disaster)
    with failing_read(counted.project, 0) as reads:
        assert counted.resume().status == "completed"
    for number in sampled(range(1, reads() + 1), SAMPLE, disaster.__name__):
        trial = _prepared(calm, tmp_path / str(number), disaster)
        story = f"read {number} of {reads()}; HOLDFAST_CRASH_SEED={SEED}; {trial.folder}"
        with failing_read(trial.project, number):
            try:
                assert trial.resume().status == "completed", story
            except StorageError as error:
                assert os.strerror(errno.EIO) in str(error), story
        assert trial.resume().status == "completed", story
        assert not [line for line in trial.lines() if line.startswith("pay ")], story
        assert texts(trial.artifacts()) == texts(calm.artifacts()), story


@contextmanager
def failing_on(name: str, is_meant: Callable[[str], bool]) -> Iterator[list[str]]:
    """Within the block, the first call of that name on an open file that is meant fails; gives the files."""
    real, met = getattr(os, name), []

    def call(target: Any = ".", *args: Any, **named: Any) -> Any:
        path = _readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else ""
        met.append(path)
        if is_meant(path) and not any(map(is_meant, met[:-1])):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(target, *args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, name, call)
        yield met


@pytest.mark.parametrize("disaster", [keep_all, lose_state])
@pytest.mark.parametrize("call", ["read", "pread", "fstat", "listdir"])
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, calm: Trial, call: str, disaster: Callable[[Path], None]
) -> None:
    """What fails is a call on an open file, which knows no name: the message has it all the same."""
    counted = _prepared(calm, tmp_path / "counted", disaster)
    with failing_on(call, lambda path: False) as met:
        assert counted.resume().status == "completed"
    below = [path for path in met if path.startswith(str(counted.project))]
    kinds = {(os.path.splitext(path)[1], path.count("/")): Path(path).name for path in below}
    assert kinds or call == "listdir"  # of which a whole project needs none
    for name in kinds.values():
        trial = _prepared(calm, tmp_path / name, disaster)
        with failing_on(call, lambda path: Path(path).name == name):  # noqa: B023
            try:
                assert trial.resume().status == "completed"
            except StorageError as error:
                assert name in error.message
