"""The entry point: find the command, run it, and turn whatever happens into one line and an exit status.

    main            the process: runs, flushes, leaves
      run           arguments in, exit status out; never raises, never exits
        _invoke     click; a command gives its exit status back (None: 0)
        _told       an error as one line on stderr, or as a JSON document on stdout

Exit statuses are those of `errors.py`. A closed stdout is no failure of the command: its status stays.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import FrameType
from typing import Any, NoReturn

import click

from holdfast import __version__
from holdfast.cli.printing import escape_what_cannot_be_encoded, flush, print_json, say
from holdfast.errors import (
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    HoldfastError,
    StorageError,
    UnprintableError,
)
from holdfast.signals import interrupt, to_be_heard
from holdfast.streams import give_closed_streams_a_place
from holdfast.wording import addressed

PROGRAM = "holdfast"
COMMANDS = {  # name -> module
    "run": "run",
    "resume": "run",
    "list": "show",
    "status": "show",
    "plan": "plan",
    "why": "show",
    "events": "show",
    "verify": "check",
    "recover": "plan",
    "scan": "check",
    "approve": "record",
    "reject": "record",
    "decide": "record",
    "retry": "record",
    "note": "record",
    "clean": "record",
}
_COMPLETION_VARIABLE = "_HOLDFAST_COMPLETE"


class LazyGroup(click.Group):
    """Commands by name; imports a command's module when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"holdfast.cli.{COMMANDS[cmd_name]}")
        command = getattr(module, f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from holdfast.pipeline.names import did_you_mean, printable

        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command '{printable(args[0])}'.{did_you_mean(args[0], tuple(COMMANDS))}")
        return super().resolve_command(ctx, args)


_SETTINGS = {"max_content_width": 100, "help_option_names": ["-h", "--help"]}


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name=PROGRAM)
@click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    help="Show the traceback of an error (or set HOLDFAST_DEBUG=1).",
)
@click.pass_context
def cli(ctx: click.Context) -> int:
    """Holdfast keeps long, expensive pipelines: nothing finished is lost, nothing is paid for twice."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        return EXIT_USAGE
    return EXIT_OK


def main() -> NoReturn:
    """Run the command line of this process and leave with its exit status."""
    give_closed_streams_a_place()
    escape_what_cannot_be_encoded()
    _on_signals(interrupt)
    try:
        code = _flushed(run(sys.argv[1:]))
    except KeyboardInterrupt:  # just as everything had been said
        code = EXIT_INTERRUPTED
    # Nothing is left to stop or to say, and the interpreter's own end is no place for a traceback.
    _on_signals(signal.SIG_IGN)
    for name in ("stdout", "stderr"):
        setattr(sys, name, None)
    if threading.active_count() > 1:
        # A sync step that does not return must not keep the process: everything is on disk.
        os._exit(code)
    sys.exit(code)


def _on_signals(handler: Callable[[int, FrameType | None], Any] | signal.Handlers) -> None:
    """Handle what asks a process to end; what is ignored stays ignored."""
    for number in to_be_heard():
        signal.signal(number, handler)


def run(argv: Sequence[str]) -> int:
    """Carry out `argv` and give the exit status; errors are told, not raised."""
    own = _own(argv)
    debug = "--debug" in own or os.environ.get("HOLDFAST_DEBUG") == "1"
    try:
        return _invoke(argv)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except (KeyboardInterrupt, click.Abort):
        return _told(_Interrupted("Interrupted."), "--json" in own)
    except BrokenPipeError:  # click's own help; everything of ours goes through `say`
        return EXIT_OK
    except Exception as error:  # the last place: nobody above could tell it
        if debug:
            say(traceback.format_exc().rstrip(), err=True, multiline=True)
        return _told(_as_ours(error), "--json" in own, _directory(own))


def _directory(own: Sequence[str]) -> str:
    """The value of --dir, also where the rest of the line cannot be parsed."""
    given = [word.removeprefix("--dir=") for word in own if word.startswith("--dir=")]
    given += [value for word, value in pairwise(own) if word == "--dir"]
    return given[-1] if given else "."


def _own(argv: Sequence[str]) -> list[str]:
    """The words that may be options: those before `--`."""
    words = list(argv)
    return words[: words.index("--")] if "--" in words else words


def _invoke(argv: Sequence[str]) -> int:
    if _COMPLETION_VARIABLE in os.environ:
        cli.main(args=list(argv), prog_name=PROGRAM, complete_var=_COMPLETION_VARIABLE)
    with cli.make_context(PROGRAM, list(argv)) as ctx:
        code = cli.invoke(ctx)
    return code if isinstance(code, int) else EXIT_OK


class _Interrupted(HoldfastError):  # noqa: N818 - the words of a person, no error
    exit_code = EXIT_INTERRUPTED
    code = "interrupted"


class _InternalError(HoldfastError):
    exit_code = EXIT_INTERNAL
    code = "internal"


def _as_ours(error: Exception) -> HoldfastError:
    """Any exception as one of ours, with a message and a way on."""
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, click.ClickException):
        return _usage(error)
    if isinstance(error, MemoryError):
        return StorageError(
            "There is not enough memory.", fix="What was recorded is safe: run the same command again."
        )
    if isinstance(error, OSError):
        return _stdout_failed() or StorageError.from_os(error, "work on")
    return _InternalError(f"Internal error: {type(error).__name__}: {error}", fix="(run again with --debug)")


def _usage(error: click.ClickException) -> HoldfastError:
    words = " ".join(error.format_message().split())  # click lists choices in lines of their own
    told = HoldfastError(words if words.endswith((".", "?", "?)")) else f"{words}.", fix=_help_hint(error))
    told.code = "usage"
    return told


def _help_hint(error: click.ClickException) -> str:
    ctx: Any = getattr(error, "ctx", None)
    return f"See: {ctx.command_path if ctx is not None else PROGRAM} --help"


def _stdout_failed() -> UnprintableError | None:
    """Whether it is stdout that fails: click prints its help there itself."""
    try:
        flush()
    except UnprintableError as error:
        return error
    return None


def _told(error: HoldfastError, as_json: bool, directory: str = ".") -> int:
    fix = addressed(error.fix, directory)
    document = {"error": {"code": error.code, "message": error.message, "fix": fix}}
    if as_json and not isinstance(error, UnprintableError) and _is_printed(document):
        return error.exit_code
    lines = error.message.splitlines() or [type(error).__name__]
    if len(lines) == 1:
        lines = [f"{lines[0]} {fix}".rstrip()]
    elif fix:
        lines.append(fix)
    for line in lines:
        say(line, err=True)
    return error.exit_code


def _is_printed(document: dict[str, Any]) -> bool:
    """Whether stdout took it; if not, stderr has to do."""
    try:
        print_json(document)
        flush()
    except UnprintableError:
        return False
    return True


def _flushed(code: int) -> int:
    """`code`, unless what was to be printed could not be: a success that nobody can read is none."""
    error = _stdout_failed()
    return code if error is None else code or _told(error, as_json=False)
