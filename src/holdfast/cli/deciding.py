"""What approve, reject, retry and note share: record it, then say what continues the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.cli.options import holder_of, pick_run
from holdfast.cli.printing import addressed, print_json, say

if TYPE_CHECKING:
    from holdfast.layout import ProjectLayout


def decide(directory: str, run_id: str | None, as_json: bool, record: Callable[[ProjectLayout, str], str]) -> None:
    """Call `record` with the run that is meant, and print its sentence and the way on."""
    from holdfast.runs import open_project, read_run

    layout = open_project(directory)
    chosen = pick_run(layout, run_id)
    sentence = record(layout, chosen)
    is_running = holder_of(layout, read_run(layout, chosen).state) is not None
    command = addressed(f"holdfast resume {chosen}", directory)
    if as_json:
        document = {"run_id": chosen, "message": sentence, "running": is_running}
        print_json({**document, "continue": None if is_running else command})
        return
    say(sentence)
    say("The running engine takes it up." if is_running else f"Continue with: {command}")
