"""Random pipelines, and random things that happen to them, against a small model of what must follow."""

from __future__ import annotations

import inspect
import os
import shutil
import tempfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from harness import Harness, RunResult
from holdfast import Pipeline
from holdfast.errors import StorageError
from holdfast.views.picture import Picture

from .machine_model import COMPLETED, FAILED, OPEN, WAITING, Model, Step
from .projects import failing_from

TOPICS = ("kelp", "sand", "foam")
ENDS = {COMPLETED: "completed", FAILED: "failed", WAITING: "paused"}


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    """Two to five steps, each from some of those before it."""
    made: list[Step] = []
    for number in range(draw(st.integers(2, 5))):
        before = [step.name for step in made]
        takes = draw(st.lists(st.sampled_from(before), unique=True, max_size=3)) if before else []
        flags = [draw(st.booleans()) for _ in range(5)]
        made.append(Step(f"s{number}", tuple(takes), *flags))
    return made


def declared(model: Model, began: list[str]) -> Pipeline:
    """The pipeline that the model is a model of."""
    pipe = Pipeline("p", params={"topic": (str, "kelp")})
    pipe.items("x", list(model.items))
    for step in model.steps:
        options: dict[str, Any] = {"version": step.version, "retries": 0}
        if step.has_items:
            options["each"] = "x"
        if step.has_file:
            options |= {"writes": step.path("{x}" if step.has_items else ""), "copy": step.has_copy}
        pipe.step(name=step.name, **options)(body(step, step.name in model.broken, began))
    return pipe


def body(step: Step, is_broken: bool, began: list[str]) -> Callable[..., str]:
    def work(**inputs: Any) -> str:
        item = inputs.pop("x", "")
        began.append(step.task(item))
        if is_broken:
            raise RuntimeError("out of order")
        return step.gives(item, inputs)

    names = [*step.takes, *(["topic"] if step.takes_topic else []), *(["x"] if step.has_items else [])]
    work.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    )
    return work


def how_it_stands(picture: Picture, task: str) -> str:
    return WAITING if picture.record(task).question else picture.status(task)


class Machine(RuleBasedStateMachine):
    """A project in a folder, and its model."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.model = Model([], [])
        self.run_id = ""
        self.topic_on_record = ""
        self.possible: list[Model] = []  # after a run that was cut off

    @initialize(drawn=steps())
    def begin(self, drawn: list[Step]) -> None:
        self.model = Model(drawn, ["a", "b"])

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    # --- what happens --------------------------------------------------------------------------------------

    @rule()
    def run(self) -> None:
        """Exactly the bodies that must begin do, and every task stands and gives as it must."""
        began: list[str] = []
        result = self.start(began)
        self.run_id, self.topic_on_record = result.run_id, self.model.topic
        (ran, standing), self.model = self.fitting(began)
        assert sorted(began) == sorted(ran)
        known = {task: how for task, how in standing.items() if how != OPEN}
        assert {task: how_it_stands(result.picture, task) for task in known} == known
        worst = next((how for how in (FAILED, WAITING) if how in standing.values()), COMPLETED)
        assert result.status == ENDS[worst]
        if worst == COMPLETED:
            self.check_outputs()

    def start(self, began: list[str]) -> RunResult:
        pipe, resume = declared(self.model, began), self.run_id if self.is_on_record() else None
        return pipe.run({"topic": self.model.topic}, dir=self.root, resume=resume, concurrency=1)

    def is_on_record(self) -> bool:
        """Whether the run can be named: one that was cut off before its first line cannot."""
        journal = self.root / ".holdfast" / "runs" / self.run_id / "events.jsonl"
        return journal.is_file() and b"\n" in journal.read_bytes()

    def fitting(self, began: list[str]) -> tuple[tuple[set[str], dict[str, str]], Model]:
        """What the model says of a run, the one of several that fits what happened, if there is one."""
        said = [(model.run(), model) for model in map(deepcopy, self.possible or [self.model])]
        self.possible = []
        return next((one for one in said if one[0][0] == set(began)), said[0])

    @rule(operation=st.integers(1, 60))
    def run_until_the_disk_fails(self, operation: int) -> None:
        """From some operation on; what was done until then is done, and the next run goes on there."""
        began: list[str] = []
        with failing_from(operation):
            try:
                self.run_id = self.start(began).run_id
            except StorageError:
                pass
        self.possible = self.model.cut_off(began)
        self.run_id = self.run_id or next((path.name for path in (self.root / ".holdfast" / "runs").glob("*")), "")
        self.run()

    def check_outputs(self) -> None:
        findings = Harness(self.root).verify(self.run_id).findings
        assert not findings, findings
        for step, item in self.model.tasks():
            if step.has_file:
                text = (self.root / step.path(item)).read_text()
                assert text.startswith(self.model.works[step.task(item)].output)

    @precondition(lambda self: self.is_on_record() or not self.model.works)
    @rule(topic=st.sampled_from(TOPICS))
    def change_topic(self, topic: str) -> None:
        """Not of a lost run: its files are not taken over with other parameters."""
        self.model.topic = topic

    @rule(data=st.data())
    def raise_version(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.model.steps)).version += 1

    @rule(data=st.data())
    def break_or_mend(self, data: st.DataObject) -> None:
        self.model.broken ^= {data.draw(st.sampled_from(self.model.steps)).name}

    @rule()
    def change_items(self) -> None:
        self.model.items = ["a", "b"] if "c" in self.model.items else ["a", "b", "c"]

    def files(self) -> list[tuple[str, Path]]:
        """Of finished tasks: those that are there, and as they were accepted."""
        return [
            (step.task(item), self.root / step.path(item))
            for step, item in self.model.tasks()
            if step.has_file
            and (work := self.model.works.get(step.task(item)))
            and work.is_there
            and not work.edit
        ]

    @precondition(lambda self: self.files())
    @rule(data=st.data(), is_deleted=st.booleans())
    def damage(self, data: st.DataObject, is_deleted: bool) -> None:
        task, path = data.draw(st.sampled_from(self.files()))
        path.unlink() if is_deleted else path.write_bytes(path.read_bytes()[:10])
        self.model.works[task].is_there = False

    @precondition(lambda self: self.files())
    @rule(data=st.data())
    def edit(self, data: st.DataObject) -> None:
        task, path = data.draw(st.sampled_from(self.files()))
        work = self.model.works[task]
        work.edit = f"somebody wrote this\n{work.output}"
        path.write_text(f"somebody wrote this\n{path.read_text()}")

    @precondition(lambda self: not self.asked())
    @rule()
    def lose_copies(self) -> None:
        shutil.rmtree(self.root / ".holdfast" / "objects", ignore_errors=True)
        for step, item in self.model.tasks():
            if step.has_file and (work := self.model.works.get(step.task(item))):
                work.is_copied = False

    @precondition(lambda self: self.files() and self.is_on_record() and not self.asked() and not self.is_said())
    @rule(data=st.data())
    def send_back(self, data: st.DataObject) -> None:
        """Somebody wants a finished task done again, and so it is, once."""
        task, _ = data.draw(st.sampled_from(self.files()))
        Harness(self.root).decide(task, "redo", run_id=self.run_id)
        self.model.works[task].answer = "redo"

    @precondition(lambda self: self.is_all_in_files())
    @rule()
    def lose_record(self) -> None:
        """All of .holdfast: what proves itself is trusted as before."""
        shutil.rmtree(self.root / ".holdfast", ignore_errors=True)
        self.model.lose_record()

    def is_said(self) -> bool:
        """Whether a person's words wait for the next run."""
        return any(work.edit or work.answer for work in self.model.works.values())

    def is_all_in_files(self) -> bool:
        """Whether nothing is lost with the record but copies: neither values, nor what somebody has said."""
        is_new_topic = self.topic_on_record != self.model.topic
        return all(step.has_file for step in self.model.steps) and not self.is_said() and not is_new_topic

    @precondition(lambda self: self.asked())
    @rule(data=st.data())
    def decide(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(self.asked()))
        choice = data.draw(st.sampled_from(self.model.answers(task)))
        Harness(self.root).decide(task, choice, run_id=self.run_id)
        self.model.works[task].answer = choice
        self.model.asked.remove(task)

    def asked(self) -> list[str]:
        return sorted(self.model.asked)


EXAMPLES = os.environ.get("HOLDFAST_MACHINE_EXAMPLES", "")
TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=int(EXAMPLES or "30"),
    derandomize=not EXAMPLES,  # those who look for faults ask for more, and for others each time
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)
