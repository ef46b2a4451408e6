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
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast import clock
from holdfast.stores import reader

if TYPE_CHECKING:
    import subprocess

FILES_MIN = 1000
"""For fewer files a second process is not worth its start."""

_FRESH_S = 0.5
_PATIENCE_S = 5.0
_HELD_MAX = 32 << 20  # so many bytes of files are held in memory
_BUFFER = 1 << 20
# It has ended, or says what makes no sense: another version, put there since this one was loaded.
_ENDED = (EOFError, ValueError, MemoryError, msgspec.MsgspecError)
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
    rest: int
    left: int
    sha256: str
    read_at: float
    seal: bytes
    message: Message | None = None

    def is_fresh(self) -> bool:
        """Whether it was read a moment ago."""
        return clock.monotonic() - self.read_at < _FRESH_S

    def read(self) -> Read:
        assert self.message is not None
        body = self.begin + self.header
        above = self.message.records[body : body + self.covered]
        data = b"".join((above, self.message.rests[self.rest : self.rest + self.left]))
        return Read(data, self.covered, self.sha256, self.seal)


class Message(NamedTuple):
    """The bytes of some files that came together."""

    records: memoryview
    rests: memoryview


def records_of(files: Iterable[Fetched]) -> Iterator[memoryview]:
    """The covered bytes of each file as a pack has them, in this order: of neighbours all in one piece."""
    message: Message | None = None
    begin = end = 0
    for file in files:
        if file.message is not message or file.begin != end:
            if message is not None:
                yield message.records[begin:end]
            message, begin = file.message, file.begin
        end = file.begin + file.header + file.covered + 1
    if message is not None:
        yield message.records[begin:end]


_decode_answers = msgspec.msgpack.Decoder(list[Fetched | None]).decode


class ReadAhead:
    """A second process that reads files of the open folder `root`: those that `send` names, in that order.

    All of them are named before the first is asked for.
    """

    def __init__(self, root: int) -> None:
        self._paths: list[str] = []
        self._unsent = bytearray()  # what the process had no room for yet
        self._is_all = False  # there are no more paths than these
        self._unasked: set[str] = set()  # of those that have not come
        self._come: dict[str, Fetched] = {}  # answers that nobody has asked for yet
        self._held = 0  # so many bytes are theirs
        self._next = 0  # the place of the file whose answer comes next
        self._expect(_SIZES)
        self._process = _start(root)

    @property
    def is_unused(self) -> bool:
        """Whether it waits to be told which files to read."""
        return not (self._paths or self._is_all or self._process is None)

    def send(self, paths: Sequence[str], is_whole: Sequence[bool]) -> None:
        """Say which files to read next; those `whole` have no seal inside."""
        self._paths += paths
        self._unasked.update(paths)
        signs = [reader.WHOLE if whole else reader.INSIDE for whole in is_whole]
        self._unsent += "".join([f"{sign}{path}\0" for sign, path in zip(signs, paths, strict=True)]).encode()
        self._send_on()

    def send_no_more(self) -> None:
        """Those were all."""
        self._is_all = True
        self._send_on()

    def _send_on(self) -> None:
        """Send what the process has room for. Nobody waits here: it may be waiting for us to take its answers."""
        if self._process is None or self._process.stdin is None or self._process.stdin.closed:
            return
        try:
            while self._unsent:
                del self._unsent[: os.write(self._process.stdin.fileno(), self._unsent)]
            if self._is_all:
                self._process.stdin.close()
        except BlockingIOError:
            pass
        except OSError:  # it has ended already: its first answer is the end of the file
            self._unsent.clear()

    def take(self, path: str) -> Read | None:
        """The file, once; None if it has not come, and whoever asks must read it."""
        (found,) = self._taken([path], patiently=False)
        return found.read() if found is not None else None

    def fetch_all(self, paths: Iterable[str]) -> list[Fetched | None]:
        """These files, once, waited for; None for one that whoever asks must read.

        So it is for all behind the first few if they are large: they need not be in memory all at once.
        """
        return self._taken(paths, patiently=True)

    def make_room(self) -> None:
        """Take in all that has come: else the process would wait for whoever has other things to do."""
        try:
            while self._process is not None and self._held < _HELD_MAX // 2 and self._receive(False):
                self._take_in()
        except _ENDED:
            self.close()

    def _taken(self, paths: Iterable[str], *, patiently: bool) -> list[Fetched | None]:
        come, found, taken = self._come, [], 0
        for path in paths:
            if path not in come and path in self._unasked and taken < _HELD_MAX:
                self._receive_now(path, patiently)
            one = come.pop(path, None) if taken < _HELD_MAX else None
            if one is not None:
                taken += one.covered + one.left
            found.append(one)
        self._held -= taken
        oldest = min([one.read_at for one in found if one is not None], default=0.0)
        return found if clock.monotonic() - oldest < _FRESH_S else [_if_fresh(one) for one in found]

    def _receive_now(self, path: str, patiently: bool) -> None:
        """Take in the answer about a file, if it comes now; if not, it is not wanted any more."""
        try:
            while path in self._unasked and self._process is not None and self._receive(patiently):
                self._take_in()
        except _ENDED:
            self.close()
        self._unasked.discard(path)

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
        come, (told, recorded, _) = memoryview(self._message), self._parts
        self._expect(_SIZES)
        answers = _decode_answers(come[:told])
        message = Message(come[told : told + recorded], come[told + recorded :])
        for path, answer in zip(self._paths[self._next : self._next + len(answers)], answers, strict=True):
            if path in self._unasked:
                self._unasked.discard(path)
                if answer is not None:
                    answer.message = message
                    self._come[path] = answer
                    self._held += answer.covered + answer.left
        self._next += len(answers)
        while self._held > _HELD_MAX and len(self._come) > len(answers):
            oldest = self._come.pop(next(iter(self._come)))
            self._held -= oldest.covered + oldest.left
        if self._is_all and self._next == len(self._paths):
            self.close()

    def _receive(self, patiently: bool) -> bool:
        """Whether the next answers have come, all of them."""
        if not self._parts:
            if not self._has_come(patiently):
                return False
            parts = reader.SIZES.unpack(self._message)
            self._expect(sum(parts), parts)
        return self._has_come(patiently)

    def _expect(self, size: int, parts: tuple[int, ...] = ()) -> None:
        """So many bytes come next: the sizes of a message, or a message, with parts of these sizes."""
        self._message, self._filled, self._parts = bytearray(size), 0, parts

    def _has_come(self, patiently: bool) -> bool:
        """Take in what lies in the pipe; whether all that is expected is here then."""
        assert self._process is not None and self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while self._filled < len(self._message):
            try:
                count = os.readv(pipe, [memoryview(self._message)[self._filled :]])
            except BlockingIOError:
                self._send_on()
                if not patiently:
                    return False
                self._wait()
                continue
            if not count:
                raise EOFError
            self._filled += count
        return True

    def _wait(self) -> None:
        """Until the process has said something, or has room for what it is to be told."""
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        watch = select.poll()
        watch.register(self._process.stdout.fileno(), select.POLLIN)
        if self._unsent:
            watch.register(self._process.stdin.fileno(), select.POLLOUT)
        if not watch.poll(_PATIENCE_S * 1000):  # it hangs: we shall not
            raise EOFError


def _if_fresh(found: Fetched | None) -> Fetched | None:
    return found if found is not None and found.is_fresh() else None


def _start(root: int) -> subprocess.Popen[bytes] | None:
    """The process; None if there cannot be one here."""
    import subprocess  # takes its time to load, and few runs have so many files

    if not sys.executable:
        return None
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", _program(), str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(root,),
            bufsize=0,
            pipesize=_BUFFER,
        )
    except OSError:
        return None
    assert process.stdin is not None and process.stdout is not None
    os.set_blocking(process.stdin.fileno(), False)
    os.set_blocking(process.stdout.fileno(), False)
    return process


def _program() -> str:
    """The file that the process runs: as it was compiled when we loaded it, where that was kept."""
    compiled = reader.__spec__.cached if reader.__spec__ is not None else None
    return compiled if compiled and os.path.exists(compiled) else reader.__file__
