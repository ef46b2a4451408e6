"""The stores a project is kept in, as short protocols."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol


class Objects(Protocol):
    """Contents by their SHA-256, as one run sees them: found whole, or not at all. For any number of writers.

    After a failed write or sync nobody knows what is kept, so nothing more is taken.
    """

    damage: list[str]
    """What was found damaged, and what was done about it, in words."""

    def put(self, data: bytes, sha256: str | None = None) -> str:
        """Keep `data`; gives its hash (pass it if you have it). Durable after the next `sync`."""

    def put_blocks(self, blocks: Iterable[bytes], sha256: str = "") -> tuple[str, int] | None:
        """Keep what need not be in memory at once: its hash and size. None, and nothing kept, if not `sha256`."""

    def get(self, sha: str) -> bytes | None:
        """The object, hashed; None if it is nowhere whole."""

    def has(self, sha: str) -> bool:
        """Whether an object of this name is there; only `get` and `is_whole` prove it."""

    def is_whole(self, sha: str) -> bool:
        """Whether the object is somewhere, hashed in full; a large one is not held in memory."""

    def keeps(self, sha: str, *, prove: bool = False) -> bool:
        """Whether this run has it, whoever else does: theirs may be dropped. `prove` hashes a large one."""

    def copy_to(self, sha: str, dest: Path) -> bool:
        """Write the object to the new file `dest`; False, and no file, if it is nowhere whole."""

    def prove(self) -> Iterator[tuple[str, bool]]:
        """The hash of each small object of this run, and whether its bytes are what it says. Changes nothing."""

    def mend(self, *, prove: bool = True) -> None:
        """Put what is damaged of this run's out of the way; what is whole stays. `prove` hashes every object."""

    def sync(self) -> None:
        """Everything put so far is durable when this returns; costs nothing if nothing was."""

    def drop(self, run_id: str) -> None:
        """Remove all objects of a run; harmless if there are none."""

    def close(self) -> None:
        """Let go of what is held open. What was put and never synced may be dropped; nothing more is taken."""
