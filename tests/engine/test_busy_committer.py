"""A committer that another thread is leading, or has closed: nobody waits for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Pipeline
from holdfast.engine.commit import Committer, Entry
from holdfast.state import RunState
from holdfast.stores.objects import LocalObjects
from holdfast.stores.protocols import START
from holdfast.testing import MemoryJournal, MemoryLease


class Waiting(Entry):
    """Notes how it ended."""

    def __init__(self, told: list[BaseException | None]) -> None:
        self._told = told

    def done(self, error: BaseException | None) -> None:
        self._told.append(error)


def committer_in(folder: Path) -> Committer:
    objects = LocalObjects(folder / "objects", "r1", folder / "tmp")
    lease = MemoryLease()
    lease.hold("r1")
    return Committer(MemoryJournal(), objects, lease, RunState(), START)


def test_a_run_does_not_end_while_something_waits_to_be_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was submitted while another thread led is considered before the run is called finished."""
    commit, left = Committer.commit, ["the first entry"]

    def leave_the_first_to_others(committer: Committer, entry: Entry) -> None:
        if left:
            left.clear()
            committer.submit(entry)  # as `commit` does when it finds another leader
        else:
            commit(committer, entry)

    monkeypatch.setattr(Committer, "commit", leave_the_first_to_others)
    pipe = Pipeline("p")

    @pipe.step
    def a() -> int:
        return 1

    assert pipe.run(dir=tmp_path).status == "completed"


def test_whoever_submitted_something_just_before_the_end_is_told(tmp_path: Path) -> None:
    """It found the committer being closed, and left what it had to say to whoever did that."""
    told: list[BaseException | None] = []
    committer = committer_in(tmp_path)
    committer.submit(Waiting(told))
    over = RuntimeError("the run is over")
    committer.close(over)
    assert told == [over]


def test_an_entry_that_came_during_a_look_that_failed_is_committed(tmp_path: Path) -> None:
    """Its thread found somebody at work, and left it to that one: a look that raises must not leave it there."""
    told: list[BaseException | None] = []
    committer = committer_in(tmp_path)

    def look() -> None:
        committer.commit(Waiting(told))  # as another thread would
        raise OSError("the folder cannot be listed")

    with pytest.raises(OSError, match="cannot be listed"):
        committer.exclusively(look)
    assert told == [None]
