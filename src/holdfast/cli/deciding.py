"""What approve, reject, retry and note share: record it, then say what continues the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.cli.finding import pick_run
from holdfast.cli.printing import addressed, print_json, say, say_all

if TYPE_CHECKING:
    from holdfast.layout import ProjectLayout


def decide(directory: str, run_id: str | None, as_json: bool, record: Callable[[ProjectLayout, str], str]) -> None:
    """Call `record` with the run that is meant, and print its sentence and the way on."""
    from holdfast.cli.ending import view_lines
    from holdfast.runs.listing import holder_of, open_project, read_picture
    from holdfast.state import COMPLETED

    layout = open_project(directory)
    chosen = pick_run(layout, run_id)
    sentence = record(layout, chosen)
    picture = read_picture(layout, chosen)
    is_running = holder_of(layout, chosen) is not None
    is_over = picture.state.status == COMPLETED and not is_running
    command = None if is_running or is_over else addressed(picture.continue_command(), directory)
    if as_json:
        print_json({"run_id": chosen, "message": sentence, "running": is_running, "continue": command})
        return
    say(sentence)
    if not is_running:
        say_all(view_lines(layout, picture.state))
    if not is_over:
        say(f"Continue with: {command}" if command else "The running engine takes it up.")
