"""A thread that commits while it looks for work must not fall asleep over what that commit started."""

from __future__ import annotations

import contextvars
import threading

from holdfast.engine.workers import Workers

from .projects import PATIENCE_S


def test_a_job_started_by_an_idle_threads_commit_is_done() -> None:
    """A worker called to commit starts a job in that commit, and then does it."""
    mail, done = [1], threading.Event()
    workers: Workers

    def pump() -> None:
        if mail:
            mail.clear()
            workers.add([done.set])

    workers = Workers(pump, lambda: bool(mail), contextvars.Context(), fail=lambda error: None)
    workers.call_committer()
    assert done.wait(PATIENCE_S)
    workers.close()


def test_a_job_is_not_left_behind_by_the_thread_that_was_called_for_it() -> None:
    """It finds mail first, and what that commit starts takes long: then another thread is called for the job."""
    mail, long_began, may_end, done = [1], threading.Event(), threading.Event(), threading.Event()
    workers: Workers

    def long() -> None:
        long_began.set()
        may_end.wait(2 * PATIENCE_S)

    def pump() -> None:
        if mail:
            mail.clear()
            workers.add([long])

    workers = Workers(pump, lambda: bool(mail), contextvars.Context(), fail=lambda error: None)
    workers.add([done.set])
    assert long_began.wait(PATIENCE_S)
    assert done.wait(PATIENCE_S)
    may_end.set()
    workers.close()
