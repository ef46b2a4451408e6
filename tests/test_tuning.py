"""The interpreter's settings are the program's: whoever changes them for a while gives them back as they were."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest

from holdfast.tuning import by_turns, collect_what_was_kept, seldom


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


def test_what_was_made_meanwhile_is_looked_through_with_all_that_is_old() -> None:
    """And what the program keeps from being looked at stays so."""
    with seldom():
        made = [[] for _ in range(3000)]
    assert not any(one is made for one in gc.get_objects(generation=0))
    assert any(one is made for one in gc.get_objects(generation=2))
    gc.freeze()
    try:
        many = gc.get_freeze_count() // 2
        with seldom():
            pass
        assert gc.get_freeze_count() > many > 0
    finally:
        gc.unfreeze()


class Knot:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


def test_garbage_that_counts_as_old_is_looked_for_once_it_is_a_good_part() -> None:
    """The collector would not do that by itself, however much there is; a little is not worth the time."""
    gc.collect()
    collect_what_was_kept()
    with seldom():
        little = weakref.ref(Knot())
    collect_what_was_kept()
    assert little() is not None
    with seldom():
        much = [Knot() for _ in range(len(gc.get_objects()) // 2)]
        last = weakref.ref(much[-1])
    del much
    collect_what_was_kept()
    assert last() is None
    assert little() is None


def test_threads_take_turns_sooner_for_a_while() -> None:
    """Never later than the program itself wants it."""
    before = sys.getswitchinterval()
    try:
        for own, within in ((0.25, 0.0005), (0.0001, 0.0001)):
            sys.setswitchinterval(own)
            known = sys.getswitchinterval()
            for _ in range(3):
                with by_turns():
                    assert sys.getswitchinterval() == pytest.approx(within, abs=2e-6)
                assert sys.getswitchinterval() == known
    finally:
        sys.setswitchinterval(before)
