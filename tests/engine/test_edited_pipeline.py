"""A pipeline edited between runs: only what is needed is redone, nothing is lost."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from holdfast import Context, Pipeline
from holdfast.errors import DefinitionError, StorageError
from holdfast.stores import disk
from refusing import refuse_following

from .projects import gated_pipeline


def make(ran: list[str], **changes: Any) -> Pipeline:
    """Two steps and a fan-out, as the test wants them changed."""
    pipe = Pipeline("p", params={"topic": (str, "kelp")})
    name = changes.get("name", "plan")

    def plan(topic: str) -> dict[str, Any]:
        ran.append("plan")
        return {"topic": topic, "seen": 0}

    pipe.step(name=name, was=changes.get("was", ()), version=changes.get("version", 1))(plan)
    migrate: Callable[[Any], Any] | None = changes.get("migrate")
    if migrate is not None:
        pipe.migration(name, 1)(migrate)
    pipe.items("n", changes.get("items", ["a", "b"]))

    def write(n: str, **inputs: Any) -> str:
        ran.append(f"write[{n}]")
        return f"{n} of {inputs}\n"

    namespace: dict[str, Any] = {"write": write}
    exec(f"def step(n, {name}): return write(n, plan={name}['topic'])", namespace)
    options = {"writes": changes.get("writes", "out/{n}.md"), "reads": changes.get("reads", ())}
    pipe.step(name="write", each="n", **options)(namespace["step"])
    return pipe


def test_a_migration_that_returns_nothing_is_a_mistake(tmp_path: Path) -> None:
    """It changed what it was given and did not give it back: the value on record stays as it is."""
    ran: list[str] = []
    make(ran).run(dir=tmp_path)
    with pytest.raises(DefinitionError, match="plan: its migration from version 1 to 2 returned nothing"):
        make(ran, version=2, migrate=lambda value: value.update(seen=1)).run(dir=tmp_path)
    result = make(ran, version=2, migrate=lambda value: {**value, "seen": 1}).run(dir=tmp_path)
    assert result.outputs["plan"] == {"topic": "kelp", "seen": 1}


def test_a_raised_version_redoes_the_step_and_stops_where_nothing_changed(tmp_path: Path) -> None:
    """The step runs again; its output is the same, so its consumers are trusted."""
    ran: list[str] = []
    make(ran).run(dir=tmp_path)
    result = make(ran, version=2).run(dir=tmp_path)
    assert (result.status, sorted(ran)) == ("completed", ["plan", "plan", "write[a]", "write[b]"])


def test_a_migration_brings_a_value_up_without_running_the_step(tmp_path: Path) -> None:
    """The value is migrated, its consumers stay accepted, and new consumers get the new form."""
    ran: list[str] = []
    make(ran).run(dir=tmp_path)
    result = make(ran, version=2, migrate=lambda value: {**value, "urls": []}).run(dir=tmp_path)
    assert (result.status, len(ran)) == ("completed", 3)
    assert result.outputs["plan"] == {"topic": "kelp", "seen": 0, "urls": []}


@pytest.mark.parametrize("writes", ["out/{n}.md", "out/{n}.csv", {"text": "{n}.md", "data": "{n}.json"}])
def test_another_marker_is_put_into_the_seals_of_finished_files(tmp_path: Path, writes: Any) -> None:
    """Nothing runs, the bytes above the seal stay, and a second time there is nothing to do."""
    ran: list[str] = []

    def marked(marker: str | None) -> Pipeline:
        pipe = Pipeline("p")
        pipe.items("n", ["a", "b"])

        @pipe.step(each="n", writes=writes, marker=marker)
        def write(n: str) -> Any:
            ran.append(n)
            return {"text": n, "data": [n], "rest": 1}

        return pipe

    marked("OLD").run(dir=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("[ab].*")}
    for marker in ("NEW", "NEW", None):
        result = marked(marker).run(dir=tmp_path)
        assert (result.status, len(ran)) == ("completed", 2)
        for path, old in before.items():
            body, is_sealed, _ = old.partition(b"<!-- OLD holdfast=1 ")
            words = f"<!-- {marker} holdfast=1 " if marker else "<!-- holdfast=1 "
            assert path.read_bytes().startswith(body + words.encode() if is_sealed else old)
    assert [event["reason"] for event in Harness(tmp_path).events("task_kept")] == [
        *["sealed anew with the marker NEW"] * 2,
        *["sealed anew without a marker"] * 2,
    ]


def test_another_marker_is_put_into_the_seal_beside_a_file_that_is_healed(tmp_path: Path) -> None:
    """What lies beside it, whole, gets the new marker in the same run: a second one has nothing to do."""

    def marked(marker: str) -> Pipeline:
        pipe = Pipeline("p")

        @pipe.step(writes={"text": "a.md", "data": "a.json"}, marker=marker)
        def write() -> Any:
            return {"text": "a", "data": [1]}

        return pipe

    marked("OLD").run(dir=tmp_path)
    (tmp_path / "a.md").unlink()
    marked("NEW").run(dir=tmp_path)
    assert (tmp_path / "a.json.seal").read_text().startswith("<!-- NEW ")
    marked("NEW").run(dir=tmp_path)
    assert len(Harness(tmp_path).events("task_kept")) == 1


def test_a_renamed_step_keeps_its_work(tmp_path: Path) -> None:
    """With `was`, nothing is redone, neither the step nor what consumed it."""
    ran: list[str] = []
    make(ran).run(dir=tmp_path)
    result = make(ran, name="scheme", was="plan").run(dir=tmp_path)
    assert (result.status, len(ran)) == ("completed", 3)
    assert result.outputs["scheme"]["topic"] == "kelp"


def test_a_changed_path_moves_the_file(tmp_path: Path) -> None:
    """Nothing runs; the file is at its new place, sealed, and no longer at the old."""
    ran: list[str] = []
    make(ran).run(dir=tmp_path)
    before = (tmp_path / "out/a.md").read_bytes()
    result = make(ran, writes="new/{n}.md").run(dir=tmp_path)
    assert (result.status, len(ran)) == ("completed", 3)
    assert (tmp_path / "new/a.md").read_bytes() == before
    assert not (tmp_path / "out/a.md").exists()
    assert make(ran, writes="new/{n}.md").run(dir=tmp_path).status == "completed"
    assert len(ran) == 3


def test_a_changed_parameter_redoes_what_takes_it(tmp_path: Path) -> None:
    """Through `resume` a parameter changes within the run: its users run again, with the new value."""
    ran: list[str] = []
    first = make(ran).run(dir=tmp_path)
    result = make(ran).run({"topic": "fish"}, dir=tmp_path, resume=first.run_id)
    assert (result.run_id, result.status, len(ran)) == (first.run_id, "completed", 6)
    assert "fish" in (tmp_path / "out/a.md").read_text()


def test_changed_reads_redo_the_step(tmp_path: Path) -> None:
    """Files from outside are inputs: a changed, added or vanished one makes its readers run again."""
    ran: list[str] = []
    (tmp_path / "in1.csv").write_text("1")
    make(ran, reads="*.csv").run(dir=tmp_path)
    for step, change in enumerate([("in1.csv", "2"), ("in2.csv", "x"), ("in2.csv", None)]):
        name, text = change
        (tmp_path / name).write_text(text) if text else (tmp_path / name).unlink()
        assert make(ran, reads="*.csv").run(dir=tmp_path).status == "completed"
        assert len(ran) == 3 + 2 * (step + 1)
    make(ran, reads="*.csv").run(dir=tmp_path)
    assert len(ran) == 9


@pytest.mark.parametrize("is_taken_back", [False, True])
def test_reads_that_change_while_their_step_is_at_work(tmp_path: Path, is_taken_back: bool) -> None:
    """Nobody knows which of the two it has read: it is made again, also if the change was taken back."""
    pipe, source = Pipeline("p"), tmp_path / "in.txt"
    source.write_text("old")

    @pipe.step(reads="in.txt", writes="out.md")
    def copy(ctx: Context) -> str:
        if ctx.round == 0:
            source.write_text("new")
        return source.read_text()

    pipe.run(dir=tmp_path)
    if is_taken_back:
        source.write_text("old")
    result = pipe.run(dir=tmp_path)
    assert (result.status, result.outputs["copy"]) == ("completed", source.read_text())
    pipe.run(dir=tmp_path)
    assert len(Harness(tmp_path).events("node_enter")) == 2


def test_reads_that_cannot_be_read_once_their_step_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that has no descriptor left for a moment has changed nothing: the output is not paid for again."""
    pipe, ended = Pipeline("p"), []
    (tmp_path / "in.txt").write_text("text")

    @pipe.step(reads="in.txt")
    def copy() -> str:
        ended.append("copy")
        return "text"

    with monkeypatch.context() as patch:
        refuse_following(lambda: ended, patch, errno.EMFILE)
        assert pipe.run(dir=tmp_path).status == "completed"
    assert pipe.run(dir=tmp_path).status == "completed"
    assert ended == ["copy"]


@pytest.mark.parametrize("reads", ["in/{topic}/x.csv", "in/{topic}/*.csv", "in/{topic}"])
@pytest.mark.parametrize(("topic", "path"), [("a[1]", "a[1]/x.csv"), ("a*", "ab/x.csv"), ("a[1]", "a1/x.csv")])
def test_a_parameter_in_reads_is_a_name_and_may_be_a_glob(
    tmp_path: Path, reads: str, topic: str, path: str
) -> None:
    """A file of that very name counts, brackets and all; and so does what they would mean in a pattern."""
    ran: list[str] = []
    if reads.endswith("}"):
        topic, path = f"{topic}.csv", path.replace("/x.csv", ".csv")
    file = tmp_path / "in" / path
    file.parent.mkdir(parents=True)
    for text in ("1", "1", "2"):
        file.write_text(text)
        assert make(ran, reads=reads).run({"topic": topic}, dir=tmp_path).status == "completed"
    assert ran.count("plan") == 1
    assert ran.count("write[a]") == 2


@pytest.mark.parametrize("order", ({"batch": 2}, {"after": ["a"]}))
@pytest.mark.parametrize("lost", (False, True))
def test_items_that_get_an_order_redo_nothing(tmp_path: Path, order: dict[str, Any], lost: bool) -> None:
    """`after` and `batch` say when an item is done, not what: plain ids that get them are the same items."""
    ran: list[str] = []
    make(ran).run(dir=tmp_path)
    if lost:
        shutil.rmtree(tmp_path / ".holdfast")
    first = {"id": "a", "batch": 1} if "batch" in order else "a"
    result = make(ran, items=[first, {"id": "b", **order}]).run(dir=tmp_path)
    assert (result.status, sorted(ran)) == ("completed", ["plan", "write[a]", "write[b]"])


def test_a_vanished_item_leaves_an_orphan(tmp_path: Path) -> None:
    """Its file is kept, it is listed, and nothing else runs; when it comes back it is still done."""
    ran: list[str] = []
    make(ran).run(dir=tmp_path)
    result = make(ran, items=["a"]).run(dir=tmp_path)
    assert (result.status, len(ran)) == ("completed", 3)
    assert (tmp_path / "out/b.md").exists()
    assert "write[b]" in result.picture.orphans()
    again = make(ran).run(dir=tmp_path)
    assert (again.status, len(ran)) == ("completed", 3)


def test_what_was_sent_back_and_vanished_does_not_keep_a_run_open(tmp_path: Path) -> None:
    """The run completes without it; when the item comes back, it is done again."""
    ran: list[str] = []
    run_id = make(ran).run(dir=tmp_path).run_id
    harness = Harness(tmp_path)
    harness.decide("write[b]", "redo", run_id=run_id)
    assert make(ran, items=["a"]).run(dir=tmp_path).status == "completed"
    assert (harness.picture(run_id).state.status, len(ran)) == ("completed", 3)
    assert make(ran).run(dir=tmp_path).status == "completed"
    assert ran[3:] == ["write[b]"]


def test_a_vanished_item_that_failed_needs_nobody(tmp_path: Path) -> None:
    """Neither the result nor the picture names it any more, nor a gate that stood behind it."""

    def make_gated(items: list[dict[str, Any]]) -> Pipeline:
        pipe = Pipeline("p")
        pipe.items("n", items)

        @pipe.step(each="n", phase="Writing")
        def write(n: str) -> str:
            if n == "b":
                raise RuntimeError("no")
            return n

        pipe.gate("ok", each="n", blocking=False)
        return pipe

    one, two, three = ({"id": name, "batch": batch} for batch, name in enumerate("abc", start=1))
    failed = make_gated([one, two, three]).run(dir=tmp_path)
    assert {need.task for need in failed.picture.needs()} == {"write[b]", "ok[batch-1]", "ok[batch-3]"}
    result = make_gated([one]).run(dir=tmp_path)
    assert (result.needs_review, [need.task for need in result.picture.needs()]) == ([], ["ok[batch-1]"])


def test_items_made_differently_by_their_function(tmp_path: Path) -> None:
    """A changed items function's new items run; those that stayed are trusted."""
    ran: list[str] = []

    def make_dynamic(ids: list[str], version: str) -> Pipeline:
        pipe = Pipeline("p", params={"version": str})

        @pipe.items("n")
        def things(version: str) -> list[str]:
            return ids

        @pipe.step(each="n", writes="{n}.md")
        def write(n: str) -> str:
            ran.append(n)
            return n

        @pipe.step
        def count(write: dict[str, str]) -> int:
            return len(write)

        return pipe

    first = make_dynamic(["a", "b"], "1").run({"version": "1"}, dir=tmp_path)
    result = make_dynamic(["b", "c", "d"], "2").run({"version": "2"}, dir=tmp_path, resume=first.run_id)
    assert (result.status, sorted(ran)) == ("completed", ["a", "b", "c", "d"])
    assert result.outputs["count"] == 3
    assert Harness(tmp_path).events("run_stopped")[-1]["status"] == "completed"


def test_tasks_whose_items_are_made_anew_have_not_left_the_pipeline(tmp_path: Path) -> None:
    """While their function fails nobody can tell which items there will be: neither result nor view says so."""

    def make_listed(version: int) -> Pipeline:
        pipe = Pipeline("p")

        @pipe.step(version=version)
        def plan() -> int:
            return version

        @pipe.items("n")
        def names(plan: int) -> list[str]:
            return ["a", "b"] if plan == 1 else ["a", "a"]

        @pipe.step(each="n", writes="out/{n}.md")
        def write(n: str) -> str:
            return n

        return pipe

    make_listed(1).run(dir=tmp_path)
    for _ in range(2):  # the second begins without knowing the items
        result = make_listed(2).run(dir=tmp_path)
        assert (result.status, result.picture.orphans()) == ("failed", [])
        assert "No longer in the pipeline" not in (tmp_path / "checkpoint.md").read_text()


@pytest.mark.parametrize("adopted_before", [True, False])
def test_what_a_kill_left_without_record_opens_no_gate_that_is_put_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adopted_before: bool
) -> None:
    """The record of people's decisions is there, so a gate without an approval asks, whatever was adopted."""

    def die(op: str, path: str) -> None:
        if (tmp_path / "b.md").exists():
            raise OSError(errno.EIO, "cut off", path)

    monkeypatch.setattr(disk, "hook", die)
    with pytest.raises(StorageError):
        gated_pipeline(gated=False).run(dir=tmp_path)
    monkeypatch.undo()
    assert not Harness(tmp_path).events("node_exit", task="b")
    assert "holdfast=1" in (tmp_path / "b.md").read_text()
    if adopted_before:
        assert gated_pipeline(gated=False).run(dir=tmp_path).status == "failed"
        assert [event["evidence"] for event in Harness(tmp_path).events("task_adopted")] == ["sealed"]
    assert gated_pipeline(gated=True).run(dir=tmp_path).status == "paused"
    assert not Harness(tmp_path).events("gate_approved")
