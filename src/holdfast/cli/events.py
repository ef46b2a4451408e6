"""`holdfast events`: the journal, readable; with -f as it grows."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.finding import pick_run
from holdfast.cli.options import project_options, run_argument
from holdfast.cli.printing import day_and_hour, flush, plain, say, write_out
from holdfast.errors import EXIT_INTERRUPTED, EXIT_OK, CheckpointCorruptionError
from holdfast.escaping import harmless_json
from holdfast.streams import is_read
from holdfast.wording import shortened

if TYPE_CHECKING:
    from holdfast.journal.lines import Line
    from holdfast.layout import RunLayout

POLL_S = 0.2
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
    from holdfast.runs.listing import open_project, run_layout

    layout = open_project(directory)
    run = run_layout(layout, pick_run(layout, run_id))
    try:
        _print(run, follow=follow, as_json=as_json)
    except KeyboardInterrupt:  # the usual end of -f: what is on stdout is whole without another document
        say("Interrupted.", err=True)
        return EXIT_INTERRUPTED
    return EXIT_OK


def _print(run: RunLayout, *, follow: bool, as_json: bool) -> None:
    line: Line | None = None
    for line in _followed(run) if follow else _all(run):
        if as_json:  # as recorded, so that sums can be proved; nobody does that on a terminal
            text = line.raw.decode()
            write_out(harmless_json(text) if sys.stdout.isatty() else text)
        else:
            say(readable(line.event()))
    if line is None and not follow:
        fix = f"What is left of it: holdfast verify {run.dir.name}"
        raise CheckpointCorruptionError("The journal has no readable line.", fix=fix)


def _all(run: RunLayout) -> Iterator[Line]:
    from holdfast.runs.opening import open_journal

    reading = open_journal(run).read()
    yield from reading
    for damage in reading.damage:
        say(f"The journal is damaged: {damage}.", err=True)


def _followed(run: RunLayout) -> Iterator[Line]:
    """All lines, then those that are added, as long as somebody reads them and the run has its folder.

    If the journal is repaired meanwhile, nothing comes twice.
    """
    from holdfast.runs.opening import open_journal
    from holdfast.stores.readable import is_there

    journal, position, last = open_journal(run), None, 0
    while is_read(sys.stdout):
        reading = journal.read(position)
        for line in reading:
            if line.seq > last:
                last = line.seq
                yield line
        position = reading.position
        flush()
        if not is_there(run.dir):
            say(
                f"Run {run.dir.name} is no longer on record: it was cleaned, or its folder removed.",
                err=True,
            )
            return
        time.sleep(POLL_S)


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
