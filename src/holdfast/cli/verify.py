"""`holdfast verify`: check everything of a run, change nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict, replace

from holdfast import clock
from holdfast.cli.finding import load_recorded, pick_run
from holdfast.cli.options import json_option, project_options, run_argument
from holdfast.cli.printing import addressed, can_be_redrawn, first_of, print_json, say_all
from holdfast.errors import EXIT_DAMAGE, EXIT_OK
from holdfast.streams import stdout_kept
from holdfast.wording import counted

if TYPE_CHECKING:
    from holdfast.commands.verify import Report
    from holdfast.layout import ProjectLayout
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
    from holdfast.commands.verify import verify
    from holdfast.runs.listing import open_project

    layout = open_project(directory)
    chosen = _pick(layout, run_id)
    with _Counter() as counter, stdout_kept():  # what a pipeline prints when it is loaded
        report = verify(layout, chosen, load=lambda: load_recorded(layout, chosen), tell=counter.tell)
    _with_typed_remedies(report, directory)
    if as_json:
        print_json(_document(report))
    else:
        say_all(_lines(report))
    return EXIT_OK if report.ok else EXIT_DAMAGE


def _pick(layout: ProjectLayout, run_id: str | None) -> str:
    """As other commands pick; where no run can be read, the newest is the one to look at."""
    from holdfast.runs.listing import list_runs

    if run_id is None:
        runs = list_runs(layout)
        if runs and all(info.problem for info in runs):
            return runs[0].run_id
    return pick_run(layout, run_id)


def _document(report: Report) -> dict[str, Any]:
    return {
        "run_id": report.run_id,
        "ok": report.ok,
        "findings": [asdict(finding) for finding in report.findings],
        "notes": report.notes,
        "checked": {f"{name.replace(' ', '_')}s": number for name, number in report.counts.items()},
    }


def _lines(report: Report) -> Iterator[str]:
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


def _with_typed_remedies(report: Report, directory: str) -> None:
    """Let the command in every remedy be the one that has to be typed here."""
    command = f"holdfast resume {report.run_id}"
    typed = addressed(command, directory)

    def fixed(fix: str) -> str:
        """In most, words follow the command; in the others it is the last thing."""
        return fix.replace(command, typed) if command in fix else addressed(fix, directory)

    report.findings = [replace(finding, fix=fixed(finding.fix)) for finding in report.findings]


def _counted(report: Report) -> str:
    found = [(report.counts.get(name, 0), name) for name in _COUNTED]
    return ", ".join(counted(number, name) for number, name in found if number) or "nothing"


def _verdict(report: Report) -> str:
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
