"""Every operation that changes the disk fails, once or from then on: a clear stop, and right afterwards."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import in_thread
from holdfast import Context, Pipeline
from holdfast.errors import EXIT_STORAGE, HoldfastError, StorageError
from holdfast.stores import disk
from holdfast.stores.objects import LocalObjects
from sampling import SEED, sampled

from .harness import Trial, uninterrupted

CODES = {name: getattr(errno, name) for name in ("ENOSPC", "EIO", "EMFILE", "EACCES")}
SAMPLE = 6


@pytest.fixture(autouse=True)
def _clean_disk(unsynced: None) -> Iterator[None]:
    yield
    disk.hook = None


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return uninterrupted(tmp_path_factory.mktemp("calm"))


def failing_from(number: int, code: int) -> Callable[[str, str], None]:
    """A hook that fails the operation `number` and every one after it."""
    counter = itertools.count(1)

    def fail(op: str, path: str) -> None:
        if next(counter) >= number:
            raise OSError(code, os.strerror(code), path)

    return fail


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for-good"])
def test_a_failing_disk_is_a_clear_stop(
    tmp_path: Path, expected: dict[str, bytes], name: str, lasting: bool
) -> None:
    """The run raises StorageError, or completes; no partial file has a final name; the next run is right."""
    for number in sampled(range(1, 170), SAMPLE, f"{name} {lasting}"):
        trial = Trial(tmp_path / str(number)).begin()
        try:
            _fail_once(trial, number, CODES[name], lasting, expected)
            trial.promised.append((len(trial.lines()), *trial.recorded()))
            trial.check(in_thread(trial.resume), expected)
        except BaseException as error:
            error.add_note(f"{name} at {number}, lasting={lasting}; HOLDFAST_CRASH_SEED={SEED}; {trial.folder}")
            raise


def _fail_once(trial: Trial, number: int, code: int, lasting: bool, expected: dict[str, bytes]) -> None:
    if lasting:
        disk.hook = failing_from(number, code)
        result = in_thread(trial.resume)
    else:
        with disk.failing_at(number, code):
            result = in_thread(trial.resume)
    disk.hook = None
    if isinstance(result, BaseException):
        assert_clear(result, code)
    else:
        assert result.status == "completed"
    for path, data in trial.artifacts().items():
        if not path.endswith(".part"):  # a stream that was cut off has no final name
            assert expected.get(path) == data, f"{path} is not whole"


def assert_clear(error: BaseException, code: int) -> None:
    """One line that says what the disk said."""
    assert isinstance(error, StorageError), error
    assert error.exit_code == EXIT_STORAGE and os.strerror(code) in str(error)


def test_the_first_error_is_the_one_that_is_told(tmp_path: Path) -> None:
    """When cleaning up fails too, the error that began it is what the caller sees."""
    trial = Trial(tmp_path).begin()
    seen: list[int] = []

    def fail(op: str, path: str) -> None:
        if path.endswith("outline.md") or seen:
            seen.append(1)
            code = errno.ENOSPC if len(seen) == 1 else errno.EIO
            raise OSError(code, os.strerror(code), path)

    disk.hook = fail
    error = in_thread(trial.resume)
    assert isinstance(error, HoldfastError) and os.strerror(errno.ENOSPC) in str(error)


def test_the_error_that_kept_a_run_from_beginning_is_told(tmp_path: Path) -> None:
    """ENOSPC on its first line is reported, although its folder cannot be taken away again either."""
    pipe = Pipeline("p")
    pipe.step(_nothing)

    def fail(op: str, path: str) -> None:
        if path.endswith("events.jsonl") and op in ("write", "unlink"):
            raise OSError(errno.ENOSPC if op == "write" else errno.EIO, os.strerror(errno.EIO), path)

    disk.hook = fail
    error = in_thread(lambda: pipe.run(dir=tmp_path))
    assert isinstance(error, StorageError)
    assert "append to the journal" in error.message
    disk.hook = None
    assert pipe.run(dir=tmp_path).status == "completed"


def _nothing() -> None:
    pass


def test_a_lock_that_could_not_be_signed_is_given_back(tmp_path: Path) -> None:
    """When the holder's name cannot be written, the run stops, and the same process may try again."""
    trial = Trial(tmp_path).begin()

    def fail(op: str, path: str) -> None:
        if op == "write" and path.endswith("engine.lock"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    disk.hook = fail
    assert isinstance(in_thread(trial.resume), StorageError)
    disk.hook = None
    assert in_thread(trial.resume).status == "completed"


def test_a_disk_that_fails_under_a_paid_call_stops_the_run(tmp_path: Path) -> None:
    """A result that cannot be kept is no failure of the step: the run stops, and no retry pays again meanwhile."""
    pipe, calls = Pipeline("p"), []

    @pipe.step(retries=3, backoff=0.0001)
    def step(ctx: Context) -> int:
        return len(ctx.once("model", lambda: calls.append(1) or b"result"))

    def fail(op: str, path: str) -> None:
        if op == "write" and path.endswith(".pack"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    disk.hook = fail
    assert isinstance(in_thread(lambda: pipe.run(dir=tmp_path)), StorageError)
    assert len(calls) == 1
    disk.hook = None
    assert in_thread(lambda: pipe.run(dir=tmp_path)).outputs["step"] == 6


def test_a_closed_store_takes_nothing_more(tmp_path: Path) -> None:
    """A body that outlives its run cannot append to the pack behind the next run's back."""
    store = LocalObjects(tmp_path / "objects", "r", tmp_path / "tmp")
    store.put(b"kept")
    store.sync()
    store.close()
    size = (tmp_path / "objects" / "r" / "0001.pack").stat().st_size
    with pytest.raises(StorageError, match="closed"):
        store.put(b"late")
    assert (tmp_path / "objects" / "r" / "0001.pack").stat().st_size == size
