"""What a body in a worker process logs, sent to the parent, where it is handled as if it had been logged there.

The worker's root logger has one handler, which sends; handlers that the pipeline gave its root logger are the
parent's too, and do their work there. So nothing is said twice, and a step's log is one whoever runs the step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from holdfast.context import current_task
from holdfast.wording import writable

_TEXTS = ("name", "levelname", "pathname", "filename", "module", "funcName", "threadName", "processName")
_NUMBERS = ("levelno", "lineno", "created", "msecs", "relativeCreated", "thread", "process")

_formatter = logging.Formatter()


class Sender(logging.Handler):
    """Sends each record of the task at hand; what other threads of a worker log between tasks is nobody's."""

    def __init__(self, send: Callable[[Mapping[str, Any]], None]) -> None:
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
        self._send(fields)


def relay(fields: Mapping[str, Any]) -> None:
    """Handle what a worker has logged; the calling thread is the one that waits for its task."""
    record = logging.makeLogRecord(dict(fields))
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
