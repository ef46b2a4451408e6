"""`holdfast verify`: check everything of a run, change nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from holdfast import clock
from holdfast.cli.options import json_option, project_options, run_argument
from holdfast.cli.printing import can_be_redrawn, first_of, print_json, say_all
from holdfast.project import Project
from holdfast.streams import stdout_kept
from holdfast.wording import counted

if TYPE_CHECKING:
    from holdfast.project.results import VerifyResult
    from holdfast.sessions.inspecting import Finding

_REDRAW_S = 0.1
_SHOWN_MAX = 200
_SAID = {
    "no copy": "has no whole copy",
    "value lost": "has lost its value",
    "different": "does not say what the journal says",
    "torn": "ends in a torn line",
    "repeated": "ends in lines that it has already",
    "shortened": "has lost its end",
    "forbidden": "may not be read",
    "refused": "is refused by its check",
}
_COUNTED = ("artifact", "object", "journal line", "snapshot", "check")


@click.command("verify", short_help="Check every file and every record of a run; change nothing.")
@run_argument
@project_options
@json_option
def command(run_id: str | None, directory: str, as_json: bool) -> int:
    """Check every artifact, object, journal line and snapshot of a run; changes nothing."""
    with _Counter() as counter, stdout_kept():  # what a pipeline prints when it is loaded
        verified = Project.open(directory).verify(run_id, on_progress=counter.tell)
    if as_json:
        print_json(verified)
    else:
        say_all(_lines(verified))
    return verified.exit_code


def _lines(report: VerifyResult) -> Iterator[str]:
    more = "and {} more; --json lists them all"
    yield from first_of(report.findings, _SHOWN_MAX, _line, rest=more)
    yield from first_of(report.notes, _SHOWN_MAX, "note: {}".format, rest=f"note: {more}")
    yield f"run {report.run_id}: checked {_counted(report)}: {_verdict(report)}"


def _line(finding: Finding) -> str:
    """What is off, where, and what to do about it."""
    where = ": ".join(filter(None, (finding.task, finding.path)))
    detail = f" ({finding.detail})" if finding.detail else ""
    says = _SAID.get(finding.problem, f"is {finding.problem}")
    return f"{where} {says}{detail}. {finding.fix}"


def _counted(report: VerifyResult) -> str:
    found = [(report.checked.get(f"{name.replace(' ', '_')}s", 0), name) for name in _COUNTED]
    return ", ".join(counted(number, name) for number, name in found if number) or "nothing"


def _verdict(report: VerifyResult) -> str:
    number = len(report.findings)
    if not number:
        return "all is whole"
    return counted(number, "finding")


class _Counter:
    """How far it is, on a terminal's stderr; nothing elsewhere."""

    def __init__(self) -> None:
        self._due = clock.monotonic() + _REDRAW_S
        self._is_seen = can_be_redrawn()
        self._drawn = False

    def __enter__(self) -> _Counter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def tell(self, what: str, done: int) -> None:
        if not self._is_seen or clock.monotonic() < self._due:
            return
        self._due = clock.monotonic() + _REDRAW_S
        self._drawn = True
        sys.stderr.write(f"\r\x1b[K{done:,} {what}s ...")
        sys.stderr.flush()
