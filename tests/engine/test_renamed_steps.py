"""Steps that are renamed more than once, or say no longer what they were called: nothing finished is redone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from harness import Harness
from holdfast import Pipeline

Name = tuple[str, str | Sequence[str]]


def make(ran: list[str], name: str, was: str | Sequence[str] = (), *, fresh: str = "") -> Pipeline:
    """A step of that name, one that takes it, and perhaps a `fresh` one."""
    pipe = Pipeline("p")

    def body() -> str:
        ran.append(name)
        return "text\n"

    pipe.step(name=name, was=was, writes="a.md")(body)
    names: dict[str, object] = {"ran": ran}
    exec(f"def use({name}): ran.append('use'); return {name}", names)
    pipe.step(names["use"])  # type: ignore[call-overload]
    if fresh:
        pipe.step(name=fresh)(lambda: ran.append(fresh))
    return pipe


@pytest.mark.parametrize(
    "names",
    [
        [("one", ()), ("two", "one"), ("three", "two")],
        [("one", ()), ("two", "one"), ("two", ())],
        [("one", ()), ("two", "one"), ("two", ()), ("three", "two"), ("three", ())],
        [("one", ()), ("two", "one"), ("three", ["one", "two"]), ("three", "one")],
        [("one", ()), ("two", "one"), ("one", "two"), ("one", ())],
        [("two", ()), ("two", "one"), ("two", ())],
    ],
)
def test_a_name_on_record_need_not_be_said_again(tmp_path: Path, names: list[Name]) -> None:
    """`was` names the step as it was called last, or is taken out when it has done its work."""
    ran: list[str] = []
    make(ran, *names[0]).run(dir=tmp_path)
    for name, was in names[1:]:
        pipe = make(ran, name, was)
        planned = Harness(tmp_path).plan(pipe).tasks
        foreseen = Harness(tmp_path).recover(pipe, dry_run=True).tasks
        assert "redo" not in {task.action for task in (*planned, *foreseen)}
        assert pipe.run(dir=tmp_path).status == "completed"
    assert ran == [names[0][0], "use"]


def test_a_step_of_the_old_name_is_a_new_one(tmp_path: Path) -> None:
    """Two steps are never taken for one, whatever either was called."""
    ran: list[str] = []
    make(ran, "one").run(dir=tmp_path)
    make(ran, "two", "one").run(dir=tmp_path)
    ran.clear()
    assert make(ran, "two", fresh="one").run(dir=tmp_path).status == "completed"
    assert "one" in ran
