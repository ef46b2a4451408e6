"""Garbage collection, made rarer while very many small things are made that are all kept."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_RARELY = 50_000

_mutex = threading.Lock()
_within = 0  # how many are at it now, in whatever thread
_before = gc.get_threshold()


@contextmanager
def seldom() -> Iterator[None]:
    """Look for garbage less often; as before again when nobody is within this any more.

    A graph, its records and its findings grow and stay: looking through them every few hundred objects, as the
    collector does by itself, finds nothing and takes a tenth of the time.
    """
    global _within, _before
    with _mutex:
        if not _within:
            _before = gc.get_threshold()
            gc.set_threshold(max(_before[0], _RARELY) if _before[0] else 0, *_before[1:])
        _within += 1
    try:
        yield
    finally:
        with _mutex:
            _within -= 1
            if not _within:
                gc.set_threshold(*_before)
