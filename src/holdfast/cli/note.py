"""`holdfast note`: put a note into the run's record."""

from __future__ import annotations

import click

from holdfast.cli.options import json_option, project_options, run_option
from holdfast.cli.recording import tell_recorded


@click.command("note", short_help="Record a note for whoever continues the run.")
@click.argument("text")
@run_option
@project_options
@json_option
def command(text: str, run_id: str | None, directory: str, as_json: bool) -> None:
    """Record a note for whoever continues the run; RESUME.md shows it."""
    tell_recorded(directory, as_json, lambda project: project.note(text, run_id=run_id))
