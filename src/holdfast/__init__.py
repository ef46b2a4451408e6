"""Holdfast keeps long, expensive pipelines: what was done, proof that it is intact, and what to do next."""

import sys

from holdfast import starting

if sys.platform == "win32":
    _REFUSAL = "Holdfast needs Linux or macOS: it relies on POSIX locks and renames. On Windows, use WSL."
    raise SystemExit(_REFUSAL) if sys.argv[0].endswith(("holdfast", "holdfast.exe")) else ImportError(_REFUSAL)
if starting.is_command():  # from here on: all that follows takes its time to load
    starting.hear()

from typing import TYPE_CHECKING, Any

from holdfast.context import Context
from holdfast.errors import CheckpointCorruptionError, HoldfastError
from holdfast.pipeline.definition import Pipeline
from holdfast.pipeline.rewind import Rewind

if TYPE_CHECKING:
    from holdfast.checkpoints import CheckpointManager
    from holdfast.journal.eventlog import EventLog

__all__ = [
    "CheckpointCorruptionError",
    "CheckpointManager",
    "Context",
    "EventLog",
    "HoldfastError",
    "Pipeline",
    "Rewind",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The pieces that work alone are loaded when they are first asked for: a pipeline needs neither."""
    if name == "EventLog":
        from holdfast.journal.eventlog import EventLog

        return EventLog
    if name == "CheckpointManager":
        from holdfast.checkpoints import CheckpointManager

        return CheckpointManager
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
