"""What a view claims: each task's status in one vocabulary, whoever wrote it and in which words. Pure.

A claim proves nothing. It is compared with the files (is it done?) or with the moment at which the view was drawn
(what does somebody want?), and never obeyed by itself. A view that cannot be read claims nothing and says why.
"""

from __future__ import annotations

import msgspec

from holdfast.pipeline.nodes import Path
from holdfast.state import BLOCKED, COMPLETED, FAILED, IN_PROGRESS, NEEDS_REVIEW, PENDING, SKIPPED

_SYMBOLS = {
    COMPLETED: "✅ ✔ ✓ ☑",
    IN_PROGRESS: "⏳ ⌛ 🔄",
    FAILED: "❌ ✗ ✘",
    NEEDS_REVIEW: "⚠",
    PENDING: "— – - ☐",
}
_WORDS = {
    COMPLETED: ["completed", "complete", "done", "finished", "yes", "x", "[x]", "ok"],
    IN_PROGRESS: ["in progress", "running", "started", "wip"],
    FAILED: ["failed", "error"],
    NEEDS_REVIEW: ["needs human review", "needs review", "review", "waits for an answer"],
    PENDING: ["not started", "pending", "todo", "to do", "open", "no", "[ ]"],
    BLOCKED: ["blocked"],
    SKIPPED: ["skipped"],
}
_STATUS_OF_SYMBOL = {symbol: status for status, symbols in _SYMBOLS.items() for symbol in symbols.split()}
_STATUS_OF_WORD = {word: status for status, words in _WORDS.items() for word in words}
_CELL_MAX = 200
_TOLD_MAX = 40


class Claims(msgspec.Struct, frozen=True):
    """What one view says of a run."""

    source: str  # checkpoint.md | todos.db
    run_id: str = ""  # these two from the stamp; empty and 0 without one
    seq: int = 0
    edited: bool = False  # there is a stamp, and it does not fit
    pipeline: str = ""
    tasks: dict[str, str] = {}  # task id -> a status of state.py
    items: dict[str, list[Path]] = {}  # fan-out variable -> paths, in the view's order
    contradictions: tuple[str, ...] = ()  # tasks of which it says two things: they are not in `tasks`
    ignored: tuple[str, ...] = ()  # rows, columns and cells that name nothing known
    problem: str = ""  # why it could not be read

    @property
    def is_stamped(self) -> bool:
        return bool(self.run_id)


def status_of(cell: str) -> str | None:
    """The status that the text of a cell stands for, None if it stands for none.

    A symbol, a word, or both: what follows a symbol is a remark, unless it is a status of its own. Then `-` gives
    way to it (`- blocked`), and anything else is a contradiction, which says nothing.
    """
    text = " ".join(cell[:_CELL_MAX].replace("\ufe0f", "").casefold().replace("_", " ").split())
    plain = text.strip("*`~ ")
    word = _word_status(plain)
    if word is not None:
        return word
    symbol, rest = _STATUS_OF_SYMBOL.get(plain[:1]), plain[1:]
    if symbol is None or (plain[0] in "-–—" and rest[:1].strip()):  # a dash within a word, or before a number
        return None
    said = _word_status(rest.strip())
    if said is None or said == symbol:
        return symbol
    return said if symbol == PENDING else None


def _word_status(text: str) -> str | None:
    """By the words before the first comma or bracket: `pending, was cut off`."""
    return _STATUS_OF_WORD.get(text) or _STATUS_OF_WORD.get(text.partition(",")[0].partition(" (")[0].strip())


class Told:
    """A list of remarks for people that stays short, however long the text is that they are about."""

    def __init__(self) -> None:
        self._lines: dict[str, None] = {}
        self._more = 0

    def add(self, line: str) -> None:
        if line in self._lines:
            return
        if len(self._lines) < _TOLD_MAX:
            self._lines[line] = None
        else:
            self._more += 1

    def lines(self) -> tuple[str, ...]:
        more = (f"... and {self._more} more",) if self._more else ()
        return (*self._lines, *more)
