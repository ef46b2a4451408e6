"""`holdfast decide`: answer what is asked about a task."""

from __future__ import annotations

import click

from holdfast.cli.completion import complete_task
from holdfast.cli.options import composed, json_option, project_options, run_option
from holdfast.cli.recording import tell_recorded


@click.command("decide", short_help="Answer what is asked about a task.")
@click.argument("task", callback=composed, metavar="TASK", shell_complete=complete_task)
@click.argument("choice", type=click.Choice(["keep", "restore", "redo", "continue", "skip"]))
@run_option
@project_options
@json_option
def command(*, task: str, choice: str, run_id: str | None, directory: str, as_json: bool) -> None:
    """Answer what is asked about a task: about an edited file, half-finished output, an input that came out
    differently, or rounds that are used up; only records it."""
    tell_recorded(directory, as_json, lambda project: project.decide(task, choice, run_id=run_id))
