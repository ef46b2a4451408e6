"""The demo's voice: headings, typed commands, quoted output, verdicts; in colour where that is wanted."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections.abc import Iterable

WIDTH = 88
_BOLD, _DIM, _GREEN, _RED, _CYAN = "1", "2", "32", "31", "36"


class Screen:
    """Prints to stdout. `speed` shortens the pauses, which exist only where somebody watches."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._is_terminal = sys.stdout.isatty()
        self._in_colour = self._is_terminal and "NO_COLOR" not in os.environ

    def heading(self, number: int, text: str) -> None:
        self.pause(1.5)
        self._line("")
        self._line(self._styled(f"{number}. {text}", _BOLD))

    def say(self, text: str) -> None:
        self._line(text)

    def typed(self, command: str) -> None:
        """A command, as a person would type it."""
        self._line(self._styled(f"$ {command}", _CYAN))
        self.pause(0.7)

    def quote(self, lines: Iterable[str]) -> None:
        """Output of a program, indented and wrapped at the width."""
        for line in lines:
            for piece in textwrap.wrap(line, WIDTH - 2) if len(line) > WIDTH - 2 else [line]:
                self._line(self._styled(f"  {piece}".rstrip(), _DIM))

    def holds(self, text: str) -> None:
        """Something that was checked just now, and is so."""
        self._line(f"  {self._styled('holds', _GREEN)}  {text}")

    def broken(self, text: str) -> None:
        self._line(f"  {self._styled('DOES NOT HOLD', _RED)}  {text}")

    def passing(self, text: str) -> None:
        """A line that the next one replaces; nothing where nobody watches."""
        if self._is_terminal:
            sys.stdout.write(f"\r\033[K{self._styled(f'  {text}'[:WIDTH], _DIM)}")
            sys.stdout.flush()

    def passed(self) -> None:
        """Take the last passing line away."""
        if self._is_terminal:
            sys.stdout.write("\r\033[K")

    def pause(self, seconds: float) -> None:
        """Time to read."""
        if self._is_terminal:
            time.sleep(seconds / self._speed)

    def _styled(self, text: str, code: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self._in_colour else text

    def _line(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
