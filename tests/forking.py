"""Real processes, forked from one that has imported everything: each costs milliseconds, and no start of Python.

This file, run as a script, is that process: it reads one job a line and answers with the exit status; two files
have what was printed. Nothing is synced there: a process that is killed loses nothing that it wrote.

`trouble` says what goes wrong with the disk: N (killed before the N-th operation), N:torn (half of that write
happens first), N:ENOSPC (that operation fails), N:ENOSPC+ (so does every later one that needs room).
"""

from __future__ import annotations

import atexit
import errno
import functools
import gc
import importlib
import json
import multiprocessing
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import holdfast
from holdfast.stores import disk

TESTS = Path(__file__).parent
PATIENCE_S = 60.0  # a hang is a failure, not a wait
KILLED = -signal.SIGKILL
HUNG = -signal.SIGALRM
NEEDS_ROOM = ("write", "mkdir")


@dataclass(frozen=True)
class Said:
    """What a process left."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    def json(self) -> Any:
        return json.loads(self.out)


class Processes:
    """Forks one process for each job, and waits for its end."""

    def __init__(self) -> None:
        from tests.children import unsynced  # not found by this file as a script

        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-processes-")
        plain = {name: value for name, value in unsynced().items() if not name.startswith("HOLDFAST_")}
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=plain
        )

    def holdfast(
        self, directory: Path, *words: str, env: Mapping[str, str] | None = None, trouble: str = ""
    ) -> Said:
        """A command, typed in that folder, with these variables added to the environment."""
        return self._ended({"dir": str(directory), "words": words, "env": dict(env or {}), "trouble": trouble})

    def module(self, name: str, *words: str, trouble: str = "", patience_s: float = PATIENCE_S) -> Said:
        """`python -m NAME WORDS...`, of a module below tests/; HUNG if it takes longer than that."""
        job = {"dir": str(TESTS), "module": name, "words": words, "trouble": trouble, "patience_s": patience_s}
        return self._ended(job)

    def _ended(self, job: dict[str, Any]) -> Said:
        assert self._server.stdin is not None and self._server.stdout is not None
        files = [Path(self._folder.name) / name for name in ("out", "err")]
        self._server.stdin.write(json.dumps({**job, "files": [str(path) for path in files]}) + "\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        return Said(code, *(path.read_text("utf-8", "replace") for path in files))

    def close(self) -> None:
        with self._server:
            self._server.communicate(timeout=PATIENCE_S)
        self._folder.cleanup()


@functools.cache
def processes() -> Processes:
    """The one server of this process, started when it is first needed."""
    made = Processes()
    atexit.register(made.close)
    return made


def serve() -> None:
    """Fork a process for each job on stdin; answer with its exit status."""
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    gc.freeze()
    for line in sys.stdin:
        # It ends without taking the interpreter apart, for which the system would have to copy every page of it.
        child = multiprocessing.get_context("fork").Process(target=become, args=(json.loads(line),))
        child.start()
        child.join()
        sys.stdout.write(f"{child.exitcode}\n")
        sys.stdout.flush()


def become(job: dict[str, Any]) -> None:
    """Be the process of that job."""
    for number, name in enumerate((os.devnull, *job["files"])):
        opened = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(job["dir"])
    os.environ.update(job.get("env", {}), FORKED_PROCESS=str(os.getpid()))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, job.get("patience_s", PATIENCE_S))
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in os.environ
    if "CLOCK_OFFSET_S" in os.environ:
        import wrong_clock  # noqa: F401
    if job["trouble"]:
        prepare(*job["trouble"].partition(":")[::2])
    work(job)


def work(job: dict[str, Any]) -> None:
    sys.argv = ["holdfast", *job["words"]]
    if "module" in job:
        runpy.run_module(job["module"], run_name="__main__", alter_sys=True)
        return
    from holdfast.cli.main import main

    sys.path[0] = job["dir"]  # as `python -m holdfast` has it
    main()


def prepare(operation: str, how: str) -> None:
    """Have the disk give out, or the process die, at an operation that is to come."""
    if how in ("", "torn"):
        if int(operation):
            disk.kill_at(int(operation), torn=how == "torn")
        return
    error, passed = getattr(errno, how.rstrip("+")), 0

    def fail(op: str, path: str) -> None:
        nonlocal passed
        passed += 1
        is_due = passed > int(operation) and op in NEEDS_ROOM if how.endswith("+") else passed == int(operation)
        if is_due:
            raise OSError(error, os.strerror(error), path)

    disk.hook = fail


if __name__ == "__main__":
    serve()
