"""One process of `recover` over the victim's project: `python -m crash.rescuer PROJECT LOG`."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.layout import ProjectLayout
from holdfast.project.recover import Recovery, recover
from holdfast.runs.choosing import Request

from . import victim


def rescue(project: Path, log: Path) -> Recovery:
    return recover(victim.make(log).compile(), ProjectLayout(project), Request())


if __name__ == "__main__":
    rescue(Path(sys.argv[1]), Path(sys.argv[2]))
