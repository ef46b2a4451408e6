"""A run borrows the signals of the program that calls it, and none that is early is lost."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.errors import StorageError
from holdfast.signals import Stop, heard

HOST = """
import ctypes, sys
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: None)
ctypes.CDLL(None).signal.restype = ctypes.c_void_p
ctypes.CDLL(None).signal(15, handler)
for name in ("signal", "_signal"):  # Python looks when it loads them, which was before ours was there
    sys.modules.pop(name, None)
import signal
from holdfast import Pipeline
pipe = Pipeline("p")
@pipe.step
def work() -> int:
    return 1
result = pipe.run(dir=sys.argv[1])
assert signal.getsignal(signal.SIGTERM) is None
print(result.status)
"""


def test_a_signal_that_a_host_in_c_handles_is_left_to_it(tmp_path: Path) -> None:
    """Python cannot put such a handler back, and the result of the run was lost in the attempt."""
    (tmp_path / "host.py").write_text(HOST)
    command = [sys.executable, str(tmp_path / "host.py"), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("completed\n", "")


def test_once_the_word_is_out_nothing_new_begins() -> None:
    """Whoever reads "Stopping" may rely on it."""
    done: list[str] = []
    stop = Stop(lambda times: done.append(f"told {times}"))
    stop.open(lambda: done.append("stopped"))
    stop()
    assert done == ["stopped", "told 1"]


def test_a_signal_before_the_run_is_open_is_not_lost() -> None:
    """What was asked before there was anything to stop is done when there is."""
    stops: list[str] = []
    stop = Stop()
    stop()
    stop.open(lambda: stops.append("stop"))
    assert stops == ["stop"]


def test_a_signal_reaches_the_run_though_the_main_thread_sleeps() -> None:
    """The listener takes the signal; the main thread, waiting in a lock, need not come back for it."""
    stopped, stop = threading.Event(), Stop()
    with heard(stop):
        stop.open(stopped.set)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopped.wait(20)


def test_handlers_are_put_back() -> None:
    """Afterwards signals mean what they meant before, and the wake-up descriptor is as it was."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with heard(Stop()):
        assert signal.getsignal(signal.SIGINT) != before[0]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    previous = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(previous)
    assert previous == -1


def test_a_system_without_threads_is_told_as_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no mistake of ours: what listens for signals is not started, and they are as they were."""

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(StorageError, match="Could not start a thread"), heard(Stop()):
        pass
    assert signal.getsignal(signal.SIGTERM) == before


def test_an_import_hears_no_signals(tmp_path: Path) -> None:
    """A library does not say what a signal does; nor does the command before its main begins."""
    code = "import signal\nbefore = [signal.getsignal(n) for n in signal.valid_signals()]\n"
    code += "import holdfast, holdfast.cli.main, holdfast.project.run\n"
    code += "assert [signal.getsignal(n) for n in signal.valid_signals()] == before\n"
    (tmp_path / "holdfast").write_text(code)  # called as the command is
    subprocess.run([sys.executable, str(tmp_path / "holdfast")], check=True)
