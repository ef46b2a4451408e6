"""How child processes of tests are started."""

from __future__ import annotations

import os
from pathlib import Path

_FOLDER = Path(__file__).with_name("unsynced")


def unsynced(**more: str) -> dict[str, str]:
    """Our environment, but nothing is synced: a kill loses nothing that was written, and syncing takes time."""
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(_FOLDER), before] if before else [str(_FOLDER)])
    return {**os.environ, "PYTHONPATH": path, **more}
