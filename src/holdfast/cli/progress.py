"""What is worth telling while a run goes on: events as lines, and a tally of what is running. Pure.

Times are those of the events. A line is text that was not yet made harmless: whoever prints it does that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from holdfast import events as ev
from holdfast.cli.printing import money
from holdfast.state import COMPLETED, FAILED, SKIPPED
from holdfast.wording import counted, shortened, span

LINE_MAX = 2000
GOOD, BAD, WARN, INFO = "green", "red", "yellow", "cyan"


LEVELS = {INFO: "info", WARN: "warning", BAD: "error"}
"""How loud a line is; what is finished needs no level."""


class Told(msgspec.Struct, frozen=True):
    """One noteworthy happening."""

    at: float
    style: str
    text: str
    is_completion: bool = False  # the ordinary case, of which there may be very many

    @property
    def line(self) -> str:
        """The text with its level."""
        level, text = LEVELS.get(self.style, ""), shortened(self.text, LINE_MAX)
        return f"{level:<7}  {text}" if level else text


class Running(msgspec.Struct):
    """A task that is being worked on."""

    since: float
    attempt: int
    last_log: str = ""


class Progress:
    """What the events of this session add up to."""

    def __init__(self, attempts_of: Mapping[str, int]) -> None:
        self.running: dict[str, Running] = {}
        self.completed = 0
        self._attempts_of = attempts_of  # step -> attempts it has in all
        self._spent: dict[str, float] = {}
        self._overdue: set[str] = set()

    def take(self, event: Any, at: float) -> Told | None:
        """Count an event; gives the line for it, if it deserves one."""
        teller = _TELLERS.get(type(event))
        told = teller(self, event) if teller is not None else None
        if isinstance(event, ev.NodeEntered):
            self.running[event.step_id] = Running(at, event.attempt)
        return Told(at, *told) if told is not None else None

    def log(self, task: str, text: str) -> None:
        """Remember the last words of a running task."""
        running = self.running.get(task)
        if running is not None:
            running.last_log = text

    def _exited(self, event: ev.NodeExited) -> tuple[Any, ...]:
        self.running.pop(event.step_id, None)
        spent = self._spent.pop(event.step_id, 0.0)
        cost = f"  {money(spent)}" if spent else ""
        if event.status == COMPLETED:
            self.completed += 1
            return GOOD, f"✓ {event.step_id}  {span(event.duration)}{cost}", True
        words = f"✗ {event.step_id}  {self._attempt(event)}: {event.error.removesuffix('.')}"
        if event.status == FAILED:
            is_overdue = event.step_id in self._overdue
            return WARN, f"{words}; again {'when it has ended' if is_overdue else f'in {span(event.retry_in)}'}"
        if event.status == SKIPPED:
            return WARN, f"{words}; skipped"
        return BAD, f"{words}; needs a person"

    def _cut_off(self, event: ev.CutOff) -> tuple[Any, ...]:
        self.running.pop(event.step_id, None)
        return WARN, f"! {event.step_id}  was cut off, and will run again: {event.error}"

    def _attempt(self, event: ev.NodeExited) -> str:
        """Which attempt it was. They are counted from 1 in every round: only the first knows of how many.

        After a `resume`, which gives fresh ones, it knows no more.
        """
        if event.round:
            return f"round {event.round}, attempt {event.attempt}"
        of, at_least = self._attempts_of.get(event.node), event.attempt + (event.status == FAILED)
        return f"attempt {event.attempt}/{of}" if of and at_least <= of else f"attempt {event.attempt}"

    def _overran(self, event: ev.Overran) -> tuple[Any, ...]:
        self._overdue.add(event.step_id)
        return WARN, f"! {event.step_id}  goes on after its timeout of {event.timeout:g}s"

    def _entered(self, event: ev.NodeEntered) -> tuple[Any, ...] | None:
        self._overdue.discard(event.step_id)
        if not event.partial_chars:
            return None
        return INFO, f"» {event.step_id}  goes on from {event.partial_chars:,} characters of half-finished text"

    def _usage(self, event: ev.UsageRecorded) -> None:
        self._spent[event.step_id] = self._spent.get(event.step_id, 0.0) + event.cost_usd

    def _sent_back(self, event: ev.RewindRequested) -> tuple[Any, ...]:
        self.running.pop(event.step_id, None)
        self._spent.pop(event.step_id, None)  # of this round: what it then accepts has a cost of its own
        back = "; ".join(f"{task}: {text}" if text else task for task, text in event.targets.items())
        return WARN, f"↩ {event.step_id or 'a person'} sends back {back}"

    def _logged(self, event: ev.Logged) -> None:
        fields = " ".join(f"{name}={value}" for name, value in event.fields.items())
        self.log(event.step_id, f"{event.name} {fields}".strip())


def _compared(_: Progress, event: ev.Recovered) -> tuple[Any, ...] | None:
    """What was found valid, what was not, how far it rewinds and where it runs from."""
    counts = event.counts
    words = [counted(counts[action], *said) for action, said in _FOUND.items() if counts.get(action)]
    if event.again:
        more = "" if counts.get("redo", 0) <= len(event.again) else " and others"
        words.append(f"the work begins again at {', '.join(event.again)}{more}")
    if event.behind:
        words.append(counted(event.behind, *_BEHIND))
    if event.waiting:
        words.append(counted(event.waiting, "waits for that answer", "wait for that answer"))
    style = WARN if event.again or counts.get("ask") else INFO
    return (style, "» looked at the files: " + "; ".join(words)) if words else None


_FOUND = {
    "trust": ("finished task is whole", "finished tasks are whole"),
    "heal": ("is made whole again", "are made whole again"),
    "adopt": ("whole one is on record again", "whole ones are on record again"),
    "redo": ("is to be done again", "are to be done again"),
    "continue": ("is to be continued", "are to be continued"),
    "ask": ("needs an answer from you", "need an answer from you"),
    "run": ("is still to run", "are still to run"),
}
_BEHIND = (
    "finished task after it runs again only if what it takes comes out differently",
    "finished tasks after that run again only if what they take comes out differently",
)
_ADOPTED = {
    "sealed": "adopted from disk (sealed)",
    "marker": "adopted from disk (plain marker)",
    "exists": "adopted from disk (no marker expected)",
    "kept": "kept as it is, as was decided",
    "lost": "was done before; its value is lost, and made again only if something needs it",
}
_WISHES = {"done": "it is said to be done; that counts only if a file proves it", "redo": "it is to be done again"}


def _task(event: Any) -> str:
    """The task an event is about, if it is about one: a view, say, is nobody's."""
    return f"{event.step_id}  " if event.step_id else ""


def _made_good(event: ev.ArtifactHealed) -> str:
    if event.resealed:
        return "sealed anew"
    return f"put back from {event.source}" if event.source else "put back"


def _repaired(_: Progress, event: ev.JournalRepaired) -> tuple[Any, ...]:
    if not event.kept_as:
        return WARN, "! the journal was missing and was written anew from a snapshot"
    lost = counted(event.missing_total, "line is lost", "lines are lost")
    return WARN, f"! the journal was damaged and repaired: {lost}; the damaged one is kept as {event.kept_as}"


_Teller = Callable[["Progress", Any], tuple[Any, ...] | None]

_TELLERS: dict[type, _Teller] = {
    ev.NodeEntered: Progress._entered,
    ev.NodeExited: Progress._exited,
    ev.UsageRecorded: Progress._usage,
    ev.RewindRequested: Progress._sent_back,
    ev.Logged: Progress._logged,
    ev.TaskAdopted: lambda _, e: (GOOD, f"= {e.step_id}  {_ADOPTED.get(e.evidence, e.evidence)}", True),
    ev.TaskInvalidated: lambda _, e: (INFO, f"↻ {e.step_id}  will run again: {e.reason}"),
    ev.TaskReinstated: lambda _, e: (INFO, f"= {e.step_id}  counts again: {e.reason}"),
    ev.Recovered: _compared,
    ev.TaskKept: lambda _, e: (INFO, f"= {e.step_id}  kept: {e.reason}"),
    ev.ValueMigrated: lambda _, e: (INFO, f"= {e.step_id}  {e.reason or f'value brought to version {e.version}'}"),
    ev.TaskSkipped: lambda _, e: (WARN, f"- {e.step_id}  skipped: {e.reason}"),
    ev.TaskTakenUp: lambda _, e: (INFO, f"+ {e.step_id}  is not skipped any more: what it takes is there"),
    ev.ArtifactHealed: lambda _, e: (INFO, f"+ {e.step_id}  {e.path} was {e.problem}; {_made_good(e)}"),
    ev.ArtifactSetAside: lambda _, e: (WARN, f"! {_task(e)}{e.path} was {e.reason}; set aside as {e.to}"),
    ev.ArtifactMoved: lambda _, e: (INFO, f"= {e.step_id}  {e.path} is now {e.to}"),
    ev.QuestionAsked: lambda _, e: (WARN, f"? {e.step_id}  {e.detail}"),
    ev.CutOff: Progress._cut_off,
    ev.Overran: Progress._overran,
    ev.GateReached: lambda _, e: (WARN, f"? {e.step_id}  waits for approval{': ' + e.ask if e.ask else ''}"),
    ev.GateApproved: lambda _, e: (INFO, f"» {e.step_id}  approved"),
    ev.ChecklistRefused: lambda _, e: (WARN, f"? {e.step_id}  its checklist says: {'; '.join(e.reasons)}"),
    ev.PhaseStarted: lambda _, e: (INFO, f"» {e.step_id}  begins"),
    ev.RetryRequested: lambda _, e: (INFO, f"↻ {', '.join(e.step_ids)}  to be tried again"),
    ev.Decided: lambda _, e: (INFO, f"» {e.step_id}  a person decided: {e.choice}"),
    ev.ViewEdited: lambda _, e: (WARN, f"! {e.step_id}  {e.source} was edited: {_WISHES.get(e.wanted, e.wanted)}"),
    ev.NoteAdded: lambda _, e: (INFO, f"• {_task(e)}{e.text}"),
    ev.StateMended: lambda _, e: (WARN, f"! {'; '.join(e.findings)}"),
    ev.JournalRepaired: _repaired,
}
