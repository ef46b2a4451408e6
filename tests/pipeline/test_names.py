"""Ids, names and lists of items."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import DefinitionError
from holdfast.pipeline.names import (
    check_item_id,
    check_name,
    check_run_id,
    did_you_mean,
    normalise_items,
    printable,
)


@pytest.mark.parametrize(
    "text",
    [
        "ch01",
        "a",
        "1",
        "a.b",
        "a_b-c",
        "_x",
        "第一章",
        "глава-1",
        "é",
        "हिन्दी",
        "x" * 128,
        "com10",
        "console",
    ],
)
def test_item_ids_of_any_script_are_accepted(text):
    """Letters and digits of any script, with dots, underscores and hyphens, make an id."""
    assert check_item_id(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *["", ".", "..", ".x", "-x", "x.", "a/b", "a\\b", "a b", "a\n", "a\0", "a:b", "a*", "a|b", "a[b]"],
        *["\u202egnp", "a\u200bb", "\ud800", "e\u0301", "x" * 129, "é" * 65, "a\ufe0f", "\u3164", "²"],
        *["con", "NUL", "Com1.txt", "lpt9", "aux.a.b", "\u0301a"],
        *[None, 5, b"x", ["x"]],
    ],
)
def test_hostile_item_ids_are_refused(text):
    """What could leave a folder, deceive a reader or break a file system is no id; the reason is one line."""
    problem = check_item_id(text)
    assert problem
    assert problem.isprintable()


def test_run_ids_are_item_ids_in_ascii():
    """A run id obeys the same rules with ASCII letters only, and begins with a letter or digit."""
    assert check_run_id("20260109_143022") is None
    assert check_run_id("x" * 128) is None
    for text in ["глава", "_x", "é", "", "../x", "/x", "x" * 129, "con", "x.", "x\n", None]:
        assert check_run_id(text), text


def test_names_are_identifiers_that_mean_nothing_else():
    """A name that no parameter could have, or that is taken by Holdfast, is refused."""
    assert check_name("draft_2") is None
    for text in ["", "a-b", "class", "ctx", "run_id", "2a", "<lambda>", "ﬁne", None]:
        assert check_name(text), text


@given(st.text())
def test_printable_is_one_safe_short_line(text):
    """Whatever the text, what is shown is printable and not longer than the limit or its escapes."""
    shown = printable(text, 20)
    assert shown.isprintable()
    assert len(shown) <= 20 * 6
    assert printable("x" * 1000, 20) == "x" * 19 + "…"


def test_did_you_mean_names_the_nearest_or_nothing():
    """A close name is suggested; a distant one, or something that is not text, is not."""
    assert did_you_mean("reserch", ["draft", "research"]) == " Did you mean research?"
    assert did_you_mean("zzz", ["draft"]) == ""
    assert did_you_mean(None, ["draft"]) == ""


def test_items_become_fresh_dicts():
    """Ids and dicts give dicts with an id in the given order, copies as JSON holds them."""
    entry = {"id": "ch02", "after": ("ch01",), "title": "Two", "n": [1]}
    items = normalise_items(["ch01", entry], "items chapter")
    assert items == [{"id": "ch01"}, {"id": "ch02", "after": ["ch01"], "title": "Two", "n": [1]}]
    items[1]["n"].append(2)
    assert entry["n"] == [1]
    assert normalise_items((), "x") == []


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ("ch01", "of the type str"),
        (None, "None"),
        ({"id": "a"}, "of the type dict"),
        ([5], "item number 1"),
        ([{"name": "a"}], 'no "id"'),
        (["a", "a"], "twice"),
        (["a", "A"], "only in case"),
        (["../a"], "begins with '.'"),
        ([{"id": "a", "x": {1, 2}}], "item a.x"),
        ([{"id": "a", "x": float("nan")}], "item a.x"),
        ([{"id": "a", 5: 1}], "key"),
        ([{"id": "a", "after": "b"}, "b"], "list of ids"),
        ([{"id": "a", "after": ["bb"]}, "bbb"], "Did you mean bbb?"),
        ([{"id": "a", "after": ["a"]}], "a -> a"),
        ([{"id": "a", "after": ["b"]}, {"id": "b", "after": ["a"]}], "a -> b -> a"),
        ([{"id": "a", "batch": 0}], "whole number from 1"),
        ([{"id": "a", "batch": True}], "whole number from 1"),
        ([{"id": "a", "batch": "1"}], "item a is '1'; give a whole number from 1"),
        ([{"id": "a", "batch": 1}, "b"], "have not: b"),
        ([{"id": "a", "batch": 1, "after": ["b"]}, {"id": "b", "batch": 2}], "later batch"),
    ],
)
def test_bad_items_are_told(raw, told):
    """Each kind of mistake in a list of items is one line, led by the place."""
    with pytest.raises(DefinitionError) as caught:
        normalise_items(raw, "items chapter")
    assert len(caught.value.mistakes) == 1
    assert caught.value.mistakes[0].startswith("items chapter: ")
    assert told in caught.value.mistakes[0]


def test_all_bad_items_are_told_at_once():
    """Three bad entries give three lines."""
    with pytest.raises(DefinitionError) as caught:
        normalise_items([1, "a/b", "x", "X"], "w")
    assert len(caught.value.mistakes) == 3


def test_a_long_chain_of_items_is_no_problem():
    """Order is checked without recursion: ten thousand items in a row, and the loop that closes them."""
    chain = [{"id": f"n{n}", "after": [f"n{n - 1}"] if n else []} for n in range(10_000)]
    assert len(normalise_items(chain, "w")) == 10_000
    chain[0]["after"] = ["n9999"]
    with pytest.raises(DefinitionError, match="wait for each other"):
        normalise_items(chain, "w")
