"""Small pipelines with a mistake in them, and the mistakes as they are told."""

import pytest

from holdfast.errors import DefinitionError
from holdfast.pipeline.definition import Pipeline


def nothing(): ...


def takes_a(a): ...


def takes_b(b): ...


def told(pipe):
    """The mistakes of a pipeline, without their places (which are checked here)."""
    with pytest.raises(DefinitionError) as caught:
        pipe.compile()
    for line in caught.value.mistakes:
        place, _, _ = line.partition(": ")
        file, _, number = place.rpartition(":")
        assert file.endswith(".py")
        assert number.isdigit()
        assert line.isprintable()
    return [line.partition(": ")[2] for line in caught.value.mistakes]


def only(pipe):
    """The one mistake of a pipeline."""
    (line,) = told(pipe)
    return line


def with_step(fn=nothing, *, params=None, limits=None, items=None, **options):
    """A pipeline `p` with a step `plan` and a second step made of `fn` and `options`."""
    pipe = Pipeline("p", params=params, limits=limits)
    for var, entries in (items or {}).items():
        pipe.items(var, entries)
    pipe.step(name="plan")(lambda: "x")
    pipe.step(**{"name": "work", **options})(fn)
    return pipe
