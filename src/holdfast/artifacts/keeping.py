"""The accepted outputs of one run's tasks as files and values: what is there of them, and loading them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from holdfast import seals
from holdfast.artifacts.bookshelf import Bookshelf
from holdfast.artifacts.files import ADDED_MAX, Files
from holdfast.artifacts.looks import Look, above_any_seal
from holdfast.artifacts.products import (
    EMPTY_REST,
    SECTION,
    UNWRITTEN,
)
from holdfast.artifacts.recent import Recent
from holdfast.artifacts.sections import Sections
from holdfast.errors import InTheWayError, UnreadableError
from holdfast.events import FileRecord
from holdfast.seals import Seal
from holdfast.state import Accepted
from holdfast.stores import protocols
from holdfast.stores.protocols import Objects
from holdfast.values import decode_json, digest


class Artifacts:
    """Reads the outputs of one run's tasks; what writes them is acceptance.py."""

    def __init__(self, tree: protocols.Files, objects: Objects, *, quick: bool = False) -> None:
        self.tree = tree
        self.objects = objects
        self.recent = Recent()
        self.books = Bookshelf(tree)
        self.sections = Sections(self.books, objects, self.recent)
        self.files = Files(tree, self.sections, quick=quick)

    # --- what is there -------------------------------------------------------------------------------------

    def rest_of(self, seal: Seal) -> str | None:
        """The reference of the value that belongs to sealed files; None if it is lost."""
        if seal.value_digest in ("", EMPTY_REST):
            return ""
        return seal.value_digest if self.objects.has(seal.value_digest) else None

    def can_heal(self, record: FileRecord) -> bool:
        """Whether a copy is there; a large one is proved only while it is put back."""
        if not record.stored:
            return False
        return (
            self.objects.has(record.sha256)
            if record.kind == "path"
            else self.objects.get(record.sha256) is not None
        )

    def can_be_kept(self, record: FileRecord) -> bool:
        """Whether a lost copy can be made from the file: what was accepted stands there, whatever is below."""
        if not record.stored or record.kind == "path":
            return False
        try:
            self.body(record)
        except LostValueError:
            return False
        return True

    # --- loading -------------------------------------------------------------------------------------------

    def load(self, accepted: Accepted) -> Any:
        """The output as consumers receive it: a fresh copy, verified against what was accepted."""
        if not accepted.files:
            return self.load_value(accepted.value, accepted.value_ref)
        loaded = {record.key: self._load_file(record) for record in accepted.files}
        if set(loaded) == {""}:
            return loaded[""]
        value = self.load_value(accepted.value, accepted.value_ref)
        return {**value, **loaded}

    def load_value(self, value: msgspec.Raw, ref: str) -> Any:
        if not ref:
            return decode_json(value) if value else {}
        stored = self.objects.get(ref)
        if stored is None:
            raise LostValueError(f"the value {ref[:12]} is missing from objects/ or damaged")
        return decode_json(stored)

    def _load_file(self, record: FileRecord) -> Any:
        if record.kind == "path":
            self.files.has_large = True
            if not self.files.is_still(record):
                raise LostValueError(f"{record.path} is no longer what was accepted")
            return self.tree.root / record.path
        body = self.body(record)
        author = seals.author_body(body, record.newline_added)
        if record.kind in ("text", SECTION, UNWRITTEN):
            return author.decode()
        return decode_json(author) if record.kind == "json" else author

    def body(self, record: FileRecord) -> bytes:
        """The accepted bytes: just accepted, or from the work tree if they are still those, else from objects/."""
        if record.kind in (SECTION, UNWRITTEN):
            return self._section(record)
        recent = self.recent.get(record.sha256)
        if recent is not None:
            return recent
        try:
            data = self.tree.read(record.path, record.size + ADDED_MAX)
        except UnreadableError:
            data = b""
        for candidate in (*above_any_seal(record.path, data), data[: record.size]):  # there may be more below
            if digest(candidate) == record.sha256:
                return candidate
        stored = self.objects.get(record.sha256)
        if stored is None:
            raise LostValueError(f"{record.path} is no longer what was accepted, and objects/ has no copy")
        return stored

    def _section(self, record: FileRecord) -> bytes:
        body = self.sections.body(record)
        if body is None:
            raise LostValueError(f"a section of {record.path} is neither in objects/ nor in the file any more")
        return body

    def keep_again(self, record: FileRecord) -> bool:
        """Copy a file that is whole in the work tree into objects/ once more; False if it is not whole there."""
        try:
            if record.kind != "path":
                self.objects.put(self.body(record), record.sha256)
                return True
            above = first_bytes(self.tree.blocks(record.path), record.size)
            return self.objects.put_blocks(above, record.sha256) is not None
        except (LostValueError, InTheWayError, UnreadableError):
            return False

    def is_spare(self, found: Look, run_id: str) -> bool:
        """Whether a file is another run's, whole, and in objects/: with `overwrite`, nothing is lost with it."""
        seal = found.seal
        is_theirs = seal is not None and seal.run != run_id and digest(found.body) == seal.sha256
        return is_theirs and seal is not None and self.objects.get(seal.sha256) is not None

    def is_stored(self, accepted: Accepted) -> bool:
        """Whether a value kept by hash is still there."""
        return not accepted.value_ref or self.objects.has(accepted.value_ref)


def first_bytes(blocks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The first `size` bytes of a file."""
    for block in blocks:
        yield block[:size]
        size -= min(size, len(block))
        if not size:
            return


class LostValueError(Exception):
    """An accepted output that cannot be read back any more."""
