"""docs/commands.md says what the commands say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import click
import pytest

from holdfast import errors
from holdfast.cli.main import COMMANDS, cli

SCRIPT = Path(__file__).parents[2] / "docs" / "make_commands.py"


def make_commands() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_commands", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_is_up_to_date() -> None:
    """The committed page is what the script writes now; `make docs` mends a difference."""
    module = make_commands()
    assert module.PAGE.read_text(encoding="utf-8") == module.render()


def test_every_exit_status_is_explained() -> None:
    """The table has each exit status that errors.py knows."""
    page = make_commands().render()
    statuses = [getattr(errors, name) for name in dir(errors) if name.startswith("EXIT_")]
    assert 0 in statuses
    assert [status for status in statuses if f"\n| {status} | " not in page] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_common_options(name: str) -> None:
    """Each command has --dir, a sentence of help, and help for every option."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert command.help
    assert command.help.rstrip().endswith(".")
    options = [param for param in command.params if isinstance(param, click.Option)]
    assert all(option.help for option in options)
    assert {"--dir", "--json", "--debug"} <= {text for option in options for text in option.opts}


def test_the_list_of_commands_cuts_no_sentence() -> None:
    """On a terminal of 80 columns every command has its whole short sentence."""
    page = cli.get_help(click.Context(cli, info_name="holdfast", terminal_width=80, **cli.context_settings))
    lines = page.partition("Commands:")[2].split("\n")[1:]
    assert len(lines) == len(COMMANDS)
    assert all(line.endswith(".") and not line.endswith("...") for line in lines)
