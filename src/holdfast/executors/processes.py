"""CPU-bound bodies in worker processes: spawned, never forked, and gone when their parent is.

Each worker is `python -m holdfast.executors.worker FILE.py:NAME`. Parent and worker speak JSON lines over pipes:
no pickle crosses them. What a body logs comes in lines of its own, before its answer. A worker has the working
directory of its parent, and watches its standard input; its end, however the parent died, ends the worker.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import msgspec

from holdfast.clock import monotonic
from holdfast.errors import HoldfastError
from holdfast.executors.base import Call, Outcome, RemoteError
from holdfast.executors.relaying import relay
from holdfast.pipeline.rewind import Rewind
from holdfast.values import decode_json, encode_json
from holdfast.wording import message_of, raised_at

_LOG = b'{"log":'  # how the line of `pack_log` begins


class ProcessExecutor:
    """A pool of worker processes, each made when first needed and used again."""

    def __init__(self, reference: str) -> None:
        self._reference = reference  # FILE.py:NAME
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._lock = threading.Lock()
        self._closed = False

    def run(self, call: Call) -> Outcome:
        """Run the call in a worker; the calling thread waits. A timeout kills the worker."""
        started = monotonic()
        try:
            worker = self._take()
            outcome = worker.run(call)
        except (OSError, HoldfastError) as error:
            return Outcome(error=error, duration=monotonic() - started)
        self._give_back(worker)
        outcome.duration = monotonic() - started
        outcome.cancelled = outcome.cancelled or self._closed
        return outcome

    def close(self) -> None:
        """End every worker, also those at work."""
        with self._lock:
            self._closed = True
            workers, self._all = self._all, set()
        for worker in workers:
            worker.kill()

    def _take(self) -> _Worker:
        with self._lock:
            if self._idle:
                return self._idle.pop()
            worker = _Worker(self._reference)
            self._all.add(worker)
            return worker

    def _give_back(self, worker: _Worker) -> None:
        with self._lock:
            if worker.alive and not self._closed:
                self._idle.append(worker)
            else:
                self._all.discard(worker)
                worker.kill()


class _Worker:
    """One process and its two pipes."""

    def __init__(self, reference: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.executors.worker", reference],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "HOLDFAST_KILL_AT": "0"},
        )
        self.alive = True

    def run(self, call: Call) -> Outcome:
        assert self._process.stdin is not None and self._process.stdout is not None
        request = {"function": call.function_name, "arguments": pack(call.arguments)}
        timed_out = threading.Event()
        timer = self._deadline(call.timeout, timed_out)
        try:
            self._process.stdin.write(encode_json(request) + b"\n")
            self._process.stdin.flush()
            answer = self._answer(self._process.stdout)
        except BrokenPipeError:
            answer = b""
        finally:
            if timer is not None:
                timer.cancel()
        if timed_out.is_set():
            self.alive = False
            return Outcome(error=TimeoutError("timed out"), timed_out=True)
        return self._read(answer)

    def _answer(self, lines: IO[bytes]) -> bytes:
        """The next line that is no log."""
        while (line := lines.readline()).startswith(_LOG):
            relay(decode_json(line)["log"])
        return line

    def _deadline(self, timeout: float | None, timed_out: threading.Event) -> threading.Timer | None:
        if timeout is None:
            return None

        def expire() -> None:
            timed_out.set()
            self.kill()

        timer = threading.Timer(timeout, expire)
        timer.daemon = True
        timer.start()
        return timer

    def _read(self, answer: bytes) -> Outcome:
        if not answer:
            self.alive = False
            status = self._process.wait()
            words = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
            return Outcome(error=RemoteError(f"the worker process ended ({words})"))
        reply = decode_json(answer)
        if "rewind" in reply:
            return Outcome(error=Rewind(**reply["rewind"]))
        if "error" in reply:
            return Outcome(error=RemoteError(reply["error"], tuple(reply["kinds"]), reply.get("retry_after")))
        return Outcome(value=unpack_value(reply["value"]))

    def kill(self) -> None:
        self.alive = False
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except BrokenPipeError:
                pass  # unsent bytes for a worker that is gone


def pack(arguments: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Arguments as JSON, each with the form it must get back on the other side."""
    return {name: pack_value(value) for name, value in arguments.items()}


def pack_value(value: Any) -> list[Any]:
    if isinstance(value, bytes):
        return ["bytes", base64.b64encode(value).decode()]
    if isinstance(value, Path):
        return ["path", str(value)]
    if isinstance(value, dict) and any(isinstance(inner, bytes | Path | dict) for inner in value.values()):
        return ["dict", {key: pack_value(inner) for key, inner in value.items()}]
    return ["json", value]


def unpack_value(packed: list[Any]) -> Any:
    form, value = packed
    if form == "bytes":
        return base64.b64decode(value)
    if form == "path":
        return Path(value)
    if form == "dict":
        return {key: unpack_value(inner) for key, inner in value.items()}
    return value


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
