"""What the shell may offer for a run id, a task or a folder. Never raises, never creates anything."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from holdfast.project import Project


def complete_dir(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]


def complete_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The runs of the project, newest first."""
    try:
        return [
            CompletionItem(run.run_id, help=run.status or "unreadable")
            for run in Project.open(ctx.params.get("directory") or ".").runs()
            if run.run_id.startswith(incomplete)
        ]
    except Exception:  # a mistake is told by the command itself, not while it is being typed
        return []


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The tasks, gates and phases of the run that is meant."""
    return _offered(ctx, incomplete, "any")


def complete_task(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The tasks of the run that is meant."""
    return _offered(ctx, incomplete, "task")


def complete_work(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The steps of the run that is meant, and their tasks."""
    return _offered(ctx, incomplete, "work")


def complete_gate(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The gates and phases of the run that is meant."""
    return _offered(ctx, incomplete, "gate")


def _offered(ctx: click.Context, incomplete: str, kind: str) -> list[CompletionItem]:
    wanted = ctx.params.get("run_id") or ctx.params.get("resume")
    try:
        names = Project.open(ctx.params.get("directory") or ".").names(kind, wanted)
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]
    except Exception:  # as above
        return []
