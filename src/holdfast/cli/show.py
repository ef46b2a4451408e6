"""The commands that read records and change nothing: list, status, why and events."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import common_options, complete_name, composed, project_options, run_argument, run_option
from holdfast.cli.printing import (
    day_and_hour,
    flush,
    money,
    plain,
    print_json,
    print_result,
    say,
    say_all,
    say_pages_behind,
    table,
    tag_heading,
    write_out,
)
from holdfast.errors import EXIT_INTERRUPTED, EXIT_OK
from holdfast.escaping import harmless_json
from holdfast.project import Project
from holdfast.streams import is_read
from holdfast.wording import addressed, shortened

if TYPE_CHECKING:
    from holdfast.project.results import RunEntry
    from holdfast.views.picture import Picture

_FIELD_MAX = 120
_LEFT_OUT = {"seq", "ts", "event", "step_id"}  # shown in columns of their own
_LEFT_OUT |= {"node", "parent_id", "parents", "in", "out", "inputs", "spec", "value", "value_ref", "result"}
_LEFT_OUT |= {"result_ref", "host", "pid", "holdfast", "version"}  # only programs read them


# --- list --------------------------------------------------------------------------------------------------------


@click.command("list", short_help="List the runs of this project.")
@common_options
def list_command(directory: str, as_json: bool) -> None:
    """List the runs of this project with parameters, tags, status, steps done and cost."""
    project = Project.open(directory)
    print_result(runs := project.runs(), _runs(runs, project, directory), as_json=as_json)
    say_pages_behind(project, None, directory)


def _runs(runs: list[RunEntry], project: Project, directory: str) -> Iterator[str]:
    if not runs:
        yield addressed(str(project.why_no_run()), directory)
        return
    params = list(dict.fromkeys(name for run in runs for name in run.params))
    tags = list(dict.fromkeys(name for run in runs for name in run.tags))
    own = (tag_heading(name, params) for name in tags)
    headings = ["run", "pipeline", *params, *own, "status", "done", "cost"]
    yield from table(headings, [_row(run, params, tags) for run in runs])


def _row(run: RunEntry, params: list[str], tags: list[str]) -> list[str]:
    from holdfast.views.summary import shown_status

    if run.problem:
        return [run.run_id, "", *("" for _ in (*params, *tags)), "unreadable", "", ""]
    cells = [(run.params, name) for name in params] + [(run.tags, name) for name in tags]
    values = [plain(fields[name]) if name in fields else "" for fields, name in cells]
    status = shown_status(run.status, run.found.error, running=run.running).replace("_", " ")
    done = f"{run.done}/{run.total}" + (f", {run.skipped} skipped" if run.skipped else "")
    return [run.run_id, run.pipeline, *values, status, done, money(run.total_cost_usd)]


# --- status ------------------------------------------------------------------------------------------------------


@click.command("status", short_help="Show how a run stands and how to continue it.")
@run_argument
@common_options
def status_command(run_id: str | None, directory: str, as_json: bool) -> None:
    """Show how a run stands, what needs a person, its cost, and what continues it. Pages behind it are written."""
    project = Project.open(directory)
    project.catch_up(run_id)
    if as_json:
        print_json(project.status(run_id))
    else:
        say_all(_status(*project.picture(run_id), project, directory))


def _status(picture: Picture, holder: Mapping[str, Any] | None, project: Project, directory: str) -> Iterator[str]:
    from holdfast.cli.report import needs_lines, orphan_lines
    from holdfast.state import COMPLETED
    from holdfast.views.matrix import LEGEND, text_matrix

    yield from _head(picture, holder)
    yield ""
    yield from text_matrix(picture, shutil.get_terminal_size().columns)
    yield ""
    yield from _totals(picture)
    yield LEGEND
    yield from orphan_lines(picture)
    yield from needs_lines(picture, project, directory)
    if holder is not None:
        yield f"Follow it with: {addressed(f'holdfast events {picture.state.run_id} -f', directory)}"
    elif picture.state.status != COMPLETED:
        yield f"Continue with: {addressed(picture.continue_command(), directory)}"


def _head(picture: Picture, holder: Mapping[str, Any] | None) -> Iterator[str]:
    from holdfast.views.checkpoint import phase_words
    from holdfast.views.summary import error_of, shown_status

    state = picture.state
    status = shown_status(state.status, error_of(picture), running=holder is not None)
    reason = f" ({picture.reason})" if picture.reason and status != "interrupted" else ""
    yield f"{state.pipeline}, run {state.run_id}: {status.replace('_', ' ')}{reason}"
    if holder is not None:
        since = day_and_hour(str(holder["since"]))
        yield f"  running since {since} as process {holder['pid']} on {holder['host']}"
    yield from (f"  {name}: {plain(value)}" for name, value in state.params.items())
    yield from (f"  {tag_heading(name, state.params)}: {plain(value)}" for name, value in state.tags.items())
    if picture.phase and status != "completed":
        yield f"  phase: {picture.phase} ({phase_words(picture, picture.phase)})"


def _totals(picture: Picture) -> Iterator[str]:
    from holdfast.views.summary import cost_line

    counts = [f"{number} {status.replace('_', ' ')}" for status, number in picture.counts.items() if number]
    yield f"Steps: {picture.done} of {picture.total} done ({', '.join(counts) or 'none known'})"
    yield f"Cost: {cost_line(picture)}"


# --- why ---------------------------------------------------------------------------------------------------------


@click.command("why")
@click.argument("task", callback=composed, shell_complete=complete_name)
@run_option
@common_options
def why_command(task: str, run_id: str | None, directory: str, as_json: bool) -> None:
    """Explain why a task ran, was reused, or will run again."""
    project = Project.open(directory)
    explained = project.why(task, run_id=run_id)
    print_result(explained, explained.lines, as_json=as_json)
    say_pages_behind(project, run_id, directory)


# --- events ------------------------------------------------------------------------------------------------------


@click.command("events")
@run_argument
@click.option("-f", "--follow", is_flag=True, help="Go on as events are added, until Ctrl-C.")
@project_options
@click.option("--json", "as_json", is_flag=True, help="Print the lines as they are, one JSON object each.")
def events_command(run_id: str | None, follow: bool, directory: str, as_json: bool) -> int:
    """Print what happened in a run, event by event."""
    project = Project.open(directory)
    try:
        _print_events(project, run_id, follow=follow, as_json=as_json)
        say_pages_behind(project, run_id, directory)
    except KeyboardInterrupt:  # the usual end of -f: what is on stdout is whole without another document
        say("Interrupted.", err=True)
        return EXIT_INTERRUPTED
    return EXIT_OK


def _print_events(project: Project, run_id: str | None, *, follow: bool, as_json: bool) -> None:
    lines = project.events(run_id, follow=_is_read if follow else False, on_remark=partial(say, err=True))
    for line in lines:
        if as_json:  # as recorded, so that sums can be proved; nobody does that on a terminal
            text = line.raw.decode()
            write_out(harmless_json(text) if sys.stdout.isatty() else text)
        else:
            say(_event(line.event()))


def _is_read() -> bool:
    """Whether stdout still has a reader; flushes it first."""
    flush()
    return is_read(sys.stdout)


def _event(event: dict[str, Any]) -> str:
    """One event as a line: time, what, which task, and the fields that tell people something."""
    parts = [day_and_hour(event["ts"]), f"{event['seq']:>6}", str(event.get("event", "?"))]
    if event.get("step_id"):
        parts.append(str(event["step_id"]))
    parts += [f"{name}={_field(name, value)}" for name, value in event.items() if name not in _LEFT_OUT]
    return "  ".join(parts)


def _field(name: str, value: Any) -> str:
    if name == "files":
        value = " ".join(str(file.get("path")) for file in value)
    if name == "tasks":  # adopted at once
        value = f"{len(value)}: " + " ".join(str(task.get("step_id")) for task in value)
    text = f"{value:g}" if isinstance(value, float) else plain(value)
    return shortened(text, _FIELD_MAX)
