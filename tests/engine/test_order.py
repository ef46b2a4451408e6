"""What may start when: gates, phases, batches, nested items, limits."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from harness import PATIENCE_S, Harness, in_thread
from holdfast import Context, Pipeline, clock
from holdfast.engine.attempt import Attempts
from holdfast.engine.limits import Limit
from holdfast.engine.runner import Runner
from holdfast.errors import StorageError

from .projects import waiting_pipeline


def gated(*, blocking: bool = True) -> tuple[Pipeline, list[str]]:
    pipe, ran = Pipeline("p"), list[str]()

    @pipe.step
    def first() -> int:
        ran.append("first")
        return 1

    pipe.gate("ok", after=["first"], ask="Read it", blocking=blocking)

    @pipe.step(after=["ok"])
    def last() -> int:
        ran.append("last")
        return 2

    return pipe, ran


def test_a_gate_waits_between_runs(tmp_path: Path) -> None:
    """Paused at the gate, exit 3; approved, the next run goes on and does nothing twice."""
    pipe, ran = gated()
    result = pipe.run(dir=tmp_path)
    assert (result.status, result.exit_code, ran) == ("paused", 3, ["first"])
    Harness(tmp_path).append(event="gate_approved", step_id="ok")
    assert pipe.run(dir=tmp_path).status == "completed"
    assert ran == ["first", "last"]


def test_a_gate_is_approved_while_the_engine_runs(tmp_path: Path) -> None:
    """An approval from outside is heard with the next commit, without a restart."""
    pipe, ran = gated(blocking=False)

    @pipe.step(after=["first"])
    def approver(ctx: Context) -> None:
        Harness(tmp_path).append(event="gate_approved", step_id="ok")

    assert pipe.run(dir=tmp_path).status == "completed"
    assert ran == ["first", "last"]


def test_an_approval_is_heard_while_everything_else_is_busy(tmp_path: Path) -> None:
    """What stands behind the gate starts beside a step that goes on: nobody has to wait for that to end."""
    pipe, published = Pipeline("p"), threading.Event()

    @pipe.step
    def first() -> int:
        return 1

    pipe.gate("ok", after=["first"])

    @pipe.step
    def publish(first: int) -> None:
        published.set()

    @pipe.step
    def slow() -> bool:
        while not Harness(tmp_path).events("gate_reached"):
            pass
        Harness(tmp_path).append(event="gate_approved", step_id="ok")
        return published.wait(PATIENCE_S / 2)

    result = in_thread(lambda: pipe.run(dir=tmp_path))
    assert (result.status, result.outputs["slow"]) == ("completed", True)


def test_a_gate_that_was_passed_asks_again_when_work_is_sent_back_in_its_name(tmp_path: Path) -> None:
    """Also in the engine that let it pass: what is redone is not published unseen."""
    pipe, made, published = Pipeline("p"), SimpleQueue[str](), SimpleQueue[str]()

    @pipe.step
    def first(ctx: Context) -> str:
        made.put("; ".join(ctx.feedback))
        return f"round {ctx.round}"

    pipe.gate("ok", after=["first"])

    @pipe.step
    def publish(first: str) -> None:
        published.put(first)

    @pipe.step
    def slow() -> list[str]:
        while not Harness(tmp_path).events("gate_reached"):
            pass
        Harness(tmp_path).append(event="gate_approved", step_id="ok")
        seen = [made.get(timeout=PATIENCE_S / 4), published.get(timeout=PATIENCE_S / 4)]
        Harness(tmp_path).append(event="rewind_requested", step_id="ok", targets={"first": "nicer"})
        return [*seen, made.get(timeout=PATIENCE_S / 4)]

    result = in_thread(lambda: pipe.run(dir=tmp_path))
    assert result.outputs["slow"] == ["", "round 0", "nicer"]
    assert [need.task for need in result.picture.needs()] == ["ok"]
    assert (result.status, published.empty()) == ("paused", True)


def test_a_phase_waits_for_all_before_it_and_for_its_checklist(tmp_path: Path) -> None:
    """A refused checklist pauses the run with its reason; when it passes, the phase begins."""
    pipe, ran, ready = Pipeline("p"), [], []

    def is_ready() -> str | None:
        return None if ready else "the glossary is missing"

    @pipe.step(phase="Writing")
    def write() -> None:
        ran.append("write")

    @pipe.step(phase="Writing")
    def polish() -> None:
        ran.append("polish")

    @pipe.step(phase="Binding")
    def bind() -> None:
        ran.append("bind")

    pipe.phase("Writing")
    pipe.phase("Binding", checklist=[is_ready])
    result = pipe.run(dir=tmp_path)
    assert (result.status, sorted(ran)) == ("paused", ["polish", "write"])
    assert Harness(tmp_path).events("checklist_refused")[0]["reasons"] == ["the glossary is missing"]
    ready.append(1)
    assert pipe.run(dir=tmp_path).status == "completed"
    assert ran[-1] == "bind"


def test_a_phase_that_a_person_let_pass_begins_like_any_other(tmp_path: Path) -> None:
    """That it began is on record and told, and from then on it is the phase that is on."""
    pipe = Pipeline("p")
    pipe.step(name="write", phase="Writing")(lambda: 1)
    pipe.step(name="bind", phase="Binding")(lambda: 2)
    pipe.phase("Binding", checklist=[lambda: "not yet"])
    assert pipe.run(dir=tmp_path).picture.phase == "Writing"
    Harness(tmp_path).append(event="gate_approved", step_id="phase:Binding")
    result = pipe.run(dir=tmp_path)
    assert (result.status, result.picture.phase) == ("completed", "Binding")
    begun = [event["step_id"] for event in Harness(tmp_path).events("phase_started")]
    assert begun == ["phase:Writing", "phase:Binding"]


@pytest.mark.parametrize(
    "items",
    [
        [{"id": "a", "after": ["b"]}, {"id": "b", "after": ["c"]}, "c"],
        [{"id": "a", "batch": 3}, {"id": "b", "batch": 2}, {"id": "c", "batch": 1}],
    ],
)
def test_items_follow_each_other_within_a_phase(tmp_path: Path, items: list[object]) -> None:
    """`after` and batches hold back an item's tasks of the phase until the earlier ones' are done."""
    pipe, ran = Pipeline("p"), list[str]()
    pipe.items("n", items)

    @pipe.step(each="n", phase="Writing")
    def one(ctx: Context) -> None:
        ran.append(ctx.task_id)

    @pipe.step(each="n", phase="Writing", after=["one"])
    def two(ctx: Context) -> None:
        ran.append(ctx.task_id)

    assert pipe.run(dir=tmp_path, concurrency=8).status == "completed"
    assert ran == ["one[c]", "two[c]", "one[b]", "two[b]", "one[a]", "two[a]"]


def test_items_that_a_gate_makes_wait_for_each_other_are_named(tmp_path: Path) -> None:
    """Where only the items that a function makes show it, the run ends as failed, and says what waits for what."""
    assert waiting_pipeline().run(dir=tmp_path).status == "failed"
    reason = Harness(tmp_path).events("run_stopped")[-1]["reason"]
    assert reason.startswith("these wait for each other: review[a] -> ok -> draft[b] -> review[a]; change")
    assert waiting_pipeline("Two").run(dir=tmp_path).status == "paused"


def batched(*, made: bool, **options: Any) -> Pipeline:
    """Two batches of drafts, a gate after each of them, and steps that come after the gate and after another."""
    pipe = Pipeline("p")
    items = [{"id": "a", "batch": 1}, {"id": "b", "batch": 2}]

    def ns() -> list[dict[str, Any]]:
        return items

    if made:
        pipe.items("n")(ns)
    else:
        pipe.items("n", items)

    @pipe.step
    def plan() -> str:
        return "plan"

    @pipe.step(each="n", phase="One")
    def draft(n: str) -> str:
        return n

    pipe.gate("look", each="n", **options)

    @pipe.step(after=["look"])
    def publish(plan: str) -> str:
        return plan

    return pipe


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("options", [{}, {"after": ["plan"]}, {"after": ["draft"]}, {"blocking": False}])
def test_a_step_after_a_gate_of_batches_waits_for_the_gate_after_each(
    tmp_path: Path, made: bool, options: dict[str, Any]
) -> None:
    """Every gate that holds something is one that a person is told of: none stands beside those of batches."""
    gates = ["look[batch-1]", "look[batch-2]"]
    for gate in gates:
        result = batched(made=made, **options).run(dir=tmp_path)
        assert result.status == "paused"
        asked = [need.task for need in result.picture.needs()]
        assert asked == ([gate] if options.get("blocking", True) else gates[gates.index(gate) :])
        assert "publish" not in result.outputs
        Harness(tmp_path).append(event="gate_approved", step_id=gate)
    assert batched(made=made, **options).run(dir=tmp_path).status == "completed"


def test_a_gate_of_batches_holds_the_next_batch_in_the_phase_of_what_it_comes_after(tmp_path: Path) -> None:
    """Not in the first phase, which the steps that it waits for come after: that would be a loop."""
    pipe = Pipeline("p")
    pipe.items("n", [{"id": "a", "batch": 1}, {"id": "b", "batch": 2}])

    @pipe.step(each="n", phase="Research")
    def look(n: str) -> str:
        return n

    @pipe.step(each="n", phase="Writing")
    def write(look: str) -> str:
        return look

    @pipe.step(each="n", phase="Binding")
    def bind(write: str) -> str:
        return write

    pipe.gate("read", each="n", after=["write"])
    done = [({"a", "b"}, {"a"}, set()), ({"a", "b"}, {"a", "b"}, set())]
    for number, expected in enumerate(done, 1):
        outputs = pipe.run(dir=tmp_path).outputs
        assert tuple(set(outputs.get(step, {})) for step in ("look", "write", "bind")) == expected
        Harness(tmp_path).append(event="gate_approved", step_id=f"read[batch-{number}]")
    assert pipe.run(dir=tmp_path).status == "completed"


@pytest.mark.parametrize(
    "items", [["a", {"id": "b", "after": ["a"]}], [{"id": "a", "batch": 1}, {"id": "b", "batch": 2}]]
)
def test_the_order_of_a_later_phase_does_not_keep_inner_items_from_an_earlier_one(
    tmp_path: Path, items: list[object]
) -> None:
    """Items follow each other within each phase, also where a function makes the items inside of them."""
    pipe, ran = Pipeline("p"), list[str]()
    pipe.items("x", items)

    @pipe.items("y", each="x")
    def ys(x: str) -> list[str]:
        return ["p", "q"]

    @pipe.step(each="y", phase="One")
    def first(ctx: Context) -> int:
        ran.append(ctx.task_id)
        return 1

    @pipe.step(each="y", phase="Two")
    def second(ctx: Context, first: int) -> int:
        ran.append(ctx.task_id)
        return 2

    assert pipe.run(dir=tmp_path, concurrency=1).status == "completed"
    places = [(step, x) for step in ("first", "second") for x in "ab" for _ in "pq"]
    assert [(task.partition("[")[0], task.partition("[")[2][0]) for task in ran] == places


def test_nested_fan_out(tmp_path: Path) -> None:
    """Items within items: task ids name both, and a gather outside receives dicts of dicts in order."""
    pipe = Pipeline("p")
    pipe.items("topic", ["t1", "t2"])

    @pipe.items("url", each="topic")
    def urls(topic: str) -> list[str]:
        return ["u2", "u1"] if topic == "t1" else []

    @pipe.step(each="url", writes="{topic}/{url}.md")
    def scrape(ctx: Context, topic: str, url: str) -> str:
        return f"{ctx.task_id}\n"

    @pipe.step
    def gather(scrape: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        return scrape

    result = pipe.run(dir=tmp_path)
    gathered = result.outputs["gather"]
    assert gathered == {"t1": {"u2": "scrape[t1/u2]\n", "u1": "scrape[t1/u1]\n"}, "t2": {}}
    assert list(gathered["t1"]) == ["u2", "u1"]


def test_a_named_limit_holds_for_all_its_steps(tmp_path: Path) -> None:
    """However wide the run, no more than the limit are inside at once."""
    pipe = Pipeline("p", limits={"model": 2})
    pipe.items("n", [f"i{n}" for n in range(8)])
    inside, most, lock, pair = [0], [0], threading.Lock(), threading.Barrier(2)

    @pipe.step(each="n", limit="model")
    def step() -> None:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        pair.wait(20)  # passes only if two are inside together
        with lock:
            inside[0] -= 1

    assert in_thread(lambda: pipe.run(dir=tmp_path, concurrency=8)).status == "completed"
    assert most == [2]


def test_a_rate_spreads_starts_over_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five starts at two a minute need two more minutes, of a clock that runs a thousand times as fast."""
    real = clock.monotonic
    began = real()
    monkeypatch.setattr(clock, "monotonic", lambda: began + (real() - began) * 1000)
    pipe, starts = Pipeline("p", limits={"api": {"per_minute": 2}}), list[float]()
    pipe.items("n", [f"i{n}" for n in range(5)])
    start = Limit.start

    def noted(limit: Limit, now: float) -> None:
        starts.append(now)  # when it was let go; when its thread gets to run is up to the machine
        start(limit, now)

    monkeypatch.setattr(Limit, "start", noted)

    @pipe.step(each="n", limit="api")
    def step() -> None:
        return None

    # The engine sleeps in real seconds, so something else has to wake it: a step that commits as time goes by.
    @pipe.step
    def waker(ctx: Context) -> None:
        pause = threading.Event()
        while len(starts) < 5:
            pause.wait(0.005)
            ctx.log("tick")

    assert in_thread(lambda: pipe.run(dir=tmp_path, concurrency=8)).status == "completed"
    assert starts[2] - starts[0] >= 60 and starts[4] - starts[2] >= 60


def test_others_may_speak_while_a_checklist_is_asked(tmp_path: Path) -> None:
    """It may take its time: neither the journal nor other steps wait for it."""
    pipe, other_ran = Pipeline("p"), threading.Event()

    @pipe.step(phase="one")
    def first() -> int:
        return 1

    @pipe.step
    def other(first: int) -> int:
        other_ran.set()
        return first

    def asks_around() -> bool:
        Harness(tmp_path).append(event="note", text="said while it was asked")
        return other_ran.wait(PATIENCE_S)

    pipe.phase("two", checklist=[asks_around])

    @pipe.step(phase="two")
    def second(first: int) -> int:
        return first + 1

    assert in_thread(lambda: pipe.run(dir=tmp_path)).status == "completed"
    noted, started = (Harness(tmp_path).events(name)[-1]["seq"] for name in ("note", "phase_started"))
    assert noted < started


def test_a_checklist_is_asked_again_if_what_it_looked_at_was_done_again_meanwhile(tmp_path: Path) -> None:
    """Its answer was about what nobody has any more."""
    pipe, runs, asked = Pipeline("p"), [], []
    again = threading.Event()

    @pipe.step(phase="one")
    def first() -> int:
        runs.append(1)
        if len(runs) == 2:
            again.set()
        return len(runs)

    def is_second(first: int) -> bool:
        asked.append(first)
        if first == 1:
            Harness(tmp_path).append(event="rewind_requested", step_id="", targets={"first": "better"})
            assert again.wait(PATIENCE_S)
        return first == 2

    pipe.phase("two", checklist=[is_second])

    @pipe.step(phase="two")
    def second(first: int) -> int:
        return first

    result = in_thread(lambda: pipe.run(dir=tmp_path))
    assert (result.status, result.outputs["second"], asked) == ("completed", 2, [1, 2])
    assert not Harness(tmp_path).events("checklist_refused")


def test_a_checklist_that_cannot_be_asked_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails under it is told as what it is."""
    pipe = Pipeline("p")

    @pipe.step(phase="one")
    def first() -> int:
        return 1

    pipe.phase("two", checklist=[lambda first: first == 1])

    @pipe.step(phase="two")
    def second(first: int) -> int:
        return first

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "a.md")

    monkeypatch.setattr(Attempts, "run_checks", fail)
    assert isinstance(in_thread(lambda: pipe.run(dir=tmp_path)), StorageError)


def test_a_run_that_was_stopped_between_two_phases_says_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The phase that could begin was not looked at any more; the pages name its step all the same."""
    pipe, handled, stop = Pipeline("p"), threading.Event(), Runner.stop

    def stop_and_tell(runner: Runner) -> None:
        stop(runner)
        handled.set()

    monkeypatch.setattr(Runner, "stop", stop_and_tell)
    pipe.phase("One")
    pipe.phase("Two", checklist=[lambda ctx: None])

    @pipe.step(phase="One")
    def first() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        assert handled.wait(PATIENCE_S)
        return "first"

    @pipe.step(phase="Two")
    def second(first: str) -> str:
        return first

    assert pipe.run(dir=tmp_path, run_id="r").status == "in_progress"
    (document,) = tmp_path.glob(".holdfast/runs/*/checkpoint.json")
    assert json.loads(document.read_text())["next_step"] == "second"
    assert Harness(tmp_path).picture("r").next_steps() == ["second"]
