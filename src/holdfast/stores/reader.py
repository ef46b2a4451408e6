"""A program of its own: reads files and hashes them, ahead of the process that judges them. Read-only.

`ahead.py` starts it without site packages, so that it is there in a moment: nothing of Holdfast is imported here.
It takes all paths from its standard input, separated by zeros, relative to the folder whose descriptor is its
first argument, and gives for each of them, in their order, a header and the bytes:

    size of what follows (4 bytes), how many of these bytes the hash covers (4), that hash (32)

The hash is of everything above the last line, where a seal stands; after "=" the path is of a file that has its
seal beside it, and the hash is of all. A file that is large, or cannot be read as a plain file, is only said to be
UNREAD: whoever wants it opens it and meets the reason. It ends when nobody listens any more.
"""

from __future__ import annotations

import hashlib
import os
import signal
import stat
import struct
import sys
from collections.abc import Iterator

HEADER = struct.Struct("<II32s")
UNREAD = HEADER.pack(0, 0xFFFFFFFF, bytes(32))
WHOLE = "="
SIZE_MAX = 1 << 20

_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_STRETCH = 32


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    root = int(sys.argv[1])
    paths = sys.stdin.buffer.read().decode().split("\0")
    for start in range(0, len(paths), _STRETCH):
        answers = b"".join(_answers(root, paths[start : start + _STRETCH]))
        while answers:
            answers = answers[os.write(1, answers) :]


def _answers(root: int, paths: list[str]) -> Iterator[bytes]:
    """A folder is opened once for a stretch of files: one that is put in its place is noticed by the next."""
    folders: dict[str, int] = {}
    for wanted in paths:
        path = wanted.removeprefix(WHOLE)
        above, _, name = path.rpartition("/")
        try:
            if above not in folders:
                folders[above] = _open_folder(root, above)
            yield _answer(folders[above], name, is_whole=path is not wanted)
        except OSError:
            yield UNREAD
    for folder in folders.values():
        os.close(folder)


def _open_folder(root: int, path: str) -> int:
    """The folder, each on the way opened beneath the one above it, links not followed."""
    folder = os.dup(root)
    for name in path.split("/") if path else ():
        above, folder = folder, os.open(name, _FOLDER_FLAGS, dir_fd=folder)
        os.close(above)
    return folder


def _answer(folder: int, name: str, *, is_whole: bool) -> bytes:
    file = os.open(name, _FILE_FLAGS, dir_fd=folder)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > SIZE_MAX:
            return UNREAD
        data = os.read(file, status.st_size + 1)
    finally:
        os.close(file)
    if len(data) != status.st_size:  # it is being written
        return UNREAD
    covered = len(data) if is_whole else data.rstrip().rfind(b"\n") + 1
    return HEADER.pack(len(data), covered, hashlib.sha256(data[:covered]).digest()) + data


if __name__ == "__main__":
    main()
