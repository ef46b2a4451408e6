"""Where a context hands in what it has to say. The engine has one; `holdfast.testing` another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from holdfast import events as ev

T = TypeVar("T")


class Desk(Protocol):
    """What may be asked of it."""

    def commit(self, *events: ev.Event) -> None:
        """Record these durably before returning."""

    async def commit_async(self, *events: ev.Event) -> None:
        """The same without blocking the event loop."""

    def say(self, event: ev.Event) -> None:
        """Record this soon; it survives the process, and is synced with the next commit."""

    def store(self, data: bytes) -> str:
        """Keep the result of a paid call by hash."""

    def fetch(self, ref: str) -> bytes:
        """Bytes kept by hash."""

    def read_back(self, load: Callable[[], T]) -> T:
        """What `load` reads of finished work; a disk that fails at that stops the run."""

    def before_paying(self, task: str) -> None:
        """Refuse, and stop the run, if the result of a call could not be kept."""

    def begin_stream(self, path: str, task: str) -> None:
        """Set aside what stands where a file of the work tree is going to grow."""

    def stream(self, path: str, data: bytes, size: int | None) -> int:
        """Append to a growing file of the work tree that has `size` bytes (None: any); gives its new size."""

    def fresh_path(self, name: str) -> Path:
        """A path for a large file, on the project's disk, not existing yet."""
