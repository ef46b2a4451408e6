"""What the pass promises, over random small pipelines and histories: the seven properties.

1. It ends: no task takes sixteen actions where the disk keeps still.
2. A dry run says what is then done, and `plan` what then runs.
3. A second recovery finds nothing to do.
4. What is trusted was made by a body; nothing runs for nothing; after a kill nothing acknowledged is made again.
5. Whatever happened, all comes out as an undisturbed run makes it.
6. A lost run is read once.
7. Of several answers the last one counts.

HOLDFAST_PASS_EXAMPLES=N tries so many examples of each. What fails is printed with the example that shows it.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from holdfast.engine.advance import ACTIONS_MAX, Pass
from holdfast.stores import readable

from .pass_stories import GATE, ITEMS, Step, Story, pipelines

pytestmark = pytest.mark.usefixtures("unsynced")

EXAMPLES = os.environ.get("HOLDFAST_PASS_EXAMPLES", "")
MISHAPS = ("lose", "lose_copies", "damage", "damage", "spoil_seal", "edit", "change", "raise_version")
COMMANDS = ("run", "run", "recover", "recover", "kill", "kill", "answer", "approve")


def many(count: int) -> settings:
    return settings(
        max_examples=int(EXAMPLES or count),
        derandomize=not EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        phases=[Phase.generate, *([] if EXAMPLES else [Phase.shrink])],
    )


def histories(names: tuple[str, ...], most: int) -> st.SearchStrategy[list[tuple[str, int]]]:
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, 999)), max_size=most)


@contextmanager
def told(steps: list[Step], history: list[tuple[str, int]] = []) -> Iterator[Story]:  # noqa: B006
    """A project that all of this befell."""
    story = Story(steps)
    try:
        for name, number in history:
            getattr(story, name)(number)
        yield story
    finally:
        shutil.rmtree(story.root)


@many(10)
@given(pipelines(rewinds=True), histories(MISHAPS + COMMANDS, 8))
def test_every_history_comes_out_as_if_nothing_had_happened(
    steps: list[Step], history: list[tuple[str, int]]
) -> None:
    with told(steps, [("run", 0), *history]) as story:
        story.finish()
        with told(story.steps) as undisturbed:
            undisturbed.params = story.params
            undisturbed.finish()
            assert story.artifacts() == undisturbed.artifacts()
        assert story.project.verify().findings == []


@many(5)
@given(pipelines(), histories(("kill", "kill", "kill", "recover", "approve"), 8))
def test_what_was_acknowledged_is_never_made_again(steps: list[Step], history: list[tuple[str, int]]) -> None:
    with told(steps) as story:
        for name, number in [*history, ("run", 0)]:
            known, began = set(story.acknowledged), len(story.bodies.began)
            getattr(story, name)(number)
            assert not known & set(story.bodies.began[began:])


@many(5)
@given(pipelines(), histories(MISHAPS + COMMANDS, 6))
def test_no_task_takes_sixteen_actions(steps: list[Step], history: list[tuple[str, int]]) -> None:
    """Nor half of them: the question that ends a chase is never asked where the disk keeps still."""
    most: list[int] = []
    with counting_acts(most), told(steps, [("run", 0), *history]) as story:
        story.recover()
    assert max(most, default=0) < ACTIONS_MAX


@many(10)
@given(pipelines(gates=False))  # behind a gate: see below
def test_a_lost_run_is_read_once(steps: list[Step]) -> None:
    """Where nothing is wrong: each file is read once, each task adopted once, and no body with files runs.

    Beside that, the last lines of a few files tell which run it is.
    """
    with told(steps) as story:
        story.finish()
        assume(story.seen)  # nothing tells of a run without files
        story.lose(1)
        names = {path.name for path in story.files()}
        with counting_reads(names) as read:
            recovered = story.project.recover(story.pipeline, params=story.params)
        behind = [
            path for task in recovered.tasks if task.if_different for path in story.paths(task.id)
        ]  # see below
        assert not {name for name, times in read.items() if times > 1} - {Path(path).name for path in behind}
        events = [line.event() for line in story.project.events(story.run_id)]
        adopted = Counter(event["step_id"] for event in events if event["event"] == "task_adopted")
        assert not [task for task, times in adopted.items() if times > 1]
        whole = {task.id for task in recovered.tasks if story.paths(task.id)}
        assert whole <= adopted.keys()
        began = len(story.bodies.began)
        story.run()
        assert not [task for task, _ in story.bodies.began[began:] if story.paths(task)]


@many(8)
@given(
    pipelines(),
    st.lists(st.sampled_from(["keep", "restore"]), min_size=1, max_size=3),  # a redo before others: see below
    st.sampled_from(["keep", "restore", "redo"]),
    st.integers(0, 999),
)
def test_the_last_answer_counts(steps: list[Step], before: list[str], last: str, number: int) -> None:
    """Whatever was said before it: the same bodies run, the same files are there, each task stands the same.

    What is refused was not said.
    """
    assert after_answers(steps, [*before, last], number) == after_answers(steps, [last], number)


def after_answers(steps: list[Step], answers: list[str], number: int) -> tuple[Any, ...]:
    """What comes of an edit about which all of these are said; only the last accepted one may count."""
    with told(steps) as story:
        story.finish()
        story.edit(number)
        story.project.recover(story.pipeline)
        for answer, task in itertools.product(answers, list(story.questions())):
            story.say(task, answer)
        began = len(story.bodies.began)
        picture = story.project.run(story.pipeline, resume=story.run_id, params=story.params).picture
        stand = {task: (picture.status(task), picture.record(task).question) for task in picture.tasks}
        return sorted(story.bodies.began[began:]), story.artifacts(), stand


PLAIN = [Step("first"), Step("second", takes=("first",))]
GATED = [PLAIN[0], Step("look", GATE, after=("first",)), Step("second", takes=("first",), after=("look",))]


@pytest.mark.xfail(strict=True, reason="a gate is proved to be passed by reading what is behind it")
def test_what_is_behind_a_gate_is_read_once() -> None:
    with told(GATED) as story:
        story.finish()
        story.lose(1)
        with counting_reads({"second-a.md"}) as read:
            story.project.recover(story.pipeline)
        assert read == {"second-a.md": 1}


@pytest.mark.xfail(strict=True, reason="what is behind a value that comes back is decided about twice")
def test_what_is_behind_a_lost_value_is_read_once() -> None:
    value, second = Step("value", files=0), Step("second", takes=("value",))
    with told([value, second, Step("items", ITEMS, takes=("value",), files=0)]) as story:
        story.finish()
        story.lose(1)
        with counting_reads({"second-a.md"}) as read:
            story.project.recover(story.pipeline)
        assert read == {"second-a.md": 1}


@pytest.mark.xfail(strict=True, reason="the engine's pass reads again what the rebuilding one read")
def test_a_run_that_begins_with_a_loss_reads_each_file_once() -> None:
    with told(PLAIN) as story:
        story.finish()
        story.lose(1)
        with counting_reads({"first-a.md", "second-a.md"}) as read:
            story.project.run(story.pipeline)
        assert read == {"first-a.md": 1, "second-a.md": 1}


@pytest.mark.parametrize("answer", ["keep", "restore"])
def test_a_redo_can_be_taken_back(answer: str) -> None:
    assert after_answers(PLAIN, ["redo", answer], 0) == after_answers(PLAIN, [answer], 0)


def test_a_redo_after_a_keep_can_be_taken_back() -> None:
    assert after_answers(PLAIN, ["keep", "redo", "keep"], 0) == after_answers(PLAIN, ["keep"], 0)


@contextmanager
def counting_acts(most: list[int]) -> Iterator[None]:
    """How often each settling of a task acted."""
    settle, act = Pass.settle, Pass.act

    def settling(self: Pass, *args: Any) -> Any:
        most.append(0)
        return settle(self, *args)

    def acting(self: Pass, *args: Any) -> bool:
        most[-1] += 1
        return act(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pass, "settle", settling)
        patch.setattr(Pass, "act", acting)
        yield


@contextmanager
def counting_reads(names: set[str]) -> Iterator[Counter[str]]:
    """How often each file with one of these names is read from its beginning."""
    read, real = Counter[str](), readable.read_at

    def counted(path: str, **how: Any) -> bytes:
        read[Path(path).name] += Path(path).name in names
        return real(path, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readable, "read_at", counted)
        yield read
