from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import events as ev
from holdfast.pipeline.definition import Pipeline
from holdfast.pipeline.spec import GateSpec, ItemsSpec, PhaseSpec, PipelineSpec, StepSpec
from holdfast.views import claims as claims_module
from holdfast.views import matrix
from holdfast.views.checkpoint import parse, render
from holdfast.views.claims import status_of

from .runs import Story, book, half_written_book, items

HOSTILE = "a | b\n# Run\n<script>x</script> \u202e `c` **d**"

# --- what render wrote -----------------------------------------------------------------------------------

TITLES = st.text(st.sampled_from("aA1 _*`#|\\[]<>&;!~-=+.\n\r\x1b\u202e\u2028(x)"), max_size=12)
IDS = st.lists(
    st.sampled_from(["a", "b2", "_c_", "d.e", "ch-01", "Übung", "step", "state", "f_g", "日本", "Total"]),
    min_size=1,
    max_size=4,
    unique=True,
)
NAMES = ["step", "state", "title", "task", "draft", "_x_", "a", "Ünit"]


@st.composite
def pipelines(draw):
    """Pipelines with lone steps, given and made items, nested fan-outs, phases and gates; titles are hostile."""
    variables = draw(st.permutations(["chapter", "step", "x_"]))[: draw(st.integers(0, 3))]
    fans = []
    for number, var in enumerate(variables):
        each = variables[0] if number == 1 and draw(st.booleans()) else None
        listed = [{"id": name} | ({"batch": draw(st.integers(1, 2))}) for name in draw(IDS)]
        made = draw(st.booleans())
        fans.append(
            ItemsSpec(var=var, name=f"find_{number}" if made else f"items:{var}", each=each)
            if made
            else ItemsSpec(var=var, name=f"items:{var}", each=each, given=tuple(listed))
        )
    free = [name for name in NAMES if name not in variables]
    names = draw(st.lists(st.sampled_from(free), min_size=1, max_size=6, unique=True))
    phases = draw(st.lists(TITLES, max_size=2, unique_by=matrix.markdown_cell))
    steps = tuple(
        StepSpec(
            name=name,
            title=draw(st.one_of(TITLES, st.sampled_from(NAMES))),
            each=draw(st.sampled_from([None, *variables])),
            phase=draw(st.sampled_from([None, *phases])),
        )
        for name in names
    )
    gates = [GateSpec(name="publish", ask=draw(TITLES))]
    if variables:
        gates.append(GateSpec(name="look", each=variables[0]))
    return PipelineSpec(
        name=draw(TITLES.filter(matrix.markdown_cell)),
        steps=steps,
        items=tuple(fans),
        phases=tuple(PhaseSpec(name) for name in phases),
        gates=tuple(gates[: draw(st.integers(0, 2))]),
    )


def told(story, task, choice):
    if choice == "question":
        story.finish(task).tell(ev.QuestionAsked(step_id=task, about="changed", detail=HOSTILE))
    elif choice in ("failed", "needs_review"):
        story.fail(task, HOSTILE, status=choice)
    elif choice == "skipped":
        story.tell(ev.TaskSkipped(step_id=task, reason="x"))
    elif choice == "completed":
        story.finish(task)
    elif choice == "in_progress":
        story.start(task)


OUTCOMES = st.sampled_from(["completed", "failed", "needs_review", "skipped", "question", "in_progress", ""])


@st.composite
def stories(draw):
    story = Story(draw(pipelines()))
    for _ in range(2):  # items functions first: what they make has further ones below it
        for task in story.picture().tasks:
            if task.startswith("find_") and story.state.task(task).status == "pending":
                listed = [{"id": name, "batch": draw(st.integers(1, 2))} for name in draw(IDS)]
                if draw(st.integers(0, 3)):
                    story.finish(task, value=listed)
    for task in story.picture().tasks:
        if not task.startswith("find_"):
            told(story, task, draw(OUTCOMES))
    for gate in matrix.gates(story.picture()):
        if draw(st.booleans()):
            story.tell(ev.GateReached(step_id=gate))
        if draw(st.booleans()):
            story.tell(ev.GateApproved(step_id=gate))
    return story


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stories())
def test_everything_that_was_written_comes_back(story):
    """Whatever the titles and items are called: each task and item is read back as it was shown."""
    picture = story.picture()
    claims = parse(render(picture), story.spec)
    assert claims.tasks == {task: matrix.shown_status(picture, task) for task in picture.tasks}
    shown = {table.var: set(table.rows) for table in matrix.matrices(picture) if table.rows}
    assert {var: set(paths) for var, paths in claims.items.items() if var in shown} == shown
    assert (claims.contradictions, claims.ignored, claims.problem) == ((), (), "")
    assert (claims.run_id, claims.seq, claims.edited) == ("run-1", story.state.seq, False)
    assert claims.pipeline == story.spec.name


def mangled(text, dice):
    """A page in which somebody has repeated rows, given them other labels, or other cells."""
    lines = text.split("\n")
    rows = [number for number, line in enumerate(lines) if line.startswith("| ")]
    for _ in range(dice.randrange(4) if rows else 0):
        to, source = dice.choice(rows), dice.choice(rows)
        label, bar, rest = lines[to].partition(" | ")
        other_label, _, other_rest = lines[source].partition(" | ")
        lines[to] = dice.choice(
            [lines[source], label + bar + other_rest, other_label + bar + rest, label.swapcase() + bar + rest]
        )
        if dice.random() < 0.3:
            lines[to] = lines[to].replace("—", "✅", 1)
    return "\n".join(lines)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stories(), st.randoms(use_true_random=False))
def test_rows_that_are_alike_are_read_as_each_of_them_would_be(story, dice):
    """What another row said is looked up: every claim is the same then, and so is every remark."""
    text = mangled(render(story.picture()), dice)
    short = parse(text, story.spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.views.reading._ROWS_KEPT", 0)
        assert parse(text, story.spec) == short


# --- what others wrote -----------------------------------------------------------------------------------


def book_spec():
    return book().compile().spec


def table(*rows):
    head, *rest = rows
    return "\n".join([head, "|".join(["---"] * head.count("|")), *rest])


def test_another_order_of_columns_and_others_between_them():
    """Columns are found by their name or title, wherever they stand; what is no step is passed over and listed."""
    text = table("| what | Draft | Pages | research |", "| ch01 | ✅ | 12 | ⏳ |", "| ch02 | — | 3 | ❌ |")
    claims = parse(text, book_spec())
    assert claims.tasks == {
        "draft[ch01]": "completed",
        "research[ch01]": "in_progress",
        "draft[ch02]": "pending",
        "research[ch02]": "failed",
    }
    assert claims.items == {"chapter": [("ch01",), ("ch02",)]}
    assert claims.ignored == ("column Pages",)


def test_a_list_of_tasks_is_read_too():
    """A table of steps or task ids with a column for the state says the same as a matrix."""
    text = table(
        "| Task | Who | Status |",
        "| `draft[ch01]` | me | done |",
        "| Outline | you | **in progress** |",
        "| ASSEMBLE | - | not started |",
        "| lunch | - | done |",
    )
    claims = parse(text, book_spec())
    assert claims.tasks == {"draft[ch01]": "completed", "outline": "in_progress", "assemble": "pending"}
    assert claims.ignored == ("row lunch",)


def test_a_matrix_that_is_called_a_list_is_read_all_the_same():
    """Items below `task`, beside a column for the state of the whole, are still items."""
    text = table("| Task | Draft | Status |", "| ch01 | ✅ | almost |", "| outline | | done |")
    assert parse(text, book_spec()).tasks == {"draft[ch01]": "completed", "outline": "completed"}


@pytest.mark.parametrize(
    ("cell", "status"),
    [
        ("✅", "completed"),
        ("✔️", "completed"),
        ("**Done**", "completed"),
        ("[x]", "completed"),
        ("X", "completed"),
        ("✅ 12 pages", "completed"),
        ("completed (twice)", "completed"),
        ("⏳", "in_progress"),
        ("in_progress, round 2", "in_progress"),
        ("❌", "failed"),
        ("⚠️", "needs_review"),
        ("⚠", "needs_review"),
        ("needs human review", "needs_review"),
        ("—", "pending"),
        ("-", "pending"),
        ("[ ]", "pending"),
        ("pending, was cut off", "pending"),
        ("— blocked", "blocked"),
        ("- skipped", "skipped"),
        ("", None),
        ("-5 degrees", None),
        ("almost done", None),
        ("✅ failed", None),
        ("?", None),
    ],
)
def test_words_and_symbols(cell, status):
    """A symbol, with or without its variation selector, or a usual word; a remark behind it changes nothing."""
    assert status_of(cell) == status


def test_the_page_of_formats_names_exactly_what_is_understood():
    """Every symbol and word in the documentation has its status, and no other is understood."""
    page = (Path(__file__).parent.parent.parent / "docs" / "formats.md").read_text(encoding="utf-8")
    rows = page.split("| Status | Symbols | Words |\n")[1].split("\n\n")[0].splitlines()[1:]
    named = {"in progress": "in_progress", "needs human review": "needs_review", "not started": "pending"}
    said: dict[str, str] = {}
    for status, symbols, words in (line.strip("| ").split(" | ") for line in rows[:-1]):
        for one in [*symbols.replace("\ufe0f", "").split(), *words.split(", ")]:
            said[one] = named.get(status, status)
    understood = claims_module._STATUS_OF_SYMBOL | claims_module._STATUS_OF_WORD
    assert said | {"blocked": "blocked", "skipped": "skipped"} == understood
    assert all(status_of(one) == status for one, status in said.items())


def test_two_cells_that_contradict_each_other_claim_nothing():
    """A task that is done in one table and not in another is named as such, and counts as neither."""
    text = table("| chapter | Draft |", "| ch01 | ✅ |", "| ch02 | ✅ |", "| CH01 | — |", "| ch01 | ✅ |")
    claims = parse(text, book_spec())
    assert claims.tasks == {"draft[ch02]": "completed"}
    assert claims.contradictions == ("draft[ch01]: completed, and also pending",)


@pytest.mark.parametrize(
    "wrapped",
    ["```\n{}\n```", "~~~~md\n{}\n```\n~~~~", "<!--\n{}\n-->", "> quoted\n\n    {}", "text ``` \n\n````\n{}"],
)
def test_a_table_in_code_or_in_a_comment_is_text(wrapped):
    """What is shown as code, or not shown, claims nothing; what follows it does."""
    lines = table("| chapter | Draft |", "| ch01 | ✅ |").replace("\n", "\n    " if "    " in wrapped else "\n")
    assert parse(wrapped.format(lines), book_spec()).tasks == {}
    if not wrapped.endswith("{}"):
        after = wrapped.format(lines) + "\n" + table("| chapter | Draft |", "| ch02 | ✅ |")
        assert parse(after, book_spec()).tasks == {"draft[ch02]": "completed"}


def test_a_remark_within_a_row_hides_nothing():
    """A comment inside a row takes away itself and no cell."""
    text = table("| chapter | Research | Draft |", "| ch01 | ✅ <!-- me | you --> | ⏳ |")
    assert parse(text, book_spec()).tasks == {"research[ch01]": "completed", "draft[ch01]": "in_progress"}


def nested():
    return PipelineSpec(
        name="survey",
        items=(
            ItemsSpec(var="topic", name="items:topic", given=({"id": "st-1"}, {"id": "st-2"})),
            ItemsSpec(var="url", name="urls", each="topic"),
        ),
        steps=(
            StepSpec(name="search", title="Search", each="topic"),
            StepSpec(name="get", title="Get", each="url"),
        ),
    )


def test_rows_of_nested_items_are_paths():
    """`a/b` is the item b of a, and says that there is an a; ids that were given are known, in any case."""
    text = table(
        "| item | Search | Get |",
        "| ST-1 | ✅ | |",
        "| st-1/u1 | | ⏳ |",
        "| st-2 / u2 | | ✅ |",
        "| st-9/u1 | | ✅ |",
    )
    claims = parse(text, nested())
    assert claims.tasks == {"search[st-1]": "completed", "get[st-1/u1]": "in_progress"}
    assert claims.items == {"topic": [("st-1",)], "url": [("st-1", "u1")]}
    assert claims.ignored == ("row st-2 / u2", "row st-9/u1")


def test_an_item_that_can_be_none_is_no_item():
    """A row that is no possible id, or says nothing of any step, adds no item."""
    text = table("| chapter | Draft |", "| ../etc | ✅ |", "| Total | 3 of 5 |", "| | ✅ |", "| ch01 | ✅ |")
    assert parse(text, book_spec()).items == {"chapter": [("ch01",)]}


def test_a_name_that_could_mean_two_steps_means_none():
    """Outside the table of its fan-out a heading that two steps share is not guessed at."""
    spec = PipelineSpec(
        name="p",
        items=(ItemsSpec(var="x", name="find_x"), ItemsSpec(var="y", name="find_y")),
        steps=(StepSpec(name="a", title="Work", each="x"), StepSpec(name="b", title="Work", each="y")),
    )
    assert parse(table("| thing | Work |", "| i1 | ✅ |"), spec).tasks == {}
    assert parse(table("| y | Work |", "| i1 | ✅ |"), spec).tasks == {"b[i1]": "completed"}


def test_a_renamed_step_is_known_by_its_earlier_name():
    """A page from before a rename speaks of the step that it is now, in a matrix and in a list."""
    spec = PipelineSpec(
        name="p",
        items=(ItemsSpec(var="x", name="find"),),
        steps=(StepSpec(name="write", title="Write", each="x", was=("draft",)),),
    )
    assert parse(table("| x | Draft |", "| i1 | ✅ |"), spec).tasks == {"write[i1]": "completed"}
    assert parse(table("| task | state |", "| draft[i1] | ✅ |"), spec).tasks == {"write[i1]": "completed"}


def test_a_page_of_another_project_names_it():
    """Whose page it is can be told from its title and its stamp."""
    pipe = Pipeline("other")
    pipe.items("chapter", ["ch01"])
    pipe.step(each="chapter", title="Draft")(work)
    claims = parse(render(Story(pipe, run_id="run-9").picture()), book_spec())
    assert (claims.pipeline, claims.run_id) == ("other", "run-9")


@pytest.mark.parametrize("title", ["# My own notes", "# Book: state of things", "# Checkpoint"])
def test_a_title_of_ones_own_names_no_pipeline(title):
    """Only a title in the form that is written here says whose page it is: the tables below any other count."""
    claims = parse(f"{title}\n\n" + table("| Chapter | Draft |", "| ch01 | ✅ |"), book_spec())
    assert (claims.pipeline, claims.tasks) == ("", {"draft[ch01]": "completed"})


def work(chapter): ...


def test_an_edited_page_says_so_and_keeps_its_moment():
    """A changed cell makes the stamp misfit; run and sequence number still tell when the page was drawn."""
    story = half_written_book()
    text = render(story.picture()).replace("| ch01 | ✅ | ✅ |", "| ch01 | ✅ | — |")
    claims = parse(text, story.spec)
    assert (claims.run_id, claims.seq, claims.edited) == ("run-1", story.state.seq, True)
    assert claims.tasks["draft[ch01]"] == "pending"


def test_line_ends_of_another_system_change_no_cell():
    """A page saved with CRLF is read as before, although its stamp no longer fits."""
    story = half_written_book()
    text = render(story.picture())
    assert parse(text.replace("\n", "\r\n"), story.spec).tasks == parse(text, story.spec).tasks


@pytest.mark.parametrize("place", ["title", "gate", "phase", "item"])
def test_hostile_text_changes_nothing_but_its_own_cell(place):
    """With markup in a title, a gate's question, a phase or an error, every other task reads as before."""
    spec = PipelineSpec(
        name="p",
        items=(ItemsSpec(var="x", name="find"),),
        steps=(
            StepSpec(name="a", title=HOSTILE if place == "title" else "A", each="x"),
            StepSpec(name="b", title="B", each="x", phase=HOSTILE if place == "phase" else "W"),
        ),
        phases=(PhaseSpec(HOSTILE if place == "phase" else "W"),),
        gates=(GateSpec(name="g", ask=HOSTILE if place == "gate" else "?"),),
    )
    story = Story(spec).finish("find", value=items("i1", "i2")).finish("a[i1]")
    story.fail("b[i2]", HOSTILE, status="needs_review").tell(ev.GateReached(step_id="g"))
    claims = parse(render(story.picture()), spec)
    assert claims.tasks == {
        "find": "completed",
        "a[i1]": "completed",
        "a[i2]": "pending",
        "b[i1]": "pending",
        "b[i2]": "needs_review",
    }


ANYTHING = st.one_of(
    st.text(max_size=200),
    st.text(st.sampled_from("|-: \n`~#<!>\\ch01✅⏳[]/*&;\r\t"), max_size=200),
    st.binary(max_size=200).map(lambda data: data.decode("utf-8", "surrogateescape")),
)


@given(ANYTHING)
def test_no_text_can_break_the_reader(text):
    """Whatever is in the file, reading it raises nothing and claims only tasks that the pipeline could have."""
    head = "| chapter | Research | Draft |\n| --- | --- | --- |\n"
    for whole in (text, head + text, head + "| ch01 | " + text, "## Gates\n\n- " + text):
        claims = parse(whole, book_spec())
        assert {task.partition("[")[0] for task in claims.tasks} <= {
            "outline", "chapters", "research", "draft", "assemble",
        }  # fmt: skip


def test_a_long_page_of_nonsense_leaves_short_lists():
    """What is ignored is listed up to a limit and then counted: a hostile page fills no memory."""
    rows = [f"| -{number} | ✅ |" for number in range(5000)]
    claims = parse(table("| chapter | Draft |", *rows), book_spec())
    assert len(claims.ignored) == 41
    assert claims.ignored[-1] == "... and 4960 more"


def test_claims_of_a_huge_sequence_number_are_no_stamp():
    """A stamp whose number has thousands of digits is none, and no error."""
    line = f"<!-- holdfast view run=r seq={'9' * 5000} sha256={'0' * 64} -->"
    assert not parse(line, book_spec()).is_stamped


def test_a_picture_restored_from_json_reads_the_same():
    """The spec of the journal serves as well as the compiled one."""
    story = half_written_book()
    spec = msgspec.json.decode(msgspec.json.encode(story.spec), type=PipelineSpec)
    assert parse(render(story.picture()), spec) == parse(render(story.picture()), story.spec)
