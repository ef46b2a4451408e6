"""`holdfast status`: how a run stands, from its record alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import json_option, project_options, run_argument
from holdfast.cli.printing import day_and_hour, plain, print_json, say_all, tag_heading
from holdfast.project import Project
from holdfast.wording import addressed

if TYPE_CHECKING:
    from holdfast.views.picture import Picture


@click.command("status", short_help="Show how a run stands and how to continue it.")
@run_argument
@project_options
@json_option
def command(run_id: str | None, directory: str, as_json: bool) -> None:
    """Show how a run stands, what needs a person, what it has cost, and the command that continues it."""
    project = Project.open(directory)
    project.catch_up(run_id)
    if as_json:
        print_json(project.status(run_id))
    else:
        say_all(_lines(*project.picture(run_id), project, directory))


def _lines(picture: Picture, holder: Mapping[str, Any] | None, project: Project, directory: str) -> Iterator[str]:
    from holdfast.cli.ending import needs_lines, orphan_lines
    from holdfast.state import COMPLETED
    from holdfast.views.matrix import LEGEND, text_matrix

    yield from _head(picture, holder)
    yield ""
    yield from text_matrix(picture, shutil.get_terminal_size().columns)
    yield ""
    yield from _totals(picture)
    yield LEGEND
    yield from orphan_lines(picture)
    yield from needs_lines(picture, project, directory)
    if holder is not None:
        yield f"Follow it with: {addressed(f'holdfast events {picture.state.run_id} -f', directory)}"
    elif picture.state.status != COMPLETED:
        yield f"Continue with: {addressed(picture.continue_command(), directory)}"


def _head(picture: Picture, holder: Mapping[str, Any] | None) -> Iterator[str]:
    from holdfast.views.checkpoint import phase_words
    from holdfast.views.summary import error_of, shown_status

    state = picture.state
    status = shown_status(state.status, error_of(picture), running=holder is not None)
    reason = f" ({picture.reason})" if picture.reason and status != "interrupted" else ""
    yield f"{state.pipeline}, run {state.run_id}: {status.replace('_', ' ')}{reason}"
    if holder is not None:
        since = day_and_hour(str(holder["since"]))
        yield f"  running since {since} as process {holder['pid']} on {holder['host']}"
    yield from (f"  {name}: {plain(value)}" for name, value in state.params.items())
    yield from (f"  {tag_heading(name, state.params)}: {plain(value)}" for name, value in state.tags.items())
    if picture.phase and status != "completed":
        yield f"  phase: {picture.phase} ({phase_words(picture, picture.phase)})"


def _totals(picture: Picture) -> Iterator[str]:
    from holdfast.views.summary import cost_line

    counts = [f"{number} {status.replace('_', ' ')}" for status, number in picture.counts.items() if number]
    yield f"Steps: {picture.done} of {picture.total} done ({', '.join(counts) or 'none known'})"
    yield f"Cost: {cost_line(picture)}"
