"""`holdfast resume`: continue a run, with the pipeline's file taken from the run's record."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from holdfast.cli.options import run_argument
from holdfast.cli.running import Showing, engine_options
from holdfast.project import Project


@click.command("resume", short_help="Continue the newest unfinished run, or the one that is named.")
@run_argument
@engine_options
def command(*, run_id: str | None, directory: str, as_json: bool, quiet: bool, **options: Any) -> int:
    """Continue the newest unfinished run of this project, or the one that is named.

    If all are completed, the files of the newest are proved, and mended.
    """
    project = Project.open(directory)
    showing = Showing(project, directory, as_json=as_json, quiet=quiet)
    return showing.carry_out(partial(project.resume, run_id, **options))
