"""Options that several commands share, and the run that a command means."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.completion import complete_dir, complete_run

if TYPE_CHECKING:
    from holdfast.layout import ProjectLayout

F = TypeVar("F", bound=Callable[..., Any])


def project_options(function: F) -> F:
    """--dir and --debug, which every command has."""
    function = click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")(
        function
    )
    return click.option(
        "--dir",
        "directory",
        default=".",
        metavar="DIR",
        shell_complete=complete_dir,
        help="The project's folder.  [default: the current folder]",
    )(function)


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
run_option = click.option(
    "--run",
    "run_id",
    metavar="RUN_ID",
    shell_complete=complete_run,
    help="The run that is meant.  [default: the newest unfinished one]",
)
run_argument = click.argument("run_id", required=False, metavar="[RUN_ID]", shell_complete=complete_run)


def read_params(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """-p KEY=VALUE as a dict; what follows the first = is the value."""
    values: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{text!r:.80} is not of the form KEY=VALUE.", ctx, param)
        if key in values:
            raise click.BadParameter(f"{key!r:.80} is given twice.", ctx, param)
        values[key] = value
    return values


params_option = click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    metavar="KEY=VALUE",
    callback=read_params,
    help="A parameter of the pipeline; may be given several times.",
)


LOST_FIX = "'holdfast recover' (or 'holdfast resume') rebuilds it from the files."


def pick_run(layout: ProjectLayout, run_id: str | None) -> str:
    """The run that is named, if it exists; without a name the newest unfinished one, else the newest."""
    from holdfast.cli.finding import find_lost, views_left
    from holdfast.errors import CheckpointCorruptionError, UnknownRunError
    from holdfast.runs.listing import list_runs, newest, read_run, run_layout

    lost = find_lost(layout, run_id)
    if lost is not None:
        raise UnknownRunError(f"The record of run {lost.run_id} is lost.", fix=LOST_FIX)
    if run_id is not None:
        run_layout(layout, run_id)
        return run_id
    runs = list_runs(layout)
    left = [] if runs else views_left(layout)
    if left:
        raise UnknownRunError(
            f"No run is on record here, but a view of one is left: {', '.join(left)}.",
            fix="Rebuild it from that and the files: holdfast recover FILE.py",
        )
    if runs and all(info.problem for info in runs):
        for info in runs:
            if not info.lost:
                read_run(layout, info.run_id)  # says what is in the way, with its remedy and exit status
        raise CheckpointCorruptionError(
            f"No run of this project can be read: {runs[0].problem}",
            fix=f"Name its pipeline: holdfast run FILE.py --resume {runs[0].run_id}",
        )
    return newest(layout).run_id
