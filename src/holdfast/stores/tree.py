"""The work tree: artifacts by relative path, never through a link, or outside the root.

Every folder on the way is opened by name beneath the one above it, never followed. Descriptors of folders
are kept (a bounded number) and compared with what their name means now, at every use but those within a
twentieth of a second of the last look, so that a replaced folder is noticed. A folder in use by one thread
stays open while another evicts it: its descriptor is closed when the last user lets go.

A file that may not be read is damaged; a folder that may not be entered says nothing about the files in it, and
stops us.

Crash story: whoever wants a file synced has the names of all folders above it synced first, also of those that
were there already. They may have been made for a file that needs no sync, or by a process that was killed.
"""

from __future__ import annotations

import math
import os
import shlex
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast import clock
from holdfast.errors import InTheWayError, StorageError, UsageError
from holdfast.stores import asides, atomic, disk, readable, temporaries
from holdfast.stores.ahead import FILES_MIN, Fetched, Read, ReadAhead

_FOLDERS_KEPT = 64
_FRESH_S = 0.05
_NAMED_AT_ONCE = 500
_NO_NAMES = ("", ".", "..")
_AS_WE_ARE = os.access in os.supports_effective_ids


class _Folder:
    """An open directory, closed when nobody refers to it any more."""

    __slots__ = ("fd", "identity", "is_durable", "seen_at")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.is_durable = False  # whether its name is known to have been synced
        self.identity = _identity(os.stat(".", dir_fd=fd))  # refused where names in it may not be looked up
        self.seen_at = clock.monotonic()  # when its name last led here

    def __del__(self) -> None:
        os.close(self.fd)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


class WorkTree:
    """The project folder `root`; temporaries go to `tmp`. Safe to use from several threads."""

    def __init__(self, root: Path, tmp: Path) -> None:
        self.root = root
        self._tmp = tmp
        self._root: _Folder | None = self._open_root()
        self._identity = self._root.identity
        self._folders: dict[str, _Folder] = {}  # by their path
        self._writable: set[str] = set()  # folders that files can be made in
        self._mutex = threading.Lock()
        self._ahead: ReadAhead | None = None
        self._changed: set[str] = set()  # by us, since others read ahead: what they read of these is the past

    def close(self) -> None:
        """Let go of all kept folders; the tree stays usable.

        Of the project, too: whoever has the tree may be garbage that nobody collects for long, and a program that
        runs many pipelines would run out of descriptors.
        """
        self._forget_folders()
        self._read_no_more()
        self._root = None

    def _open_root(self) -> _Folder:
        root = _Folder(os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        root.seen_at = math.inf  # whatever its name leads to later: this is the project
        return root

    def _project(self) -> _Folder:
        """The open folder of the project; for whoever comes after `close` it is opened again."""
        root = self._root
        if root is None:
            root = self._open_root()
            if root.identity != self._identity:
                raise InTheWayError(
                    f"{self.root} is another folder than before.", fix="Run the same command again."
                )
            self._root = root
        return root

    def _forget_folders(self) -> None:
        with self._mutex:
            self._folders.clear()

    def write(self, rel: str, data: bytes, *, sync: bool) -> os.stat_result:
        """Replace the file by one holding `data`, making folders as needed; gives what was written."""
        try:
            return self._write(rel, data, sync)
        except FileNotFoundError:  # the folder was removed since we last looked
            self._forget_folders()  # and no more: another thread may be taking what was read ahead
            return self._write(rel, data, sync)

    def _write(self, rel: str, data: bytes, sync: bool) -> os.stat_result:
        self._change(rel)
        folder, name = self._parent(rel, create=True, sync=sync)
        try:
            return atomic.write_at(name, data, dir_fd=folder.fd, sync=sync, tmp_dir=self._tmp)
        except OSError as error:
            error.filename = rel  # not only its last part, or the temporary's name
            raise

    def move_in(self, source: Path, rel: str, *, sync: bool) -> os.stat_result:
        """Move a finished regular file into place; gives what was moved."""
        status = os.lstat(source)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{source} is not a regular file.", fix="A step must leave a plain file there.")
        self._change(rel)
        folder, name = self._parent(rel, create=True, sync=sync)
        try:
            atomic.move_file(source, name, dir_fd=folder.fd, sync=sync)
        except OSError as error:
            error.filename = rel
            raise
        return status

    def require_writable(self, rel: str) -> None:
        """StorageError if no file can be made where `rel` is to be: whoever asks has not paid for it yet.

        A folder is looked at once; one that is not there will be made in the one above it.
        """
        above = rel.rpartition("/")[0]
        if above in self._writable:
            return
        try:
            folder = self._walk(above.split("/") if above else [], create=False, sync=False)
        except FileNotFoundError:
            self.require_writable(above)
            return
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder.fd, effective_ids=_AS_WE_ARE):
            path = self.root / above
            raise StorageError(f"Could not write into {path}: it is read-only.", fix=_let_in(path))
        self._writable.add(above)

    def fresh_temp(self) -> Path:
        """A path on the project's disk where nothing is yet; the next run clears away what is left there."""
        atomic.make_dirs(self._tmp, sync=False)
        path, descriptor = temporaries.create_temp(os.fspath(self._tmp))
        os.close(descriptor)
        disk.unlink(path)
        return Path(path)

    def make_own(self, temp: Path) -> None:
        """Let a file that is not in its place yet share its bytes with no other: a hard link becomes a copy."""
        try:
            status = os.lstat(temp)
        except FileNotFoundError:
            return
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            atomic.copy_over(temp, os.fspath(temp), sync=False)

    def extend_temp(self, temp: Path, data: bytes) -> None:
        """Append to a file that is not in its place yet."""
        atomic.extend(temp, data)

    def read(self, rel: str, limit: int | None = None) -> bytes:
        """The file's bytes; the OSErrors are those of `readable.read_file`."""
        folder, name = self._parent(rel)
        try:
            return readable.read_at(name, dir_fd=folder.fd, limit=limit)
        except OSError as error:
            error.filename = rel
            raise

    def prepare(self, files: int) -> None:
        """About so many files are going to be expected in a moment: whoever reads them ahead has to start."""
        if files < FILES_MIN:
            self._read_no_more()
        elif self._ahead is None or not self._ahead.is_unused:
            self._read_no_more()
            self._ahead = ReadAhead(self._project().fd)

    def expect(self, paths: Sequence[str], signs: Callable[[Sequence[str]], list[str]]) -> None:
        """These files, and no others, are going to be taken, in this order; see `prepare`.

        `signs` gives the sign of each, which says where its seal is: see `reader.py`.
        """
        ahead = self._ahead
        if ahead is None:
            return
        for begin in range(0, len(paths), _NAMED_AT_ONCE):
            some = paths[begin : begin + _NAMED_AT_ONCE]
            ahead.send(some, signs(some))
        ahead.send_no_more()

    def expect_no_more(self) -> None:
        """Whatever was read ahead is forgotten."""
        self._read_no_more()

    def _read_no_more(self) -> None:
        ahead, self._ahead = self._ahead, None
        self._changed.clear()
        if ahead is not None:
            ahead.close()

    def _change(self, rel: str) -> None:
        """This name is about to mean other bytes, or none: what was read of it ahead counts no more."""
        if self._ahead is not None:
            self._changed.add(rel)

    def take(self, rel: str, limit: int | None = None) -> Read:
        """As `read`, for a file that was expected: it may have been read, and hashed, a moment ago."""
        found = self._ahead.take(rel) if self._ahead is not None and rel not in self._changed else None
        return found if found is not None else Read(self.read(rel, limit))

    def fetch_all(self, rels: Sequence[str]) -> list[Fetched | None]:
        """Expected files as whoever reads ahead gives them, waited for; None for one that has to be read here."""
        if self._ahead is None:
            return [None for _ in rels]
        found = self._ahead.fetch_all(rels)
        if self._changed:
            found = [None if rel in self._changed else file for rel, file in zip(rels, found, strict=True)]
        return found

    def keep_reading(self) -> None:
        """Let whoever reads ahead go on while something else is done here."""
        if self._ahead is not None:
            self._ahead.make_room()

    def open_read(self, rel: str) -> int:
        """A descriptor for reading the regular file."""
        folder, name = self._parent(rel)
        try:
            return readable.open_regular(name, dir_fd=folder.fd)
        except OSError as error:
            error.filename = rel
            raise

    def append_open(self, rel: str) -> int:
        """A descriptor for appending to the file, created with its folders if missing."""
        self._change(rel)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        with _whole_name(rel):
            folder, name = self._parent(rel, create=True)
            fd = disk.open_file(name, flags, dir_fd=folder.fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise InTheWayError(f"{rel} is not a regular file.", fix="Move it away.")
        return fd

    def stat(self, rel: str) -> os.stat_result | None:
        """What is there, links not followed; None only if nothing is."""
        try:
            folder, name = self._parent(rel)
            return os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            error.filename = rel
            raise

    def names(self, folder: str) -> frozenset[str]:
        """All names in a folder of the project ("" for the root itself); none if there is no such folder."""
        try:
            with readable.naming(self.root / folder):
                return frozenset(os.listdir(self._parent(f"{folder}/x" if folder else "x")[0].fd))
        except FileNotFoundError:
            return frozenset()

    def exists(self, rel: str) -> bool:
        """Whether anything at all has this name."""
        return self.stat(rel) is not None

    def make_durable(self, rel: str) -> None:
        """Sync a file that somebody else wrote, and its name."""
        with _whole_name(rel):
            folder, name = self._parent(rel, sync=True)
            descriptor = disk.open_file(name, os.O_RDONLY, dir_fd=folder.fd)
        try:
            disk.sync_file(descriptor, rel)
        finally:
            os.close(descriptor)
        _sync(folder, rel)

    def remove(self, rel: str, *, sync: bool = False) -> None:
        """Delete the file; one that is not there is fine."""
        self._change(rel)
        try:
            with _whole_name(rel):
                folder, name = self._parent(rel)
                disk.unlink(name, dir_fd=folder.fd)
            if sync:
                _sync(folder, rel)
        except FileNotFoundError:
            pass

    def rename(self, rel: str, new_rel: str, *, sync: bool = False) -> None:
        """Give the file another name in the project, replacing what has it."""
        self._change(rel)
        self._change(new_rel)
        folder, name = self._parent(rel)
        target, new_name = self._parent(new_rel, create=True, sync=sync)
        with _whole_name(new_rel):
            disk.rename(name, new_name, source_dir=folder.fd, target_dir=target.fd)
        if sync:
            _sync(target, new_rel)

    def back_up(self, rel: str) -> str:
        """Rename to `NAME.bak.TIMESTAMP` beside it; gives the new relative path."""
        self._change(rel)
        with _whole_name(rel):
            folder, name = self._parent(rel)
            kept_as = asides.back_up(Path(name), dir_fd=folder.fd)
        return os.path.join(os.path.dirname(rel), kept_as)

    def copy_beside(self, rel: str) -> str:
        """A durable copy as `NAME.bak.TIMESTAMP` beside it; gives the copy's relative path."""
        with _whole_name(rel):
            folder, name = self._parent(rel)
            kept_as = asides.copy_beside(name, dir_fd=folder.fd)
        return os.path.join(os.path.dirname(rel), kept_as)

    def copy_aside(self, rel: str, into: Path, *, label: str) -> Path:
        """A durable copy in the folder `into`, under a fresh name; gives the copy's path."""
        reader = self.open_read(rel)
        try:
            with readable.naming(rel):
                return asides.keep_open(reader, rel.rpartition("/")[2], into, label=label)
        finally:
            os.close(reader)

    def set_aside(self, rel: str, into: Path) -> str:
        """Move whatever is there into the folder `into`, under a fresh name; gives where it is now, as it is told.

        That is beside its old place, relative to the project, if `into` is on another device.
        """
        self._change(rel)
        with _whole_name(rel):
            folder, name = self._parent(rel)
            kept_as = asides.set_aside(Path(name), into, dir_fd=folder.fd)
        if kept_as.parent == into:
            return f"{into.name}/{kept_as.name}"
        return os.path.join(os.path.dirname(rel), kept_as)

    def _parent(self, rel: str, *, create: bool = False, sync: bool = False) -> tuple[_Folder, str]:
        """The open folder that holds `rel`, and its name there."""
        above, _, name = rel.rpartition("/")
        known = self._folders.get(above)  # no lock: whoever has a folder keeps it open by having it
        is_name = name not in _NO_NAMES and "\0" not in name
        if known is not None and is_name and _is_fresh(known) and (known.is_durable or not sync):
            return known, name
        *folders, name = _parts(rel)
        return self._walk(folders, create, sync), name

    def _walk(self, names: list[str], create: bool, sync: bool) -> _Folder:
        folder = self._project()
        for depth, name in enumerate(names, 1):
            folder = self._step_into(folder, "/".join(names[:depth]), name, create, sync)
        return folder

    def _step_into(self, parent: _Folder, key: str, name: str, create: bool, sync: bool) -> _Folder:
        folder = self._folders.get(key)
        if folder is None or not _is_fresh(folder):
            folder = self._looked_at(parent, key, name, create)
        if sync and not folder.is_durable:
            _sync(parent, key)
            folder.is_durable = True
        return folder

    def _looked_at(self, parent: _Folder, key: str, name: str, create: bool) -> _Folder:
        """The folder that its name leads to now: the known one, or another."""
        known, now = self._folders.get(key), clock.monotonic()
        status = _stat_or_make(parent, name, create)
        is_known = known is not None and known.identity == _identity(status)
        folder = known if is_known and known is not None else _open_folder(parent, self.root / key, key, status)
        folder.seen_at = min(now, parent.seen_at)  # its own name may lead elsewhere as soon as one above does
        if not is_known:
            self._keep(key, folder)
        return folder

    def _keep(self, key: str, folder: _Folder) -> None:
        with self._mutex:
            self._folders.pop(key, None)
            self._folders[key] = folder
            if len(self._folders) > _FOLDERS_KEPT:
                del self._folders[next(iter(self._folders))]  # the one opened longest ago


@contextmanager
def _whole_name(rel: str) -> Iterator[None]:
    """An OSError in the block names the file as the project knows it, not by its last part or a temporary's."""
    try:
        yield
    except OSError as error:
        error.filename = rel
        raise


def _sync(folder: _Folder, rel: str) -> None:
    """Sync the folder that holds `rel`, which is named if that fails."""
    with readable.naming(rel):
        disk.sync_dir(folder.fd)


def _is_fresh(folder: _Folder) -> bool:
    return clock.monotonic() - folder.seen_at < _FRESH_S


def _parts(rel: str) -> list[str]:
    parts = rel.split("/")
    if "\0" in rel or any(part in _NO_NAMES for part in parts):
        raise UsageError(
            f"{rel!r} is not a path inside the project.",
            fix="Use a relative path without '..', such as drafts/a.md.",
        )
    return parts


def _stat_or_make(parent: _Folder, name: str, create: bool) -> os.stat_result:
    try:
        return os.stat(name, dir_fd=parent.fd, follow_symlinks=False)
    except FileNotFoundError:
        if not create:
            raise
    try:
        disk.mkdir(name, dir_fd=parent.fd)
    except FileExistsError:
        pass  # someone else was faster; the check that follows is the same
    return os.stat(name, dir_fd=parent.fd, follow_symlinks=False)


def _open_folder(parent: _Folder, path: Path, shown: str, status: os.stat_result) -> _Folder:
    if stat.S_ISLNK(status.st_mode):
        raise InTheWayError(
            f"{shown} is a symbolic link; artifacts are not written through links.",
            fix="Replace it by a folder.",
        )
    if not stat.S_ISDIR(status.st_mode):
        raise InTheWayError(f"{shown} is in the way: it is not a folder.", fix="Move it away.")
    try:
        return _Folder(os.open(path.name, disk.DIR_FLAGS, dir_fd=parent.fd))
    except NotADirectoryError:  # replaced between the look and the opening
        raise InTheWayError(f"{shown} is not a folder any more.", fix="Run the same command again.") from None
    except PermissionError as error:
        raise StorageError(f"Could not enter {path}: {error.strerror}.", fix=_let_in(path)) from error


def _let_in(path: Path) -> str:
    return (
        f"What is in it is safe. Let yourself in, then run the same command: chmod u+rwx {shlex.quote(str(path))}"
    )
