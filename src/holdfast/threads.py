"""Threads of ours: that the machine starts no more of them is told as what it is, and no mistake of ours."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.errors import StorageError


def start(thread: threading.Thread) -> None:
    """Start it; StorageError if the system has no thread left for us."""
    try:
        thread.start()
    except RuntimeError as error:
        raise StorageError(
            "Could not start a thread: the system allows no more of them.",
            fix="What was recorded is safe: lower concurrency, or raise that limit; then run the same command.",
        ) from error


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """`work` is done by another thread meanwhile, and is through, too, when this ends; its error is raised then.

    It saves time where both wait for the disk, or for code that lets others at the interpreter. Where the system
    starts no more threads, it is done first.
    """
    failed: list[BaseException] = []

    def do() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=do, name="holdfast-beside", daemon=True)
    try:
        start(thread)
    except StorageError:
        do()
        yield
    else:
        try:
            yield
        finally:
            thread.join()
    if failed:
        raise failed[0]
