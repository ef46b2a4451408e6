"""Declarations that wait for each other."""

import pytest
from declaring import nothing, only, takes_a, takes_b, told, with_step

from holdfast.pipeline.definition import Pipeline


@pytest.mark.parametrize(
    ("steps", "loop"),
    [
        ([(takes_a, {"name": "a"})], "a -> a"),
        ([(takes_b, {"name": "a"}), (takes_a, {"name": "b"})], "a -> b -> a"),
        (
            [(takes_b, {"name": "a"}), (nothing, {"name": "b", "after": "c"}), (takes_a, {"name": "c"})],
            "a -> b -> c -> a",
        ),
        (
            [(takes_b, {"name": "a", "phase": "One"}), (nothing, {"name": "b", "phase": "Two"})],
            "a -> b -> phase Two -> a",
        ),
        ([(nothing, {"name": "a", "after": "ok"})], "a -> ok -> a"),
        ([(nothing, {"name": "a", "each": "part"})], "a -> parts -> a"),
    ],
)
def test_loops_are_named(steps, loop):
    """A loop through inputs, after=, phases, gates or a fan-out is told by the names along it."""
    pipe = Pipeline("p")
    for fn, options in steps:
        pipe.step(**options)(fn)
    if "ok" in loop:
        pipe.gate("ok", after="a")
    if "parts" in loop:

        @pipe.items("part")
        def parts(a): ...

    line = only(pipe)
    assert line == f"these wait for each other: {loop}. Remove one of the dependencies."


def test_two_loops_are_both_told():
    """The second loop is not hidden by the first."""
    pipe = Pipeline("p")
    for name in "abcd":
        pipe.step(name=name, after="badc"["abcd".index(name)])(nothing)
    assert [line.split(": ")[1].split(".")[0] for line in told(pipe)] == ["a -> b -> a", "c -> d -> c"]


def test_ordered_items_cannot_wait_for_all_items_of_their_phase():
    """A step fed from all items of its own phase would wait for ever where an item comes after another."""

    def build(items):
        pipe = Pipeline("p")
        pipe.items("part", items)

        @pipe.step(each="part", phase="One")
        def draft(part): ...

        @pipe.step
        def glossary(draft): ...

        @pipe.step(each="part", phase="One")
        def polish(glossary): ...

        return pipe

    assert "step polish: takes, by way of glossary, all items" in only(build(["a", {"id": "b", "after": ["a"]}]))
    assert build(["a", "b"]).compile()


def test_gates_that_hold_what_the_other_waits_for_are_told():
    """Two gates, each behind a step that the other one holds, would wait for ever."""

    def build(*, blocking):
        pipe = Pipeline("p")
        pipe.step(name="a")(nothing)
        pipe.step(name="b")(nothing)
        pipe.step(name="x")(takes_a)
        pipe.step(name="y")(takes_b)
        pipe.gate("first", after=["a", "y"])
        pipe.gate("second", after=["b", "x"], blocking=blocking)
        return pipe

    assert only(build(blocking=True)).startswith(
        "these wait for each other: x -> first -> y -> second -> x. A block"
    )
    assert build(blocking=False).compile()


def test_a_gate_behind_all_items_cannot_hold_the_first_of_ordered_ones():
    """An item that comes after another waits for its review, the review for the gate, the gate for all drafts."""

    def build(items):
        pipe = Pipeline("p")
        pipe.items("part", items)

        @pipe.step(each="part", phase="One")
        def draft(part): ...

        @pipe.step(each="part", phase="One")
        def review(draft): ...

        pipe.gate("ok", after=["draft"])
        return pipe

    line = only(build(["a", {"id": "b", "after": ["a"]}]))
    assert line.startswith("these wait for each other: review[a] -> ok -> draft[b] -> review[a]. A blocking gate")
    assert build(["a", "b"]).compile()


def test_an_item_cannot_come_after_the_gate_of_its_own_batch():
    """The gate waits for every task of the batch in its phase, so none of them can wait for it."""
    pipe = Pipeline("p")
    pipe.items("part", ["a"])

    @pipe.step(each="part", phase="One", after="look")
    def draft(part): ...

    pipe.gate("look", each="part")
    assert only(pipe).startswith(
        "these wait for each other: draft[a] -> look[batch-1] -> draft[a]. A blocking gate"
    )


def test_a_check_takes_only_what_is_there():
    """A check that asks for a step which may not have run is told; with after= it is sound."""

    def agrees(output, plan): ...

    assert "check agrees: takes plan, which need not be there yet" in only(with_step(check=agrees))
    assert with_step(check=agrees, after="plan").compile()


def test_loops_through_a_checklist_and_through_the_gate_of_a_phase():
    """What a checklist takes, and a gate behind a phase, hold the phase up and so can close a loop."""
    listed = Pipeline("p")
    listed.phase("One", checklist=lambda b: True)
    listed.step(name="a", phase="One")(nothing)
    listed.step(name="b")(takes_a)
    assert "a -> phase One -> b -> a" in only(listed)

    gated = Pipeline("p")
    gated.step(name="a", phase="One")(nothing)
    gated.step(name="b", phase="Two")(nothing)
    gated.gate("ok", phase="One", after="b")
    assert "b -> phase Two -> ok -> b" in only(gated)
