"""`holdfast clean`: remove old finished runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_option, project_options
from holdfast.cli.printing import print_json, say_all, size
from holdfast.project import Project

if TYPE_CHECKING:
    from holdfast.project.results import CleanResult


@click.command("clean", short_help="Remove the records of old completed runs.")
@click.option("--max-age-days", metavar="DAYS", help="Remove completed runs older than this.  [default: 30]")
@click.option("--max-runs", metavar="N", help="Keep at most this many runs.  [default: 50]")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@project_options
@json_option
def command(max_age_days: str | None, max_runs: str | None, dry_run: bool, directory: str, as_json: bool) -> None:
    """Remove the records of old completed runs; never an unfinished run, never a file of the work tree."""
    cleaned = Project.open(directory).clean(max_age_days=max_age_days, max_runs=max_runs, dry_run=dry_run)
    if as_json:
        print_json(cleaned)
    else:
        say_all(_lines(cleaned))


def _lines(cleaned: CleanResult) -> Iterator[str]:
    verb = "Would remove" if cleaned.dry_run else "Removed"
    for run in cleaned.runs:
        yield f"{verb} run {run.run_id} ({run.reason}), {size(run.size)}"
    for run_id in cleaned.finished:
        yield f"{verb} what an interrupted clean had left of run {run_id}"
    if not cleaned.runs and not cleaned.finished:
        yield "Nothing to clean."
