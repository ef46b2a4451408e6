"""`holdfast list`: the runs of a project, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import json_option, project_options
from holdfast.cli.printing import addressed, money, plain, print_json, say, say_all, table, tag_heading

if TYPE_CHECKING:
    from holdfast.runs.listing import RunInfo


@click.command("list", short_help="List the runs of this project.")
@project_options
@json_option
def command(directory: str, as_json: bool) -> None:
    """List the runs of this project with parameters, tags, status, steps done and cost."""
    from holdfast.cli.finding import no_run
    from holdfast.runs.listing import list_runs, open_project
    from holdfast.runs.opening import open_lease

    layout = open_project(directory)
    runs = list_runs(layout)
    held = (open_lease(layout).holder() or {}).get("run_id")  # an engine is busy with it now
    if as_json:
        print_json([_document(info, info.run_id == held) for info in runs])
    elif not runs:
        say(addressed(str(no_run(layout)), directory))
    else:
        say_all(_lines(runs, held))


def _lines(runs: list[RunInfo], held: str | None) -> list[str]:
    params = list(dict.fromkeys(name for info in runs for name in info.params))
    tags = list(dict.fromkeys(name for info in runs for name in info.tags))
    headings = [
        "run",
        "pipeline",
        *params,
        *(tag_heading(name, params) for name in tags),
        "status",
        "done",
        "cost",
    ]
    return table(headings, [_row(info, params, tags, info.run_id == held) for info in runs])


def _row(info: RunInfo, params: list[str], tags: list[str], running: bool) -> list[str]:
    from holdfast.views.summary import shown_status

    if info.problem:
        return [info.run_id, "", *("" for _ in (*params, *tags)), "unreadable", "", ""]
    cells = [(info.params, name) for name in params] + [(info.tags, name) for name in tags]
    values = [plain(fields[name]) if name in fields else "" for fields, name in cells]
    return [
        info.run_id,
        info.pipeline,
        *values,
        shown_status(info.status, info.error, running=running).replace("_", " "),
        f"{info.done}/{info.total}",
        money(info.cost_usd),
    ]


def _document(info: RunInfo, running: bool) -> dict[str, Any]:
    return {
        "run_id": info.run_id,
        "pipeline": info.pipeline,
        "params": info.params,
        "tags": info.tags,
        "status": info.status,
        "running": running,
        "done": info.done,
        "total": info.total,
        "total_cost_usd": info.cost_usd,
        "started_at": info.started_at or None,
        "updated_at": info.updated_at or None,
        "problem": info.problem or None,
    }
