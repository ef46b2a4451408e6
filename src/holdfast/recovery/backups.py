"""Accepted files that were set aside, found again: proved by hash, they heal what objects/ has no copy of.

A file without a copy in objects/ is set aside as NAME.bak.TIMESTAMP when its step is to run again, and whatever
was damaged lies in quarantine. If what is recorded as accepted is missing or damaged, one of them may be it.

Crash story. What fits in memory is written anew and synced, and what was set aside stays where it is. A large file
is given its name back, durably, before it is sealed; killed in between, it is whole under its own name, with
the seal it had or with none, and the next run seals it anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from holdfast import seals
from holdfast.artifacts.files import hash_above
from holdfast.artifacts.keeping import Artifacts
from holdfast.artifacts.looks import above_any_seal
from holdfast.artifacts.products import SECTION, UNWRITTEN, for_file
from holdfast.artifacts.sealed_files import SealedFiles
from holdfast.errors import InTheWayError, UnreadableError
from holdfast.events import FileRecord
from holdfast.seals import Seal
from holdfast.stores import asides
from holdfast.values import digest

_SEAL_BYTES_MAX = 64 << 10
_ASIDE = re.compile(r"(.+?)(?:\.bak|\.seal)?\.\d{8}T\d{6}Z(?:\.\d+)?")


class Backups:
    """What was set aside of one run's files. Folders are listed once, when first asked about."""

    def __init__(self, artifacts: Artifacts, quarantine: Path) -> None:
        self._sealed_files = SealedFiles(artifacts)
        self._tree = artifacts.tree
        self._quarantine = os.path.relpath(quarantine, artifacts.tree.root)
        self._listings: dict[str, dict[str, list[str]]] = {}  # folder -> name -> what was set aside of it

    def find(self, file: FileRecord) -> str:
        """Where a file lies that is, byte for byte, what was accepted; "" if nowhere. Read-only."""
        if file.kind in (SECTION, UNWRITTEN):
            return ""
        try:
            return next((path for path in self._candidates(file) if self._holds(path, file)), "")
        except InTheWayError:  # a folder on the way is a link, or no folder: whoever writes there says so
            return ""

    def heal(self, file: FileRecord, seal: Seal) -> str:
        """Put the file back from where it lies; gives that place, "" if there is none."""
        path = self.find(file)
        if not path:
            return ""
        if file.kind != "path":
            self._sealed_files.write(file, self._body(path, file), seal, sync=True)
            return path
        _, tail = hash_above(self._tree, file, path)
        self._tree.rename(path, file.path, sync=True)
        if not seals.is_inline(file.path) or seals.read_seal(tail) != for_file(seal, file):
            self._sealed_files.write(file, None, seal)
        return path

    def _candidates(self, file: FileRecord) -> Iterator[str]:
        """What was set aside under the file's name, the latest first; of large ones only what is beside it."""
        folder, _, name = file.path.rpartition("/")
        for place in (folder,) if file.kind == "path" else (folder, self._quarantine):
            for kept in self._listed(place).get(asides.aside_stem(name), ()):
                yield f"{place}/{kept}" if place else kept

    def _listed(self, folder: str) -> dict[str, list[str]]:
        if folder not in self._listings:
            listing = self._listings[folder] = {}
            for name in sorted(self._tree.names(folder), reverse=True):
                if match := _ASIDE.fullmatch(name):
                    listing.setdefault(match[1], []).append(name)
        return self._listings[folder]

    def _holds(self, path: str, file: FileRecord) -> bool:
        found = self._tree.look(path)
        if found is None or not found.is_file:
            return False
        over = found.size - file.size
        if not 0 <= over <= (_SEAL_BYTES_MAX if seals.is_inline(file.path) else 0):
            return False
        try:
            return self._holds_large(path, file) if file.kind == "path" else bool(self._body(path, file))
        except UnreadableError:
            return False

    def _holds_large(self, path: str, file: FileRecord) -> bool:
        sha, tail = hash_above(self._tree, file, path)
        return sha == file.sha256 and (not seals.is_inline(file.path) or seals.read_seal(tail) is not None)

    def _body(self, path: str, file: FileRecord) -> bytes:
        """The accepted bytes, if they are in what was set aside."""
        bodies = above_any_seal(file.path, self._tree.read(path))
        return next((body for body in bodies if digest(body) == file.sha256), b"")
