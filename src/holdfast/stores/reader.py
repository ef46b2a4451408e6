"""A program of its own: reads files, hashes them and finds their seals, ahead of whoever judges them. Read-only.

`ahead.py` starts it without site packages, so that it is there in a moment: nothing of Holdfast is imported here.
That is why the form of a seal's line is written down here, where both processes have it.

It takes all paths from its standard input, separated by zeros, relative to the folder whose descriptor is its
first argument, and answers about STRETCH of them at a time, in their order: the size of the answers (4 bytes), and
an array of them in MessagePack, so that whoever takes it has no work with each. An answer is an array, too:

    the bytes, how many of them the hash covers, that hash, when it was read, in seconds that only go forward,
    and what the seal says (JSON, see `seal_told`)

A path follows a sign: "-" for a file that has its seal inside, and the hash is of everything above the last line,
where that stands; "=" for one that has it beside, and the hash is of all. Of a file that is large, or cannot be
read as a plain file, the answer is nil: whoever wants it opens it and meets the reason. It ends when nobody
listens any more.
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
from collections.abc import Iterator

INSIDE, WHOLE = "-", "="
SIZE_MAX = 1 << 20
STRETCH = 32
SIZE_OF_ANSWERS = struct.Struct(">I")
SEAL_VERSION = b"1"

UNREAD = b"\xc0"
_BEFORE = struct.Struct(">BBI")  # an array of five, of which bytes come first: their size
_BEHIND = struct.Struct(">BIBB64sBdBI")  # an unsigned number, a text, a fraction, and the size of bytes again
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
_SLOW_S = 0.002  # a stretch of files that are in memory takes less


def last_line(data: bytes) -> tuple[int, bytes]:
    """Where the last line that is not blank begins, and the line without blanks around it."""
    text = data.rstrip()
    start = text.rfind(b"\n") + 1
    return start, text[start:].lstrip()


def seal_told(line: bytes) -> bytes:
    """What a seal says, as JSON: the fields of `seals.Seal`, in their order, numbers as they are written.

    Nothing, if the line is no seal.
    """
    if not line.startswith(b"<!-- ") or not _is_sound(line):
        return b""
    if len(line.translate(None, _NOT_IN_JSON)) < len(line):
        line = b"".join([b"\\u%04x" % byte if byte in _NOT_IN_JSON else bytes([byte]) for byte in line])
    match = _SEAL.fullmatch(line)
    return _fields(*match.groups(b"")) if match is not None else b""


def newer_format(line: bytes) -> int:
    """The format of a seal of a newer one than these, by what all have: its number, and its sum; else 0."""
    match = _ANY_FORMAT.fullmatch(line)
    if match is None or int(match[1]) <= int(SEAL_VERSION) or not _is_sound(line):
        return 0
    return int(match[1])


def _fields(
    marker: bytes,
    version: bytes,
    task: bytes,
    run: bytes,
    round_: bytes,
    made: bytes,
    sha256: bytes,
    cost: bytes,
    tokens: bytes,
    eol: bytes,
    made_from: bytes,
    others: bytes,
) -> bytes:
    more = dict([word.split(b"=", 1) for word in others.split(b" ")[1:]]) if others else {}
    inputs = more.get(b"from", made_from)
    if version != SEAL_VERSION or (b"from" in more and _INPUTS.fullmatch(inputs) is None):
        return b""
    is_added = b"true" if eol or more.get(b"eol") == b"added" else b"false"
    common = (task, run, round_, made, sha256, marker, cost or b"0", tokens or b"0", is_added, inputs)
    return b'["%b","%b","%b","%b","%b","%b","%b","%b",%b,"%b"%b]' % (*common, _rare(more) if more else b"")


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
        return rest == seal_sum(covered) + b" -->"
    words = [word.split(b"=", 1) for word in line.split(b" ") if b"=" in word]
    return all(name in _WITHOUT_SUM and b"=" not in value for name, value in words)


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    root = int(sys.argv[1])
    paths = sys.stdin.buffer.read().decode().split("\0")
    is_slow = False
    for start in range(0, len(paths), STRETCH):
        begun = time.monotonic()
        stretch = paths[start : start + STRETCH]
        answers = [_ANSWERS.pack(0xDD, len(stretch)), *_answers(root, stretch, begun, advise=is_slow)]
        is_slow = time.monotonic() - begun > _SLOW_S
        message = b"".join([SIZE_OF_ANSWERS.pack(sum(map(len, answers))), *answers])
        while message:
            message = message[os.write(1, message) :]


def _answers(root: int, paths: list[str], read_at: float, *, advise: bool) -> Iterator[bytes]:
    """What is in each file of a stretch; all of them are opened before the first is read.

    If they have to be fetched, `advise` has that begin for all at once: the disk is asked for many things together
    instead of one after the other.
    """
    files = [_opened(file) for file in _found(root, [path[1:] for path in paths])]
    for file, size in files if advise and hasattr(os, "posix_fadvise") else ():
        if size > 0:
            os.posix_fadvise(file, 0, size, os.POSIX_FADV_WILLNEED)
    for path, (file, size) in zip(paths, files, strict=True):
        data = _read(file, size)
        yield UNREAD if data is None else _answer(data, read_at, is_whole=path[:1] == WHOLE)


def _found(root: int, paths: list[str]) -> Iterator[int | None]:
    """A descriptor of each file that can be opened.

    A folder is opened once for a stretch of files: one that is put in its place is noticed by the next.
    """
    folders: dict[str, int] = {}
    for path in paths:
        above, _, name = path.rpartition("/")
        try:
            if above not in folders:
                folders[above] = _open_folder(root, above)
            yield os.open(name, _FILE_FLAGS, dir_fd=folders[above])
        except OSError:
            yield None
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


def _opened(file: int | None) -> tuple[int, int]:
    """An open file and its size, -1 if it is not to be read: it is no plain file, or large."""
    if file is None:
        return -1, -1
    status = os.fstat(file)
    return file, status.st_size if stat.S_ISREG(status.st_mode) and status.st_size <= SIZE_MAX else -1


def _read(file: int, size: int) -> bytes | None:
    """All bytes of an open file, which is closed; None if it is not to be read, cannot be, or is being written."""
    if file < 0:
        return None
    try:
        data = os.read(file, size + 1) if size >= 0 else b"."
        return data if len(data) == size else None
    except OSError:
        return None
    finally:
        os.close(file)


def _answer(data: bytes, read_at: float, *, is_whole: bool) -> bytes:
    start, line = (len(data), b"") if is_whole else last_line(data)
    seal, sha256 = seal_told(line), hashlib.sha256(data[:start]).hexdigest().encode()
    behind = _BEHIND.pack(0xCE, start, 0xD9, 64, sha256, 0xCB, read_at, 0xC6, len(seal))
    return b"".join((_BEFORE.pack(0x95, 0xC6, len(data)), data, behind, seal))


if __name__ == "__main__":
    main()
