"""Real processes of the command line, forked from one that has imported everything: each costs milliseconds.

This file, run as a script, reads one job a line and answers with the exit status; two files have what was printed.

`trouble` says what goes wrong with the disk: N (killed before the N-th operation), N:torn (half of that write
happens first), N:ENOSPC (that operation fails), N:ENOSPC+ (so does every later one that needs room).
"""

from __future__ import annotations

import errno
import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE_S = 60  # a hang is a failure, not a wait
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
    """Forks one process for each command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        from tests.children import unsynced  # not found by this file as a script

        env = unsynced(COLUMNS="200", PYTHONDONTWRITEBYTECODE="1")
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def __call__(self, directory: Path, *words: str, env: Mapping[str, str], trouble: str = "") -> Said:
        assert self._server.stdin is not None and self._server.stdout is not None
        files = {name: str(self.folder / name) for name in ("out", "err")}
        job = {"dir": str(directory), "argv": list(words), "env": dict(env), "trouble": trouble, **files}
        self._server.stdin.write(json.dumps(job) + "\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        return Said(code, *(Path(files[name]).read_text("utf-8", "replace") for name in ("out", "err")))

    def close(self) -> None:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(PATIENCE_S)
        self._server.stdout.close()


@contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    made = Processes(folder)
    try:
        yield made
    finally:
        made.close()


def serve() -> None:
    """Fork a process for each job on stdin; answer with its exit status."""
    import holdfast.cli.recover
    import holdfast.cli.run
    import holdfast.project.recover
    import holdfast.project.run
    import holdfast.project.verify
    import holdfast.views.todos  # noqa: F401

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            become(json.loads(line))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{code}\n")
        sys.stdout.flush()


def become(job: dict[str, Any]) -> None:
    """Be the process of that command."""
    from holdfast.cli.main import main

    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(job["dir"])
    os.environ.update(job["env"], SOAK_ENGINE=str(os.getpid()))
    sys.argv = ["holdfast", *job["argv"]]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.alarm(PATIENCE_S)
    if int(job["env"]["CLOCK_OFFSET_S"]):
        runpy.run_path(str(Path(__file__).parent.parent / "scenarios" / "wrong_clock" / "sitecustomize.py"))
    if job["trouble"]:
        prepare(*job["trouble"].partition(":")[::2])
    main()


def prepare(operation: str, how: str) -> None:
    """Have the disk give out, or the process die, at an operation that is to come."""
    from holdfast.stores import disk

    if how in ("", "torn"):
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
