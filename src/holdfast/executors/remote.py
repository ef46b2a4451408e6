"""A host at the other end of a pipe: what the worker asks, and how the engine's process answers.

Each question is a line with a number, and so is its answer, for a body may ask from several threads. The engine
answers one after the other. Nothing is asked any more once the outcome was sent: the next call has another host.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from holdfast import events as ev
from holdfast.errors import HoldfastError, StorageError, ValueRefusedError
from holdfast.executors.pipe import pack_os_error, pack_value, unpack_os_error, unpack_value
from holdfast.host import ContextEndedError, Host, KeptCall, PaidCall, Receipt
from holdfast.journal.lines import decode_event

ASK = b'{"ask":'  # how a question begins
ANSWER = b'{"to":'  # how its answer begins

_ERRORS = {kind.__name__: kind for kind in (HoldfastError, ContextEndedError, StorageError, ValueRefusedError)}


class _Question(msgspec.Struct):
    ask: int
    verb: str
    given: msgspec.Raw


class _Answer(msgspec.Struct, omit_defaults=True):
    to: int
    value: msgspec.Raw = msgspec.Raw(b"null")
    error: tuple[str, str, str] | None = None  # kind, message, fix
    system: list[Any] | None = None


# --- in the engine's process ---------------------------------------------------------------------------------


def answer(host: Host | None, line: bytes) -> bytes:
    """The answer to a worker's question, a line. What the host raises is raised there, too."""
    question = msgspec.json.decode(line, type=_Question)
    try:
        if host is None:
            raise HoldfastError("this call has no context.")
        value = _VERBS[question.verb](host, question.given)
        reply = _Answer(question.ask, msgspec.Raw(msgspec.json.encode(value)))
    except Exception as error:
        reply = _refusal(question.ask, error)
    return msgspec.json.encode(reply) + b"\n"


def _refusal(number: int, error: Exception) -> _Answer:
    if isinstance(error, HoldfastError):
        kind = next(base.__name__ for base in type(error).__mro__ if base.__name__ in _ERRORS)
        return _Answer(number, error=(kind, error.message, error.fix))
    system = pack_os_error(error) if isinstance(error, OSError) else None
    return _Answer(number, error=("HoldfastError", str(error) or type(error).__name__, ""), system=system)


_VERBS: dict[str, Callable[[Host, msgspec.Raw], Any]] = {
    "once_get": lambda host, given: host.once_get(msgspec.json.decode(given, type=str)),
    "once_put": lambda host, given: host.once_put(msgspec.json.decode(given, type=PaidCall)).wait(),
    "usage": lambda host, given: host.usage(msgspec.json.decode(given, type=ev.UsageRecorded)),
    "say": lambda host, given: host.say(decode_event(bytes(given))),  # type: ignore[arg-type]
    "stream": lambda host, given: host.stream(msgspec.json.decode(given, type=str)),
    "fresh_path": lambda host, given: pack_value(host.fresh_path()),
    "previous": lambda host, given: pack_value(host.previous()),
}


# --- in the worker -------------------------------------------------------------------------------------------


class Link:
    """The worker's ends of the pipes, for all its threads."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._mutex = threading.RLock()
        self._numbers = itertools.count(1)
        self._asked: dict[int, _Reply] = {}
        self._host: RemoteHost | None = None

    def send(self, line: bytes) -> None:
        """Send a line. One at a time: a body's threads may speak while it ends."""
        with self._mutex:
            self._send(line)

    def host(self) -> RemoteHost:
        """The host of the call that now begins."""
        self._host = RemoteHost(self)
        return self._host

    def send_outcome(self, line: bytes) -> None:
        """Send how the call ended; its context is over."""
        with self._mutex:
            self._host = None
            self._send(line)

    def ask(self, host: RemoteHost, verb: str, given: bytes) -> _Reply:
        with self._mutex:
            if self._host is not host:
                raise ContextEndedError("this attempt is over; it can no longer write to the run.")
            number = next(self._numbers)
            reply = self._asked[number] = _Reply()
            self._send(msgspec.json.encode(_Question(number, verb, msgspec.Raw(given))))
        return reply

    def hear(self, line: bytes) -> None:
        """An answer has come."""
        answer = msgspec.json.decode(line, type=_Answer)
        self._asked.pop(answer.to).come(answer)


class _Reply(Receipt):
    """The answer to one question, when it has come."""

    def __init__(self) -> None:
        super().__init__()
        self._value = b"null"

    def come(self, answer: _Answer) -> None:
        self._value = bytes(answer.value)
        self.over(_error_in(answer))

    def value(self, kind: Any = Any) -> Any:
        self.wait()
        return msgspec.json.decode(self._value, type=kind)


def _error_in(answer: _Answer) -> BaseException | None:
    if answer.system is not None:
        return unpack_os_error(answer.system)
    if answer.error is None:
        return None
    kind, message, fix = answer.error
    return _ERRORS[kind](message, fix=fix)


class RemoteHost:
    """See `holdfast.host.Host`: it asks the one in the engine's process, and waits for the answer."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def once_get(self, key: str) -> KeptCall | None:
        kept: KeptCall | None = self._ask("once_get", key).value(KeptCall | None)
        return kept

    def once_put(self, call: PaidCall) -> Receipt:
        return self._ask("once_put", call)

    def usage(self, report: ev.UsageRecorded) -> None:
        self._ask("usage", report).wait()

    def say(self, event: ev.Event) -> None:
        self._ask("say", event).wait()

    def stream(self, text: str) -> None:
        self._ask("stream", text).wait()

    def fresh_path(self) -> Path:
        path: Path = unpack_value(self._ask("fresh_path").value())
        return path

    def previous(self) -> Any:
        return unpack_value(self._ask("previous").value())

    def _ask(self, verb: str, given: Any = None) -> _Reply:
        return self._link.ask(self, verb, msgspec.json.encode(given))
