"""Lines for the tests of the journal."""

from holdfast.journal.codec import NO_SUM, encode_line

TS = "2026-01-09T14:30:22.123Z"


def make_lines(count: int, *, extra: bytes = b"") -> list[bytes]:
    """Lines 1 to `count` of a whole journal, with events e1, e2, ..."""
    lines, prev = [], NO_SUM
    for seq in range(1, count + 1):
        line, prev = encode_line(seq, TS, b'{"event":"e%d"%s}' % (seq, extra), prev)
        lines.append(line)
    return lines
