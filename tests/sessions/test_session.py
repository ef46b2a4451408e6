"""A run open for writing."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from holdfast.engine.commit import Committer, Entry
from holdfast.sessions.session import OpenRun
from holdfast.state import RunState
from holdfast.stores.objects import LocalObjects
from holdfast.stores.protocols import START
from holdfast.testing import MemoryJournal, MemoryLease

PATIENCE_S = 30


class Noted(Entry):
    """An entry that notes whether it was applied."""

    durable = False
    applied = False

    def apply(self) -> None:
        self.applied = True


def test_an_entry_is_recorded_when_record_returns_also_if_another_thread_commits(tmp_path: Path) -> None:
    """While views are drawn, the committer is taken: the entry is waited for, not left for later."""
    objects = LocalObjects(tmp_path / "objects", "r", tmp_path / "tmp")
    lease = MemoryLease()
    lease.hold("r")
    committer = Committer(MemoryJournal(), objects, lease, RunState(), START)
    taken, returned, entry = threading.Event(), threading.Event(), Noted()

    def draw() -> None:
        taken.set()
        returned.wait(0.2)  # it must not return before this ends

    drawing = threading.Thread(target=lambda: committer.exclusively(draw))
    drawing.start()
    assert taken.wait(PATIENCE_S)
    OpenRun.record(cast(Any, SimpleNamespace(committer=committer)), entry)
    applied = entry.applied
    returned.set()
    drawing.join(PATIENCE_S)
    objects.close()
    assert applied
