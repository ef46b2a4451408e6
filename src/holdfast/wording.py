"""Numbers with their nouns, as people say them. Pure."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """`1 line`, `2 lines`. Where more than the noun bends: `counted(n, "line is lost", "lines are lost")`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
