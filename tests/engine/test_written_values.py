"""Steps that name a file for what they have given before: it is written from the record, and nothing runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from holdfast import Pipeline

VALUE = {"text": "# Roots\n", "notes": ["a", "b"]}


def make(ran: list[str], writes: Any = None, value: Any = VALUE, version: int = 1) -> Pipeline:
    pipe = Pipeline("p")

    @pipe.step(writes=writes, version=version)
    def plan() -> Any:
        ran.append("plan")
        return value

    @pipe.step
    def use(plan: Any) -> Any:
        ran.append("use")
        return plan

    return pipe


@pytest.mark.parametrize(
    ("writes", "value", "files"),
    [
        ("plan.json", VALUE, {"plan.json": json.dumps(VALUE, indent=2) + "\n"}),
        ("plan.txt", "some text", {"plan.txt": "some text"}),
        ({"text": "plan.txt"}, VALUE, {"plan.txt": "# Roots\n"}),
        ("plan.json", ["x" * 5000], {"plan.json": json.dumps(["x" * 5000], indent=2) + "\n"}),
    ],
)
def test_a_value_is_written_to_the_file_that_is_named_for_it(
    tmp_path: Path, writes: Any, value: Any, files: dict[str, str]
) -> None:
    """It is there, sealed and whole, also without the record; consumers are trusted, and receive the same."""
    ran: list[str] = []
    make(ran, value=value).run(dir=tmp_path)
    result = make(ran, writes, value).run(dir=tmp_path)
    assert {name: (tmp_path / name).read_text() for name in files} == files
    assert (result.status, result.outputs["plan"], ran) == ("completed", value, ["plan", "use"])
    assert Harness(tmp_path).verify(result.run_id).findings == []
    for name in files:
        (tmp_path / name).unlink()
    make(ran, writes, value).run(dir=tmp_path)
    shutil.rmtree(tmp_path / ".holdfast")
    assert make(ran, writes, value).run(dir=tmp_path).status == "completed"
    assert {name: (tmp_path / name).read_text() for name in files} == files
    assert ran == ["plan", "use"]


def test_a_value_that_is_migrated_is_written_in_the_same_run(tmp_path: Path) -> None:
    """A new version and a new file, both at once: the file has the new form."""
    ran: list[str] = []
    make(ran).run(dir=tmp_path)
    pipe = make(ran, "plan.json", version=2)
    pipe.migration("plan", 1)(lambda value: {**value, "seen": 0})
    assert pipe.run(dir=tmp_path).status == "completed"
    assert json.loads((tmp_path / "plan.json").read_text()) == {**VALUE, "seen": 0}
    assert ran == ["plan", "use"]


def test_what_stands_there_is_set_aside(tmp_path: Path) -> None:
    """Somebody's own file is not written over."""
    ran: list[str] = []
    make(ran).run(dir=tmp_path)
    (tmp_path / "plan.json").write_text("mine")
    make(ran, "plan.json").run(dir=tmp_path)
    assert [path.read_text() for path in tmp_path.glob("plan.json.bak.*")] == ["mine"]
    assert json.loads((tmp_path / "plan.json").read_text()) == VALUE


def test_a_kill_before_the_record_is_made_good(tmp_path: Path) -> None:
    """The file is there, its record is not: it is written again, and nothing is set aside."""
    ran: list[str] = []
    make(ran).run(dir=tmp_path)
    before = Harness(tmp_path).journal().read_bytes()
    make(ran, "plan.json").run(dir=tmp_path)
    Harness(tmp_path).journal().write_bytes(before)
    for snapshot in Harness(tmp_path).journal().parent.glob("checkpoint_*"):
        snapshot.unlink()
    assert make(ran, "plan.json").run(dir=tmp_path).status == "completed"
    assert (len(Harness(tmp_path).events("value_migrated")), ran) == (1, ["plan", "use"])
    assert list(tmp_path.glob("plan.json.bak.*")) == []


def test_a_value_that_is_none_of_these_files_stays_a_value(tmp_path: Path) -> None:
    """Its step gives something else by now: raising its version is how to want that."""
    ran: list[str] = []
    make(ran).run(dir=tmp_path)
    result = make(ran, {"pages": "plan.txt"}).run(dir=tmp_path)
    assert (result.status, result.outputs["plan"], ran) == ("completed", VALUE, ["plan", "use"])
