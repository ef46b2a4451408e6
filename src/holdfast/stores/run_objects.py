"""The objects of one run, found and read. Read-only; whoever writes is in `objects.py`.

    objects/RUN_ID/NNNN.pack    up to 1 MiB each, one pack for each process that wrote (`packs.py` has the format)
    objects/RUN_ID/HASH         larger ones, one file each, named by the hash of its bytes

An object is believed only after hashing. What is found damaged is told in `damage`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.layout import PACK_SUFFIX
from holdfast.stores import disk, readable
from holdfast.stores.packs import Pack

_BLOCK = 1 << 20
_PACK_NAME = re.compile(rf"(\d+){re.escape(PACK_SUFFIX)}")


class RunObjects:
    """What one run has in objects/."""

    def __init__(self, folder: Path, damage: list[str]) -> None:
        self.folder = folder
        self.packs: dict[str, Pack] = {}  # by file name, oldest first
        self._damage = damage
        self._is_listed = False

    def refresh(self) -> None:
        """Take in what was written since the last look."""
        self._is_listed = True
        for name in pack_names(self.folder):
            self.packs.setdefault(name, Pack(self.folder / name)).refresh()
        self.collect()

    def collect(self) -> None:
        """Tell what was found damaged in the packs."""
        for pack in self.packs.values():
            self._damage += pack.damage
            pack.damage.clear()

    def pack_with(self, sha: str) -> Pack | None:
        """The pack that names this object; looked for anew if none is known."""
        found = self.known_pack(sha)
        if found is None:
            self.refresh()
            found = self.known_pack(sha)
        return found

    def known_pack(self, sha: str) -> Pack | None:
        if not self._is_listed:
            self.refresh()
        return next((pack for pack in self.packs.values() if sha in pack.objects), None)

    def get(self, sha: str) -> bytes | None:
        """The object, hashed; None if it is not there, or not whole."""
        while (pack := self.pack_with(sha)) is not None:
            data = self.read_packed(pack, sha)
            if data is not None:
                return data
        return self._read_large(sha)

    def read_packed(self, pack: Pack, sha: str) -> bytes | None:
        """The object from that pack, hashed; one that is damaged is not in the pack any more."""
        try:
            data = pack.read(sha)
        except FileNotFoundError:
            del self.packs[pack.path.name]
            return None
        self.collect()
        return data

    def prove(self) -> Iterator[tuple[str, bool]]:
        """The hash of each object in the packs, and whether its bytes are what it says."""
        self.refresh()
        for pack in list(self.packs.values()):
            for sha, is_whole in pack.prove():
                if not is_whole:
                    pack.spoil(sha)
                yield sha, is_whole

    # --- large ones ----------------------------------------------------------------------------------------

    def large(self, sha: str) -> Path:
        return self.folder / sha

    def has_large(self, sha: str) -> bool:
        """Whether a file has this name."""
        return readable.is_there(self.large(sha))

    def is_large_whole(self, sha: str) -> bool:
        """Whether the file of this name is what it says, hashed in full; it is not held in memory."""
        return hash_file(self.large(sha)) == sha

    def _read_large(self, sha: str) -> bytes | None:
        try:
            data = readable.read_file(self.large(sha))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno not in readable.UNREADABLE:
                raise
            data = b""
        if hashlib.sha256(data).hexdigest() == sha:
            return data
        self.tell_damaged(sha)
        return None

    def copy_large(self, sha: str, writer: int, name: str) -> bool:
        """Stream the object to the open file called `name`; whether what was copied is whole."""
        try:
            copied = copy_hashing(self.large(sha), writer, name)
        except OSError as error:
            if error.errno not in readable.UNREADABLE:
                raise
            copied = ""
        if copied != sha:
            self.tell_damaged(sha)
        return copied == sha

    def tell_damaged(self, sha: str) -> None:
        self._damage.append(f"large object {sha[:12]} is damaged")


def pack_names(folder: Path) -> list[str]:
    """The packs in the folder of a run, oldest first."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(filter(_PACK_NAME.fullmatch, names), key=pack_number)


def pack_number(name: str) -> int:
    found = _PACK_NAME.fullmatch(name)
    return int(found[1]) if found is not None else 0


def hash_file(path: Path) -> str:
    """The hash of a file of any size; none if it is not to be read as one."""
    try:
        fd = readable.open_regular(os.fspath(path))
    except OSError as error:
        if error.errno not in readable.UNREADABLE:
            raise
        return ""
    with readable.naming(path), os.fdopen(fd, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_hashing(source: Path, writer: int, name: str) -> str:
    """Copy a file to the open one called `name`; gives the hash of what was copied."""
    hasher = hashlib.sha256()
    with readable.opened(source) as reader:
        while block := os.read(reader, _BLOCK):
            hasher.update(block)
            disk.write_all(writer, block, name)
    return hasher.hexdigest()
