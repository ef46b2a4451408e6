"""What crosses the pipes between the engine and a worker process: JSON, a line at a time, and no pickle.

The worker's root logger has one handler, which sends; handlers that the pipeline gave its root logger are the
parent's too, and do their work there. So nothing is said twice, and a step's log is one whoever runs the step.
"""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from holdfast.context import Context, current_task
from holdfast.executors.protocol import Call, Outcome, RemoteError
from holdfast.host import Facts, Host
from holdfast.pipeline.rewind import Rewind
from holdfast.values import decode_json, encode_json
from holdfast.wording import message_of, raised_at, writable

READY = b'{"ready":true}'
BEGUN = b'{"begun":true}'
UNABLE = b'{"unable":'  # how the line of `pack_unable` begins
LOG = b'{"log":'  # how the line of `pack_log` begins

_TEXTS = ("name", "levelname", "pathname", "filename", "module", "funcName", "threadName", "processName")
_NUMBERS = ("levelno", "lineno", "created", "msecs", "relativeCreated", "thread", "process")

_formatter = logging.Formatter()


# --- a call, and its outcome ---------------------------------------------------------------------------------


def pack_call(call: Call) -> bytes:
    """The line that asks a worker for a call; ValueRefusedError names an argument that cannot be sent."""
    arguments = {name: _pack_argument(value, name) for name, value in call.arguments.items()}
    request = {
        "function": call.function_name,
        "task": call.task,
        "arguments": arguments,
        "timed": call.timeout is not None,
    }
    return msgspec.json.encode(request) + b"\n"


def unpack_arguments(request: Mapping[str, Any], host: Host) -> dict[str, Any]:
    """The arguments of a call; a context among them speaks to `host`."""
    return {name: _unpack_argument(packed, host) for name, packed in request["arguments"].items()}


def answer_value(value: Any) -> bytes:
    """The line a worker sends when a body returned."""
    return msgspec.json.encode({"value": pack_value(value)})


def answer_error(error: BaseException) -> bytes:
    """The line a worker sends when a body raised."""
    try:
        return msgspec.json.encode(_error_as_json(error))
    except BaseException as failure:  # other people's class
        words = f"its words cannot be had ({type(failure).__name__})"
        return msgspec.json.encode({"error": words, "kinds": _kinds(error)})


def read_outcome(answer: bytes) -> Outcome:
    reply = decode_json(answer)
    if "rewind" in reply:
        return Outcome(error=Rewind(**reply["rewind"]))
    if "error" in reply:
        of_system = unpack_os_error(reply["system"]) if "system" in reply else None
        error = RemoteError(reply["error"], tuple(reply["kinds"]), reply.get("retry_after"), of_system)
        return Outcome(error=error)
    return Outcome(value=unpack_value(reply["value"]))


def pack_unable(why: str) -> bytes:
    """The line a worker sends instead of `READY`."""
    return msgspec.json.encode({"unable": why})


def _error_as_json(error: BaseException) -> dict[str, Any]:
    if isinstance(error, Rewind):
        return {"rewind": {"to": error.targets, "rounds": error.rounds, "keep": error.keep}}
    wish = getattr(error, "retry_after", None)
    reply: dict[str, Any] = {"error": message_of(error)[:10_000] + raised_at(error), "kinds": _kinds(error)}
    if isinstance(wish, int | float):
        reply["retry_after"] = float(wish)
    if type(error) is OSError and error.errno is not None:
        reply["system"] = pack_os_error(error)
    return reply


def _kinds(error: BaseException) -> list[str]:
    return [kind.__name__ for kind in type(error).__mro__[:-1]]


def pack_os_error(error: OSError) -> list[Any]:
    name = error.filename
    return [error.errno, error.strerror, _name(name) if isinstance(name, str | bytes | Path) else None]


def unpack_os_error(packed: list[Any]) -> OSError:
    number, words, name = packed
    return OSError(number, words, None if name is None else str(_path(name)))


# --- values --------------------------------------------------------------------------------------------------


def pack_value(value: Any, where: str = "value") -> list[Any]:
    """A value as JSON, with the form it must get back on the other side; ValueRefusedError if it has none."""
    if isinstance(value, bytes):
        return ["bytes", base64.b64encode(value).decode()]
    if isinstance(value, Path):
        return ["path", _name(value)]
    if _may_hold_files(value):
        return ["dict", {key: pack_value(inner, f"{where}.{key}") for key, inner in value.items()}]
    return ["json", msgspec.Raw(encode_json(value, where))]


def _may_hold_files(value: Any) -> bool:
    """Whether it is a dict in which bytes or paths may be: what a step with several files gives, or a gather."""
    if type(value) is not dict or not all(type(key) is str for key in value):
        return False
    return any(isinstance(inner, bytes | Path | dict) for inner in value.values())


def unpack_value(packed: list[Any]) -> Any:
    form, value = packed
    if form == "bytes":
        return base64.b64decode(value)
    if form == "path":
        return _path(value)
    if form == "dict":
        return {key: unpack_value(inner) for key, inner in value.items()}
    return value


def _pack_argument(value: Any, name: str) -> list[Any]:
    if isinstance(value, Context):
        fields = {field: getattr(value.facts, field) for field in Facts.__struct_fields__}
        return ["ctx", {**fields, "dir": _name(value.facts.dir)}]
    return pack_value(value, name)


def _unpack_argument(packed: list[Any], host: Host) -> Any:
    form, value = packed
    if form == "ctx":
        fields = {**value, "dir": _path(value["dir"]), "feedback": tuple(value["feedback"])}
        return Context(host, Facts(**fields))
    return unpack_value(packed)


def _name(path: Path | str | bytes) -> str:
    return base64.b64encode(os.fsencode(path)).decode()  # a folder above may have any name


def _path(name: str) -> Path:
    return Path(os.fsdecode(base64.b64decode(name)))


# --- logs ----------------------------------------------------------------------------------------------------


class Sender(logging.Handler):
    """Sends each record of the task at hand; what other threads of a worker log between tasks is nobody's."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        super().__init__()
        self._send = send

    def install(self) -> None:
        """Take the place of the root logger's handlers. Where nobody has set logging up, INFO is heard, too."""
        root = logging.getLogger()
        if root.level == logging.WARNING and not root.handlers:
            root.setLevel(logging.INFO)
        root.handlers[:] = [self]

    def emit(self, record: logging.LogRecord) -> None:
        if not current_task.get():
            return
        try:
            fields = _packed(record)
        except Exception:  # the caller's mistake, %d for a text: told as logging tells it
            self.handleError(record)
            return
        self._send(msgspec.json.encode({"log": fields}))


def relay(line: bytes) -> None:
    """Handle what a worker has logged; the calling thread is the one that waits for its task."""
    record = logging.makeLogRecord(decode_json(line)["log"])
    if not logging.getLogger(record.name).isEnabledFor(record.levelno):
        return
    with suppress(Exception):  # of a handler of the pipeline's own: no step fails for want of a log
        logging.getLogger().handle(record)


def _packed(record: logging.LogRecord) -> dict[str, Any]:
    """A record as JSON has it: the message put together, the exception as its traceback reads."""
    fields: dict[str, Any] = {name: getattr(record, name) for name in _NUMBERS}
    fields |= {name: writable(str(getattr(record, name))) for name in _TEXTS}
    fields["msg"] = writable(record.getMessage())
    trace = record.exc_text or (_formatter.formatException(record.exc_info) if record.exc_info else "")
    fields["exc_text"] = writable(trace) or None
    fields["stack_info"] = writable(record.stack_info) if record.stack_info else None
    return fields
