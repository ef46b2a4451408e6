"""The scheduler: counters over a graph, moved by what happened."""

from __future__ import annotations

from collections.abc import Callable

from holdfast import Pipeline
from holdfast.engine.limits import Limit
from holdfast.engine.retry import may_retry, retry_delay_s
from holdfast.engine.scheduler import Scheduler
from holdfast.pipeline.nodes import HELD, OK, OPEN, SKIPPED, Node
from holdfast.pipeline.spec import LimitSpec
from holdfast.pipeline.unfolding import build_graph


class Fixed:
    """A random number generator that is not."""

    def uniform(self, low: float, high: float) -> float:
        return high


def reviews() -> Pipeline:
    pipe = Pipeline("p")
    pipe.items("ch", ["a", {"id": "b", "after": ["a"]}])

    @pipe.step(each="ch", phase="W")
    def draft(ch: str) -> str: ...

    @pipe.step(each="ch", phase="W")
    def r1(draft: str) -> str: ...

    @pipe.step(each="ch", phase="W")
    def r2(draft: str) -> str: ...

    @pipe.step(phase="B")
    def bind(r1: dict[str, str], r2: dict[str, str]) -> str: ...

    return pipe


class Table:
    """A scheduler whose questions are answered: virtual nodes and phases pass, tasks are queued."""

    def __init__(self, pipe: Pipeline) -> None:
        self.scheduler = Scheduler(build_graph(pipe.compile().spec, {}))
        self.nodes = self.scheduler.graph.nodes
        self.answer()

    def answer(self, of: Callable[[Node], int] = lambda node: OPEN) -> None:
        queue = self.scheduler.to_consider
        while queue:
            node = queue.popleft()
            if node.unmet or node.condition != OPEN or node.running or node.queued:
                continue
            if node.is_task and of(node) == OPEN:
                self.scheduler.enqueue(node)
            else:
                self.scheduler.settle(node)

    def take_all(self) -> list[str]:
        taken = []
        while (node := self.scheduler.take(0.0)) is not None:
            taken.append(node.id)
        return taken

    def finish(self, node_id: str, condition: int = OK) -> None:
        node = self.nodes[node_id]
        self.scheduler.end(node)
        self.scheduler.settle(node, condition)
        self.answer()

    def fail(self, node_id: str) -> None:
        self.scheduler.end(self.nodes[node_id])
        self.scheduler.hold(self.nodes[node_id])
        self.answer()


def test_items_wait_for_the_items_before_them() -> None:
    """The second chapter starts when the first is through with the phase, not before."""
    table = Table(reviews())
    assert table.take_all() == ["draft[a]"]
    table.finish("draft[a]")
    assert table.take_all() == ["r1[a]", "r2[a]"]
    table.finish("r1[a]")
    assert table.take_all() == []
    table.finish("r2[a]")
    assert table.take_all() == ["draft[b]"]


def test_a_task_that_needs_a_person_blocks_what_depends_on_it_and_nothing_else() -> None:
    """The next chapter goes on; binding is blocked; releasing the task unblocks it."""
    table = Table(reviews())
    table.take_all()
    table.finish("draft[a]")
    table.take_all()
    table.finish("r1[a]")
    table.fail("r2[a]")
    assert table.take_all() == ["draft[b]"]
    assert table.nodes["bind"].condition == HELD
    assert not table.nodes["bind"].stuck
    table.scheduler.release(table.nodes["r2[a]"])
    table.answer()
    assert table.nodes["bind"].condition == OPEN
    assert "r2[a]" in table.take_all()


def test_everything_behind_a_held_task_counts_as_settled_for_order() -> None:
    """If the draft needs a person, its reviews are blocked, and the next chapter still starts."""
    table = Table(reviews())
    table.take_all()
    table.fail("draft[a]")
    assert table.nodes["r1[a]"].condition == HELD
    assert table.take_all() == ["draft[b]"]


def test_opening_a_producer_opens_what_consumed_it() -> None:
    """Finished consumers of reopened work are looked at again once it is through, and only then."""
    table = Table(reviews())
    table.take_all()
    table.finish("draft[a]")
    table.take_all()
    table.finish("r1[a]")
    table.finish("r2[a]")
    table.scheduler.recall(table.nodes["draft[a]"])
    assert table.nodes["r1[a]"].condition == OPEN
    assert table.nodes["r1[a]"].unmet == 1
    table.scheduler.rewound(table.nodes["draft[a]"])
    table.answer()
    assert table.take_all()[0] == "draft[a]"
    table.finish("draft[a]")
    assert set(table.take_all()) == {"r1[a]", "r2[a]"}


def test_a_recall_waits_for_started_consumers_and_stops_new_ones() -> None:
    """Sent-back work runs again only when every started consumer has ended."""
    table = Table(reviews())
    table.take_all()
    table.finish("draft[a]")
    first = table.scheduler.take(0.0)
    assert first is not None and first.id == "r1[a]"
    table.scheduler.end(table.nodes["r1[a]"])
    running = table.scheduler.take(0.0)
    assert running is not None and running.id == "r2[a]"
    table.scheduler.recall(table.nodes["draft[a]"])
    table.answer()
    assert list(table.scheduler.recalls_due()) == []
    assert table.take_all() == []
    table.scheduler.end(running)
    due = list(table.scheduler.recalls_due())
    assert [node.id for node in due] == ["draft[a]"]
    table.scheduler.rewound(due[0])
    table.answer()
    assert table.take_all() == ["draft[a]"]


def test_skipped_passes_order_but_is_told_to_consumers() -> None:
    """A skipped producer lets its consumers be considered; what they do about it is the runner's."""
    table = Table(reviews())
    table.take_all()
    table.finish("draft[a]", SKIPPED)
    assert table.nodes["r1[a]"].unmet == 0


def test_half_finished_goes_before_not_started() -> None:
    """Of two equally blocking tasks, the half-finished one starts first."""
    pipe = Pipeline("p")

    @pipe.step
    def one() -> str: ...

    @pipe.step
    def two() -> str: ...

    scheduler = Scheduler(build_graph(pipe.compile().spec, {}))
    scheduler.enqueue(scheduler.graph.nodes["one"])
    scheduler.enqueue(scheduler.graph.nodes["two"], half=True)
    taken = [scheduler.take(0.0), scheduler.take(0.0)]
    assert [node.id for node in taken if node] == ["two", "one"]


def test_a_delayed_task_is_due_when_its_time_has_come() -> None:
    """Back-off holds a task; time alone releases it."""
    table = Table(reviews())
    node = table.scheduler.take(0.0)
    assert node is not None
    table.scheduler.end(node)
    table.scheduler.delay(node, 10.0)
    assert table.scheduler.next_due(4.0) == 6.0
    table.scheduler.release_due(9.9)
    table.answer()
    assert table.take_all() == []
    table.scheduler.release_due(10.0)
    table.answer()
    assert table.take_all() == ["draft[a]"]


def test_a_limit_counts_what_runs_and_what_started_within_a_minute() -> None:
    """Concurrency frees a place when one ends; a rate when its minute is over."""
    limit = Limit(LimitSpec(concurrent=2, per_minute=3))
    for now in (0.0, 1.0):
        assert limit.wait_s(now) == 0.0
        limit.start(now)
    assert limit.wait_s(2.0) is None
    limit.end()
    limit.start(2.0)
    limit.end()
    assert limit.wait_s(3.0) == 57.0
    assert limit.wait_s(60.0) == 0.0


def test_back_off_doubles_and_honours_the_exceptions_wish() -> None:
    """`retry_after` is a floor; garbage in it is ignored."""
    rng = Fixed()
    assert [retry_delay_s(1.0, n, None, rng) for n in (1, 2, 3)] == [1.0, 2.0, 4.0]  # type: ignore[arg-type]
    error = RuntimeError()
    error.retry_after = 30  # type: ignore[attr-defined]
    assert retry_delay_s(1.0, 1, error, rng) == 30.0  # type: ignore[arg-type]
    error.retry_after = "soon"  # type: ignore[attr-defined]
    assert retry_delay_s(1.0, 1, error, rng) == 1.0  # type: ignore[arg-type]


def test_which_errors_are_tried_again() -> None:
    """`retry_on` limits, `no_retry_on` excludes, the number of retries ends it."""

    def again(error: BaseException, failures: int = 1, **only: tuple[type[BaseException], ...]) -> bool:
        facts = {"retry_on": (), "no_retry_on": (), **only}
        return may_retry(error, failures=failures, retries=2, **facts)  # type: ignore[arg-type]

    assert again(ValueError()) and again(ValueError(), 2) and not again(ValueError(), 3)
    assert not again(ValueError(), no_retry_on=(ValueError,))
    assert again(OSError(), retry_on=(OSError,)) and not again(ValueError(), retry_on=(OSError,))


def test_what_runs_is_not_taken_a_second_time() -> None:
    """However often it is looked at: a person may ask for another try of it meanwhile."""
    table = Table(reviews())
    assert table.take_all() == ["draft[a]"]
    table.scheduler.to_consider.append(table.nodes["draft[a]"])
    table.answer()
    assert table.take_all() == []
