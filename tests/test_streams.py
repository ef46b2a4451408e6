"""What steps print, beside our own words."""

from __future__ import annotations

import io
import os
import threading

import pytest

from holdfast.cli.printing import say
from holdfast.streams import Heedless, unwrapped


def test_after_the_end_only_our_own_words_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that goes on may print for ever: it must not touch the stream while we flush it, and leave."""
    real, is_over = io.StringIO(), threading.Event()
    steps = Heedless(real)
    steps.write("a step\n")
    late = threading.Thread(target=is_over.wait)
    late.start()
    try:
        monkeypatch.setattr("sys.stdout", steps.end())
        print("a step that goes on", flush=True)
        say("Interrupted.")
    finally:
        is_over.set()
        late.join()
    assert real.getvalue() == "a step\nInterrupted.\n"


def test_a_step_that_closes_its_stdout_closes_nobodys() -> None:
    """The next one prints there, too."""
    real = io.StringIO()
    steps = Heedless(real)
    steps.close()
    steps.write("the next step\n")
    assert real.getvalue() == "the next step\n"


def test_where_no_thread_goes_on_the_stream_is_itself_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left between a program and its stdout."""
    real = io.StringIO()
    steps = Heedless(real)
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert unwrapped(steps.end()) is real is not steps.end()
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    assert steps.end() is real


def test_nobody_writes_while_another_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own text streams may crash the process when one thread flushes what another writes."""
    entered: list[bool] = []

    class Watched(io.StringIO):
        def write(self, text: str) -> int:
            other = threading.Thread(target=lambda: entered.append(steps.lock.acquire(blocking=False)))
            other.start()
            other.join()
            return super().write(text)

    steps = Heedless(Watched())
    monkeypatch.setattr("sys.stdout", steps)
    steps.write("a step\n")
    say("our own words")
    assert entered == [False, False]


def test_a_forked_process_may_print_although_another_thread_was_printing() -> None:
    """A step may use a pool of forked processes: none of them waits for a thread that it does not have."""
    steps, held, is_over = Heedless(io.StringIO()), threading.Event(), threading.Event()

    def printing() -> None:
        with steps.lock:
            held.set()
            is_over.wait()

    other = threading.Thread(target=printing)
    other.start()
    held.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if steps.lock.acquire(blocking=False) else 1)
    is_over.set()
    other.join()
    assert os.waitpid(child, 0)[1] == 0
