"""The pipelines that users already have load and compile unchanged."""

import sys
from pathlib import Path

import pytest

from holdfast.pipeline.loader import load_pipeline
from holdfast.pipeline.spec import Source

CONTRACT = Path(__file__).parent.parent / "contract"


@pytest.fixture(autouse=True)
def imports_as_before(monkeypatch):
    """sys.path and the modules are as they were when the test is over."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("fanout", "loop", "reviews"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_fanout_compiles():
    """Items from a function, a limit, a paid async step and a gathering one."""
    compiled = load_pipeline("fanout.py", base=CONTRACT)
    assert [step.name for step in compiled.spec.steps] == ["plan", "search", "summarise", "synthesise"]
    assert compiled.spec.steps[1].limit == "model"
    assert compiled.params.parse({"question": "why"}) == {"question": "why", "subtopics": 4}
    assert compiled.spec.steps[3].sources == {
        "ctx": Source("ctx", "ctx"),
        "summarise": Source("step", "summarise"),
    }


def test_loop_compiles():
    """Four steps in a row, with files in a hidden folder of the user's own."""
    compiled = load_pipeline("loop.py:buildloop", base=CONTRACT)
    assert compiled.spec.overwrite is True
    assert compiled.spec.steps[0].marker == "SCOUT_COMPLETE"


def test_reviews_compiles():
    """Given items in order, phases, and a step that sends work back."""
    compiled = load_pipeline("reviews.py", base=CONTRACT)
    assert [phase.name for phase in compiled.spec.phases] == ["Writing", "Binding"]
    assert compiled.spec.items[0].given == ({"id": "ch01"}, {"id": "ch02", "after": ["ch01"]})
