"""`holdfast resume`: continue a run, with the pipeline's file taken from the run's record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.finding import find_lost, load_named, load_recorded, pick_run
from holdfast.cli.options import run_argument
from holdfast.cli.printing import addressed, print_json, say
from holdfast.cli.running import Manner, carry_out, engine_options, settings_options
from holdfast.errors import EXIT_OK

if TYPE_CHECKING:
    from holdfast.layout import ProjectLayout


@click.command("resume")
@run_argument
@engine_options
def command(
    *,
    run_id: str | None,
    directory: str,
    params: dict[str, str],
    redo: tuple[str, ...],
    no_retry: bool,
    quick: bool,
    only_needed: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Continue the newest unfinished run of this project, or the one that is named."""
    from holdfast.runs.choosing import Request
    from holdfast.runs.listing import open_project
    from holdfast.settings import load_settings

    layout = open_project(directory)
    settings = load_settings(layout.root, settings_options(**options))
    lost = find_lost(layout, run_id)
    if lost is not None:
        compiled, chosen = load_named(layout, lost), lost.run_id
    else:
        chosen = pick_run(layout, run_id)
        if run_id is None and not redo and not params and _is_through(layout, chosen):
            return _nothing_to_continue(layout, chosen, directory, as_json)
        compiled = load_recorded(layout, chosen)
    request = Request(
        params,
        resume=chosen,
        redo=redo,
        no_retry=no_retry,
        settings=settings,
        quick=quick,
        only_needed=only_needed,
    )
    return carry_out(compiled, layout, request, Manner(directory, as_json, quiet))


def _is_through(layout: ProjectLayout, run_id: str) -> bool:
    """Whether the run is completed and nobody has asked for more, not even by editing a view of it."""
    from holdfast.runs.listing import read_picture, run_info
    from holdfast.sessions.editing import foreseen_wishes
    from holdfast.state import COMPLETED

    if run_info(layout, run_id).status != COMPLETED:
        return False
    picture = read_picture(layout, run_id)
    return not foreseen_wishes(layout, picture.spec, picture.state)


def _nothing_to_continue(layout: ProjectLayout, run_id: str, directory: str, as_json: bool) -> int:
    from holdfast.cli.status import document
    from holdfast.runs.listing import read_picture

    if as_json:
        print_json({**document(layout, read_picture(layout, run_id)), "exit_code": EXIT_OK})
    else:
        say(f"Nothing to continue: the newest run {run_id} is completed, and no other is unfinished.")
        say(f"To prove its files, and mend them: {addressed(f'holdfast resume {run_id}', directory)}")
    return EXIT_OK
