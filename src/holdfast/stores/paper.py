"""Stores that only write down what would be done to the disk: what a dry run acts on.

The very code that acts on the work tree and on objects/ acts on these instead, so what they wrote down is what it
does. They read the disk as it is, but for what they know better: names that would be gone or new, and of the bytes
that would be written the latest, up to a few megabytes.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from holdfast.errors import MISSING, UnreadableError
from holdfast.stores import asides, temporaries
from holdfast.stores.objects import LocalObjects
from holdfast.stores.protocols import FILE, Found, Staged
from holdfast.stores.tree import LocalFiles

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


class PaperTree(LocalFiles):
    """Files that stay as they are."""

    def __init__(self, root: Path, tmp: Path, quarantine: Path, paper: Paper) -> None:
        super().__init__(root, tmp, quarantine)
        self._into = quarantine
        self._paper = paper
        self._new: dict[str, Found] = {}
        self._gone: set[str] = set()
        self._touched: dict[str, set[str]] = {}  # folder -> names in it that are new or gone
        self._origin: dict[str, str] = {}  # new name -> where the bytes still are
        self._held = Held()
        self._staged: dict[str, bytes | None] = {}
        self._numbers = itertools.count(1)

    def stage(self, path: str, body: bytes | Path, tail: bytes = b"", *, sync: bool) -> Staged:
        data = None if isinstance(body, Path) else body + tail
        number = next(self._numbers)
        handle = f"staged-{number}"
        self._staged[handle] = data
        return Staged(path, handle, sync, _file(-number, len(data or b"")))

    def land(self, staged: Staged) -> None:
        self._paper.note(WRITE, staged.path)
        data = self._staged.pop(staged.handle)
        self._appears(staged.path, staged.found.size)
        self._new[staged.path] = staged.found
        if data is not None:
            self._held.put(staged.path, data)

    def discard(self, what: Staged | Path) -> None:
        if isinstance(what, Staged):
            self._staged.pop(what.handle, None)

    def fresh_path(self, name: str = "") -> Path:
        return temporaries.fresh_output(self._tmp, name or "paper")

    def sync(self, path: str) -> None:
        """Nothing that anybody would see."""

    def remove(self, path: str, *, sync: bool = False) -> None:
        if self.look(path) is not None:
            self._paper.note(DELETE, path)
            self._vanishes(path)

    def rename(self, path: str, new: str, *, sync: bool = False) -> None:
        self._paper.note(RENAME, path, new)
        origin, held = self._origin.pop(path, path), self._held.get(path)
        self._vanishes(path)
        self._appears(new, 0)
        self._origin[new] = origin
        if held is not None:
            self._held.put(new, held)

    def copy_aside(self, path: str, *, label: str = "") -> str:
        if not label:
            return self._paper.back_up(path, do=COPY)
        return f"{self._into.name}/{self._paper.copy_aside(path, self._into, label=label).name}"

    def set_aside(self, path: str, *, beside: bool = False) -> str:
        self._vanishes(path)
        if beside:
            return self._paper.back_up(path)
        return f"{self._into.name}/{self._paper.set_aside(path, self._into).name}"

    def look(self, path: str) -> Found | None:
        if path in self._gone:
            return None
        return self._new.get(path) or super().look(path)

    def names(self, folder: str) -> frozenset[str]:
        prefix = f"{folder}/" if folder else ""
        touched = self._touched.get(folder, set())
        new = frozenset(name for name in touched if prefix + name in self._new)
        return super().names(folder) - touched | new

    def read(self, path: str, limit: int | None = None) -> bytes:
        held = self._held.get(path)
        return held if held is not None else super().read(self._readable(path), limit)

    def tail(self, path: str, size: int) -> bytes:
        held = self._held.get(path)
        return held[-size:] if held is not None else super().tail(self._readable(path), size)

    def blocks(self, path: str | Path) -> Iterator[bytes]:
        if isinstance(path, Path):
            return super().blocks(path)
        held = self._held.get(path)
        return iter((held,)) if held is not None else super().blocks(self._readable(path))

    def _readable(self, path: str) -> str:
        if path in self._gone:
            raise UnreadableError(path, MISSING, "it would be gone")
        return self._origin.get(path, path)

    def _appears(self, rel: str, size: int) -> Found:
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


def _file(number: int, size: int) -> Found:
    """What a new file looks like; `number` is in place of the inode: each writing gives another file."""
    return Found(FILE, size, f"{number}.{size}")


class PaperObjects(LocalObjects):
    """The objects of a run; what would be added is remembered, and the newest of it kept in memory."""

    def __init__(self, objects: Path, run_id: str, tmp: Path, quarantine: Path, paper: Paper) -> None:
        super().__init__(objects, run_id, tmp, quarantine, read_only=True)
        self._paper = paper
        self._held = Held()

    def put(self, data: bytes, sha256: str | None = None) -> str:
        sha = sha256 or hashlib.sha256(data).hexdigest()
        if self._note(sha):
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
        self._note(sha)
        return sha, size

    def _note(self, sha: str) -> bool:
        """Whether the object would be added: none is there, or a rotten one, which would go aside first."""
        if sha in self._trusted:
            return False
        self._trusted.add(sha)
        if self._run.get(sha) is not None:
            return False
        if self._run.has_large(sha):
            self._paper.set_aside(self._run.large(sha), self._quarantine)
        self._paper.note(KEEP, sha, self._run.folder)
        return True

    def mend(self, *, prove: bool = True) -> None:
        for _ in self._run.prove() if prove else ():
            pass
        for pack in [pack for pack in self._run.packs.values() if pack.is_damaged]:
            self._run.collect()
            self._paper.set_aside(pack.path, self._quarantine)

    def get(self, sha: str) -> bytes | None:
        held = self._held.get(sha)
        return held if held is not None else super().get(sha)

    def has(self, sha: str) -> bool:
        return sha in self._trusted or super().has(sha)

    def copy_to(self, sha: str, dest: Path) -> bool:
        return self.is_whole(sha)
