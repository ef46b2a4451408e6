"""A small model of a project: what a run must trust, put back, make again, ask about and block.

It knows of no journal or seal: only what each task was made from, what it gave, and how its file is. A run is
one pass over the tasks in their order; `Model.run` says which bodies begin, and how each task stands afterwards.

    finished, made from what is there now      trusted; its file is put back if it has a copy, else its step runs
    made from something else                   runs
    edited, and not out of date                waits for a person
    adopted after a loss, made from other      waits for a person
    something that it comes from is not there  blocked, or left as it is
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

COMPLETED, WAITING, FAILED, BLOCKED = "completed", "waiting", "needs_review", "blocked"
OPEN = "open"  # finished once: whether it still holds is seen when all that it comes from is there


@dataclass
class Step:
    """One step of the pipeline, as the model and the pipeline are made from it."""

    name: str
    takes: tuple[str, ...]
    has_items: bool
    has_file: bool
    has_copy: bool
    is_blunt: bool  # what it gives says nothing of its inputs
    takes_topic: bool
    version: int = 1

    def gives(self, item: str, inputs: Mapping[str, Any]) -> str:
        told = "" if self.is_blunt else digest(dict(inputs))
        return f"{self.task(item)} v{self.version} {told}\nand a second line.\n"

    def task(self, item: str) -> str:
        return f"{self.name}[{item}]" if item else self.name

    @property
    def is_copied(self) -> bool:
        """What is no file is in the journal."""
        return self.has_copy or not self.has_file

    def path(self, item: str) -> str:
        return f"{self.name}/{item}.md" if item else f"{self.name}.md"


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


@dataclass
class Work:
    """What is known of a task that was finished once."""

    made_from: str
    output: str
    is_copied: bool
    is_there: bool = True  # its file, whole or edited
    edit: str = ""  # the text as a person left it
    answer: str = ""  # to the question about it
    version: int = 1
    is_adopted: bool = False  # found without a record, and not compared with its inputs yet


@dataclass
class Model:
    """A project: what is wanted, and what has been made."""

    steps: list[Step]
    items: list[str]
    topic: str = "kelp"
    broken: set[str] = field(default_factory=set)
    works: dict[str, Work] = field(default_factory=dict)
    aside: dict[str, set[str]] = field(default_factory=dict)  # what was set aside, and heals what is the same
    asked: set[str] = field(default_factory=set)  # about which the last run has left a question
    may_begin: set[str] | None = None  # all, if not told

    def tasks(self) -> Iterable[tuple[Step, str]]:
        """In an order in which producers come first."""
        return [(step, item) for step in self.steps for item in (self.items if step.has_items else [""])]

    def step(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)

    def producers(self, step: Step, item: str) -> list[str]:
        found = []
        for name in step.takes:
            other = self.step(name)
            mine = [item] if other.has_items and step.has_items else self.items if other.has_items else [""]
            found += [other.task(one) for one in mine]
        return found

    def inputs(self, step: Step, item: str) -> dict[str, Any]:
        """What the function receives; every producer is done."""
        found: dict[str, Any] = {"topic": self.topic} if step.takes_topic else {}
        for name in step.takes:
            other = self.step(name)
            if other.has_items and not step.has_items:
                found[name] = {one: self.works[other.task(one)].output for one in self.items}
            else:
                found[name] = self.works[other.task(item if other.has_items else "")].output
        return found

    def cut_off(self, began: list[str]) -> list[Model]:
        """What may be the case after a run that was cut off: these bodies had begun, one after the other.

        All but the last had ended. The last may be finished, begun, or as good as not begun.
        """
        finished = self._with_made(began)
        begun = self._with_made(began[:-1])
        for task in began[-1:]:
            begun._give_up(task)
        return [finished, begun, self._with_made(began[:-1])]

    def _with_made(self, tasks: list[str]) -> Model:
        """After a run in which no other bodies begin; what needs none is settled, and would be by the next one."""
        other = deepcopy(self)
        other.may_begin = set(tasks)
        other.run()
        other.may_begin = None
        return other

    # --- a run ---------------------------------------------------------------------------------------------

    def run(self) -> tuple[set[str], dict[str, str]]:
        """The tasks whose bodies begin, and how each task stands at the end."""
        ran: set[str] = set()
        standing: dict[str, str] = {}
        for step, item in self.tasks():
            task = step.task(item)
            if all(standing[one] == COMPLETED for one in self.producers(step, item)):
                standing[task] = self._settle(step, item, ran)
            else:
                standing[task] = OPEN if task in self.works else BLOCKED
        self.asked = {task for task, how in standing.items() if how == WAITING}
        return ran, standing

    def _settle(self, step: Step, item: str, ran: set[str]) -> str:
        inputs = self.inputs(step, item)
        made_from, work = digest([inputs, step.version]), self.works.get(step.task(item))
        if work is None or work.answer == "redo" or work.version != step.version:
            return self._make(step, item, inputs, ran)
        if work.made_from != made_from:
            if not work.is_adopted:
                return self._make(step, item, inputs, ran)
            if not work.answer:
                return WAITING
        elif work.edit and not work.answer:
            return WAITING
        is_healed = work.is_copied or work.output in self.aside.get(step.task(item), ())
        if work.answer != "keep" and not is_healed and (work.edit or not work.is_there):
            return self._make(step, item, inputs, ran)
        output = work.edit if work.answer == "keep" and work.edit else work.output
        self.works[step.task(item)] = self._work(step, made_from, output)
        return COMPLETED

    def _work(self, step: Step, made_from: str, output: str) -> Work:
        """Whatever is accepted has a copy afterwards; one that was lost is made again."""
        return Work(made_from, output, step.is_copied, version=step.version)

    def _make(self, step: Step, item: str, inputs: Mapping[str, Any], ran: set[str]) -> str:
        task = step.task(item)
        if self.may_begin is not None and task not in self.may_begin:
            return OPEN
        ran.add(task)
        self._give_up(task)
        if step.name in self.broken:
            return FAILED
        self.works[task] = self._work(step, digest([inputs, step.version]), step.gives(item, inputs))
        return COMPLETED

    def _give_up(self, task: str) -> None:
        """What nothing else has is set aside before it is written over."""
        work = self.works.pop(task, None)
        if work is not None and work.is_there and not work.edit and not work.is_copied:
            self.aside.setdefault(task, set()).add(work.output)

    def lose_record(self) -> None:
        """What has its file is adopted, the rest forgotten."""
        self.asked = set()
        self.works = {task: work for task, work in self.works.items() if work.is_there}
        for work in self.works.values():
            work.is_adopted, work.is_copied = True, False

    def answers(self, task: str) -> list[str]:
        """What may be decided about it."""
        return ["keep", "restore", "redo"] if self.works[task].edit else ["keep", "redo"]
