"""The standard streams of a process: closed ones get a place, and what steps print there fails no step.

A descriptor that was closed before we began is the next one that an opened file gets: the journal could become
what a step's program takes for its stdout. So the three are taken before anything else is opened.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import IO, Any, TextIO, cast

_STANDARD = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
_STDOUT, _STDERR = 1, 2
_GONE = (errno.EPIPE, errno.EIO)
_heard: weakref.WeakSet[Heedless] = weakref.WeakSet()
_silenced: weakref.WeakSet[IO[Any]] = weakref.WeakSet()


def give_closed_streams_a_place() -> None:
    """A stream that was closed before we began (`>&-`) is None to Python: it leads nowhere, for children too."""
    while (place := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(place, True)
    os.close(place)
    for name, mode in _STANDARD:
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for good


def silence(stream: IO[Any]) -> None:
    """Nobody reads it any more: send the rest to nowhere, also the interpreter's own last flush."""
    _silenced.add(stream)
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass  # a stream without descriptor: a test's


def is_read(stream: IO[Any]) -> bool:
    """Whether somebody may still read it; the reader of a pipe goes without a word."""
    if stream in _silenced:
        return False
    try:
        asking = select.poll()
        asking.register(stream.fileno(), 0)  # that it is closed at the other end is told always
        # Where a system cannot ask its terminals (macOS), it answers that, too: that says nothing about readers.
        return not any(found & (select.POLLERR | select.POLLHUP) for _, found in asking.poll(0))
    except (OSError, ValueError):
        return True  # a stream without descriptor: a test's


def unwrapped(stream: TextIO) -> TextIO:
    """The stream itself, for our own words: those may fail, and are told also when no step is heard any more."""
    return stream.stream if isinstance(stream, Heedless) else stream


@contextmanager
def stdout_kept() -> Iterator[None]:
    """While other people's code is at work, stdout is kept for our own words: what they print goes to stderr."""
    with descriptor_kept(sys.stdout), redirect_stdout(sys.stderr):
        yield


@contextmanager
def descriptor_kept(stream: TextIO) -> Iterator[None]:
    """If `stream` is stdout itself, its descriptor leads to stderr meanwhile.

    A program that other people's code starts writes there, whatever Python calls stdout.
    """
    if not _is_stdout(stream):
        yield
        return
    stream.flush()
    kept = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    try:
        yield
        stream.flush()  # what found its way into the stream itself is not ours either
    finally:
        os.dup2(kept, _STDOUT)
        os.close(kept)


def _is_stdout(stream: TextIO) -> bool:
    try:
        return stream.fileno() == _STDOUT
    except (OSError, ValueError):
        return False  # a stream without descriptor: a test's


class Heedless:
    """A stream for what steps print: that it cannot be written is no failure of theirs.

    `failed` is why, unless its reader, or its terminal, has only gone. Whoever writes holds the lock: Python's
    own text streams may crash the process when one thread flushes what another writes.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.lock = threading.RLock()  # a signal's handler may print while its thread does
        self.failed: OSError | None = None
        self._is_over = False
        _heard.add(self)

    def write(self, text: str) -> int:
        self._heedless(lambda: self.stream.write(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        self._heedless(self.stream.flush)

    def close(self) -> None:
        """It is not the step's to close: others print there, too, and so do we."""
        self.flush()

    def end(self) -> TextIO:
        """Hear no step any more; gives what is to stand in its place: itself, while a step's thread goes on."""
        with self.lock:
            self._is_over = True
        return cast(TextIO, self) if threading.active_count() > 1 else self.stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def _heedless(self, call: Callable[[], object]) -> None:
        with self.lock:
            if self._is_over:
                return
            try:
                call()
            except OSError as error:
                if error.errno not in _GONE:
                    self.failed = self.failed or error
                silence(self.stream)


def _free_locks() -> None:
    """In a forked process nobody is left who would let go of a lock that another thread has held."""
    for stream in _heard:
        stream.lock = threading.RLock()


os.register_at_fork(after_in_child=_free_locks)
