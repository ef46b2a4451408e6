"""Memory files on the disk: read once, taken apart, replaced as a whole, and never without what they held.

Crash story: the new file is renamed over the old one, so there is always one of the two; a copy of what a person
or the disk did to the old one is durable before that. A kill in between leaves a copy too many.
"""

from __future__ import annotations

from holdfast.artifacts import memory
from holdfast.artifacts.looks import refuse_newer
from holdfast.artifacts.memory import Book
from holdfast.stores.protocols import Files, Found


class Bookshelf:
    """The memory files of one project. Safe to use from several threads."""

    def __init__(self, tree: Files) -> None:
        self._tree = tree
        self._books: dict[str, tuple[Found | None, Book]] = {}

    def read(self, path: str) -> Book:
        """The file taken apart, unless a newer Holdfast sealed it; UnreadableError as of `Files.read`.

        Each of a thousand sections asks for it: as long as nothing has touched the file, it is read once.
        """
        mark = self._tree.look(path)
        known = self._books.get(path)
        if known is not None and known[0] == mark:
            return known[1]
        book = memory.take_apart(self._tree.read(path))
        refuse_newer(path, memory.format_if_newer(book))
        if self._tree.look(path) == mark:
            self._books[path] = (mark, book)
        return book

    def replace(self, path: str, data: bytes) -> None:
        """Put other bytes in the file's place. Synced: a person's words between the sections are nowhere else."""
        staged = self._tree.stage(path, data, sync=True)
        try:
            self._tree.land(staged)
        except BaseException:
            self._tree.discard(staged)
            raise
        now = self._tree.look(path)
        if now is not None and now.mark == staged.found.mark:  # still ours
            self._books[path] = (now, memory.take_apart(data))

    def keep_copy(self, path: str, *, damaged: bool) -> str:
        """Keep the file as it is now: damage in quarantine, a person's edit beside it. Gives where."""
        return self._tree.copy_aside(path, label="memory" if damaged else "")
