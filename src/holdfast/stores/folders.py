"""The folders of a work tree, open: each found by name beneath the one above it, never through a link.

Descriptors are kept (a bounded number) and compared with what their name means now, at every use but those within
a twentieth of a second of the last look, so that a replaced folder is noticed. A folder in use by one thread
stays open while another evicts it: its descriptor is closed when the last user lets go.

A folder that may not be entered says nothing about the files in it, and stops us.
"""

from __future__ import annotations

import math
import os
import shlex
import stat
import threading
from pathlib import Path

from holdfast import clock
from holdfast.errors import ForbiddenError, InTheWayError, UsageError
from holdfast.stores import disk, readable

_FOLDERS_KEPT = 64
_FRESH_S = 0.05
_NO_NAMES = ("", ".", "..")


class Folder:
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


class Folders:
    """Those beneath `root`. Safe to use from several threads."""

    def __init__(self, root: Path) -> None:
        self._path = root
        self._root: Folder | None = self._open_root()
        self._identity = self._root.identity
        self._known: dict[str, Folder] = {}  # by their path
        self._mutex = threading.Lock()

    def close(self) -> None:
        """Let go of all, of the root too; whoever comes later opens them again.

        Whoever has the tree may be garbage that nobody collects for long, and a program that runs many pipelines
        would run out of descriptors.
        """
        self.forget()
        self._root = None

    def forget(self) -> None:
        """Look all up anew."""
        with self._mutex:
            self._known.clear()

    def _open_root(self) -> Folder:
        root = Folder(os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        root.seen_at = math.inf  # whatever its name leads to later: this is the project
        return root

    def project(self) -> Folder:
        """The open folder of the project; for whoever comes after `close` it is opened again."""
        root = self._root
        if root is None:
            root = self._open_root()
            if root.identity != self._identity:
                raise InTheWayError(
                    f"{self._path} is another folder than before.", fix="Run the same command again."
                )
            self._root = root
        return root

    def parent(self, rel: str, *, create: bool = False, sync: bool = False) -> tuple[Folder, str]:
        """The open folder that holds `rel`, and its name there."""
        above, _, name = rel.rpartition("/")
        known = self._known.get(above)  # no lock: whoever has a folder keeps it open by having it
        is_name = name not in _NO_NAMES and "\0" not in name
        if known is not None and is_name and _is_fresh(known) and (known.is_durable or not sync):
            return known, name
        *folders, name = _parts(rel)
        return self.walk(folders, create, sync), name

    def walk(self, names: list[str], create: bool, sync: bool) -> Folder:
        folder = self.project()
        for depth, name in enumerate(names, 1):
            folder = self._step_into(folder, "/".join(names[:depth]), name, create, sync)
        return folder

    def _step_into(self, parent: Folder, key: str, name: str, create: bool, sync: bool) -> Folder:
        folder = self._known.get(key)
        if folder is None or not _is_fresh(folder):
            folder = self._looked_at(parent, key, name, create)
        if sync and not folder.is_durable:
            sync_folder(parent, key)
            folder.is_durable = True
        return folder

    def _looked_at(self, parent: Folder, key: str, name: str, create: bool) -> Folder:
        """The folder that its name leads to now: the known one, or another."""
        known, now = self._known.get(key), clock.monotonic()
        status = _stat_or_make(parent, name, create)
        is_known = known is not None and known.identity == _identity(status)
        folder = known if is_known and known is not None else _open_folder(parent, self._path / key, key, status)
        folder.seen_at = min(now, parent.seen_at)  # its own name may lead elsewhere as soon as one above does
        if not is_known:
            self._keep(key, folder)
        return folder

    def _keep(self, key: str, folder: Folder) -> None:
        with self._mutex:
            self._known.pop(key, None)
            self._known[key] = folder
            if len(self._known) > _FOLDERS_KEPT:
                del self._known[next(iter(self._known))]  # the one opened longest ago


def sync_folder(folder: Folder, rel: str) -> None:
    """Sync the folder that holds `rel`, which is named if that fails."""
    with readable.naming(rel):
        disk.sync_dir(folder.fd)


def _is_fresh(folder: Folder) -> bool:
    return clock.monotonic() - folder.seen_at < _FRESH_S


def _parts(rel: str) -> list[str]:
    parts = rel.split("/")
    if "\0" in rel or any(part in _NO_NAMES for part in parts):
        raise UsageError(
            f"{rel!r} is not a path inside the project.",
            fix="Use a relative path without '..', such as drafts/a.md.",
        )
    return parts


def _stat_or_make(parent: Folder, name: str, create: bool) -> os.stat_result:
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


def _open_folder(parent: Folder, path: Path, shown: str, status: os.stat_result) -> Folder:
    if stat.S_ISLNK(status.st_mode):
        raise InTheWayError(
            f"{shown} is a symbolic link; artifacts are not written through links.",
            fix="Replace it by a folder.",
        )
    if not stat.S_ISDIR(status.st_mode):
        raise InTheWayError(f"{shown} is in the way: it is not a folder.", fix="Move it away.")
    try:
        return Folder(os.open(path.name, disk.DIR_FLAGS, dir_fd=parent.fd))
    except NotADirectoryError:  # replaced between the look and the opening
        raise InTheWayError(f"{shown} is not a folder any more.", fix="Run the same command again.") from None
    except PermissionError as error:
        raise ForbiddenError(f"Could not enter {path}: {error.strerror}.", fix=let_in(path)) from error


def let_in(path: Path) -> str:
    return (
        f"What is in it is safe. Let yourself in, then run the same command: chmod u+rwx {shlex.quote(str(path))}"
    )
