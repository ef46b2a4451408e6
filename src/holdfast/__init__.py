"""Holdfast keeps long, expensive pipelines: what was done, proof that it is intact, and what to do next."""

import sys

if sys.platform == "win32":
    raise ImportError("Holdfast needs Linux or macOS: it relies on POSIX locks and renames. On Windows, use WSL.")

from holdfast.context import Context
from holdfast.errors import CheckpointCorruptionError, HoldfastError
from holdfast.journal.log import EventLog
from holdfast.pipeline.definition import Pipeline
from holdfast.pipeline.rewind import Rewind
from holdfast.snapshots import CheckpointManager

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
