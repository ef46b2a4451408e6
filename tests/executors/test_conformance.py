"""What every executor does: threads, event loop and worker processes pass one suite."""

from __future__ import annotations

import importlib.util
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from holdfast import Context
from holdfast import events as ev
from holdfast.engine.host import StepHost
from holdfast.errors import StorageError
from holdfast.executors.loop import LoopExecutor
from holdfast.executors.processes import ProcessExecutor
from holdfast.executors.protocol import Call, Executor, Handle, Outcome
from holdfast.executors.threads import ThreadExecutor
from holdfast.host import Facts
from holdfast.testing import MemoryRecorder, context

PATIENCE_S = 60.0
WIDTH = 3

# Every body is a coroutine function for the loop, and a plain one that runs the same for the others.
WORK = """
import asyncio, functools, inspect, logging, os, signal, threading
from pathlib import Path
from holdfast import Pipeline

pipe, coroutines = Pipeline("work"), {}

def body(fn):
    coroutines[fn.__name__] = fn

    @functools.wraps(fn)
    def plain(*args, **given):
        return asyncio.run(fn(*args, **given))

    del plain.__wrapped__
    plain.__signature__ = inspect.signature(fn)
    return pipe.step(executor="process")(plain)

@body
async def value(given: object = None): return given

@body
async def fails(): raise KeyError("no such thing")

@body
async def gives_a_set(): return {1}

@body
async def where():
    await asyncio.sleep(0.001)
    return [os.getpid(), threading.get_ident()]

@body
async def waits(begun: str = "", go: str = ""):
    Path(begun).touch()
    while not Path(go).exists():
        await asyncio.sleep(0.01)
    return "went"

@body
async def dies():
    if os.environ.get("ENGINE") != str(os.getpid()):
        os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit(7)

@body
async def speaks(ctx):
    async def pay():
        ctx.usage(cost_usd=0.25, input_tokens=2, model="m")
        return b"bytes"

    paid = [ctx.once("sync", lambda: {"n": 1}), (await ctx.once("async", pay)).decode()]
    ctx.usage(cost_usd=0.5)
    ctx.write("half ")
    ctx.write("more")
    ctx.note("a note", impact="some")
    ctx.decision("what", "why")
    ctx.section("text", title="Title", sources=["one"])
    ctx.log("logged", n=1)
    ctx.tag(colour="red")
    logging.getLogger("own").warning("half of %d", 7)
    ctx.out.write_text("large")
    return {"paid": paid, "out": ctx.out}

@body
async def sees(ctx):
    facts = [ctx.run_id, ctx.task_id, ctx.item, ctx.params, str(ctx.dir), ctx.attempt, ctx.round]
    return [*facts, ctx.feedback, ctx.partial, ctx.previous]

@body
async def asks(ctx, method: str = "", given: list = []):
    try:
        getattr(ctx, method)(*[len if word == "CALL" else word for word in given])
    except Exception as error:
        return [type(error).__name__, str(error)]
"""


class Bench:
    """One executor, and the bodies that it runs."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        path = folder / "work.py"
        path.write_text(WORK)
        spec = importlib.util.spec_from_file_location("conformance_work", path)
        assert spec is not None and spec.loader is not None
        self._work = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self._work)
        self.threads = ThreadExecutor(WIDTH)
        self.executor: Executor = self.threads
        if kind == "loop":
            self.executor = LoopExecutor(self.threads)
        if kind == "processes":
            self.executor = ProcessExecutor(self.threads, f"{path}:pipe")

    def submit(
        self, name: str, host: StepHost | None = None, timeout: float | None = None, **given: Any
    ) -> Handle:
        fn = self._work.coroutines[name] if self.kind == "loop" else getattr(self._work, name)
        if host is not None:
            given["ctx"] = Context(host, host.facts)
        return self.executor.submit(Call(fn, given, timeout, name, task=f"task-{name}"), host)

    def run(self, name: str, host: StepHost | None = None, timeout: float | None = None, **given: Any) -> Outcome:
        return outcome_of(self.submit(name, host, timeout, **given))

    def close(self) -> None:
        self.executor.close()
        self.threads.close()


def outcome_of(handle: Handle) -> Outcome:
    outcomes: SimpleQueue[Outcome] = SimpleQueue()
    handle.done(outcomes.put)
    return outcomes.get(timeout=PATIENCE_S)


def until(condition: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE_S * 100)):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")


@pytest.fixture(params=["threads", "loop", "processes"])
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    import os

    monkeypatch.setenv("ENGINE", str(os.getpid()))
    made = Bench(request.param, tmp_path)
    yield made
    made.close()


def host_of(**given: Any) -> tuple[StepHost, MemoryRecorder]:
    ctx = context(task_id="task", **given)
    host = ctx._host
    assert isinstance(host, StepHost)
    return host, ctx.recorder


def test_a_value_comes_back(bench: Bench) -> None:
    """With the time that it took, and nothing wrong."""
    outcome = bench.run("value", given={"text": "t", "list": [1, None]})
    assert (outcome.value, outcome.error, outcome.broke_off) == ({"text": "t", "list": [1, None]}, None, False)
    assert outcome.has_begun and not outcome.cancelled and not outcome.timed_out and outcome.duration > 0


def test_an_exception_is_an_outcome(bench: Bench) -> None:
    """Its type can be told, whoever raised it."""
    outcome = bench.run("fails")
    assert outcome.broke_off and "no such thing" in str(outcome.error)
    names = getattr(outcome.error, "kinds", None) or [kind.__name__ for kind in type(outcome.error).__mro__]
    assert "LookupError" in names


def test_what_is_no_json_is_never_taken_for_something_else(bench: Bench) -> None:
    """It comes back as it is, for the engine to refuse, or is refused where it would have to cross a pipe."""
    outcome = bench.run("gives_a_set")
    assert outcome.value == {1} or "value is a set" in str(outcome.error)


def test_a_body_whose_time_is_up_is_told(bench: Bench, tmp_path: Path) -> None:
    """Ended, or `late` where it cannot be ended; there `done` follows, and others come in meanwhile."""
    late, outcomes = threading.Event(), SimpleQueue[Outcome]()
    handle = bench.submit("waits", None, 0.2, begun=str(tmp_path / "begun"), go=str(tmp_path / "go"))
    handle.done(outcomes.put, late.set)
    if bench.kind == "threads":
        assert late.wait(PATIENCE_S) and outcomes.empty()
        (tmp_path / "go").touch()
        assert outcomes.get(timeout=PATIENCE_S).value == "went"
        return
    outcome = outcomes.get(timeout=PATIENCE_S)
    assert outcome.timed_out and isinstance(outcome.error, TimeoutError) and not late.is_set()
    assert bench.run("value", given=1).value == 1


def test_a_body_that_ends_in_time_is_not_late(bench: Bench) -> None:
    """Its deadline goes with it."""
    late, outcomes = threading.Event(), SimpleQueue[Outcome]()
    bench.submit("value", None, PATIENCE_S, given=1).done(outcomes.put, late.set)
    assert outcomes.get(timeout=PATIENCE_S).value == 1
    assert not late.is_set()


def test_a_cancelled_call_ends_and_says_so(bench: Bench, tmp_path: Path) -> None:
    """At once where it can be ended; a thread gives up its place, and its outcome counts as cancelled."""
    handles = [
        bench.submit("waits", begun=str(tmp_path / f"begun{number}"), go=str(tmp_path / "go"))
        for number in range(WIDTH)
    ]
    until(lambda: len(list(tmp_path.glob("begun*"))) == WIDTH)
    handles[0].cancel()
    assert bench.run("value", given=1).value == 1
    if bench.kind == "threads":
        (tmp_path / "go").touch()
    outcome = outcome_of(handles[0])
    assert outcome.cancelled and not outcome.broke_off
    (tmp_path / "go").touch()
    assert [outcome_of(handle).value for handle in handles[1:]] == ["went"] * (WIDTH - 1)


def test_a_call_that_has_not_begun_can_be_cancelled(bench: Bench, tmp_path: Path) -> None:
    """It never begins; the others are not disturbed."""
    handles = [
        bench.submit("waits", begun=str(tmp_path / f"begun{number}"), go=str(tmp_path / "go"))
        for number in range(WIDTH)
    ]
    last = bench.submit("waits", begun=str(tmp_path / "never"), go=str(tmp_path / "go"))
    last.cancel()
    assert outcome_of(last).cancelled
    assert bench.kind == "loop" or not (tmp_path / "never").exists()
    (tmp_path / "go").touch()
    assert [outcome_of(handle).value for handle in handles] == ["went"] * WIDTH


def test_a_body_that_dies_costs_nobody_else_anything(bench: Bench) -> None:
    """A worker that was killed, or a body that exits, is a failure of its own call."""
    others = [bench.submit("value", given=number) for number in range(5)]
    outcome = bench.run("dies")
    assert outcome.broke_off
    if bench.kind == "processes":
        assert f"signal {signal.SIGKILL.value}" in str(outcome.error)
    assert [outcome_of(other).value for other in others] == [0, 1, 2, 3, 4]
    assert bench.run("value", given="next").value == "next"


def test_a_context_has_all_its_methods(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """What is said inside arrives in order, also with the host in another process; logs are handled here."""
    host, recorder = host_of()
    value = bench.run("speaks", host).value
    assert value == {"paid": [{"n": 1}, "bytes"], "out": host.given_out}
    paid = [event for event in recorder.events if isinstance(event, ev.OnceRecorded)]
    assert [(event.key, event.kind, event.awaited, event.spent) for event in paid] == [
        ("sync", "json", False, 0.0),
        ("async", "bytes", True, 0.25),
    ]
    assert [type(event).__name__ for event in recorder.events] == [
        "OnceRecorded",
        "UsageRecorded",
        "OnceRecorded",
        "UsageRecorded",
        "NoteAdded",
        "DecisionMade",
        "SectionWritten",
        "Logged",
        "Tagged",
    ]
    usages = [event for event in recorder.events if isinstance(event, ev.UsageRecorded)]
    assert [(event.once, event.inside, event.cost_usd) for event in usages] == [
        ("async", True, 0.25),
        ("async", False, 0.5),
    ]
    assert (host.booked_usd, host.booked_tokens) == (0.75, 2)
    assert (recorder.written, host.stream_size, host.streamed) == ("half more", 9, True)
    assert host.given_out is not None and host.given_out.read_text() == "large"
    assert "half of 7" in caplog.text


def test_a_context_says_where_it_is(bench: Bench) -> None:
    """Everything that a step can read of its place in the run, and what was sent back."""
    given = {"item": {"id": "a", "n": 1}, "params": {"p": 1}, "dir": "/x", "attempt": 2, "round": 1}
    host, _ = host_of(run_id="r", feedback=["shorter"], partial="half", previous="before", **given)
    outcome = bench.run("sees", host)
    facts = ["r", "task", {"id": "a", "n": 1}, {"p": 1}, "/x", 2, 1]
    assert outcome.value == [*facts, ["shorter"], "half", "before"]


def test_a_kept_call_is_replayed_and_never_made(bench: Bench) -> None:
    """Its key then counts as used: by this body, and by a check that comes after it."""
    host, recorder = host_of(once={"sync": "old", "async": b"old"})
    bench.run("speaks", host)
    assert not [event for event in recorder.events if isinstance(event, ev.OnceRecorded)]
    told = bench.run("asks", host, method="once", given=["sync", "CALL"]).value
    assert told[0] == "HoldfastError" and "used twice in one round" in told[1]


@pytest.mark.parametrize(
    ("method", "given", "words"),
    [
        ("note", [7], "text must be text, not 7"),
        ("once", ["key"], "missing"),
        ("once", ["key", 7], "needs a function to call"),
        ("usage", [], None),
        ("write", ["text"], "attempt is over"),
        ("note", ["text"], "attempt is over"),
        ("once", ["key", "CALL"], "attempt is over"),
    ],
)
def test_what_is_refused_is_refused_alike(bench: Bench, method: str, given: list[Any], words: str | None) -> None:
    """A mistake is told where it is made; an attempt that is over can say nothing any more."""
    host, recorder = host_of()
    if words == "attempt is over":
        host.end("this attempt is over")
    told = bench.run("asks", host, method=method, given=given).value
    assert (told is None) if words is None else (words in told[1])
    assert len(recorder.events) == (words is None)


def test_what_the_machine_does_to_a_host_is_noted_there(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The body may take it for a failure of its own: the engine knows better."""
    host, recorder = host_of()

    def full(*_: object) -> None:
        raise StorageError("The disk is full.")

    monkeypatch.setattr(recorder, "stream", full)
    told = bench.run("asks", host, method="write", given=["text"]).value
    assert told[0] == "StorageError" and isinstance(host.hit, StorageError)


def test_a_thousand_at_once(bench: Bench) -> None:
    """Coroutines share one thread; of threads and processes there are never more than the executor is wide."""
    handles = [bench.submit("where") for _ in range(1000)]
    places = [tuple(outcome_of(handle).value) for handle in handles]
    processes, threads = {pid for pid, _ in places}, set(places)
    assert len(processes) <= (WIDTH if bench.kind == "processes" else 1)
    assert len(threads) <= (1 if bench.kind == "loop" else WIDTH)


def test_an_outcome_is_told_once_and_what_follows_is_submitted_then(bench: Bench) -> None:
    """That is what a chain lives from."""
    told, over = list[Any](), threading.Event()

    def done(outcome: Outcome) -> None:
        told.append(outcome.value)
        if len(told) == 10:
            over.set()
        else:
            bench.submit("value", given=len(told)).done(done)

    bench.submit("value", given=0).done(done)
    assert over.wait(PATIENCE_S)
    assert told == list(range(10))


def test_what_follows_an_outcome_may_block(bench: Bench) -> None:
    """Other calls go on meanwhile. Of coroutines one thread tells all: there it holds up the others' outcomes."""
    blocked, may_go_on = threading.Event(), threading.Event()

    def done(_: Outcome) -> None:
        blocked.set()
        assert may_go_on.wait(PATIENCE_S)

    bench.submit("value", given="first").done(done)
    assert blocked.wait(PATIENCE_S)
    beside = bench.submit("value", given="beside")
    if bench.kind != "loop":
        assert outcome_of(beside).value == "beside"
    may_go_on.set()
    if bench.kind == "loop":
        assert outcome_of(beside).value == "beside"


def test_nothing_begins_after_the_end(bench: Bench) -> None:
    """What is submitted then is cancelled."""
    bench.run("value", given=1)
    bench.close()
    assert outcome_of(bench.submit("value", given=2)).cancelled


def test_facts_have_a_place_for_all_that_a_context_shows() -> None:
    """What stands there crosses the pipe; a new field would have to, too."""
    shown = {"run_id", "task_id", "dir", "item", "params", "attempt", "round", "feedback", "partial", "streams"}
    assert set(Facts.__struct_fields__) == shown
