"""Sources that contradict each other: all of them are told, with who was believed."""

from __future__ import annotations

import pytest

from holdfast.decisions import MADE_FROM_IT, Planned
from holdfast.pipeline.spec import PipelineSpec
from holdfast.recovery.disagreeing import disagreements
from holdfast.recovery.sources import Views, sort_out
from holdfast.state import COMPLETED, FAILED, PENDING, SKIPPED
from holdfast.views.claims import Claims


def words(plan: Planned, journal: str = "", **views: str) -> list[str]:
    names = {"checkpoint": "checkpoint.md", "todos": "todos.db"}
    claims = tuple(Claims(names[source], tasks={plan.id: status}) for source, status in views.items())
    recorded = {plan.id: journal} if journal else {}
    return [one.words() for one in disagreements({plan.id: plan}, recorded, Views(claims), {})]


def planned(action: str, *, evidence: str = "", problem: str = "", told_as: str = "") -> Planned:
    return Planned("draft[a]", action, "why", None, evidence, problem, told_as=told_as)


LEFT_OUT = planned("trust", evidence="journal", told_as="skip")


def test_a_view_that_says_done_where_nothing_is() -> None:
    """checkpoint.md says completed, the file is missing: the files are believed."""
    assert words(planned("run"), checkpoint=COMPLETED) == [
        "draft[a]: checkpoint.md: completed, files: nothing that proves it; believed: files"
    ]


def test_a_view_that_lags_behind_the_journal() -> None:
    """todos.db says pending, the journal completed: the journal is believed."""
    assert words(planned("trust", evidence="journal"), COMPLETED, todos=PENDING) == [
        "draft[a]: todos.db: pending, journal: completed; believed: journal"
    ]


def test_a_file_that_is_not_what_the_journal_accepted() -> None:
    """Healed, the journal was believed; redone, the files; asked, nobody yet."""
    problem = "a.md is missing"
    assert words(planned("heal", evidence="journal", problem=problem), COMPLETED) == [
        "draft[a]: journal: completed, files: a.md is missing; believed: journal"
    ]
    assert words(planned("redo", evidence="journal", problem=problem), COMPLETED)[0].endswith("believed: files")
    assert words(planned("ask", evidence="journal", problem="a.md is changed"), COMPLETED)[0].endswith(
        "a person decides"
    )


def test_a_sealed_file_wins_over_a_view() -> None:
    """The view says failed, the sealed artifact is whole: it is adopted."""
    assert words(planned("adopt", evidence="sealed artifact"), checkpoint=FAILED) == [
        "draft[a]: checkpoint.md: failed, files: sealed artifact; believed: sealed artifact"
    ]


def test_two_views_that_contradict_each_other() -> None:
    """The one that is not believed is named, with what was."""
    (line,) = words(planned("adopt", evidence="checkpoint.md"), checkpoint=COMPLETED, todos=PENDING)
    assert line == "draft[a]: todos.db: pending, files: checkpoint.md; believed: checkpoint.md"


@pytest.mark.parametrize(
    ("plan", "journal", "view"),
    [
        (planned("trust", evidence="journal"), COMPLETED, COMPLETED),
        (planned("run"), "", PENDING),
        (planned("run"), "", FAILED),
        (planned("adopt", evidence="sealed artifact"), "", COMPLETED),
        (planned("redo", evidence="journal"), COMPLETED, COMPLETED),
        (planned("redo", evidence=MADE_FROM_IT), "", COMPLETED),
        (LEFT_OUT, SKIPPED, SKIPPED),
        (planned("redo", evidence="sealed artifact"), "", COMPLETED),  # whole, but its value is lost, and needed
    ],
)
def test_agreement_is_not_told(plan: Planned, journal: str, view: str) -> None:
    """Where all say the same, or work is redone for a reason of its own, there is nothing to tell."""
    assert words(plan, journal, checkpoint=view) == []


def test_what_was_left_out_is_neither_done_nor_to_be_done() -> None:
    """A view that says otherwise is told, but todos.db has no other word for it than done."""
    assert words(LEFT_OUT, SKIPPED, checkpoint=SKIPPED, todos=COMPLETED) == []
    for status in (COMPLETED, PENDING):
        assert words(LEFT_OUT, SKIPPED, checkpoint=status) == [
            f"draft[a]: checkpoint.md: {status}, journal: skipped; believed: journal"
        ]
    assert words(LEFT_OUT, SKIPPED, todos=PENDING)
    assert words(planned("run"), checkpoint=SKIPPED) == [
        "draft[a]: checkpoint.md: skipped, files: nothing that proves it; believed: files"
    ]


def test_a_view_that_does_not_speak_of_a_task_contradicts_nobody() -> None:
    """It is of an older pipeline, or of before its items were made."""
    plan = planned("redo", evidence="sealed artifact")
    views = Views((Claims("checkpoint.md", tasks={"b": PENDING}),))
    assert not list(disagreements({plan.id: plan}, {}, views, {}))


def test_what_a_page_calls_skipped_is_not_done_because_the_database_says_so() -> None:
    """checkpoint.md is believed more than todos.db, whose word for both is the same."""
    page = Claims("checkpoint.md", tasks={"a": SKIPPED, "b": COMPLETED})
    database = Claims("todos.db", tasks={"a": COMPLETED, "b": COMPLETED, "c": COMPLETED})
    assert Views((page, database)).done == {"b": "checkpoint.md", "c": "todos.db"}


def test_views_that_agree_are_not_told() -> None:
    """Both say that the items were made, and are believed; that they have to be made again is another matter."""
    assert words(planned("run", evidence="checkpoint.md"), checkpoint=COMPLETED, todos=COMPLETED) == []


def test_views_of_other_runs_and_pipelines_are_told_and_not_read() -> None:
    """A checkpoint.md from another project claims nothing here."""
    spec = PipelineSpec(name="book")
    found = [
        Claims("checkpoint.md", run_id="other", tasks={"draft[a]": COMPLETED}),
        Claims("todos.db", problem="it is not a database"),
    ]
    views = sort_out(found, spec, "mine")
    assert (views.claims, views.done, views.listed) == ((), {}, [])
    assert views.problems == (
        "checkpoint.md: it is of run other, not of this one",
        "todos.db: it is not a database",
    )
    assert sort_out([Claims("checkpoint.md", pipeline="cook")], spec, "mine").problems
    assert sort_out([Claims("checkpoint.md", run_id="mine", pipeline="book")], spec, "mine").claims


def test_a_view_that_is_merely_old_contradicts_nothing() -> None:
    """Its stamp fits and the journal goes on after it; an edited one, or one that knows more, is heard."""
    old = Claims("checkpoint.md", run_id="mine", seq=4, tasks={"draft[a]": PENDING})
    edited = Claims("todos.db", run_id="mine", seq=4, edited=True, tasks={"draft[a]": PENDING})
    assert Views((old, edited)).newer_than(9).claims == (edited,)
    assert Views((old,)).newer_than(3).claims == (old,)
