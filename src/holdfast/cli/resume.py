"""`holdfast resume`: continue a run, with the pipeline's file taken from the run's record."""

from __future__ import annotations

from typing import Any

import click
from msgspec.structs import replace

from holdfast.cli.finding import find_lost, load_named, load_recorded, pick_run
from holdfast.cli.options import run_argument
from holdfast.cli.running import Manner, carry_out, engine_options, make_request, words_at_load


@click.command("resume", short_help="Continue the newest unfinished run, or the one that is named.")
@run_argument
@engine_options
def command(*, run_id: str | None, directory: str, as_json: bool, quiet: bool, **options: Any) -> int:
    """Continue the newest unfinished run of this project, or the one that is named.

    If all are completed, the files of the newest are proved, and mended.
    """
    from holdfast.runs.listing import open_project

    layout = open_project(directory)
    request = make_request(layout, **options)
    lost = find_lost(layout, run_id)
    chosen = lost.run_id if lost is not None else pick_run(layout, run_id)
    with words_at_load(as_json=as_json):
        compiled = load_named(layout, lost) if lost is not None else load_recorded(layout, chosen)
    return carry_out(compiled, layout, replace(request, resume=chosen), Manner(directory, as_json, quiet))
