"""Holdfast keeps long, expensive pipelines: what was done, proof that it is intact, and what to do next."""

import sys

if sys.platform == "win32":
    _REFUSAL = "Holdfast needs Linux or macOS: it relies on POSIX locks and renames. On Windows, use WSL."
    raise SystemExit(_REFUSAL) if sys.argv[0].endswith(("holdfast", "holdfast.exe")) else ImportError(_REFUSAL)

from typing import TYPE_CHECKING, Any

from holdfast.context import Context
from holdfast.errors import CheckpointCorruptionError, HoldfastError
from holdfast.pipeline.definition import Pipeline
from holdfast.pipeline.rewind import Rewind

if TYPE_CHECKING:
    from holdfast.checkpoints import CheckpointManager
    from holdfast.journal.eventlog import EventLog
    from holdfast.project import Project

__all__ = [
    "CheckpointCorruptionError",
    "CheckpointManager",
    "Context",
    "EventLog",
    "HoldfastError",
    "Pipeline",
    "Project",
    "Rewind",
]
__version__ = "0.1.0"

_WHEN_ASKED_FOR = {
    "CheckpointManager": "holdfast.checkpoints",
    "EventLog": "holdfast.journal.eventlog",
    "Project": "holdfast.project",
}


def __getattr__(name: str) -> Any:
    """What a pipeline does not need is loaded when it is first asked for."""
    if name in _WHEN_ASKED_FOR:
        from importlib import import_module

        return getattr(import_module(_WHEN_ASKED_FOR[name]), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
