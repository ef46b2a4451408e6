"""Room behind the last line of a journal in use: spaces between its closing brace and its newline.

The next lines are written over the room, so that neither the size of the file nor its place on the disk changes
with them, and a sync has only their bytes to write. At every moment each line is one JSON object. Whoever closes
the journal takes the rest of the room away; a killed process leaves it, and readers do not mind.

A line ends, for its position, one byte after its brace: there stands its newline, or room.
"""

from __future__ import annotations

import os

from holdfast.stores import disk

ROOM_MAX = 256 << 10
_ROOM_MIN = 16 << 10
_SPACE = b" "
_BLANK = b" \n"


def room_after(offset: int) -> int:
    """How much room to make behind a journal of that size: little behind a small one."""
    return min(max(offset, _ROOM_MIN), ROOM_MAX)


def is_room(piece: bytes) -> bool:
    """Whether nothing is written there, and something may be."""
    return piece.startswith(_SPACE) and not piece.strip(_BLANK)


def is_untouched(fd: int, offset: int) -> bool:
    """Whether the line that ends at `offset` is still the last one, with room behind it.

    No stat: one that asks for the time of the last change makes the next write note its own, and that makes the
    next sync half as slow again (Linux 6.13 and later).
    """
    return os.pread(fd, 1, offset - 1) == _SPACE if offset else False


def is_all_room(fd: int, offset: int, size: int) -> bool:
    """Whether nothing but room stands behind the line that ends at `offset`, in a file of that size."""
    if not 0 < offset <= size <= offset + ROOM_MAX + 1:
        return False
    return is_room(os.pread(fd, size - offset + 1, offset - 1))


def end_line(fd: int, offset: int, path: str) -> None:
    """Put the newline behind the line that ends at `offset`, where room or nothing may be."""
    if offset and os.pread(fd, 1, offset - 1) != b"\n":
        disk.write_at(fd, b"\n", offset - 1, path)
