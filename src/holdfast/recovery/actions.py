"""What is done about a task, in small actions as data: each can be foretold, and can be performed.

A decision leads to some of these (acting.py, adopting.py, moving.py, sections.py say which). A real run performs
them one by one, and records the events that each gives. A dry run folds what they foretell into a copy of the
state, and looks at files as they would then be: nothing of it touches the disk.

Crash story: the files come first, then the events that say so. Killed in between, the next look finds the new
state of the files, and decides again from there: every action leaves the files in a state from which the same
decision, or a more trusting one, follows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from holdfast import events as ev
from holdfast.artifacts.acceptance import Acceptance
from holdfast.artifacts.keeping import Artifacts
from holdfast.artifacts.looks import MISSING, SEALED, Look
from holdfast.artifacts.offers import Offer
from holdfast.artifacts.products import for_file
from holdfast.artifacts.sealed_files import SealedFiles
from holdfast.decisions import Action, Foretold, Step
from holdfast.events import FileRecord
from holdfast.recovery.backups import Backups
from holdfast.seals import Seal
from holdfast.stores import asides

TIME = "TIME"
"""Stands for the moment in the name of a file that would be set aside."""

GONE = Look(MISSING)


class Say(Action):
    """Record something; no file is touched."""

    event: ev.Event

    def foretell(self) -> Foretold:
        return Foretold([self.event])

    def perform(self) -> Iterable[ev.Event]:
        return [self.event]


class SetAside(Action):
    """Move a doubtful file out of the way: into quarantine, or beside its name. With `label` a copy is kept."""

    artifacts: Artifacts
    task: str
    path: str
    reason: str
    quarantine: Path | None = None
    label: str = ""
    is_copied: bool = False  # and the file stays until another takes its place

    def foretell(self) -> Foretold:
        name = os.path.basename(self.path)
        if self.quarantine is not None:
            to = f"{self.quarantine.name}/{asides.aside_name(name, self.label, at=TIME)}"
        else:
            to = os.path.join(os.path.dirname(self.path), asides.backup_name(name, at=TIME))
        looks = {} if self.is_copied else {self.path: GONE}
        step = Step("copy" if self.is_copied else "set aside", self.path, self._shown(to))
        return Foretold([self._event(to)], looks, [step])

    def perform(self) -> Iterable[ev.Event]:
        tree = self.artifacts.tree
        if self.is_copied:
            to = tree.copy_aside(self.path, label=self.label)
        else:
            to = tree.set_aside(self.path, beside=self.quarantine is None)
        return [self._event(to)]

    def _event(self, to: str) -> ev.Event:
        return ev.ArtifactSetAside(step_id=self.task, path=self.path, to=to, reason=self.reason)

    def _shown(self, to: str) -> str:
        """Where it goes, from the project's folder on."""
        if self.quarantine is None:
            return to
        return os.path.relpath(self.quarantine.parent / to, self.artifacts.tree.root)


class PutBack(Action):
    """Have an accepted file whole again, from its copy, or from what had been set aside."""

    artifacts: Artifacts
    sealed_files: SealedFiles
    task: str
    file: FileRecord
    seal: Seal
    problem: str
    backups: Backups | None = None
    body: bytes = b""  # as far as it is known
    is_done: bool = True

    def foretell(self) -> Foretold:
        looks = {self.file.path: Look(SEALED, body=self.body, seal=for_file(self.seal, self.file))}
        return Foretold([self._event("")], looks, [Step("put back", self.file.path)])

    def perform(self) -> Iterable[ev.Event]:
        if self.sealed_files.put_back(self.file, self.seal):
            return [self._event("")]
        source = self.backups.heal(self.file, self.seal) if self.backups is not None else ""
        self.is_done = bool(source)
        return [self._event(source)] if source else []

    def _event(self, source: str) -> ev.Event:
        return ev.ArtifactHealed(step_id=self.task, path=self.file.path, problem=self.problem, source=source)


class SealAnew(Action):
    """Give a file that is whole its seal, with the marker that its step has now."""

    sealed_files: SealedFiles
    file: FileRecord
    seal: Seal
    event: ev.Event | None = None

    def foretell(self) -> Foretold:
        looks = {self.file.path: Look(SEALED, seal=for_file(self.seal, self.file))}
        return Foretold(self._events, looks, [Step("seal anew", self.file.path)])

    def perform(self) -> Iterable[ev.Event]:
        self.sealed_files.write(self.file, None, self.seal)
        return self._events

    @property
    def _events(self) -> list[ev.Event]:
        return [self.event] if self.event is not None else []


class Accept(Action):
    """Take what lies there, or is made of it, as the task's output."""

    acceptance: Acceptance
    do: str  # as a dry run lists it
    make: Callable[[], Offer]  # checks, keeps copies, seals and stages
    outline: Offer | None  # the same as far as it is known before; None if only making it tells
    paths: Sequence[str] = ()
    looks: Mapping[str, Look] = {}

    def foretell(self) -> Foretold:
        events = [self.acceptance.foretell(self.outline)] if self.outline is not None else []
        return Foretold(events, self.looks, [Step(self.do, path) for path in self.paths])

    def perform(self) -> Iterable[ev.Event]:
        return self.acceptance.land(self.make())


class Do(Action):
    """Do something particular to one place of the code, of which this much is known before."""

    foretold: Foretold
    operation: Callable[[], Iterable[ev.Event]]

    def foretell(self) -> Foretold:
        return self.foretold

    def perform(self) -> Iterable[ev.Event]:
        return self.operation()


def performed(actions: Iterable[Action]) -> Iterator[ev.Event]:
    """Perform one action after the other; gives the events, each to be recorded at once."""
    for action in actions:
        yield from action.perform()
