"""Bodies in worker processes: spawned, never forked, and gone when their parent is.

Each worker is `python -m holdfast.executors.worker FILE.py:NAME`. Parent and worker speak JSON lines over pipes:
no pickle crosses them. A worker's first line says that it is ready, or why not: one that ends before that has
begun no body, and is no failure of a step. What a body logs, and what its context asks of the host, comes in lines
of its own, before its answer. Of a call that has a timeout a line says that it begins: its time runs from there,
however long a worker takes to be ready. A worker has the working directory of its parent, and watches its standard
input; its end, however the parent died, ends the worker.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from functools import partial

from holdfast.clock import monotonic
from holdfast.errors import HoldfastError, StorageError
from holdfast.executors.deadlines import Deadline
from holdfast.executors.pipe import BEGUN, LOG, READY, UNABLE, pack_call, read_outcome, relay
from holdfast.executors.protocol import Call, CancelledCallError, Handle, Outcome, RemoteError
from holdfast.executors.remote import ASK, answer
from holdfast.executors.threads import ThreadExecutor
from holdfast.host import Host
from holdfast.values import decode_json


class ProcessExecutor:
    """Worker processes, each made when first needed and used again. A thread of `pool` waits for each: as many as
    that is wide."""

    def __init__(self, pool: ThreadExecutor, reference: str) -> None:
        self._pool = pool
        self._reference = reference  # FILE.py:NAME
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, call: Call, host: Host | None = None) -> Handle:
        """Run the body in a worker; its context asks `host`. A timeout, or to cancel it, kills the worker."""
        remote = _Remote(self._pool, call, host)
        remote.follow(self._pool.submit(Call(partial(self._run, remote), {}, task=call.task)))
        return remote

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

    def _run(self, remote: _Remote) -> Outcome:
        """What came of it. The system may start no process, or not all that one needs: then it has not begun."""
        started = monotonic()
        try:
            request = pack_call(remote.call)
            worker = self._take()
            try:
                outcome = remote.run(worker, request)
            finally:
                self._give_back(worker)
        except (OSError, HoldfastError) as error:
            outcome = Outcome(error=error, has_begun=not isinstance(error, StorageError))
        outcome.duration = monotonic() - started
        if self._closed or remote.is_cancelled:  # it is we who have ended the worker
            outcome.cancelled, outcome.has_begun = True, True
        return outcome

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
            if worker.can_be_used and not self._closed:
                self._idle.append(worker)
                return
            self._all.discard(worker)
        worker.let_go()


class _Remote(Handle):
    """One call in a worker, and the time that it may take."""

    def __init__(self, pool: ThreadExecutor, call: Call, host: Host | None) -> None:
        super().__init__(pool.run)
        self.call = call
        self.host = host
        self.is_cancelled = False
        self._pool = pool
        self._body: Handle | None = None  # the thread that waits
        self._worker: _Worker | None = None  # while it runs this call
        self._deadline: Deadline | None = None
        self._has_expired = False
        self._ending = threading.Lock()

    def follow(self, body: Handle) -> None:
        self._body = body
        body.done(lambda outcome: self.end(outcome if outcome.value is None else outcome.value))

    def cancel(self) -> None:
        with self._ending:
            self.is_cancelled = True
            worker = self._worker
            if worker is not None:
                worker.kill()
        if worker is None and self._body is not None:
            self._body.cancel()

    def run(self, worker: _Worker, request: bytes) -> Outcome:
        with self._ending:
            if self.is_cancelled:
                return Outcome(error=CancelledCallError("cancelled before it began"))
            self._worker = worker
        try:
            outcome = worker.run(self, request)
        finally:
            with self._ending:  # from here on nobody ends the worker for this call
                self._worker = None
            if self._deadline is not None:
                self._deadline.cancel()
        if self._has_expired:
            return Outcome(error=TimeoutError("timed out"), timed_out=True)
        return outcome

    def has_begun(self) -> None:
        """Its time runs from here. StorageError if no thread can mind it."""
        if self.call.timeout is not None and self._deadline is None:
            self._deadline = self._pool.watch(self.call.timeout, self._expire)

    def _expire(self) -> None:
        with self._ending:
            if self._worker is not None:
                self._has_expired = True
                self._worker.kill()


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
        self._has_answered = True
        self._is_killed = False
        self._is_ready = False

    @property
    def can_be_used(self) -> bool:
        """Whether it has answered whatever it was asked, and lives."""
        return self._has_answered and not self._is_killed

    def run(self, remote: _Remote, request: bytes) -> Outcome:
        self._has_answered = False
        self._tell(request)
        while self._takes_note(line := self._read(), remote):
            pass
        if not line.endswith(b"\n"):
            return self._ended()
        self._has_answered = True
        return read_outcome(line)

    def kill(self) -> None:
        """Kill the process; whoever reads from it meets the end of the pipe."""
        self._is_killed = True
        self._process.kill()

    def end(self) -> None:
        self.kill()
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

    def _tell(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and so do its lines

    def _read(self) -> bytes:
        """A line; what there is of it if the worker ends before that."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def _takes_note(self, line: bytes, remote: _Remote) -> bool:
        """Whether it is a whole line that comes before the answer, and has been heeded."""
        if not line.endswith(b"\n"):
            return False
        if line.startswith(READY):
            self._is_ready = True
        elif line.startswith(BEGUN):
            remote.has_begun()
        elif line.startswith(LOG):
            relay(line)
        elif line.startswith(ASK):
            self._tell(answer(remote.host, line))
        elif line.startswith(UNABLE):
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
