"""Files that are foreseen without a graph: those that the graph then names, in its order, or none at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast import Pipeline
from holdfast.pipeline.foreseen import foreseen_files
from holdfast.pipeline.graph import build_graph, in_order
from holdfast.pipeline.inferring import Items
from holdfast.pipeline.templates import render

Declare = Callable[[Pipeline], None]


def made(pipe: Pipeline) -> None:
    """A book: an outline, chapters that a function makes, steps for each, one of them without files, a whole."""

    @pipe.step(writes="out/outline.md")
    def outline() -> str: ...

    @pipe.items("chapter")
    def chapters(outline: str) -> list[str]: ...

    @pipe.step(each="chapter", writes="notes/{chapter}.md")
    def notes(chapter: str) -> str: ...

    @pipe.step(each="chapter")
    def score(notes: str) -> int: ...

    @pipe.step(each="chapter", writes="drafts/{chapter}-draft.md")
    def draft(notes: str, score: int) -> str: ...

    @pipe.step(each="chapter", writes="reviews/{chapter}.csv")
    def review(notes: str, score: int) -> str: ...

    @pipe.step(writes="book.md")
    def book(draft: dict[str, str]) -> str: ...

    pipe.step(writes="colophon.md")(text_named("colophon"))


def given(pipe: Pipeline) -> None:
    """Two fan-outs of listed items beside each other."""
    pipe.items("part", ["one", {"id": "two", "title": "The second"}])
    pipe.items("language", ["de", "fr"])

    @pipe.step(each="part", writes="parts/{part}.md")
    def part_text(part: str) -> str: ...

    @pipe.step(each="language", writes="names/{language}.md")
    def names(language: str) -> str: ...

    @pipe.step(each="part", writes="second/{part}.md")
    def second(part_text: str, names: dict[str, str]) -> str: ...


def text_named(name: str) -> Callable[[], str]:
    def function() -> str: ...

    function.__name__ = name
    return function


def files_in_order(pipe: Pipeline, items: Items) -> list[str]:
    """The files of all tasks as the graph has them."""
    graph = build_graph(pipe.compile().spec, items)
    nodes = [node for node in in_order(graph) if node.kind == "step" and isinstance(node.spec.writes, str)]
    return [
        render(node.spec.writes, dict(zip(graph.fan_of(node.spec.name), node.path, strict=True))) for node in nodes
    ]


@pytest.mark.parametrize(
    ("declare", "items", "count"), [(made, {"chapters": [{"id": "a"}, {"id": "b-2"}]}, 9), (given, {}, 6)]
)
def test_files_are_foreseen_in_the_order_of_the_graph(declare: Declare, items: Items, count: int) -> None:
    """Whoever reads ahead can begin before there is a graph, and nothing comes in another order then."""
    pipe = Pipeline("p")
    declare(pipe)
    foreseen = foreseen_files(pipe.compile().spec, items)
    assert foreseen == files_in_order(pipe, items)
    assert len(foreseen) == count


def in_a_phase(pipe: Pipeline) -> None:
    pipe.step(writes="out/a.md", phase="Writing")(text_named("a"))


def behind_a_gate(pipe: Pipeline) -> None:
    pipe.step(writes="out/a.md")(text_named("a"))
    pipe.gate("look", after=["a"])


def after_another(pipe: Pipeline) -> None:
    pipe.step(writes="out/a.md")(text_named("a"))
    pipe.step(writes="out/b.md", after=["a"])(text_named("b"))


def of_items_in_an_order(pipe: Pipeline) -> None:
    pipe.items("part", ["one", {"id": "two", "after": ["one"]}])

    @pipe.step(each="part", writes="parts/{part}.md")
    def part_text(part: str) -> str: ...


def of_several_files(pipe: Pipeline) -> None:
    @pipe.step(writes={"text": "out/a.md", "more": "out/b.md"})
    def pair() -> dict[str, str]: ...


def with_a_parameter(pipe: Pipeline) -> None:
    pipe.items("part", ["one"])

    @pipe.step(each="part", writes="{topic}/{part}.md")
    def part_text(part: str, topic: str) -> str: ...


def nested(pipe: Pipeline) -> None:
    pipe.items("part", ["one"])

    @pipe.items("chapter", each="part")
    def chapters(part: str) -> list[str]: ...

    @pipe.step(each="chapter", writes="out/{part}/{chapter}.md")
    def draft(chapter: str) -> str: ...


def memory(pipe: Pipeline) -> None:
    pipe.items("part", ["one"])

    @pipe.step(each="part", writes="parts/{part}.md")
    def part_text(part: str) -> str: ...

    @pipe.step(each="part", appends="meta/terms.md", sources=["part_text"])
    def terms(source: str) -> str: ...


@pytest.mark.parametrize(
    "declare",
    [
        in_a_phase,
        behind_a_gate,
        after_another,
        of_items_in_an_order,
        of_several_files,
        with_a_parameter,
        nested,
        memory,
    ],
    ids=lambda declare: declare.__name__,
)
def test_nothing_is_foreseen_where_more_than_names_decides(declare: Declare) -> None:
    """The graph knows then, and is asked."""
    pipe = Pipeline("p", params={"topic": (str, "tides")})
    declare(pipe)
    assert foreseen_files(pipe.compile().spec, {"chapters[one]": [{"id": "x"}]}) == []


@pytest.mark.parametrize("name", ["a b", "..", "ü", "a/b"])
def test_an_item_that_is_no_plain_word_is_left_to_the_graph(name: str) -> None:
    """Whether it makes a path that is harmless is not decided here."""
    pipe = Pipeline("p")
    made(pipe)
    assert foreseen_files(pipe.compile().spec, {"chapters": [{"id": "a"}, {"id": name}]}) == []
