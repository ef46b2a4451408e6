"""`holdfast why`: what the record says about one task."""

from __future__ import annotations

import click

from holdfast.cli.completion import complete_name
from holdfast.cli.options import composed, json_option, project_options, run_option
from holdfast.cli.printing import print_json, say_all, say_pages_behind
from holdfast.project import Project


@click.command("why")
@click.argument("task", callback=composed, shell_complete=complete_name)
@run_option
@project_options
@json_option
def command(task: str, run_id: str | None, directory: str, as_json: bool) -> None:
    """Explain why a task ran, was reused, or will run again."""
    project = Project.open(directory)
    told = project.why(task, run_id=run_id)
    if as_json:
        print_json(told)
    else:
        say_all(told.lines)
    say_pages_behind(project, run_id, directory)
