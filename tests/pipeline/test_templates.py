"""Templates of paths, and the paths that are refused."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.pipeline import templates
from holdfast.pipeline.templates import check_path, check_pattern, fields, render, render_path


def test_fields_are_named_once_in_order():
    """Fields come in the order of first use; doubled braces are text."""
    assert fields("{b}/{a}-{b}-{{c}}.md") == ("b", "a")
    assert render("{b}/{a}-{{c}}.md", {"a": "1", "b": "2"}) == "2/1-{c}.md"


@pytest.mark.parametrize("template", ["{}", "{0}", "{a.b}", "{a[0]}", "{a!r}", "{a:>5}", "{a:{b}}", "{", "}"])
def test_only_plain_fields_are_templates(template):
    """Positions, attributes, conversions and format specs are refused."""
    with pytest.raises(ValueError):
        fields(template)


@pytest.mark.parametrize("path", ["a.md", "drafts/ch01.md", ".loop/x.md", "a/checkpoint.md", "ä/ö.md", "a b.md"])
def test_paths_in_the_project_are_accepted(path):
    """Relative paths with ordinary names may be written."""
    assert check_path(path) is None


@pytest.mark.parametrize(
    "path",
    [
        *[
            "",
            "/",
            "/etc/passwd",
            "..",
            "../a",
            "a/../b",
            "a/..",
            "~",
            "~/a",
            "~root/a",
            "a\\b",
            "C:a",
            "c:/a",
        ],
        *["a//b", "a/", "./a", "a/.", "a\nb", "a\0b", "a\x1bb", "a\u202eb", "\ud800", "x" * 225],
        *[
            ".holdfast",
            ".holdfast/x",
            ".HoldFast/x",
            "checkpoint.md",
            "Checkpoint.MD",
            "RESUME.md",
            "holdfast.toml",
        ],
        *["a.seal", "a/b.SEAL", "a.part", "a.bak.20260109", "a/*.md", "a?.md", "a[1].md", None, 5],
    ],
)
def test_paths_that_leave_the_project_or_are_holdfasts_own_are_refused(path):
    """Each such path has a one-line reason."""
    problem = check_path(path)
    assert problem
    assert problem.isprintable()


def test_patterns_may_be_globs_but_stay_in_the_project():
    """What is read may be a pattern, and any name; it may not leave the project or look into the state."""
    assert check_pattern("inbox/**/*.csv") is None
    assert check_pattern("old.bak.md") is None
    for pattern in ["../*.csv", "/tmp/*", ".holdfast/*", "", 5]:
        assert check_pattern(pattern), pattern


@given(st.text(max_size=12))
def test_a_rendered_path_is_safe_or_refused(value):
    """No value of a parameter can lead a path out of the folder that its template shows."""
    try:
        path = render_path("out/{topic}.md", {"topic": value})
    except UsageError as error:
        assert "\n" not in str(error)
    else:
        assert path == f"out/{value}.md"
        assert path.count("/") == 1
        assert check_path(path) is None


def test_a_value_with_a_slash_is_told_by_name():
    """The message names the parameter and what to do."""
    with pytest.raises(UsageError, match=r"'\.\./x' of topic .* another value"):
        render_path("{topic}.md", {"topic": "../x"})
    with pytest.raises(UsageError, match="Holdfast's own"):
        render_path("{topic}/a", {"topic": ".holdfast"})


@given(
    st.lists(st.sampled_from(["a", "B2", ".", "..", "-", "_", "/", ".seal", ".PART", ".bak.", ".holdfast", "é"]))
)
def test_the_quick_look_at_a_path_says_what_the_long_one_says(pieces: list[str]) -> None:
    """Paths that are plainly harmless are not looked at twice, and no other path slips through."""
    path = "".join(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(templates, "_HARMLESS", re.compile("(?!)"))
        thorough = templates.check_path(path)
    assert templates.check_path(path) == thorough


@pytest.mark.parametrize(("template", "value"), [("out/a.s{one}", "eal"), ("out/{one}.b{one}.md", "ak")])
def test_a_field_completes_no_reserved_ending(template: str, value: str) -> None:
    """A field anywhere behind a dot may make of it what looks like a file of ours."""
    with pytest.raises(UsageError, match="Holdfast's own"):
        render_path(template, {"one": value})


@given(
    st.lists(st.sampled_from(["a", "b-", ".", "/", "{one}", "{two}", ".md", ".holdfast"]), max_size=6),
    st.lists(
        st.sampled_from(["a", "B2", ".", "..", "-", "/", "seal", "part", "é", "checkpoint", " "]), max_size=3
    ),
)
def test_the_quick_way_to_a_path_makes_what_the_long_one_makes(template: list[str], value: list[str]) -> None:
    """A template that is tame, filled with plain words, gives no path that the long look would refuse."""
    values = {"one": "".join(value), "two": "x"}
    try:
        thorough = templates._checked_path("".join(template), values)
    except UsageError as error:
        with pytest.raises(UsageError, match=re.escape(str(error))):
            render_path("".join(template), values)
    else:
        assert render_path("".join(template), values) == thorough
