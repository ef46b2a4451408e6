"""Signals that ask a process to end, while a run goes on: the first stops it kindly, the second at once.

A Python signal handler runs only when the main thread comes back to the interpreter. The main thread of a run
sleeps in a lock, and a signal that arrives in the instant before it falls asleep would wait for ever. So the
handler proper is a thread: the interpreter writes each signal's number into a socket at once (the wake-up
descriptor), and the thread reads it there. Before the run is open there is nothing to stop kindly, and a signal
is an ordinary KeyboardInterrupt.

Children that a step forks do not get these handlers: with `multiprocessing` they would stop nothing there, its
`terminate()` would be ignored, and whoever waits for the child would wait for ever.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from holdfast import threads

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_meant_for_children: dict[signal.Signals, Any] = {}


def to_be_heard() -> list[signal.Signals]:
    """Those of them that are not ignored: nohup, or a shell that runs us in the background, said so.

    Nor those that a host written in C handles itself: Python could not give them back.
    """
    return [number for number in ENDING if signal.getsignal(number) not in (signal.SIG_IGN, None)]


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """The handler of a command: SIGTERM and SIGHUP mean what Ctrl-C does, but for runs (see `heard`)."""
    raise KeyboardInterrupt


class Stop:
    """Stops a run from outside, from any thread: called once kindly, twice at once.

    `told` is called with the number of times so far, once nothing new begins any more.
    """

    def __init__(self, told: Callable[[int], None] = lambda times: None) -> None:
        self._told = told
        self._stop: Callable[[], None] | None = None
        self._asked = 0
        self._mutex = threading.Lock()

    def __call__(self) -> None:
        with self._mutex:
            self._asked += 1
            number, stop = self._asked, self._stop
        if stop is not None:
            stop()  # first: once the word is out, nothing new begins
            self._told(number)

    def open(self, stop: Callable[[], None]) -> None:
        """From now on each call does `stop`; one that came a moment too early does so too."""
        with self._mutex:
            self._stop = stop
            early = self._asked
        for _ in range(early):
            stop()

    @property
    def is_open(self) -> bool:
        return self._stop is not None


@contextmanager
def heard(stop: Stop) -> Iterator[None]:
    """Have signals call `stop` meanwhile, if this is the main thread; elsewhere signals are the caller's."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    wanted = to_be_heard()
    listener = threading.Thread(target=_listen, args=(reader, wanted, stop), name="holdfast-signals", daemon=True)
    try:
        threads.start(listener)
        with _taken(wanted, writer.fileno(), stop):
            yield
    finally:
        writer.close()
        if listener.ident is not None:
            listener.join()
        reader.close()


@contextmanager
def _taken(wanted: list[signal.Signals], wakeup: int, stop: Stop) -> Iterator[None]:
    """These signals with our handlers, and written into a descriptor."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        if not stop.is_open:
            raise KeyboardInterrupt

    wakeup_before = signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    before = {number: signal.signal(number, on_signal) for number in wanted}
    _meant_for_children.update({number: _for_children(number, handler) for number, handler in before.items()})
    try:
        yield
    finally:
        _meant_for_children.clear()
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup_before)


def _for_children(number: signal.Signals, handler: Any) -> Any:
    """What a signal means to a child: what it meant before, but a command's own handler is not for children."""
    if handler is not interrupt:
        return handler
    return signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL


def _listen(reader: socket.socket, wanted: list[signal.Signals], stop: Stop) -> None:
    while numbers := reader.recv(64):
        for number in numbers:
            if number in wanted:
                stop()


def _in_child() -> None:
    try:
        for number, handler in _meant_for_children.items():
            signal.signal(number, handler)
        if _meant_for_children:
            signal.set_wakeup_fd(-1)  # its signals are not to be written into our socket
    except ValueError:
        pass  # not forked from a thread that counts as the child's main one: nothing can be done


os.register_at_fork(after_in_child=_in_child)
