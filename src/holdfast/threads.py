"""Threads of ours: that the machine starts no more of them is told as what it is, and no mistake of ours."""

from __future__ import annotations

import threading

from holdfast.errors import StorageError


def start(thread: threading.Thread) -> None:
    """Start it; StorageError if the system has no thread left for us."""
    try:
        thread.start()
    except RuntimeError as error:
        raise StorageError(
            "Could not start a thread: the system allows no more of them.",
            fix="What was recorded is safe: lower --concurrency, or raise that limit; then run the same command.",
        ) from error
