"""A disk with a volatile cache: records what the engine does, and makes what a power cut might leave of it.

The recorder stands around the one module that changes the disk. It keeps the operations in their order, and notes
between them what the engine had told by then. A cut at any place keeps everything that a sync had made durable,
and of the rest whatever the dice say: names without data, data without names, halves of writes, zeros.

What is legal. Syncing a file keeps its data, not its name; syncing a folder keeps its names, not their data. A
rename happens whole or not at all. A folder whose own name is lost takes all in it along. `ordered` gives names
the order of a journaling file system; without it, any of the pending names may be the ones that are kept.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.stores import disk

ROOT = 0
SECTOR = 512


@dataclass
class Op:
    """One operation, on files and folders that have numbers of their own: a name may come to mean another."""

    kind: str  # data, size, names, sync, told
    on: int = ROOT  # the file or folder
    at: int = 0
    data: bytes = b""
    names: tuple[tuple[int, str, int | None], ...] = ()  # folder, name, what it names from now on
    words: str = ""


@dataclass
class Medium:
    """Records the operations on one folder and all below it."""

    root: Path
    ops: list[Op] = field(default_factory=list)
    _folders: dict[int, dict[str, int]] = field(default_factory=dict)
    _born: dict[int, bytes] = field(default_factory=dict)  # what lay there when the recording began
    _mutex: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._next = ROOT
        self._take_in(self.root)
        self._before = {number: dict(names) for number, names in self._folders.items()}

    def _take_in(self, path: Path) -> int:
        number, self._next = self._next, self._next + 1
        if path.is_dir():
            self._folders[number] = {}
            for child in sorted(path.iterdir()):
                self._folders[number][child.name] = self._take_in(child)
        else:
            self._born[number] = path.read_bytes()
        return number

    def tell(self, words: str) -> None:
        """Note that this was said to somebody: it must be true after any later cut."""
        with self._mutex:
            self.ops.append(Op("told", words=words))

    def told(self, count: int) -> list[str]:
        """What had been said when the first `count` operations were done."""
        return [op.words for op in self.ops[:count] if op.kind == "told"]

    # --- recording -----------------------------------------------------------------------------------------

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Within the block, whatever Holdfast does to the disk is recorded; nothing is really synced."""
        wrapped: dict[str, Callable[..., Any]] = {
            "open_file": self._open_file,
            "write_all": self._write_all,
            "write_at": self._write_at,
            "truncate": self._truncate,
            "rename": self._rename,
            "unlink": self._unlink,
            "rmdir": self._unlink,
            "mkdir": self._mkdir,
            "remove_tree": self._remove_tree,
            "_sync": self._sync,
        }
        before = {name: getattr(disk, name) for name in wrapped}
        for name, note in wrapped.items():
            setattr(disk, name, self._noting(before[name], note))
        try:
            yield
        finally:
            for name, function in before.items():
                setattr(disk, name, function)

    def _noting(self, function: Callable[..., Any], note: Callable[..., Op | None]) -> Callable[..., Any]:
        """The function, done and noted in one go, so that the order of the notes is that of the disk."""

        def call(*args: Any, **named: Any) -> Any:
            with self._mutex:
                is_sync = note == self._sync
                result = None if is_sync else function(*args, **named)
                op = note(*args, **named, **({"fd": result} if note == self._open_file else {}))
                if op is not None:
                    self.ops.append(op)
                return result

        return call

    def _place(self, path: str, dir_fd: int | None = None) -> tuple[int, str] | None:
        """The folder's number and the name in it; None outside the root."""
        if dir_fd is not None:
            path = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), path)
        try:
            parts = Path(os.path.abspath(path)).relative_to(self.root).parts
        except ValueError:
            return None
        number = ROOT
        for part in parts[:-1]:
            number = self._folders[number][part]
        return (number, parts[-1]) if parts else (ROOT, "")

    def _number(self, fd: int) -> int | None:
        place = self._place(os.readlink(f"/proc/self/fd/{fd}"))
        if place is None:
            return None
        return self._folders[place[0]].get(place[1]) if place[1] else ROOT

    def _names(self, *changes: tuple[int, str, int | None]) -> Op:
        for folder, name, number in changes:
            if number is None:
                self._folders[folder].pop(name, None)
            else:
                self._folders[folder][name] = number
        return Op("names", names=changes)

    def _new(self, place: tuple[int, str], *, is_folder: bool = False) -> Op:
        number, self._next = self._next, self._next + 1
        if is_folder:
            self._folders[number] = {}
        return self._names((*place, number))

    def _open_file(self, path: str, flags: int, *, fd: int, **_: Any) -> Op | None:
        place = self._place(os.readlink(f"/proc/self/fd/{fd}"))
        if place is None or place[1] in self._folders[place[0]]:
            return None
        if flags & os.O_CREAT:
            return self._new(place)
        self._take_from_step(place, Path(f"/proc/self/fd/{fd}"))
        return None

    def _take_from_step(self, place: tuple[int, str], path: Path) -> None:
        """A file that a step wrote by itself: neither its name nor its bytes were ever synced."""
        if path.is_file():
            self.ops.append(self._new(place))
            self.ops.append(Op("data", self._next - 1, 0, path.read_bytes()))

    def _write_all(self, fd: int, data: bytes, path: str = "") -> Op | None:
        number = self._number(fd)
        return None if number is None else Op("data", number, os.lseek(fd, 0, os.SEEK_CUR) - len(data), data)

    def _write_at(self, fd: int, data: bytes, offset: int, path: str = "") -> Op | None:
        number = self._number(fd)
        return None if number is None else Op("data", number, offset, data)

    def _truncate(self, fd: int, size: int, path: str = "") -> Op | None:
        number = self._number(fd)
        return None if number is None else Op("size", number, size)

    def _rename(
        self, source: str, target: str, *, source_dir: int | None = None, target_dir: int | None = None
    ) -> Op | None:
        old, new = self._place(source, source_dir), self._place(target, target_dir)
        assert old is not None and new is not None
        if old[1] not in self._folders[old[0]]:
            self._take_from_step(old, Path(f"/proc/self/fd/{target_dir}" if target_dir else "", target))
        moved = self._folders[old[0]][old[1]]
        return self._names((*old, None), (*new, moved))

    def _unlink(self, path: str, *, dir_fd: int | None = None) -> Op | None:
        place = self._place(path, dir_fd)
        return None if place is None else self._names((*place, None))

    def _mkdir(self, path: str, *, dir_fd: int | None = None) -> Op | None:
        place = self._place(path, dir_fd)
        return None if place is None else self._new(place, is_folder=True)

    def _remove_tree(self, path: str) -> Op | None:
        return self._unlink(path)

    def _sync(self, fd: int, path: str, call: Callable[[int], None]) -> Op | None:
        number = self._number(fd)
        return None if number is None else Op("sync", number)

    # --- the cut -------------------------------------------------------------------------------------------

    def cut(self, count: int, to: Path, dice: random.Random, how: str) -> None:
        """Lay out at `to` what a power cut after `count` operations might leave."""
        fate = Fate(dice, how)
        done = self.ops[:count]
        folders = {number: dict(names) for number, names in self._before.items()}
        for op in fate.names_kept(done):
            for folder, name, number in op.names:
                names = folders.setdefault(folder, {})
                if number is None:
                    names.pop(name, None)
                else:
                    names[name] = number
        self._lay_out(to, ROOT, folders, done, fate)

    def _lay_out(
        self, to: Path, number: int, folders: dict[int, dict[str, int]], done: list[Op], fate: Fate
    ) -> None:
        if number not in self._folders:
            to.write_bytes(fate.content(self._born.get(number, b""), [op for op in done if op.on == number]))
            return
        to.mkdir()
        for name, child in folders.get(number, {}).items():
            self._lay_out(to / name, child, folders, done, fate)


LOST, NAMES, DATA, ORDERED, ANY = "lost", "names", "data", "ordered", "any"
HOWS = (LOST, NAMES, DATA, ORDERED, ANY)
KILLED = "killed"
"""No power cut: the process is gone, and all that it did is there."""


@dataclass
class Fate:
    """What becomes of that which no sync had made durable."""

    dice: random.Random
    how: str

    def names_kept(self, done: list[Op]) -> list[Op]:
        """The changes of names that reached the medium, in their order."""
        synced: dict[int, int] = {}
        for place, op in enumerate(done):
            if op.kind == "sync":
                synced[op.on] = place
        changes = [(place, op) for place, op in enumerate(done) if op.kind == "names"]
        pending = [place for place, op in changes if not any(synced.get(f, -1) > place for f, _, _ in op.names)]
        kept = self._chosen(pending)
        return [op for place, op in changes if place in kept or place not in pending]

    def _chosen(self, pending: list[int]) -> set[int]:
        if self.how in (LOST, DATA):
            return set()
        if self.how in (NAMES, KILLED):
            return set(pending)
        if self.how == ORDERED:
            return set(pending[: self.dice.randint(0, len(pending))])
        return {place for place in pending if self.dice.random() < 0.5}

    def content(self, born: bytes, ops: list[Op]) -> bytes:
        """A file's bytes: what was synced, and what else happened to get there."""
        last = max((place for place, op in enumerate(ops) if op.kind == "sync"), default=-1)
        data = bytearray(born)
        for op in ops[: last + 1]:
            _apply(data, op)
        pending = [op for op in ops[last + 1 :] if op.kind in ("data", "size")]
        if self.how in (LOST, NAMES):
            return bytes(data)
        count = len(pending) if self.how in (DATA, KILLED) else self.dice.randint(0, len(pending))
        for op in pending[:count]:
            _apply(data, op)
        if count < len(pending):
            self._tear(data, pending[count])
        return bytes(data)

    def _tear(self, data: bytearray, op: Op) -> None:
        """A write that did not get there whole: its beginning, any of its sectors, or nothing but room for it."""
        if op.kind != "data":
            return
        part = self.dice.randint(0, len(op.data))
        torn = self.dice.choice((op.data[:part], b"\0" * part, b""))
        _apply(data, Op("data", at=op.at, data=torn))
        for start, end in _sectors(op) if not torn else ():
            if self.dice.random() < 0.5:
                _apply(data, Op("data", at=start, data=op.data[start - op.at : end - op.at]))


def _sectors(op: Op) -> Iterator[tuple[int, int]]:
    """Where the parts of a write begin and end that reach the medium one by one, in any order."""
    start = op.at
    while start < op.at + len(op.data):
        end = min(start - start % SECTOR + SECTOR, op.at + len(op.data))
        yield start, end
        start = end


def _apply(data: bytearray, op: Op) -> None:
    if op.kind == "data":
        data.extend(b"\0" * (op.at - len(data)))
        data[op.at : op.at + len(op.data)] = op.data
    elif op.kind == "size":
        del data[op.at :]
        data.extend(b"\0" * (op.at - len(data)))
