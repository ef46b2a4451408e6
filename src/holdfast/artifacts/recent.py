"""Bytes that were accepted a moment ago, by hash: consumers want them next, and need not read them back."""

from __future__ import annotations

import threading

BYTES_MAX = 8 << 20


class Recent:
    """The latest bytes, as many as fit. Safe to use from several threads."""

    def __init__(self) -> None:
        self._bodies: dict[str, bytes] = {}
        self._size = 0
        self._mutex = threading.Lock()

    def get(self, sha: str) -> bytes | None:
        return self._bodies.get(sha)

    def keep(self, sha: str, body: bytes) -> None:
        """Have these bytes at hand for whoever takes them next."""
        with self._mutex:
            if sha in self._bodies:
                return
            self._bodies[sha] = body
            self._size += len(body)
            while self._size > BYTES_MAX:
                oldest = next(iter(self._bodies))
                self._size -= len(self._bodies.pop(oldest))
