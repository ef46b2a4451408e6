"""`holdfast run`: start a pipeline, or continue it where it stopped."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from holdfast.cli.completion import complete_file, complete_run
from holdfast.cli.finding import find_file
from holdfast.cli.printing import say_all
from holdfast.cli.running import Manner, carry_out, engine_options, make_request, words_at_load


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
    from holdfast.pipeline.loader import load_pipeline
    from holdfast.runs.choosing import begun_elsewhere
    from holdfast.runs.listing import checked_run_id, open_project

    layout = open_project(directory)
    for given in (resume, run_id):
        if given is not None:
            checked_run_id(given)
    request = make_request(layout, resume=resume, force=force, run_id=run_id, **options)
    with words_at_load(as_json=as_json):
        compiled = load_pipeline(file, base=find_file(file, layout))
    if _is_folder_assumed() and not (resume or force or run_id or quiet):
        say_all(filter(None, [begun_elsewhere(compiled, layout, request)]), err=True)
    return carry_out(compiled, layout, request, Manner(directory, as_json, quiet))


def _is_folder_assumed() -> bool:
    """Whether nobody said which folder is meant."""
    return click.get_current_context().get_parameter_source("directory") is ParameterSource.DEFAULT
