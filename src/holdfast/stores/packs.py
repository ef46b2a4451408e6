r"""Reading a pack: an append-only file of small objects, found by their hash.

A pack is a row of records, each of them

    {"sha256":"<64 hex digits>","size":<N>}\n      the header, exactly in this form
    <N bytes>\n                                    the object and one newline

so `tail -c +OFFSET | head -c N | sha256sum` proves any object. Headers are not protected: every object is
hashed when it is read. Scanning jumps from header to header. Where no header stands (damage), it searches
for the next record whose bytes match its hash; what is left over at the end is a torn tail.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.stores import readable

_HEADER_FORM = b'{"sha256":"%b","size":%d}\n'
_HEADER = re.compile(rb'\{"sha256":"([0-9a-f]{64})","size":(\d{1,12})\}\n')
_HEADER_START = b'{"sha256":"'
_HEADER_MAX = 128
_BLOCK = 1 << 20


def encode_header(sha256: str, size: int) -> bytes:
    """What stands before an object of this hash and size; behind it stands a newline."""
    return _HEADER_FORM % (sha256.encode(), size)


def encode_record(sha256: str, data: bytes) -> bytes:
    """One record, as a pack holds it."""
    return b"%b%b\n" % (encode_header(sha256, len(data)), data)


class Pack:
    """What one pack file holds, as far as it was scanned. Read-only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.objects: dict[str, tuple[int, int]] = {}  # sha256 -> offset of the first byte, size
        self.end = 0  # of the last whole record; what follows is torn or not yet scanned
        self.damage: list[str] = []
        self.is_damaged = False  # damage was found, told or not

    def spoil(self, sha256: str) -> None:
        """Note that the bytes of an object are not what they should be."""
        start, _ = self.objects.pop(sha256)
        self._tell(f"object {sha256[:12]} at byte {start} is damaged")

    def _tell(self, words: str) -> None:
        self.is_damaged = True
        self.damage.append(f"{self.path.name}: {words}")

    def add(self, sha256: str, start: int, size: int) -> None:
        """Note an object that begins at `start`."""
        self.objects[sha256] = (start, size)
        self.end = start + size + 1

    def scan(self, fd: int) -> None:
        """Take in everything from `end` to the end of the file."""
        with readable.naming(self.path):
            self._scan(_Window(fd))

    def _scan(self, window: _Window) -> None:
        position = self.end
        while position < window.size:
            header = _HEADER.match(window.at(position))
            if header is not None and self._take(window, position, header):
                position = self.end
                continue
            found = _resynchronise(window, position + 1)
            if found is None:
                return
            self._tell(f"bytes {position} to {found} are damaged")
            position = found

    def _take(self, window: _Window, position: int, header: re.Match[bytes]) -> bool:
        start, size = position + header.end(), int(header[2])
        if start + size >= window.size or bytes(window.at(start + size)[:1]) != b"\n":
            return False
        self.add(header[1].decode(), start, size)
        return True

    def refresh(self) -> None:
        """Scan what was appended since; a pack that is not there, or cannot be read as a file, holds nothing."""
        try:
            fd = readable.open_regular(os.fspath(self.path))
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in readable.UNREADABLE:
                raise
            if not self.is_damaged:
                self._tell(readable.why_unreadable(error))
            return
        try:
            self.scan(fd)
        finally:
            os.close(fd)

    def prove(self) -> Iterator[tuple[str, bool]]:
        """Each object's hash, and whether its bytes are what it says, in the order of the file."""
        if not self.objects:
            return
        with readable.opened(self.path) as fd:
            for sha256, (start, size) in sorted(self.objects.items(), key=lambda entry: entry[1]):
                yield sha256, hashlib.sha256(read_exactly(fd, start, size)).hexdigest() == sha256

    def read(self, sha256: str) -> bytes | None:
        """The object, hashed; None (and a word in `damage`) if its bytes are not what they should be."""
        start, size = self.objects[sha256]
        with readable.opened(self.path) as fd:
            data = read_exactly(fd, start, size)
        if hashlib.sha256(data).hexdigest() == sha256:
            return data
        self.spoil(sha256)
        return None


class _Window:
    """A file seen through one block that moves: long jumps cost one read, short ones none."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.size = os.fstat(fd).st_size
        self._start = 0
        self._block = b""

    def at(self, position: int) -> memoryview:
        """The bytes from `position` on: enough for a header, unless the file ends."""
        offset = position - self._start
        if not 0 <= offset <= len(self._block) - _HEADER_MAX:
            self._start, offset = position, 0
            self._block = os.pread(self.fd, _BLOCK, position)
        return memoryview(self._block)[offset:]


def _resynchronise(window: _Window, position: int) -> int | None:
    """Where the next record begins whose bytes match its hash, or None."""
    while position < window.size:
        block = bytes(window.at(position))
        if not block:  # somebody has cut the file meanwhile
            return None
        found = block.find(_HEADER_START)
        if found < 0:
            # The start of a header may be cut by the end of the block.
            position += max(1, len(block) - len(_HEADER_START))
            continue
        if _is_whole(window, position + found):
            return position + found
        position += found + 1
    return None


def _is_whole(window: _Window, position: int) -> bool:
    header = _HEADER.match(os.pread(window.fd, _HEADER_MAX, position))
    if header is None or position + header.end() + int(header[2]) >= window.size:
        return False
    data = read_exactly(window.fd, position + header.end(), int(header[2]))
    return hashlib.sha256(data).hexdigest().encode() == header[1]


def read_exactly(fd: int, start: int, size: int) -> bytes:
    """`size` bytes from `start`, or what there is of them."""
    data = os.pread(fd, size, start)
    while len(data) < size:
        more = os.pread(fd, size - len(data), start + len(data))
        if not more:
            break
        data += more
    return data
