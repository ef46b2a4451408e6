import pytest

from holdfast import events as ev
from holdfast.pipeline.definition import Pipeline
from holdfast.views.matrix import (
    cells,
    clipped,
    display_width,
    gates,
    is_expanded,
    mark,
    matrices,
    overall,
    single_tasks,
    text_matrix,
)

from .runs import Story, book, half_written_book, items


def nested():
    """Subtopics, each with urls that a function finds."""
    pipe = Pipeline("survey")
    pipe.items("subtopic", ["st-1", "st-2"])
    pipe.step(each="subtopic")(search)
    pipe.items("url", each="subtopic")(urls)
    pipe.step(each="url")(scrape)
    return pipe


def search(subtopic): ...


def urls(search): ...


def scrape(url): ...


def work(x): ...


def test_every_task_has_exactly_one_cell():
    """The list and the matrices together show each task once, items functions included."""
    picture = half_written_book().picture()
    shown = [column.name for column in single_tasks(picture).columns]
    for table in matrices(picture):
        shown += [f"{c.name}[{'/'.join(row)}]" for row in table.rows for c in table.columns]
    assert sorted(shown) == sorted(picture.tasks)


def test_an_items_function_stands_behind_the_step_it_takes_from():
    """The order of the list is the order of the work."""
    columns = single_tasks(half_written_book().picture()).columns
    assert [column.name for column in columns] == ["outline", "chapters", "assemble"]


def test_rows_of_symbols():
    """Each item is a row and each step a column, with the contract's symbols."""
    picture = half_written_book().picture()
    (table,) = matrices(picture)
    assert [(row.label, row.marks) for row in cells(picture, table)] == [
        ("ch01", ("✅", "✅")),
        ("ch02", ("⚠️", "— blocked")),
        ("ch03", ("⏳", "—")),
    ]


def test_nested_items_are_named_by_their_path():
    """An item inside an item has both ids in its row; the function that makes items is a column outside."""
    story = Story(nested()).finish("search[st-1]").finish("urls[st-1]", value=items("u1", "u3"))
    picture = story.fail("scrape[st-1/u3]").picture()
    outer, inner = matrices(picture)
    assert [column.name for column in outer.columns] == ["search", "urls"]
    assert [(row.label, row.marks) for row in cells(picture, inner)] == [("st-1/u1", ("—",)), ("st-1/u3", ("❌",))]
    assert is_expanded(picture, "subtopic")
    assert not is_expanded(picture, "url")


def test_rows_stand_in_the_order_of_items_whichever_became_known_first():
    """The second subtopic's urls were found first; while the run goes on, the rows stand as they do at its end."""
    story = Story(nested()).finish("search[st-1]", "search[st-2]")
    story.finish("urls[st-2]", value=items("u1")).finish("urls[st-1]", value=items("u2", "u1"))
    assert story.picture().rows("url") == [("st-1", "u2"), ("st-1", "u1"), ("st-2", "u1")]


def test_a_question_needs_a_person_whatever_the_status():
    """Finished work whose file was changed shows that it waits for an answer."""
    story = half_written_book()
    assert mark(story.picture(), "outline") == "✅"
    story.tell(ev.QuestionAsked(step_id="outline", about="changed", detail="outline.md was changed"))
    assert mark(story.picture(), "outline") == "⚠️"


def test_skipped_tasks_say_so():
    """A task that was left out is not mistaken for one that has not started."""
    story = half_written_book().tell(ev.TaskSkipped(step_id="draft[ch03]", reason="not wanted"))
    assert mark(story.picture(), "draft[ch03]") == "— skipped"


@pytest.mark.parametrize(
    ("marks", "one"),
    [
        (["✅", "❌", "⚠️", "⏳"], "❌"),
        (["✅", "⚠️", "⏳"], "⚠️"),
        (["✅", "⏳", "—"], "⏳"),
        (["✅", "—"], "⏳"),
        (["✅", "— skipped"], "✅"),
        (["—", "— blocked"], "—"),
        ([], "—"),
    ],
)
def test_one_symbol_for_several_tasks(marks, one):
    """What is wrong wins, then what is under way; partly done is under way."""
    assert overall(marks) == one


def test_a_gate_after_each_batch_is_known_before_it_is_reached():
    """Gates are listed with their standing: one per batch, or one alone."""
    pipe = Pipeline("p")
    pipe.items("x", [{"id": "a", "batch": 1}, {"id": "b", "batch": 2}])
    pipe.step(each="x", phase="Work")(work)
    pipe.gate("look", each="x")
    pipe.gate("final", after=["work"])
    story = Story(pipe).tell(ev.GateReached(step_id="look[batch-1]"))
    assert gates(story.picture()) == {"look[batch-1]": "reached", "look[batch-2]": "", "final": ""}


@pytest.mark.parametrize(
    ("text", "width"),
    [("abc", 3), ("✅", 2), ("⚠️", 2), ("—", 1), ("日本", 4), ("e\u0301", 1), ("— blocked", 9), ("", 0)],
)
def test_display_width(text, width):
    """Emoji and wide letters take two columns, combining marks none."""
    assert display_width(text) == width


def test_clipping_counts_columns():
    """A text cut short ends in a mark and keeps to its width, also with wide letters."""
    assert clipped("abcdef", 4) == "abc…"
    assert clipped("日本語", 4) == "日…"
    assert clipped("abcd", 4) == "abcd"


def test_text_matrix_is_aligned():
    """Every column begins at the same place in every line, as a terminal shows it."""
    lines = text_matrix(half_written_book().picture(), 80)
    assert lines == [
        "Outline   ✅",
        "chapters  ✅",
        "Book      — blocked",
        "",
        "chapter  Research  Draft",
        "ch01     ✅        ✅",
        "ch02     ⚠️        — blocked",
        "ch03     ⏳        —",
    ]


def test_items_not_known_yet_are_said_so():
    """A fan-out without items is a sentence, not an empty table."""
    lines = text_matrix(Story(book()).picture(), 80)
    assert lines[-1] == "chapter: its items are not known yet"


def test_a_narrow_terminal_gets_blocks_of_columns():
    """No line is wider than the terminal, and no column is lost."""
    lines = text_matrix(half_written_book().picture(), 20)
    assert max(map(display_width, lines)) <= 20
    assert "chapter  Research" in lines
    assert "chapter  Draft" in lines


def long_run():
    pipe = Pipeline("long")
    pipe.items("x", [f"i{number:04}" for number in range(1000)])
    pipe.step(each="x")(work)
    story = Story(pipe).finish(*(f"work[i{number:04}]" for number in range(950)))
    return story.fail("work[i0980]")


def test_a_long_run_is_shortened_to_what_tells_most():
    """Of a thousand rows a few are shown, trouble among them, and the rest is counted by state."""
    lines = text_matrix(long_run().picture(), 80, rows_max=40)
    assert len(lines) == 42
    assert "i0980  ❌" in lines
    assert lines[-1] == "... and 960 more: 911 ✅ 49 —"


def test_control_characters_in_titles_do_not_reach_the_terminal():
    """A title is shown as text, whatever it contains."""
    pipe = Pipeline("p")
    pipe.step(title="Work")(outline_free)
    story = Story(pipe)
    story.state.spec = type(story.state.spec)(
        bytes(story.state.spec).replace(b'"Work"', b'"\\u001b[2JWork\\u202e"')
    )
    assert text_matrix(story.picture(), 80) == ["Work\\u202e  —"]


def outline_free(): ...
