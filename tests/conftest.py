"""For all tests: no example of hypothesis has a deadline, since a busy machine is no failure; signals are heard.

A shell starts what it puts into the background with SIGINT ignored, `nohup` with SIGHUP, and every child inherits
that: the tests that interrupt a process would wait for ever, or find that it was not interrupted.
"""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

from holdfast.stores import disk

HEARD = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}

for number, handler in HEARD.items():
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is synced in this process: a kill loses nothing that was written, and syncing takes time."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(disk, "_SYNC_DATA", os.fsync)
    monkeypatch.setattr(disk, "_FULL_SYNC", None)
    monkeypatch.setattr(disk, "_BEGIN_WRITING", None)


settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
