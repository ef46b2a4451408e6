"""Objects in memory, which lose what was not synced when told to `crash()`; and ones that fail when told to."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.errors import StorageError
from holdfast.stores import atomic
from holdfast.stores.protocols import Objects

Kept = dict[str, dict[str, bytes]]
"""Run -> hash -> bytes."""


class MemoryObjects:
    """See `Objects`. `another()` is one more writer of the same project, for this run or another."""

    def __init__(self, run_id: str = "run", kept: Kept | None = None, durable: Kept | None = None) -> None:
        self.damage: list[str] = []
        self.kept: Kept = kept if kept is not None else {}
        self._durable: Kept = durable if durable is not None else {}
        self._run_id = run_id

    def another(self, run_id: str = "") -> MemoryObjects:
        return MemoryObjects(run_id or self._run_id, self.kept, self._durable)

    def crash(self) -> None:
        """Lose what was not synced."""
        self.kept.clear()
        self.kept.update({run: dict(objects) for run, objects in self._durable.items()})

    def put(self, data: bytes, sha256: str | None = None) -> str:
        sha = sha256 or hashlib.sha256(data).hexdigest()
        self.kept.setdefault(self._run_id, {})[sha] = data
        return sha

    def put_blocks(self, blocks: Iterable[bytes], sha256: str = "") -> tuple[str, int] | None:
        data = b"".join(blocks)
        sha = hashlib.sha256(data).hexdigest()
        if sha256 not in ("", sha):
            return None
        return self.put(data, sha), len(data)

    def get(self, sha: str) -> bytes | None:
        for objects in self.kept.values():
            data = objects.get(sha)
            if data is not None and hashlib.sha256(data).hexdigest() == sha:
                return data
            if data is not None:
                self._spoil(objects, sha)
        return None

    def _spoil(self, objects: dict[str, bytes], sha: str) -> None:
        del objects[sha]
        self.damage.append(f"object {sha[:12]} is damaged")

    def has(self, sha: str) -> bool:
        return any(sha in objects for objects in self.kept.values())

    def is_whole(self, sha: str) -> bool:
        return self.get(sha) is not None

    def keeps(self, sha: str, *, prove: bool = False) -> bool:
        return sha in self.kept.get(self._run_id, {})

    def copy_to(self, sha: str, dest: Path) -> bool:
        data = self.get(sha)
        if data is not None:
            atomic.write_file(dest, data, sync=False)
        return data is not None

    def prove(self) -> Iterator[tuple[str, bool]]:
        for sha, data in list(self.kept.get(self._run_id, {}).items()):
            is_whole = hashlib.sha256(data).hexdigest() == sha
            if not is_whole:
                self.damage.append(f"object {sha[:12]} is damaged")
            yield sha, is_whole

    def mend(self, *, prove: bool = True) -> None:
        for sha, is_whole in list(self.prove()) if prove else ():
            if not is_whole:
                del self.kept[self._run_id][sha]

    def sync(self) -> None:
        self._durable.update({run: dict(objects) for run, objects in self.kept.items()})

    def drop(self, run_id: str) -> None:
        self.kept.pop(run_id, None)
        self._durable.pop(run_id, None)

    def close(self) -> None:
        """There is nothing to close."""


class FailingObjects:
    """Objects whose `at`-th write or sync fails with an errno; then nothing more is taken (0: none fails)."""

    def __init__(self, inner: Objects, at: int, *, error: int = errno.EIO) -> None:
        self.inner = inner
        self.operations = 0
        self._at, self._errno = at, error
        self._is_broken = False

    @property
    def damage(self) -> list[str]:
        return self.inner.damage

    @damage.setter
    def damage(self, damage: list[str]) -> None:
        self.inner.damage = damage

    def _count(self, doing: str) -> None:
        self.operations += 1
        if self._is_broken or self.operations == self._at:
            self._is_broken = True
            raise StorageError.from_os(OSError(self._errno, os.strerror(self._errno)), doing)

    def put(self, data: bytes, sha256: str | None = None) -> str:
        self._count("write to objects/")
        return self.inner.put(data, sha256)

    def put_blocks(self, blocks: Iterable[bytes], sha256: str = "") -> tuple[str, int] | None:
        self._count("write to objects/")
        return self.inner.put_blocks(blocks, sha256)

    def get(self, sha: str) -> bytes | None:
        return self.inner.get(sha)

    def has(self, sha: str) -> bool:
        return self.inner.has(sha)

    def is_whole(self, sha: str) -> bool:
        return self.inner.is_whole(sha)

    def keeps(self, sha: str, *, prove: bool = False) -> bool:
        return self.inner.keeps(sha, prove=prove)

    def copy_to(self, sha: str, dest: Path) -> bool:
        return self.inner.copy_to(sha, dest)

    def prove(self) -> Iterator[tuple[str, bool]]:
        return self.inner.prove()

    def mend(self, *, prove: bool = True) -> None:
        self._count("mend objects/")
        self.inner.mend(prove=prove)

    def sync(self) -> None:
        self._count("sync objects/")
        self.inner.sync()

    def drop(self, run_id: str) -> None:
        self._count("remove from objects/")
        self.inner.drop(run_id)

    def close(self) -> None:
        self.inner.close()
