"""Files read and hashed by a second process (`reader.py`), in the order in which they are going to be wanted.

It only saves time. Nobody waits for it for long, and whatever goes wrong with it (it cannot start, is killed,
a file is not to be read, files are wanted in another order), the answer is None, and the caller reads the file
itself. So it is with what was read longer than half a second ago: whoever judges may be held up, and somebody
edit it meanwhile.
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
_PATIENCE_S = 5.0
_KEPT_MAX = 2000
_BUFFER = 1 << 20
_SIZES = reader.SIZES.size


class Read(msgspec.Struct, frozen=True, gc=False):
    """The bytes of a file, and what is known of them already."""

    data: bytes
    covered: int = 0  # how many of the first bytes the hash is of; where a seal is inside, all above the last line
    sha256: str = ""  # none: nobody has looked yet
    seal: bytes = b""  # what a seal in the last line says: see `seal_told`


class Fetched(msgspec.Struct, array_like=True, gc=False):
    """The same as it came, its bytes among those of others; see reader.py."""

    begin: int
    header: int
    covered: int
    size: int
    sha256: str
    read_at: float
    seal: bytes
    files: memoryview = memoryview(b"")

    def is_fresh(self) -> bool:
        """Whether it was read a moment ago."""
        return clock.monotonic() - self.read_at < _FRESH_S

    @property
    def record(self) -> memoryview:
        """The covered bytes as a pack has them: header, bytes, newline."""
        return self.files[self.begin : self.begin + self.header + self.covered + 1]

    def read(self) -> Read:
        body = self.begin + self.header
        rest = body + self.covered + 1
        data = b"".join((self.files[body : rest - 1], self.files[rest : rest + self.size - self.covered]))
        return Read(data, self.covered, self.sha256, self.seal)


_decode_answers = msgspec.msgpack.Decoder(list[Fetched | None]).decode


class ReadAhead:
    """A second process that reads files of the open folder `root`: those that `send` names, in that order."""

    def __init__(self, root: int) -> None:
        self._paths: Sequence[str] = ()
        self._unasked: set[str] = set()  # of those that have not come
        self._come: dict[str, Fetched] = {}  # answers that nobody has asked for yet
        self._next = 0  # the place of the file whose answer comes next
        self._expect(_SIZES)
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

    def take(self, path: str) -> Read | None:
        """The file, once; None if it has not come, and whoever asks must read it."""
        found = self._taken(path, patiently=False)
        return found.read() if found is not None else None

    def fetch(self, path: str) -> Fetched | None:
        """The file, once, waited for; None if whoever asks must read it."""
        return self._taken(path, patiently=True)

    def make_room(self) -> None:
        """Take in all that has come: else the process would wait for whoever has other things to do."""
        try:
            while self._process is not None and len(self._come) < _KEPT_MAX // 2 and self._receive(False):
                self._take_in()
        except EOFError:
            self.close()

    def _taken(self, path: str, *, patiently: bool) -> Fetched | None:
        found = self._come.pop(path, None)
        if found is None and path in self._unasked:
            found = self._received_now(path, patiently)
        return found if found is not None and found.is_fresh() else None

    def _received_now(self, path: str, patiently: bool) -> Fetched | None:
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
        message, told = memoryview(self._message), self._told
        self._expect(_SIZES)
        answers, files = _decode_answers(message[:told]), message[told:]
        for path, answer in zip(self._paths[self._next : self._next + len(answers)], answers, strict=True):
            if path in self._unasked:
                self._unasked.discard(path)
                if answer is not None:
                    answer.files = files
                    self._come[path] = answer
        self._next += len(answers)
        while len(self._come) > _KEPT_MAX:
            del self._come[next(iter(self._come))]
        if self._next == len(self._paths):
            self.close()

    def _receive(self, patiently: bool) -> bool:
        """Whether the next answers have come, all of them."""
        if not self._told:
            if not self._has_come(patiently):
                return False
            size, told = reader.SIZES.unpack(self._message)
            self._expect(size, told)
        return self._has_come(patiently)

    def _expect(self, size: int, told: int = 0) -> None:
        """So many bytes come next: two sizes, or answers, which take the first `told` of them."""
        self._message, self._filled, self._told = bytearray(size), 0, told

    def _has_come(self, patiently: bool) -> bool:
        """Take in what lies in the pipe; whether all that is expected is here then."""
        assert self._process is not None and self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while self._filled < len(self._message):
            try:
                count = os.readv(pipe, [memoryview(self._message)[self._filled :]])
            except BlockingIOError:
                if not patiently:
                    return False
                if not select.select([pipe], [], [], _PATIENCE_S)[0]:  # it hangs: we shall not
                    raise EOFError from None
                continue
            if not count:
                raise EOFError
            self._filled += count
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
