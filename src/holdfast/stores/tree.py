"""The files of a project on the local disk, by relative path: never through a link, or outside the root.

Every folder on the way is opened beneath the one above it (folders.py). A file that may not be read is damaged; a
folder that may not be entered says nothing about the files in it, and stops us. errno ends here.

Crash story: before a file is synced, the names of all folders above it are, also of those that were there already.
They may have been made for a file that needs no sync, or by a process that was killed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import InTheWayError, StorageError, UsageError
from holdfast.layout import REFUSED_DIR
from holdfast.stores import asides, atomic, claimed, disk, readable, temporaries
from holdfast.stores.folders import Folders, let_in, sync_folder
from holdfast.stores.protocols import FILE, FOLDER, LINK, OTHER, Claimed, Found, Staged

_AS_WE_ARE = os.access in os.supports_effective_ids
_KINDS = {stat.S_IFREG: FILE, stat.S_IFDIR: FOLDER, stat.S_IFLNK: LINK}
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK


class LocalFiles:
    """See `Files`. Temporaries go to `tmp`; without `quarantine` nothing can be moved there."""

    def __init__(self, root: Path, tmp: Path, quarantine: Path | None = None) -> None:
        self.root = root
        self._tmp = tmp
        self._quarantine = quarantine
        self._folders = Folders(root)
        self._writable: set[str] = set()  # folders that files can be made in

    def close(self) -> None:
        self._folders.close()

    # --- reading -------------------------------------------------------------------------------------------

    def look(self, path: str) -> Found | None:
        try:
            folder, name = self._folders.parent(path)
            return found(os.stat(name, dir_fd=folder.fd, follow_symlinks=False))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _told(error, path, "look at") from error

    def names(self, folder: str) -> frozenset[str]:
        try:
            return frozenset(os.listdir(self._folders.parent(f"{folder}/x" if folder else "x")[0].fd))
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            raise _told(error, str(self.root / folder), "list") from error

    def read(self, path: str, limit: int | None = None) -> bytes:
        try:
            folder, name = self._folders.parent(path)
            return readable.read_at(name, dir_fd=folder.fd, limit=limit)
        except OSError as error:
            raise readable.unread(error, path) from error

    def tail(self, path: str, size: int) -> bytes:
        with self._opened(path) as descriptor:
            return os.pread(descriptor, size, max(0, os.fstat(descriptor).st_size - size))

    def blocks(self, path: str | Path) -> Iterator[bytes]:
        with self._opened(path) as descriptor:
            yield from readable.blocks(descriptor)

    @contextmanager
    def _opened(self, path: str | Path) -> Iterator[int]:
        try:
            descriptor = self._open(path)
            try:
                yield descriptor
            finally:
                os.close(descriptor)
        except OSError as error:
            raise readable.unread(error, os.fspath(path)) from error

    def _open(self, path: str | Path) -> int:
        if isinstance(path, Path):
            return readable.open_regular(os.fspath(path))
        folder, name = self._folders.parent(path)
        return readable.open_regular(name, dir_fd=folder.fd)

    # --- writing -------------------------------------------------------------------------------------------

    def fresh_path(self, name: str = "") -> Path:
        if self._quarantine is not None:
            with _naming(os.fspath(self._tmp), "make"):
                atomic.make_dirs(self._tmp, sync=False)
        return temporaries.fresh_output(self._tmp, name or "file")

    def claim(self, path: Path, *, ends_line: bool = False) -> Claimed | None:
        with _naming(os.fspath(path), "work on"):
            return claimed.claim(path, ends_line=ends_line)

    def stage(self, path: str, body: bytes | Path, tail: bytes = b"", *, sync: bool) -> Staged:
        try:
            if isinstance(body, Path):
                handle, status = self._stage_file(body, tail, sync)
            else:
                handle, status = self._stage(path, body + tail if tail else body, sync)
        except OSError as error:
            raise _told(error, path, "write") from error
        return Staged(path, handle, sync, found(status))

    def _stage(self, path: str, data: bytes, sync: bool) -> tuple[str, os.stat_result]:
        try:
            folder, name = self._folders.parent(path)
            mode = atomic.mode_of(name, folder.fd)
        except FileNotFoundError:
            mode = None
        return atomic.stage(self._tmp, data, sync=sync, mode=mode)

    def _stage_file(self, source: Path, tail: bytes, sync: bool) -> tuple[str, os.stat_result]:
        if not stat.S_ISREG(os.lstat(source).st_mode):
            raise UsageError(f"{source} is not a regular file.", fix="A step must leave a plain file there.")
        atomic.make_dirs(self._tmp, sync=False)
        temp = temporaries.fresh_temp(self._tmp)
        disk.rename(os.fspath(source), temp)
        if tail:
            atomic.extend(Path(temp), tail)
        if sync:
            atomic.sync_content(Path(temp))
        return temp, os.lstat(temp)

    def land(self, staged: Staged) -> None:
        try:
            try:
                self._land(staged)
            except FileNotFoundError:  # the folder was removed since we last looked
                self._folders.forget()
                self._land(staged)
        except OSError as error:
            raise _told(error, staged.path, "write") from error

    def _land(self, staged: Staged) -> None:
        folder, name = self._folders.parent(staged.path, create=True, sync=staged.sync)
        atomic.land(Path(staged.handle), name, dir_fd=folder.fd, sync=staged.sync)

    def discard(self, what: Staged | Path) -> None:
        if isinstance(what, Path):
            temporaries.discard_output(what)
        else:
            temporaries.discard(what.handle)

    def append(self, path: str, data: bytes, *, size: int | None = None) -> int | None:
        try:
            try:
                return self._append(path, data, size)
            except FileNotFoundError:  # the folder was removed since we last looked
                self._folders.forget()
                return self._append(path, data, size)
        except OSError as error:
            raise _told(error, path, "write") from error

    def _append(self, path: str, data: bytes, size: int | None) -> int | None:
        folder, name = self._folders.parent(path, create=True)
        descriptor = disk.open_file(name, _APPEND, dir_fd=folder.fd)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise InTheWayError(f"{path} is not a regular file.", fix="Move it away.")
            if size not in (status.st_size, None):
                return None
            disk.write_all(descriptor, data, path)
            return status.st_size + len(data)
        finally:
            os.close(descriptor)

    def sync(self, path: str) -> None:
        with _naming(path, "sync"):
            folder, name = self._folders.parent(path, sync=True)
            descriptor = disk.open_file(name, os.O_RDONLY, dir_fd=folder.fd)
            try:
                disk.sync_file(descriptor, path)
            finally:
                os.close(descriptor)
            sync_folder(folder, path)

    # --- putting out of the way ----------------------------------------------------------------------------

    def copy_aside(self, path: str, *, label: str = "") -> str:
        if not label:
            with _naming(path, "copy"):
                folder, name = self._folders.parent(path)
                return _beside(path, asides.write_beside(Path(name), self.read(path), dir_fd=folder.fd))
        into = self._kept_in()
        with self._opened(path) as reader, _naming(path, "copy"):
            return _in(into, asides.keep_open(reader, path.rpartition("/")[2], into, label=label))

    def set_aside(self, path: str, *, beside: bool = False) -> str:
        with _naming(path, "move away"):
            folder, name = self._folders.parent(path)
            if beside:
                return _beside(path, asides.back_up(Path(name), dir_fd=folder.fd))
            into = self._kept_in()
            kept_as = asides.set_aside(Path(name), into, dir_fd=folder.fd)
        return _in(into, kept_as) if kept_as.parent == into else _beside(path, kept_as)

    def keep(self, name: str, body: bytes | Path) -> str:
        into = self._kept_in() / REFUSED_DIR
        with _naming(name, "keep"):
            kept_as = (
                asides.set_aside(body, into) if isinstance(body, Path) else asides.keep_bytes(body, into, name)
            )
        return f"{into.parent.name}/{_in(into, kept_as)}"

    def _kept_in(self) -> Path:
        if self._quarantine is None:
            raise ValueError("these files were opened to be read")
        return self._quarantine

    def rename(self, path: str, new: str, *, sync: bool = False) -> None:
        with _naming(new, "rename"):
            folder, name = self._folders.parent(path)
            target, new_name = self._folders.parent(new, create=True, sync=sync)
            disk.rename(name, new_name, source_dir=folder.fd, target_dir=target.fd)
            if sync:
                sync_folder(target, new)

    def remove(self, path: str, *, sync: bool = False) -> None:
        try:
            folder, name = self._folders.parent(path)
            disk.unlink(name, dir_fd=folder.fd)
            if sync:
                sync_folder(folder, path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _told(error, path, "remove") from error

    # --- before anything is paid for -----------------------------------------------------------------------

    def require_room(self, path: str) -> None:
        """A folder is looked at once; one that is not there will be made in the one above it."""
        above = path.rpartition("/")[0]
        if above in self._writable:
            return
        with _naming(path, "look at"):
            try:
                folder = self._folders.walk(above.split("/") if above else [], create=False, sync=False)
            except FileNotFoundError:
                self.require_room(above)
                return
            if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder.fd, effective_ids=_AS_WE_ARE):
                folder_path = self.root / above
                raise StorageError(
                    f"Could not write into {folder_path}: it is read-only.", fix=let_in(folder_path)
                )
        self._writable.add(above)

    def room(self) -> tuple[int, int]:
        return disk.room_left(self._tmp.parent)


def found(status: os.stat_result) -> Found:
    """What a status says of what stands at a name."""
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), OTHER)
    mark = f"{status.st_ino:x}.{status.st_mtime_ns:x}.{status.st_size:x}"
    return Found(kind, status.st_size, mark, status.st_ctime_ns)


def _in(folder: Path, kept_as: Path) -> str:
    return f"{folder.name}/{kept_as.name}"


def _beside(path: str, name: str | Path) -> str:
    return os.path.join(os.path.dirname(path), name)


def _told(error: OSError, path: str, doing: str) -> StorageError:
    """The file as the project knows it, not by its last part or the name of a temporary."""
    error.filename = path
    return StorageError.from_os(error, doing)


@contextmanager
def _naming(path: str, doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _told(error, path, doing) from error
