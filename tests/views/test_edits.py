import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from holdfast import events as ev
from holdfast.views import todofile
from holdfast.views.checkpoint import parse, render
from holdfast.views.edits import Wish, wishes
from holdfast.views.todos import TodosView, graph_edges

from .runs import half_written_book
from .test_reading import stories


def edited(story, old, new):
    text = render(story.picture())
    assert old in text
    return parse(text.replace(old, new), story.spec)


@pytest.mark.parametrize("symbol", ["⏳", "❌", "—", "-", "pending", "— blocked"])
def test_a_cell_turned_back_asks_to_do_it_again(symbol):
    """Whatever takes the place of a finished task's symbol, it is a wish to redo that task and no other."""
    story = half_written_book()
    claims = edited(story, "| ch01 | ✅ | ✅ |", f"| ch01 | ✅ | {symbol} |")
    (wish,) = wishes(claims, story.picture())
    assert (wish.task, wish.wanted, wish.was) == ("draft[ch01]", "redo", "completed")


@pytest.mark.parametrize("symbol", ["⏳", "—", "pending"])
def test_a_skipped_cell_turned_back_asks_to_do_it_after_all(symbol):
    """Who takes the word away wants the work, as who turns its row of todos.db back does."""
    story = half_written_book().tell(ev.TaskSkipped(step_id="draft[ch03]", reason="x"))
    claims = edited(story, "| ch03 | ⏳ | — skipped |", f"| ch03 | ⏳ | {symbol} |")
    (wish,) = wishes(claims, story.picture())
    assert (wish.task, wish.wanted, wish.was) == ("draft[ch03]", "redo", "skipped")


def test_a_cell_turned_to_done_is_a_claim_to_verify():
    """A task that somebody did by hand is claimed done, with what it was before."""
    story = half_written_book()
    claims = edited(story, "| ch03 | ⏳ | — |", "| ch03 | ✅ | — |")
    assert wishes(claims, story.picture()) == [
        Wish("research[ch03]", "checkpoint.md", "done", "completed", "in_progress")
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("| ch03 | ⏳ | — |", "| ch03 | ❌ | ⚠️ |"),
        ("| ch01 | ✅ | ✅ |", "| ch01 | ✅ | ⚠️ |"),
        ("| ch01 | ✅ | ✅ |", "| ch01 | ✅ | — skipped |"),
        ("| ch01 | ✅ | ✅ |", "| ch01 | ✅ | |"),
        ("| ch01 | ✅ | ✅ |\n", ""),
        ("| ch01 | ✅ | ✅ |", "| ch01 | ✅ | ✅ |\n| ch99 | ✅ | ✅ |"),
        ("# book checkpoint", "# book checkpoint\n\nRemember the milk."),
    ],
)
def test_other_differences_ask_for_nothing(old, new):
    """Another symbol, an emptied cell, a row less or a remark is nobody's wish."""
    story = half_written_book()
    assert wishes(edited(story, old, new), story.picture()) == []


def test_a_wish_under_another_title_is_a_wish():
    """Who gives the page a title of their own, and turns a cell back, wants the cell."""
    story = half_written_book()
    text = render(story.picture()).replace("# book checkpoint", "# How far we are")
    (wish,) = wishes(parse(text.replace("| ch01 | ✅ | ✅ |", "| ch01 | ✅ | — |"), story.spec), story.picture())
    assert (wish.task, wish.wanted) == ("draft[ch01]", "redo")


def test_a_page_of_another_run_or_project_asks_for_nothing():
    """Only an edited page of this very run speaks for it."""
    story = half_written_book()
    claims = edited(story, "| ch01 | ✅ | ✅ |", "| ch01 | ✅ | — |")
    assert wishes(replace(claims, run_id="run-0"), story.picture()) == []
    assert wishes(replace(claims, pipeline="other"), story.picture()) == []
    assert wishes(replace(claims, edited=False), story.picture()) == []


def test_a_page_without_a_stamp_turns_nothing_back():
    """A page that may be old, or a plan, can claim that something is done, but not ask to redo anything."""
    story = half_written_book()
    text = render(story.picture())
    text = text[: text.rindex("<!--")].replace("| ch01 | ✅ | ✅ |", "| ch01 | — | — |")
    claims = parse(text.replace("| ch03 | ⏳ | — |", "| ch03 | ✅ | — |"), story.spec)
    assert [(wish.task, wish.wanted) for wish in wishes(claims, story.picture())] == [("research[ch03]", "done")]


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(story=stories())
def test_a_view_as_it_was_written_asks_for_nothing(story, tmp_path_factory):
    """Whatever a run looks like, neither its page nor its rows differ from the moment they were drawn at."""
    picture = story.picture()
    page = parse(render(picture), story.spec)
    path = tmp_path_factory.mktemp("todos") / "todos.db"
    view = TodosView(path, set_aside=lambda path: None, keep=lambda path, data: None)
    assert view.update(picture, lambda: graph_edges(story.graph()))
    view.close()
    rows = todofile.read_claims(path, story.spec)
    assert not rows.edited
    assert set(rows.tasks) == set(picture.tasks)
    for claims in (page, rows):
        assert wishes(replace(claims, edited=True), picture) == []


def test_a_row_of_a_skipped_task_was_done():
    """In todos.db skipped is done: that is no claim, and setting it back is a wish."""
    story = half_written_book().tell(ev.TaskSkipped(step_id="draft[ch03]", reason="x"))
    claims = parse(render(story.picture()), story.spec)
    rows = replace(claims, source="todos.db", pipeline="", edited=True, tasks={"draft[ch03]": "completed"})
    assert wishes(rows, story.picture()) == []
    (wish,) = wishes(replace(rows, tasks={"draft[ch03]": "pending"}), story.picture())
    assert wish.wanted == "redo"
