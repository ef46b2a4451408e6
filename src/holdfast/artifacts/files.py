"""The files of a run as they lie there now: what each is, and whether it is still what was accepted. Read-only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from holdfast import seals
from holdfast.artifacts.looks import (
    CHANGED,
    DAMAGED,
    EMPTY,
    FOREIGN,
    MISSING,
    SEAL_DAMAGED,
    SEALED,
    Look,
    above_any_seal,
    look_inline,
    look_unread,
    look_unsealed,
    refuse_newer,
)
from holdfast.artifacts.products import SECTION, UNWRITTEN
from holdfast.artifacts.sections import Sections
from holdfast.errors import InTheWayError, StorageError, UnreadableError
from holdfast.events import FileRecord
from holdfast.seals import Seal
from holdfast.stores import protocols
from holdfast.stores.readable import HELD_MAX
from holdfast.values import digest

_TAIL_BYTES = 1 << 16  # longer than any seal
_SEALS_MAX = 1 << 20
ADDED_MAX = 256 << 20
"""So many bytes more than what was accepted nobody has written by hand."""


class Files:
    """Looks at the work tree for one run; `quick` believes accepted files whose mark is unchanged, unread."""

    def __init__(self, tree: protocols.Files, sections: Sections, *, quick: bool) -> None:
        self.tree = tree
        self.sections = sections
        self.quick = quick
        self.unread: set[str] = set()  # the files that were believed so
        self.has_large = False  # whether any file was met that consumers read themselves
        self.foretold: dict[str, Look] = {}  # how files would look after what a dry run has foretold
        self._proved: dict[str, str] = {}  # the marks of large files that were read in full, and are whole

    def look(self, path: str, tasks: Sequence[str], marker: str | None, *, limit: int | None = None) -> Look:
        """What lies at `path`, read in full, for the task of these names (its own, and those it had before).

        What has more bytes than `limit` is damaged, and is not read.
        """
        if path in self.foretold:
            return self.foretold[path]
        try:
            data = self.tree.read(path, limit)
        except UnreadableError as error:
            return look_unread(error)
        if seals.is_inline(path):
            sealed = seals.take_apart(data)
            found = look_inline(sealed, tasks, marker) if data else Look(EMPTY)
            if found.seal is None:
                refuse_newer(path, seals.format_if_newer(data))
            return found
        found = self._look_beside(path, data, tasks, marker)
        # What was accepted may have been nothing: only the seal tells that from a file that was emptied.
        return found if data or found.kind == SEALED else Look(EMPTY)

    def _look_beside(self, path: str, data: bytes, tasks: Sequence[str], marker: str | None) -> Look:
        sha = digest(data)
        beside = self.seal_beside(path, sha)
        if beside is None:
            return look_unsealed(data, marker)
        if beside.task not in tasks:
            return Look(FOREIGN, f"sealed by {beside.task}", data, beside)
        if sha != beside.sha256:
            return Look(DAMAGED, "not what its seal says", data, beside)
        return Look(SEALED, "", data, beside)

    def seal_beside(self, path: str, sha: str = "") -> Seal | None:
        """The seal beside a file; of two, the one of these bytes: the file was about to be replaced."""
        for known in (path, seals.seal_path(path)):
            if known in self.foretold:
                return self.foretold[known].seal
        try:
            lines = self.tree.read(seals.seal_path(path), _SEALS_MAX).strip().splitlines()
            found = [seals.read_seal(line) for line in lines] if 0 < len(lines) <= 2 else [None]
            if found[-1] is None and lines:
                refuse_newer(seals.seal_path(path), seals.format_if_newer(lines[-1]))
            return next((seal for seal in found if seal is not None and seal.sha256 == sha), found[-1])
        except UnreadableError:
            return None

    def exists(self, path: str) -> bool:
        """Whether there is anything at this path."""
        return self.foretold[path].kind != MISSING if path in self.foretold else self.tree.look(path) is not None

    def check(self, record: FileRecord, tasks: Sequence[str]) -> Look:
        """An accepted file as it is now: SEALED if intact, else CHANGED, MISSING or DAMAGED."""
        if record.kind in (SECTION, UNWRITTEN):
            return self.sections.check(record, tasks)
        self.has_large = self.has_large or record.kind == "path"
        if self.quick and self._is_untouched(record):
            return Look(SEALED)
        if record.kind == "path" and record.path not in self.foretold:
            return self._check_large(record, tasks)
        return self._check_small(record, tasks)

    def _check_small(self, record: FileRecord, tasks: Sequence[str]) -> Look:
        found = self.look(record.path, tasks, None, limit=record.size + ADDED_MAX)
        if found.kind == SEALED:
            if found.seal is not None and found.seal.sha256 == record.sha256:  # `look` has hashed the body
                return found
            # Whole and sealed by this task, but another version: put back by someone.
            return msgspec.structs.replace(found, kind=CHANGED, detail="another version than the accepted one")
        if found.kind in (MISSING, EMPTY):
            return found
        # Where a seal was read, it is cut off already: a line more above it is somebody's.
        for body in (found.body,) if found.seal is not None else above_any_seal(record.path, found.body):
            if digest(body) == record.sha256:
                return Look(DAMAGED, SEAL_DAMAGED, body, found.seal, is_whole=True)
        if found.kind in (CHANGED, DAMAGED):
            return found
        return msgspec.structs.replace(found, kind=DAMAGED, detail=found.detail or "has no seal")

    def _is_untouched(self, record: FileRecord) -> bool:
        if not record.mark or self.is_touched(record):
            return False
        self.unread.add(record.path)
        return True

    def is_touched(self, record: FileRecord) -> bool:
        """Whether somebody has touched the file since it was written here, as far as its mark can say."""
        if not record.mark or record.path in self.foretold:
            return False
        try:
            found = self.tree.look(record.path)
        except StorageError:  # what that means is said where the file is read
            return True
        return found is None or found.mark != record.mark

    def is_still(self, record: FileRecord) -> bool:
        """Whether a large file is what was accepted; it is read only if somebody has touched it, and once."""
        if record.path in self.foretold:
            return self.foretold[record.path].kind == SEALED
        try:
            found = self.tree.look(record.path)
            mark = found.mark if found is not None else ""
            if not mark or mark in (record.mark, self._proved.get(record.path)):
                return bool(mark)
            sha, tail = hash_above(self.tree, record)
        except (InTheWayError, UnreadableError):  # also where a folder on the way is a link, or no folder
            return False
        is_whole = sha == record.sha256 and (not tail or seals.read_seal(tail) is not None)
        if is_whole:
            self._proved[record.path] = mark
        return is_whole

    def note_proved(self, record: FileRecord, mark: str) -> None:
        """A large file was put here from a copy that was read in full: it need not be read again at once."""
        self._proved[record.path] = mark

    def _check_large(self, record: FileRecord, tasks: Sequence[str]) -> Look:
        """Like `check`, without holding the whole file in memory, unless somebody may have edited it."""
        try:
            found = self.tree.look(record.path)
            if found is not None and found.mark == self._proved.get(record.path):
                return Look(SEALED)
            sha, tail = hash_above(self.tree, record)
        except UnreadableError as error:
            return look_unread(error)
        is_inline = seals.is_inline(record.path)
        seal = seals.read_seal(tail) if is_inline else self.seal_beside(record.path, sha)
        if sha == record.sha256 and seal is not None and seal.task in tasks:
            return Look(SEALED, seal=seal)
        at_end = _seal_at_end(self.tree, record.path) if is_inline else None
        if at_end is not None and at_end.task in tasks and self._can_be_held(record.path):
            return self._check_small(record, tasks)
        if sha != record.sha256:
            return Look(DAMAGED, "not what was accepted", seal=at_end or seal)
        return Look(DAMAGED, SEAL_DAMAGED, seal=seal, is_whole=True)

    def _can_be_held(self, path: str) -> bool:
        found = self.tree.look(path)
        return found is not None and found.size <= HELD_MAX


def hash_above(tree: protocols.Files, record: FileRecord, path: str = "") -> tuple[str, bytes]:
    """The hash of the first `size` bytes (what was accepted), and the rest (newline and seal).

    They are read from `path`, if the file does not lie where the record says.
    """
    hasher, left, tail = hashlib.sha256(), record.size, b""
    for block in tree.blocks(path or record.path):
        hasher.update(block[:left])
        tail += block[left:]
        left -= min(left, len(block))
        if len(tail) >= _TAIL_BYTES:
            break
    expected_tail = seals.is_inline(record.path)
    whole = left == 0 and (expected_tail or not tail)
    return (hasher.hexdigest() if whole else ""), tail


def _seal_at_end(tree: protocols.Files, path: str) -> Seal | None:
    """The seal inside a large file that is not the accepted one: it may be another's."""
    return seals.take_apart(tree.tail(path, _TAIL_BYTES)).seal
