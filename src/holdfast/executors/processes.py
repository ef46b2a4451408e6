"""CPU-bound bodies in worker processes: spawned, never forked, and gone when their parent is.

Each worker is `python -m holdfast.executors.worker FILE.py:NAME`. Parent and worker speak JSON lines over pipes:
no pickle crosses them. A worker's first line says that it is ready, or why not: one that ends before that has
begun no body, and is no failure of a step. What a body logs comes in lines of its own, before its answer; of a
call that has a timeout a line says that it begins, for its time runs from there, however long a worker takes to be
ready. A worker has the working directory of its parent, and watches its standard input; its end, however the
parent died, ends the worker.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast import threads
from holdfast.clock import monotonic
from holdfast.errors import HoldfastError, StorageError
from holdfast.executors.base import Call, Outcome, RemoteError
from holdfast.executors.relaying import relay
from holdfast.pipeline.rewind import Rewind
from holdfast.values import decode_json, encode_json
from holdfast.wording import message_of, raised_at

_LOG = b'{"log":'  # how the line of `pack_log` begins
_UNABLE = b'{"unable":'  # how the line of `pack_unable` begins
READY = b'{"ready":true}'
BEGUN = b'{"begun":true}'


class ProcessExecutor:
    """A pool of worker processes, each made when first needed and used again."""

    def __init__(self, reference: str) -> None:
        self._reference = reference  # FILE.py:NAME
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._lock = threading.Lock()
        self._closed = False

    def run(self, call: Call) -> Outcome:
        """Run the call in a worker; the calling thread waits. A timeout kills the worker.

        StorageError if the system starts none, or not all that it needs, or no thread to mind its time: that is
        no failure of the step.
        """
        started = monotonic()
        try:
            outcome = self._run(_request(call), call.timeout)
        except (OSError, HoldfastError) as error:
            if isinstance(error, StorageError) and not self._closed:  # else it is we who have ended the worker
                raise
            outcome = Outcome(error=error)
        outcome.duration = monotonic() - started
        outcome.cancelled = self._closed
        return outcome

    def close(self) -> None:
        """End every worker, also those at work; whoever waits for one of these lets go of it."""
        with self._lock:
            self._closed = True
            workers, idle = list(self._all), self._idle
            self._idle = []
        for worker in workers:
            worker.end()
        for worker in idle:
            worker.let_go()

    def _run(self, request: bytes, timeout: float | None) -> Outcome:
        worker = self._take()
        try:
            return worker.run(request, timeout)
        finally:
            self._give_back(worker)

    def _take(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise HoldfastError("the run has ended")
            if self._idle:
                return self._idle.pop()
            worker = _started(self._reference)
            self._all.add(worker)
            return worker

    def _give_back(self, worker: _Worker) -> None:
        with self._lock:
            if worker.has_answered and not self._closed:
                self._idle.append(worker)
                return
            self._all.discard(worker)
        worker.let_go()


def _started(reference: str) -> _Worker:
    try:
        return _Worker(reference)
    except OSError as error:
        raise _not_started(error.strerror or str(error)) from error


def _not_started(why: str) -> StorageError:
    return StorageError(
        f"Could not start a worker process: {why}.",
        fix="What was recorded is safe: lower --concurrency, or raise that limit; then run the same command.",
    )


class _Worker:
    """One process and its two pipes. Only the thread that has it uses the pipes; any may end the process."""

    def __init__(self, reference: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.executors.worker", reference],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "HOLDFAST_KILL_AT": "0"},
        )
        self.has_answered = True  # whatever it was asked: it can be asked again
        self._is_ready = False

    def run(self, request: bytes, timeout: float | None) -> Outcome:
        self.has_answered = False
        deadline = _Deadline(timeout, self.end)
        try:
            answer = self._ask(request, deadline)
        finally:
            deadline.call_off()
        if deadline.has_expired:
            return Outcome(error=TimeoutError("timed out"), timed_out=True)
        if not answer.endswith(b"\n"):
            return self._ended()
        self.has_answered = True
        return _read(answer)

    def end(self) -> None:
        """Kill the process; whoever reads from it meets the end of the pipe."""
        self._process.kill()
        self._process.wait()

    def let_go(self) -> None:
        """End it and close its pipes: for whoever has it."""
        self.end()
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except BrokenPipeError:
                pass  # unsent bytes for a worker that is gone

    def _ask(self, request: bytes, deadline: _Deadline) -> bytes:
        """The answer, a line; what there is of it if the worker ends before that."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
        except BrokenPipeError:
            return b""
        while self._takes_note((line := self._process.stdout.readline()), deadline):
            pass
        return line

    def _takes_note(self, line: bytes, deadline: _Deadline) -> bool:
        """Whether it is a whole line that comes before the answer, and has been heeded."""
        if not line.endswith(b"\n"):
            return False
        if line.startswith(READY):
            self._is_ready = True
        elif line.startswith(BEGUN):
            deadline.begin()
        elif line.startswith(_LOG):
            relay(decode_json(line)["log"])
        elif line.startswith(_UNABLE):
            raise _not_started(decode_json(line)["unable"])
        else:
            return False
        return True

    def _ended(self) -> Outcome:
        status = self._process.wait()
        words = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        if not self._is_ready:
            raise _not_started(f"it ended before it was ready ({words})")
        return Outcome(error=RemoteError(f"the worker process ended ({words})"))


class _Deadline:
    """When a call has taken too long; its time runs from `begin` on."""

    def __init__(self, timeout: float | None, end: Callable[[], None]) -> None:
        self.has_expired = False
        self._timeout = timeout
        self._end = end
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        if self._timeout is not None and self._timer is None:
            timer = threading.Timer(self._timeout, self._expire)
            timer.daemon = True
            threads.start(timer)
            self._timer = timer

    def call_off(self) -> None:
        """From here on it cannot expire any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()

    def _expire(self) -> None:
        self.has_expired = True
        self._end()


def _read(answer: bytes) -> Outcome:
    reply = decode_json(answer)
    if "rewind" in reply:
        return Outcome(error=Rewind(**reply["rewind"]))
    if "error" in reply:
        return Outcome(error=RemoteError(reply["error"], tuple(reply["kinds"]), reply.get("retry_after")))
    return Outcome(value=unpack_value(reply["value"]))


def _request(call: Call) -> bytes:
    """The line that asks a worker for a call; ValueRefusedError names an argument that cannot be sent."""
    arguments = {name: pack_value(value, name) for name, value in call.arguments.items()}
    request = {"function": call.function_name, "arguments": arguments, "timed": call.timeout is not None}
    return msgspec.json.encode(request) + b"\n"


def pack_value(value: Any, where: str = "value") -> list[Any]:
    """A value as JSON, with the form it must get back on the other side; ValueRefusedError if it has none."""
    if isinstance(value, bytes):
        return ["bytes", base64.b64encode(value).decode()]
    if isinstance(value, Path):
        return ["path", base64.b64encode(os.fsencode(value)).decode()]  # a folder above may have any name
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
        return Path(os.fsdecode(base64.b64decode(value)))
    if form == "dict":
        return {key: unpack_value(inner) for key, inner in value.items()}
    return value


def answer_value(value: Any) -> bytes:
    """The line a worker sends when a body returned."""
    return msgspec.json.encode({"value": pack_value(value)})


def pack_unable(why: str) -> bytes:
    """The line a worker sends instead of `READY`."""
    return msgspec.json.encode({"unable": why})


def pack_log(fields: Mapping[str, Any]) -> bytes:
    """The line a worker sends when a body logs something."""
    return msgspec.json.encode({"log": fields})


def answer_error(error: BaseException) -> bytes:
    """The line a worker sends when a body raised."""
    try:
        return msgspec.json.encode(_error_as_json(error))
    except BaseException as failure:  # other people's class
        words = f"its words cannot be had ({type(failure).__name__})"
        return msgspec.json.encode({"error": words, "kinds": _kinds(error)})


def _error_as_json(error: BaseException) -> dict[str, Any]:
    if isinstance(error, Rewind):
        return {"rewind": {"to": error.targets, "rounds": error.rounds, "keep": error.keep}}
    wish = getattr(error, "retry_after", None)
    reply: dict[str, Any] = {"error": message_of(error)[:10_000] + raised_at(error), "kinds": _kinds(error)}
    if isinstance(wish, int | float):
        reply["retry_after"] = float(wish)
    return reply


def _kinds(error: BaseException) -> list[str]:
    return [kind.__name__ for kind in type(error).__mro__[:-1]]
