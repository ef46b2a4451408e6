"""`holdfast list`: the runs of a project, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_option, project_options
from holdfast.cli.printing import money, plain, print_json, say, say_all, say_pages_behind, table, tag_heading
from holdfast.project import Project
from holdfast.wording import addressed

if TYPE_CHECKING:
    from holdfast.project.results import RunEntry


@click.command("list", short_help="List the runs of this project.")
@project_options
@json_option
def command(directory: str, as_json: bool) -> None:
    """List the runs of this project with parameters, tags, status, steps done and cost."""
    project = Project.open(directory)
    runs = project.runs()
    if as_json:
        print_json(runs)
    elif not runs:
        say(addressed(str(project.why_no_run()), directory))
    else:
        say_all(_lines(runs))
    say_pages_behind(project, None, directory)


def _lines(runs: list[RunEntry]) -> list[str]:
    params = list(dict.fromkeys(name for run in runs for name in run.params))
    tags = list(dict.fromkeys(name for run in runs for name in run.tags))
    headings = [
        "run",
        "pipeline",
        *params,
        *(tag_heading(name, params) for name in tags),
        "status",
        "done",
        "cost",
    ]
    return table(headings, [_row(run, params, tags) for run in runs])


def _row(run: RunEntry, params: list[str], tags: list[str]) -> list[str]:
    from holdfast.views.summary import shown_status

    if run.problem:
        return [run.run_id, "", *("" for _ in (*params, *tags)), "unreadable", "", ""]
    cells = [(run.params, name) for name in params] + [(run.tags, name) for name in tags]
    values = [plain(fields[name]) if name in fields else "" for fields, name in cells]
    return [
        run.run_id,
        run.pipeline,
        *values,
        shown_status(run.status, run.found.error, running=run.running).replace("_", " "),
        f"{run.done}/{run.total}" + (f", {run.skipped} skipped" if run.skipped else ""),
        money(run.total_cost_usd),
    ]
