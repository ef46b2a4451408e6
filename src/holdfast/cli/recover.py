"""`holdfast recover`: rebuild a run from whatever evidence is left, or say what that would do."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from holdfast.cli.completion import complete_file
from holdfast.cli.options import json_option, params_option, project_options
from holdfast.cli.printing import first_of, print_json, say_all
from holdfast.project import Project
from holdfast.streams import stdout_kept
from holdfast.wording import addressed, counted

if TYPE_CHECKING:
    from holdfast.decisions import Planned, Step
    from holdfast.project.recover import Recovery

# What needs attention first; what is merely trusted last.
_DONE = {
    "ask": "to be answered by a person",
    "redo": "to be done again",
    "continue": "to be continued",
    "run": "still to run",
    "heal": "put back, or sealed anew",
    "adopt": "adopted",
    "trust": "trusted",
}
_WOULD = _DONE | {
    "heal": "would be put back, or sealed anew",
    "adopt": "would be adopted",
    "trust": "would be trusted",
}
_SHOWN_MAX = 10
_ALIKE_MAX = 8
_TOLD_MAX = 20


@click.command("recover", short_help="Rebuild a run from what is left of it; run nothing.")
@click.argument("file", required=False, metavar="[FILE.py[:NAME]]", shell_complete=complete_file)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@params_option
@project_options
@json_option
def command(file: str | None, dry_run: bool, params: dict[str, str], directory: str, as_json: bool) -> int:
    """Rebuild a run from journal, snapshots, views and files; what is doubtful is set aside, nothing is run."""
    with stdout_kept():  # what a pipeline prints when it is loaded, or a check when it is asked
        recovered = Project.open(directory).recover(file, params=params, dry_run=dry_run)
    if as_json:
        print_json(recovered)
    else:
        again = addressed(shlex.join(["holdfast", "recover", *_typed(file, params)]), directory)
        say_all(_lines(recovered.about, recovered.found, directory, again=again if dry_run else ""))
    return recovered.exit_code


def _typed(file: str | None, params: dict[str, str]) -> list[str]:
    """What the person said beside --dry-run, for the command that does it."""
    return [
        *([file] if file else []),
        *(word for name, text in params.items() for word in ("-p", f"{name}={text}")),
    ]


def _lines(pipeline: str, recovery: Recovery, directory: str, *, again: str) -> Iterator[str]:
    """What was done; with `again`, the command that does it, what would be."""
    if not recovery.found_anything:
        yield f"{pipeline}: nothing to recover: no run is on record, and no file proves that there was one."
        return
    lost = " (its record is lost)" if recovery.is_lost else ""
    if recovery.is_first:
        lost = " (no record yet; whole files are adopted)"
    yield f"{pipeline}: run {recovery.run_id}{lost}"
    yield from _told("  note", [*recovery.remarks, *recovery.kept])
    for action, words in (_WOULD if again else _DONE).items():
        yield from _group(
            words,
            [task for task in recovery.tasks if task.action == action],
            short=action == "trust",
        )
    for var in recovery.unknown_items:
        yield f"the items of {var} come from a function that has to run first: there may be others"
    yield from _told("no longer in the pipeline, files kept", recovery.orphans)
    yield from _told("sources disagree", [one.words() for one in recovery.disagreements])
    if again:
        yield from _actions(recovery.actions)
        yield f"Nothing was changed. To do it: {again}"
        return
    yield (
        f"{counted(recovery.recorded, 'event')} recorded."
        if recovery.recorded
        else "Nothing to do: all of this was on record."
    )
    if recovery.not_up_to_date:
        yield f"Not up to date: {recovery.not_up_to_date}."
    if recovery.is_complete:
        yield "The run is complete."
    else:
        yield f"Continue with: {addressed(f'holdfast resume {recovery.run_id}', directory)}"


def _group(words: str, tasks: Sequence[Planned], *, short: bool) -> Iterator[str]:
    if not tasks:
        return
    certain = [task for task in tasks if not task.if_different]
    behind = [task for task in tasks if task.if_different]
    if certain:
        yield f"{len(certain)} {words}" + (
            f"; {len(behind)} behind only if that comes out differently" if behind else ""
        )
    else:
        them = "it was" if len(behind) == 1 else "they were"
        yield f"{len(behind)} {words} only if what {them} made from comes out differently"
    shown = 3 if short else _SHOWN_MAX
    yield from first_of(certain + behind, shown, _line, rest="  and {} more")


def _line(task: Planned) -> str:
    by = f" [{task.evidence}]" if task.evidence not in ("", "journal") else ""
    return f"  {task.id}: {task.reason}{by}"


def _actions(actions: Sequence[Step]) -> Iterator[str]:
    """What is done to the files of tasks, in order; many of one kind are one counted line."""
    if not actions:
        return
    yield "To the files, in this order (TIME stands for the moment):"
    alike = Counter(_kind(action) for action in dict.fromkeys(actions))
    told: set[tuple[str, str, str]] = set()
    for action in dict.fromkeys(actions):
        do, folder, to = kind = _kind(action)
        if alike[kind] <= _ALIKE_MAX:
            yield f"  {do} {action.path}" + (f" -> {action.to}" if action.to else "")
        elif kind not in told:
            told.add(kind)
            yield f"  {do} {alike[kind]} files" + (f" of {folder}" if folder else "") + (f" -> {to}" if to else "")


def _kind(action: Step) -> tuple[str, str, str]:
    """What is done alike: to the files of one folder, or into one place."""
    folder, to = action.path.rpartition("/")[0], action.to
    return action.do, folder, to and f"{to.rpartition('/')[0]}/"


def _told(what: str, lines: Sequence[str]) -> Iterator[str]:
    rest = "and {} more: --json lists them all"
    yield from first_of(lines, _TOLD_MAX, lambda line: f"{what}: {line}", rest=rest)
