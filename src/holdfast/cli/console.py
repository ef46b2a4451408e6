"""The run on stderr while it goes on: a table of events as lines, shown plainly or, by `live.py`, above a picture.

The committing thread and the signal handler only put something into a queue; a thread of the console's own
takes it out and prints. So a slow terminal never slows a step down, and nothing is printed in a handler.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import clock, threads
from holdfast import events as ev
from holdfast.cli.printing import hour, money, say
from holdfast.state import COMPLETED, FAILED, IN_PROGRESS, SKIPPED
from holdfast.wording import counted, shortened, span

if TYPE_CHECKING:
    from holdfast.views.picture import Picture

PictureOf = Callable[[], "Picture"]

LINES_MAX = 200  # of finished tasks; the rest are only counted
SUMMARY_EVERY_S = 2.0
LINE_MAX = 2000
DONE, INFO, WARN, BAD = "", "info", "warning", "error"
_LEVELS = {"WARNING": WARN, "ERROR": BAD, "CRITICAL": BAD}  # of what steps log; the others make no line
_Words = tuple[str, str]


class Line(msgspec.Struct, frozen=True):
    """One noteworthy happening. Its text is not yet harmless for a terminal: printing makes it so."""

    at: float
    level: str  # DONE is the ordinary case, of which there may be very many
    text: str

    def __str__(self) -> str:
        text = shortened(self.text, LINE_MAX)
        return f"{hour(self.at)}  {self.level:<7}  {text}" if self.level else f"{hour(self.at)}  {text}"


# --- events as lines: pure, with the times of the events ---------------------------------------------------------


class Running(msgspec.Struct):
    """A task that is being worked on."""

    since: float
    attempt: int
    last_log: str = ""


class Progress:
    """What the events of this session add up to."""

    def __init__(self, attempts_of: Mapping[str, int]) -> None:
        self.running: dict[str, Running] = {}
        self._attempts_of = attempts_of  # step -> attempts it has in all
        self._spent: dict[str, float] = {}
        self._overdue: set[str] = set()

    def take(self, event: Any, at: float) -> Line | None:
        """Count an event; gives the line for it, if it deserves one."""
        make = _LINES.get(type(event))
        made = make(self, event) if make is not None else None
        if isinstance(event, ev.NodeEntered):
            self.running[event.step_id] = Running(at, event.attempt)
        return Line(at, *made) if made is not None else None

    def log(self, task: str, text: str) -> None:
        """Remember the last words of a running task."""
        running = self.running.get(task)
        if running is not None:
            running.last_log = text

    def _exited(self, event: ev.NodeExited) -> _Words:
        self.running.pop(event.step_id, None)
        spent = self._spent.pop(event.step_id, 0.0)
        cost = f"  {money(spent)}" if spent else ""
        if event.status == COMPLETED:
            return DONE, f"✓ {event.step_id}  {span(event.duration)}{cost}"
        words = f"✗ {event.step_id}  {self._attempt(event)}: {event.error.removesuffix('.')}"
        if event.status == FAILED:
            is_overdue = event.step_id in self._overdue
            return WARN, f"{words}; again {'when it has ended' if is_overdue else f'in {span(event.retry_in)}'}"
        if event.status == SKIPPED:
            return WARN, f"{words}; skipped"
        return BAD, f"{words}; needs a person"

    def _cut_off(self, event: ev.CutOff) -> _Words:
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

    def _overran(self, event: ev.Overran) -> _Words:
        self._overdue.add(event.step_id)
        return WARN, f"! {event.step_id}  goes on after its timeout of {event.timeout:g}s"

    def _entered(self, event: ev.NodeEntered) -> _Words | None:
        self._overdue.discard(event.step_id)
        if not event.partial_chars:
            return None
        return INFO, f"» {event.step_id}  goes on from {event.partial_chars:,} characters of half-finished text"

    def _usage(self, event: ev.UsageRecorded) -> None:
        self._spent[event.step_id] = self._spent.get(event.step_id, 0.0) + event.cost_usd

    def _sent_back(self, event: ev.RewindRequested) -> _Words:
        self.running.pop(event.step_id, None)
        self._spent.pop(event.step_id, None)  # of this round: what it then accepts has a cost of its own
        back = "; ".join(f"{task}: {text}" if text else task for task, text in event.targets.items())
        return WARN, f"↩ {event.step_id or 'a person'} sends back {back}"

    def _logged(self, event: ev.Logged) -> None:
        fields = " ".join(f"{name}={value}" for name, value in event.fields.items())
        self.log(event.step_id, f"{event.name} {fields}".strip())


def _compared(_: Progress, event: ev.Recovered) -> _Words | None:
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
    level = WARN if event.again or counts.get("ask") else INFO
    return (level, "» looked at the files: " + "; ".join(words)) if words else None


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
    """The task of an event, if it has one: a view belongs to none."""
    return f"{event.step_id}  " if event.step_id else ""


def _made_good(event: ev.ArtifactHealed) -> str:
    if event.resealed:
        return "sealed anew"
    return f"put back from {event.source}" if event.source else "put back"


def _repaired(_: Progress, event: ev.JournalRepaired) -> _Words:
    if not event.kept_as:
        return WARN, "! the journal was missing and was written anew from a snapshot"
    lost = counted(event.missing_total, "line is lost", "lines are lost")
    return WARN, f"! the journal was damaged and repaired: {lost}; the damaged one is kept as {event.kept_as}"


_LINES: dict[type, Callable[[Progress, Any], _Words | None]] = {
    ev.NodeEntered: Progress._entered,
    ev.NodeExited: Progress._exited,
    ev.UsageRecorded: Progress._usage,
    ev.RewindRequested: Progress._sent_back,
    ev.Logged: Progress._logged,
    ev.TaskAdopted: lambda _, e: (DONE, f"= {e.step_id}  {_ADOPTED.get(e.evidence, e.evidence)}"),
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


# --- consoles ----------------------------------------------------------------------------------------------------


class Console:
    """Prints nothing: for --quiet and --json. The others add to it."""

    def open(self, picture: PictureOf) -> None:
        """The run begins; `picture` shows how it stands at any time."""

    def events(self, recorded: Sequence[Any]) -> None:
        """Called by the committing thread: cheap, never raises."""

    def log(self, task: str, level: str, message: str) -> None:
        """Something that a step logged."""

    def stopping(self, text: Callable[[int], str]) -> None:
        """Called by a signal handler; `text` is given the number of running steps."""

    def close(self) -> None:
        """The run has ended, one way or the other."""


class PlainConsole(Console):
    """One line per noteworthy event."""

    period_s: float | None = None  # how often `tick` is wanted

    def __init__(self, attempts_of: Mapping[str, int]) -> None:
        self.progress = Progress(attempts_of)
        self._picture: PictureOf | None = None
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="holdfast-console", daemon=True)
        self._done_lines = 0
        self._summary_due = 0.0

    # --- any thread ----------------------------------------------------------------------------------------

    def open(self, picture: PictureOf) -> None:
        self._picture = picture
        threads.start(self._thread)

    def events(self, recorded: Sequence[Any]) -> None:
        self._inbox.put(partial(self._take, list(recorded)))

    def log(self, task: str, level: str, message: str) -> None:
        self._inbox.put(partial(self.take_log, task, level, message, clock.now()))

    def stopping(self, text: Callable[[int], str]) -> None:
        self._inbox.put(lambda: self.show(Line(clock.now(), WARN, text(len(self.progress.running)))))

    def close(self) -> None:
        if self._thread.ident is not None:
            self._inbox.put(None)
            self._thread.join()

    # --- the console's thread ------------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            self.begin()
            while self._next():
                pass
        except Exception as error:  # the run is worth more than its display
            say(f"The display failed ({type(error).__name__}: {error}); the run goes on.", err=True)
        finally:
            self.end()

    def _next(self) -> bool:
        try:
            message = self._inbox.get(timeout=self.period_s)
        except Empty:
            message = _nothing
        if message is None:
            return False
        message()
        self.tick()
        return True

    def _take(self, recorded: list[Any]) -> None:
        for one in recorded:
            line = self.progress.take(one.event, one.at)
            if line is not None:
                self._take_line(line)

    def begin(self) -> None:
        """Before the first message."""

    def tick(self) -> None:
        """After each message, and at least every `period_s`."""

    def end(self) -> None:
        """After the last message."""

    def take_log(self, task: str, level: str, message: str, at: float) -> None:
        self.progress.log(task, message)
        if level in _LEVELS:
            self.show(Line(at, _LEVELS[level], f"{task}  {message}"))

    def _take_line(self, line: Line) -> None:
        if line.level == DONE:
            self._done_lines += 1
            if self._done_lines > LINES_MAX:
                self.summarise()
                return
        self.show(line)

    def show(self, line: Line) -> None:
        say(str(line), err=True)

    def summarise(self) -> None:
        """Instead of thousands of lines: how far it is, now and then, and never at a price that shows."""
        began = clock.monotonic()
        if began < self._summary_due or self._picture is None:
            return
        picture = self._picture()
        now = clock.monotonic()
        self._summary_due = now + max(SUMMARY_EVERY_S, 20 * (now - began))
        say(f"{hour(clock.now())}  {standing(picture)}", err=True)


def _nothing() -> None:
    """The message of a time in which nothing happened."""


def standing(picture: Picture) -> str:
    """How far it is, in one line, and of one moment: the events taken so far may be behind the picture."""
    running, cost = picture.counts.get(IN_PROGRESS, 0), money(picture.state.cost_usd)
    return f"{picture.done} of {picture.total} steps done, {running} running, cost {cost}"
