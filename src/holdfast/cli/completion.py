"""What the shell may offer for a run id, a task or a folder. Never raises, never creates anything."""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem


def complete_dir(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]


def complete_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The runs of the project, newest first."""
    try:
        from holdfast.runs.listing import list_runs, open_project

        runs = list_runs(open_project(ctx.params.get("directory") or "."))
        return [
            CompletionItem(info.run_id, help=info.status or "unreadable")
            for info in runs
            if info.run_id.startswith(incomplete)
        ]
    except Exception:  # a mistake is told by the command itself, not while it is being typed
        return []


def complete_task(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The tasks, gates and phases of the run that is meant."""
    try:
        return [CompletionItem(name) for name in _names(ctx) if name.startswith(incomplete)]
    except Exception:  # as above
        return []


def _names(ctx: click.Context) -> Iterable[str]:
    from holdfast.cli.finding import pick_run
    from holdfast.commands.people import known_names
    from holdfast.runs.listing import open_project, read_picture

    layout = open_project(ctx.params.get("directory") or ".")
    wanted = ctx.params.get("run_id") or ctx.params.get("resume")
    return known_names(read_picture(layout, pick_run(layout, wanted)))
