"""The message that sends work back."""

import pytest

from holdfast.pipeline.rewind import Rewind


def test_the_target_and_its_feedback():
    """A single target holds the feedback; the rest has defaults."""
    rewind = Rewind("draft", feedback="name your sources")
    assert rewind.targets == {"draft": "name your sources"}
    assert (rewind.rounds, rewind.keep) == (2, ())
    assert str(rewind) == "draft: name your sources"


def test_several_targets():
    """A dict names several tasks, each with its own feedback."""
    rewind = Rewind({"draft[a]": "x", "draft[b]": ""}, rounds=1, keep=["r1"])
    assert rewind.targets == {"draft[a]": "x", "draft[b]": ""}
    assert (rewind.rounds, rewind.keep) == (1, ("r1",))
    assert Rewind("draft", keep="r1").keep == ("r1",)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((5,), {}),
        (("",), {}),
        (({},), {}),
        (({"a": 5},), {}),
        (({"a": "x"}, "y"), {}),
        (("a", 5), {}),
        (("a",), {"rounds": 0}),
        (("a",), {"rounds": True}),
        (("a",), {"rounds": "2"}),
        (("a",), {"keep": 5}),
        (("a",), {"keep": [5]}),
    ],
)
def test_wrong_arguments_are_told_where_they_are_raised(args, kwargs):
    """A Rewind that says nothing sensible is a TypeError in the step itself."""
    with pytest.raises(TypeError, match="Rewind"):
        Rewind(*args, **kwargs)
