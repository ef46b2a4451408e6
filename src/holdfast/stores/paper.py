"""Stores that only write down what would be done to the disk: what a dry run acts on.

The very code that acts on the work tree and on objects/ acts on these instead, so what they wrote down is what it
does. They read the disk as it is, but for what they know better: names that would be gone or new, and of the bytes
that would be written the latest, up to a few megabytes.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from holdfast.layout import PACK_SUFFIX
from holdfast.stores import asides
from holdfast.stores.objects import PACKED_MAX, LocalObjects
from holdfast.stores.run_objects import pack_number
from holdfast.stores.tree import WorkTree

TIME = "TIME"
"""Stands for the moment in the name of a file that is set aside."""

SET_ASIDE, COPY, WRITE, RENAME, APPEND, CUT, DELETE, KEEP = (
    "set aside",  # moved away, with all that is in it
    "copy",  # a second one is made; the file stays
    "write",  # made, or put in the place of the old one
    "rename",
    "append",
    "cut",  # the torn end is kept elsewhere and cut off
    "delete",
    "keep",  # a copy in objects/
)

_HELD_BYTES_MAX = 16 << 20


class Action(msgspec.Struct, frozen=True):
    """One change on the disk; paths are relative to the project."""

    do: str
    path: str
    to: str = ""


class Paper:
    """The list of what would be done, in that order."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.actions: list[Action] = []

    def note(self, do: str, path: str | Path, to: str | Path = "") -> None:
        self.actions.append(Action(do, self._shown(path), self._shown(to) if to else ""))

    def set_aside(self, path: str | Path, into: Path) -> Path:
        """As `asides.set_aside`."""
        to = into / asides.aside_name(os.path.basename(path), at=TIME)
        self.note(SET_ASIDE, path, to)
        return to

    def copy_aside(self, path: str | Path, into: Path, *, label: str, do: str = COPY) -> Path:
        """As `asides.keep_copy`, and with CUT as `asides.cut_tail`."""
        to = into / asides.aside_name(os.path.basename(path), label, at=TIME)
        self.note(do, path, to)
        return to

    def back_up(self, path: str | Path, *, do: str = SET_ASIDE) -> str:
        """As `asides.back_up`."""
        to = os.path.join(os.path.dirname(path), asides.backup_name(os.path.basename(path), at=TIME))
        self.note(do, path, to)
        return to

    def _shown(self, path: str | Path) -> str:
        return os.path.relpath(path, self.root) if os.path.isabs(path) else os.fspath(path)


class Held:
    """Bytes by name, the latest few megabytes of them."""

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}
        self._size = 0

    def put(self, name: str, data: bytes) -> None:
        self.drop(name)
        self._data[name] = data
        self._size += len(data)
        while self._size > _HELD_BYTES_MAX and len(self._data) > 1:  # the newest is asked for next
            self.drop(next(iter(self._data)))

    def get(self, name: str) -> bytes | None:
        return self._data.get(name)

    def drop(self, name: str) -> None:
        self._size -= len(self._data.pop(name, b""))


class PaperTree(WorkTree):
    """A work tree that stays as it is."""

    def __init__(self, root: Path, tmp: Path, paper: Paper) -> None:
        super().__init__(root, tmp)
        self._paper = paper
        self._new: dict[str, os.stat_result] = {}
        self._gone: set[str] = set()
        self._touched: dict[str, set[str]] = {}  # folder -> names in it that are new or gone
        self._origin: dict[str, str] = {}  # new name -> where the bytes still are
        self._held = Held()
        self._staged: dict[str, tuple[bytes | None, os.stat_result]] = {}
        self._numbers = itertools.count(1)

    def write(self, rel: str, data: bytes, *, sync: bool) -> os.stat_result:
        self._paper.note(WRITE, rel)
        status = self._appears(rel, len(data))
        self._held.put(rel, data)
        return status

    def stage(self, rel: str, data: bytes, *, sync: bool) -> tuple[str, os.stat_result]:
        return self._staged_as(data)

    def stage_file(self, source: Path, tail: bytes, *, sync: bool) -> tuple[str, os.stat_result]:
        return self._staged_as(None)

    def _staged_as(self, data: bytes | None) -> tuple[str, os.stat_result]:
        number = next(self._numbers)
        status = _file(-number, len(data or b""))
        temp = f"staged-{number}"
        self._staged[temp] = (data, status)
        return temp, status

    def land(self, temp: str, rel: str, *, sync: bool) -> None:
        self._paper.note(WRITE, rel)
        data, status = self._staged.pop(temp)
        self._appears(rel, status.st_size)
        self._new[rel] = status
        if data is not None:
            self._held.put(rel, data)

    def discard(self, temp: str) -> None:
        self._staged.pop(temp, None)

    def fresh_temp(self) -> Path:
        return self._tmp / "paper"

    def make_durable(self, rel: str) -> None:
        """Nothing that anybody would see."""

    def remove(self, rel: str, *, sync: bool = False) -> None:
        if self.exists(rel):
            self._paper.note(DELETE, rel)
            self._vanishes(rel)

    def rename(self, rel: str, new_rel: str, *, sync: bool = False) -> None:
        self._paper.note(RENAME, rel, new_rel)
        origin, held = self._origin.pop(rel, rel), self._held.get(rel)
        self._vanishes(rel)
        self._appears(new_rel, 0)
        self._origin[new_rel] = origin
        if held is not None:
            self._held.put(new_rel, held)

    def back_up(self, rel: str) -> str:
        self._vanishes(rel)
        return self._paper.back_up(rel)

    def copy_beside(self, rel: str) -> str:
        return self._paper.back_up(rel, do=COPY)

    def copy_aside(self, rel: str, into: Path, *, label: str) -> Path:
        return self._paper.copy_aside(rel, into, label=label)

    def set_aside(self, rel: str, into: Path) -> str:
        self._vanishes(rel)
        return f"{into.name}/{self._paper.set_aside(rel, into).name}"

    def stat(self, rel: str) -> os.stat_result | None:
        if rel in self._gone:
            return None
        return self._new.get(rel) or super().stat(rel)

    def names(self, folder: str) -> frozenset[str]:
        prefix = f"{folder}/" if folder else ""
        touched = self._touched.get(folder, set())
        new = frozenset(name for name in touched if prefix + name in self._new)
        return super().names(folder) - touched | new

    def read(self, rel: str, limit: int | None = None) -> bytes:
        held = self._held.get(rel)
        return held if held is not None else super().read(self._readable(rel), limit)

    def open_read(self, rel: str) -> int:
        held = self._held.get(rel)
        return _descriptor_of(held) if held is not None else super().open_read(self._readable(rel))

    def _readable(self, rel: str) -> str:
        if rel in self._gone:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), rel)
        return self._origin.get(rel, rel)

    def _appears(self, rel: str, size: int) -> os.stat_result:
        self._touch(rel)
        self._gone.discard(rel)
        self._origin.pop(rel, None)
        self._held.drop(rel)
        self._new[rel] = _file(len(self._paper.actions), size)
        return self._new[rel]

    def _vanishes(self, rel: str) -> None:
        self._touch(rel)
        self._gone.add(rel)
        self._new.pop(rel, None)
        self._held.drop(rel)

    def _touch(self, rel: str) -> None:
        folder, _, name = rel.rpartition("/")
        self._touched.setdefault(folder, set()).add(name)


def _file(number: int, size: int) -> os.stat_result:
    """What a new file looks like; `number` is in place of the inode: each writing gives another file."""
    fields = (stat.S_IFREG | 0o644, number, 0, 1, 0, 0, size, 0, 0, 0)
    return os.stat_result(fields, {"st_mtime_ns": 0, "st_ctime_ns": 0})


def _descriptor_of(data: bytes) -> int:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        return os.dup(file.fileno())


class PaperObjects(LocalObjects):
    """The objects of a run; what would be added is remembered, and the newest of it kept in memory."""

    def __init__(self, objects: Path, run_id: str, tmp: Path, quarantine: Path, paper: Paper) -> None:
        super().__init__(objects, run_id, tmp, quarantine, read_only=True)
        self._paper = paper
        self._held = Held()
        self._gone: set[str] = set()  # packs that would be set aside

    def put(self, data: bytes, sha256: str | None = None) -> str:
        sha = sha256 or hashlib.sha256(data).hexdigest()
        if self._note(sha, len(data)):
            self._held.put(sha, data)
        return sha

    def put_blocks(self, blocks: Iterable[bytes], sha256: str = "") -> tuple[str, int] | None:
        hasher, size = hashlib.sha256(), 0
        for block in blocks:
            hasher.update(block)
            size += len(block)
        sha = hasher.hexdigest()
        if sha256 not in ("", sha):
            return None
        self._note(sha, size)
        return sha, size

    def _note(self, sha: str, size: int) -> bool:
        """Whether the object would be added: none is there, or a rotten one, which would go aside first."""
        if sha in self._trusted:
            return False
        self._trusted.add(sha)
        if self._run.get(sha) is not None:
            return False
        if self._run.has_large(sha):
            self._paper.set_aside(self._run.large(sha), self._quarantine)
        self._paper.note(KEEP, sha, self._run.large(sha) if size > PACKED_MAX else self._next_pack())
        return True

    def _next_pack(self) -> Path:
        number = 1 + max(map(pack_number, self._run.packs.keys() - self._gone), default=0)
        return self._run.folder / f"{number:04d}{PACK_SUFFIX}"

    def mend(self, *, prove: bool = True) -> None:
        for _ in self._run.prove() if prove else ():
            pass
        for pack in [pack for pack in self._run.packs.values() if pack.is_damaged]:
            self._run.collect()
            self._paper.set_aside(pack.path, self._quarantine)
            if not pack.objects:  # else what is whole in it goes into the next pack first
                self._gone.add(pack.path.name)

    def get(self, sha: str) -> bytes | None:
        held = self._held.get(sha)
        return held if held is not None else super().get(sha)

    def has(self, sha: str) -> bool:
        return sha in self._trusted or super().has(sha)

    def copy_to(self, sha: str, dest: Path) -> bool:
        return self.is_whole(sha)
