"""The lines of a run's journal, as they are and as they come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.errors import CheckpointCorruptionError
from holdfast.journal.scan import Line, scan
from holdfast.stores.readable import is_there

POLL_S = 0.2

Remark = Callable[[str], None]


def all_lines(journal: Path, after: int, remark: Remark) -> Iterator[Line]:
    """All lines after number `after`; what is damaged is remarked on."""
    reading, has_any = scan(journal), False
    for line in reading:
        has_any = True
        if line.seq > after:
            yield line
    for damage in reading.damage:
        remark(f"The journal is damaged: {damage}.")
    if not has_any:
        fix = f"What is left of it: holdfast verify {journal.parent.name}"
        raise CheckpointCorruptionError("The journal has no readable line.", fix=fix)


def followed(journal: Path, after: int, goes_on: Callable[[], bool], remark: Remark) -> Iterator[Line]:
    """All lines after number `after`, then those that are added, as long as the run has its folder.

    If the journal is repaired meanwhile, nothing comes twice.
    """
    position, last = None, after
    while goes_on():
        reading = scan(journal, position)
        for line in reading:
            if line.seq > last:
                last = line.seq
                yield line
        position = reading.position
        if not is_there(journal.parent):
            remark(f"Run {journal.parent.name} is no longer on record: it was cleaned, or its folder removed.")
            return
        time.sleep(POLL_S)
