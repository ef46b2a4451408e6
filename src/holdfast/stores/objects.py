"""Every accepted artifact by content hash, on this disk: so a lost one is put back for nothing.

Each process that writes has a pack of its own in the run's folder, made with its first object and never opened
for writing again. So any number may write at once, and a torn end stays what it is: no object.

Crash story. A record is believed only after hashing: lost or mixed-up blocks are damage, never a wrong object.
`put` makes nothing durable by itself, except large files; `sync` does, and covers the packs of dead processes
that `put` relied upon. After a failed write or sync the store refuses to write: what the disk holds is then
unknown, and only a new process that reads it again can tell.

An object that only another run has is kept once more in this run's folder: `drop` removes that whole.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import StorageError
from holdfast.layout import PACK_SUFFIX, objects_path
from holdfast.stores import asides, atomic, disk, readable, temporaries
from holdfast.stores.packs import Pack, encode_header
from holdfast.stores.run_objects import RunObjects, pack_number

PACKED_MAX = 1 << 20
_UNWRITTEN_MAX = 1 << 20


class LocalObjects:
    """The objects of a project as one run sees them. Safe to use from several threads."""

    def __init__(
        self, objects: Path, run_id: str, tmp: Path, quarantine: Path | None = None, *, read_only: bool = False
    ) -> None:
        self.damage: list[str] = []
        self._dir = objects
        self._tmp = tmp
        self._run = RunObjects(objects_path(objects, run_id), self.damage)
        self._quarantine = quarantine if quarantine is not None else self._run.folder / "quarantine"
        self._read_only = read_only
        self._others: dict[str, RunObjects] = {}
        self._pack: Pack | None = None  # the one we write
        self._fd = -1
        self._appended = 0  # counts appends; what `_synced` has reached is durable
        self._synced = 0
        self._pieces: list[bytes] = []  # records that go out together, at the next flush
        self._unwritten: set[str] = set()  # the objects in them
        self._unwritten_bytes = 0
        self._relied: set[Path] = set()  # packs of earlier processes, that the next sync covers
        self._trusted: set[str] = set()  # hashed or written by this process: `put` need not look again
        self._proved: set[str] = set()  # hashed in a pack when the run was opened
        self._broken = ""
        self._mutex = threading.RLock()
        self._sync_mutex = threading.Lock()

    # --- putting -------------------------------------------------------------------------------------------

    def put(self, data: bytes, sha256: str | None = None) -> str:
        """See `Objects.put`."""
        sha = sha256 or hashlib.sha256(data).hexdigest()
        if sha in self._trusted:
            return sha
        with self._mutex, self._told("write to"):
            if len(data) <= PACKED_MAX:
                if not self._is_packed(sha):
                    self._append(sha, data)
            elif not self._keeps_large(sha):
                self._put_large((data,), sha)
            self._trusted.add(sha)
        return sha

    def put_blocks(self, blocks: Iterable[bytes], sha256: str = "") -> tuple[str, int] | None:
        """See `Objects.put_blocks`."""
        with self._told("write to"):
            return self._put_large(blocks, sha256)

    def _put_large(self, blocks: Iterable[bytes], wanted: str) -> tuple[str, int] | None:
        hasher, size = hashlib.sha256(), 0
        atomic.make_dirs(self._tmp, sync=False)
        temp, writer = temporaries.create_temp(os.fspath(self._tmp))
        try:
            try:
                for block in blocks:
                    hasher.update(block)
                    size += len(block)
                    disk.write_all(writer, block, temp)
            finally:
                os.close(writer)
            sha = hasher.hexdigest()
            if sha != (wanted or sha):
                return None
            if size <= PACKED_MAX:
                return self.put(readable.read_file(Path(temp)), sha), size
            with self._mutex:
                if sha not in self._trusted and not self._keeps_large(sha):
                    atomic.make_dirs(self._run.folder, sync=True)
                    atomic.move_file(Path(temp), os.fspath(self._run.large(sha)), sync=True)
                self._trusted.add(sha)
        finally:
            temporaries.discard(temp)
        return sha, size

    def _keeps_large(self, sha: str) -> bool:
        """Whether this run has it, whole and durable; a rotten one is out of the way then."""
        if not self._run.has_large(sha):
            return False
        if self._run.is_large_whole(sha):
            disk.sync_dir(self._run.folder)  # whoever wrote it may have been killed just before this
            return True
        kept_as = asides.set_aside(self._run.large(sha), self._quarantine)
        self.damage.append(f"large object {sha[:12]} is damaged and kept as {kept_as.name}")
        return False

    def _is_packed(self, sha: str) -> bool:
        """Whether a pack of this run has it, hashed: `put` must not rely on a rotten copy."""
        while (pack := self._run.known_pack(sha)) is not None:
            if sha in self._unwritten:
                return True
            if sha in self._proved or self._run.read_packed(pack, sha) is not None:
                if pack is not self._pack:  # its writer may have been killed before its sync
                    self._relied.add(pack.path)
                    self._appended += 1
                return True
        return False

    def _append(self, sha: str, data: bytes) -> None:
        """Have our pack get an object with the next flush."""
        pack = self._pack or self._begin_pack()
        header = encode_header(sha, len(data))
        self._pieces += (header, data, b"\n")
        self._unwritten.add(sha)
        self._unwritten_bytes += len(data)
        pack.add(sha, pack.end + len(header), len(data))
        self._appended += 1
        if self._unwritten_bytes > _UNWRITTEN_MAX:
            self.flush()

    def _begin_pack(self) -> Pack:
        folder = self._run.folder
        atomic.make_dirs(folder, sync=True)
        number = max(map(pack_number, os.listdir(folder)), default=0)
        while True:
            number += 1
            name = f"{number:04d}{PACK_SUFFIX}"
            try:
                self._fd = disk.open_file(os.fspath(folder / name), disk.NEW_FILE | os.O_APPEND)
            except FileExistsError:
                continue  # another process was faster
            self._pack = self._run.packs[name] = Pack(folder / name)
            self._relied.add(folder)
            return self._pack

    def flush(self) -> None:
        """Write out what was put: from then on it survives the process, and after a `sync` the machine."""
        with self._mutex:
            records, self._pieces = b"".join(self._pieces), []
            self._unwritten.clear()
            self._unwritten_bytes = 0
            if not records or self._pack is None:
                return
            path = os.fspath(self._pack.path)
            try:
                disk.write_all(self._fd, records, path)
            except BaseException as error:
                self._broken = str(error)
                raise
            if len(records) > _UNWRITTEN_MAX:  # the sync will have less to wait for
                disk.begin_sync(self._fd, self._pack.end - len(records), len(records))

    def sync(self) -> None:
        """See `Objects.sync`."""
        if self._synced >= self._appended:
            return  # both only grow, and `_synced` is set last: a stale look only means one sync too many
        with self._sync_mutex, self._told("sync"):
            with self._mutex:
                goal = self._appended
                if self._synced >= goal:
                    return
                self.flush()
                relied = list(self._relied)
            try:
                self._sync_pack()
                for path in relied:
                    _sync_path(path)
            except OSError as error:
                self._broken = str(error)
                raise
            self._relied.difference_update(relied)
            self._synced = goal

    def _sync_pack(self) -> None:
        if self._pack is None:
            return
        path = self._pack.path
        with readable.naming(path):
            is_removed = os.fstat(self._fd).st_nlink == 0
        if is_removed:
            raise FileNotFoundError(errno.ENOENT, "Removed while in use", os.fspath(path))
        disk.sync_data(self._fd, os.fspath(path))

    # --- getting -------------------------------------------------------------------------------------------

    def get(self, sha: str) -> bytes | None:
        """See `Objects.get`."""
        with self._mutex, self._reading():
            if sha in self._unwritten:
                self.flush()
            data = self._run.get(sha)
            if data is not None:
                return data
            for other in self._other_runs():
                data = other.get(sha)
                if data is not None:
                    return data
        return None

    def has(self, sha: str) -> bool:
        """See `Objects.has`."""
        with self._mutex, self._reading():
            return any(run.pack_with(sha) is not None or run.has_large(sha) for run in self._all_runs())

    def is_whole(self, sha: str) -> bool:
        """See `Objects.is_whole`."""
        with self._mutex, self._reading():
            large = [run for run in self._all_runs() if run.has_large(sha)]
            return any(run.is_large_whole(sha) for run in large) or self.get(sha) is not None

    def keeps(self, sha: str, *, prove: bool = False) -> bool:
        """See `Objects.keeps`."""
        with self._mutex, self._reading():
            if sha in self._trusted or self._run.known_pack(sha) is not None:
                return True
            return self._run.has_large(sha) and (not prove or self._run.is_large_whole(sha))

    def copy_to(self, sha: str, dest: Path) -> bool:
        """See `Objects.copy_to`."""
        with self._reading():
            fd = disk.open_file(os.fspath(dest), disk.NEW_FILE)
            is_whole = False
            try:
                is_whole = self._copy_whole(sha, fd, os.fspath(dest))
            finally:
                os.close(fd)
                if not is_whole:
                    temporaries.discard(os.fspath(dest))
            return is_whole

    def _copy_whole(self, sha: str, writer: int, name: str) -> bool:
        for run in self._all_runs():
            if run.has_large(sha):
                if run.copy_large(sha, writer, name):
                    return True
                disk.truncate(writer, 0, name)
                os.lseek(writer, 0, os.SEEK_SET)
        data = self.get(sha)
        if data is not None:
            disk.write_all(writer, data, name)
        return data is not None

    def _all_runs(self) -> Iterator[RunObjects]:
        """This run's, then, only if asked further, the others'."""
        yield self._run
        yield from self._other_runs()

    def _other_runs(self) -> list[RunObjects]:
        try:
            names = sorted(os.listdir(self._dir), reverse=True)
        except FileNotFoundError:
            return []
        for name in names:
            if name != self._run.folder.name and name not in self._others:
                self._others[name] = RunObjects(self._dir / name, self.damage)
        return list(self._others.values())

    # --- mending -------------------------------------------------------------------------------------------

    def prove(self) -> Iterator[tuple[str, bool]]:
        """See `Objects.prove`."""
        with self._reading():
            yield from self._run.prove()
            self._run.collect()

    def mend(self, *, prove: bool = True) -> None:
        """See `Objects.mend`. What is whole in a damaged pack is durable elsewhere before that is set aside."""
        with self._mutex, self._told("mend"):
            if prove:
                self._proved.update(sha for sha, is_whole in self._run.prove() if is_whole)
            else:
                self._run.refresh()
            damaged = [pack for pack in self._run.packs.values() if pack.is_damaged and pack is not self._pack]
            for pack in damaged:
                self._run.collect()
                self._replace(pack)

    def _replace(self, pack: Pack) -> None:
        whole = {sha: data for sha in list(pack.objects) if (data := pack.read(sha)) is not None}
        del self._run.packs[pack.path.name]
        for sha, data in whole.items():
            if not self._is_packed(sha):
                self._append(sha, data)
        self.sync()
        kept_as = asides.set_aside(pack.path, self._quarantine)
        self.damage.append(f"what is whole in {pack.path.name} was copied; it is kept as {kept_as.name}")

    def drop(self, run_id: str) -> None:
        """See `Objects.drop`."""
        with self._told("remove"):
            drop_run(self._dir, run_id)

    def close(self) -> None:
        """Let go of the pack. What was put and never synced, nobody was told of: it is dropped."""
        with self._sync_mutex, self._mutex:
            self._pieces.clear()
            self._unwritten.clear()
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1
            # A body that outlives its run must not write any more.
            self._broken = self._broken or "it was closed at the end of its run"

    @contextmanager
    def _told(self, doing: str) -> Iterator[None]:
        assert not self._read_only, "a read-only store was asked to write"
        if self._broken:
            raise StorageError(
                f"The objects in {self._run.folder} could not be written before: {self._broken}.",
                fix="What was recorded is safe: mend that, then run the same command.",
            )
        try:
            yield
        except OSError as error:
            raise StorageError.from_os(error, doing) from error

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError.from_os(error, "read") from error


def drop_run(objects: Path, run_id: str) -> None:
    """Remove the objects of a run; harmless if there are none."""
    folder = objects_path(objects, run_id)
    if readable.is_there(folder):
        disk.remove_tree(os.fspath(folder))
        disk.sync_dir(objects)


def _sync_path(path: Path) -> None:
    if path.is_dir():
        disk.sync_dir(path)
        return
    with readable.opened(path) as fd:
        disk.sync_data(fd, os.fspath(path))
