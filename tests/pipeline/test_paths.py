"""Paths that two tasks would share."""

import pytest
from declaring import nothing, only

from holdfast.pipeline.definition import Pipeline


@pytest.mark.parametrize(
    ("first", "second", "path"),
    [
        ("a.md", "a.md", "a.md"),
        ("a.md", "A.MD", "A.MD"),
        ("{topic}.md", "{topic}.md", "{topic}.md"),
        ("{part}.md", "{part}.md", "x1.md"),
        ("{part}.md", "{other}.md", "X1.md"),
        ("{part}.md", "x2.md", "x2.md"),
        ({"a": "a.md", "b": "A.md"}, "c.md", "A.md"),
    ],
)
def test_two_tasks_with_one_path(first, second, path):
    """Paths that are the same for two tasks, as templates or for given items, in any case, are told."""
    pipe = Pipeline("p", params={"topic": str})
    pipe.items("part", ["x1", "x2"])
    pipe.items("other", ["X1", "y"])
    for name, writes in (("one", first), ("two", second)):
        each = next((var for var in ("part", "other") if f"{{{var}}}" in str(writes)), None)
        pipe.step(name=name, each=each, writes=writes)(nothing)
    line = only(pipe)
    assert f"writes '{path}', and so does step " in line


def test_a_file_is_no_folder():
    """A path below a path that is a file can never be written."""
    pipe = Pipeline("p")
    pipe.step(name="one", writes="out/a")(nothing)
    pipe.step(name="two", writes="out/A/b.md")(nothing)
    assert "into what step one writes as a file" in only(pipe)


def test_two_items_of_one_step_with_one_path():
    """Fields that run into each other can give two items the same path."""
    pipe = Pipeline("p")
    pipe.items("a", ["x", "xy"])
    pipe.items("b", ["yz", "z"], each="a")
    pipe.step(name="one", each="b", writes="{a}{b}.md")(nothing)
    assert "writes 'xyz.md' for two items" in only(pipe)


def test_nested_items_need_every_field():
    """Ids are unique within their parent only, so a path needs the parent's too."""
    pipe = Pipeline("p")
    pipe.items("a", ["x"])
    pipe.items("b", ["y"], each="a")
    pipe.step(name="one", each="b", writes="{b}.md")(nothing)
    assert "Put {a} into it" in only(pipe)


def reading(pattern, writes, *, made=False):
    """A step that writes, for each item if its path says so, and one that reads."""
    pipe = Pipeline("p", params={"topic": str})
    if made:
        pipe.items("part")(nothing)
    else:
        pipe.items("part", ["ch01", "ch02"])
    pipe.step(name="make", each="part" if "{part}" in writes else None, writes=writes)(nothing)
    pipe.step(name="use", each="part" if "{part}" in pattern else None, reads=pattern)(nothing)
    return pipe


@pytest.mark.parametrize(
    ("pattern", "writes"),
    [
        ("data/*.csv", "data/out.csv"),
        ("data/*.CSV", "data/out.csv"),
        ("**/*.csv", "out.csv"),
        ("**/*.csv", "a/b/out.csv"),
        ("data/**", "data/a/out.csv"),
        ("data/*/[a-o]*", "data/{topic}/out.csv"),
        ("drafts/ch*.md", "drafts/{part}.md"),
        ("in/{part}/*", "in/{part}/out.csv"),
        (".cache/*", ".cache/x.bin"),
    ],
)
def test_a_glob_of_what_the_pipeline_writes(pattern, writes):
    """It would change whenever it is made: the step that reads it would never be through."""
    line = only(reading(pattern, writes))
    assert f"reads '{pattern}', which step make writes. Take that step as a parameter" in line


@pytest.mark.parametrize("order", [{"after": "make"}, {"phase": "Late"}])
def test_a_glob_of_what_is_there_before_it_is_read(order):
    """Whoever passes files from step to step waits for them, and finds the same ones in the next run."""
    pipe = Pipeline("p")
    pipe.phase("Early")
    pipe.phase("Late")
    pipe.items("part")(nothing)
    pipe.step(name="make", each="part", writes="drafts/{part}.md", phase="Early")(nothing)
    pipe.step(name="use", reads="drafts/*.md", writes="book.md", **{"phase": "Early", **order})(nothing)
    pipe.compile()


def test_a_glob_of_what_its_own_step_writes():
    """It would be out of date as soon as it is finished."""
    pipe = Pipeline("p")
    pipe.step(name="use", reads="*.md", writes="book.md")(nothing)
    assert "which step use writes" in only(pipe)


def test_a_glob_of_what_is_written_for_items_to_come():
    """Where the items are not known yet, the template tells."""
    assert "which step make writes" in only(reading("drafts/*.md", "drafts/{part}.md", made=True))


@pytest.mark.parametrize(
    ("pattern", "writes"),
    [
        ("data/*.csv", "data/out.json"),
        ("*.csv", "data/out.csv"),
        ("data/*/*.csv", "data/out.csv"),
        ("**", ".hidden/x.md"),
        ("in/{part}/*", "in/out.csv"),
        ("{part}/*.md", "out/{part}.md"),
        ("drafts/in-*.md", "drafts/{part}.md"),
    ],
)
def test_a_glob_of_other_files(pattern, writes):
    """What it cannot mean, or need not, is no mistake."""
    reading(pattern, writes, made="{part}" in writes).compile()
