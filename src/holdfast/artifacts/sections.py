"""One section of a memory file as the output of its task: looked at, and read back.

Until its batch is written a section is in objects/ only; from then on in the file too, and either can stand in for
the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.artifacts.bookshelf import Bookshelf
from holdfast.artifacts.looks import CHANGED, EMPTY, MISSING, OF_SECTIONS, SEALED, Look, look_unread
from holdfast.artifacts.products import UNWRITTEN
from holdfast.artifacts.recent import Recent
from holdfast.errors import UnreadableError
from holdfast.events import FileRecord
from holdfast.stores.protocols import Objects
from holdfast.values import digest


class Sections:
    """The sections of one project's memory files."""

    def __init__(self, shelf: Bookshelf, objects: Objects, recent: Recent) -> None:
        self._shelf = shelf
        self._objects = objects
        self._recent = recent

    def look(self, path: str, tasks: Sequence[str]) -> Look:
        """What a memory file says of one task's section."""
        try:
            book = self._shelf.read(path)
        except UnreadableError as error:
            return look_unread(error)
        if not book.data:
            return Look(EMPTY)
        block = book.find(tasks)
        if block is None:
            return Look(MISSING, f"has no section of {tasks[0]}")
        kind, detail = OF_SECTIONS[block.kind]
        return Look(kind, detail, block.body, block.seal)

    def check(self, record: FileRecord, tasks: Sequence[str]) -> Look:
        """An accepted section as it is now."""
        found = self.look(record.path, tasks)
        same = found.kind == SEALED and digest(found.body) == record.sha256
        if record.kind == UNWRITTEN:
            whole = same or self._objects.has(record.sha256)
            return found if same else Look(SEALED if whole else MISSING, "" if whole else "was not written yet")
        if found.kind == SEALED and not same:
            return replace(found, kind=CHANGED, detail="another version than the accepted one")
        return found

    def body(self, record: FileRecord) -> bytes | None:
        """The bytes of an accepted section, from objects/ or from the file; None if both have lost them."""
        body = self._recent.get(record.sha256) or self._objects.get(record.sha256)
        if body is None:
            try:
                blocks = self._shelf.read(record.path).blocks
            except UnreadableError:
                return None
            body = next((block.body for block in blocks if block.sha256 == record.sha256), None)
        return body
