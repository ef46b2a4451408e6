"""Random small pipelines and what befalls them, for the properties of the pass (test_pass_properties.py).

pipelines, Step           what is drawn: values, one or two files, made items, gathers, gates, checks, one review
Bodies                    what the steps do, and have done; a text says what it was made from, unless it is blunt
Story                     a project, and what befalls it: commands, kills, losses, damage, edits, changes, answers
  run, recover            each with all that must hold of it
  finish, artifacts       whatever is asked is answered; what there is in the end
"""

from __future__ import annotations

import inspect
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace as in_other_words

from holdfast import Context, Pipeline, Rewind, decisions
from holdfast import events as ev
from holdfast.errors import StorageError, UsageError
from holdfast.project import Project
from holdfast.project.results import PlanResult, RecoveredTask, RecoverResult
from holdfast.project.run import RunResult
from holdfast.state import COMPLETED
from holdfast.views.picture import Picture, answers
from soak.artifacts import authored

from .machine_model import digest
from .projects import failing_from

STEP, ITEMS, GATE = "step", "items", "gate"
FAN = "x"
ANSWERED_MAX = 20
"""So many runs, with all questions answered between them, finish any story."""


@dataclass(frozen=True)
class Step:
    """One step, gate or maker of items, as the pipeline is made from it."""

    name: str
    kind: str = STEP
    takes: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    has_items: bool = False
    files: int = 1
    params: tuple[str, ...] = ()
    is_blunt: bool = False  # what it gives says nothing of its inputs
    has_check: bool = False
    sends_back: bool = False  # what it takes, once
    version: int = 1

    def task(self, item: str) -> str:
        return f"{self.name}[{item}]" if item else self.name

    def writes(self) -> dict[str, str]:
        """Key -> path, as the pipeline has it."""
        stem = f"{self.name}/{self.name}-{{{FAN}}}" if self.has_items else self.name
        return {key: f"{stem}-{key}.md" for key in "ab"[: self.files]}

    def paths(self, item: str) -> list[str]:
        return [path.replace(f"{{{FAN}}}", item) for path in self.writes().values()]


@st.composite
def pipelines(draw: st.DrawFn, *, gates: bool = True, rewinds: bool = False) -> list[Step]:
    """Two to six steps, each from some of those before it."""
    made = [Step("first", params=("p",), files=draw(st.integers(0, 1)))]
    kinds = [*([STEP] * 5), ITEMS, *([GATE] * gates), *(["review"] * rewinds)]
    for number in range(draw(st.integers(1, 5))):
        name, kind = f"s{number}", draw(st.sampled_from(kinds))
        works = [step for step in made if step.kind == STEP and not step.sends_back]
        takes = tuple(draw(st.lists(st.sampled_from([one.name for one in works]), unique=True, max_size=2)))
        params = draw(st.sampled_from([(), ("p",), ("q",)]))
        fan, stops = any(one.kind == ITEMS for one in made), [one.name for one in made if one.kind == GATE]
        if kind == ITEMS and not fan:
            made.append(Step(name, ITEMS, takes, files=0, params=params))
        elif kind == GATE:
            made.append(Step(name, GATE, after=tuple(one.name for one in works)))
        elif kind == "review" and not works[-1].has_items and works[-1].files and not _is_reviewed(made):
            made.append(Step(name, takes=(works[-1].name,), sends_back=True))
        else:
            after = tuple(stops[-1:]) if draw(st.booleans()) else ()
            flags = {name: draw(st.booleans()) for name in ("is_blunt", "has_check")}
            has_items = fan and draw(st.booleans())
            files = draw(st.sampled_from([1, 1, 2, 0]))
            made.append(Step(name, STEP, takes, after, has_items, files, params, **flags))
    return made


def _is_reviewed(steps: Sequence[Step]) -> bool:
    return any(step.sends_back for step in steps)


@dataclass
class Bodies:
    """What the steps do, and what they have done."""

    began: list[tuple[str, str]] = field(default_factory=list)  # task, and the digest of what it was made from
    made: set[bytes] = field(default_factory=set)

    def pipeline(self, steps: Sequence[Step]) -> Pipeline:
        pipe = Pipeline("p", params={"p": (str, "1"), "q": (str, "1")})
        for step in steps:
            if step.kind == GATE:
                pipe.gate(step.name, after=step.after)
            elif step.kind == ITEMS:
                pipe.items(FAN)(self._body(step))
            else:
                options: dict[str, Any] = {"version": step.version, "after": step.after, "retries": 0}
                options |= {"each": FAN} if step.has_items else {}
                options |= {"check": _is_text} if step.has_check and step.files else {}
                paths = step.writes()
                options |= {"writes": paths["a"] if step.files == 1 else paths} if paths else {}
                pipe.step(name=step.name, **options)(self._body(step))
        return pipe

    def _body(self, step: Step) -> Callable[..., Any]:
        def work(ctx: Context, **inputs: Any) -> Any:
            item = inputs.pop(FAN, "")
            made_from = digest([inputs, step.version])
            self.began.append((step.task(item), made_from))
            told = "" if step.is_blunt else made_from
            if step.kind == ITEMS:
                return ["a", {"id": "b", "after": ["a"]}, {"id": "c", "after": ["b"]}][
                    : int(told[:2] or "2", 16) % 3 + 1
                ]
            if step.sends_back and "again" not in str(inputs):
                raise Rewind(step.takes[0], "once more")
            return self._texts(step, f"{step.task(item)} v{step.version} {told}{' again' * bool(ctx.feedback)}")

        names = ["ctx", *step.takes, *step.params, *([FAN] if step.has_items else [])]
        parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
        work.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        work.__name__ = step.name
        return work

    def _texts(self, step: Step, words: str) -> str | dict[str, str]:
        texts = {key: f"{words} part {key}\nand a second line.\n" for key in "ab"[: max(step.files, 1)]}
        self.made |= {text.encode() for text in texts.values()}
        return texts if step.files > 1 else texts["a"]


def _is_text(text: Any) -> str | None:
    return None if text else "there is nothing in it"


class Story:
    """A project, and what befalls it."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps, self.params = list(steps), {"p": "1", "q": "1"}
        self.root = Path(tempfile.mkdtemp(prefix="holdfast-story-"))
        self.bodies = Bodies()
        self.is_lost = False  # since the last complete run. What a lost value was made from cannot be seen:
        self.is_changed = False  # so these two never meet
        self.made_from: dict[str, str] = {}  # task -> what its accepted output was made from, if that is certain
        self.copied: set[str] = set()  # tasks whose copies nobody has touched
        self.seen: dict[str, bytes] = {}  # the files of finished tasks as the last command left them
        self.sent_back: set[str] = set()  # to be done again: a person said so
        self.acknowledged: set[tuple[str, str]] = set()

    # --- what there is -------------------------------------------------------------------------------------

    @property
    def project(self) -> Project:
        return Project.open(self.root)

    @property
    def pipeline(self) -> Pipeline:
        return self.bodies.pipeline(self.steps)

    @property
    def run_id(self) -> str | None:
        """The run on record, if it has a beginning that can be read."""
        for journal in sorted(self.root.glob(".holdfast/runs/*/events.jsonl"), reverse=True):
            if b"\n" in journal.read_bytes():
                return journal.parent.name
        return None

    def picture(self) -> Picture:
        return self.project.picture(self.run_id)[0]

    def step_of(self, task: str) -> Step | None:
        name = task.partition("[")[0]
        return next((step for step in self.steps if step.name == name), None)

    def paths(self, task: str) -> list[str]:
        step, item = self.step_of(task), task.partition("[")[2].rstrip("]")
        return step.paths(item) if step is not None else []

    def files(self) -> list[Path]:
        """Of tasks, as far as they are there."""
        return sorted(path for folder in [self.root, *self._folders()] for path in folder.glob("*-[ab].md"))

    def _folders(self) -> list[Path]:
        return [folder for folder in self.root.iterdir() if folder.is_dir() and folder.name != ".holdfast"]

    def artifacts(self) -> dict[str, bytes]:
        """What the tasks that the run has gave, as it was returned."""
        paths = [path for task in self.picture().tasks for path in self.paths(task)]
        return {path: authored((self.root / path).read_bytes()) for path in paths}

    # --- commands ------------------------------------------------------------------------------------------

    def run(self, number: int = 0) -> RunResult:
        """With all that must hold of it: what `plan` said of it, and that nothing is done for nothing."""
        plan = self.plan()
        before, began = self._content(), len(self.bodies.began)
        work, copied, again = dict(self.made_from), set(self.copied), set(self.sent_back)
        result = self._run()
        ran = self.bodies.began[began:]
        if not any(step.sends_back for step in self.steps):
            self._check_plan(plan, {task for task, _ in ran}, result)
            certain = {task: made_from for task, made_from in work.items() if task not in again}
            self._check_no_waste(before, certain, copied, ran)
        self._settled(result.picture)
        if result.status == "completed":
            self.is_lost = self.is_changed = False
        return result

    def plan(self) -> PlanResult:
        return self.project.plan(self.pipeline, params=self.params, resume=self.run_id)

    def _run(self) -> RunResult:
        began = dict[str, str]()
        start = len(self.bodies.began)

        def heard(one: Any) -> None:
            event = one.event
            if isinstance(event, ev.NodeExited) and event.status == COMPLETED:
                began.update(self.bodies.began[start:])
                task = event.step_id
                self.made_from[task] = began[task]
                self.copied.add(task)
                self.acknowledged.add((task, began[task]))

        try:
            return self.project.run(
                self.pipeline, resume=self.run_id, params=self.params, concurrency=2, on_event=heard
            )
        finally:
            for task, made_from in self.bodies.began[start:]:
                if (task, made_from) not in self.acknowledged:
                    self.made_from.pop(task, None)  # it may have landed, or not
            self.sent_back.clear()

    def recover(self, number: int = 0) -> RecoverResult | None:
        """As its dry run says; a second one finds nothing to do."""
        foreseen = self._recover(dry_run=True)
        before, promised = self._content(), self.plan()
        done = self._recover()
        assert worded(foreseen) == worded(done), f"{foreseen.tasks}\n{done.tasks}"
        changed = differing(before, self._content())
        listed = {path for one in foreseen.actions for path in (one.path, one.to)}
        assert changed <= listed, f"done, and not foreseen: {changed - listed}"
        if done.run_id is None:
            assert not changed
            return None
        self._settled(self.picture())
        plan = self.plan()
        if promised.run_id == done.run_id:  # recovery believes that there was a run also where only a page says so
            assert standings(plan) == standings(promised), f"{plan.tasks}\n{promised.tasks}"
        whole = everything(self.root)
        again = self._recover()
        assert again.events == 0
        written = differing(whole, everything(self.root))
        assert not written, f"written by a second recovery: {written}"
        assert standings(again) == standings(done), f"{again.tasks}\n{done.tasks}"
        return done

    def _recover(self, *, dry_run: bool = False) -> RecoverResult:
        params = self.params if self.run_id is None else {}  # those on record
        return self.project.recover(self.pipeline, params=params, dry_run=dry_run)

    def kill(self, number: int) -> None:
        """A run, or a recovery, whose disk gives out for good at some operation: nothing is done after it."""
        with failing_from(number % 80 + 1, torn=number % 3 == 0), suppress(StorageError):
            self._recover() if number % 4 == 0 else self._run()

    # --- mishaps -------------------------------------------------------------------------------------------

    def lose(self, number: int) -> None:
        """The record, with the copies or without."""
        if self.is_changed or not self.seen:
            return
        gone = self.root / ".holdfast" if number % 3 else self.root / ".holdfast" / "runs"
        shutil.rmtree(gone, ignore_errors=True)
        self.is_lost = True
        self.copied.clear()
        for task in list(self.made_from):
            paths = self.paths(task)
            if not paths or any(self._content().get(path) != self.seen.get(path) for path in paths):
                del self.made_from[task]

    def lose_copies(self, number: int) -> None:
        """All of them, or one pack is damaged."""
        objects = self.root / ".holdfast" / "objects"
        self.copied = {task for task in self.copied if not self.paths(task)}
        packs = sorted(objects.rglob("*.pack"))
        if number % 2 and packs:
            packs[number % len(packs)].write_bytes(b"rotten")
        else:
            shutil.rmtree(objects, ignore_errors=True)

    def damage(self, number: int) -> None:
        if not (files := self.files()):
            return
        path, other = files[number % len(files)], files[number // 7 % len(files)]
        data = path.read_bytes()
        hows = [b"", b"\0" * 40 + data[40:], data[: len(data) // 2], other.read_bytes(), data[:10]]
        path.unlink() if number % 3 == 0 else path.write_bytes(hows[number // 3 % len(hows)])

    def spoil_seal(self, number: int) -> None:
        """Only the last line is gone."""
        if files := self.files():
            path = files[number % len(files)]
            path.write_bytes(authored(path.read_bytes()))

    def edit(self, number: int) -> None:
        if files := self.files():
            path = files[number % len(files)]
            path.write_bytes(f"somebody wrote {number % 4}\n".encode() + path.read_bytes())

    def change(self, number: int) -> None:
        """A parameter. Not of a lost run: its files are not taken over with other parameters."""
        if not self.is_lost and self.run_id is not None:
            self.params["pq"[number % 2]] = "12"[number // 2 % 2]
            self.is_changed = True

    def raise_version(self, number: int) -> None:
        if self.is_lost or self.run_id is None:
            return
        place = number % len(self.steps)
        if self.steps[place].kind == STEP:
            self.steps[place] = replace(self.steps[place], version=self.steps[place].version + 1)
            self.is_changed = True

    # --- words of people -----------------------------------------------------------------------------------

    def answer(self, number: int) -> None:
        """Whatever is asked, with one of the answers that bring back what the steps made."""
        for task, choices in self.questions().items():
            wanted = [choice for choice in choices if choice in ("restore", "redo")]
            choice = wanted[number % len(wanted)]
            if self.say(task, choice) and choice == "redo":
                self.sent_back.add(task)

    def say(self, task: str, choice: str) -> bool:
        """Answer; False if it is refused, because it would change nothing."""
        try:
            self.project.decide(task, choice, run_id=self.run_id)
        except UsageError:
            return False
        return True

    def questions(self) -> dict[str, tuple[str, ...]]:
        """Task -> what may be answered."""
        if self.run_id is None:
            return {}
        picture = self.picture()
        asked = {task: answers(picture.record(task)) for task in picture.tasks}
        return {task: choices for task, choices in asked.items() if choices}

    def approve(self, number: int = 0) -> None:
        gates = [step.name for step in self.steps if step.kind == GATE]
        for gate in gates if self.run_id is not None else []:
            self.project.approve(gate, run_id=self.run_id)

    def finish(self) -> None:
        """Whatever is asked is answered, until nothing is."""
        for number in range(ANSWERED_MAX):
            result = self.run()
            if result.status == "completed":
                return
            self.answer(number)
            self.approve()
        raise AssertionError(f"not finished: {result}")

    # --- what must hold ------------------------------------------------------------------------------------

    def _settled(self, picture: Picture) -> None:
        """What is trusted has bytes that a body made. Behind what is open or asked about nobody has looked yet."""
        is_open = {
            task.partition("[")[0]
            for task in picture.tasks
            if picture.status(task) != COMPLETED or picture.record(task).question
        }
        is_open |= {gate for gate, how in picture.state.gates.items() if how != "approved"}
        for step in self.steps:
            fan = {one.name for one in self.steps if one.kind == ITEMS and step.has_items}
            is_open |= {step.name} if is_open & {*step.takes, *step.after, *fan} else set()
        for task in picture.tasks:
            for path in self.paths(task) if task.partition("[")[0] not in is_open else []:
                assert authored((self.root / path).read_bytes()) in self.bodies.made, (
                    f"damaged, and trusted: {path}"
                )
                self.seen[path] = (self.root / path).read_bytes()

    def _content(self) -> dict[str, bytes]:
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in self.files()}

    def _check_plan(self, plan: PlanResult, ran: set[str], result: RunResult) -> None:
        told = {task.id: task for task in plan.tasks}
        may = {task for task, one in told.items() if one.action in decisions.RUNS}
        sure = {task for task in may if not told[task].if_different}
        new = {task for task in ran - told.keys() if plan.unknown_items and self.step_of(task).has_items}  # type: ignore[union-attr]
        assert ran <= may | new, f"ran, and not said: {[told.get(task, task) for task in ran - may - new]}"
        if result.status == "completed":
            assert sure <= ran, f"said to run, and did not: {[told[task] for task in sure - ran]}"

    def _check_no_waste(
        self, before: dict[str, bytes], work: dict[str, str], copied: set[str], ran: Sequence[tuple[str, str]]
    ) -> None:
        """No body ran whose output was there, in place or as a copy, made from the same."""
        for task, made_from in ran:
            if work.get(task) != made_from:
                continue
            paths = self.paths(task)
            is_there = all(path in before and before[path] == self.seen.get(path) for path in paths)
            assert not (is_there or task in copied), f"{task} ran for nothing"


def differing(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    """The files that are in only one of them, or are other ones."""
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


def standings(told: PlanResult | RecoverResult) -> dict[str, str]:
    """Whether each task is trusted, asked about, or runs, surely or perhaps; not what was done for that."""
    trusted = (decisions.TRUST, decisions.HEAL, decisions.ADOPT)
    how = {
        task.id: ("trust" if task.action in trusted else "ask" if task.action == decisions.ASK else "run")
        for task in told.tasks
    }
    return {task.id: f"{how[task.id]}{' perhaps' * task.if_different}" for task in told.tasks}


def worded(told: RecoverResult) -> list[RecoveredTask]:
    """What is told of each task; a command in it names the run only where that has a folder beside others."""
    return [in_other_words(task, reason=re.sub(r" --run \S+", "", task.reason)) for task in told.tasks]


def everything(root: Path) -> dict[str, bytes]:
    """All files and what is in them; of a database the rows."""
    return {str(path.relative_to(root)): _content_of(path) for path in sorted(root.rglob("*")) if path.is_file()}


def _content_of(path: Path) -> bytes:
    if path.suffix != ".db":
        return path.read_bytes()
    with closing(sqlite3.connect(path)) as db:
        return "\n".join(db.iterdump()).encode()
