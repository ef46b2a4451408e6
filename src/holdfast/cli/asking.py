"""Questions on a terminal: after everything else has gone on, a person is asked what the run waits for."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import click

from holdfast.cli.printing import say
from holdfast.streams import unwrapped

if TYPE_CHECKING:
    from holdfast.project.run import Question

LATER = "later"


def can_ask() -> bool:
    """Whether somebody sits there: both ends are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


class Asker:
    """Answers by asking a person. Ctrl-C and the end of input mean "later", for all that is left."""

    def __init__(self) -> None:
        self._explained: set[str] = set()
        self._is_over = False

    def __call__(self, question: Question) -> str | None:
        """What the person chooses; None is "later"."""
        if self._is_over:
            return None
        say(f"{question.task}: {question.why}")
        for choice in question.choices:
            if choice not in self._explained:
                say(f"  {choice}: {question.meanings[choice]}")
        self._explained.update(question.choices)
        try:
            choice = _prompt(question.choices)
        except (click.Abort, EOFError):
            say()
            self._is_over = True
            return None
        return None if choice == LATER else choice


def _prompt(choices: tuple[str, ...]) -> str:
    options = click.Choice([*choices, LATER])
    with redirect_stdout(unwrapped(sys.stdout)):  # what click says are our own words: those of steps are over
        return str(click.prompt("  What shall be done?", type=options, default=LATER))
