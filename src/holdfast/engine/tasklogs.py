"""Python logging inside a step, also in runs/ID/logs/TASK.log: told apart by the task the code runs for.

A log is for people, and no step fails for want of it: if it cannot be written, that is told once, and the run
goes on. A folder that was removed meanwhile is made again.
"""

from __future__ import annotations

import contextvars
import hashlib
import logging
from collections.abc import Callable

from holdfast.context import current_task
from holdfast.errors import StorageError
from holdfast.escaping import terminal
from holdfast.stores.protocols import Files

NAME_MAX_BYTES = 200

LogObserver = Callable[[str, str, str], None]
"""Called with task id, level name and the message."""

_heard_by: contextvars.ContextVar[TaskLogs | None] = contextvars.ContextVar("holdfast_logs", default=None)


class TaskLogs(logging.Handler):
    """A handler on the root logger for as long as a run lasts.

    The bodies of the run begin in `context`. What others log, of another run in this process, is not for us.
    """

    def __init__(
        self, files: Files, folder: str, context: contextvars.Context, observer: LogObserver | None = None
    ) -> None:
        super().__init__()
        self._files = files
        self._folder = folder
        self._observer = observer
        context.run(_heard_by.set, self)
        self._failure_told = False
        self._level_before: int | None = None
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))

    def __enter__(self) -> TaskLogs:
        root = logging.getLogger()
        if root.level == logging.WARNING and not root.handlers:
            # Nobody has set logging up: without this, a step's logging.info would go nowhere.
            self._level_before = root.level
            root.setLevel(logging.INFO)
        root.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        root = logging.getLogger()
        root.removeHandler(self)
        if self._level_before is None:
            return
        others = [handler for handler in root.handlers if isinstance(handler, TaskLogs)]
        if others:  # of runs that go on: the last one sets it back
            others[0]._level_before = self._level_before
        else:
            root.setLevel(self._level_before)

    def emit(self, record: logging.LogRecord) -> None:
        task = current_task.get()
        if not task or _heard_by.get() is not self:
            return
        try:
            line = self.format(record)
        except Exception:  # the caller's mistake, %d for a text: told as logging tells it
            self.handleError(record)
            return
        self._tell(task, record.levelname, record.getMessage())
        try:
            self._keep(task, line)
        except StorageError as error:
            if not self._failure_told:
                self._failure_told = True
                self._tell(task, "WARNING", f"what steps log cannot be kept: {error.message}")

    def _tell(self, task: str, level: str, message: str) -> None:
        if self._observer is not None:
            self._observer(task, level, message)

    def _keep(self, task: str, line: str) -> None:
        text = terminal(line, multiline=True)  # people read it with cat
        path = f"{self._folder}/{log_name(task)}"  # a link that was put there meanwhile is not followed
        self._files.append(path, f"{text}\n".encode(errors="backslashreplace"))


def log_name(task: str) -> str:
    """The file name of a task's log: safe, and never too long for a file system."""
    name = task.replace("/", "+")
    if len(name.encode()) > NAME_MAX_BYTES:
        short = name.encode()[: NAME_MAX_BYTES - 20].decode(errors="ignore")
        name = f"{short}-{hashlib.sha256(task.encode()).hexdigest()[:16]}"
    return name + ".log"
