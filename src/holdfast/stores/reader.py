"""A program of its own: reads files, hashes them and finds their seals, ahead of whoever judges them. Read-only.

`ahead.py` starts it without site packages, so that it is there in a moment: nothing of Holdfast is imported here.
That is why the form of a seal's line is written down here, where both processes have it.

It takes paths from its standard input until that ends, a zero behind each, relative to the folder whose
descriptor is its first argument, and answers in their order, about some at a time (up to STRETCH), so that whoever
takes the answers has little work with each. A path follows a sign: "-" for a file that may have a seal inside, and
the hash is of everything above that; "+" for such a file, too, if the seal is to be told as it stands; "=" for any
other, and the hash is of all.

A message is the number of the place where the files' bytes are, the size of what follows, and an array of answers
in MessagePack. An answer is an array, too:

    where the file's record begins in that place, how long the header there is (0: its bytes are not there), how
    many bytes the hash covers, the hash, when the file was read, in seconds that only go forward, and what the
    seal inside says (JSON, see `seal_told`), or its line

Of a file that is large, or cannot be read as a plain file, the answer is nil: whoever wants it opens it and meets
the reason.

The bytes are in memory that both processes share, for few of them are ever looked at: a file whose descriptor is
the second argument, with a byte for each place that says whether it is taken, and the places. Who answers takes a
place, who listens gives it back. In it the bytes that a hash covers stand between a header and a newline, as a
pack of objects (packs.py) has them: whoever believes many files can keep the copies of all of them as they came.

It ends when nobody listens any more.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import stat
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator

INSIDE, AS_IT_STANDS, WHOLE = "-", "+", "="
SIZE_MAX = 1 << 20
STRETCH = 32
MESSAGE = struct.Struct(">HI")  # the number of the place, the size of the answers
PLACES, PLACE_BYTES, PLACES_BEGIN = 256, 1 << 18, 1 << 12
NOWHERE = PLACES
FREE, TAKEN = b"\0", b"\1"
PACK_HEADER = b'{"sha256":"%b","size":%d}\n'
SEAL_VERSION = b"1"

_UNREAD = b"\xc0"
_ANSWER = struct.Struct(">BBIBBBIBB64sBdBI")  # of six: three numbers, a text, a fraction, the size of bytes
_ANSWERS = struct.Struct(">BI")

# The words that every seal has, in their order, then those that many have; what follows differs from seal to seal.
# Of a group no repeat is possessive: Python before 3.11.5 would match wrongly then.
_PAIRS = rb"[^ :,]*+:[^ :,]*+(?:,[^ :,]*+:[^ :,]*+)*"
_SEAL = re.compile(
    rb"<!-- (?:([^ ]++) )?holdfast=(\d++) task=([^ ]*+) run=([^ ]*+) round=(\d++) in=([^ ]*+) sha256=([^ ]*+)"
    rb"(?: cost=([0-9.]++) tokens=(\d++))?(?: (eol=added))?(?: from=(" + _PAIRS + rb"))?(?: sum=[0-9a-f]++)?"
    rb"((?: (?!cost=|tokens=)[a-z0-9]++=[^ ]*+)*) -->"
)
_ANY_FORMAT = re.compile(rb"<!-- (?:[^ ]++ )?holdfast=(\d{1,9}) .* sum=[0-9a-f]++ -->")
_INPUTS = re.compile(_PAIRS)
_SUM_DIGITS = 12
_ALWAYS = (b"holdfast", b"task", b"run", b"round", b"in", b"sha256", b"cost", b"tokens")
_WITHOUT_SUM = frozenset([*_ALWAYS, b"eol", b"set", b"value", b"version", b"kind", b"from"])
_NOT_IN_JSON = b'"\\' + bytes(range(32))
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_ASKED_MAX = 1 << 16
_WAITING_MAX = 1 << 23
_AROUND_MAX = 128  # what stands around the bytes of a file
_LOOKS_MAX, _PAUSE_S = 50, 0.001
_SLOW_S = 0.002  # a stretch of files that are in memory takes less


def last_line(data: bytes) -> tuple[int, bytes]:
    """Where the last line that is not blank begins, and the line without blanks around it."""
    if data.endswith(b">\n"):  # as in nearly all: nothing has to be copied
        start = data.rfind(b"\n", 0, -1) + 1
        return start, data[start:-1].lstrip()
    text = data.rstrip()
    start = text.rfind(b"\n") + 1
    return start, text[start:].lstrip()


def seal_told(line: bytes) -> bytes:
    """What a seal says, as JSON: the fields of `seals.Seal`, in their order, numbers as they are written.

    Nothing, if the line is no seal.
    """
    if not sound_line(line):
        return b""
    if len(line.translate(None, _NOT_IN_JSON)) < len(line):
        line = b"".join([b"\\u%04x" % byte if byte in _NOT_IN_JSON else bytes([byte]) for byte in line])
    match = _SEAL.fullmatch(line)
    if match is None:
        return b""
    marker, version, task, run, round_, made, sha256, cost, tokens, eol, made_from, others = match.groups(b"")
    more = dict([word.split(b"=", 1) for word in others.split(b" ")[1:]]) if others else {}
    inputs = more.get(b"from", made_from)
    if version != SEAL_VERSION or (b"from" in more and _INPUTS.fullmatch(inputs) is None):
        return b""
    texts = b'","'.join((task, run, round_, made, sha256, marker, cost or b"0", tokens or b"0"))
    is_added = b"true" if eol or more.get(b"eol") == b"added" else b"false"
    return b'["%b",%b,"%b"%b]' % (texts, is_added, inputs, _rare(more) if more else b"")


def sound_line(line: bytes) -> bytes:
    """The line, if it begins as a seal does and is as it was written; else nothing."""
    return line if line[:5] == b"<!-- " and _is_sound(line) else b""


def newer_format(line: bytes) -> int:
    """The format of a seal of a newer one than these, by what all have: its number, and its sum; else 0."""
    match = _ANY_FORMAT.fullmatch(line)
    if match is None or int(match[1]) <= int(SEAL_VERSION) or not _is_sound(line):
        return 0
    return int(match[1])


def _rare(more: dict[bytes, bytes]) -> bytes:
    """The fields that few seals have; what is left out at the end is as it is in all others."""
    names = ((b"set", b""), (b"version", b"1"), (b"kind", b"text"), (b"value", b""), (b"known", b""))
    return b"".join([b',"%b"' % more.get(name, usual) for name, usual in names])


def seal_sum(line: bytes) -> bytes:
    """What the last word of a seal says of all before it."""
    return hashlib.sha256(line).hexdigest()[:_SUM_DIGITS].encode()


def _is_sound(line: bytes) -> bool:
    """Whether a seal is as it was written: its sum fits.

    One without a sum is an earlier version's, and has nothing in it that those did not write: else it would be
    one whose sum was damaged beyond recognition.
    """
    covered, is_there, rest = line.rpartition(b" sum=")
    if is_there:
        return rest == b"%b -->" % seal_sum(covered)
    words = [word.split(b"=", 1) for word in line.split(b" ") if b"=" in word]
    return all(name in _WITHOUT_SUM and b"=" not in value for name, value in words)


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    root = int(sys.argv[1])
    is_slow = False
    out, shared = _Out(), _Shared(int(sys.argv[2]))
    for stretch in _stretches():
        begun = time.monotonic()
        answers = _Answers(begun)
        for path, data in zip(stretch, _contents(root, stretch, advise=is_slow), strict=True):
            if data is not None and answers.size + len(data) + _AROUND_MAX > PLACE_BYTES:
                answers.send(shared, out)
                answers = _Answers(begun)
            answers.add(path, data)
        answers.send(shared, out)
        is_slow = time.monotonic() - begun > _SLOW_S
    out.close()


class _Answers:
    """The answers about some files, and those of their bytes that are kept."""

    def __init__(self, read_at: float) -> None:
        self.size = 0
        self._read_at = read_at
        self._count = 0
        self._told: list[bytes] = []
        self._records: list[bytes] = []

    def add(self, path: str, data: bytes | None) -> None:
        self._count += 1
        if data is None:
            self._told.append(_UNREAD)
            return
        sign = path[:1]
        start, line = (0, b"") if sign == WHOLE else last_line(data)
        seal = seal_told(line) if sign == INSIDE else sound_line(line)
        body = data[:start] if seal else data
        sha256, begin = hashlib.sha256(body).hexdigest().encode(), self.size
        header = PACK_HEADER % (sha256, len(body)) if len(data) + _AROUND_MAX <= PLACE_BYTES else b""
        numbers = (0xCE, begin, 0xCC, len(header), 0xCE, len(body))
        self._told += (_ANSWER.pack(0x96, *numbers, 0xD9, 64, sha256, 0xCB, self._read_at, 0xC6, len(seal)), seal)
        if header:
            self._records += (header, body, b"\n")
            self.size += len(header) + len(body) + 1

    def send(self, shared: _Shared, out: _Out) -> None:
        if self._count:
            place = shared.put(self._records, self.size, out)
            told = b"".join((_ANSWERS.pack(0xDD, self._count), *self._told))
            out.put(MESSAGE.pack(place, len(told)) + told)


class _Shared:
    """The memory that both processes share, as who answers sees it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def put(self, records: list[bytes], size: int, out: _Out) -> int:
        """Put these into a place; NOWHERE if none is given back for long, or no memory is left."""
        try:
            place = self._free(out) if records else NOWHERE
            if place == NOWHERE or os.pwritev(self._fd, records, PLACES_BEGIN + place * PLACE_BYTES) != size:
                return NOWHERE
            os.pwrite(self._fd, TAKEN, place)
        except OSError:
            return NOWHERE
        return place

    def _free(self, out: _Out) -> int:
        """The first place that is free: one that was used a moment ago is still at hand for the processor."""
        for _ in range(_LOOKS_MAX):
            place = os.pread(self._fd, PLACES, 0).find(FREE)
            if place >= 0:
                return place
            if not out.write_some(patiently=True):
                time.sleep(_PAUSE_S)
        return NOWHERE


class _Out:
    """Standard output. A pipe holds little: while nobody takes anything out of it, some more waits here."""

    def __init__(self) -> None:
        self._waiting: deque[memoryview] = deque()
        self._size = 0

    def put(self, message: bytes) -> None:
        self._waiting.append(memoryview(message))
        self._size += len(message)
        while self.write_some(patiently=self._size > _WAITING_MAX):
            pass

    def close(self) -> None:
        while self.write_some(patiently=True):
            pass

    def write_some(self, *, patiently: bool) -> bool:
        if not self._waiting:
            return False
        os.set_blocking(1, patiently)
        try:
            count = os.write(1, self._waiting[0])
        except BlockingIOError:
            return False
        self._size -= count
        self._waiting[0] = self._waiting[0][count:]
        if not self._waiting[0]:
            self._waiting.popleft()
        return True


def _stretches() -> Iterator[list[str]]:
    """The paths as they come in; whatever is here is not kept waiting for more."""
    rest = b""
    while data := os.read(0, _ASKED_MAX):
        whole, _, rest = (rest + data).rpartition(b"\0")
        paths = whole.decode().split("\0") if whole else []
        yield from [paths[start : start + STRETCH] for start in range(0, len(paths), STRETCH)]


def _contents(root: int, paths: list[str], *, advise: bool) -> Iterator[bytes | None]:
    """The bytes of each file of a stretch, as they are asked for.

    If they have to be fetched, `advise` has all of them opened before the first is read, and that begin for all at
    once: the disk is asked for many things together instead of one after the other.
    """
    if advise and hasattr(os, "posix_fadvise"):
        files = list(_opened(root, paths))
        for file in files:
            if file >= 0:
                _fetch(file)
        return map(_read, files)
    return map(_read, _opened(root, paths))


def _opened(root: int, paths: list[str]) -> Iterator[int]:
    """A descriptor of each file; -1 if it cannot be opened.

    A folder is opened once for a stretch of files: one that is put in its place is noticed by the next.
    """
    folders: dict[str, int] = {}
    for path in paths:
        above, _, name = path[1:].rpartition("/")
        try:
            if above not in folders:
                folders[above] = _open_folder(root, above)
            file = os.open(name, _FILE_FLAGS, dir_fd=folders[above])
        except OSError:
            file = -1
        yield file
    for folder in folders.values():
        os.close(folder)


def _open_folder(root: int, path: str) -> int:
    """The folder, each on the way opened beneath the one above it, links not followed."""
    folder = os.dup(root)
    for name in path.split("/") if path else ():
        above = folder
        try:
            folder = os.open(name, _FOLDER_FLAGS, dir_fd=above)
        finally:
            os.close(above)
    return folder


def _fetch(file: int) -> None:
    try:
        os.posix_fadvise(file, 0, SIZE_MAX, os.POSIX_FADV_WILLNEED)
    except OSError:
        pass  # it is no file: `_read` finds out


def _read(file: int) -> bytes | None:
    """All bytes of an open file, which is closed; None if there is none, or it is not plain, large, or written to.

    Where it ends tells what kind of file it is, in a fifth of the time that asking for that takes: in a pipe there
    is no such place, in a folder it is far away, and of what is empty, as devices are, one must ask all the same.
    """
    if file < 0:
        return None
    try:
        size = os.lseek(file, 0, os.SEEK_END)
        if size > SIZE_MAX or (not size and not stat.S_ISREG(os.fstat(file).st_mode)):
            return None
        data = os.pread(file, size + 1, 0)
        return data if len(data) == size else None
    except OSError:
        return None
    finally:
        os.close(file)


if __name__ == "__main__":
    main()
