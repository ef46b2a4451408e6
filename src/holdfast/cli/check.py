"""The commands that look at files and change nothing: verify proves a run's record, scan reads the files alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from holdfast import clock
from holdfast.cli.options import common_options, composed, file_argument, params_option, run_argument
from holdfast.cli.printing import can_be_redrawn, first_of, print_result, say_pages_behind, table
from holdfast.project import Project
from holdfast.streams import stdout_kept
from holdfast.wording import counted

if TYPE_CHECKING:
    from holdfast.project.results import ScanResult, VerifyResult
    from holdfast.recovery.scan import FileFinding
    from holdfast.recovery.strangers import Stranger
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
_STRANGERS_MAX = 40
_MEANING = {
    "sealed": "sealed and whole",
    "plain marker": "with a plain marker, or none expected",
    "stale": "whole, but made from inputs that are no longer there",
    "refused": "refused by check",
    "changed": "edited after sealing",
    "half-finished": "half-finished",
    "damaged": "damaged",
    "empty": "empty",
    "missing": "missing",
}


@click.command("verify", short_help="Check every file and every record of a run; change nothing.")
@run_argument
@common_options
def verify_command(run_id: str | None, directory: str, as_json: bool) -> int:
    """Check every artifact, object, journal line and snapshot of a run; changes nothing."""
    with _Counter() as counter, stdout_kept():  # what a pipeline prints when it is loaded
        verified = Project.open(directory).verify(run_id, on_progress=counter.tell)
    print_result(verified, _verified(verified), as_json=as_json)
    return verified.exit_code


def _verified(report: VerifyResult) -> Iterator[str]:
    more = "and {} more; --json lists them all"
    yield from first_of(report.findings, _SHOWN_MAX, _finding, rest=more)
    yield from first_of(report.notes, _SHOWN_MAX, "note: {}".format, rest=f"note: {more}")
    verdict = counted(len(report.findings), "finding") if report.findings else "all is whole"
    yield f"run {report.run_id}: checked {_counted(report)}: {verdict}"


def _finding(finding: Finding) -> str:
    """What is off, where, and what to do about it."""
    where = ": ".join(filter(None, (finding.task, finding.path)))
    detail = f" ({finding.detail})" if finding.detail else ""
    says = _SAID.get(finding.problem, f"is {finding.problem}")
    return f"{where} {says}{detail}. {finding.fix}"


def _counted(report: VerifyResult) -> str:
    found = [(report.checked.get(f"{name.replace(' ', '_')}s", 0), name) for name in _COUNTED]
    return ", ".join(counted(number, name) for number, name in found if number) or "nothing"


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


@click.command("scan", short_help="Tell what the files alone say; change nothing.")
@file_argument
@click.option("--step", callback=composed, metavar="NAME", help="Only the files of this step.")
@params_option
@common_options
def scan_command(
    file: str | None, step: str | None, params: dict[str, str], directory: str, as_json: bool
) -> None:
    """Tell what the files alone say: whole, changed, half-finished, damaged, stale; changes nothing."""
    with stdout_kept():  # what a pipeline prints when it is loaded, or a check when it is asked
        project = Project.open(directory)
        scanned = project.scan(file, step=step, params=params)
    print_result(scanned, _scanned(scanned), as_json=as_json)
    say_pages_behind(project, None, directory)


def _scanned(scanned: ScanResult) -> Iterator[str]:
    tasks = counted(len({finding.task for finding in scanned.files}), "task")
    yield f"{scanned.pipeline}: {counted(len(scanned.files), 'file')} of {tasks} looked at"
    for kind, words in _MEANING.items():
        if kind in scanned.counts:
            yield f"  {scanned.counts[kind]} {words}"
    for var in scanned.unknown_items:
        yield f"  the items of {var} are not known: nothing names them"
    yield from _table([finding for finding in scanned.files if finding.kind not in ("sealed", "plain marker")])
    yield from _strangers(scanned.strangers)


def _table(findings: list[FileFinding]) -> Iterator[str]:
    if not findings:
        return
    rows = [[f.kind, f.task, f.path, f.detail] for f in findings[:_SHOWN_MAX]]
    yield ""
    yield from table(["what", "task", "file", "why"], rows)
    if len(findings) > _SHOWN_MAX:
        yield f"and {len(findings) - _SHOWN_MAX} more; --json lists them all"


def _strangers(strangers: list[Stranger]) -> Iterator[str]:
    backups = sum(1 for stranger in strangers if stranger.kind == "backup")
    lost = [stranger for stranger in strangers if stranger.task]
    others = [stranger for stranger in strangers if stranger.kind != "backup" and not stranger.task]
    if backups:
        yield f"{counted(backups, 'backup (NAME.bak.TIME) lies', 'backups (NAME.bak.TIME) lie')} beside the files"
    if lost:
        yield "Files that a task seems to have written under another path; they are left alone:"
        yield from _listed(lost)
    if others:
        yield "Files that belong to no task; they are left alone:"
        yield from _listed(others)


def _listed(strangers: list[Stranger]) -> Iterator[str]:
    for stranger in strangers[:_STRANGERS_MAX]:
        yield f"  {stranger.path}" + (f" ({stranger.detail})" if stranger.detail else "")
    rest = sum(stranger.files for stranger in strangers[_STRANGERS_MAX:])
    if rest:
        yield f"  and {counted(rest, 'more file', 'more files')}; --json has them all"
