"""Words as people say them, and as UTF-8 can hold them. Pure."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """`1 line`, `2 lines`. Where more than the noun bends: `counted(n, "line is lost", "lines are lost")`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def writable(text: str) -> str:
    """`text` with each lone surrogate spelt out: half a character, as `json.loads` gives it, fits into no file."""
    return text.encode("utf-8", "backslashreplace").decode()


def message_of(error: BaseException) -> str:
    """What an exception says; other people's classes may fail even at that."""
    try:
        return writable(str(error))
    except Exception as failure:
        return f"its message cannot be had ({type(failure).__name__})"
