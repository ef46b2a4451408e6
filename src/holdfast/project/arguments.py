"""What is told to a caller of `pipe.run` names its arguments, not the options of the command line. Pure."""

from __future__ import annotations

import re

from holdfast.errors import HoldfastError

# A command stands in single quotes, or is the rest of the line: a person types it, whoever called us.
_COMMAND = re.compile(r"'holdfast [^']*'|\bholdfast .*")
_END = r"(?=[ ,;:)]|\.?(?: |$))"  # of a word: a file may be called --force.md
_ARGUMENTS = (
    (re.compile(r"--resume (\S+) -p NAME=VALUE"), r'resume="\1" and params={"NAME": VALUE}'),
    (re.compile(r"-p (\w+)=VALUE"), r'params={"\1": VALUE}'),
    (re.compile(r"--redo (\S+?)(?=\.?$)"), r"'holdfast run FILE.py --redo \1'"),  # which pipe.run does not have
    (re.compile(rf"--force{_END}"), "force=True"),
    (re.compile(rf"--budget{_END}"), "budget_usd"),
    (re.compile(rf"--(run-id|resume|dir|concurrency){_END}"), lambda found: found[1].replace("-", "_")),
)


def name_arguments(error: HoldfastError) -> None:
    """Have an error that was written for the command line speak to somebody who writes Python."""
    error.message, error.fix = _in_python(error.message), _in_python(error.fix)
    error.args = (error.message,)


def _in_python(text: str) -> str:
    commands = _COMMAND.findall(text)
    rest = _COMMAND.split(text)
    for option, argument in _ARGUMENTS:
        rest = [option.sub(argument, words) for words in rest]
    return "".join(words + command for words, command in zip(rest, [*commands, ""], strict=True))
