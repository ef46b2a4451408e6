"""Every mistake in a pipeline is told at load, with its place, and all of them at once."""

import inspect

import pytest
from declaring import nothing, only, takes_a, takes_b, told, with_step
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Context
from holdfast.errors import DefinitionError
from holdfast.pipeline.definition import Pipeline


def test_the_place_is_the_functions_own():
    """A mistake names the file and the line where the step's function begins."""
    pipe = Pipeline("p")

    @pipe.step
    def draft(reserch): ...

    with pytest.raises(DefinitionError) as caught:
        pipe.compile()
    line = draft.__code__.co_firstlineno
    assert caught.value.mistakes[0].startswith(f"test_mistakes.py:{line}: step draft: parameter reserch ")


def test_all_mistakes_are_told_at_once():
    """Three steps with one mistake each give three lines in the order of the source."""
    pipe = Pipeline("p")

    @pipe.step(retries=-1)
    def one(): ...

    @pipe.step(each="nothing")
    def two(): ...

    @pipe.step
    def three(four): ...

    assert [line.split(":")[0] for line in told(pipe)] == ["step one", "step two", "step three"]


def test_an_option_that_there_is_not_is_a_mistake_like_any_other():
    """It is told with its step, or gate, and the option that was probably meant, and hides nothing."""
    pipe = Pipeline("p")

    @pipe.step(retrys=2, version=0)
    def one(): ...

    pipe.gate("ok", after=["one"], question="Good?")
    assert told(pipe) == [
        "step one: there is no option retrys=. Did you mean retries?",
        "step one: version=0 must be a whole number from 1.",
        "gate ok: there is no option question=.",
    ]


def test_a_bad_name_hides_no_other_mistake():
    """What cannot be known by its name is looked at all the same: whoever mends the name has mended all."""
    pipe = Pipeline("p")

    @pipe.step
    def draft(): ...

    @pipe.step(name="draft", retries=-1, writes="../x", check=3, retry_on=4)
    def again(reserch): ...

    @pipe.step(name=["no text"], version=0)
    def other(): ...

    @pipe.items("part")
    def parts(): ...

    @pipe.items("part")
    def more_parts(chaptr): ...

    pipe.items("draft", ["../x"])
    pipe.items(3, ["/x"])
    pipe.gate("draft", after=["nothing"])
    lines = "\n".join(told(pipe))
    for mistake in (
        "step draft: there is another step of that name",
        "step draft: retries=-1",
        "step draft: parameter reserch",
        "step draft: writes='../x' leaves the project",
        "step draft: check= must be a function",
        "step draft: retry_on= must be exception classes",
        "step ['no text']: version=0",
        "items more_parts: parameter chaptr",
        "items draft: the id '../x'",
        "items 3: the id '/x'",
        "gate draft: after='nothing'",
    ):
        assert mistake in lines


def test_the_repaired_pipeline_compiles():
    """The step used by the tests below is sound as long as nothing is wrong with it."""
    pipe = with_step(items={"part": ["a"]}, each="part", writes="{part}.md")
    assert [step.name for step in pipe.compile().spec.steps] == ["plan", "work"]


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda pln: None, "parameter pln names no step"),
        (lambda pln: None, "Did you mean plan?"),
        (lambda part: None, 'Add each="part"'),
        (lambda ok: None, 'Use after="ok"'),
        (lambda *plan: None, "parameter *plan"),
        (lambda **plan: None, "parameter **plan"),
        (lambda plan, /: None, "parameter plan is positional-only"),
        (dict.get, "positional-only"),
    ],
)
def test_parameters_without_a_source(fn, expected):
    """A parameter that nothing provides is told with what to do about it."""
    pipe = with_step(fn, items={"part": ["a"]})
    pipe.gate("ok", after="plan")
    assert any(expected in line for line in told(pipe))


def test_the_context_is_called_ctx():
    """A parameter annotated as the context under another name is told to be renamed."""

    def work(context: Context): ...

    assert only(with_step(work)) == "step work: parameter context is a Context; name it ctx."


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"retries": -1}, "retries=-1"),
        ({"retries": True}, "retries=True"),
        ({"retries": 1.5}, "retries=1.5"),
        ({"retries": "2"}, "retries='2' must be a whole number"),
        ({"backoff": -1}, "backoff=-1"),
        ({"backoff": float("nan")}, "backoff=nan"),
        ({"timeout": 0}, "timeout=0"),
        ({"timeout": "9"}, "timeout='9' must be seconds"),
        ({"timeout": float("inf")}, "timeout=inf"),
        ({"timeout": 10**400}, "timeout=1000"),
        ({"version": 0}, "version=0"),
        ({"on_partial": "rdo"}, "Did you mean redo?"),
        ({"on_failure": "ask"}, "on_failure='ask' must be one of review, skip"),
        ({"executor": "fork"}, "executor='fork' must be one of thread, process"),
        ({"copy": 1}, "copy=1 must be True or False"),
        ({"copy": "True"}, "copy='True' must be True or False"),
        ({"title": "a\ud800"}, "has half a character"),
        ({"title": "long" * 40}, "is longer than 128 bytes"),
        ({"title": ""}, "title='' is empty"),
        ({"limit": "modl"}, "Did you mean model?"),
        ({"after": ["pln"]}, "after='pln' names no step, items function or gate. Did you mean plan?"),
        ({"after": [nothing]}, "after= must be text"),
        ({"each": "prt"}, "each='prt' names no fan-out. Did you mean part?"),
        ({"each": ["part"]}, "names no fan-out"),
        ({"phase": ""}, "phase='' is empty"),
        ({"phase": 5}, "phase='5' is not text"),
        ({"check": "x"}, "check= must be a function"),
        ({"check": [nothing]}, "check nothing: takes no parameter"),
        ({"retry_on": "OSError"}, "retry_on= must be exception classes; 'OSError' is none"),
        ({"no_retry_on": (OSError, 5)}, "no_retry_on= must be exception classes"),
        ({"was": "plan"}, "was='plan' is a step of this pipeline"),
        ({"was": "work"}, "was='work' is a step of this pipeline"),
        ({"was": "a-b"}, "was='a-b' is not a Python name"),
        ({"was": 5}, "was= must be text"),
        ({"marker": "DONE"}, "marker= is given, but nothing is written"),
        ({"marker": "A B", "writes": "a.md"}, "must be one word"),
        ({"marker": "A-->", "writes": "a.md"}, "must be one word"),
        ({"marker": "<!--", "writes": "a.md"}, "must be one word"),
        ({"marker": "", "writes": "a.md"}, "must be one word"),
        ({"marker": "A\n", "writes": "a.md"}, "must be one word"),
        ({"writes": 5}, "writes= must be a path"),
        ({"writes": {}}, "writes= must be a path"),
        ({"writes": {"": "a.md"}}, "a path for each key"),
        ({"writes": {"text": None}}, "a path for each key"),
        ({"reads": 5}, "reads= must be text"),
        ({"reads": "../*.csv"}, "reads='../*.csv' leaves the project"),
        ({"reads": "/etc/*"}, "reads='/etc/*' is not relative"),
        ({"reads": ["a", ".holdfast/x"]}, "Holdfast's own"),
        ({"writes": "/a.md"}, "writes='/a.md' is not relative"),
        ({"writes": "a/../../b.md"}, "leaves the project"),
        ({"writes": "checkpoint.md"}, "Holdfast itself"),
        ({"writes": "{topic}.seal"}, "reserved"),
        ({"writes": "{topc}.md"}, "unknown field {topc}. Did you mean topic?"),
        ({"writes": "{topic.x}.md"}, "not a plain {name}"),
        ({"writes": "{topic"}, "is no template"),
        ({"writes": "{part}.md"}, "unknown field {part}"),
        ({"each": "part", "writes": "a.md"}, "is the same for every item. Put {part} into it"),
        ({"writes": "in.md", "reads": "IN.md"}, "reads 'IN.md', which step work writes"),
        ({"name": "a-b"}, "the name is not a Python name"),
        ({"name": "ctx"}, "the name is reserved"),
        ({"name": "plan"}, "there is another step of that name"),
        ({"name": "PLAN"}, "differs from step plan only in case"),
        ({"name": "topic"}, "ambiguous, there is also the run parameter topic"),
        ({"name": "part"}, "ambiguous"),
    ],
)
def test_bad_options(options, expected):
    """Each bad value of an option is one line that names the step and says what is wanted."""
    pipe = with_step(params={"topic": str}, limits={"model": 1}, items={"part": ["a"]}, **options)
    assert expected in only(pipe)


def test_a_step_needs_a_name_of_its_own():
    """A lambda has no name that could be a parameter."""
    pipe = Pipeline("p")
    pipe.step(lambda: None)
    assert only(pipe) == (
        "step '<lambda>': the name is not a Python name (letters, digits and _, no keyword)."
        " Give it another with name=."
    )


def test_generators_are_no_steps():
    """A function that yields gives no value; checks that are async would accept everything."""

    def work():
        yield 1

    async def agrees(output): ...

    assert "is a generator" in only(with_step(work))
    assert "must be a plain function" in only(with_step(check=agrees))


def test_processes_have_no_event_loop():
    """A step in a process is a plain function; it may have a ctx."""

    async def work(ctx): ...

    assert "is async" in only(with_step(work, executor="process"))
    with_step(lambda ctx: None, executor="process").compile()


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({"name": ""}, "the name is empty"),
        ({"name": 5}, "the name is not text"),
        ({"name": "a\x1b[0m"}, "cannot be shown"),
        ({"overwrite": 1}, "overwrite= must be True or False"),
        ({"limits": ["a"]}, "limits= must be a dict"),
        ({"limits": {"a": 0}}, "the limit a is 0"),
        ({"limits": {"a": "8"}}, "the limit a is '8'; give a whole number"),
        ({"limits": {"a": {"per_hour": 5}}}, "the limit a is"),
        ({"limits": {"a": {}}}, "the limit a is"),
        ({"limits": {"": 5}}, "the limit '' is empty"),
        ({"params": {"a-b": str}}, "parameter 'a-b' is not a Python name"),
        ({"params": {"a": 3}}, "parameter a must be a callable"),
    ],
)
def test_mistakes_of_the_pipeline_itself(kwargs, expected):
    """Name, limits, parameters and flags of the pipeline are checked like those of its steps."""
    pipe = Pipeline(**{"name": "p", **kwargs})
    pipe.step(nothing)
    assert expected in only(pipe)


def test_a_pipeline_without_steps_does_nothing():
    """A pipeline that could only succeed at once is a mistake."""
    assert "has no steps" in only(Pipeline("p"))


def test_mistakes_of_fan_outs():
    """Unknown parents, fan-outs inside each other, bad variables and bad items are told."""
    pipe = Pipeline("p")
    pipe.step(nothing)
    pipe.items("a", ["x"], each="nowhere")
    pipe.items("b", ["x"], each="c")
    pipe.items("c", ["x"], each="b")
    pipe.items("d-e", ["x"])
    pipe.items("f", ["x", "X", "../y"])
    pipe.items("g", "x")
    pipe.items("g", ["x"])
    pipe.step(name="inside", each="c")(lambda c: None)
    lines = "\n".join(told(pipe))
    for expected in [
        "fan-out a: each='nowhere' names no fan-out",
        "fan-outs lie inside each other: b -> c -> b",
        "fan-out variable 'd-e': the name is not",
        "items f: the id X differs from x only in case",
        "items f: the id '../y' of item number 3",
        "items g: the items are of the type str",
        "fan-out variable g: there is another",
    ]:
        assert expected in lines
    assert lines.count("\n") == 6


def test_mistakes_of_gates():
    """A gate must say when it comes, and only by names that exist."""
    pipe = Pipeline("p")
    pipe.step(name="plan")(nothing)
    pipe.gate("ok")
    pipe.gate("a/b", after="plan")
    pipe.gate("plan", after="plan")
    pipe.gate("late", after="pln", blocking="yes", ask=5)
    pipe.gate("batch", each="prt")
    lines = told(pipe)
    expected = [
        "nothing says when",
        "gate 'a/b'",
        "ambiguous",
        "names no step",
        "ask=",
        "blocking=",
    ]
    for text in [*expected, "each='prt'"]:
        assert any(text in line for line in lines), text
    assert len(lines) == 7


def test_a_gate_of_a_phase_without_steps_is_told():
    """It would ask before anything is there, and hold nothing; a phase that pipe.phase declares may be empty."""
    pipe = with_step(phase="Writing")
    pipe.gate("ok", phase="Writng")
    assert "phase='Writng' has no step, and is not declared by pipe.phase. Did you mean Writing?" in only(pipe)
    declared = with_step(phase="Writing")
    declared.phase("Reading")
    declared.gate("ok", phase="Reading")
    assert declared.compile()


def test_a_phase_that_is_all_but_called_like_a_declared_one_is_told():
    """pipe.phase is optional: other names are phases too, but a slip is not taken for a new one."""
    assert with_step(phase="Writng").compile()
    pipe = with_step(phase="Writng")
    pipe.phase("Writing")
    assert "phase='Writng' is not declared by pipe.phase. Did you mean Writing?" in only(pipe)
    for phase in ("Drafting", "Planning", "Writing 2"):
        pipe = with_step(phase=phase)
        pipe.phase("Writing 1")
        assert [each.name for each in pipe.compile().spec.phases] == [phase, "Writing 1"]


def test_mistakes_of_phases():
    """A phase is declared once, with functions that take what is there before it starts."""
    pipe = Pipeline("p")

    @pipe.step(phase="One")
    def plan(): ...

    pipe.phase("One", checklist=[lambda plan: True])
    pipe.phase("Two", checklist=["x", lambda pln: True])
    pipe.phase("Two")
    pipe.phase("")
    lines = told(pipe)
    for text in [
        "takes plan, which cannot be there yet",
        "checklist= must be",
        "pln names no",
        "twice",
        "is empty",
    ]:
        assert any(text in line for line in lines), text
    assert len(lines) == 5


def test_one_old_name_has_one_heir():
    """Two steps cannot both be the renamed form of one."""
    pipe = with_step(was="old")
    pipe.step(name="other", was=["old"])(nothing)
    assert len(told(pipe)) == 2


def test_mistakes_of_migrations():
    """Unknown steps, versions beyond the step's, duplicates, gaps and wrong signatures are told."""
    pipe = Pipeline("p")
    pipe.step(name="plan", version=4)(nothing)
    for step, version in [("pln", 1), ("plan", 4), ("plan", 0), ("plan", 1), ("plan", 1), ("plan", 3)]:
        pipe.migration(step, version)(lambda value: value)
    pipe.migration("plan", 1)(nothing)
    lines = told(pipe)
    for text in [
        "'pln' names no step. Did you mean plan?",
        "from version 4 of plan to 5",
        "the version 0 must be",
        "another one of plan from version 1",
        "none from version 2",
        "takes one parameter",
    ]:
        assert any(text in line for line in lines), text


def test_a_migration_of_a_section_is_a_mistake():
    """It would never be called: the sections are made, and paid for, anew. That is told before it happens."""
    pipe = Pipeline("p")
    pipe.items("part", ["a"])
    pipe.step(name="draft", each="part", writes="{part}.md")(nothing)
    pipe.step(name="memory", each="part", appends="memory.md", sources=["draft"], version=2)(lambda source: source)
    pipe.migration("memory", 1)(lambda value: value)
    assert "memory appends to a memory file: a raised version makes its sections anew" in only(pipe)


def test_an_items_function_without_a_name_is_one_mistake():
    """A lambda as items function is told once; the steps of its fan-out are not told as well."""
    pipe = Pipeline("p")
    pipe.items("part")(lambda: ["a"])
    pipe.step(name="work", each="part")(lambda part: None)
    assert "items function '<lambda>': the name is not a Python name" in only(pipe)


OPTIONS = [name for name in inspect.signature(Pipeline.step).parameters if name not in ("self", "fn")]
ANYTHING = st.one_of(
    st.sampled_from([None, True, nothing, takes_a, OSError, (OSError,), print, {"k": "{a}.md"}, [["a"]]]),
    st.sampled_from(["a", "b", "part", "parts", "x/{part}.md", "{a", "process", "redo"]),
    st.text(max_size=4),
    st.integers() | st.floats(),
    st.lists(st.text(max_size=2), max_size=2),
    st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=2),
)
STEPS = st.lists(st.dictionaries(st.sampled_from(OPTIONS), ANYTHING, max_size=4), max_size=3)


@given(steps=STEPS, each=ANYTHING, items=ANYTHING, gate=ANYTHING, phase=ANYTHING, params=ANYTHING)
def test_nothing_that_is_declared_breaks_the_compiler(steps, each, items, gate, phase, params):
    """Whatever stands in the options, compiling tells mistakes in single lines and never fails otherwise."""
    pipe = Pipeline("p", params=params, limits=params)
    pipe.items("part", items, each=each) if items is not None else pipe.items("part", each=each)(nothing)
    pipe.items("other", each="part")(takes_a)
    pipe.gate("g", after=gate, phase=phase)
    pipe.phase(phase, checklist=gate)
    pipe.step(name="a")(takes_b)
    for options in steps:
        pipe.step(**options)(takes_a)
    pipe.step(name="wrong", retries=-1)(nothing)
    with pytest.raises(DefinitionError) as caught:
        pipe.compile()
    assert all(line.isprintable() for line in caught.value.mistakes)
