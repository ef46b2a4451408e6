"""One finished file at another path: as it would be there, moved there, parked, and what is in its way.

Crash story: a file that is written anew is whole and sealed at the new path before the old one goes. One that is
renamed has its seal beside the new name first. So a kill leaves it whole and sealed at one of the two.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast import seals
from holdfast.artifacts.keeping import Artifacts
from holdfast.artifacts.looks import SEALED
from holdfast.artifacts.products import is_parked
from holdfast.artifacts.sealed_files import SealedFiles
from holdfast.events import FileRecord
from holdfast.seals import Seal
from holdfast.values import digest


class Relocating:
    """Moves files of one project's work tree; decides nothing."""

    def __init__(self, artifacts: Artifacts, sealed_files: SealedFiles) -> None:
        self._sealed_files = sealed_files
        self._artifacts = artifacts
        self._tree = artifacts.tree

    def at_another_path(self, file: FileRecord, path: str, *, as_it_is: bool) -> tuple[FileRecord, bytes | None]:
        """A file that is there as it would be at `path`: its record, and its bytes unless it is renamed."""
        new = replace(file, path=path)
        if as_it_is or (file.kind == "path" and seals.is_inline(file.path) == seals.is_inline(path)):
            return new, None
        return self.ended(new, self._artifacts.body(file))

    def ended(self, file: FileRecord, body: bytes) -> tuple[FileRecord, bytes]:
        """A file with the newline that a seal inside needs above it: its record, and its bytes."""
        if not seals.is_inline(file.path) or file.newline_added:
            return file, body
        body, added = seals.with_newline(body)
        return replace(file, size=len(body), sha256=digest(body), newline_added=added), body

    def lost_at(self, file: FileRecord, path: str) -> tuple[FileRecord, bytes | None]:
        """The record of a missing file as it would be put back at `path`; and its bytes if they change."""
        if seals.is_inline(file.path) == seals.is_inline(path) or not self._artifacts.can_heal(file):
            return replace(file, path=path), None
        return self.at_another_path(file, path, as_it_is=False)

    def move(self, old: FileRecord, new: FileRecord, body: bytes | None, seal: Seal) -> FileRecord:
        """A file at its new path, sealed, as `at_another_path` has it; the old name disappears last.

        The seal beside the old one stays for `remove_seal`.

        Killed anywhere in between, it is whole and sealed at the old path or at the new one. What else stands at
        the new one is written over: `in_the_way` names it.
        """
        if body is None:
            self._rename_large(old, new, seal)
        else:
            if new.stored and new.sha256 != old.sha256:
                self._artifacts.objects.put(body, new.sha256)
            new = self._sealed_files.write(new, body, seal)
            if old.path != new.path:
                self._tree.remove(old.path, sync=is_parked(old.path))
        return new

    def park(self, old: FileRecord, new: FileRecord) -> None:
        """Give a file, and the seal beside it, another name, whatever it holds; the seal first."""
        beside = seals.seal_path(old.path)
        if not seals.is_inline(old.path) and self._tree.look(beside) is not None:
            self._tree.rename(beside, seals.seal_path(new.path), sync=not old.stored)
        self._tree.rename(old.path, new.path, sync=not old.stored)

    def remove_seal(self, file: FileRecord, tasks: Sequence[str]) -> None:
        """Delete the seal beside a file that is there no longer, if it is still that file's."""
        if self._has_seal_of(file, tasks):
            self._tree.remove(seals.seal_path(file.path), sync=is_parked(file.path))

    def _rename_large(self, old: FileRecord, new: FileRecord, seal: Seal) -> None:
        """The seal beside it is there first: a kill then leaves no file without one."""
        if not seals.is_inline(new.path):
            self._sealed_files.write_beside(new, seal)
        self._tree.rename(old.path, new.path, sync=True)

    def in_the_way(self, record: FileRecord, tasks: Sequence[str]) -> list[str]:
        """The names that a file needs for itself and its seal, and that something else has."""
        found = self._artifacts.files.check(record, tasks)
        if seals.is_inline(record.path):
            is_ours = {record.path: found.kind == SEALED}
        else:
            is_ours = {
                record.path: found.kind == SEALED or found.is_whole,
                seals.seal_path(record.path): self._has_seal_of(record, tasks),
            }
        return [path for path, ours in is_ours.items() if not ours and self._artifacts.files.exists(path)]

    def _has_seal_of(self, record: FileRecord, tasks: Sequence[str]) -> bool:
        """Whether the seal beside a file is there, and says what the record says."""
        seal = self._artifacts.files.seal_beside(record.path, record.sha256)
        return seal is not None and seal.task in tasks and seal.sha256 == record.sha256
