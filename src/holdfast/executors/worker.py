"""The other end of `ProcessExecutor`: loads the pipeline, runs one function after another, answers in JSON.

A signal that stops a run often reaches everything that was started from its terminal. Whether a running step may
finish is for the engine to say, so such signals do nothing here; the worker ends when its standard input does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import IO, Any

from holdfast import threads
from holdfast.context import current_task
from holdfast.errors import StorageError
from holdfast.executors.pipe import (
    BEGUN,
    READY,
    Sender,
    answer_error,
    answer_value,
    pack_unable,
    unpack_arguments,
)
from holdfast.executors.remote import ANSWER, Link
from holdfast.pipeline.loader import load_pipeline
from holdfast.signals import ENDING
from holdfast.streams import Heedless, give_closed_streams_a_place, silence
from holdfast.values import decode_json


def main() -> None:
    """Serve until standard input ends."""
    for number in ENDING:
        signal.signal(number, _leave_it_to_the_engine)
    give_closed_streams_a_place()
    link = Link(_sender(_take_stdout()))
    requests: SimpleQueue[bytes] = SimpleQueue()
    # A thread reads the pipe, so that its end is seen also while a body runs: the parent is gone, so are we.
    try:
        threads.start(threading.Thread(target=_listen, args=(link, requests), daemon=True))
    except StorageError:
        link.send(pack_unable("the system allows it no thread"))
        return
    link.send(READY)
    functions: dict[str, Any] = {}
    while True:
        request = decode_json(requests.get())
        try:
            if not functions:
                functions = load_pipeline(sys.argv[1], base=Path.cwd()).functions
                Sender(link.send).install()
            reply = _run(functions, request, link)
        except BaseException as error:
            reply = answer_error(error)
        link.send_outcome(reply)


def _sender(pipe: IO[bytes]) -> Callable[[bytes], None]:
    def send(line: bytes) -> None:
        try:
            pipe.write(line + b"\n")
            pipe.flush()
        except BrokenPipeError:  # the parent was killed while a body ended: nobody wants to read of it
            os._exit(0)

    return send


def _leave_it_to_the_engine(number: int, frame: FrameType | None) -> None:
    """A handler, for a signal that is ignored would stay so in whatever the body starts."""


def _run(functions: dict[str, Any], request: dict[str, Any], link: Link) -> bytes:
    arguments = unpack_arguments(request, link.host())
    if request["timed"]:
        link.send(BEGUN)
    token = current_task.set(request["task"])
    try:
        value = functions[request["function"]](**arguments)
    finally:
        current_task.reset(token)
    return answer_value(value)


def _listen(link: Link, requests: SimpleQueue[bytes]) -> None:
    try:
        for line in sys.stdin.buffer:
            if line.startswith(ANSWER):
                link.hear(line)
            else:
                requests.put(line)
    finally:
        os._exit(0)


def _take_stdout() -> IO[bytes]:
    """Keep the pipe for answers; what a body prints goes to standard error, a line at a time: we may be killed."""
    answers = os.fdopen(os.dup(1), "wb")
    # A process that a body forks may outlive us: while it had the pipe, the engine would go on waiting for us.
    os.register_at_fork(after_in_child=lambda: silence(answers))
    os.dup2(2, 1)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = open(number, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115 - for good
        setattr(sys, name, Heedless(stream))
    return answers


if __name__ == "__main__":
    main()
