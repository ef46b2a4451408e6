"""Declaring a pipeline, and what a sound one compiles to."""

import functools
import inspect
import subprocess
import sys
import typing

import pytest

from holdfast.pipeline.definition import Pipeline
from holdfast.pipeline.spec import GateSpec, LimitSpec, PhaseSpec, Source


def book():
    pipe = Pipeline("book", params={"topic": str, "words": (int, 900)}, limits={"model": 3})

    @pipe.step(writes="outline.md")
    def outline(ctx, topic: str) -> str: ...

    @pipe.items("chapter")
    def chapters(outline: str) -> list: ...

    @pipe.items("section", each="chapter")
    async def sections(chapter: str, outline: str) -> list: ...

    def long_enough(text: str, words: int, chapter: str, outline: str): ...

    @pipe.step(each="section", writes="drafts/{chapter}/{section}.md", check=long_enough, limit="model")
    async def draft(section: str, chapter: str, sections: list, outline: str, style: str = "plain") -> str: ...

    @pipe.step(writes="book.md", marker=None, retry_on=OSError, no_retry_on=(KeyError, ValueError))
    def assemble(draft: dict[str, dict[str, str]], sections: dict[str, list], chapters: list) -> str: ...

    return pipe


def test_sources_are_found_by_name():
    """Every parameter has its source, in the order of the signature; one with a default may have none."""
    steps = {step.name: step for step in book().compile().spec.steps}
    assert list(steps["draft"].sources.items()) == [
        ("section", Source("item", "section")),
        ("chapter", Source("item", "chapter")),
        ("sections", Source("items", "sections")),
        ("outline", Source("step", "outline")),
    ]
    assert steps["outline"].sources == {"ctx": Source("ctx", "ctx"), "topic": Source("param", "topic")}
    assert steps["assemble"].sources["draft"] == Source("step", "draft")


def test_checks_receive_the_output_first():
    """The first parameter of a check is the output; the others are resolved as the step's own would be."""
    (check,) = book().compile().checks["draft"]
    assert check.name == "long_enough"
    assert check.sources == {
        "text": Source("output", "draft"),
        "words": Source("param", "words"),
        "chapter": Source("item", "chapter"),
        "outline": Source("step", "outline"),
    }


def test_what_the_compiled_pipeline_holds():
    """Functions by name, fan-outs with their parents, limits, retry classes, parameters and the file."""
    compiled = book().compile()
    assert set(compiled.functions) == {"outline", "chapters", "sections", "draft", "assemble"}
    assert [(fan.var, fan.name, fan.each, fan.is_async) for fan in compiled.spec.items] == [
        ("chapter", "chapters", None, False),
        ("section", "sections", "chapter", True),
    ]
    assert compiled.spec.fan_path("section") == ("chapter", "section")
    assert compiled.spec.limits == {"model": LimitSpec(3)}
    assert compiled.spec.params == compiled.params.names == ("topic", "words")
    assert compiled.retry_on == {"assemble": (OSError,)}
    assert compiled.no_retry_on == {"assemble": (KeyError, ValueError)}
    assert (compiled.file, compiled.variable) == (__file__, None)


def test_defaults_of_a_step():
    """The title is the name; the marker is NAME_COMPLETE where a file is written, unless None was given."""
    steps = {step.name: step for step in book().compile().spec.steps}
    assert steps["outline"].title == "outline"
    assert steps["outline"].marker == "OUTLINE_COMPLETE"
    assert steps["assemble"].marker is None
    assert (steps["draft"].is_async, steps["outline"].is_async) == (True, False)
    assert steps["draft"].on_partial is None

    pipe = Pipeline("p")
    pipe.step(name="plan", title="The plan")(lambda: None)
    (plan,) = pipe.compile().spec.steps
    assert (plan.name, plan.title, plan.marker) == ("plan", "The plan", None)


def test_decorators_return_the_function_unchanged():
    """A declared function is the very same object, whichever way it was declared."""
    pipe = Pipeline("p")

    def plan(): ...
    def parts(plan): ...
    def change(value): ...

    assert pipe.step(plan) is plan
    assert pipe.step(name="again")(plan) is plan
    assert pipe.items("part")(parts) is parts
    assert pipe.migration("plan", 1)(change) is change


def test_all_options_reach_the_spec():
    """Options arrive as given, single names as tuples."""
    pipe = Pipeline("p", limits={"m": {"concurrent": 2, "per_minute": 50}}, overwrite=True)

    @pipe.step
    def first(): ...

    @pipe.step(
        reads="inbox/*.csv",
        writes={"text": "a.md", "table": "b.csv"},
        marker="DONE",
        after="first",
        phase="Writing",
        retries=2,
        backoff=0,
        timeout=600,
        limit="m",
        on_partial="ask",
        on_failure="skip",
        version=4,
        executor="process",
        copy=False,
        was=["oldest", "older"],
    )
    def second() -> dict: ...

    spec = pipe.compile().spec
    step = spec.steps[1]
    assert (step.reads, step.after, step.phase) == (("inbox/*.csv",), ("first",), "Writing")
    assert step.files == {"text": "a.md", "table": "b.csv"}
    assert (step.marker, step.retries, step.backoff, step.timeout) == ("DONE", 2, 0.0, 600.0)
    assert (step.limit, step.on_partial, step.on_failure, step.version) == ("m", "ask", "skip", 4)
    assert (step.executor, step.copy, step.was, step.identity) == (
        "process",
        False,
        ("oldest", "older"),
        "oldest",
    )
    assert spec.overwrite is True
    assert spec.limits == {"m": LimitSpec(2, 50)}


def test_phases_run_in_the_order_of_first_mention():
    """A phase is placed by whatever names it first; checklists are resolved by name."""
    pipe = Pipeline("p", params={"topic": str})
    pipe.phase("Planning")

    @pipe.step(phase="Planning")
    def plan() -> dict: ...

    @pipe.step(phase="Writing")
    def write(plan): ...

    def planned(plan: dict, topic: str): ...

    pipe.phase("Writing", checklist=planned)
    pipe.gate("ready", phase="Planning", ask="Go on?")
    compiled = pipe.compile()
    sources = {"plan": Source("step", "plan"), "topic": Source("param", "topic")}
    assert compiled.spec.phases == (PhaseSpec("Planning"), PhaseSpec("Writing", ("planned",), (sources,)))
    assert [check.fn for check in compiled.checklists["Writing"]] == [planned]
    assert compiled.spec.gates == (GateSpec(name="ready", phase="Planning", ask="Go on?"),)


def test_given_items_are_normalised():
    """A fan-out over a list is no task; its items are dicts, copied from what was given."""
    pipe = Pipeline("p")
    given = ["a", {"id": "b", "after": ["a"], "title": "B"}]
    assert pipe.items("part", given) is None
    pipe.step(name="do", each="part")(lambda part: None)
    (fan,) = pipe.compile().spec.items
    assert (fan.name, fan.given) == ("items:part", ({"id": "a"}, {"id": "b", "after": ["a"], "title": "B"}))
    assert set(pipe.compile().functions) == {"do"}


def test_migrations_by_step_and_version():
    """A chain of migrations up to the step's version is kept by from-version."""
    pipe = Pipeline("p")

    @pipe.step(version=3)
    def plan(): ...

    @pipe.migration("plan", 2)
    def two(value): ...

    @pipe.migration("plan", 1)
    def one(value): ...

    assert pipe.compile().migrations == {"plan": {1: one, 2: two}}


def test_compiling_is_cached_until_something_is_declared():
    """The same object comes back until a declaration of any kind changes the pipeline."""
    pipe = book()
    compiled = pipe.compile()
    assert pipe.compile() is compiled
    pipe.gate("ok", after="assemble")
    again = pipe.compile()
    assert again is not compiled
    pipe.items("extra", ["a"])
    assert pipe.compile() is not again


def test_wrapped_partial_and_object_callables_are_steps():
    """A decorated function keeps its signature; partials and callable objects need only a name."""
    pipe = Pipeline("p", params={"topic": str})

    def plan(topic, depth): ...

    @functools.wraps(plan)
    def wrapped(*args, **kwargs): ...

    class Caller:
        async def __call__(self, plan): ...

    pipe.step(name="shallow")(functools.partial(plan, depth=1))
    pipe.step(name="plan")(functools.partial(wrapped, depth=2))
    pipe.step(name="call")(Caller())
    steps = {step.name: step for step in pipe.compile().spec.steps}
    assert steps["shallow"].sources == steps["plan"].sources == {"topic": Source("param", "topic")}
    assert steps["call"].sources == {"plan": Source("step", "plan")}
    assert (steps["call"].is_async, steps["plan"].is_async) == (True, False)


def test_nonsense_is_refused_where_it_stands():
    """What is no declaration at all is a TypeError at once."""
    pipe = Pipeline("p")
    for nonsense in [
        lambda: pipe.step("name"),
        lambda: pipe.step()(5),
        lambda: pipe.items(lambda: None),
        lambda: pipe.items("x")(5),
        lambda: pipe.migration("x", 1)(5),
    ]:
        with pytest.raises(TypeError):
            nonsense()


def test_step_and_its_overload_have_the_same_options():
    """The options that type checkers see are those that the decorator takes."""
    options = set(inspect.signature(Pipeline.step).parameters) - {"self", "fn", "unknown"}
    (typed,) = [
        set(inspect.signature(overload).parameters) - {"self"}
        for overload in typing.get_overloads(Pipeline.step)
        if "fn" not in inspect.signature(overload).parameters
    ]
    assert typed == options


def test_declaring_stays_light():
    """Importing the declaring half loads no event loop, no command line and no terminal drawing."""
    code = (
        "import sys, holdfast.pipeline.definition;"
        " print([m for m in ('asyncio', 'click', 'rich') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
