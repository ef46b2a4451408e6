"""The work tree: artifacts by relative path, never through a link, or outside the root.

Every folder on the way is opened beneath the one above it (folders.py). A file that may not be read is damaged; a
folder that may not be entered says nothing about the files in it, and stops us.

Crash story: whoever wants a file synced has the names of all folders above it synced first, also of those that
were there already. They may have been made for a file that needs no sync, or by a process that was killed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import InTheWayError, StorageError, UsageError
from holdfast.stores import asides, atomic, disk, readable, temporaries
from holdfast.stores.folders import Folders, let_in, sync_folder

_AS_WE_ARE = os.access in os.supports_effective_ids


class WorkTree:
    """The project folder `root`; temporaries go to `tmp`. Safe to use from several threads."""

    def __init__(self, root: Path, tmp: Path) -> None:
        self.root = root
        self._tmp = tmp
        self._folders = Folders(root)
        self._writable: set[str] = set()  # folders that files can be made in

    def close(self) -> None:
        """Let go of all kept folders; the tree stays usable."""
        self._folders.close()

    def write(self, rel: str, data: bytes, *, sync: bool) -> os.stat_result:
        """Replace the file by one holding `data`, making folders as needed; gives what was written."""
        try:
            return self._write(rel, data, sync)
        except FileNotFoundError:  # the folder was removed since we last looked
            self._folders.forget()
            return self._write(rel, data, sync)

    def _write(self, rel: str, data: bytes, sync: bool) -> os.stat_result:
        folder, name = self._folders.parent(rel, create=True, sync=sync)
        try:
            return atomic.write_at(name, data, dir_fd=folder.fd, sync=sync, tmp_dir=self._tmp)
        except OSError as error:
            error.filename = rel  # not only its last part, or the temporary's name
            raise

    def stage(self, rel: str, data: bytes, *, sync: bool) -> tuple[str, os.stat_result]:
        """Write what is going to be at `rel` to a file of ours; gives where, for `land`, and what was written."""
        try:
            folder, name = self._folders.parent(rel)
            mode = atomic.mode_of(name, folder.fd)
        except FileNotFoundError:
            mode = None
        with _whole_name(rel):
            return atomic.stage(self._tmp, data, sync=sync, mode=mode)

    def stage_file(self, source: Path, tail: bytes, *, sync: bool) -> tuple[str, os.stat_result]:
        """As `stage`, of a regular file that a step wrote itself: it is ours from now on, and ends in `tail`."""
        if not stat.S_ISREG(os.lstat(source).st_mode):
            raise UsageError(f"{source} is not a regular file.", fix="A step must leave a plain file there.")
        temp = self.fresh_temp()
        disk.rename(os.fspath(source), os.fspath(temp))
        if tail:
            atomic.extend(temp, tail)
        if sync:
            atomic.sync_content(temp)
        return os.fspath(temp), os.lstat(temp)

    def land(self, temp: str, rel: str, *, sync: bool) -> None:
        """Give a staged file its place, replacing what is there and making folders as needed.

        From another device it is copied. `sync` is about its name: its bytes were synced when it was staged.
        """
        try:
            self._land(temp, rel, sync)
        except FileNotFoundError:  # the folder was removed since we last looked
            self._folders.forget()
            self._land(temp, rel, sync)

    def _land(self, temp: str, rel: str, sync: bool) -> None:
        folder, name = self._folders.parent(rel, create=True, sync=sync)
        with _whole_name(rel):
            atomic.land(Path(temp), name, dir_fd=folder.fd, sync=sync)

    def discard(self, temp: str) -> None:
        """Remove a staged file that is not going to land, if it is still there."""
        temporaries.discard(temp)

    def require_writable(self, rel: str) -> None:
        """StorageError if no file can be made where `rel` is to be: whoever asks has not paid for it yet.

        A folder is looked at once; one that is not there will be made in the one above it.
        """
        above = rel.rpartition("/")[0]
        if above in self._writable:
            return
        try:
            folder = self._folders.walk(above.split("/") if above else [], create=False, sync=False)
        except FileNotFoundError:
            self.require_writable(above)
            return
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder.fd, effective_ids=_AS_WE_ARE):
            path = self.root / above
            raise StorageError(f"Could not write into {path}: it is read-only.", fix=let_in(path))
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

    def read(self, rel: str, limit: int | None = None) -> bytes:
        """The file's bytes; the OSErrors are those of `readable.read_file`."""
        folder, name = self._folders.parent(rel)
        try:
            return readable.read_at(name, dir_fd=folder.fd, limit=limit)
        except OSError as error:
            error.filename = rel
            raise

    def open_read(self, rel: str) -> int:
        """A descriptor for reading the regular file."""
        folder, name = self._folders.parent(rel)
        try:
            return readable.open_regular(name, dir_fd=folder.fd)
        except OSError as error:
            error.filename = rel
            raise

    def append_open(self, rel: str) -> int:
        """A descriptor for appending to the file, created with its folders if missing."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        with _whole_name(rel):
            folder, name = self._folders.parent(rel, create=True)
            fd = disk.open_file(name, flags, dir_fd=folder.fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise InTheWayError(f"{rel} is not a regular file.", fix="Move it away.")
        return fd

    def stat(self, rel: str) -> os.stat_result | None:
        """What is there, links not followed; None only if nothing is."""
        try:
            folder, name = self._folders.parent(rel)
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
                return frozenset(os.listdir(self._folders.parent(f"{folder}/x" if folder else "x")[0].fd))
        except FileNotFoundError:
            return frozenset()

    def exists(self, rel: str) -> bool:
        """Whether anything at all has this name."""
        return self.stat(rel) is not None

    def make_durable(self, rel: str) -> None:
        """Sync a file that somebody else wrote, and its name."""
        with _whole_name(rel):
            folder, name = self._folders.parent(rel, sync=True)
            descriptor = disk.open_file(name, os.O_RDONLY, dir_fd=folder.fd)
        try:
            disk.sync_file(descriptor, rel)
        finally:
            os.close(descriptor)
        sync_folder(folder, rel)

    def remove(self, rel: str, *, sync: bool = False) -> None:
        """Delete the file; one that is not there is fine."""
        try:
            with _whole_name(rel):
                folder, name = self._folders.parent(rel)
                disk.unlink(name, dir_fd=folder.fd)
            if sync:
                sync_folder(folder, rel)
        except FileNotFoundError:
            pass

    def rename(self, rel: str, new_rel: str, *, sync: bool = False) -> None:
        """Give the file another name in the project, replacing what has it."""
        folder, name = self._folders.parent(rel)
        target, new_name = self._folders.parent(new_rel, create=True, sync=sync)
        with _whole_name(new_rel):
            disk.rename(name, new_name, source_dir=folder.fd, target_dir=target.fd)
        if sync:
            sync_folder(target, new_rel)

    def back_up(self, rel: str) -> str:
        """Rename to `NAME.bak.TIMESTAMP` beside it; gives the new relative path."""
        with _whole_name(rel):
            folder, name = self._folders.parent(rel)
            kept_as = asides.back_up(Path(name), dir_fd=folder.fd)
        return os.path.join(os.path.dirname(rel), kept_as)

    def copy_beside(self, rel: str) -> str:
        """A durable copy as `NAME.bak.TIMESTAMP` beside it; gives the copy's relative path."""
        with _whole_name(rel):
            folder, name = self._folders.parent(rel)
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
        with _whole_name(rel):
            folder, name = self._folders.parent(rel)
            kept_as = asides.set_aside(Path(name), into, dir_fd=folder.fd)
        if kept_as.parent == into:
            return f"{into.name}/{kept_as.name}"
        return os.path.join(os.path.dirname(rel), kept_as)


@contextmanager
def _whole_name(rel: str) -> Iterator[None]:
    """An OSError in the block names the file as the project knows it, not by its last part or a temporary's."""
    try:
        yield
    except OSError as error:
        error.filename = rel
        raise
