"""The graph of tasks: who waits for whom, with given and made items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast import Pipeline
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.nodes import batch_numbers, split_task_id, task_id
from holdfast.pipeline.unfolding import build_graph


def waits_for(graph: Graph, node_id: str) -> set[str]:
    return {n.id for n in graph.nodes.values() for consumer, _ in n.consumers if consumer.id == node_id}


def two_level() -> Pipeline:
    pipe = Pipeline("p")

    @pipe.step
    def plan() -> dict[str, Any]: ...

    @pipe.items("topic")
    def topics(plan: dict[str, Any]) -> list[str]: ...

    @pipe.step(each="topic")
    def search(topic: str, plan: dict[str, Any]) -> dict[str, Any]: ...

    @pipe.items("url", each="topic")
    def urls(search: dict[str, Any]) -> list[str]: ...

    @pipe.step(each="url")
    def scrape(url: str, search: dict[str, Any]) -> str: ...

    @pipe.step(each="topic")
    def digest(scrape: dict[str, str]) -> str: ...

    @pipe.step
    def report(scrape: dict[str, dict[str, str]], digest: dict[str, str]) -> str: ...

    return pipe


def test_task_ids_are_taken_apart_as_they_were_put_together() -> None:
    """Ids of nested items carry the whole path."""
    assert task_id("scrape", ("st-1", "u3")) == "scrape[st-1/u3]"
    assert split_task_id("scrape[st-1/u3]") == ("scrape", ("st-1", "u3"))
    assert split_task_id("plan") == ("plan", ())


def test_before_its_items_are_known_a_gather_waits_for_their_maker() -> None:
    """Nothing can gather a part: the gather holds an edge from the items function."""
    graph = build_graph(two_level().compile().spec, {})
    assert {n.id for n in graph.tasks()} == {"plan", "topics", "report"}
    assert waits_for(graph, "report") == {"scrape[*]", "digest[*]"}
    assert waits_for(graph, "scrape[*]") == {"topics"}


def test_items_unfold_level_by_level() -> None:
    """Inner items are made per outer item; gathers of each level take exactly their own."""
    spec = two_level().compile().spec
    graph = build_graph(spec, {"topics": [{"id": "a"}, {"id": "b"}], "urls[a]": [{"id": "u1"}, {"id": "u2"}]})
    assert {"scrape[a/u1]", "scrape[a/u2]", "urls[b]", "digest[a]", "digest[b]"} <= set(graph.nodes)
    assert "scrape[b/u1]" not in graph.nodes
    assert waits_for(graph, "scrape[a/*]") == {"urls[a]", "scrape[a/u1]", "scrape[a/u2]"}
    assert waits_for(graph, "digest[b]") == {"topics", "scrape[b/*]"}
    assert waits_for(graph, "scrape[*]") == {"topics", "scrape[a/*]", "scrape[b/*]"}
    assert waits_for(graph, "scrape[a/u1]") == {"urls[a]", "search[a]"}


def test_batches_are_given_or_the_depth_in_after() -> None:
    """Without given batches, an item's batch is how deep it stands in `after`."""
    chain = [{"id": "a"}, {"id": "b", "after": ["a"]}, {"id": "c", "after": ["b", "a"]}]
    assert batch_numbers(chain) == {"a": 1, "b": 2, "c": 3}
    assert batch_numbers([{"id": "a", "batch": 4}, {"id": "b", "batch": 2}]) == {"a": 4, "b": 2}


def test_items_that_come_after_all_before_them_have_batches_soon() -> None:
    """Each item is worked out once, in whatever order they stand: a list of a thousand takes no minute."""
    names = [f"i{number}" for number in range(300)]
    looks = 0

    class Before(list[str]):
        def __iter__(self) -> Iterator[str]:
            nonlocal looks
            looks += 1
            return super().__iter__()

    items = [{"id": name, "after": Before(names[:number])} for number, name in enumerate(names)]
    assert batch_numbers(items[::-1]) == {name: number for number, name in enumerate(names, 1)}
    assert looks <= 4 * len(names)


def test_after_orders_items_within_a_phase_only() -> None:
    """A task with a phase waits for the earlier item's tasks of that phase; one without waits for its inputs."""
    pipe = Pipeline("p")
    pipe.items("ch", ["a", {"id": "b", "after": ["a"]}])

    @pipe.step(each="ch", phase="W")
    def draft(ch: str) -> str: ...

    @pipe.step(each="ch", phase="W")
    def review(draft: str) -> str: ...

    @pipe.step(each="ch")
    def free(draft: str) -> str: ...

    graph = build_graph(pipe.compile().spec, {})
    assert waits_for(graph, "draft[b]") == {"phase:W", "order:W:ch[a]"}
    assert waits_for(graph, "order:W:ch[a]") == {"draft[a]", "review[a]"}
    assert waits_for(graph, "free[b]") == {"draft[b]"}


def test_a_phase_waits_for_all_of_the_phase_before() -> None:
    """Tasks, fan-outs and blocking gates of the phase before hold the next one back."""
    pipe = Pipeline("p")
    pipe.items("ch", ["a"])

    @pipe.step(each="ch", phase="W")
    def draft(ch: str) -> str: ...

    @pipe.step(phase="B")
    def bind(draft: dict[str, str]) -> str: ...

    pipe.gate("read_it", phase="W")
    graph = build_graph(pipe.compile().spec, {})
    assert waits_for(graph, "phase:B") == {"phase:W", "draft[*]", "read_it"}
    assert waits_for(graph, "read_it") == {"draft[*]"}
    assert waits_for(graph, "bind") == {"draft[*]", "phase:B"}


def test_a_blocking_gate_holds_what_depends_on_the_steps_it_comes_after() -> None:
    """`publish` takes assemble's output, so it waits for the gate; a non-blocking gate holds nothing."""
    for blocking, held in ((True, {"assemble", "ok"}), (False, {"assemble"})):
        pipe = Pipeline("p")

        @pipe.step
        def assemble() -> str: ...

        @pipe.step
        def publish(assemble: str) -> str: ...

        pipe.gate("ok", after=["assemble"], blocking=blocking)
        assert waits_for(build_graph(pipe.compile().spec, {}), "publish") == held


def test_a_blocking_gate_holds_a_function_that_makes_items() -> None:
    """Whatever is made from a plan that nobody has approved waits, also the items that a function makes of it."""
    pipe = Pipeline("p")

    @pipe.step
    def seed() -> list[str]: ...

    @pipe.items("x")
    def xs(seed: list[str]) -> list[str]: ...

    @pipe.items("y", each="x")
    def ys(x: str) -> list[str]: ...

    @pipe.step(each="x")
    def draft(x: str) -> str: ...

    pipe.gate("plan_ok", after=["seed"])
    pipe.gate("items_ok", after=["xs"])
    graph = build_graph(pipe.compile().spec, {"xs": [{"id": "a"}]})
    assert waits_for(graph, "xs") == {"seed", "plan_ok"}
    assert waits_for(graph, "draft[a]") == {"xs", "items_ok"}
    assert waits_for(graph, "ys[a]") == {"xs", "items_ok"}


def test_what_blocks_most_ranks_first() -> None:
    """A root of many outranks a leaf, and an item that others wait for outranks them."""
    pipe = Pipeline("p")
    pipe.items("ch", ["a", {"id": "b", "after": ["a"]}])

    @pipe.step
    def outline() -> str: ...

    @pipe.step
    def alone() -> str: ...

    @pipe.step(each="ch", phase="W")
    def draft(ch: str, outline: str) -> str: ...

    nodes = build_graph(pipe.compile().spec, {}).nodes
    assert nodes["outline"].rank > nodes["draft[a]"].rank > nodes["draft[b]"].rank
    assert nodes["alone"].rank == 0
