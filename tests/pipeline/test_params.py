"""Run parameters, from text and from Python."""

import pytest

from holdfast.errors import DefinitionError, UsageError
from holdfast.pipeline.params import ParamSet

DECLARED = {"topic": str, "chapters": (int, 3), "rate": (float, 0.5), "dry": (bool, False)}


def even(text):
    number = int(text)
    if number % 2:
        raise ValueError("must be even")
    return number


def test_text_goes_through_the_callable():
    """Values given as text come out with the declared type, defaults fill the rest, in declared order."""
    values = ParamSet(DECLARED).parse({"chapters": "5", "topic": "Async IO", "rate": "2", "dry": "yes"})
    assert values == {"topic": "Async IO", "chapters": 5, "rate": 2.0, "dry": True}
    assert list(values) == ["topic", "chapters", "rate", "dry"]
    assert ParamSet(DECLARED).parse({"topic": "x"}) == {
        "topic": "x",
        "chapters": 3,
        "rate": 0.5,
        "dry": False,
    }


def test_values_from_python_must_fit():
    """A value that is not text is taken if it has the type; an int becomes a float, a bool is no int."""
    params = ParamSet(DECLARED)
    values = params.parse({"topic": "x", "chapters": 7, "rate": 1, "dry": True})
    assert values == {"topic": "x", "chapters": 7, "rate": 1.0, "dry": True}
    assert type(values["rate"]) is float
    for bad in [
        {"chapters": True},
        {"chapters": 1.5},
        {"topic": 5},
        {"dry": 1},
        {"rate": None},
        {"rate": 10**400},
    ]:
        with pytest.raises(UsageError, match="is not a valid"):
            params.parse({"topic": "x", **bad})


@pytest.mark.parametrize("word", ["true", "Yes", "ON", "1", "false", "no", "off", "0"])
def test_words_for_booleans(word):
    """true/yes/on/1 and false/no/off/0 are booleans, in any case."""
    assert ParamSet({"dry": bool}).parse({"dry": word}) == {"dry": word.lower() in ("true", "yes", "on", "1")}


def test_other_words_are_no_booleans():
    """A text that is true in Python is not therefore true."""
    with pytest.raises(UsageError, match="'maybe' is not a valid bool"):
        ParamSet({"dry": bool}).parse({"dry": "maybe"})


def test_all_problems_are_told_at_once():
    """Unknown, missing and invalid parameters are lines of one error."""
    with pytest.raises(UsageError) as caught:
        ParamSet(DECLARED).parse({"chapters": "abc", "topc": "x", "rate": "nan"})
    lines = caught.value.message.splitlines()
    assert "Parameter chapters: 'abc' is not a valid int." in lines
    assert any(line.startswith("Parameter topc: ") and "Did you mean topic?" in line for line in lines)
    assert any(line.startswith("Parameter topic: a value is needed") for line in lines)
    assert any(line.startswith("Parameter rate: ") and "nan" in line for line in lines)
    assert len(lines) == 4


def test_a_callable_of_the_pipelines_own_says_what_it_wants():
    """The message of its ValueError is part of the line."""
    params = ParamSet({"n": even})
    assert params.parse({"n": "4"}) == {"n": 4}
    with pytest.raises(UsageError, match="Parameter n: '3' is refused: must be even"):
        params.parse({"n": "3"})
    with pytest.raises(UsageError, match="must be given as text"):
        params.parse({"n": 4})


class UnspeakableError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyError("x"), "is refused: KeyError: 'x'"),
        (UnspeakableError(), "its message cannot be had"),
        (OSError(), "is not a valid choose"),
    ],
)
def test_whatever_a_callable_raises_is_a_refusal(error, words):
    """It is the pipeline's own code: a mistake that is told in one line, and no error of ours."""

    def choose(text):
        raise error

    with pytest.raises(UsageError, match=words) as caught:
        ParamSet({"colour": choose}).parse({"colour": "x"})
    assert str(caught.value).startswith("Parameter colour: 'x' is ")


def test_results_must_be_json():
    """What a callable makes is stored, so a set is refused."""
    with pytest.raises(UsageError, match="Parameter tags: the value is a set"):
        ParamSet({"tags": set}).parse({"tags": "ab"})


def test_base_is_the_run_being_continued():
    """Values of the run stand where nothing else is given, before defaults."""
    params = ParamSet(DECLARED)
    base = {"topic": "old", "chapters": 9, "gone": 1}
    assert params.parse({"topic": "new"}, base=base) == {
        "topic": "new",
        "chapters": 9,
        "rate": 0.5,
        "dry": False,
    }


def test_a_default_is_not_shared():
    """Changing a value that came from a default changes no later one."""
    params = ParamSet({"tags": (list, ["a"])})
    params.parse({})["tags"].append("b")
    assert params.parse({}) == {"tags": ["a"]}


@pytest.mark.parametrize(
    "declared",
    [
        {"a-b": str},
        {"ctx": str},
        {"run_id": str},
        {"a": 5},
        {"a": (str, {1})},
        {5: str},
        ["a"],
        {"a": (str, 1, 2)},
    ],
)
def test_mistakes_in_the_declaration(declared):
    """Names that cannot be parameters, things that are not callable, defaults that are not JSON: told."""
    with pytest.raises(DefinitionError) as caught:
        ParamSet(declared)
    assert len(caught.value.mistakes) == 1
