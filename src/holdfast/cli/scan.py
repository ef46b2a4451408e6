"""`holdfast scan`: what the files alone say, whatever is on record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from holdfast.cli.completion import complete_file
from holdfast.cli.options import composed, json_option, params_option, project_options
from holdfast.cli.printing import print_json, say_all, say_pages_behind, table
from holdfast.project import Project
from holdfast.streams import stdout_kept
from holdfast.wording import counted

if TYPE_CHECKING:
    from holdfast.project.results import ScanResult
    from holdfast.recovery.scan import FileFinding
    from holdfast.recovery.strangers import Stranger

_SHOWN_MAX = 200
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


@click.command("scan", short_help="Tell what the files alone say; change nothing.")
@click.argument("file", required=False, metavar="[FILE.py[:NAME]]", shell_complete=complete_file)
@click.option("--step", callback=composed, metavar="NAME", help="Only the files of this step.")
@params_option
@project_options
@json_option
def command(file: str | None, step: str | None, params: dict[str, str], directory: str, as_json: bool) -> None:
    """Tell what the files alone say: whole, changed, half-finished, damaged, stale; changes nothing."""
    with stdout_kept():  # what a pipeline prints when it is loaded, or a check when it is asked
        project = Project.open(directory)
        scanned = project.scan(file, step=step, params=params)
    if as_json:
        print_json(scanned)
    else:
        say_all(_lines(scanned))
    say_pages_behind(project, None, directory)


def _lines(scanned: ScanResult) -> Iterator[str]:
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
