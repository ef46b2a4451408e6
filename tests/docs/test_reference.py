"""The reference names every option, and its example is a sound pipeline that runs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import fields

import holdfast
from harness import Harness
from holdfast import Context, HoldfastError, Pipeline, Rewind, errors
from holdfast.settings import Settings
from holdfast.testing import context

PAGE = (Path(__file__).parent.parent.parent / "docs" / "reference.md").read_text(encoding="utf-8")
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
PROSE = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
WORDS = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", PROSE))))
METHODS = [method for name, method in vars(Context).items() if callable(method) and not name.startswith("_")]
FOR_THE_ENGINE = {"settle", "facts", "recorder"}


OPTIONS = [Pipeline, Pipeline.step, Pipeline.items, Pipeline.phase, Pipeline.gate, Pipeline.run, Rewind]
OPTIONS += [method for method in METHODS if method.__name__ not in FOR_THE_ENGINE]


@pytest.mark.parametrize("function", OPTIONS)
def test_every_option_is_named(function: Callable[..., Any]) -> None:
    """Whatever can be given by name alone stands on the page, in code."""
    named = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert [name for name in named if name not in WORDS] == []


@pytest.mark.parametrize(
    "function", [Pipeline, Pipeline.step, Pipeline.items, Pipeline.gate, Pipeline.run, Rewind]
)
def test_help_explains_every_option(function: Callable[..., Any]) -> None:
    """Whoever has only `help(Pipeline.step)` can work with it."""
    named = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", inspect.getdoc(function) or ""))))
    assert [name for name in named if name not in words] == []


def test_help_has_a_sentence_for_every_public_name() -> None:
    """Classes, their methods, and every error; the last ones' own, not what their parents say of themselves."""
    classes = [getattr(holdfast, name) for name in holdfast.__all__]
    raised = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, HoldfastError)]
    assert [one.__name__ for one in (*classes, *raised) if not one.__doc__] == []
    public = {name: member for one in classes for name, member in vars(one).items() if name[0] != "_"}
    told = {name: member for name, member in public.items() if callable(member) or isinstance(member, property)}
    assert [name for name, member in told.items() if not member.__doc__] == []


def test_every_name_of_the_context_is_named() -> None:
    """What a step can ask its context for stands on the page."""
    public = {name for name in dir(context()) if not name.startswith("_")} - FOR_THE_ENGINE
    assert public - WORDS == set()


def test_every_setting_is_named_with_its_variable() -> None:
    """So does every setting, and the variable that sets it."""
    names = {field.name for field in fields(Settings)}
    assert names | {f"HOLDFAST_{name.upper()}" for name in names} <= WORDS


def test_the_example_runs(tmp_path: Path) -> None:
    """Up to its gate, and to its end once that is approved."""
    scope: dict[str, Any] = {"__name__": "page"}
    exec(compile(CODE, "reference.md", "exec"), scope)
    pipe = scope["pipe"]
    assert pipe.run({"topic": "kelp"}, dir=tmp_path, run_id="one").status == "paused"
    Harness(tmp_path).approve("chapters_ok", run_id="one")
    result = pipe.run({"topic": "kelp"}, dir=tmp_path)
    assert result.status == "completed"
    assert "Roots: a chapter about kelp." in result.outputs["bind"]
