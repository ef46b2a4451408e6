"""The lines of a run's journal, as they are and as they come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from holdfast.errors import CheckpointCorruptionError
from holdfast.journal.lines import Line
from holdfast.layout import RunLayout
from holdfast.runs.opening import open_journal
from holdfast.stores.readable import is_there

POLL_S = 0.2

Remark = Callable[[str], None]


def all_lines(run: RunLayout, after: int, remark: Remark) -> Iterator[Line]:
    """All lines after number `after`; what is damaged is remarked on."""
    reading, has_any = open_journal(run).read(), False
    for line in reading:
        has_any = True
        if line.seq > after:
            yield line
    for damage in reading.damage:
        remark(f"The journal is damaged: {damage}.")
    if not has_any:
        fix = f"What is left of it: holdfast verify {run.dir.name}"
        raise CheckpointCorruptionError("The journal has no readable line.", fix=fix)


def followed(run: RunLayout, after: int, goes_on: Callable[[], bool], remark: Remark) -> Iterator[Line]:
    """All lines after number `after`, then those that are added, as long as the run has its folder.

    If the journal is repaired meanwhile, nothing comes twice.
    """
    journal, position, last = open_journal(run), None, after
    while goes_on():
        reading = journal.read(position)
        for line in reading:
            if line.seq > last:
                last = line.seq
                yield line
        position = reading.position
        if not is_there(run.dir):
            remark(f"Run {run.dir.name} is no longer on record: it was cleaned, or its folder removed.")
            return
        time.sleep(POLL_S)
