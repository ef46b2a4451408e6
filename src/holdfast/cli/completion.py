"""What the shell may offer for a run id, a task or a folder. Never raises, never creates anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from holdfast.views.picture import Picture


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


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The tasks, gates and phases of the run that is meant."""
    from holdfast.commands.people import known_names

    return _offered(ctx, incomplete, known_names)


def complete_task(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The tasks of the run that is meant."""
    return _offered(ctx, incomplete, lambda picture: picture.tasks)


def complete_work(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The steps of the run that is meant, and their tasks."""
    return _offered(ctx, incomplete, lambda picture: dict.fromkeys([*picture.by_step, *picture.tasks]))


def complete_gate(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The gates and phases of the run that is meant."""
    from holdfast.commands.people import gates_and_phases

    return _offered(ctx, incomplete, gates_and_phases)


def _offered(
    ctx: click.Context, incomplete: str, names_of: Callable[[Picture], Iterable[str]]
) -> list[CompletionItem]:
    try:
        return [CompletionItem(name) for name in names_of(_picture(ctx)) if name.startswith(incomplete)]
    except Exception:  # as above
        return []


def _picture(ctx: click.Context) -> Picture:
    from holdfast.cli.finding import pick_run
    from holdfast.runs.listing import open_project, read_picture

    layout = open_project(ctx.params.get("directory") or ".")
    wanted = ctx.params.get("run_id") or ctx.params.get("resume")
    return read_picture(layout, pick_run(layout, wanted))
