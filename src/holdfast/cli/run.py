"""`holdfast run`: start a pipeline, or continue it where it stopped."""

from __future__ import annotations

from functools import partial
from typing import Any

import click
from click.core import ParameterSource

from holdfast.cli.completion import complete_file, complete_run
from holdfast.cli.running import Showing, engine_options
from holdfast.project import Project


@click.command("run", short_help="Start a pipeline, or continue its run with the same parameters.")
@click.argument("file", metavar="FILE.py[:NAME]", shell_complete=complete_file)
@click.option(
    "--resume",
    metavar="RUN_ID",
    shell_complete=complete_run,
    help="Continue that run; -p then changes its parameters.",
)
@click.option("--force", is_flag=True, help="Always start a new run, and set aside what is in its way.")
@click.option("--run-id", metavar="ID", help="The id of the new run.  [default: made from the time]")
@engine_options
def command(
    *,
    file: str,
    resume: str | None,
    force: bool,
    run_id: str | None,
    directory: str,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Start a pipeline, or continue the newest run of it that has the same parameters."""
    project = Project.open(directory)
    showing = Showing(
        project, directory, as_json=as_json, quiet=quiet, tells_elsewhere=_is_folder_assumed() and not quiet
    )
    return showing.carry_out(partial(project.run, file, resume=resume, force=force, run_id=run_id, **options))


def _is_folder_assumed() -> bool:
    """Whether nobody said which folder is meant."""
    return click.get_current_context().get_parameter_source("directory") is ParameterSource.DEFAULT
