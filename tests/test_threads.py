"""Threads of ours: what is done beside something else is through when that is, and its trouble is told."""

from __future__ import annotations

import threading

import pytest

from holdfast import threads


def test_both_are_through_when_it_ends() -> None:
    """The one waits for the other, whichever takes longer."""
    told: list[str] = []
    may_end = threading.Event()

    def work() -> None:
        assert may_end.wait(30)
        told.append("beside")

    with threads.beside(work):
        told.append("here")
        may_end.set()
    assert told == ["here", "beside"]


def test_what_went_wrong_beside_is_raised_here() -> None:
    """Nothing is swallowed."""
    with pytest.raises(ZeroDivisionError), threads.beside(lambda: 1 // 0):
        pass


def test_what_went_wrong_here_is_told_first() -> None:
    """It is the error of whoever asked; the other has ended, too, by then."""
    ended = threading.Event()

    def work() -> None:
        ended.set()
        raise OSError("beside")

    with pytest.raises(ValueError, match="here"), threads.beside(work):
        raise ValueError("here")
    assert ended.is_set()


def test_where_no_thread_can_be_started_it_is_done_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that has no more of them is no reason to leave it out."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    told: list[str] = []
    with threads.beside(lambda: told.append("beside")):
        told.append("here")
    assert told == ["beside", "here"]
    with pytest.raises(ZeroDivisionError), threads.beside(lambda: 1 // 0):
        told.append("all the same")
    assert told[-1] == "all the same"
