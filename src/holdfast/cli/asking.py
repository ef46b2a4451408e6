"""Questions on a terminal: after everything else has gone on, a person is asked what the run waits for."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import click

from holdfast.cli.printing import say
from holdfast.streams import unwrapped

if TYPE_CHECKING:
    from holdfast.layout import ProjectLayout
    from holdfast.views.picture import Picture

LATER = "later"


def can_ask() -> bool:
    """Whether somebody sits there: both ends are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask_all(picture: Picture, layout: ProjectLayout) -> bool:
    """Ask about every task that waits for an answer and record the answers; True if there was one.

    Ctrl-C and the end of input mean "later", for all that is left.
    """
    from holdfast.commands.people import MEANINGS, decide
    from holdfast.errors import UsageError
    from holdfast.views.picture import answers

    answered, explained = False, set[str]()
    for task, record in picture.state.tasks.items():
        choices = answers(record)
        if not choices:
            continue
        say(f"{task}: {record.error}")
        for choice in choices:
            if choice not in explained:
                say(f"  {choice}: {MEANINGS[choice]}")
        explained.update(choices)
        try:
            choice = _prompt(choices)
        except (click.Abort, EOFError):
            say()
            return answered
        if choice == LATER:
            continue
        try:
            say(decide(layout, picture.state.run_id, task, choice, by="a person at the terminal"))
            answered = True
        except UsageError as error:  # it would change nothing as the files are now; what else is asked is not
            say(f"{error.message} {error.fix}")
    return answered


def _prompt(choices: tuple[str, ...]) -> str:
    options = click.Choice([*choices, LATER])
    with redirect_stdout(unwrapped(sys.stdout)):  # what click says are our own words: those of steps are over
        return str(click.prompt("  What shall be done?", type=options, default=LATER))
