"""Signals: the first stops kindly, the second at once, and one that comes too early is not lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from holdfast import events as ev
from holdfast.cli.console import Console, PlainConsole
from holdfast.cli.stopping import Stopper
from holdfast.engine.commit import Recorded
from holdfast.errors import StorageError
from holdfast.views.picture import Picture


def no_picture() -> Picture:
    raise AssertionError("nobody asked for it")


def test_the_first_says_for_what_it_waits(capsys: pytest.CaptureFixture[str]) -> None:
    """The first signal tells the grace period and how many steps run; the second says that it ends at once."""
    console, stops = PlainConsole({}), []
    console.open(no_picture)
    console.events([Recorded(0.0, ev.NodeEntered(step_id=f"s{n}", node="s")) for n in (1, 2)])
    stopper = Stopper(console, 10.0)
    stopper.open(lambda: stops.append("stop"))
    stopper.asked()
    stopper.asked()
    console.close()
    first, second = (line[10:].removeprefix("warning").strip() for line in capsys.readouterr().err.splitlines())
    assert first == "Stopping: waiting up to 10 s for 2 running steps; Ctrl-C again stops at once"
    assert second == "Stopping at once."
    assert stops == ["stop", "stop"]


def test_once_the_word_is_out_nothing_new_begins() -> None:
    """Whoever reads "Stopping" may rely on it."""
    done: list[str] = []

    class Teller(Console):
        def stopping(self, words: Callable[[int], str]) -> None:
            done.append("told")

    stopper = Stopper(Teller(), 10.0)
    stopper.open(lambda: done.append("stopped"))
    stopper.asked()
    assert done == ["stopped", "told"]


def test_a_signal_before_the_run_is_open_is_not_lost() -> None:
    """What was asked before there was anything to stop is done when there is."""
    stops: list[str] = []
    stopper = Stopper(Console(), 10.0)
    stopper.asked()
    stopper.open(lambda: stops.append("stop"))
    assert stops == ["stop"]


def test_a_signal_reaches_the_run_though_the_main_thread_sleeps() -> None:
    """The listener takes the signal; the main thread, waiting in a lock, need not come back for it."""
    stopped = threading.Event()
    with Stopper(Console(), 10.0) as stopper:
        stopper.open(stopped.set)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopped.wait(20)


def test_handlers_are_put_back() -> None:
    """Afterwards signals mean what they meant before, and the wake-up descriptor is as it was."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Stopper(Console(), 10.0):
        assert signal.getsignal(signal.SIGINT) != before[0]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    previous = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(previous)
    assert previous == -1


def test_a_system_without_threads_is_told_as_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no mistake of ours: whoever listens for signals, or shows how a run goes, is not started."""

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(StorageError, match="Could not start a thread"), Stopper(Console(), 10.0):
        pass
    assert signal.getsignal(signal.SIGTERM) == before
    console = PlainConsole({})
    with pytest.raises(StorageError, match="Could not start a thread"):
        console.open(no_picture)
    console.close()
