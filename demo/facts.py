"""What the demo's claims are measured from: the run's journal, the generator's bill, and the files themselves.

Nothing here asks Holdfast: journal lines are JSON and artifacts end in a seal, so the standard library is enough.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generator import fingerprint


class DoesNotHoldError(Exception):
    """A claim of the demo that turned out to be false."""


Try = tuple[str, int]  # a task and its round: what a finished step is known by
ARTIFACTS = ("outline.md", "research/*.md", "drafts/*.md", "reviews/*.md", "chapters/*.md", "book.md")


@dataclass(frozen=True)
class Journal:
    """The events of the project's one run, oldest first."""

    run_id: str
    events: list[dict[str, Any]]

    def finished(self) -> set[Try]:
        """Every task and round that was completed."""
        exits = (event for event in self.events if event["event"] == "node_exit")
        return {_try(event) for event in exits if event["status"] == "completed"}

    def started(self) -> Counter[Try]:
        """How often each task and round was begun."""
        return Counter(_try(event) for event in self.events if event["event"] == "node_enter")

    def sent_back(self) -> set[str]:
        """The tasks that a reviewer's objection has opened again."""
        targets = [set(e["targets"]) for e in self.events if e["event"] == "rewind_requested"]
        invalidated = [{e["step_id"]} for e in self.events if e["event"] == "task_invalidated"]
        return set().union(*targets, *invalidated)

    def adopted(self) -> set[str]:
        """Tasks that were believed because of the file they left."""
        return {event["step_id"] for event in self.events if event["event"] == "task_adopted"}

    def healed(self) -> set[str]:
        return {event["step_id"] for event in self.events if event["event"] == "artifact_healed"}

    def answered(self) -> set[str]:
        """The fingerprints of all replies that are on record."""
        kept = (event for event in self.events if event["event"] == "once_recorded")
        return {fingerprint(event["result"]["text"]) for event in kept}

    def cost_usd(self) -> float:
        """All that was booked."""
        booked = (event for event in self.events if event["event"] == "usage")
        return float(sum(event.get("cost_usd", 0.0) for event in booked))

    def cost_of(self, task: str) -> float:
        """What the last round of a task was booked at: the price of doing it again."""
        booked = [e for e in self.events if e["event"] == "usage" and e["step_id"] == task]
        last = max((_try(event)[1] for event in booked), default=0)
        return float(sum(event.get("cost_usd", 0.0) for event in booked if _try(event)[1] == last))

    def after(self, earlier: Journal) -> Journal:
        """Only what was recorded since."""
        return Journal(self.run_id, self.events[len(earlier.events) :])


def read_journal(project: Path) -> Journal:
    """The journal of the one run in `project`; empty before it began. A last line cut short is left out."""
    found = sorted(project.glob(".holdfast/runs/*/events.jsonl"))
    if not found:
        return Journal("", [])
    lines = found[0].read_bytes().split(b"\n")[:-1]
    try:
        return Journal(found[0].parent.name, [json.loads(line) for line in lines])
    except ValueError as error:
        raise DoesNotHoldError(f"a line of the journal is no JSON: {error}") from error


def read_bill(path: Path) -> Counter[str]:
    """Each call of the generator by its reply's fingerprint, and how often it was made."""
    return Counter(path.read_text().splitlines()) if path.exists() else Counter()


def body_of(path: Path) -> bytes:
    """An artifact without the seal that is its last line."""
    data = path.read_bytes().rstrip(b"\n")
    return data[: data.rfind(b"\n") + 1]


def bodies(project: Path) -> dict[str, str]:
    """The hash of every artifact's body, by path."""
    paths = [path for pattern in ARTIFACTS for path in sorted(project.glob(pattern))]
    return {str(path.relative_to(project)): hashlib.sha256(body_of(path)).hexdigest() for path in paths}


def _try(event: dict[str, Any]) -> Try:
    return event["step_id"], event.get("round", 0)  # a field at its default is not written
