"""Files in memory, which lose what was not synced when told to `crash()`; and ones that fail when told to."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import MISSING, TOO_LARGE, InTheWayError, StorageError, UnreadableError, UsageError
from holdfast.stores import atomic, disk
from holdfast.stores.protocols import FILE, FOLDER, Claimed, Files, Found, Staged

_LABEL, _TIME = "quarantine", "20000101T000000Z"


class _File:
    """Bytes, and what of them is on the medium."""

    def __init__(self, data: bytes, number: int, *, synced: bool) -> None:
        self.data = data
        self.number = number
        self.synced: bytes | None = data if synced else None


class MemoryFiles:
    """See `Files`. Names are durable when their folder was synced, bytes when their file was.

    Large files are written to real paths, which nothing but `stage` and `blocks` reads.
    """

    def __init__(self, root: Path = Path("/memory")) -> None:
        self.root = root
        self.files: dict[str, _File] = {}
        self._durable: dict[str, _File] = {}
        self._staged: dict[str, _File] = {}
        self._mutex = threading.RLock()
        self._numbers = itertools.count(1)
        self._fresh: Path | None = None

    def crash(self) -> None:
        """Lose what was not synced: names as they were, files of which nothing was written out empty."""
        with self._mutex:
            self._staged.clear()
            self.files = dict(self._durable)
            for file in self.files.values():
                file.data = file.synced = file.synced or b""

    def close(self) -> None:
        if self._fresh is not None:
            disk.remove_tree(str(self._fresh))
            self._fresh = None

    # --- reading -------------------------------------------------------------------------------------------

    def look(self, path: str) -> Found | None:
        with self._mutex:
            self._checked(path)
            file = self.files.get(path)
            if file is not None:
                size = len(file.data)
                return Found(FILE, size, f"{file.number:x}.{size:x}")
            return Found(FOLDER, 0, path) if self.names(path) else None

    def names(self, folder: str) -> frozenset[str]:
        prefix = f"{folder}/" if folder else ""
        with self._mutex:
            below = [path[len(prefix) :] for path in self.files if path.startswith(prefix)]
        return frozenset(path.partition("/")[0] for path in below)

    def read(self, path: str, limit: int | None = None) -> bytes:
        with self._mutex:
            self._checked(path)
            data = self._file(path).data
        if limit is not None and len(data) > limit:
            raise UnreadableError(path, TOO_LARGE, f"File is larger than {limit} bytes")
        return data

    def tail(self, path: str, size: int) -> bytes:
        return self.read(path)[-size:]

    def blocks(self, path: str | Path) -> Iterator[bytes]:
        yield path.read_bytes() if isinstance(path, Path) else self.read(path)

    def _file(self, path: str) -> _File:
        file = self.files.get(path)
        if file is None:
            raise UnreadableError(path, MISSING, os.strerror(errno.ENOENT))
        return file

    def _checked(self, path: str) -> None:
        """The folders on the way are no files, and the path leads out of nothing."""
        parts = path.split("/")
        if "\0" in path or any(part in ("", ".", "..") for part in parts):
            raise UsageError(f"{path!r} is not a path inside the project.")
        for end in range(1, len(parts)):
            above = "/".join(parts[:end])
            if above in self.files:
                raise InTheWayError(f"{above} is in the way: it is not a folder.", fix="Move it away.")

    # --- writing -------------------------------------------------------------------------------------------

    def fresh_path(self, name: str = "") -> Path:
        with self._mutex:
            if self._fresh is None:
                self._fresh = Path(tempfile.mkdtemp(prefix="holdfast-"))
            return self._fresh / f"{next(self._numbers)}-{name or 'file'}"

    def claim(self, path: Path, *, ends_line: bool = False) -> Claimed | None:
        if path.is_symlink() or not path.is_file():
            return None
        data = path.read_bytes()
        adds_newline = ends_line and bool(data) and not data.endswith(b"\n")
        data += b"\n" * adds_newline
        atomic.write_file(path, data, sync=False)  # which leaves another name of it as it was
        return Claimed(len(data), hashlib.sha256(data).hexdigest(), adds_newline)

    def stage(self, path: str, body: bytes | Path, tail: bytes = b"", *, sync: bool) -> Staged:
        if isinstance(body, Path):
            data = body.read_bytes()
            body.unlink()
        else:
            data = body
        with self._mutex:
            self._checked(path)
            file = self._made(data + tail, synced=sync)
            handle = str(file.number)
            self._staged[handle] = file
        size = len(file.data)
        return Staged(path, handle, sync, Found(FILE, size, f"{file.number:x}.{size:x}"))

    def _made(self, data: bytes, *, synced: bool = False) -> _File:
        return _File(data, next(self._numbers), synced=synced)

    def land(self, staged: Staged) -> None:
        with self._mutex:
            self._checked(staged.path)
            self._refuse_folder(staged.path)
            self.files[staged.path] = self._staged.pop(staged.handle)
            if staged.sync:
                self._sync_names(staged.path)

    def _refuse_folder(self, path: str) -> None:
        if path not in self.files and self.names(path):
            raise StorageError(f"Could not write {path}: it is a folder.")

    def discard(self, what: Staged | Path) -> None:
        if isinstance(what, Path):
            what.unlink(missing_ok=True)
        else:
            with self._mutex:
                self._staged.pop(what.handle, None)

    def append(self, path: str, data: bytes, *, size: int | None = None) -> int | None:
        with self._mutex:
            self._checked(path)
            self._refuse_folder(path)
            file = self.files.setdefault(path, self._made(b""))
            if size not in (len(file.data), None):
                return None
            file.data += data
            return len(file.data)

    def sync(self, path: str) -> None:
        with self._mutex:
            file = self._file(path)
            file.synced = file.data
            self._sync_names(path)

    def _sync_names(self, path: str) -> None:
        """All names in a folder are as durable as one of them."""
        folder = path.rpartition("/")[0]
        for name in {*self.files, *self._durable}:
            if name.rpartition("/")[0] != folder:
                continue
            if name in self.files:
                self._durable[name] = self.files[name]
            else:
                del self._durable[name]

    # --- putting out of the way ----------------------------------------------------------------------------

    def copy_aside(self, path: str, *, label: str = "") -> str:
        with self._mutex:
            data = self.read(path)
            kept_as = self._aside(path, label) if label else self._backup(path)
            self._keep(kept_as, self._made(data, synced=True))
            return kept_as

    def set_aside(self, path: str, *, beside: bool = False) -> str:
        with self._mutex:
            self._checked(path)
            if self.look(path) is None:
                self._file(path)
            kept_as = self._backup(path) if beside else self._aside(path)
            for name in [name for name in self.files if name == path or name.startswith(f"{path}/")]:
                self._keep(kept_as + name[len(path) :], self.files.pop(name))
                self._sync_names(name)
            return kept_as

    def keep(self, name: str, body: bytes | Path) -> str:
        data = body.read_bytes() if isinstance(body, Path) else body
        self.discard(body) if isinstance(body, Path) else None
        with self._mutex:
            kept_as = self._numbered(f"{_LABEL}/refused/{name}.{_TIME}")
            self._keep(kept_as, self._made(data))
            return kept_as

    def _keep(self, kept_as: str, file: _File) -> None:
        self.files[kept_as] = file
        self._sync_names(kept_as)

    def _aside(self, path: str, label: str = "") -> str:
        name = path.rpartition("/")[2]
        return self._numbered(f"{_LABEL}/{name}{'.' if label else ''}{label}.{_TIME}")

    def _backup(self, path: str) -> str:
        wanted = f"{path}.bak.{_TIME}"
        return wanted if self.look(wanted) is None else self._numbered(wanted, 2)

    def _numbered(self, wanted: str, first: int = 1) -> str:
        return next(name for n in itertools.count(first) if self.look(name := f"{wanted}.{n}") is None)

    def rename(self, path: str, new: str, *, sync: bool = False) -> None:
        with self._mutex:
            self._checked(new)
            self.files[new] = self._file(path)
            del self.files[path]
            if sync:
                self._sync_names(new)

    def remove(self, path: str, *, sync: bool = False) -> None:
        with self._mutex:
            self._checked(path)
            if self.files.pop(path, None) is not None and sync:
                self._sync_names(path)

    def require_room(self, path: str) -> None:
        self._checked(path)

    def room(self) -> tuple[int, int]:
        return 0, 0


class FailingFiles:
    """Files whose `at`-th operation that reads or changes something fails with an errno (0: none does)."""

    def __init__(self, inner: Files, at: int, *, error: int = errno.EIO, for_good: bool = False) -> None:
        self.inner = inner
        self.root = inner.root
        self.operations = 0
        self._at, self._errno, self._for_good = at, error, for_good

    def _count(self, doing: str, path: str | Path) -> None:
        self.operations += 1
        if self.operations == self._at or (self._for_good and 0 < self._at < self.operations):
            raise StorageError.from_os(OSError(self._errno, os.strerror(self._errno), str(path)), doing)

    def close(self) -> None:
        self.inner.close()

    def look(self, path: str) -> Found | None:
        self._count("look at", path)
        return self.inner.look(path)

    def names(self, folder: str) -> frozenset[str]:
        self._count("list", folder)
        return self.inner.names(folder)

    def read(self, path: str, limit: int | None = None) -> bytes:
        self._count("read", path)
        return self.inner.read(path, limit)

    def tail(self, path: str, size: int) -> bytes:
        self._count("read", path)
        return self.inner.tail(path, size)

    def blocks(self, path: str | Path) -> Iterator[bytes]:
        self._count("read", path)
        return self.inner.blocks(path)

    def fresh_path(self, name: str = "") -> Path:
        return self.inner.fresh_path(name)

    def claim(self, path: Path, *, ends_line: bool = False) -> Claimed | None:
        self._count("work on", path)
        return self.inner.claim(path, ends_line=ends_line)

    def stage(self, path: str, body: bytes | Path, tail: bytes = b"", *, sync: bool) -> Staged:
        self._count("write", path)
        return self.inner.stage(path, body, tail, sync=sync)

    def land(self, staged: Staged) -> None:
        self._count("write", staged.path)
        self.inner.land(staged)

    def discard(self, what: Staged | Path) -> None:
        self.inner.discard(what)

    def append(self, path: str, data: bytes, *, size: int | None = None) -> int | None:
        self._count("write", path)
        return self.inner.append(path, data, size=size)

    def sync(self, path: str) -> None:
        self._count("sync", path)
        self.inner.sync(path)

    def copy_aside(self, path: str, *, label: str = "") -> str:
        self._count("copy", path)
        return self.inner.copy_aside(path, label=label)

    def set_aside(self, path: str, *, beside: bool = False) -> str:
        self._count("move away", path)
        return self.inner.set_aside(path, beside=beside)

    def keep(self, name: str, body: bytes | Path) -> str:
        self._count("keep", name)
        return self.inner.keep(name, body)

    def rename(self, path: str, new: str, *, sync: bool = False) -> None:
        self._count("rename", new)
        self.inner.rename(path, new, sync=sync)

    def remove(self, path: str, *, sync: bool = False) -> None:
        self._count("remove", path)
        self.inner.remove(path, sync=sync)

    def require_room(self, path: str) -> None:
        self.inner.require_room(path)

    def room(self) -> tuple[int, int]:
        return self.inner.room()
