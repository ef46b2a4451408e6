"""Large objects: one file each, `objects/loose/ab/cdef...`, named by the hash of its bytes.

Crash story: a file is whole, and durable, before it has its name. It is believed only after hashing.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from holdfast.layout import loose_path
from holdfast.stores import asides, atomic, disk, readable

_BLOCK = 1 << 20


class LooseObjects:
    """The loose objects of a project; what is found damaged is told in `damage`."""

    def __init__(self, objects: Path, tmp: Path, quarantine: Path, damage: list[str]) -> None:
        self._objects = objects
        self._tmp = tmp
        self._quarantine = quarantine
        self._damage = damage

    def path(self, sha: str) -> Path:
        return loose_path(self._objects, sha)

    def has(self, sha: str) -> bool:
        """Whether a file has this name."""
        return readable.is_there(self.path(sha))

    def is_whole(self, sha: str) -> bool:
        """Whether the file of this name is what it says, hashed in full; it is not held in memory."""
        return hash_file(self.path(sha)) == sha

    def keeps(self, sha: str) -> bool:
        """Whether it is there, whole and durable; a rotten one is out of the way then."""
        if not self.has(sha):
            return False
        path = self.path(sha)
        if self.is_whole(sha):
            disk.sync_dir(path.parent)  # whoever wrote it may have been killed just before this
            return True
        kept_as = asides.set_aside(path, self._quarantine)
        self._damage.append(f"loose object {sha[:12]} is damaged and kept as {kept_as.name}")
        return False

    def put(self, sha: str, data: bytes) -> None:
        path = self.path(sha)
        atomic.make_dirs(path.parent, sync=True)
        atomic.write_file(path, data, sync=True, tmp_dir=self._tmp)

    def take(self, temp: Path, sha: str) -> None:
        """Keep a file of ours that is not in its place yet."""
        path = self.path(sha)
        atomic.make_dirs(path.parent, sync=True)
        atomic.move_file(temp, os.fspath(path), sync=True)

    def read(self, sha: str) -> bytes | None:
        """The object, hashed; None if it is not there, or not whole."""
        try:
            data = readable.read_file(self.path(sha))
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in readable.UNREADABLE:
                raise
            data = b""
        if hashlib.sha256(data).hexdigest() == sha:
            return data
        self._tell_damaged(sha)
        return None

    def copy(self, sha: str, writer: int, name: str) -> bool:
        """Stream the object to the open file called `name`; whether what was copied is whole."""
        try:
            copied = copy_hashing(self.path(sha), writer, name)[0]
        except OSError as error:
            if error.errno not in readable.UNREADABLE:
                raise
            copied = ""
        if copied != sha:
            self._tell_damaged(sha)
        return copied == sha

    def _tell_damaged(self, sha: str) -> None:
        self._damage.append(f"loose object {sha[:12]} is damaged")


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


def copy_hashing(source: Path, writer: int, name: str) -> tuple[str, int]:
    """Copy a file to the open one called `name`; gives hash and size of what was copied."""
    hasher, size = hashlib.sha256(), 0
    with readable.opened(source) as reader:
        while block := os.read(reader, _BLOCK):
            hasher.update(block)
            size += len(block)
            disk.write_all(writer, block, name)
    return hasher.hexdigest(), size
