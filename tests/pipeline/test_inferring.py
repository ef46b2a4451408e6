"""Items without a record: what files and views suggest, in which order, and what is no item at all."""

from __future__ import annotations

import pytest

from holdfast import Pipeline
from holdfast.pipeline.inferring import FilePattern, infer_items, is_inferred, item_paths
from holdfast.pipeline.spec import PipelineSpec, StepSpec
from holdfast.pipeline.unfolding import build_graph


def book() -> PipelineSpec:
    pipe = Pipeline("book")

    @pipe.items("part")
    def parts() -> list[str]:
        return []

    @pipe.items("chapter", each="part")
    def chapters(part: str) -> list[str]:
        return []

    pipe.items("language", ["de"])

    @pipe.step(each="part", writes="{part}.md")
    def plan(part: str) -> str:
        return part

    @pipe.step(each="chapter", writes="out/{part}/{chapter}.md")
    def draft(part: str, chapter: str) -> str:
        return chapter

    return pipe.compile().spec


def pattern(template: str, fan: tuple[str, ...] = ("part",), **values: str) -> FilePattern:
    return FilePattern(StepSpec(name="plan", title="plan"), fan, template, values)


def test_a_files_name_says_which_item_it_would_be_of() -> None:
    """Fields of items are read from the path; what stands around them must fit exactly."""
    found = pattern("drafts/{part}-v1.md")
    assert found.item_at("drafts/a-b-v1.md") == ("a-b",)
    assert found.item_at("drafts/a-b-v1xmd") is None
    assert found.item_at("other/a-v1.md") is None
    assert found.item_at("drafts/deep/a-v1.md") is None


def test_a_field_that_stands_twice_must_be_the_same_twice() -> None:
    """`{part}/{part}.md` is a file of one item, not of two."""
    found = pattern("{part}/{part}.md")
    assert found.item_at("a/a.md") == ("a",)
    assert found.item_at("a/b.md") is None


def test_parameters_are_known_and_the_run_may_not_be() -> None:
    """A parameter's value must fit; a run id that nobody knows fits anything."""
    found = pattern("{topic}/{run_id}/{part}.md", topic="tides")
    assert found.item_at("tides/any/a.md") == ("a",)
    assert found.item_at("winds/any/a.md") is None
    assert found.may_be_folder("tides", 1) and not found.may_be_folder("winds", 1)


def test_two_fields_in_one_name_can_be_read_in_two_ways() -> None:
    """Then only the seal knows, and the pattern says so."""
    assert pattern("{part}/{chapter}.md", ("part", "chapter")).is_plain
    assert not pattern("{part}-{chapter}.md", ("part", "chapter")).is_plain


def test_items_come_in_the_views_order_then_sorted() -> None:
    """What a view lists keeps its place; what only files suggest follows, sorted, each once."""
    items = infer_items(book(), [], [{"part": [("c",), ("a",)]}], {"part": [("b",), ("a",), ("B2",)]})
    assert items == {"parts": [{"id": "c"}, {"id": "a"}, {"id": "B2"}, {"id": "b"}]}


def test_an_item_inside_another_tells_of_both() -> None:
    """A draft of a/x says that there is a part a, and a chapter x in it."""
    items = infer_items(book(), [], [], item_paths(book(), ["draft[a/x]", "draft[a/y]", "plan[b]"]))
    assert items["parts"] == [{"id": "a"}, {"id": "b"}]
    assert items["chapters[a]"] == [{"id": "x"}, {"id": "y"}]


def test_functions_on_record_keep_their_items() -> None:
    """Nothing is added to what a function made, whatever files suggest."""
    assert infer_items(book(), ["parts"], [], {"part": [("b",)]}) == {}


@pytest.mark.parametrize("name", ["..", ".hidden", "a b", "a\u202eb", "x" * 200, "", "trailing.", "CON"])
def test_what_cannot_be_an_id_is_no_item(name: str) -> None:
    """A hostile file name makes no task."""
    assert infer_items(book(), [], [], {"part": [(name,)]}) == {}


def test_names_that_a_file_system_could_mix_up_are_one_item() -> None:
    """Ids are unique after casefolding: the first one counts."""
    assert infer_items(book(), [], [], {"part": [("A",), ("a",)]}) == {"parts": [{"id": "A"}]}


def test_task_ids_of_other_pipelines_say_nothing() -> None:
    """An unknown step, or a path of the wrong depth, names no item."""
    assert item_paths(book(), ["other[a]", "draft[a]", "draft", "plan[a/b]"]) == {}


def test_a_task_is_inferred_if_any_item_around_it_is() -> None:
    """Also a given fan-out inside an inferred one hangs on it."""
    spec = book()
    items = infer_items(spec, [], [], item_paths(spec, ["draft[a/x]"]))
    graph = build_graph(spec, items)
    assert is_inferred(graph, graph.nodes["draft[a/x]"], items)
    assert not is_inferred(graph, graph.nodes["draft[a/x]"], {})
    assert not is_inferred(graph, graph.nodes["parts"], items)
