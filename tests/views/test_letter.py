import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import events as ev
from holdfast.pipeline.spec import PipelineSpec
from holdfast.views.letter import Letter, parse
from holdfast.views.resume import render

from .runs import Story, half_written_book

OBEYED = "\n\r\t\x00\x1b\x07\x7f\x85\x9b\u202e\u2028\ufeff\xa0\U000e0041"
NASTY = st.text(st.sampled_from('a1 _*`#|\\[]<>&!~-="+.(;{}<!--' + OBEYED), max_size=20)
TEXT = st.one_of(NASTY, st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
NUMBERS = st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)


@given(
    params=st.dictionaries(st.sampled_from(["topic", "n", "_x_", "größe"]), VALUES),
    name=TEXT.filter(bool),
    file=TEXT,
    tags=st.dictionaries(TEXT, VALUES, max_size=2),
)
def test_what_was_written_comes_back_exactly(params, name, file, tags):
    """Whatever the values are, file, pipeline, run and parameters are read back to the character."""
    story = Story(PipelineSpec(name=name), params=params, file=file).tell(ev.Tagged(fields=tags))
    text = render(story.picture())
    assert parse(text) == Letter("run-1", name, file, params, tags, fits=True)
    assert len([line for line in text.splitlines() if line.startswith("## ")]) == 6


def test_an_edited_letter_says_so():
    """What somebody changed in it is what it says, and its stamp no longer fits."""
    text = render(half_written_book().picture()).replace('"Async IO"', '"Threads"')
    letter = parse(text)
    assert (letter.params, letter.fits) == ({"topic": "Threads"}, False)


def test_a_letter_without_a_stamp_still_names_its_run():
    """The overview says it too."""
    text = render(half_written_book().picture())
    letter = parse(text[: text.rindex("<!--")])
    assert (letter.run_id, letter.file, letter.fits) == ("run-1", "book.py", False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("- Run: `run-1`", "- Run: `run-2`"),
        ("- Run: `run-1`", "- Run: `../../etc`"),
        ("- Run: `run-1`", '- Run: `"run-1`'),
        ("- Run: `run-1`", "- Run: `run-1`\n- Run: `run-2`"),
    ],
)
def test_a_run_that_is_in_doubt_is_not_named(old, new):
    """Two runs in one letter, or what can be no run's id, is said and not believed."""
    letter = parse(render(half_written_book().picture()).replace(old, new))
    assert letter.problem
    assert letter.run_id == ""


@pytest.mark.parametrize(
    "line",
    [
        "- Parameter `topic`: Async IO",
        '- Parameter `topic`: `"Async IO`',
        "- Parameter `topic`: `Async IO`",
        "- Parameter topic: `1`",
        f"- Parameter `topic`: `{'[' * 100_000}`",
    ],
)
def test_a_parameter_that_cannot_be_read_is_left_out_and_said(line):
    """Half a value, or one that is no JSON, is no parameter."""
    letter = parse(render(half_written_book().picture()).replace('- Parameter `topic`: `"Async IO"`', line))
    assert letter.params == {}
    assert letter.problem
    assert len(letter.problem) < 1000


@pytest.mark.parametrize("budget", [0.1 + 0.2, 1234567.89, 0.0, 25.0])
def test_a_budget_comes_back_exactly(budget):
    """To the cent, however large."""
    story = Story(PipelineSpec(name="p")).tell(ev.RunContinued(budget_usd=budget))
    assert parse(render(story.picture())).budget_usd == budget


@pytest.mark.parametrize("words", ["much", "-1", "inf", "nan"])
def test_a_budget_that_is_no_amount_is_left_out_and_said(words):
    """A letter can be edited by anybody."""
    letter = parse(f"## Overview\n\n- Budget in dollars: `{words}`\n")
    assert letter.budget_usd is None
    assert letter.problem


def test_what_is_no_letter_says_nothing():
    """Any other text gives an empty letter."""
    assert parse("# Groceries\n\n- Run: `run-1`\n\n```\n## Overview\n- Run: `run-2`\n```\n") == Letter()


@given(st.one_of(st.text(), NASTY.map(lambda text: "## Overview\n\n- Parameter " + text)))
def test_no_text_can_break_it(text):
    """Whatever is in the file, reading it raises nothing."""
    assert isinstance(parse(text), Letter)
