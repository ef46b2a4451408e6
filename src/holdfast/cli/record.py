"""The commands that only change records: approve, reject, decide, retry and note; clean removes old ones."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import (
    combined,
    common_options,
    complete_gate,
    complete_name,
    complete_task,
    composed,
    run_option,
)
from holdfast.cli.printing import print_result, size
from holdfast.project import Project

if TYPE_CHECKING:
    from holdfast.project.results import CleanResult, Recorded

_options = combined(run_option, common_options)


@click.command("approve", short_help="Approve a gate, or a phase whose checklist refused.")
@click.argument("name", callback=composed, shell_complete=complete_gate)
@_options
def approve_command(name: str, run_id: str | None, directory: str, as_json: bool) -> None:
    """Approve a gate, or a phase (phase:NAME) whose checklist objects; only records it."""
    recorded = Project.open(directory).approve(name, run_id=run_id, by=_user())
    print_result(recorded, _recorded(recorded), as_json=as_json)


@click.command("reject", short_help="Send a finished task back with feedback.")
@click.argument("name", callback=composed, metavar="NAME|TASK", shell_complete=complete_name)
@click.option(
    "--to",
    required=True,
    callback=composed,
    metavar="TASK",
    shell_complete=complete_task,
    help="The finished task that is to be done again.",
)
@click.option("--feedback", required=True, metavar="TEXT", help="What is wrong with it; the step receives this.")
@_options
def reject_command(
    *, name: str, to: str, feedback: str, run_id: str | None, directory: str, as_json: bool
) -> None:
    """Send a finished task back with feedback, at a gate or after reading what was made; only records it."""
    recorded = Project.open(directory).reject(name, to=to, feedback=feedback, run_id=run_id)
    print_result(recorded, _recorded(recorded), as_json=as_json)


@click.command("decide", short_help="Answer what is asked about a task.")
@click.argument("task", callback=composed, metavar="TASK", shell_complete=complete_task)
@click.argument("choice", type=click.Choice(["keep", "restore", "redo", "continue", "skip"]))
@_options
def decide_command(*, task: str, choice: str, run_id: str | None, directory: str, as_json: bool) -> None:
    """Answer what is asked about a task: about an edited file, half-finished output, an input that came out
    differently, or rounds that are used up; only records it."""
    recorded = Project.open(directory).decide(task, choice, run_id=run_id)
    print_result(recorded, _recorded(recorded), as_json=as_json)


@click.command("retry", short_help="Give failed, reviewed or skipped tasks a fresh start.")
@click.argument("tasks", callback=composed, nargs=-1, metavar="[TASK]...", shell_complete=complete_task)
@click.option("--all", "everything", is_flag=True, help="All tasks that failed, need review or were skipped.")
@_options
def retry_command(
    tasks: tuple[str, ...], everything: bool, run_id: str | None, directory: str, as_json: bool
) -> None:
    """Give tasks that failed, need review or were skipped a fresh set of attempts; only records it."""
    if bool(tasks) == everything:
        raise click.UsageError("Name the tasks to retry, or give --all.")
    recorded = Project.open(directory).retry(None if everything else tasks, run_id=run_id)
    print_result(recorded, _recorded(recorded), as_json=as_json)


@click.command("note", short_help="Record a note; RESUME.md shows it.")
@click.argument("text")
@_options
def note_command(text: str, run_id: str | None, directory: str, as_json: bool) -> None:
    """Record a note for the person or agent who continues the run; RESUME.md shows it."""
    recorded = Project.open(directory).note(text, run_id=run_id)
    print_result(recorded, _recorded(recorded), as_json=as_json)


@click.command("clean", short_help="Remove the records of old completed runs.")
@click.option("--max-age-days", metavar="DAYS", help="Remove completed runs older than this.  [default: 30]")
@click.option("--max-runs", metavar="N", help="Keep at most this many runs.  [default: 50]")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@common_options
def clean_command(
    max_age_days: str | None, max_runs: str | None, dry_run: bool, directory: str, as_json: bool
) -> None:
    """Remove the records of old completed runs; never an unfinished run, never a file of the work tree."""
    cleaned = Project.open(directory).clean(max_age_days=max_age_days, max_runs=max_runs, dry_run=dry_run)
    print_result(cleaned, _cleaned(cleaned), as_json=as_json)


def _user() -> str:
    try:
        return getpass.getuser().encode("utf-8", "replace").decode()
    except (OSError, KeyError, ImportError):  # an account without a name, as containers have
        return ""


def _recorded(recorded: Recorded) -> Iterator[str]:
    """What was recorded, and what continues the run."""
    yield recorded.message
    if recorded.found:
        yield f"Not up to date: {recorded.found}."
    if recorded.continue_with is not None:
        yield f"Continue with: {recorded.continue_with}"
    elif recorded.running:
        yield "The running engine takes it up."


def _cleaned(cleaned: CleanResult) -> Iterator[str]:
    verb = "Would remove" if cleaned.dry_run else "Removed"
    for run in cleaned.runs:
        yield f"{verb} run {run.run_id} ({run.reason}), {size(run.size)}"
    for run_id in cleaned.finished:
        yield f"{verb} what an interrupted clean had left of run {run_id}"
    if not cleaned.runs and not cleaned.finished:
        yield "Nothing to clean."
