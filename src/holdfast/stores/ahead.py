"""Files read and hashed by a second process (`reader.py`), in the order in which they are going to be wanted.

It only saves time. Nobody waits for it, and whatever goes wrong with it (it cannot start, is killed, a file is not
to be read, files are wanted in another order), the answer is None, and the caller reads the file itself. So it is
with what was read longer than half a second ago: whoever judges may be held up, and somebody edit it meanwhile.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast import clock
from holdfast.stores import reader

if TYPE_CHECKING:
    import subprocess

FILES_MIN = 1000
"""For fewer files a second process is not worth its start."""

_FRESH_S = 0.5
_PASSED_MAX = 500
_BUFFER = 1 << 18
_HEADER_SIZE = reader.HEADER.size


class Read(msgspec.Struct, frozen=True, gc=False):
    """The bytes of a file, and what is known of their hash already."""

    data: bytes
    covered: int = -1  # of how many of the first bytes; the last line begins behind them
    sha256: str = ""
    words: bytes = b""  # of a seal in the last line: see `seal_words`
    read_at: float = 0.0


class ReadAhead:
    """A second process that reads files of the open folder `root`: those that `send` names, in that order."""

    def __init__(self, root: int) -> None:
        self._paths: Sequence[str] = ()
        self._places: dict[str, int] = {}  # of those not asked for yet
        self._next = 0  # the place of the file whose answer comes next
        self._passed: dict[str, Read] = {}  # answers about files that were not asked for in their turn
        self._received, self._at = b"", 0
        self._header = (0, 0, 0, b"", 0.0)  # of the answer that comes next, once it has come
        self._process = _start(root)

    def send(self, paths: Sequence[str], is_whole: Sequence[bool]) -> None:
        """Say, once, which files to read; those `whole` have no seal inside."""
        self._paths = paths
        self._places = {path: place for place, path in enumerate(paths)}
        signs = [reader.WHOLE if whole else reader.INSIDE for whole in is_whole]
        wanted = [sign + path for sign, path in zip(signs, paths, strict=True)]
        if self._process is not None and self._process.stdin is not None:
            try:
                with self._process.stdin as requests:
                    requests.write("\0".join(wanted).encode())
            except OSError:  # it has ended already: its first answer is the end of the file
                pass

    def take(self, path: str, *, patiently: bool = False) -> Read | None:
        """The file, once; None if whoever asks must read it. An answer is waited for only `patiently`."""
        found = self._taken(path, patiently)
        return found if found is not None and clock.monotonic() - found.read_at < _FRESH_S else None

    def _taken(self, path: str, patiently: bool) -> Read | None:
        place = self._places.pop(path, -1)
        if place < self._next or self._process is None:
            return self._passed.pop(path, None)
        found = None
        try:
            while self._next < place and self._has_come(patiently):
                self._pass_over(self._paths[self._next], self._answer())
            if self._next == place and self._has_come(patiently):
                found = self._answer()
        except EOFError:
            self.close()
        if self._next == len(self._paths):
            self.close()
        return found

    def close(self) -> None:
        """Let the process go; from now on everybody reads for themselves."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None and process.stdout is not None:
            process.kill()
            process.stdin.close()
            process.stdout.close()
            process.wait()

    def _pass_over(self, path: str, answer: Read | None) -> None:
        """Keep an answer for whoever asks later; of very many, the oldest is let go."""
        if answer is not None and path in self._places:
            self._passed[path] = answer
            if len(self._passed) > _PASSED_MAX:
                del self._passed[next(iter(self._passed))]

    def _has_come(self, patiently: bool) -> bool:
        """Whether all that is said of the next file has been received."""
        received = len(self._received) - self._at
        if received < _HEADER_SIZE and not self._receive(_HEADER_SIZE, patiently):
            return False
        self._header = reader.HEADER.unpack_from(self._received, self._at)
        whole = _HEADER_SIZE + self._header[0] + self._header[2]
        return received >= whole or self._receive(whole, patiently)

    def _answer(self) -> Read | None:
        """What is said of the next file, all of which has come."""
        self._next += 1
        size, covered, more, sha256, read_at = self._header
        begins = self._at + _HEADER_SIZE
        ends = begins + size
        self._at = ends + more
        if covered > size:
            return None
        received = self._received
        return Read(received[begins:ends], covered, sha256.hex(), received[ends : self._at], read_at)

    def _receive(self, size: int, patiently: bool) -> bool:
        """Take in what lies in the pipe; whether so many bytes are here then."""
        assert self._process is not None and self._process.stdout is not None
        while len(self._received) < self._at + size:
            try:
                block = os.read(self._process.stdout.fileno(), _BUFFER)
            except BlockingIOError:
                if not patiently:
                    return False
                select.select([self._process.stdout], [], [])
                continue
            if not block:
                raise EOFError
            self._received, self._at = self._received[self._at :] + block, 0
        return True


def _start(root: int) -> subprocess.Popen[bytes] | None:
    """The process; None if there cannot be one here."""
    import subprocess  # takes its time to load, and few runs have so many files

    if not sys.executable:
        return None
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", reader.__file__, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(root,),
            bufsize=_BUFFER,
            pipesize=_BUFFER,
        )
    except OSError:
        return None
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    return process
