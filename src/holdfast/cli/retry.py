"""`holdfast retry`: give tasks a fresh set of attempts."""

from __future__ import annotations

import click

from holdfast.cli.completion import complete_task
from holdfast.cli.options import composed, json_option, project_options, run_option
from holdfast.cli.recording import tell_recorded


@click.command("retry", short_help="Give failed, reviewed or skipped tasks a fresh start.")
@click.argument("tasks", callback=composed, nargs=-1, metavar="[TASK]...", shell_complete=complete_task)
@click.option("--all", "everything", is_flag=True, help="All tasks that failed, need review or were skipped.")
@run_option
@project_options
@json_option
def command(tasks: tuple[str, ...], everything: bool, run_id: str | None, directory: str, as_json: bool) -> None:
    """Give tasks that failed, need review or were skipped a fresh set of attempts; only records it."""
    if bool(tasks) == everything:
        raise click.UsageError("Name the tasks to retry, or give --all.")
    tell_recorded(directory, as_json, lambda project: project.retry(None if everything else tasks, run_id=run_id))
