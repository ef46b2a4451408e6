"""What is said when a run is asked to stop."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast import Project
from holdfast import events as ev
from holdfast.cli.console import PlainConsole
from holdfast.cli.run import Showing
from holdfast.engine.commit import Recorded
from holdfast.errors import StorageError
from holdfast.signals import Stop
from holdfast.views.picture import Picture


def no_picture() -> Picture:
    raise AssertionError("nobody asked for it")


def test_the_first_says_for_what_it_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first signal tells the grace period and how many steps run; the second says that it ends at once."""
    showing, stops = Showing(Project.open(tmp_path), ".", as_json=False, quiet=False), []
    showing.grace_s = 10.0
    showing.console = console = PlainConsole({})
    console.open(no_picture)
    console.events([Recorded(0.0, ev.NodeEntered(step_id=f"s{n}", node="s")) for n in (1, 2)])
    stop = Stop(showing.tell_stop)
    stop.open(lambda: stops.append("stop"))
    stop()
    stop()
    console.close()
    first, second = (line[10:].removeprefix("warning").strip() for line in capsys.readouterr().err.splitlines())
    assert first == "Stopping: waiting up to 10 s for 2 running steps; Ctrl-C again stops at once"
    assert second == "Stopping at once."
    assert stops == ["stop", "stop"]


def test_a_system_without_threads_is_told_as_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no mistake of ours: what shows how a run goes is not started."""

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    console = PlainConsole({})
    with pytest.raises(StorageError, match="Could not start a thread"):
        console.open(no_picture)
    console.close()
