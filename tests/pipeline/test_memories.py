"""Memory steps in a pipeline: what may be declared, and who waits for which sections."""

from __future__ import annotations

from typing import Any

import pytest
from declaring import only, told

from holdfast import Pipeline
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.nodes import items_before
from holdfast.pipeline.spec import Source
from holdfast.pipeline.unfolding import build_graph

CHAIN: list[Any] = ["a", {"id": "b", "after": ["a"]}, {"id": "c", "after": ["b"]}]


def with_memory(items: Any = CHAIN, **options: Any) -> Pipeline:
    """A pipeline with `draft` and `final` of each part, `opening` before them, and a memory step `terms`."""
    pipe = Pipeline("p", params={"lang": (str, "en")})
    pipe.items("part", items)
    pipe.step(name="opening")(lambda: "x")
    pipe.step(name="draft", each="part", writes="{part}-d.md")(lambda part: part)
    pipe.step(name="final", each="part", writes="{part}-f.md")(lambda draft: draft)
    fn = options.pop("fn", lambda source: source)
    memory = {"name": "terms", "each": "part", "appends": "meta/terms.md", "sources": ["final", "draft"]}
    pipe.step(**{**memory, **options})(fn)
    return pipe


def waits_for(graph: Graph, node_id: str) -> set[str]:
    return {n.id for n in graph.nodes.values() for consumer, _ in n.consumers if consumer.id == node_id}


def test_a_memory_step_that_is_sound() -> None:
    """File, sources and head are in the spec; the marker is named after the step."""
    spec = with_memory(head="opening").compile().spec
    step = spec.memories[0]
    assert (step.appends, step.material, step.head) == ("meta/terms.md", ("final", "draft"), "opening")
    assert step.marker == "TERMS_COMPLETE"
    assert step.sources == {"source": Source("source", "source")}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"appends": 5}, "appends= must be a path"),
        ({"writes": "{part}.md"}, "writes= and appends="),
        ({"appends": "terms.txt"}, "must end in one of .md .markdown"),
        ({"appends": "terms/{part}.md"}, "is another file for every part"),
        ({"appends": "../terms.md"}, "leaves the project"),
        ({"appends": "{lnag}.md"}, "unknown field {lnag}. Did you mean lang?"),
        ({"copy": False}, "copy=False does not go with appends="),
        ({"sources": ["fnal"]}, "sources='fnal' names no step. Did you mean final?"),
        ({"sources": "opening"}, "is not a step of the same items"),
        ({"sources": "terms"}, "is the step itself"),
        ({"sources": 5}, "sources= must be text"),
        ({"head": "openin"}, "head='openin' names no step. Did you mean opening?"),
        ({"head": "draft"}, "runs once per part"),
        ({"sources": []}, "parameter source is what a memory step is made from"),
    ],
)
def test_a_memory_step_that_is_not(options: dict[str, Any], expected: str) -> None:
    """Each mistake is told at load, naming step and option, with what to do."""
    lines = told(with_memory(**options))
    assert any(line.startswith("step terms: ") and expected in line for line in lines)


def test_a_memory_step_needs_items() -> None:
    """Without each= there is nothing to have a section of."""
    pipe = Pipeline("p")
    pipe.step(name="terms", appends="terms.md")(lambda: "x")
    assert "appends= needs each=" in only(pipe)


@pytest.mark.parametrize("option", ["sources", "head"])
def test_sources_and_head_belong_to_memory_steps(option: str) -> None:
    """Given to another step they would do nothing, so they are a mistake."""
    assert f"{option}= goes with appends=" in only(
        with_memory(appends=None, fn=lambda part: part, **{"sources": (), option: "draft"})
    )


def test_all_mistakes_of_a_memory_step_are_told_at_once() -> None:
    """Three wrong options give three lines."""
    assert len(told(with_memory(sources=["no"], head="no", copy=False))) >= 3


def test_two_steps_do_not_share_a_memory_file() -> None:
    """Neither two memory steps, nor a memory step and one that writes, nor one that reads it."""
    pipe = with_memory()
    pipe.step(name="more", each="part", appends="META/terms.md")(lambda part: part)
    pipe.step(name="whole", writes="meta/terms.md")(lambda: "x")
    pipe.step(name="reader", reads="meta/terms.md")(lambda: "x")
    lines = told(pipe)
    assert [line.split(":")[0] for line in lines] == ["step more", "step whole", "step reader"]


def test_a_memory_step_returns_text() -> None:
    """A memory step that returns something else, by its own annotation, is a mistake."""
    assert "appends= needs text" in only(with_memory(fn=_gives_a_number, head="opening"))


def _gives_a_number(source: str) -> int: ...


def test_source_means_one_thing() -> None:
    """With a step or a run parameter of that name, `source` would be ambiguous."""
    pipe = with_memory()
    pipe.step(name="source")(lambda: "x")
    assert "parameter source is ambiguous" in only(pipe)


def test_a_check_may_take_the_sections_that_its_step_takes() -> None:
    """Other sections need not be there yet."""
    pipe = with_memory()
    pipe.step(name="later", each="part", check=lambda output, terms: True)(lambda part: part)
    assert "takes the sections of terms, which need not be there yet" in only(pipe)


def test_earlier_sections_are_no_loop() -> None:
    """The step that a memory is made from may take the sections of the items before its own."""
    pipe = Pipeline("p")
    pipe.items("part", CHAIN)
    pipe.step(name="draft", each="part")(lambda terms: terms)
    pipe.step(name="terms", each="part", appends="t.md", sources="draft")(lambda source, terms: source)
    assert pipe.compile().spec.steps[0].sources == {"terms": Source("memory", "terms")}


def test_sections_that_wait_for_all_items_are_told() -> None:
    """A memory of a later phase cannot be there while the earlier one goes on."""
    pipe = Pipeline("p")
    pipe.items("part", CHAIN)
    pipe.step(name="draft", each="part", phase="Write")(lambda terms: "x")
    pipe.step(name="terms", each="part", phase="Polish", appends="t.md", sources="draft")(lambda source: source)
    assert only(pipe).startswith("step draft: takes the sections of terms, which wait for phase Polish")


# --- the graph -------------------------------------------------------------------------------------------


def graph_of(items: Any) -> Graph:
    pipe = with_memory(items, head="opening")
    pipe.step(name="later", each="part")(lambda terms: terms)
    pipe.step(name="index")(lambda terms: terms)
    return build_graph(pipe.compile().spec, {})


def test_a_section_waits_for_its_sources_and_the_head() -> None:
    """By order, not by data: a source that was skipped does not skip the section."""
    graph = graph_of(CHAIN)
    assert waits_for(graph, "terms[b]") == {"final[b]", "draft[b]", "opening"}
    assert [node.id for node in graph.nodes["terms[b]"].material] == ["final[b]", "draft[b]"]
    assert graph.nodes["terms[b]"].parents == ()


def test_a_consumer_inside_waits_for_the_sections_before_it_and_no_others() -> None:
    """Through one node an item, whose edges are few; outside, for all."""
    graph = graph_of(CHAIN)
    assert waits_for(graph, "later[c]") == {"terms[before c]"}
    assert waits_for(graph, "terms[before c]") == {"terms[b]", "terms[before b]"}
    assert waits_for(graph, "terms[before b]") == {"terms[a]", "terms[before a]"}
    assert waits_for(graph, "terms[before a]") == set()
    assert waits_for(graph, "index") == {"terms[*]"}


def test_with_batches_edges_grow_with_the_items_not_their_square() -> None:
    """Each batch has one node behind the one before it."""
    items = [{"id": f"i{n}", "batch": 1 + n // 100} for n in range(1000)]
    graph = graph_of(items)
    edges = sum(
        1
        for n in graph.nodes.values()
        for consumer, _ in n.consumers
        if consumer.kind in ("past", "until", "page")
    )
    assert edges < 4000
    assert waits_for(graph, "terms[before i250]") == {"terms[until 2]"}
    assert "terms[until 1]" in waits_for(graph, "terms[until 2]")


def test_long_chains_and_items_in_any_order_are_linked() -> None:
    """A thousand items, each after the next one in the list."""
    items = [{"id": f"i{n}", "after": [f"i{n + 1}"] if n < 999 else []} for n in range(1000)]
    graph = graph_of(items)
    assert waits_for(graph, "terms[before i0]") == {"terms[i1]", "terms[before i1]"}


def test_a_page_is_turned_when_a_batch_is_through() -> None:
    """One page a batch, and one for the head."""
    graph = graph_of(["a", "b", {"id": "c", "after": ["a"]}])
    assert waits_for(graph, "page:terms[batch 1]") == {"terms[a]", "terms[b]"}
    assert waits_for(graph, "page:terms[batch 2]") == {"terms[c]"}
    assert waits_for(graph, "page:terms[head]") == {"opening"}


def test_inside_nested_items_the_outer_sections_before_are_taken() -> None:
    """A step of an inner fan-out takes what the item around it comes after; of its own, what that comes after."""
    pipe = Pipeline("p")
    pipe.items("part", CHAIN)
    pipe.items("page", ["p1", {"id": "p2", "after": ["p1"]}], each="part")
    pipe.step(name="terms", each="part", appends="terms.md")(lambda part: part)
    pipe.step(name="words", each="page", appends="words/{part}.md")(lambda page, terms: page)
    pipe.step(name="text", each="page")(lambda page, terms, words: page)
    pipe.step(name="sum", each="part")(lambda words: words)
    graph = build_graph(pipe.compile().spec, {})
    assert waits_for(graph, "text[b/p2]") == {"terms[before b]", "words[b/before p2]"}
    assert waits_for(graph, "words[b/before p2]") == {"words[b/p1]", "words[b/before p1]"}
    assert waits_for(graph, "page:words[b/batch 2]") == {"words[b/p2]"}
    assert waits_for(graph, "sum[b]") == {"words[b/*]"}


@pytest.mark.parametrize(
    ("items", "item", "expected"),
    [
        ([{"id": "a"}, {"id": "b"}], "b", []),
        ([{"id": "c", "after": ["b"]}, {"id": "b", "after": ["a"]}, {"id": "a"}], "c", ["b", "a"]),
        (
            [{"id": "a", "batch": 2}, {"id": "b", "batch": 1}, {"id": "c", "batch": 2, "after": ["a"]}],
            "c",
            ["a", "b"],
        ),
        ([{"id": "a"}, {"id": "b", "batch": 2}], "b", ["a"]),
    ],
)
def test_the_items_before_an_item(items: list[dict[str, Any]], item: str, expected: list[str]) -> None:
    """All that it comes after, in the order of the items."""
    assert items_before(items, item) == expected
