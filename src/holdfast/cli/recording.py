"""What approve, reject, decide, retry and note share: record it, then say what continues the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.cli.printing import print_json, say
from holdfast.project import Project

if TYPE_CHECKING:
    from holdfast.project.results import Recorded


def tell_recorded(directory: str, as_json: bool, record: Callable[[Project], Recorded]) -> None:
    """Call `record` with the project, and print its sentence and the way on."""
    recorded = record(Project.open(directory))
    if as_json:
        print_json(recorded)
        return
    say(recorded.message)
    if recorded.found:
        say(f"Not up to date: {recorded.found}.")
    if recorded.continue_with is not None:
        say(f"Continue with: {recorded.continue_with}")
    elif recorded.running:
        say("The running engine takes it up.")
