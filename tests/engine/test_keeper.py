"""The keeper: trouble with a view or a snapshot stops no step, and the next refresh is tried all the same."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Harness, in_thread
from holdfast import Pipeline
from holdfast import events as ev
from holdfast.engine import keeper as keeper_module
from holdfast.engine.commit import Committer, Recorded
from holdfast.engine.keeper import Keeper
from holdfast.engine.starting import StartingPass
from holdfast.errors import StorageError
from holdfast.runs.history import decode_state
from holdfast.snapshots import read_snapshot, snapshots
from holdfast.state import COMPLETED


@pytest.mark.parametrize("error", [OSError("disk"), StorageError("The journal failed.")])
def test_a_refresh_that_fails_is_tried_again(error: Exception) -> None:
    """Neither the system's errors nor our own end the thread."""
    twice, calls = threading.Event(), list[int]()

    def refresh() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise error
        twice.set()

    keeper = Keeper(refresh, lambda: None, lambda: 0)
    for _ in range(200):
        keeper([Recorded(0.0, ev.PhaseStarted(step_id="phase:W"))])
        if twice.wait(0.1):
            break
    keeper.close()
    assert len(calls) >= 2


def test_a_keeper_that_is_closed_just_as_it_begins_to_work_ends() -> None:
    """What `close` has set is not cleared unseen: its run would wait for the thread for ever."""

    class Closing(threading.Event):
        """Whoever closes does it right before the thread notes that it has seen what is new."""

        def clear(self) -> None:
            keeper._closed.set()
            keeper._urgent.set()
            self.set()
            super().clear()

    keeper = Keeper(lambda: None, lambda: None, lambda: 0)
    keeper._dirty = Closing()
    keeper([Recorded(0.0, ev.PhaseStarted(step_id="phase:W"))])
    assert keeper._thread is not None
    keeper._thread.join(10)
    assert not keeper._thread.is_alive()


@pytest.mark.parametrize(
    "event",
    [
        ev.NodeExited(step_id="a", node="a", status="failed"),
        ev.PhaseStarted(step_id="phase:W"),
        ev.DecisionMade(what="this", why="that"),
        ev.Decided(step_id="a", choice="redo"),
        ev.RedoRequested(step_ids=("a",)),
        ev.MemoryWritten(step_id="glossary", path="glossary.md"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_people_wait_to_see_is_shown_at_once(event: ev.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure, a phase, a decision of anybody's: the pages do not wait for their pause to end."""
    monkeypatch.setattr(keeper_module, "PAUSE_S", 3600.0)
    refreshed = threading.Event()
    keeper = Keeper(refreshed.set, lambda: None, lambda: 0)
    keeper([Recorded(0.0, event)])
    assert refreshed.wait(30)
    keeper.close()


def test_the_end_of_a_batch_is_shown_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second batch finds the first one's cell in checkpoint.md, although the next refresh is far off."""
    monkeypatch.setattr(keeper_module, "PAUSE_S", 3600.0)
    keep_once, has_kept = Keeper._keep_once, threading.Event()

    def noting(keeper: Keeper) -> None:
        keep_once(keeper)
        has_kept.set()

    monkeypatch.setattr(Keeper, "_keep_once", noting)
    pipe, page = Pipeline("p"), tmp_path / "checkpoint.md"
    pipe.items("part", [{"id": "a", "batch": 1}, {"id": "b", "batch": 2}])

    @pipe.step(each="part", phase="Writing")
    def write(part: str) -> bool:
        has_kept.wait()  # the beginning of the phase has been shown
        while part == "b" and "| a | ✅ |" not in page.read_text():
            threading.Event().wait(0.01)
        return True

    assert in_thread(lambda: pipe.run(dir=tmp_path)).status == "completed"


def test_what_a_batch_that_failed_has_left_in_the_state_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was folded and never written: neither a snapshot nor a view may say that it happened."""
    monkeypatch.setattr(keeper_module, "PAUSE_S", 0.01)
    monkeypatch.setattr(keeper_module, "SNAPSHOT_EVENTS_MIN", 1)
    advance, exclusively, keeper_waits = StartingPass.advance, Committer.exclusively, threading.Event()
    pipe = Pipeline("p")

    @pipe.step
    def first() -> int:
        return 1

    @pipe.step
    def second(first: int) -> int:
        return first

    def failing_advance(passing: StartingPass) -> None:
        if passing.board.state.task("second").status == COMPLETED:
            assert keeper_waits.wait(30)
            raise OSError(errno.EIO, "Input/output error")
        advance(passing)

    def noting(committer: Committer, look: Callable[[], Any]) -> Any:
        if threading.current_thread().name not in ("holdfast-keeper", "holdfast-beside"):
            return exclusively(committer, look)
        keeper_waits.set()
        try:
            return exclusively(committer, look)
        finally:
            keeper_waits.clear()

    monkeypatch.setattr(StartingPass, "advance", failing_advance)
    monkeypatch.setattr(Committer, "exclusively", noting)
    assert isinstance(in_thread(lambda: pipe.run(dir=tmp_path)), StorageError)
    run = Harness(tmp_path).folder()
    saved = [decode_state(payload) for _, path in snapshots(run) if (payload := read_snapshot(path))]
    assert [one.state.seq for one in saved] == [one.position.seq for one in saved]
    page = tmp_path / "checkpoint.md"
    assert not page.exists() or "| second | ✅ |" not in page.read_text()


def test_the_number_of_a_snapshot_that_was_lost_is_not_used_again(tmp_path: Path) -> None:
    """Whoever has kept it elsewhere would have two of that name."""
    pipe = Pipeline("p")
    pipe.step(lambda: 1, name="first")
    run = Harness(tmp_path).folder(pipe.run(dir=tmp_path).run_id)
    newest = max(number for number, _ in snapshots(run))
    for lost in run.glob("checkpoint_*"):
        lost.unlink()
    pipe.step(lambda: 2, name="second")
    pipe.run(dir=tmp_path)
    assert min(number for number, _ in snapshots(run)) == newest + 1
