"""A large file that a step wrote, taken over: hashed once, and of one name only."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from holdfast.stores import atomic, readable
from holdfast.stores.protocols import Claimed


def claim(path: Path, *, ends_line: bool) -> Claimed | None:
    """See `Files.claim`: a hard link becomes a copy, before anything is written to it."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    if status.st_nlink > 1:
        atomic.copy_over(path, os.fspath(path), sync=False)
    hasher, size, last = hashlib.sha256(), 0, b"\n"
    with readable.opened(path) as descriptor:
        for block in readable.blocks(descriptor):
            hasher.update(block)
            size += len(block)
            last = block[-1:]
    adds_newline = ends_line and size > 0 and last != b"\n"
    if adds_newline:  # a seal covers every byte above it, so the newline goes in before anything is recorded
        atomic.extend(path, b"\n")
        hasher.update(b"\n")
    return Claimed(size + adds_newline, hasher.hexdigest(), adds_newline)
