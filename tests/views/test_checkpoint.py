import msgspec

from holdfast import events as ev
from holdfast.pipeline.definition import Pipeline
from holdfast.views import resume
from holdfast.views.checkpoint import render
from holdfast.views.stamp import read_stamp

from .runs import Story, book, half_written_book, items

HOSTILE = "a | b\n# Run\n<script>x</script> \u202e `c` **d**"


def work(x): ...


def check(work): ...


def plan(): ...


def declared(story, *, old, new):
    """Change the recorded pipeline behind the declaration's back, as damage or another version would."""
    story.state.spec = msgspec.Raw(bytes(story.state.spec).replace(old, new))
    return story


def section(text, title):
    """The lines below one second-level heading."""
    return text.split(f"## {title}\n\n")[1].split("\n\n## ")[0].splitlines()


def test_the_whole_page():
    """One page says what the run is, where it stands, what waits for a person, and every task's state."""
    text = render(half_written_book().picture())
    assert text[: text.rindex("<!--")] == (
        "# book checkpoint\n"
        "\n"
        "- Last updated: 2026-01-09T14:30:38.000Z\n"
        "- Run: `run-1`\n"
        "- Status: in progress\n"
        "- Current batch: 1\n"
        "- Progress: 4 of 9 tasks finished (44 %); 1 in progress, 1 needs review, 2 blocked, 1 not started\n"
        "- Cost: $0.8750 in total, of which $0.0000 was thrown away; 360 tokens (300 in, 60 out)\n"
        "- To continue: `holdfast resume run-1`\n"
        "\n"
        "## Needs a person\n"
        "\n"
        "- `research[ch02]`: no answer\n"
        "  - `holdfast retry 'research[ch02]'`\n"
        "\n"
        "## Steps\n"
        "\n"
        "| step | state | title |\n"
        "| --- | --- | --- |\n"
        "| outline | ✅ | Outline |\n"
        "| chapters | ✅ | chapters |\n"
        "| assemble | — blocked | Book |\n"
        "\n"
        "## Each chapter\n"
        "\n"
        "- Batch 1: ⚠️ needs human review, 2 items\n"
        "- Batch 2: ⏳ in progress, 1 item\n"
        "\n"
        "### chapter: batch 1\n"
        "\n"
        "| chapter | Research | Draft |\n"
        "| --- | :-: | :-: |\n"
        "| ch01 | ✅ | ✅ |\n"
        "| ch02 | ⚠️ | — blocked |\n"
        "\n"
        "### chapter: batch 2\n"
        "\n"
        "| chapter | Research | Draft |\n"
        "| --- | :-: | :-: |\n"
        "| ch03 | ⏳ | — |\n"
        "\n"
        "## Legend\n"
        "\n"
        "✅ completed, ⏳ in progress, ❌ failed, ⚠️ needs human review, — not started; — blocked: waits for"
        " something that needs a person; — skipped: left out on purpose.\n"
        "\n"
    )


def test_the_page_is_stamped():
    """The last line binds the page to its run and moment."""
    story = half_written_book()
    stamp = read_stamp(render(story.picture()))
    assert (stamp.run, stamp.seq, stamp.fits) == ("run-1", story.state.seq, True)


def test_the_same_picture_gives_the_same_page():
    """Rendering asks no clock: the same moment always gives the same bytes."""
    assert render(half_written_book().picture()) == render(half_written_book().picture())


def test_items_not_known_yet_are_said_so():
    """Before the items function has run there is a sentence that names it instead of a table."""
    lines = section(render(Story(book()).picture()), "Each chapter")
    assert lines == ["The items are not known yet: they come from `chapters`, which has not finished."]


def test_one_batch_needs_no_list_of_batches():
    """Items without order are one table."""
    story = Story(book()).finish("outline").finish("chapters", value=items("ch01", "ch02"))
    lines = section(render(story.picture()), "Each chapter")
    assert lines == [
        "| chapter | Research | Draft |",
        "| --- | :-: | :-: |",
        "| ch01 | — | — |",
        "| ch02 | — | — |",
    ]


def test_no_items_at_all_is_said_so():
    """An items function may find nothing; that is not the same as not knowing."""
    story = Story(book()).finish("outline").finish("chapters", value=[])
    assert section(render(story.picture()), "Each chapter") == ["There are no items."]


def test_a_hostile_title_changes_nothing_but_its_own_cell():
    """Line breaks, pipes, headings, HTML and direction marks in a title add no line, cell or tag to the page."""
    plain = render(half_written_book().picture()).splitlines()
    hostile = declared(half_written_book(), old=b'"Research"', new=msgspec.json.encode(HOSTILE))
    lines = render(hostile.picture()).splitlines()
    different = [(a, b) for a, b in zip(plain, lines, strict=True) if a != b]
    cell = "a \\| b # Run &lt;script&gt;x&lt;/script&gt; \\\\u202e \\`c\\` \\*\\*d\\*\\*"
    heading = ("| chapter | Research | Draft |", f"| chapter | {cell} | Draft |")
    assert different[:-1] == [heading, heading]
    assert different[-1][0].startswith("<!-- holdfast view")


def test_a_hostile_error_stays_in_its_line():
    """An error with a heading and a code fence in it is one line of the list."""
    story = Story(book()).fail("outline", "bad\n## Steps\n```\n| x |", status="needs_review")
    lines = section(render(story.picture()), "Needs a person")
    assert lines == ["- `outline`: bad ## Steps \\`\\`\\` \\| x \\|", "  - `holdfast retry outline`"]


def phased():
    pipe = Pipeline("p")
    pipe.items("x", ["a"])
    pipe.step(each="x", phase="Work")(work)
    pipe.step(phase="Review")(check)
    pipe.gate("publish", after=["check"], ask="Read it | once more")
    return Story(pipe)


def test_phases_are_numbered_with_their_state():
    """A phase is done when its tasks are, under way when it has begun, and shows what its checklist refused."""
    story = phased()
    assert section(render(story.picture()), "Phases") == ["1. — Work (not started)", "2. — Review (not started)"]
    story.tell(ev.PhaseStarted(step_id="phase:Work")).start("work[a]")
    assert section(render(story.picture()), "Phases")[0] == "1. ⏳ Work (in progress)"
    story.finish("work[a]").tell(ev.ChecklistRefused(step_id="phase:Review", reasons=("too short",)))
    assert section(render(story.picture()), "Phases") == [
        "1. ✅ Work (completed)",
        "2. ⚠️ Review (needs human review: refused: too short)",
    ]


def test_the_current_phase_is_the_one_in_which_work_is_left():
    """A task that is done again takes the run back to its phase; one that follows stays begun, but is not on."""
    story = phased().tell(ev.PhaseStarted(step_id="phase:Work")).finish("work[a]")
    story.tell(ev.PhaseStarted(step_id="phase:Review")).finish("check")
    assert story.picture().phase == "Review"  # all is done
    story.tell(ev.TaskInvalidated(step_id="work[a]", reason="asked for"))
    assert "- Current phase: Work" in render(story.picture())
    story.finish("work[a]").tell(ev.TaskInvalidated(step_id="check", reason="asked for"))
    assert story.picture().phase == "Review"


def test_a_phase_of_which_only_blocked_work_is_left_is_blocked():
    """Nothing of it goes on: what it waits for needs a person; RESUME.md and `status` say the same."""
    pipe = Pipeline("p")
    pipe.items("x", ["a", "b"])
    pipe.step(each="x")(work)
    pipe.step(each="x", phase="Work")(check)
    story = Story(pipe).tell(ev.PhaseStarted(step_id="phase:Work"))
    story.finish("work[a]", "check[a]").start("work[b]")
    assert section(render(story.picture()), "Phases") == ["1. ⏳ Work (in progress)"]
    story.fail("work[b]", status="needs_review")
    assert section(render(story.picture()), "Phases") == ["1. — Work (blocked)"]
    assert "  - — Work (blocked)" in resume.render(story.picture())


def test_gates_are_listed_with_their_state_and_question():
    """A gate shows whether it was reached and approved, and what is asked there."""
    story = phased()
    assert section(render(story.picture()), "Gates") == ["- — `publish` (not reached yet): Read it \\| once more"]
    story.tell(ev.GateReached(step_id="publish"))
    assert section(render(story.picture()), "Gates") == ["- ⚠️ `publish` (reached): Read it \\| once more"]
    story.tell(ev.GateApproved(step_id="publish"))
    assert section(render(story.picture()), "Gates") == ["- ✅ `publish` (approved): Read it \\| once more"]


def test_tasks_that_the_pipeline_no_longer_has_are_listed():
    """Work on record for an item that vanished is named as such."""
    story = half_written_book().tell(ev.TaskInvalidated(step_id="chapters", reason="asked for"))
    story.finish("chapters", value=items("ch01", "ch02"))
    assert section(render(story.picture()), "No longer in the pipeline")[-1] == "- `research[ch03]`"


def test_thousands_of_rows_are_all_there():
    """A long matrix is complete: nothing is cut from checkpoint.md."""
    names = [f"i{number:04}" for number in range(2500)]
    pipe = Pipeline("long")
    pipe.items("x", names)
    pipe.step(each="x")(work)
    text = render(Story(pipe).finish("work[i2499]").picture())
    rows = [line for line in text.splitlines() if line.startswith("| i")]
    assert rows == [*(f"| {name} | — |" for name in names[:-1]), "| i2499 | ✅ |"]


def test_a_finished_run_says_nothing_of_continuing():
    """Of a completed run the page shows the result and no command that continues it."""
    pipe = Pipeline("p")
    pipe.step(plan)
    story = Story(pipe).finish("plan").tell(ev.RunStopped(status="completed"))
    text = render(story.picture())
    assert "- Status: completed\n" in text
    assert "- Progress: 1 of 1 tasks finished (100 %)\n" in text
    assert "holdfast resume" not in text


def test_a_batch_of_which_only_blocked_work_is_left_is_blocked():
    """Nothing of it can go on, so it is not in progress."""
    pipe = Pipeline("p")
    pipe.items("x", [{"id": "a", "batch": 1}, {"id": "b", "batch": 2}])
    pipe.step(name="early", each="x")(work)
    pipe.step(name="all", after=["early"])(plan)
    pipe.step(name="late", each="x", after=["all"])(work)
    story = Story(pipe).finish("early[b]").fail("early[a]", status="needs_review")
    assert section(render(story.picture()), "Each x")[:2] == [
        "- Batch 1: ⚠️ needs human review, 1 item",
        "- Batch 2: — blocked, 1 item",
    ]
