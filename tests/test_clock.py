"""Times as files write them."""

from __future__ import annotations

from holdfast import clock


def test_a_time_is_written_to_the_millisecond() -> None:
    """What is written reads back as the same time."""
    assert clock.iso(1_767_969_022.123) == "2026-01-09T14:30:22.123Z"
    assert clock.parse_iso("2026-01-09T14:30:22.123Z") == 1_767_969_022.123


def test_times_of_different_seconds_do_not_borrow_from_each_other() -> None:
    """The last second is remembered, and only that one."""
    times = [1_767_969_022.5, 1_736_433_021.25, 1_767_969_022.75]
    assert [clock.iso(time)[:19] for time in times] == [
        "2026-01-09T14:30:22",
        "2025-01-09T14:30:21",
        "2026-01-09T14:30:22",
    ]
