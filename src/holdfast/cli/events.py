"""`holdfast events`: the journal, readable; with -f as it grows."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import click

from holdfast.cli.options import project_options, run_argument
from holdfast.cli.printing import day_and_hour, flush, plain, say, say_pages_behind, write_out
from holdfast.errors import EXIT_INTERRUPTED, EXIT_OK
from holdfast.escaping import harmless_json
from holdfast.project import Project
from holdfast.streams import is_read
from holdfast.wording import shortened

_FIELD_MAX = 120
# What only programs read: digests, links between lines, content.
_LEFT_OUT = {
    "seq",
    "ts",
    "event",
    "step_id",
    "node",
    "parent_id",
    "parents",
    "in",
    "out",
    "inputs",
    "spec",
    "value",
}
_LEFT_OUT |= {"value_ref", "result", "result_ref", "host", "pid", "holdfast", "version"}


@click.command("events")
@run_argument
@click.option("-f", "--follow", is_flag=True, help="Go on as events are added, until Ctrl-C.")
@project_options
@click.option("--json", "as_json", is_flag=True, help="Print the lines as they are, one JSON object each.")
def command(run_id: str | None, follow: bool, directory: str, as_json: bool) -> int:
    """Print what happened in a run, event by event."""
    project = Project.open(directory)
    try:
        _print(project, run_id, follow=follow, as_json=as_json)
        say_pages_behind(project, run_id, directory)
    except KeyboardInterrupt:  # the usual end of -f: what is on stdout is whole without another document
        say("Interrupted.", err=True)
        return EXIT_INTERRUPTED
    return EXIT_OK


def _print(project: Project, run_id: str | None, *, follow: bool, as_json: bool) -> None:
    lines = project.events(run_id, follow=_is_read if follow else False, on_remark=partial(say, err=True))
    for line in lines:
        if as_json:  # as recorded, so that sums can be proved; nobody does that on a terminal
            text = line.raw.decode()
            write_out(harmless_json(text) if sys.stdout.isatty() else text)
        else:
            say(readable(line.event()))


def _is_read() -> bool:
    """Whether somebody still reads what we print; all of it so far is out then."""
    flush()
    return is_read(sys.stdout)


def readable(event: dict[str, Any]) -> str:
    """One event as a line: time, what, which task, and the fields that tell people something."""
    parts = [day_and_hour(event["ts"]), f"{event['seq']:>6}", str(event.get("event", "?"))]
    if event.get("step_id"):
        parts.append(str(event["step_id"]))
    parts += [f"{name}={_short(name, value)}" for name, value in event.items() if name not in _LEFT_OUT]
    return "  ".join(parts)


def _short(name: str, value: Any) -> str:
    if name == "files":
        value = " ".join(str(file.get("path")) for file in value)
    if name == "tasks":  # adopted at once
        value = f"{len(value)}: " + " ".join(str(task.get("step_id")) for task in value)
    text = f"{value:g}" if isinstance(value, float) else plain(value)
    return shortened(text, _FIELD_MAX)
