"""Ctrl-C, SIGTERM and SIGHUP while a run goes on: the first stops kindly, the second at once.

A Python signal handler runs only when the main thread comes back to the interpreter. The main thread of a run
sleeps in a lock, and a signal that arrives in the instant before it falls asleep would wait for ever. So the
handler proper is a thread: the interpreter writes each signal's number into a socket at once (the wake-up
descriptor), and the thread reads it there. Before the run is open there is nothing to stop kindly, and a signal
is an ordinary KeyboardInterrupt.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from holdfast import threads
from holdfast.cli.console import Console
from holdfast.engine.forked import have_children_take
from holdfast.errors import StorageError
from holdfast.signals import to_be_heard
from holdfast.wording import counted

_DEFAULT = {signal.SIGINT: signal.default_int_handler}


class Stopper:
    """Listens for signals within `with`, if this is the main thread; elsewhere signals are the caller's."""

    def __init__(self, console: Console, grace_s: float) -> None:
        self._console = console
        self._grace_s = grace_s
        self._stop: Callable[[], None] | None = None
        self._asked = 0
        self._mutex = threading.Lock()
        self._before: dict[int, Any] = {}

    def open(self, stop: Callable[[], None]) -> None:
        """From now on a signal calls `stop`; one that came a moment too early does so too."""
        with self._mutex:
            self._stop = stop
            early = self._asked
        for _ in range(early):
            stop()

    def asked(self) -> None:
        """A signal has come."""
        with self._mutex:
            self._asked += 1
            number, stop = self._asked, self._stop
        if stop is not None:
            stop()  # first: once the word is out, nothing new begins
            self._console.stopping(self._kindly if number == 1 else lambda running: "Stopping at once.")

    def _kindly(self, running: int) -> str:
        if not running:
            return "Stopping."
        steps = counted(running, "running step")
        return f"Stopping: waiting up to {self._grace_s:g} s for {steps}; Ctrl-C again stops at once"

    # --- listening -----------------------------------------------------------------------------------------

    def __enter__(self) -> Stopper:
        if threading.current_thread() is threading.main_thread():
            self._reader, self._writer = socket.socketpair()
            self._writer.setblocking(False)
            self._listener = threading.Thread(target=self._listen, name="holdfast-signals", daemon=True)
            try:
                threads.start(self._listener)
            except StorageError:
                self._writer.close()
                self._reader.close()
                raise
            self._wakeup_before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
            wanted = to_be_heard()
            self._before = {number: signal.signal(number, self._on_signal) for number in wanted}
            have_children_take({number: _DEFAULT.get(number, signal.SIG_DFL) for number in wanted})
        return self

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        have_children_take({})
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        self._writer.close()
        self._listener.join()
        self._reader.close()

    def _listen(self) -> None:
        while numbers := self._reader.recv(64):
            for number in numbers:
                if number in self._before:
                    self.asked()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._stop is None:
            raise KeyboardInterrupt
