"""Settings of the interpreter that are changed for a while: the whole process has each of them but once."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

_RARELY = 500_000
_WORTH_A_LOOK = 10_000
_OFTEN_S = 0.0005

T = TypeVar("T")


class _Setting(Generic[T]):
    """One of them: changed while anybody is within, in whatever thread, and then as before."""

    def __init__(self, get: Callable[[], T], put: Callable[[T], None], change: Callable[[T], T]) -> None:
        self._get = get
        self._put = put
        self._change = change
        self._mutex = threading.Lock()
        self._within = 0
        self._before = get()

    @contextmanager
    def changed(self) -> Iterator[None]:
        with self._mutex:
            if not self._within:
                self._before = self._get()
                self._put(self._change(self._before))
            self._within += 1
        try:
            yield
        finally:
            with self._mutex:
                self._within -= 1
                if not self._within:
                    self._put(self._before)


def _rarely(threshold: tuple[int, int, int]) -> tuple[int, int, int]:
    first, *others = threshold
    return (max(first, _RARELY) if first else 0, *others)  # type: ignore[return-value]


def _set_interval(pause: float) -> None:
    sys.setswitchinterval(pause + 0.0000005)  # it takes whole microseconds, and rounds down what it gave itself


_hidden = 0  # about so many objects the collector was told are old, since it last looked at all

_collecting = _Setting(gc.get_threshold, lambda threshold: gc.set_threshold(*threshold), _rarely)


@contextmanager
def seldom() -> Iterator[None]:
    """Look for garbage less often while very many small things are made that are all kept.

    A graph, its records and its findings grow and stay: looking through them every few hundred objects, as the
    collector does by itself, finds nothing and takes a tenth of the time. So they count as old when they are made:
    else it would look through all of them as soon as it may.
    """
    global _hidden
    with _collecting.changed():
        yield
        if not gc.get_freeze_count():  # nobody else keeps objects from being looked at
            few, many, _ = gc.get_count()
            _hidden += few + many * _RARELY
            gc.freeze()
            gc.unfreeze()


def collect_what_was_kept() -> None:
    """Look for garbage among what counts as old by `seldom`, if that may be a good part of all there is.

    A run that is over is garbage, and large. The collector, which never saw it grow, would not look for it however
    many a program makes one after another. The share is the one at which it looks by itself.
    """
    global _hidden
    if _hidden < _WORTH_A_LOOK or not gc.isenabled() or gc.get_freeze_count():
        return
    gc.freeze()
    total = gc.get_freeze_count()
    gc.unfreeze()
    if _hidden * 4 > total:
        gc.collect()
        _hidden = 0


by_turns = _Setting(sys.getswitchinterval, _set_interval, lambda pause: min(pause, _OFTEN_S)).changed
"""Let a thread that wants the interpreter have it soon. One that asks for it often, and needs it only for moments
between long calls of the system, would else wait the usual time at each of them."""
