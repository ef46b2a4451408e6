"""`holdfast approve`: let a gate, or a phase whose checklist objects, pass."""

from __future__ import annotations

import getpass

import click

from holdfast.cli.completion import complete_gate
from holdfast.cli.options import composed, json_option, project_options, run_option
from holdfast.cli.recording import tell_recorded


@click.command("approve", short_help="Approve a gate, or a phase whose checklist refused.")
@click.argument("name", callback=composed, shell_complete=complete_gate)
@run_option
@project_options
@json_option
def command(name: str, run_id: str | None, directory: str, as_json: bool) -> None:
    """Approve a gate, or a phase (phase:NAME) whose checklist objects; only records it."""
    tell_recorded(directory, as_json, lambda project: project.approve(name, run_id=run_id, by=_user()))


def _user() -> str:
    try:
        return getpass.getuser().encode("utf-8", "replace").decode()
    except (OSError, KeyError, ImportError):  # an account without a name, as containers have
        return ""
