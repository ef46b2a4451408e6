"""`holdfast reject`: send finished work back with feedback."""

from __future__ import annotations

import click

from holdfast.cli.completion import complete_name, complete_task
from holdfast.cli.options import composed, json_option, project_options, run_option
from holdfast.cli.recording import tell_recorded


@click.command("reject", short_help="Send a finished task back with feedback.")
@click.argument("name", callback=composed, metavar="NAME|TASK", shell_complete=complete_name)
@click.option(
    "--to",
    required=True,
    callback=composed,
    metavar="TASK",
    shell_complete=complete_task,
    help="The finished task that is to be done again.",
)
@click.option("--feedback", required=True, metavar="TEXT", help="What is wrong with it; the step receives this.")
@run_option
@project_options
@json_option
def command(*, name: str, to: str, feedback: str, run_id: str | None, directory: str, as_json: bool) -> None:
    """Send a finished task back with feedback, at a gate or after reading what was made; only records it."""
    tell_recorded(
        directory, as_json, lambda project: project.reject(name, to=to, feedback=feedback, run_id=run_id)
    )
