"""Finished files that take each other's paths in an edited pipeline: each arrives, nothing is lost on the way."""

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

pytestmark = pytest.mark.usefixtures("unsynced")

Paths = dict[str, str]

TRADES: dict[str, tuple[Paths, Paths]] = {
    "two trade": ({"a": "x.md", "b": "y.md"}, {"a": "y.md", "b": "x.md"}),
    "two trade, sealed beside": ({"a": "x.csv", "b": "y.csv"}, {"a": "y.csv", "b": "x.csv"}),
    "two trade, and their forms": ({"a": "x.md", "b": "y.csv"}, {"a": "y.csv", "b": "x.md"}),
    "a chain": ({"a": "x.md", "b": "y.md", "large": "z.md"}, {"a": "y.md", "b": "z.md", "large": "w.md"}),
    "the first last": (
        {"large": "z.csv", "b": "y.csv", "a": "x.csv"},
        {"large": "y.csv", "b": "x.csv", "a": "w.csv"},
    ),
    "three in a ring": ({"a": "x", "b": "y", "large": "z"}, {"a": "y", "b": "z", "large": "x"}),
    "one step's own": ({"left": "x.csv", "right": "y.csv"}, {"left": "y.csv", "right": "x.csv"}),
    "one step's own, and their forms": ({"left": "x.csv", "right": "y.md"}, {"left": "y.md", "right": "x.csv"}),
    "a new step takes it": ({"b": "y.md", "large": "y"}, {"a": "y.md", "b": "z.md", "large": "y"}),
    "other letters": ({"a": "x.md", "b": "y.csv", "large": "z.md"}, {"a": "X.md", "b": "Y.csv", "large": "Z.md"}),
}


STEP = 9  # an odd one, so that the resume is killed too at each other place of a sample
KILLED = [
    "two trade",
    "two trade, and their forms",
    "three in a ring",
    "one step's own",
    "one step's own, and their forms",
    "a new step takes it",
    "other letters",
]


def make(paths: Paths, bill: Path, *, copy: bool) -> Pipeline:
    """Steps that write to these paths; every run of one is a line of the bill."""
    pipe = Pipeline("p")

    def ran(name: str) -> str:
        with bill.open("a") as file:
            file.write(f"{name}\n")
        return f"what {name} wrote"

    def declare(name: str) -> Any:
        return pipe.step(name=name, writes=paths[name], copy=copy) if name in paths else lambda function: function

    @declare("a")
    def a() -> str:
        return ran("a")

    @declare("b")
    def b() -> str:
        return ran("b")

    @declare("large")
    def large(ctx: Context) -> Path:
        ctx.out.write_text(ran("large"))
        return ctx.out

    if "left" in paths:

        @pipe.step(writes=paths, copy=copy)
        def both() -> dict[str, str]:
            ran("both")
            return {"left": "what left wrote", "right": "what right wrote"}

    return pipe


class Traded:
    """A project before its trade."""

    def __init__(self, root: Path, trade: str, *, copy: bool) -> None:
        self.root, self.copy = root, copy
        self.before, self.after = TRADES[trade]
        self.new = self.after.keys() - self.before.keys()
        (root / "project").mkdir(parents=True)
        self.run(self.before)
        self.paid = len((root / "bill").read_text().split())

    def run(self, paths: Paths) -> Any:
        return make(paths, self.root / "bill", copy=self.copy).run(dir=self.root / "project")

    def trade_killed_at(self, number: int) -> bool:
        """Trade in a process that dies before its `number`-th operation outside .holdfast; whether it did."""
        child = os.fork()
        if not child:
            names = {name.partition(".")[0] for name in (*self.before.values(), *self.after.values(), ".moving-")}
            seen: list[str] = []

            def die(op: str, path: str) -> None:
                name = os.path.basename(path)
                if seen or name.startswith(".moving-") or name.partition(".")[0] in names:
                    seen.append(path)
                if len(seen) == number:
                    os._exit(9)

            disk.hook = die
            self.run(self.after)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

    def arrives(self) -> None:
        """Every file is at its new path, sealed, nothing else is there, and nothing ran that had run before."""
        project = self.root / "project"
        result = self.run(self.after)
        ran = [name for name in (self.root / "bill").read_text().split() if name not in self.new]
        assert (result.status, len(ran)) == ("completed", self.paid)
        for name, path in self.after.items():
            assert (project / path).read_text().startswith(f"what {name} wrote")
        expected = {*self.after.values()} | {f"{path}.seal" for path in self.after.values() if ".md" not in path}
        views = {".holdfast", "checkpoint.md", "RESUME.md"}
        assert set(os.listdir(project)) - views == expected
        assert Harness(project).verify(Harness(project).journal().parent.name).findings == []

    def again_in(self, root: Path) -> Traded:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.root, root)
        copied = object.__new__(Traded)
        copied.__dict__ |= {**self.__dict__, "root": root}
        return copied


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("trade", TRADES)
def test_each_file_arrives_where_its_step_names_it(tmp_path: Path, trade: str, copy: bool) -> None:
    """With a copy and without; and the next run finds nothing to do."""
    project = Traded(tmp_path / "a", trade, copy=copy)
    project.arrives()
    told = len(Harness(project.root / "project").events("artifact_moved"))
    project.arrives()
    assert len(Harness(project.root / "project").events("artifact_moved")) == told
    assert Harness(project.root / "project").events("artifact_healed") == []


@pytest.mark.parametrize("trade", KILLED)
def test_a_kill_at_any_moment_loses_nothing(tmp_path: Path, trade: str) -> None:
    """Although nothing has a copy, and also if the run that goes on is killed at the same moment."""
    project = Traded(tmp_path / "a", trade, copy=False)
    for number in every(STEP, trade):
        again = project.again_in(tmp_path / "again")
        is_killed = again.trade_killed_at(number)
        if number % 2:
            again.trade_killed_at(number)
        again.arrives()
        if not is_killed:
            break
    assert number > 5


def test_a_name_in_other_letters_is_left_before_it_is_taken(tmp_path: Path) -> None:
    """To a disk that does not tell the two apart they are one file: the old name would be deleted with the new."""
    project = Traded(tmp_path / "a", "other letters", copy=False)
    project.arrives()
    moves = [(event["path"], event["to"]) for event in Harness(project.root / "project").events("artifact_moved")]
    assert len(moves) == 6
    for (old, parked), (again, new) in zip(moves[::2], moves[1::2], strict=True):
        assert (parked, again, new.casefold()) == (again, parked, old) and parked.startswith(".moving-")


def first_lines(root: Path) -> list[str]:
    return [(root / name).read_text().splitlines()[0] for name in ("x.md", "y.md")]


def test_an_edited_file_that_gives_way_is_asked_about_where_it_belongs(tmp_path: Path) -> None:
    """The edit arrives as it is, and can be kept; the other file arrives, too."""
    project = Traded(tmp_path / "a", "two trade", copy=False)
    root = project.root / "project"
    (root / "y.md").write_text(f"a person's words\n{(root / 'y.md').read_text()}")
    assert project.run(project.after).status == "paused"
    (question,) = Harness(root).events("question_asked")
    assert question["detail"] == "x.md was changed after it was accepted"
    Harness(root).decide("b", "keep", run_id=Harness(root).journal().parent.name)
    assert project.run(project.after).status == "completed"
    assert first_lines(root) == ["a person's words", "what a wrote"]
    assert list(root.glob("*.bak.*")) == []


@pytest.mark.parametrize("copy", [True, False])
def test_a_damaged_file_that_gives_way_is_made_good_where_it_belongs(tmp_path: Path, copy: bool) -> None:
    """What stood there is set aside; the file is put back at its new path, or its step runs, and no other."""
    project = Traded(tmp_path / "a", "two trade", copy=copy)
    root = project.root / "project"
    (root / "y.md").write_bytes(b"\0")
    assert project.run(project.after).status == "completed"
    ran = (project.root / "bill").read_text().split()
    assert ran[2:] == ([] if copy else ["b"])
    assert first_lines(root) == ["what b wrote", "what a wrote"]
    (kept,) = root.glob("y.md.bak.*")
    assert kept.read_bytes() == b"\0"


def test_a_dry_run_puts_a_large_file_back_once(tmp_path: Path) -> None:
    """Once files have given way, all is looked at again: what was put back by then is whole."""
    before = {"a": "x.md", "b": "y.md", "large": "z.bin"}
    make(before, tmp_path / "bill", copy=True).run(dir=tmp_path)
    (tmp_path / "z.bin").write_bytes(b"damaged")
    pipe = make(before | {"a": "y.md", "b": "x.md"}, tmp_path / "bill", copy=True)
    foreseen = Harness(tmp_path).recover(pipe, dry_run=True)
    written = [action.do for action in foreseen.actions if action.path == "z.bin"]
    assert written == ["set aside", "put back"]


def test_a_file_gives_way_to_a_step_that_goes_on_from_half_finished_text(tmp_path: Path) -> None:
    """Although its own task is looked at only when that step is through: it is moved first, and not set aside."""

    def pipeline(path: str, *, with_new: bool) -> Pipeline:
        pipe = Pipeline("p")
        if with_new:

            @pipe.step(writes="y.md", on_partial="continue")
            def new(ctx: Context) -> None:
                ctx.write("the end\n")

        @pipe.step(writes=path, copy=False, after=["new"] if with_new else [])
        def old() -> str:
            assert path == "y.md", "it runs again"
            return "old\n"

        return pipe

    pipeline("y.md", with_new=False).run(dir=tmp_path)
    (tmp_path / "y.md.part").write_text("words " * 50)
    assert pipeline("z.md", with_new=True).run(dir=tmp_path).status == "completed"
    texts = [(tmp_path / name).read_text() for name in ("y.md", "z.md")]
    assert texts[0].startswith(f"{'words ' * 50}the end\n") and texts[1].startswith("old\n")
    assert list(tmp_path.glob("*.bak.*")) == []


LOSSES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "damaged": lambda path: path.write_bytes(b"\0"),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("lost", ["b", "large"])
@pytest.mark.parametrize("copy", [True, False])
def test_a_lost_file_never_costs_the_one_that_stands_where_it_belongs_now(
    tmp_path: Path, lost: str, loss: str, copy: bool
) -> None:
    """That one is brought to its own path, whole; the lost one alone is put back, or its step runs again."""
    project = Traded(tmp_path / "a", "a chain", copy=copy)
    root = project.root / "project"
    LOSSES[loss](root / project.before[lost])
    result = project.run(project.after)
    ran = (project.root / "bill").read_text().split()[project.paid :]
    assert (result.status, ran) == ("completed", [] if copy else [lost])
    for name, path in project.after.items():
        assert (root / path).read_text().startswith(f"what {name} wrote")
    assert Harness(root).verify(result.run_id).findings == []


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("copy", [True, False])
def test_a_persons_file_at_the_new_path_of_a_lost_one_is_kept(tmp_path: Path, loss: str, copy: bool) -> None:
    """It is no damage: it is set aside beside its place before the lost file is put back, or made again, there."""
    project = Traded(tmp_path / "a", "a chain", copy=copy)
    root = project.root / "project"
    LOSSES[loss](root / "z.md")
    (root / "w.md").write_text("a person's words\n")
    assert project.run(project.after).status == "completed"
    assert (root / "w.md").read_text().startswith("what large wrote")
    assert [place.read_text() for place in root.glob("w.md.bak.*")] == ["a person's words\n"]
    assert list(root.glob(".holdfast/runs/*/quarantine/w.md.*")) == []


@pytest.mark.parametrize("trade", ["one step's own", "one step's own, and their forms"])
@pytest.mark.parametrize("lost", ["left", "right"])
@pytest.mark.parametrize("copy", [True, False])
def test_a_damaged_file_of_a_step_whose_files_trade_places_is_not_forgotten(
    tmp_path: Path, trade: str, lost: str, copy: bool
) -> None:
    """Although the other one arrives, whole, at the path where it was: it is put back, or the step runs again."""
    project = Traded(tmp_path / "a", trade, copy=copy)
    root = project.root / "project"
    (root / project.before[lost]).write_bytes(b"")
    result = project.run(project.after)
    ran = (project.root / "bill").read_text().split()[project.paid :]
    assert (result.status, ran) == ("completed", [] if copy else ["both"])
    for name, path in project.after.items():
        assert (root / path).read_text().startswith(f"what {name} wrote")
    assert Harness(root).verify(result.run_id).findings == []


def test_files_of_one_step_that_somebody_has_swapped_are_put_back(tmp_path: Path) -> None:
    """Each is whole and sealed by its task, and still none is an edit of the other."""
    project = Traded(tmp_path / "a", "one step's own", copy=True)
    root = project.root / "project"
    for ending in ("", ".seal"):
        (root / f"x.csv{ending}").rename(root / "kept")
        (root / f"y.csv{ending}").rename(root / f"x.csv{ending}")
        (root / "kept").rename(root / f"y.csv{ending}")
    assert project.run(project.before).status == "completed"
    assert [(root / name).read_text() for name in ("x.csv", "y.csv")] == ["what left wrote", "what right wrote"]
    assert (project.root / "bill").read_text().split() == ["both"]
