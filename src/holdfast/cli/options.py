"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from holdfast.cli.completion import complete_dir, complete_run

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


T = TypeVar("T", str, tuple[str, ...], str | None)


def composed(_ctx: click.Context, _param: click.Parameter, given: T) -> T:
    """Names of tasks, steps and gates, however a keyboard or a copied file name spells an é: ids are NFC."""
    from unicodedata import normalize

    if isinstance(given, tuple):
        return tuple(normalize("NFC", name) for name in given)
    return given and normalize("NFC", given)


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
