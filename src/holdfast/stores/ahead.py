"""Files read and hashed by a second process (`reader.py`), in the order in which they are going to be wanted.

It only saves time. Nobody waits for it for long, and whatever goes wrong with it (it cannot start, is killed,
a file is not to be read, files are wanted in another order), the answer is None, and the caller reads the file
itself. So it is with what was read longer than half a second ago: whoever judges may be held up, and somebody
edit it meanwhile.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
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
_HELD_MAX = reader.PLACES * 3 // 4  # so many places hold what has come; the others are for what comes next
_BUFFER = 1 << 20
_SET_PIPE_SIZE: int | None = getattr(fcntl, "F_SETPIPE_SZ", None)  # Linux has it
_SHARED_BYTES = reader.PLACES_BEGIN + reader.PLACES * reader.PLACE_BYTES
# It has ended, or says what makes no sense: another version, put there since this one was loaded.
_ENDED = (EOFError, ValueError, MemoryError, msgspec.MsgspecError)


class Read(msgspec.Struct, frozen=True, gc=False):
    """What was read of a file, and what is known of it already."""

    data: bytes  # all of it; where a seal was found inside, all above that
    sha256: str = ""  # of these bytes; none: nobody has looked yet
    seal: bytes = b""  # the seal inside: what it says (see `seal_told`), or its line


class Fetched(msgspec.Struct, array_like=True, gc=False):
    """The same as it came, its bytes where others can be copied together with them; see reader.py."""

    begin: int
    header: int  # 0: the bytes are not there
    size: int
    sha256: str
    read_at: float
    seal: bytes
    place: Place | None = None

    def is_fresh(self) -> bool:
        """Whether it was read a moment ago."""
        return clock.monotonic() - self.read_at < _FRESH_S

    def read(self) -> Read | None:
        """What was read; None if its bytes did not come."""
        if self.place is None or not self.header:
            return None
        body = self.begin + self.header
        return Read(self.place.bytes[body : body + self.size].tobytes(), self.sha256, self.seal)


class Place:
    """The bytes of some files that were read together; given back when nobody refers to them any more."""

    __slots__ = ("_number", "_shared", "_taken", "bytes")

    def __init__(self, shared: memoryview, number: int, taken: set[int]) -> None:
        begin = reader.PLACES_BEGIN + number * reader.PLACE_BYTES
        self._shared = shared
        self._number = number
        self._taken = taken
        self.bytes = shared[begin : begin + reader.PLACE_BYTES]
        taken.add(number)

    def __del__(self) -> None:
        self._taken.discard(self._number)
        self._shared[self._number] = 0  # reader.FREE: at the end of a program no other module may be left


def records_of(files: Iterable[Fetched]) -> Iterator[memoryview]:
    """The bytes of each file as a pack has them, in this order: of neighbours all in one piece."""
    place: Place | None = None
    begin = end = 0
    for file in files:
        if file.place is not place or file.begin != end:
            if place is not None:
                yield place.bytes[begin:end]
            place, begin = file.place, file.begin
        end = file.begin + file.header + file.size + 1
    if place is not None:
        yield place.bytes[begin:end]


_decode_answers = msgspec.msgpack.Decoder(list[Fetched | None]).decode


class ReadAhead:
    """A second process that reads files of the open folder `root`: those that `send` names, in that order.

    All of them are named before the first is asked for.
    """

    def __init__(self, root: int) -> None:
        self._paths: list[str] = []
        self._at: dict[str, int] = {}  # where each stands among them; made if they are not wanted in that order
        self._answers: list[Fetched | None] = []  # those that have come, in that order; None once they were given
        self._next = 0  # which is wanted next, if all are wanted in their order
        self._oldest = 0  # of the answers that may be left
        self._late: set[int] = set()  # of these nobody wants the answer any more when it comes
        self._unsent = bytearray()  # what the process had no room for yet
        self._is_all = False  # there are no more paths than these
        self._taken_places: set[int] = set()
        self._expect(reader.MESSAGE.size)
        self._shared, self._process = _begin(root)

    @property
    def is_unused(self) -> bool:
        """Whether it waits to be told which files to read."""
        return not (self._paths or self._is_all or self._process is None)

    def send(self, paths: Sequence[str], signs: Iterable[str]) -> None:
        """Say which files to read next, each with its sign: see `reader.py`."""
        self._paths += paths
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

    def fetch_all(self, paths: Sequence[str]) -> list[Fetched | None]:
        """These files, once, waited for; None for one that whoever asks must read.

        So it is for all behind the first few if they are large: they need not be in memory all at once.
        """
        return self._taken(paths, patiently=True)

    def make_room(self) -> None:
        """Take in all that has come: else the process would wait for whoever has other things to do."""
        self._receive_until(len(self._paths), patiently=False)

    def _taken(self, paths: Sequence[str], *, patiently: bool) -> list[Fetched | None]:
        begin, end = self._next, self._next + len(paths)
        if self._paths[begin:end] == paths:  # as nearly always
            self._receive_until(end, patiently=patiently)
            found = self._answers[begin:end]
            self._answers[begin:end] = [None] * len(found)
            if len(found) < len(paths):
                self._late.update(range(begin + len(found), end))
                found += [None] * (len(paths) - len(found))
            self._next = end
        else:
            found = [self._take_one(path, patiently) for path in paths]
        oldest = min([one.read_at for one in found if one is not None], default=0.0)
        return found if clock.monotonic() - oldest < _FRESH_S else [_if_fresh(one) for one in found]

    def _take_one(self, path: str, patiently: bool) -> Fetched | None:
        if not self._at:
            self._at = {name: at for at, name in enumerate(self._paths)}
        at = self._at.get(path)
        if at is None:
            return None
        self._next = at + 1
        self._receive_until(at + 1, patiently=patiently)
        if at >= len(self._answers):
            self._late.add(at)
            return None
        found, self._answers[at] = self._answers[at], None
        return found

    def _receive_until(self, count: int, *, patiently: bool) -> None:
        """Take in answers until so many have come in all, or there is no more room for them."""
        try:
            while len(self._answers) < count and self._has_room() and self._receive(patiently):
                self._take_in()
        except _ENDED:
            self.close()

    def close(self) -> None:
        """Let the process go; from now on everybody reads for themselves."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None and process.stdout is not None:
            process.kill()
            process.stdin.close()
            process.stdout.close()
            process.wait()

    def _take_in(self) -> None:
        """Keep the answers that have come for whoever asks."""
        number, told = self._place, self._message
        self._expect(reader.MESSAGE.size)
        answers = _decode_answers(told)
        shared = self._shared if number < reader.NOWHERE else None
        place = Place(shared, number, self._taken_places) if shared is not None else None
        for answer in answers:
            if answer is not None:
                answer.place = place
                answer.header = answer.header if place is not None else 0
        first = len(self._answers)
        self._answers += answers
        if len(self._answers) > len(self._paths):
            raise ValueError
        for at in self._late.intersection(range(first, len(self._answers))) if self._late else ():
            self._answers[at] = None
        if self._is_all and len(self._answers) == len(self._paths):
            self.close()

    def _has_room(self) -> bool:
        """Whether more may come. If need be, the oldest that were passed over are forgotten: memory has an end."""
        if len(self._taken_places) >= _HELD_MAX:
            while len(self._taken_places) > _HELD_MAX // 2 and self._oldest < min(self._next, len(self._answers)):
                self._answers[self._oldest] = None
                self._oldest += 1
        return len(self._taken_places) < _HELD_MAX

    def _receive(self, patiently: bool) -> bool:
        """Whether the next answers have come, all of them."""
        if self._process is None:
            return False
        if not self._is_body:
            if not self._has_come(patiently):
                return False
            self._place, size = reader.MESSAGE.unpack(self._message)
            self._expect(size, is_body=True)
        return self._has_come(patiently)

    def _expect(self, size: int, *, is_body: bool = False) -> None:
        """So many bytes come next: what stands before a message, or the answers."""
        self._message, self._filled, self._is_body = bytearray(size), 0, is_body

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


def _begin(root: int) -> tuple[memoryview | None, subprocess.Popen[bytes] | None]:
    """The memory that is shared with the process, and the process; neither if they cannot be had here."""
    try:
        memory = _new_memory()
    except OSError:
        return None, None
    try:
        os.pwrite(memory, b"\0", _SHARED_BYTES - 1)
        return memoryview(mmap.mmap(memory, _SHARED_BYTES)), _start(root, memory)
    except OSError:
        return None, None
    finally:
        os.close(memory)


def _new_memory() -> int:
    """A descriptor of memory that another process can be given; no file that anybody could find."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("holdfast")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _start(root: int, shared: int) -> subprocess.Popen[bytes] | None:
    import subprocess  # takes its time to load, and few runs have so many files

    if not sys.executable or getattr(sys, "frozen", False):  # the latter would be the whole program around us
        return None
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", _program(), str(root), str(shared)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=(root, shared),
        bufsize=0,
    )
    assert process.stdin is not None and process.stdout is not None
    for pipe in (process.stdin, process.stdout):
        os.set_blocking(pipe.fileno(), False)
        _widen(pipe.fileno())
    return process


def _widen(pipe: int) -> None:
    """Let a pipe hold more, if the system has that to give: it gives each user so much, and then no more."""
    if _SET_PIPE_SIZE is not None:
        with suppress(OSError):
            fcntl.fcntl(pipe, _SET_PIPE_SIZE, _BUFFER)


def _program() -> str:
    """The file that the process runs: as it was compiled when we loaded it, if that is kept.

    If nothing is to be kept, there may still be what was compiled of an earlier version.
    """
    is_kept = reader.__spec__ is not None and not sys.dont_write_bytecode
    compiled = reader.__spec__.cached if is_kept and reader.__spec__ is not None else None
    return compiled if compiled and os.path.exists(compiled) else reader.__file__
