"""One process of `recover` over the victim's project: `python -m crash.rescuer PROJECT LOG`."""

from __future__ import annotations

import sys
from pathlib import Path

from harness import Harness
from holdfast.project.results import RecoverResult

from . import victim


def rescue(project: Path, log: Path) -> RecoverResult:
    return Harness(project).recover(victim.make(log))


if __name__ == "__main__":
    rescue(Path(sys.argv[1]), Path(sys.argv[2]))
