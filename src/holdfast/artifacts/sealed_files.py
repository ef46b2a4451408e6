"""Writes files of the work tree with their seals: staged beside their place, then renamed into it.

A file with its seal inside is one rename. Of one that has its seal beside it the seal lands last: without it the
file proves nothing, and the old seal does not fit the new bytes. A file that has no copy is always synced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from holdfast import seals
from holdfast.artifacts.keeping import Artifacts
from holdfast.artifacts.products import for_file
from holdfast.events import FileRecord
from holdfast.seals import Seal
from holdfast.stores.protocols import Staged


class SealedFiles:
    """Stages, lands and puts back the files of one project."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts
        self._tree = artifacts.tree
        self._objects = artifacts.objects

    def stage(
        self, record: FileRecord, body: bytes | Path | None, seal: Seal, *, sync: bool = False
    ) -> tuple[FileRecord, tuple[Staged, ...]]:
        """Have a file ready to land; gives its record with its mark, and what is to be renamed, in that order.

        A `Path` is a large file that a step wrote; it is ours from now on. None is a file that lies in its place
        already, and only gets another seal.
        """
        line, sync = seals.write_seal(for_file(seal, record)), sync or not record.stored
        if seals.is_inline(record.path):
            body = self._artifacts.body(record) if body is None else body
            return self._stage(record, body, line, sync=sync)
        if body is None:
            return record, (self.stage_beside(record.path, line, sync=sync),)
        record, staged = self._stage(record, body, b"", sync=sync)
        try:
            return record, (*staged, self.stage_beside(record.path, line, sync=sync))
        except BaseException:
            self.discard(staged)
            raise

    def _stage(
        self, record: FileRecord, body: bytes | Path, tail: bytes, *, sync: bool
    ) -> tuple[FileRecord, tuple[Staged, ...]]:
        staged = self._tree.stage(record.path, body, tail, sync=sync)
        return replace(record, mark=staged.found.mark), (staged,)

    def stage_beside(self, path: str, lines: bytes, *, sync: bool) -> Staged:
        """Have the seal beside a file ready to land."""
        return self._tree.stage(seals.seal_path(path), lines, sync=sync)

    def land(self, staged: Iterable[Staged]) -> None:
        """Rename what is staged into its place, one after the other."""
        for one in staged:
            self._tree.land(one)

    def discard(self, staged: Iterable[Staged]) -> None:
        """Remove what is staged and is not going to land."""
        for one in staged:
            self._tree.discard(one)

    def write(
        self, record: FileRecord, body: bytes | Path | None, seal: Seal, *, sync: bool = False
    ) -> FileRecord:
        """Stage a file and land it at once; gives its record with its mark."""
        record, staged = self.stage(record, body, seal, sync=sync)
        self._land_or_discard(staged)
        return record

    def write_beside(self, record: FileRecord, seal: Seal) -> None:
        """Have the seal beside a file where that is going to be."""
        line = seals.write_seal(for_file(seal, record))
        self._land_or_discard([self.stage_beside(record.path, line, sync=True)])

    def _land_or_discard(self, staged: Sequence[Staged]) -> None:
        try:
            self.land(staged)
        except BaseException:
            self.discard(staged)
            raise

    def put_back(self, record: FileRecord, seal: Seal) -> bool:
        """Put an accepted file back from objects/; False if no whole copy is there."""
        if not record.stored:
            return False
        if record.kind == "path":
            return self._put_back_large(record, seal)
        body = self._objects.get(record.sha256)
        if body is None:
            return False
        self.write(record, body, seal)
        return True

    def _put_back_large(self, record: FileRecord, seal: Seal) -> bool:
        self._artifacts.files.has_large = True
        temp = self._tree.fresh_path()
        if not self._objects.copy_to(record.sha256, temp):
            return False
        self._artifacts.files.note_proved(record, self.write(record, temp, seal).mark)
        return True
