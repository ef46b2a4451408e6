"""Which run is meant: the same, another, a forced one, one found again."""

from __future__ import annotations

import errno
import json
import os
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from harness import Harness
from holdfast import HoldfastError, Pipeline
from holdfast.errors import (
    CheckpointCorruptionError,
    FormatTooNewError,
    InTheWayError,
    StorageError,
    UnknownRunError,
    UsageError,
)
from holdfast.journal.lines import close_line
from holdfast.runs import choosing
from holdfast.runs.traces import LOOKED_AT_MAX
from holdfast.stores import readable
from refusing import refuse_reading


def writer(calls: list[str], *, overwrite: bool = False) -> Pipeline:
    pipe = Pipeline("p", params={"topic": (str, "x"), "size": (int, 1)}, overwrite=overwrite)

    @pipe.step(writes="out.md")
    def write(topic: str) -> str:
        calls.append(f"write {topic}")
        return f"about {topic}\n"

    @pipe.step(writes="sized.md")
    def sized(write: str, size: int) -> str:
        calls.append(f"sized {size}")
        return write * size

    return pipe


def test_run_ids_differ_in_more_than_case(tmp_path: Path) -> None:
    """Where names are compared without case, two such runs would share a folder; nothing is created."""
    writer([]).run(dir=tmp_path, run_id="Mine")
    with pytest.raises(UsageError, match="differs from run Mine only in case"):
        writer([]).run(dir=tmp_path, run_id="mINE", force=True)
    assert [path.name for path in (tmp_path / ".holdfast" / "runs").iterdir()] == ["Mine"]


def test_equal_parameters_continue_the_same_run(tmp_path: Path) -> None:
    """A completed run of equal parameters has nothing to do."""
    calls: list[str] = []
    first = writer(calls).run(dir=tmp_path)
    again = writer(calls).run({"topic": "x"}, dir=tmp_path)
    assert (again.run_id, again.status, len(calls)) == (first.run_id, "completed", 2)


def test_other_parameters_are_another_run_and_refused_over_its_files(tmp_path: Path) -> None:
    """Writing over another run's artifacts is a usage error that says what to do; nothing is created."""
    calls: list[str] = []
    first = writer(calls).run(dir=tmp_path)
    with pytest.raises(UsageError, match=f"belongs to run {first.run_id}"):
        writer(calls).run({"topic": "y"}, dir=tmp_path)
    assert len(list((tmp_path / ".holdfast" / "runs").iterdir())) == 1
    assert (tmp_path / "out.md").read_text().startswith("about x")


@pytest.mark.parametrize(
    ("before", "now", "is_same"),
    [
        ("true", "1", False),
        ('{"a": [0]}', '{"a": [false]}', False),
        ("1", "1.0", True),
        ('{"a": 1}', '{"a": 1}', True),
    ],
)
def test_a_truth_value_is_no_number_although_python_calls_them_equal(
    tmp_path: Path, before: str, now: str, is_same: bool
) -> None:
    """Such parameters are other ones: they begin another run, and through `resume` they change the run."""
    calls: list[object] = []
    pipe = Pipeline("p", params={"wish": json.loads})

    @pipe.step(writes="{run_id}.md")
    def write(wish: object) -> str:
        calls.append(wish)
        return f"{wish}\n"

    first = pipe.run({"wish": before}, dir=tmp_path)
    second = pipe.run({"wish": now}, dir=tmp_path)
    assert (second.run_id == first.run_id, len(calls)) == (is_same, 1 if is_same else 2)
    pipe.run({"wish": now}, dir=tmp_path, resume=first.run_id)
    assert (tmp_path / f"{first.run_id}.md").read_text().startswith(f"{json.loads(before if is_same else now)}\n")


@pytest.mark.parametrize("each", [None, "n"])
def test_parameters_that_give_two_tasks_one_path_are_refused(tmp_path: Path, each: str | None) -> None:
    """Before anything runs or is created: the parameters are known, and so are the paths."""
    pipe = Pipeline("p", params={"a": (str, "one"), "b": (str, "two")})
    pipe.items("n", ["x", "y"])
    field = "" if each is None else "-{n}"

    @pipe.step(each=each, writes={"text": f"{{a}}{field}.md", "more": f"{{run_id}}{field}.md"})
    def first() -> dict[str, str]:
        return {"text": "1", "more": "2"}

    @pipe.step(each=each, writes=f"{{b}}{field}.md")
    def second() -> str:
        return "3"

    for given in ({"b": "ONE"}, {"a": "mine"}):
        with pytest.raises(UsageError, match="and so does first") as caught:
            pipe.run(given, dir=tmp_path, run_id="Mine" if "a" in given else None)
        assert caught.value.fix == "Change a or b: the paths are made of it."
    assert not list(tmp_path.iterdir())
    assert pipe.run(dir=tmp_path).status == "completed"


def test_overwrite_lets_a_new_run_take_over(tmp_path: Path) -> None:
    """overwrite=True: the finished run's paths may be used; its content stays in objects, and nowhere else."""
    calls: list[str] = []
    first = writer(calls, overwrite=True).run(dir=tmp_path)
    second = writer(calls, overwrite=True).run({"topic": "y"}, dir=tmp_path)
    assert second.status == "completed" and second.run_id != first.run_id
    assert (tmp_path / "out.md").read_text().startswith("about y")
    assert writer(calls, overwrite=True).run(dir=tmp_path).run_id == first.run_id
    assert (tmp_path / "out.md").read_text().startswith("about x") and len(calls) == 4
    assert not list(tmp_path.glob("*.bak.*"))


def test_overwrite_does_not_take_over_an_unfinished_run(tmp_path: Path) -> None:
    """Its paths are still its own: status 2, and how to finish it; --force is how to want that after all."""
    pipe = Pipeline("p", params={"topic": (str, "x")}, overwrite=True)

    @pipe.step(writes="out.md")
    def write(topic: str) -> str:
        return f"about {topic}\n"

    @pipe.step
    def last(write: str) -> None:
        raise ValueError("not yet")

    first = pipe.run(dir=tmp_path)
    with pytest.raises(UsageError, match="is not finished") as caught:
        pipe.run({"topic": "y"}, dir=tmp_path)
    assert f"holdfast resume {first.run_id} --dir" in caught.value.fix
    assert (tmp_path / "out.md").read_text().startswith("about x")
    assert pipe.run({"topic": "y"}, dir=tmp_path, force=True).status == "failed"
    assert (tmp_path / "out.md").read_text().startswith("about y")


def test_overwrite_does_not_write_over_what_nothing_else_has(tmp_path: Path) -> None:
    """An edit of another run's file is asked about; --force sets aside whatever it meets."""
    calls: list[str] = []
    writer(calls, overwrite=True).run(dir=tmp_path)
    edited = tmp_path / "out.md"
    edited.write_text(edited.read_text().replace("about", "ABOUT"))
    assert writer(calls, overwrite=True).run({"topic": "y"}, dir=tmp_path).status == "paused"
    assert edited.read_text().startswith("ABOUT x")
    assert writer(calls, overwrite=True).run({"topic": "y"}, dir=tmp_path, force=True).status == "completed"
    kept = sorted(path.read_text()[:7] for path in tmp_path.glob("*.md.bak.*"))
    assert kept == ["ABOUT x", "about x"]


def test_force_starts_anew_and_sets_aside_what_is_in_its_way(tmp_path: Path) -> None:
    """--force runs everything again; the old files are beside, not gone."""
    calls: list[str] = []
    first = writer(calls).run(dir=tmp_path)
    second = writer(calls).run(dir=tmp_path, force=True)
    assert second.status == "completed" and second.run_id != first.run_id
    assert len(calls) == 4
    assert len(list(tmp_path.glob("out.md.bak.*"))) == 1


def test_a_folder_that_a_kill_left_before_the_first_line_is_no_run_to_resume(tmp_path: Path) -> None:
    """Begun anew under its id, without --force, it would ask about every file that it was to set aside."""
    calls: list[str] = []
    writer(calls).run(dir=tmp_path)
    (tmp_path / ".holdfast" / "runs" / "second").mkdir()
    with pytest.raises(UnknownRunError, match="Nothing is on record of run second"):
        writer(calls).run(dir=tmp_path, resume="second")
    with pytest.raises(UnknownRunError, match="Nothing is on record of run second"):
        Harness(tmp_path).note("hello", run_id="second")
    assert writer(calls).run(dir=tmp_path, run_id="second", force=True).status == "completed"


def test_a_read_that_fails_once_while_a_run_is_chosen_is_no_other_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be looked at is looked at again before anything is said of it."""
    calls: list[str] = []
    first = writer(calls).run(dir=tmp_path, run_id="r")
    answers = iter([choosing.RunInfo("r", problem="Could not look at: Input/output error.")])
    looked_at = choosing.run_info
    monkeypatch.setattr(choosing, "run_info", lambda *names: next(answers, None) or looked_at(*names))
    again = writer(calls).run(dir=tmp_path, run_id="r")
    assert (again.run_id, again.status, next(answers, None)) == (first.run_id, "completed", None)


def test_resume_can_change_a_parameter(tmp_path: Path) -> None:
    """Only what the parameter reaches runs again, and the old spend stays told."""
    calls: list[str] = []
    first = writer(calls).run(dir=tmp_path)
    calls.clear()
    again = writer(calls).run({"size": 2}, dir=tmp_path, resume=first.run_id)
    assert (again.run_id, calls) == (first.run_id, ["sized 2"])
    assert again.outputs["sized"] == "about x\nabout x\n"


def test_a_lost_record_is_found_again_by_the_seals(tmp_path: Path) -> None:
    """With .holdfast gone, nothing with an intact sealed artifact runs again, and the id is the same."""
    calls: list[str] = []
    first = writer(calls).run(dir=tmp_path)
    shutil.rmtree(tmp_path / ".holdfast")
    again = writer(calls).run(dir=tmp_path)
    assert (again.run_id, again.status, len(calls)) == (first.run_id, "completed", 2)


def test_a_copied_project_continues(tmp_path: Path) -> None:
    """State has relative paths only: a copy elsewhere is the same project."""
    calls: list[str] = []
    (tmp_path / "a").mkdir()
    first = writer(calls).run(dir=tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    again = writer(calls).run(dir=tmp_path / "b")
    assert (again.run_id, len(calls)) == (first.run_id, 2)


@pytest.mark.parametrize(
    "run_id", ["../x", "/abs", "", "a\0b", "a\nb", "a\u202eb", "x" * 5000, "con", ".hidden", "-dash", "dot.", "ü"]
)
def test_hostile_run_ids_are_refused_in_one_line(tmp_path: Path, run_id: str) -> None:
    """Nothing is created for an id that is no safe name."""
    for option in ("run_id", "resume"):
        with pytest.raises(HoldfastError) as told:
            writer([]).run(dir=tmp_path, **{option: run_id})  # type: ignore[arg-type]
        assert "\n" not in str(told.value) and len(str(told.value)) < 400
        assert not any(char in str(told.value) for char in "\0\u202e")
    assert list(tmp_path.iterdir()) == []


def test_newest_is_by_ordinal_not_by_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock set back ten years changes neither which run is newest nor any id."""
    import time

    first = writer([], overwrite=True).run(dir=tmp_path)
    real = time.time()
    monkeypatch.setattr("holdfast.clock.now", lambda: real - 10 * 365 * 86400)
    second = writer([], overwrite=True).run({"topic": "y"}, dir=tmp_path)
    found = [run.run_id for run in Harness(tmp_path).project.runs()]
    assert found == [second.run_id, first.run_id]


def test_a_state_folder_behind_a_link_is_refused(tmp_path: Path) -> None:
    """A symlink where .holdfast should be is not followed."""
    (tmp_path / "real").mkdir()
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / ".holdfast").symlink_to(tmp_path / "real")
    with pytest.raises(CheckpointCorruptionError, match="symbolic link"):
        writer([]).run(dir=tmp_path / "p")
    assert list((tmp_path / "real").iterdir()) == []


def test_other_parameters_than_a_lost_run_had_are_refused(tmp_path: Path) -> None:
    """Taking over its files would pay for all of them again, unasked; the parameters it had adopt them."""
    calls: list[str] = []
    writer(calls).run(dir=tmp_path)
    shutil.rmtree(tmp_path / ".holdfast")
    with pytest.raises(UsageError, match="whose record is lost"):
        writer(calls).run({"topic": "moon"}, dir=tmp_path)
    assert not (tmp_path / ".holdfast").exists()
    assert writer(calls).run(dir=tmp_path).status == "completed"
    assert len(calls) == 2


def fanned(calls: list[str]) -> Pipeline:
    pipe = Pipeline("f")

    @pipe.step
    def plan() -> list[str]:
        return ["a", "b"]

    @pipe.items("i")
    def items(plan: list[str]) -> list[str]:
        return plan

    @pipe.step(each="i", writes="out/{i}.md")
    def paid(i: str) -> str:
        calls.append(i)
        return f"{i}\n"

    return pipe


@pytest.mark.parametrize("lost", ["", "runs", "runs/*/events.jsonl"])
def test_items_that_a_function_makes_are_found_again_by_their_files(tmp_path: Path, lost: str) -> None:
    """All state, all runs, or a journal and its snapshots lost: the id is back, and nothing is paid twice."""
    calls: list[str] = []
    first = fanned(calls).run(dir=tmp_path)
    if lost.endswith("jsonl"):
        run = tmp_path / ".holdfast" / "runs" / first.run_id
        for path in [run / "events.jsonl", *run.glob("checkpoint_*")]:
            path.unlink()
    else:
        shutil.rmtree(tmp_path / ".holdfast" / lost)
    again = fanned(calls).run(dir=tmp_path)
    assert (again.run_id, again.status, sorted(calls)) == (first.run_id, "completed", ["a", "b"])


def of_made_items(writes: str) -> Pipeline:
    pipe = Pipeline("p")

    @pipe.items("i")
    def items() -> list[str]:
        return ["a"]

    @pipe.step(each="i", writes=writes)
    def paid(i: str) -> str:
        return i

    return pipe


def test_folders_without_such_a_file_do_not_hide_a_lost_run(tmp_path: Path) -> None:
    """Only so many files are looked at: those that are there."""
    for number in range(2 * LOOKED_AT_MAX):
        (tmp_path / f"{number}").mkdir()
    assert of_made_items("{i}/out.md").run(dir=tmp_path, run_id="mine").status == "completed"
    shutil.rmtree(tmp_path / ".holdfast")
    assert of_made_items("{i}/out.md").run(dir=tmp_path).run_id == "mine"


def test_a_private_folder_beside_the_files_of_made_items_keeps_nobody_from_a_new_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is somebody else's, and holds no file of a lost run that could be read."""
    (tmp_path / "private").mkdir()
    really = os.listdir

    def refusing(path: int | str | Path = ".") -> list[str]:
        if str(path).rstrip("/").endswith("private"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return really(path)

    monkeypatch.setattr(os, "listdir", refusing)
    assert of_made_items("{i}/{i}.md").run(dir=tmp_path).status == "completed"


@pytest.mark.parametrize("made", [True, False], ids=["made", "given"])
def test_a_renamed_step_is_found_again_by_the_name_in_its_seals(tmp_path: Path, made: bool) -> None:
    """All state lost and the step renamed with `was=`: the run gets its id back."""

    def pipeline(name: str, **options: str) -> Pipeline:
        pipe = Pipeline("p")
        if not made:
            pipe.items("i", ["a"])
        else:

            @pipe.items("i")
            def items() -> list[str]:
                return ["a"]

        @pipe.step(name=name, each="i", writes="out/{i}.md", **options)
        def paid(i: str) -> str:
            return i

        return pipe

    assert pipeline("old").run(dir=tmp_path, run_id="mine").status == "completed"
    shutil.rmtree(tmp_path / ".holdfast")
    assert pipeline("new", was="old").run(dir=tmp_path).run_id == "mine"


def test_a_start_that_fails_leaves_no_run_behind(tmp_path: Path) -> None:
    """A file where a folder of outputs should be: one line, and no empty run."""
    (tmp_path / "out").write_text("in the way")
    pipe = Pipeline("p")

    @pipe.step(writes="out/a.md")
    def a() -> str:
        return "x"

    with pytest.raises(InTheWayError):
        pipe.run(dir=tmp_path)
    assert list((tmp_path / ".holdfast" / "runs").iterdir()) == []


def test_a_gate_is_not_asked_again_when_a_task_behind_it_is_whole(tmp_path: Path) -> None:
    """With all state lost, a gate counts as approved if what it held back was finished."""
    pipe = Pipeline("g")

    @pipe.step(writes="a.md")
    def a() -> str:
        return "a\n"

    pipe.gate("ok", after=["a"])

    @pipe.step(writes="b.md")
    def b(a: str) -> str:
        return a + "b\n"

    waiting = pipe.run(dir=tmp_path)
    assert waiting.status == "paused"
    Harness(tmp_path).approve("ok", run_id=waiting.run_id)
    assert pipe.run(dir=tmp_path).status == "completed"
    shutil.rmtree(tmp_path / ".holdfast")
    assert pipe.run(dir=tmp_path).status == "completed"


def test_parameters_that_give_a_memory_file_another_steps_path_are_refused(tmp_path: Path) -> None:
    """As for any two files; the sections of all items of one step share theirs."""
    pipe = Pipeline("p", params={"name": str})
    pipe.items("part", ["a", "b"])
    pipe.step(name="notes", writes="notes.md")(lambda: "notes\n")

    @pipe.step(each="part", appends="{name}.md")
    def terms(part: str) -> str:
        return f"{part}\n"

    with pytest.raises(UsageError, match=r"Step terms would write to notes\.md, and so does notes"):
        pipe.run({"name": "notes"}, dir=tmp_path)
    assert not (tmp_path / ".holdfast").exists()
    assert pipe.run({"name": "terms"}, dir=tmp_path).status == "completed"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_forced_run_that_was_cut_off_adopts_nothing_when_it_is_continued(
    tmp_path: Path, overwrite: bool
) -> None:
    """What an earlier run made is set aside, also where a new run might have written over it."""
    calls: list[str] = []
    fails: list[str] = []
    pipe = Pipeline("p", overwrite=overwrite)

    @pipe.step(writes="first.md")
    def first() -> str:
        if fails:
            raise RuntimeError(fails.pop())
        return "first\n"

    @pipe.step(writes="second.md")
    def second(first: str) -> str:
        calls.append("second")
        return "second\n"

    pipe.run(dir=tmp_path)
    fails.append("not now")
    cut_off = pipe.run(dir=tmp_path, force=True)
    assert cut_off.status == "failed"
    assert pipe.run(dir=tmp_path, resume=cut_off.run_id).status == "completed"
    assert calls == ["second", "second"]
    assert len(list(tmp_path.glob("second.md.bak.*"))) == 1


def test_a_file_that_cannot_be_read_is_not_taken_for_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No descriptors left while looking for seals: the run stops with exit 6, and no other run is begun."""
    calls: list[str] = []
    writer(calls).run(dir=tmp_path)
    before = sorted((tmp_path / ".holdfast" / "runs").iterdir())

    really = readable.open_regular

    def refuse(path: str, *, dir_fd: int | None = None) -> int:
        if dir_fd is None:
            return really(path)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    monkeypatch.setattr(readable, "open_regular", refuse)
    with pytest.raises(StorageError, match="Too many open files"):
        writer(calls).run({"topic": "y"}, dir=tmp_path)
    assert sorted((tmp_path / ".holdfast" / "runs").iterdir()) == before


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
def test_a_run_that_cannot_be_read_is_not_taken_for_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """It may be the one that is meant: no other is begun, or continued, unless --force says so."""
    calls: list[str] = []
    pipe = Pipeline("p")

    @pipe.step
    def paid() -> str:
        calls.append("paid")
        return "x"

    pipe.run(dir=tmp_path, run_id="older")
    pipe.run(dir=tmp_path, run_id="newer", force=True)
    refuse_reading(tmp_path / ".holdfast" / "runs" / "newer" / "events.jsonl", monkeypatch, code)
    with pytest.raises(StorageError, match=os.strerror(code)):
        pipe.run(dir=tmp_path)
    assert calls == ["paid", "paid"]
    assert pipe.run(dir=tmp_path, run_id="third", force=True).status == "completed"


def test_a_run_that_only_its_summary_knows_is_not_passed_over_if_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its journal lost its beginning: a checkpoint.json that cannot be read just now does not make it nobody's."""
    calls: list[str] = []
    pipe = Pipeline("p")

    @pipe.step
    def paid() -> str:
        calls.append("paid")
        return "x"

    pipe.run(dir=tmp_path, run_id="first")
    run = tmp_path / ".holdfast" / "runs" / "first"
    lines = (run / "events.jsonl").read_bytes().splitlines(keepends=True)
    (run / "events.jsonl").write_bytes(b"".join([b"rot\n", *lines[1:]]))
    for path in (tmp_path / "RESUME.md", *run.glob("checkpoint_*")):
        path.unlink()
    really = readable.read_at

    def read_at(path: str, **options: Any) -> bytes:
        if path == str(run / "checkpoint.json"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return really(path, **options)

    with (
        monkeypatch.context() as patch,
        pytest.raises(StorageError, match=r"checkpoint\.json: Input/output"),
    ):
        patch.setattr(readable, "read_at", read_at)
        pipe.run(dir=tmp_path)
    assert os.listdir(run.parent) == ["first"]
    assert pipe.run(dir=tmp_path).run_id == "first"


def test_a_folder_that_cannot_be_looked_at_is_not_taken_for_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hold the files of a lost run, which gets its id back: no other is begun beside them."""
    pipe = Pipeline("p")
    pipe.step(writes="texts/only.md")(_only)
    pipe.run(dir=tmp_path, run_id="first")
    shutil.rmtree(tmp_path / ".holdfast")
    for view in ("RESUME.md", "checkpoint.md"):
        (tmp_path / view).unlink()
    really = os.stat

    def stat(path: Any, **options: Any) -> os.stat_result:
        if path == "texts":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return really(path, **options)

    with monkeypatch.context() as patch, pytest.raises(StorageError, match=r"texts: Input/output error"):
        patch.setattr(os, "stat", stat)
        pipe.run(dir=tmp_path)
    assert pipe.run(dir=tmp_path).run_id == "first"


def _only() -> str:
    return "text\n"


def test_a_run_of_a_newer_holdfast_is_not_passed_over(tmp_path: Path) -> None:
    """Also where no view says which run it is: nothing is paid for again beside it."""
    calls: list[str] = []
    pipe = Pipeline("p")

    @pipe.step
    def paid() -> str:
        calls.append("paid")
        return "x"

    run = tmp_path / ".holdfast" / "runs" / pipe.run(dir=tmp_path).run_id
    (run / "checkpoint.json").unlink()
    *_, last = Harness(tmp_path).project.events()
    with (run / "events.jsonl").open("ab") as journal:
        journal.write(
            close_line(b'{"seq":%d,"ts":"2026-01-09T14:30:22.123Z","v":99' % (last.seq + 1), last.sum)[0]
        )
    with pytest.raises(FormatTooNewError):
        pipe.run(dir=tmp_path)
    assert calls == ["paid"]


def test_a_lost_record_is_not_taken_over_with_other_parameters_beside_an_empty_folder(tmp_path: Path) -> None:
    """A kill right after the folder was made changes nothing: the run that is named had another topic."""
    calls: list[str] = []
    first = writer(calls).run({"topic": "y"}, dir=tmp_path)
    shutil.rmtree(tmp_path / ".holdfast")
    for view in ("RESUME.md", "checkpoint.md"):
        (tmp_path / view).unlink()
    (tmp_path / ".holdfast" / "runs" / first.run_id).mkdir(parents=True)
    with pytest.raises(UsageError, match="made with another topic"):
        writer(calls).run(dir=tmp_path, resume=first.run_id)
    again = writer(calls).run({"topic": "y"}, dir=tmp_path, resume=first.run_id)
    assert (again.status, calls) == ("completed", ["write y", "sized 1"])


def test_a_lost_run_that_is_named_is_found_again_too(tmp_path: Path) -> None:
    """--run-id with the very id that the seals carry means that run: what it had finished is believed."""
    calls: list[str] = []

    def pipeline() -> Pipeline:
        pipe = Pipeline("p")

        @pipe.step
        def think() -> int:
            calls.append("think")
            return 1

        @pipe.step(writes="out.md")
        def write(think: int) -> str:
            calls.append("write")
            return f"{think}\n"

        return pipe

    pipeline().run(dir=tmp_path, run_id="mine")
    shutil.rmtree(tmp_path / ".holdfast")
    calls.clear()
    assert pipeline().run(dir=tmp_path, run_id="mine").status == "completed"
    assert calls == []


def test_a_lost_run_with_many_ordered_items_is_found_again(tmp_path: Path) -> None:
    """A few seals of each step tell: also where items come after others that nobody looked at."""
    calls: list[str] = []

    def pipeline() -> Pipeline:
        pipe = Pipeline("p")
        names = [f"i{number:02d}" for number in range(40)]
        pipe.items("i", [{"id": names[0]}, *({"id": b, "after": [a]} for a, b in pairwise(names))])

        @pipe.step(each="i", writes="{i}.md")
        def write(i: str) -> str:
            calls.append(i)
            return f"{i}\n"

        return pipe

    first = pipeline().run(dir=tmp_path)
    shutil.rmtree(tmp_path / ".holdfast")
    again = pipeline().run(dir=tmp_path)
    assert (again.run_id, again.status, len(calls)) == (first.run_id, "completed", 40)


@pytest.mark.parametrize("params", [3, "ab", ["a"], [("topic", "x")]])
def test_parameters_that_are_no_dict_are_wrong_usage(tmp_path: Path, params: object) -> None:
    """Whoever calls `pipe.run` is told so, as of any other mistake, and nothing is created."""
    pipe = Pipeline("p")

    @pipe.step
    def one() -> int:
        return 1

    with pytest.raises(UsageError, match="params must be a dict, not"):
        pipe.run(cast(Any, params), dir=tmp_path)
    assert list(tmp_path.iterdir()) == []
