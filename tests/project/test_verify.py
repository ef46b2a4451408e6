"""`verify`: everything of a run compared with its record, and nothing changed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from holdfast import Context, Pipeline
from holdfast.errors import StorageError
from holdfast.project.results import VerifyResult
from outside import OUTSIDE
from refusing import refuse_reading

LARGE = "x" * (2 << 20)


def pipeline(*checks: Any) -> Pipeline:
    pipe = Pipeline("p")
    pipe.items("n", ["a", "b"])

    @pipe.step(each="n", writes="out/{n}.md", check=list(checks))
    def one(n: str) -> str:
        return f"text of {n}\n"

    @pipe.step(each="n", writes="data/{n}.csv", reads="in/*.txt")
    def table(n: str, one: str) -> str:
        return f"{n};{one}"

    @pipe.step
    def value(one: dict[str, str]) -> dict[str, Any]:
        return {"all": list(one), "padding": "y" * 3000}

    @pipe.step(writes="large.md")
    def large(ctx: Context, value: dict[str, Any]) -> Path:
        ctx.out.write_text(LARGE)
        return ctx.out

    return pipe


def telling() -> Pipeline:
    """One step that leaves a section in progress.md."""
    pipe = Pipeline("p")

    @pipe.step(writes="told.md")
    def tells(ctx: Context) -> str:
        ctx.section("What was found.", title="Found")
        return "text\n"

    return pipe


def remembering() -> Pipeline:
    """A memory file that a step of its own opens."""
    pipe = Pipeline("p")
    pipe.items("n", ["a", "b"])

    @pipe.step
    def first() -> str:
        return "This opens the file.\n"

    @pipe.step(each="n", writes="out/{n}.md")
    def one(n: str) -> str:
        return f"text of {n}\n"

    @pipe.step(each="n", appends="words.md", sources=["one"], head="first")
    def words(source: str) -> str:
        return source.rsplit(maxsplit=1)[-1] + "\n"

    return pipe


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("one")
    assert pipeline().run(dir=tmp_path, run_id="r").status == "completed"
    return tmp_path


def look(project: Path, pipe: Pipeline | None = None) -> VerifyResult:
    return Harness(project).verify("r", pipeline=pipe or pipeline())


def told(report: VerifyResult) -> list[tuple[str, str, str]]:
    return [(finding.task, finding.path, finding.problem) for finding in report.findings]


def state_of(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        found[str(path)] = (status.st_size, status.st_mtime_ns)
    return found


def test_a_whole_run_has_no_finding(project: Path) -> None:
    """Five files, their copies and the value; what was looked at is counted."""
    report = look(project)
    assert report.ok and report.notes == []
    assert report.checked["artifacts"] == 5
    assert report.checked["objects"] == 6
    assert report.checked["snapshots"] == 1


def test_nothing_is_changed(project: Path) -> None:
    """Neither a file nor the time of one, also when there is something to find."""
    (project / "out" / "a.md").write_text("edited")
    (project / "data" / "b.csv").unlink()
    before = state_of(project)
    assert not look(project).ok
    assert state_of(project) == before


@pytest.mark.parametrize(
    ("path", "problem"),
    [("out/a.md", "missing"), ("data/b.csv", "missing"), ("large.md", "missing"), ("data/a.csv.seal", "damaged")],
)
def test_a_deleted_file_is_found(project: Path, path: str, problem: str) -> None:
    """Text, table, large file, and a seal beside its file; the fix says that nothing has to be paid."""
    (project / path).unlink()
    (finding,) = look(project).findings
    assert (finding.path, finding.problem) == (path.removesuffix(".seal"), problem)
    done = "seals it anew" if path.endswith(".seal") else "puts it back"
    assert finding.fix == f"holdfast resume r {done}"


@pytest.mark.parametrize("path", ["out/a.md", "data/b.csv.seal", "large.md"])
def test_a_damaged_seal_is_found(project: Path, path: str) -> None:
    """The text is whole, but the line that proves it is not: nobody could rely on it after a loss."""
    data = (project / path).read_bytes()
    (project / path).write_bytes(data.replace(b" tokens=0", b" tokens=1"))
    (finding,) = look(project).findings
    assert (finding.path, finding.problem) == (path.removesuffix(".seal"), "damaged")
    assert finding.fix == "holdfast resume r seals it anew"


@pytest.mark.parametrize("path", ["out/a.md", "data/b.csv", "large.md"])
@pytest.mark.parametrize("at", [0.0, 0.5])
def test_every_byte_of_an_artifact_counts(project: Path, path: str, at: float) -> None:
    """One changed byte anywhere in the content is found."""
    data = bytearray((project / path).read_bytes())
    data[int(len(data) * at * 0.1)] ^= 1
    (project / path).write_bytes(data)
    (finding,) = look(project).findings
    assert finding.path == path and finding.problem in ("changed", "damaged")


def test_an_edit_offers_both_ways(project: Path) -> None:
    """A person's change is not damage: restore it, or keep it."""
    path = project / "out" / "a.md"
    path.write_bytes(path.read_bytes().replace(b"text", b"TEXT"))
    (finding,) = look(project).findings
    assert (finding.task, finding.problem) == ("one[a]", "changed")
    assert "--on-changed restore (or keep)" in finding.fix


def test_changed_inputs_are_found(project: Path) -> None:
    """A file that `reads` names was changed after the run: what was made from it is stale."""
    (project / "in" / "1.txt").write_text("two")
    assert sorted(told(look(project))) == [
        ("table[a]", "data/a.csv", "stale"),
        ("table[b]", "data/b.csv", "stale"),
    ]


def test_lost_copies_and_values_are_found(project: Path) -> None:
    """All of objects/ gone: the files without copy in one line, and the value that nothing else has."""
    shutil.rmtree(project / ".holdfast" / "objects")
    report = look(project)
    assert told(report) == [("", ".holdfast/objects", "no copy"), ("value", "", "value lost")]
    assert report.findings[0].detail == "of 5 files: data/a.csv, data/b.csv, large.md, and 2 more"


def test_no_copy_is_promised_of_a_file_that_is_not_whole(project: Path) -> None:
    """With file and copy lost, or the file edited, the way out is another one, and only that is named."""
    shutil.rmtree(project / ".holdfast" / "objects")
    (project / "out" / "a.md").unlink()
    edited = project / "out" / "b.md"
    edited.write_bytes(edited.read_bytes().replace(b"text", b"TEXT"))
    found = {finding.path: finding for finding in look(project).findings}
    assert found["out/a.md"].fix == "holdfast resume r makes it again"
    assert found["out/b.md"].fix.endswith("; its copy is lost, so restore makes it again")
    assert found[".holdfast/objects"].detail == "of 3 files: data/a.csv, data/b.csv, large.md"


def test_a_rotten_object_is_found(project: Path) -> None:
    """A byte of the pack that nobody reads in everyday life."""
    pack = project / ".holdfast" / "objects" / "r" / "0001.pack"
    data = bytearray(pack.read_bytes())
    data[data.index(b"text of a")] ^= 1
    pack.write_bytes(data)
    assert ("", ".holdfast/objects/r", "damaged") in told(look(project))
    assert pipeline().run(dir=project).status == "completed"
    assert look(project).ok


def test_a_rotten_large_object_is_found(project: Path) -> None:
    """It is hashed as a stream."""
    (large,) = (path for path in (project / ".holdfast" / "objects").rglob("*") if len(path.name) == 64)
    large.write_bytes(large.read_bytes()[:-1] + b"!")
    assert told(look(project)) == [("large", "large.md", "no copy")]


def test_checks_are_applied_again(project: Path) -> None:
    """An output that today's check refuses is found."""
    report = look(project, pipeline(lambda output: "too short"))
    assert sorted(told(report)) == [("one[a]", "out/a.md", "refused"), ("one[b]", "out/b.md", "refused")]
    assert report.checked["checks"] == 2


def test_a_check_that_would_pay_is_not_applied(project: Path) -> None:
    """`verify` records nothing, so a paid call inside a check would be paid again each time."""
    paid: list[str] = []

    def judge(output: str, ctx: Context) -> str:
        ctx.once("judge", paid.append, "x")
        return ""

    report = look(project, pipeline(judge))
    assert report.ok and paid == []
    assert "the check judge of one[a] wants to record something, so it was not applied" in report.notes
    assert report.checked["checks"] == 0


def test_a_check_that_would_pay_keeps_no_other_from_looking(project: Path) -> None:
    """Those behind it that only look are applied, and only they are counted."""

    def judge(output: str, ctx: Context) -> str:
        ctx.once("judge", str)
        return ""

    report = look(project, pipeline(judge, lambda output: "too short"))
    assert sorted(told(report)) == [("one[a]", "out/a.md", "refused"), ("one[b]", "out/b.md", "refused")]
    assert report.checked["checks"] == 2 and len(report.notes) == 2


def test_a_pipeline_that_does_not_load_is_a_note(project: Path) -> None:
    """Nothing but the checks needs it."""
    report = look(project, Pipeline("p", params={"run": 3}))  # type: ignore[dict-item]
    assert report.ok
    assert report.notes[0].startswith("the pipeline does not load, so its checks were not applied: ")


@pytest.mark.parametrize(
    "name", ["checkpoint.md", "RESUME.md", ".holdfast/runs/r/checkpoint.json", ".holdfast/todos.db"]
)
def test_a_missing_view_is_a_note(project: Path, name: str) -> None:
    """Views come back by themselves."""
    (project / name).unlink()
    report = look(project)
    assert report.ok
    assert report.notes == [f"{name} is missing; the next run writes it anew"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.mkdir(), "is no file that can be read"),
        (lambda path: path.symlink_to(OUTSIDE), "is no file that can be read"),
        (lambda path: path.write_bytes(b"garbage" * 99), ""),
    ],
)
@pytest.mark.parametrize(
    ("name", "garbage"),
    [(".holdfast/todos.db", "is no database"), (".holdfast/runs/r/progress.md", "carries no stamp")],
)
def test_a_view_that_was_replaced_is_a_note(
    tmp_path: Path, name: str, garbage: str, make: Callable[[Path], Any], words: str
) -> None:
    """A folder, a link or garbage in the place of the database or of the partial result; a run mends it."""
    telling().run(dir=tmp_path, run_id="r")
    assert look(tmp_path).notes == []
    (tmp_path / name).unlink()
    make(tmp_path / name)
    report = look(tmp_path)
    assert report.ok
    assert report.notes == [f"{name} {words or garbage}; the next run writes it anew"]
    telling().run(dir=tmp_path)
    assert look(tmp_path).notes == []


@pytest.mark.parametrize("name", ["checkpoint.md", "RESUME.md", ".holdfast/runs/r/progress.md"])
def test_no_view_is_old_after_one_was_kept(tmp_path: Path, name: str) -> None:
    """That it was kept is an event too, and the summary knows of it."""
    telling().run(dir=tmp_path, run_id="r")
    (tmp_path / name).write_text("my own\n")
    telling().run(dir=tmp_path)
    assert look(tmp_path).notes == []


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda data: data.replace(b"opens", b"op\0ns"), "damaged"),
        (lambda data: data[data.index(b"<!-- holdfast section=words[a]") :], "missing"),
        (lambda data: data.replace(b"opens", b"OPENS"), ""),
    ],
)
def test_the_beginning_of_a_memory_file_is_looked_at(
    tmp_path: Path, damage: Callable[[bytes], bytes], problem: str
) -> None:
    """NULs in it, or its loss, are one finding, and a run puts it back; a person's edit of it stands."""
    remembering().run(dir=tmp_path, run_id="r")
    assert look(tmp_path).ok
    memory = tmp_path / "words.md"
    memory.write_bytes(damage(memory.read_bytes()))
    report = look(tmp_path)
    assert told(report) == ([("first", "words.md", problem)] if problem else [])
    assert all(finding.fix == "holdfast resume r puts it back" for finding in report.findings)
    remembering().run(dir=tmp_path)
    assert look(tmp_path).ok


def test_a_journal_that_may_not_be_read_names_what_to_type(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify` and every other command say the same; nothing is set aside."""
    journal = Harness(project).journal("r")
    refuse_reading(journal, monkeypatch)
    (finding,) = look(project).findings
    assert (finding.problem, finding.fix) == ("forbidden", f"chmod u+rw {journal}")
    with pytest.raises(StorageError) as raised:
        pipeline().run(dir=project)
    assert raised.value.fix.endswith(f"chmod u+rw {journal}")
    monkeypatch.undo()
    assert pipeline().run(dir=project).status == "completed"
    assert look(project).ok


def test_a_lost_beginning_is_found(project: Path) -> None:
    """Nothing can be said of artifacts then, and that is said."""
    harness = Harness(project)
    for path in harness.snapshots("r"):
        path.unlink()
    journal = harness.journal("r")
    journal.write_bytes(journal.read_bytes().split(b"\n", 1)[1])
    assert (".holdfast/runs/r/events.jsonl", "lost") in [(f.path, f.problem) for f in look(project).findings]


def test_a_folder_without_any_record_is_begun_again(project: Path) -> None:
    """Nothing could be rebuilt from it: what `resume` would refuse is not advised."""
    (project / ".holdfast" / "runs" / "second").mkdir()
    report = Harness(project).verify("second")
    assert [finding.problem for finding in report.findings] == ["lost"]
    assert report.findings[0].fix == "Begin it again: holdfast run FILE.py --run-id second"


@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE, errno.ENOMEM])
def test_a_machine_that_cannot_read_is_no_finding(
    project: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """Cannot read is not absent: it stops with a status of its own."""
    whole = os.open

    def failing(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if str(path).endswith("b.csv"):
            raise OSError(error, os.strerror(error), path)
        return whole(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", failing)
    with pytest.raises(StorageError, match=os.strerror(error)):
        look(project)


def test_a_folder_that_became_a_link_is_a_finding(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Artifacts are not read through links either."""
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "out"
    shutil.move(project / "out", elsewhere)
    (project / "out").symlink_to(elsewhere)
    assert {(f.task, f.problem) for f in look(project).findings} == {("one[a]", "damaged"), ("one[b]", "damaged")}


def test_while_an_engine_runs_nothing_is_found(tmp_path: Path) -> None:
    """Every step looks at its own run while seven others are finishing theirs."""
    findings: list[object] = []
    pipe = Pipeline("p")
    pipe.items("n", [f"i{n}" for n in range(40)])

    @pipe.step(each="n", writes="out/{n}.md")
    def one(n: str) -> str:
        findings.extend(Harness(tmp_path).verify("r").findings)
        return n * 100

    assert pipe.run(dir=tmp_path, run_id="r", concurrency=8).status == "completed"
    assert findings == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_project_is_verified(project: Path) -> None:
    """Nothing is written, so nothing needs to be writable."""
    folders = [project, *(path for path in project.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o500)
    try:
        assert look(project).ok
    finally:
        for folder in folders:
            folder.chmod(0o700)


def named(step: str) -> Pipeline:
    """One step of this name; the file is the same whatever it is called."""
    pipe = Pipeline("p")

    @pipe.step(name=step, writes="out.md")
    def one() -> str:
        return f"text of {step}\n"

    return pipe


def test_a_file_that_another_step_writes_now_is_no_finding(tmp_path: Path) -> None:
    """A step that was renamed without `was` is gone: that its file is its successor's is as it should be."""
    assert named("old").run(dir=tmp_path, run_id="r").status == "completed"
    assert named("new").run(dir=tmp_path).run_id == "r"
    report = look(tmp_path)
    assert (told(report), report.notes) == ([], [])


def test_an_edited_file_of_a_step_that_is_gone_is_a_note(project: Path) -> None:
    """No command would put it back or accept it: a finding about it could never be answered."""
    assert named("other").run(dir=project).run_id == "r"
    edited = project / "out" / "a.md"
    edited.write_text("mine: " + edited.read_text())
    report = look(project)
    assert told(report) == []
    assert report.notes == [
        "one[a] is no longer in the pipeline: out/a.md is changed (edited since it was sealed)"
    ]
