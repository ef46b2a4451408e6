"""Runs what a page shows: files are written, typed commands run, and their output is compared with the page's.

A `python` block whose first line is `# NAME.py` is that file; `# NAME.py, continued` is added to it. A `console`
block holds commands after `$ ` and what they print. What differs from run to run (ids, times, hashes) is made
equal first; the order of lines is not compared, since steps run side by side. A line `...` stands for any
lines, and `...` at the end of a line for its rest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w.-]+\.(?:py|toml))(, continued)?\n")
_VARYING = (
    (re.compile(r"\d{8}_\d{6}"), "RUN"),
    (re.compile(r"(?<=\.bak\.)\d{8}T\d{6}Z(\.\d+)?"), "TIME"),  # a second one in the same second has a number
    (re.compile(r"\d{8}T\d{6}Z"), "TIME"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+Z)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "HEX"),
    (re.compile(r"\b\d+(\.\d+)?s\b"), "SECONDS"),
    (re.compile(r"process \d+ on \S+"), "process N on HOST"),
)


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Each fenced block's language and text, in order."""
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield match[1], match[2]


def play(page: Path, project: Path) -> int:
    """Do what `page` shows, in `project`; gives the number of commands. AssertionError where it differs."""
    commands = 0
    for language, text in blocks(page):
        if language in ("python", "toml"):
            _write_file(text, project)
        elif language == "console":
            for command, shown in typed(text):
                _compare(command, shown, run(command, project))
                commands += 1
    return commands


def typed(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a console block and the lines shown below it."""
    command, shown = "", list[str]()
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, shown
            command, shown = line[2:], []
        else:
            shown.append(line)
    if command:
        yield command, shown


def run(command: str, project: Path) -> list[str]:
    """What a command prints on both streams, line by line."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{plain.get('PATH', '')}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=project,
        env=plain | {"PATH": path, "COLUMNS": "100", "PYTHONUTF8": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        check=False,
    )
    return done.stdout.decode().splitlines()


def _write_file(text: str, project: Path) -> None:
    named = _FILE.match(text)
    if named is None:
        return
    with (project / named[1]).open("a" if named[2] else "w", encoding="utf-8") as file:
        file.write("\n\n" + text[named.end() :] if named[2] else text)


def _compare(command: str, shown: list[str], printed: list[str]) -> None:
    wanted = [_same(line) for line in shown if line.strip()]
    found = [_same(line) for line in printed if line.strip()]
    told = f"$ {command}\n--- the page\n" + "\n".join(shown) + "\n--- printed\n" + "\n".join(printed)
    for line in wanted:
        if line == "...":
            continue
        place = next((n for n, other in enumerate(found) if _fits(line, other)), None)
        assert place is not None, f"not printed: {line}\n{told}"
        del found[place]
    assert not found or "..." in wanted, f"not on the page: {found[0]}\n{told}"


def _fits(shown: str, printed: str) -> bool:
    return printed.startswith(shown[:-3].rstrip()) if shown.endswith("...") else printed == shown


def _same(line: str) -> str:
    for pattern, word in _VARYING:
        line = pattern.sub(word, line)
    return line.rstrip()
