"""Every accepted artifact by content hash, so that a lost one is put back for nothing.

    objects/RUN_ID.pack         objects up to 1 MiB of one run, only appended to (`packs.py` has the format)
    objects/loose/ab/cdef...    larger ones, one file each, named by their hash (`loose.py`)

Crash story. An append may be torn: the next writer moves the torn bytes to quarantine and cuts them off. A
record is believed only after hashing, so lost or mixed-up blocks are damage, never a wrong object. `put`
makes nothing durable by itself, except loose files; `sync` does, and also covers what an earlier process
appended and may not have synced. After a failed write or sync the store refuses to write: what the disk
holds is then unknown, and only a new process that reads it again can tell.

An object that another run's pack holds is kept once more in this run's: `clean` removes packs whole.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.errors import StorageError
from holdfast.layout import PACK_SUFFIX, QUARANTINE_DIR, pack_path
from holdfast.stores import asides, atomic, disk, readable, temporaries
from holdfast.stores.loose import LooseObjects, copy_hashing, hash_file
from holdfast.stores.packs import Pack, encode_header, encode_record, read_exactly

PACKED_MAX = 1 << 20
_UNWRITTEN_MAX = 1 << 20


class ObjectStore:
    """The objects of a project as one run sees them. One writer a run; safe to use from several threads."""

    def __init__(
        self,
        objects: Path,
        run_id: str,
        tmp: Path,
        quarantine: Path | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        self.damage: list[str] = []
        self._dir = objects
        self._tmp = tmp
        self._quarantine = quarantine if quarantine is not None else objects / QUARANTINE_DIR
        self._read_only = read_only
        self._loose = LooseObjects(objects, tmp, self._quarantine, self.damage)
        self._own = Pack(pack_path(objects, run_id))
        self._own_scanned = False
        self._others: dict[str, Pack] = {}
        self._fd = -1
        self._appended = 0  # counts appends; what `_synced` has reached is durable
        self._synced = 0
        self._dir_synced = False
        self._unwritten: set[str] = set()  # objects for the pack that go out together, at the next flush
        self._pieces: list[bytes] = []  # their records
        self._unwritten_bytes = 0
        self._trusted: set[str] = set()  # hashed or written by this process: `put` need not look again
        self._broken = ""
        self._mutex = threading.RLock()
        self._sync_mutex = threading.Lock()

    def put(self, data: bytes, sha256: str | None = None) -> str:
        """Keep `data`; gives its hash (pass it if you have it). Durable after the next `sync`."""
        sha = sha256 or hashlib.sha256(data).hexdigest()
        if sha in self._trusted:
            return sha
        with self._mutex:
            self._writable()
            if len(data) > PACKED_MAX:
                if not self._loose.keeps(sha):
                    self._loose.put(sha, data)
            elif not self._kept_packed(sha):
                self._append(sha, data)
            self._trusted.add(sha)
        return sha

    def put_file(self, path: Path) -> tuple[str, int]:
        """Keep a file, streaming it if it is large; gives its hash and size."""
        if os.stat(path).st_size <= PACKED_MAX:
            data = readable.read_file(path)
            return self.put(data), len(data)
        self._writable()
        temp, writer = self._fresh_temp()
        try:
            try:
                sha, size = copy_hashing(path, writer, temp)
            finally:
                os.close(writer)
            self._take_in(Path(temp), sha)
        finally:
            temporaries.discard(temp)
        return sha, size

    def put_whole(self, reader: int, size: int, sha: str) -> bool:
        """Keep the first `size` bytes of an open file, streamed; False, and nothing kept, if that is not `sha`."""
        self._writable()
        temp, writer = self._fresh_temp()
        try:
            try:
                atomic.copy_range(reader, 0, size, writer, temp)
            finally:
                os.close(writer)
            if hash_file(Path(temp)) != sha:
                return False
            if size > PACKED_MAX:
                self._take_in(Path(temp), sha)
            else:
                self.put_file(Path(temp))
        finally:
            temporaries.discard(temp)
        return True

    def _fresh_temp(self) -> tuple[str, int]:
        """The path and descriptor of a new file on the disk of the objects."""
        atomic.make_dirs(self._tmp, sync=False)
        return temporaries.create_temp(os.fspath(self._tmp))

    def lacks(self, sha: str) -> bool:
        """Whether neither our pack, as far as it was read, nor a loose file has it: others may drop theirs."""
        return sha not in self._own.objects and not self._loose.has(sha)

    def is_rotten(self, sha: str) -> bool:
        """Whether nothing but a loose file has it, and that is not what it says, hashed in full."""
        if sha in self._trusted or sha in self._own.objects:
            return False
        return self._loose.has(sha) and not self._loose.is_whole(sha)

    def mend(self, *, prove: bool = True) -> None:
        """Open our pack and, with `prove`, hash every object; a pack with damage in it is written anew without it.

        Crash story: a copy of the damaged pack is in quarantine before the new one takes its place in one rename.
        """
        with self._mutex:
            self._writable()
            if not readable.is_there(self._own.path):
                return
            if self._fd < 0:
                self._open()
            for sha in [sha for sha, is_whole in self._own.prove() if not is_whole] if prove else ():
                self._own.damage.append(f"{self._own.path.name}: object {sha[:12]} is damaged")
                del self._own.objects[sha]
            if self._own.damage:
                self._collect(self._own)
                self._write_anew()

    def _write_anew(self) -> None:
        path, fresh = os.fspath(self._own.path), Pack(self._own.path)
        kept_as = asides.keep_copy(self._own.path, self._quarantine, label="damaged")
        temp, writer = self._fresh_temp()
        try:
            try:
                for sha, (start, size) in sorted(self._own.objects.items(), key=lambda entry: entry[1]):
                    record = encode_record(sha, read_exactly(self._fd, start, size))
                    disk.write_all(writer, record, temp)
                    fresh.add(sha, fresh.end + len(record) - size - 1, size)
                disk.sync_file(writer, temp)
            finally:
                os.close(writer)
            disk.rename(temp, path)
        except BaseException:
            temporaries.discard(temp)
            raise
        disk.sync_dir(self._dir)
        before, self._fd = self._fd, disk.open_file(path, os.O_RDWR | os.O_APPEND)
        os.close(before)
        self._own = fresh
        self.damage.append(f"{self._own.path.name} was written anew; the damaged one is kept as {kept_as.name}")

    def get(self, sha: str) -> bytes | None:
        """The object, hashed; None if it is nowhere whole. What was found damaged is told in `damage`."""
        with self._mutex:
            if sha in self._unwritten:
                self.flush()
            for pack in self._packs_with(sha):
                data = self._read_packed(pack, sha)
                if data is not None:
                    return data
        return self._loose.read(sha)

    def has(self, sha: str) -> bool:
        """Whether an object of this name is there; only `get` proves that it is whole."""
        with self._mutex:
            return self._loose.has(sha) or any(True for _ in self._packs_with(sha))

    def is_whole(self, sha: str) -> bool:
        """Whether the object is somewhere, hashed in full; a large one is not held in memory."""
        if self._loose.has(sha):
            return self._loose.is_whole(sha)
        return self.get(sha) is not None

    def copy_to(self, sha: str, dest: Path) -> bool:
        """Write the object to the new file `dest`; False, and no file, if it is nowhere whole."""
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
        if self._loose.has(sha):
            return self._loose.copy(sha, writer, name)
        data = self.get(sha)
        if data is not None:
            disk.write_all(writer, data, name)
        return data is not None

    def sync(self) -> None:
        """Everything put so far is durable when this returns; costs nothing if nothing was."""
        if self._synced >= self._appended:
            return  # both only grow, and `_synced` is set last: a stale look only means one sync too many
        with self._sync_mutex:
            with self._mutex:
                goal = self._appended
                if self._synced >= goal:
                    return
                self._refuse_if_broken()
                self.flush()
            try:
                with readable.naming(self._own.path):
                    is_removed = os.fstat(self._fd).st_nlink == 0
                if is_removed:
                    raise FileNotFoundError(errno.ENOENT, "Removed while in use", os.fspath(self._own.path))
                disk.sync_data(self._fd, os.fspath(self._own.path))
                if not self._dir_synced:
                    disk.sync_dir(self._dir)
                    self._dir_synced = True
            except OSError as error:
                self._broken = str(error)
                raise
            self._synced = goal

    def flush(self) -> None:
        """Write out what was put: from then on it survives the process, and after a `sync` the machine."""
        with self._mutex:
            records, self._pieces = b"".join(self._pieces), []
            self._unwritten.clear()
            self._unwritten_bytes = 0
            if records:
                self._write([records])

    def _write(self, records: Iterable[bytes | memoryview]) -> None:
        """Append these to our pack, which counts them as there already."""
        path, written = os.fspath(self._own.path), 0
        try:
            for piece in records:
                disk.write_all(self._fd, piece, path)
                written += len(piece)
        except BaseException as error:
            self._broken = str(error)
            raise
        if written > _UNWRITTEN_MAX:  # the sync will have less to wait for
            disk.begin_sync(self._fd, self._own.end - written, written)

    def close(self) -> None:
        """Let go of the pack. What was put and never synced, nobody was told of: it is dropped."""
        with self._sync_mutex, self._mutex:
            self._pieces.clear()
            self._unwritten.clear()
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1
            # A body that outlives its run must not write into a pack that the next run appends to.
            self._broken = self._broken or "it was closed at the end of its run"

    def _writable(self) -> None:
        assert not self._read_only, "a read-only store was asked to write"
        if self._broken:
            self._refuse_if_broken()

    def _refuse_if_broken(self) -> None:
        if self._broken:
            raise StorageError(
                f"The object store {self._own.path} failed before: {self._broken}.",
                fix="What was recorded is safe: mend that, then run the same command.",
            )

    def _open(self) -> None:
        """Open our pack for appending, cutting off what a dead writer left half done."""
        atomic.make_dirs(self._dir, sync=True)
        path = os.fspath(self._own.path)
        self._fd = disk.open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            self._own.scan(self._fd)
            self._own_scanned = True
            if os.fstat(self._fd).st_size > self._own.end:
                kept_as = asides.cut_tail(self._fd, self._own.path, self._own.end, self._quarantine)
                self.damage.append(f"{self._own.path.name}: torn tail kept as {kept_as.name}")
        except OSError as error:
            self._broken = str(error)  # what is appended behind a tail would not be where we look for it
            raise
        if self._own.end:
            self._appended += 1  # an earlier process may have been killed before its sync

    def _append(self, sha: str, data: bytes) -> None:
        """Have our pack, which is open and has it not, get an object with the next flush."""
        header = encode_header(sha, len(data))
        self._pieces += (header, data, b"\n")
        self._unwritten.add(sha)
        self._unwritten_bytes += len(data)
        self._own.add(sha, self._own.end + len(header), len(data))
        self._appended += 1
        if self._unwritten_bytes > _UNWRITTEN_MAX:
            self.flush()

    def _kept_packed(self, sha: str) -> bool:
        """Whether our pack has it, hashed: `put` must not rely on a rotten copy."""
        if self._fd < 0:
            self._open()
        if sha not in self._own.objects:
            return False
        return sha in self._unwritten or self._read_packed(self._own, sha) is not None

    def _take_in(self, temp: Path, sha: str) -> None:
        """Keep a large file of ours by its name, unless it is kept already."""
        with self._mutex:
            if sha not in self._trusted and not self._loose.keeps(sha):
                self._loose.take(temp, sha)
                self._trusted.add(sha)

    def _read_packed(self, pack: Pack, sha: str) -> bytes | None:
        try:
            data = pack.read(sha)
        except FileNotFoundError:
            return None
        self._collect(pack)
        return data

    def _packs_with(self, sha: str) -> Iterator[Pack]:
        """Our pack, then, only if asked further, the others'; each is scanned when it is first needed."""
        if self._fd < 0 and (not self._own_scanned or sha not in self._own.objects):
            self._own.refresh()
            self._own_scanned = True
            self._collect(self._own)
        if sha in self._own.objects:
            yield self._own
        if self._loose.has(sha):
            return
        for pack in self._other_packs():
            if sha not in pack.objects:
                pack.refresh()
                self._collect(pack)
            if sha in pack.objects:
                yield pack

    def _other_packs(self) -> list[Pack]:
        try:
            names = sorted(os.listdir(self._dir), reverse=True)
        except FileNotFoundError:
            return []
        for name in names:
            if name.endswith(PACK_SUFFIX) and name != self._own.path.name and name not in self._others:
                self._others[name] = Pack(self._dir / name)
        return list(self._others.values())

    def _collect(self, pack: Pack) -> None:
        self.damage += pack.damage
        pack.damage.clear()
