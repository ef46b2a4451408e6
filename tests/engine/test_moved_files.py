"""A finished file whose step names another path: it is moved, and nothing that stands there is lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from holdfast import Context, Pipeline
from holdfast.stores import disk
from sampling import every

PRECIOUS = "a person's own words\n"
NAMES = ("table.csv", "text.md", "large.bin", "x.csv", "y.csv")


def make(folder: str, bill: Path) -> Pipeline:
    """Files of every kind, none of which has a copy; every run of a step is one line of the bill."""
    pipe = Pipeline("p")

    def ran(name: str) -> None:
        with bill.open("a") as file:
            file.write(f"{name}\n")

    @pipe.step(writes=f"{folder}/table.csv", copy=False)
    def table() -> str:
        ran("table")
        return "1,2\n"

    @pipe.step(writes=f"{folder}/text.md", copy=False)
    def text() -> str:
        ran("text")
        return "text\n"

    @pipe.step(writes=f"{folder}/large.bin", copy=False)
    def large(ctx: Context) -> Path:
        ran("large")
        ctx.out.write_bytes(b"large" * 1000)
        return ctx.out

    @pipe.step(writes={"x": f"{folder}/x.csv", "y": f"{folder}/y.csv"}, copy=False)
    def both() -> dict[str, str]:
        ran("both")
        return {"x": "x\n", "y": "y\n"}

    return pipe


@pytest.fixture
def project(tmp_path: Path, unsynced: None) -> Path:
    """A project with all its files in one/."""
    root = tmp_path / "project"
    root.mkdir()
    assert make("one", tmp_path / "bill").run(dir=root).status == "completed"
    return root


def move(project: Path) -> None:
    """Run it with all files in two/: no step runs for that, and every file is there, intact and sealed."""
    bill = project.parent / "bill"
    result = make("two", bill).run(dir=project)
    assert (result.status, len(bill.read_text().split())) == ("completed", 4)
    assert os.listdir(project / "one") == []
    assert {f"{name}.seal" for name in NAMES if name != "text.md"} <= set(os.listdir(project / "two"))
    assert Harness(project).verify(Harness(project).journal().parent.name).findings == []


def put_file(path: Path) -> None:
    path.write_text(PRECIOUS)


def put_folder(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_text(PRECIOUS)


def put_link(path: Path) -> None:
    (path.parent / "target").write_text(PRECIOUS)
    path.symlink_to("target")


def words_at(path: Path) -> str:
    return (path / "inside" if path.is_dir() else path).read_text()


def test_a_large_file_takes_its_seal_along(project: Path) -> None:
    """The seal beside it is at the new path too, and the next run has nothing to mend."""
    seal = (project / "one/large.bin.seal").read_bytes()
    move(project)
    assert (project / "two/large.bin.seal").read_bytes() == seal
    move(project)
    assert Harness(project).events("artifact_healed") == []


@pytest.mark.parametrize("put", [put_file, put_folder, put_link])
@pytest.mark.parametrize("name", [*NAMES, "table.csv.seal", "large.bin.seal"])
def test_what_stands_at_the_new_path_is_set_aside(project: Path, name: str, put: Callable[[Path], None]) -> None:
    """A person's file, a folder or a link, also in the place of a seal, is kept beside it and told of first."""
    (project / "two").mkdir()
    put(project / "two" / name)
    move(project)
    (kept,) = (project / "two").glob("*.bak.*")
    assert (kept.name.startswith(f"{name}.bak."), words_at(kept)) == (True, PRECIOUS)
    owner = name.removesuffix(".seal")
    told = [e for e in Harness(project).events() if e["event"] in ("artifact_set_aside", "artifact_moved")]
    first = next(at for at, event in enumerate(told) if event["event"] == "artifact_set_aside")
    assert (told[first]["path"], told[first]["to"]) == (f"two/{name}", f"two/{kept.name}")
    assert (told[first + 1]["event"], told[first + 1]["to"]) == ("artifact_moved", f"two/{owner}")


def test_another_sealed_file_is_set_aside_too(project: Path) -> None:
    """A file that proves itself to be another one than the one that is moved is not written over."""
    shutil.copytree(project / "one", project / "two")
    for suffix in ("", ".seal"):
        shutil.copy(project / f"two/x.csv{suffix}", project / f"two/y.csv{suffix}")
    move(project)
    names = [path.name.partition(".bak.")[0] for path in (project / "two").glob("*.bak.*")]
    assert sorted(names) == ["y.csv", "y.csv.seal"]


def move_killed_at(project: Path, number: int) -> bool:
    """Move in a process that dies before its `number`-th operation since the first on a file; whether it did."""
    child = os.fork()
    if not child:
        seen: list[str] = []

        def die(op: str, path: str) -> None:
            if seen or os.path.basename(path).startswith(NAMES):
                seen.append(path)
            if len(seen) == number:
                os._exit(9)

        disk.hook = die
        make("two", project.parent / "bill").run(dir=project)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_a_kill_while_files_are_moved_loses_nothing(project: Path, tmp_path: Path) -> None:
    """Whenever it comes: no step runs again although no file has a copy, and nothing of our own is set aside."""
    (project / "two").mkdir()
    (project / "two/large.bin").write_text(PRECIOUS)
    for number in every(9, "moved"):
        shutil.rmtree(tmp_path / "again", ignore_errors=True)
        again = tmp_path / "again/project"
        shutil.copytree(project, again)
        shutil.copy(tmp_path / "bill", tmp_path / "again/bill")
        is_killed = move_killed_at(again, number)
        move(again)
        # A name that was only taken for it is empty.
        (kept,) = (path for path in (again / "two").glob("*.bak.*") if path.stat().st_size)
        assert (kept.name.partition(".bak.")[0], kept.read_text()) == ("large.bin", PRECIOUS)
        if not is_killed:
            break
    assert number > 20


def test_an_edit_is_kept_beside_a_file_that_was_moved_and_not_recorded(tmp_path: Path) -> None:
    """A kill in the middle of a move, then an edit of the file that was not moved yet: both are there."""

    def pair(folder: str) -> Pipeline:
        pipe = Pipeline("p")

        @pipe.step(writes={"x": f"{folder}/x.md", "y": f"{folder}/y.md"}, copy=False)
        def both() -> dict[str, str]:
            assert not (tmp_path / "two").exists(), "it runs again"
            return {"x": "x\n", "y": "y\n"}

        return pipe

    pair("one").run(dir=tmp_path)
    (tmp_path / "two").mkdir()
    (tmp_path / "one/x.md").rename(tmp_path / "two/x.md")
    edited = (tmp_path / "one/y.md").read_text()
    (tmp_path / "one/y.md").write_text(f"{PRECIOUS}{edited}")
    (tmp_path / "holdfast.toml").write_text('[run]\non_changed = "keep"\n')
    assert pair("two").run(dir=tmp_path).status == "completed"
    texts = [(tmp_path / f"two/{name}.md").read_text().splitlines(keepends=True)[0] for name in "xy"]
    assert texts == ["x\n", PRECIOUS]
    assert os.listdir(tmp_path / "one") == []


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("kind", ["text", "large", "two files"])
@pytest.mark.usefixtures("unsynced")
def test_a_text_without_final_newline_is_whole_in_every_form(tmp_path: Path, kind: str, copy: bool) -> None:
    """Moved between forms, with the record lost after each move, nothing runs again; consumers get the same."""
    received: list[str] = []

    def pipeline(name: str, taker: str) -> Pipeline:
        pipe = Pipeline("p")
        writes = {"text": name, "other": "other.csv"} if kind == "two files" else name

        @pipe.step(writes=writes, copy=copy, retries=0)
        def table(ctx: Context) -> object:
            assert not received, "it runs again"
            ctx.out.write_text("1,2")
            return {"text": "1,2", "other": "x"} if kind == "two files" else ctx.out if kind == "large" else "1,2"

        @pipe.step(name=taker, writes=f"{taker}.md")
        def take(table: object) -> str:
            text = table["text"] if isinstance(table, dict) else table
            received.append(text.read_bytes()[:3].decode() if isinstance(text, Path) else str(text))
            return "taken\n"

        return pipe

    for number, name in enumerate(["t.csv", "t.md", "t.json", "t.html"]):
        for taker in ("first", "first", f"taker{number}"):
            result = pipeline(name, taker).run(dir=tmp_path)
            assert result.status == "completed"
            assert Harness(tmp_path).verify(result.run_id).findings == []
            assert {path.name for path in tmp_path.glob("t.*")} <= {name, f"{name}.seal"}
            if taker == "first":
                shutil.rmtree(tmp_path / ".holdfast")
        pipeline(name, "first").run(dir=tmp_path)
    assert received == ["1,2"] * 5


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"\0")])
@pytest.mark.parametrize(("old", "new"), [("t.csv", "t.md"), ("t.md", "t.csv"), ("t.md", "two/t.md")])
def test_a_lost_file_is_put_back_where_it_belongs_now(
    tmp_path: Path, old: str, new: str, damage: Callable[[Path], None]
) -> None:
    """In the form that the new path wants; what was damaged is kept, and nothing comes to the old path."""
    ran: list[str] = []

    def pipeline(name: str) -> Pipeline:
        pipe = Pipeline("p")

        @pipe.step(writes=name)
        def table() -> str:
            ran.append("table")
            return "1,2"

        @pipe.step
        def take(table: str) -> str:
            ran.append("take")
            return table

        return pipe

    pipeline(old).run(dir=tmp_path)
    damage(tmp_path / old)
    (tmp_path / new).parent.mkdir(exist_ok=True)
    (tmp_path / new).write_text(PRECIOUS)
    for _ in range(2):
        result = pipeline(new).run(dir=tmp_path)
        assert (result.status, result.outputs["table"], ran) == ("completed", "1,2", ["table", "take"])
        assert Harness(tmp_path).verify(result.run_id).findings == []
    assert [name for name in (old, f"{old}.seal") if (tmp_path / name).exists()] == []
    kept = [path for path in tmp_path.rglob("t.*") if path.read_bytes() == PRECIOUS.encode()]
    assert len(kept) == 1


@pytest.mark.parametrize("before", [None, {"text": "text.md"}])
def test_a_step_that_runs_again_under_a_new_name_keeps_what_stands_there(tmp_path: Path, before: Any) -> None:
    """A step that had no file, or had another one beside: a person's file is set aside first."""

    def pipeline(version: int, writes: Any) -> Pipeline:
        pipe = Pipeline("p")

        @pipe.step(writes=writes, version=version) if writes else pipe.step(version=version)
        def made() -> dict[str, str]:
            return {"text": "text\n", "more": "more\n"}

        return pipe

    pipeline(1, before).run(dir=tmp_path)
    (tmp_path / "more.md").write_text("a person's words\n")
    assert pipeline(2, {"text": "text.md", "more": "more.md"}).run(dir=tmp_path).status == "completed"
    (kept,) = tmp_path.glob("more.md.bak.*")
    assert kept.read_text() == "a person's words\n"


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("kind", ["text", "large", "two files"])
@pytest.mark.usefixtures("unsynced")
def test_a_file_renamed_by_hand_along_with_its_step_is_sealed_where_it_is(
    tmp_path: Path, kind: str, copy: bool
) -> None:
    """Also one without a final newline, at a path where its seal comes to stand inside; nothing runs again."""
    ran: list[str] = []

    def pipeline(name: str) -> Pipeline:
        pipe = Pipeline("p")
        writes = {"text": name, "other": "other.csv"} if kind == "two files" else name

        @pipe.step(writes=writes, copy=copy, retries=0)
        def table(ctx: Context) -> object:
            ran.append(name)
            if kind == "large":
                ctx.out.write_text("1,2")
                return ctx.out
            return {"text": "1,2", "other": "x"} if kind == "two files" else "1,2"

        return pipe

    pipeline("table.csv").run(dir=tmp_path)
    (tmp_path / "table.csv").rename(tmp_path / "table.md")
    result = pipeline("table.md").run(dir=tmp_path)
    assert (result.status, ran) == ("completed", ["table.csv"])
    assert (tmp_path / "table.md").read_text().startswith("1,2\n<!-- ")
    assert Harness(tmp_path).verify(result.run_id).findings == []
