"""Options that several commands share, and what the shell offers for them: runs, tasks, gates and folders.

Completion never raises and never creates anything: the command itself reports a mistake, not its typing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from holdfast.project import Project

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", str, tuple[str, ...], str | None)
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


# --- completion --------------------------------------------------------------------------------------------------


def complete_dir(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]


def complete_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def _completes(offered: Callable[[Project, click.Context], Iterable[CompletionItem]]) -> Complete:
    """A completion from the items that `offered` finds in the project, or none if it fails."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            project = Project.open(ctx.params.get("directory") or ".")
            return [item for item in offered(project, ctx) if item.value.startswith(incomplete)]
        except Exception:
            return []

    return complete


def _names(kind: str) -> Complete:
    def offered(project: Project, ctx: click.Context) -> Iterator[CompletionItem]:
        return map(CompletionItem, project.names(kind, ctx.params.get("run_id") or ctx.params.get("resume")))

    return _completes(offered)


complete_run = _completes(
    lambda project, _: (CompletionItem(run.run_id, help=run.status or "unreadable") for run in project.runs())
)
complete_name = _names("any")  # tasks, gates and phases
complete_task = _names("task")
complete_work = _names("work")  # steps and their tasks
complete_gate = _names("gate")  # gates and phases


# --- values ------------------------------------------------------------------------------------------------------


def composed(_ctx: click.Context, _param: click.Parameter, given: T) -> T:
    """Names of tasks, steps and gates in NFC, as ids are, however a keyboard or a copied file name spells an é."""
    from unicodedata import normalize

    if isinstance(given, tuple):
        return tuple(normalize("NFC", name) for name in given)
    return given and normalize("NFC", given)


def _read_params(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
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


# --- options and arguments ---------------------------------------------------------------------------------------


def combined(*options: Callable[[F], F]) -> Callable[[F], F]:
    """One decorator for several options, in the order in which --help shows them."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


project_options = combined(
    click.option(
        "--dir",
        "directory",
        default=".",
        metavar="DIR",
        shell_complete=complete_dir,
        help="The project's folder.  [default: the current folder]",
    ),
    click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."),
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
common_options = combined(project_options, json_option)
run_option = click.option(
    "--run",
    "run_id",
    metavar="RUN_ID",
    shell_complete=complete_run,
    help="The run that is meant.  [default: the newest unfinished one]",
)
run_argument = click.argument("run_id", required=False, metavar="[RUN_ID]", shell_complete=complete_run)
file_argument = click.argument("file", required=False, metavar="[FILE.py[:NAME]]", shell_complete=complete_file)
params_option = click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_read_params,
    help="A parameter of the pipeline; may be given several times.",
)
