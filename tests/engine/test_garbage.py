"""Garbage collection is the program's: whoever makes it rarer gives it back as it was."""

from __future__ import annotations

import gc

from holdfast.engine.garbage import seldom


def test_two_runs_at_once_give_the_collector_back_as_it_was() -> None:
    """They end in the order in which they began: the second has not seen the program's own setting."""
    before = gc.get_threshold()
    first, second = seldom(), seldom()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() != before
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before


def test_a_collector_that_is_off_stays_off() -> None:
    """A threshold of nothing is a program's wish, not a small number."""
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with seldom():
            assert gc.get_threshold()[0] == 0
        assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
