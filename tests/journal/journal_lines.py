"""Lines, and one who appends them, for the tests of the journal in a file."""

from typing import Any, Self

from holdfast.journal.lines import NO_SUM, encode_line
from holdfast.journal.log import LocalJournal
from holdfast.stores.protocols import Position
from holdfast.values import encode_json

TS = "2026-01-09T14:30:22.123Z"


def make_lines(count: int, *, extra: bytes = b"") -> list[bytes]:
    """Lines 1 to `count` of a whole journal, with events e1, e2, ..."""
    lines, prev = [], NO_SUM
    for seq in range(1, count + 1):
        line, prev = encode_line(seq, TS, b'{"event":"e%d"%s}' % (seq, extra), prev)
        lines.append(line)
    return lines


class Appender(LocalJournal):
    """A journal that appends one event at a time, durably, and knows where it is."""

    position: Position

    def append(self, event: dict[str, Any]) -> int:
        batch = self.begin()
        seq = batch.add(encode_json(event), TS)
        self.position = batch.commit()
        self.sync()
        return seq

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
