"""`holdfast why`: what the record says about one task."""

from __future__ import annotations

import click

from holdfast.cli.completion import complete_name
from holdfast.cli.finding import pick_run
from holdfast.cli.options import composed, json_option, project_options, run_option
from holdfast.cli.printing import print_json, say_all


@click.command("why")
@click.argument("task", callback=composed, shell_complete=complete_name)
@run_option
@project_options
@json_option
def command(task: str, run_id: str | None, directory: str, as_json: bool) -> None:
    """Explain why a task ran, was reused, or will run again."""
    from holdfast.cli.ending import as_typed
    from holdfast.commands.plan import explain
    from holdfast.runs.listing import open_project

    layout = open_project(directory)
    chosen = pick_run(layout, run_id)
    lines = explain(layout, chosen, task, typed=as_typed(directory, layout, chosen))
    if as_json:
        print_json({"run_id": chosen, "task": task, "lines": lines})
    else:
        say_all(lines)
