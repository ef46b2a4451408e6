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
_KEPT_MAX = 500
_BUFFER = 1 << 18
_SIZE_BYTES = reader.SIZE_OF_ANSWERS.size


class Read(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The bytes of a file, and what is known of them already."""

    data: bytes
    covered: int = 0  # how many of the first bytes the hash is of; where a seal is inside, all above the last line
    sha256: str = ""  # none: nobody has looked yet
    read_at: float = 0.0
    seal: bytes = b""  # what a seal in the last line says: see `seal_told`


_decode_answers = msgspec.msgpack.Decoder(list[Read | None]).decode


class ReadAhead:
    """A second process that reads files of the open folder `root`: those that `send` names, in that order."""

    def __init__(self, root: int) -> None:
        self._paths: Sequence[str] = ()
        self._unasked: set[str] = set()  # of those that have not come
        self._come: dict[str, Read] = {}  # answers that nobody has asked for yet
        self._next = 0  # the place of the file whose answer comes next
        self._received, self._at = b"", 0
        self._process = _start(root)

    def send(self, paths: Sequence[str], is_whole: Sequence[bool]) -> None:
        """Say, once, which files to read; those `whole` have no seal inside."""
        self._paths, self._unasked = paths, set(paths)
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
        found = self._come.pop(path, None)
        if found is None and path in self._unasked:
            found = self._received_now(path, patiently)
        return found if found is not None and clock.monotonic() - found.read_at < _FRESH_S else None

    def _received_now(self, path: str, patiently: bool) -> Read | None:
        """The answer about a file, if it comes now; if not, it is not wanted any more."""
        try:
            while path in self._unasked and self._process is not None and self._receive(patiently):
                self._take_in()
        except EOFError:
            self.close()
        self._unasked.discard(path)
        return self._come.pop(path, None)

    def close(self) -> None:
        """Let the process go; from now on everybody reads for themselves."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None and process.stdout is not None:
            process.kill()
            process.stdin.close()
            process.stdout.close()
            process.wait()

    def _take_in(self) -> None:
        """Keep the answers that have come for whoever asks; of very many, the oldest are let go."""
        ends = self._at + _SIZE_BYTES + self._size()
        answers = _decode_answers(memoryview(self._received)[self._at + _SIZE_BYTES : ends])
        self._at = ends
        about = self._paths[self._next : self._next + len(answers)]
        self._come |= {p: read for p, read in zip(about, answers, strict=True) if read and p in self._unasked}
        self._unasked.difference_update(about)
        self._next += len(answers)
        while len(self._come) > _KEPT_MAX:
            del self._come[next(iter(self._come))]
        if self._next == len(self._paths):
            self.close()

    def _receive(self, patiently: bool) -> bool:
        """Whether the next answers have come, all of them."""
        return self._has_come(_SIZE_BYTES, patiently) and self._has_come(_SIZE_BYTES + self._size(), patiently)

    def _size(self) -> int:
        (size,) = reader.SIZE_OF_ANSWERS.unpack_from(self._received, self._at)
        return int(size)

    def _has_come(self, size: int, patiently: bool) -> bool:
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
