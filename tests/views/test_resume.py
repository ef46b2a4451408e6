from holdfast import events as ev
from holdfast.pipeline.definition import Pipeline
from holdfast.state import WAITS_FOR_PERSON
from holdfast.views.resume import HIGH, LOW, MEDIUM, priorities, render
from holdfast.views.stamp import read_stamp

from .runs import Story, book, half_written_book, items


def section(text, title):
    return text.split(f"## {title}\n\n")[1].split("\n\n")[0].splitlines()


def headings(text):
    return [line[3:] for line in text.splitlines() if line.startswith("## ")]


def work(x): ...


def test_the_letter_has_all_its_parts_in_order():
    """A stranger finds what it is, how far it is, what is open, what went wrong, what to do, and where."""
    story = half_written_book().tell(ev.DecisionMade(what="short chapters", why="time"))
    assert headings(render(story.picture())) == [
        "Overview",
        "Progress",
        "Incomplete tasks",
        "Known issues",
        "Decisions",
        "Next steps",
        "Where things are",
        "Cost so far",
    ]


def test_the_opening_says_when_and_how_to_continue():
    """The first lines say when it was written, that the run is unfinished, and the one command."""
    text = render(half_written_book().picture())
    assert text.startswith(
        "# How to continue book\n"
        "\n"
        "Generated 2026-01-09T14:30:38.000Z by Holdfast; last run in process 7 on box.\n"
        "Holdfast runs the steps of a pipeline, keeps what they made, and goes on where it stopped.\n"
        "\n"
        "This run is not finished. What is done is kept and proved: continuing repeats none of it.\n"
        "\n"
        "To continue, in this folder: `holdfast resume run-1`\n"
    )


def test_where_only_a_person_can_help_the_opening_asks_for_that_first():
    """Continuing would only wait again: what is to be said comes before the command that continues."""
    story = Story(book()).finish("outline", files=["outline.md"])
    question = ev.QuestionAsked(step_id="outline", about="changed", detail="was changed")
    stopped = ev.RunStopped(status="paused", reason=WAITS_FOR_PERSON)
    one = render(story.tell(question, stopped).picture()).splitlines()
    waits = one.index("A person is waited for first: `holdfast decide outline keep` (or: restore, redo)")
    assert one[waits + 2] == "To continue, in this folder: `holdfast resume run-1`"
    another = ev.QuestionAsked(step_id="assemble", about="input", detail="was made from another")
    text = render(story.tell(another, stopped).picture())
    assert " (or: restore, redo) (1 more: see the next steps below)\n" in text


def test_nobody_but_a_person_raises_a_budget():
    """Agents read the letter, too: the command that spends more is not theirs to give."""
    stopped = ev.RunStopped(status="paused", reason="the budget of $5.00 is used up")
    opening = render(half_written_book().tell(stopped).picture()).partition("## Overview")[0].splitlines()
    asked = next(n for n, line in enumerate(opening) if line.startswith("A person has to say first how much"))
    assert opening[asked + 2].startswith("To continue, in this folder: `holdfast resume run-1 --budget ")


def test_the_overview_names_file_parameters_and_items():
    """Whoever has only this letter can find the pipeline and start it the same way."""
    assert section(render(half_written_book().picture()), "Overview") == [
        "- Pipeline: `book`",
        "- Pipeline file: `book.py`",
        "- Run: `run-1`",
        "- Project: the folder in which this file lies",
        '- Parameter `topic`: `"Async IO"`',
        "- Items of `chapter`: 3",
    ]


def test_progress_is_counted_by_state_and_by_step():
    """How much is finished, under way and not started, and how far each step is, in the order of the work."""
    text = render(half_written_book().picture())
    assert section(text, "Progress") == [
        "- Finished: 4 of 9 tasks (44 %)",
        "- In progress: 1",
        "- Not started: 3, 2 of them blocked: what they wait for needs a person",
        "- Waiting for human review: 1",
        "- Current batch: 1",
        "- chapter finished: `ch01`",
        "- chapter in progress: `ch02`, `ch03`",
        "- Finished last: `draft[ch01]`",
    ]
    table = text.split("| step | for each | finished |\n")[1].split("\n\n")[0].splitlines()
    assert table[1:] == [
        "| Outline |  | 1 of 1 |",
        "| Research | chapter | 1 of 3 |",
        "| Draft | chapter | 1 of 3 |",
        "| Book |  | 0 of 1 |",
        "| chapters |  | 1 of 1 |",
    ]


def test_of_very_many_steps_those_are_listed_at_which_the_work_is():
    """A letter of a thousand lines is read by nobody; how many are left out is said."""
    pipe = Pipeline("p")
    for number in range(100):
        pipe.step(lambda: 1, name=f"s{number:02d}")
    story = Story(pipe)
    for number in range(50):
        story.finish(f"s{number:02d}")
    text = render(story.picture())
    rows = [line for line in text.splitlines() if line.endswith(" of 1 |")]
    assert (rows[0], rows[-1], len(rows)) == ("| s50 |  | 0 of 1 |", "| s89 |  | 0 of 1 |", 40)
    assert "60 of 100 steps are left out here: `checkpoint.md` has all." in text


def test_steps_whose_items_are_not_known_are_said_so():
    """Of a fan-out that has not been expanded nobody can say how many there will be."""
    assert "| Draft | chapter | 0 of 0 known so far |" in render(Story(book()).picture())


def test_the_impact_of_a_failure_is_what_waits_for_it():
    """The last step of all holds up nothing, and one before a phase holds up that."""
    story = Story(book()).finish("outline").finish("chapters", value=[])
    text = render(story.fail("assemble", status="needs_review").picture())
    assert "it broke; impact: nothing else waits for it" in text
    pipe = Pipeline("p")
    pipe.items("x", ["a"])
    pipe.step(each="x", name="early", phase="One")(work)
    pipe.step(each="x", name="late", phase="Two")(work)
    text = render(Story(pipe).fail("early[a]", status="needs_review").picture())
    assert "it broke; impact: the next phase waits for it" in text


def test_a_gate_behind_a_failure_waits_for_it():
    """Nothing was made from it yet; once the gate was approved, nothing else waits."""
    pipe = Pipeline("p")
    pipe.items("x", ["a"])
    pipe.step(each="x", name="early")(work)
    pipe.gate("look", after=["early"])
    story = Story(pipe).fail("early[a]", status="needs_review")
    assert "it broke; impact: `look` cannot go on without it" in render(story.picture())
    story.tell(ev.GateApproved(step_id="look"))
    assert "it broke; impact: nothing else waits for it" in render(story.picture())


def test_incomplete_tasks_are_listed_by_urgency():
    """What others wait for comes first, then what is half-finished, then what has not begun."""
    story = half_written_book().fail("draft[ch01]")
    assert list(priorities(story.picture()).items()) == [
        ("draft[ch01]", HIGH),
        ("research[ch02]", HIGH),
        ("research[ch03]", HIGH),
        ("assemble", LOW),
        ("draft[ch02]", LOW),
        ("draft[ch03]", LOW),
    ]
    rows = section(render(story.picture()), "Incomplete tasks")
    assert rows[2:5] == [
        "| `draft[ch01]` | failed | High (others wait for it) |",
        "| `research[ch02]` | needs review | High (others wait for it) |",
        "| `research[ch03]` | in progress | High (others wait for it) |",
    ]


def test_what_was_sent_back_is_incomplete():
    """Work that somebody rejected is listed, and urgent, before anybody has begun it anew."""
    story = Story(book()).finish("outline").tell(ev.RewindRequested(step_id="", targets={"outline": "longer"}))
    text = render(story.picture())
    assert "| `outline` | pending, sent back | High (others wait for it) |" in text
    assert "| Outline |  | 0 of 1 |" in text


def test_half_finished_work_that_nobody_waits_for_is_medium():
    """A last step that was cut off is half-finished, and holds up nothing."""
    story = Story(book()).finish("outline").finish("chapters", value=[])
    story.start("assemble").tell(ev.RunContinued())
    assert priorities(story.picture()) == {"assemble": MEDIUM}
    text = render(story.picture())
    assert (
        section(text, "Incomplete tasks")[-1] == "| `assemble` | pending, was cut off | Medium (half-finished) |"
    )
    assert "still growing when it stopped (expected of `assemble`): `find . -name '*.part'`" in text


def test_a_step_that_a_later_phase_waits_for_is_high():
    """Phases are an order too: the last task of a phase holds up the next one."""
    pipe = Pipeline("p")
    pipe.items("x", ["a"])
    pipe.step(each="x", name="early", phase="One")(work)
    pipe.step(each="x", name="late", phase="Two")(work)
    story = Story(pipe).start("early[a]")
    assert priorities(story.picture()) == {"early[a]": HIGH, "late[a]": LOW}


def test_a_long_list_is_cut_and_counted():
    """At most forty tasks are listed; the others are counted by priority."""
    pipe = Pipeline("p")
    pipe.items("x", [f"i{number:03}" for number in range(100)])
    pipe.step(each="x")(work)
    text = render(Story(pipe).picture())
    assert len(section(text, "Incomplete tasks")) == 42
    assert "... and 60 more: 60 Low. All of them are in `checkpoint.md`." in text


def test_known_issues_are_errors_notes_and_surprises():
    """What failed, what somebody noted with its impact, and what was healed stand together."""
    story = half_written_book().tell(
        ev.NoteAdded(text="slow model", impact="a day late", step_id="draft[ch01]"),
        ev.ArtifactHealed(step_id="outline", path="outline.md", problem="missing"),
    )
    assert section(render(story.picture()), "Known issues") == [
        "- `research[ch02]` needs review: no answer; impact: `draft`, `assemble` cannot go on without it",
        "- 2026-01-09T14:30:39.000Z (`draft[ch01]`): slow model; impact: a day late",
        "- 2026-01-09T14:30:40.000Z (`outline`): outline.md was missing; put back from objects/; impact: none",
    ]


def test_a_note_of_a_megabyte_is_shortened():
    """The letter stays a letter; the journal has all of it."""
    story = Story(book()).tell(ev.NoteAdded(text="word " * 200_000, impact="x" * 1_000_000))
    story.tell(ev.DecisionMade(what="a" * 1_000_000, why="b" * 1_000_000, outcome="c" * 1_000_000))
    assert len(render(story.picture())) < 20_000


def test_an_open_question_is_told_once():
    """What waits for an answer stands among the errors, and not again among the surprises."""
    story = half_written_book().tell(ev.QuestionAsked(step_id="outline", about="changed", detail="was changed"))
    issues = section(render(story.picture()), "Known issues")
    assert [line for line in issues if "was changed" in line] == [
        "- `outline` waits for an answer: was changed;"
        " impact: `research`, `draft`, `assemble` cannot go on without it"
    ]


def test_what_is_finished_is_no_impact():
    """Finished steps behind a question can go on; they may only have to be made again."""
    story = Story(book()).finish("outline").finish("chapters", value=[]).finish("assemble")
    story.tell(ev.QuestionAsked(step_id="outline", about="changed", detail="was changed"))
    issues = section(render(story.picture()), "Known issues")
    assert issues == [
        "- `outline` waits for an answer: was changed;"
        " impact: what was made from it is finished, and may have to be made again"
    ]


def test_one_happening_is_one_line():
    """A file that was set aside and then put back is told once, with both."""
    story = half_written_book().tell(
        ev.ArtifactSetAside(step_id="outline", path="outline.md", to="quarantine/outline.md.1", reason="damaged"),
        ev.ArtifactHealed(step_id="outline", path="outline.md", problem="damaged"),
    )
    assert section(render(story.picture()), "Known issues")[-1] == (
        "- 2026-01-09T14:30:40.000Z (`outline`): outline.md was damaged;"
        " set aside as quarantine/outline.md.1; put back from objects/; impact: none"
    )


def test_what_is_told_twice_is_one_line():
    """The journal tells of its repair itself, and so does whoever repaired it, with what was found."""
    told = "the journal was damaged (line 3 is not what it was) and was written anew: 1 line is lost"
    findings = ("checkpoint_0001.json is damaged", f"{told}; the damaged one is kept as x")
    story = half_written_book().tell(
        ev.JournalRepaired(missing_total=1, kept_as="x"), ev.StateMended(findings=findings)
    )
    lines = [line for line in section(render(story.picture()), "Known issues") if "anew" in line]
    assert lines == [f"- 2026-01-09T14:30:40.000Z: {told}; the damaged one is kept as x"]


def test_task_ids_in_words_are_code():
    """What was told about a task can be read without its brackets being escaped."""
    story = half_written_book().tell(ev.StateMended(findings=("draft[ch01]: its *call* is lost",)))
    assert "`draft[ch01]`: its \\*call\\* is lost" in render(story.picture())


def test_all_that_waits_may_be_blocked():
    """Then it is said in one word."""
    story = Story(book()).fail("outline", status="needs_review")
    line = section(render(story.picture()), "Progress")[2]
    assert line == "- Not started: 2, all blocked: what they wait for needs a person"


def test_commands_can_be_copied():
    """What is said about a command does not stand in its code."""
    story = half_written_book().tell(ev.QuestionAsked(step_id="outline", about="changed", detail="was changed"))
    assert "   - `holdfast decide outline keep` (or: restore, redo)\n" in render(story.picture())


def test_only_the_latest_surprises_are_told():
    """Twenty surprises are enough for a letter: the newest ones."""
    story = half_written_book()
    story.tell(*(ev.ArtifactHealed(step_id="outline", path=f"f{n}", problem="empty") for n in range(30)))
    told = [line for line in section(render(story.picture()), "Known issues") if "put back" in line]
    assert len(told) == 20
    assert "f10 was empty" in told[0]
    assert "f29 was empty" in told[-1]


def test_decisions_have_reason_and_outcome():
    """What was decided stands with why and what came of it."""
    story = half_written_book().tell(
        ev.DecisionMade(what="short chapters", why="time", outcome="12 pages", step_id="outline"),
        ev.DecisionMade(what="# no index", why=""),
    )
    assert section(render(story.picture()), "Decisions") == [
        "- short chapters (`outline`); reason: time; outcome: 12 pages",
        "- \\# no index",
    ]


def test_progress_md_is_named_once_it_is_there():
    """It is written when a step has given its first section: before that nobody is sent to look for it."""
    story = half_written_book()
    assert "progress.md" not in render(story.picture())
    told = story.tell(ev.SectionWritten(step_id="draft[ch01]", text="so far"))
    assert "- Results so far: `.holdfast/runs/run-1/progress.md`" in render(told.picture())


def test_next_steps_begin_with_looking_and_end_with_continuing():
    """Read, look for half-finished files, do what only a person can, then continue."""
    lines = section(render(half_written_book().picture()), "Next steps")
    assert lines == [
        "1. See how the run stands: `holdfast status`",
        "2. Read every task's state on one page: `cat checkpoint.md`",
        "3. Look for half-finished files:",
        "   - still growing when it stopped (expected of `research[ch03]`): `find . -name '*.part'`",
        "   - without their marker, or damaged: `holdfast scan`",
        "4. See what would run, and why, without changing anything: `holdfast plan`",
        "5. `research[ch02]` needs a person: no answer",
        "   - `holdfast retry 'research[ch02]'`",
        "6. Continue: `holdfast resume run-1`",
    ]


def test_a_completed_run_says_so_and_where_its_results_are():
    """There is nothing to continue: the letter lists the outputs instead."""
    story = Story(book()).finish("outline", files=["outline.md"])
    story.finish("chapters", value=items("a", "b")).finish("research[a]", "research[b]", "draft[a]", "draft[b]")
    text = render(story.finish("assemble", files=["book.md"]).tell(ev.RunStopped(status="completed")).picture())
    assert text.startswith("# book is complete\n")
    assert "**This run is complete. Nothing is left to do.**" in text
    assert text.count("`book.md`") == 1
    assert "holdfast resume" not in text
    assert section(text, "Outputs") == [
        "- Outline: `outline.md`",
        "- Research: `research/{chapter}.md` (2 files)",
        "- Draft: `drafts/{chapter}.md` (2 files)",
        "- Book: `book.md`",
    ]


def test_nothing_that_others_wrote_changes_the_letter():
    """Errors, notes, decisions, tags and reasons with markup in them add no heading, table or tag."""
    bad = "x\n## Next steps\n1. `rm -rf`\n| a | b |\n<img src=x> \x1b[2J\u202e"
    story = Story(book(), params={"topic": bad}).fail("outline", bad, status="needs_review")
    story.tell(
        ev.NoteAdded(text=bad, impact=bad),
        ev.DecisionMade(what=bad, why=bad, outcome=bad),
        ev.Tagged(fields={"owner": bad}),
        ev.QuestionAsked(step_id="outline", about="changed", detail=bad),
        ev.RunStopped(status="paused", reason=bad),
    )
    text = render(story.picture())
    assert headings(text).count("Next steps") == 1
    assert not [line for line in text.splitlines() if line.startswith(("| a", "1. `rm", "<img"))]
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert read_stamp(text).fits
