"""clean removes old finished runs, whole, and nothing else; a kill in the middle is finished by the next."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Harness
from holdfast import Context, Pipeline, clock
from holdfast.errors import LockedError, StorageError
from holdfast.stores import disk

LARGE = 3 << 20
DAY_S = 86_400.0


def make_pipeline(shared: str) -> Pipeline:
    pipe = Pipeline("big", params={"word": str, "fails": (bool, False)}, overwrite=True)

    @pipe.step(writes="{word}.bin")
    def large(ctx: Context, word: str) -> bytes:
        return (word.encode() * LARGE)[:LARGE]

    @pipe.step(writes="shared-{word}.bin")
    def common(large: bytes, word: str) -> bytes:
        return (shared.encode() * LARGE)[:LARGE]

    @pipe.step(writes="{word}.md")
    def small(word: str) -> str:
        return f"about {word}\n"

    @pipe.step
    def last(common: bytes, fails: bool) -> str:
        if fails:
            raise RuntimeError("no luck")
        return "done"

    return pipe


class Shelf:
    """A project with runs; every run keeps two large objects, one of which all share."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.there = Harness(root)

    def run(self, word: str, *, fails: bool = False) -> None:
        make_pipeline("s").run(dir=self.root, params={"word": word, "fails": fails}, run_id=word)

    def large(self, run_id: str) -> int:
        folder = self.there.objects / run_id
        return len([name for name in os.listdir(folder) if len(name) == 64]) if folder.exists() else 0

    def objects(self) -> list[str]:
        """The runs that have objects."""
        return sorted(os.listdir(self.there.objects))

    def clean(self, *, max_age_days: float = 30, max_runs: int = 50, dry_run: bool = False) -> list[str]:
        cleaned = self.there.project.clean(max_age_days=max_age_days, max_runs=max_runs, dry_run=dry_run)
        return [run.run_id for run in cleaned.runs]

    def run_ids(self) -> list[str]:
        return sorted(run.run_id for run in self.there.project.runs())


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_only_the_newest_are_kept(shelf: Shelf) -> None:
    """Runs beyond max_runs go with folder and pack; the newest by ordinal stay."""
    for word in ("c", "b", "a"):
        shelf.run(word)
    assert shelf.clean(max_runs=1) == ["b", "c"]
    assert shelf.run_ids() == ["a"]
    assert shelf.objects() == ["a"]
    assert os.listdir(shelf.there.runs) == ["a"]


def test_old_runs_go(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run untouched for longer than max_age_days goes; a day before that it stays."""
    shelf.run("a")
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + 29 * DAY_S)
    assert shelf.clean() == []
    monkeypatch.setattr(clock, "now", lambda: now + 31 * DAY_S)
    assert shelf.clean() == ["a"]


def test_unfinished_runs_stay(shelf: Shelf) -> None:
    """A run that is not completed is never removed, whatever the limits."""
    shelf.run("a", fails=True)
    shelf.run("b")
    assert shelf.clean(max_runs=0, max_age_days=0) == ["b"]
    assert shelf.run_ids() == ["a"]


def test_unreadable_runs_stay(shelf: Shelf) -> None:
    """A run that cannot be read is not known to be finished, and stays."""
    shelf.run("a")
    for name in os.listdir(shelf.there.folder("a")):
        path = shelf.there.folder("a") / name
        if path.is_file():
            path.write_bytes(b"garbage\n")
    assert shelf.clean(max_runs=0) == []
    assert shelf.run_ids() == ["a"]


def test_artifacts_are_never_touched(shelf: Shelf) -> None:
    """The files in the work tree are the same afterwards."""
    shelf.run("a")
    before = {path.name: path.stat().st_mtime_ns for path in shelf.root.iterdir() if path.is_file()}
    shelf.clean(max_runs=0)
    after = {path.name: path.stat().st_mtime_ns for path in shelf.root.iterdir() if path.is_file()}
    assert before == after


def test_dry_run_changes_nothing_and_needs_no_lock(shelf: Shelf) -> None:
    """A dry run names what would go, with its size, also while an engine runs."""
    shelf.run("a")
    with shelf.there.held("x"):
        cleaned = shelf.there.project.clean(max_age_days=30, max_runs=0, dry_run=True)
    assert [run.run_id for run in cleaned.runs] == ["a"]
    assert cleaned.runs[0].size > 0
    assert shelf.run_ids() == ["a"]


def test_clean_waits_for_no_engine(shelf: Shelf) -> None:
    """While an engine holds the project, clean refuses and removes nothing."""
    shelf.run("a")
    with shelf.there.held("x"), pytest.raises(LockedError):
        shelf.clean(max_runs=0)
    assert shelf.run_ids() == ["a"]


def test_project_without_state_stays_without(shelf: Shelf) -> None:
    """Cleaning a folder that has no runs creates nothing."""
    assert shelf.clean(max_runs=0) == []
    assert list(shelf.root.iterdir()) == []


def test_the_objects_of_a_run_go_with_it(shelf: Shelf) -> None:
    """Its folder in objects/ is removed whole; what another run has, large or small, stays."""
    shelf.run("a")
    shelf.run("b")
    assert shelf.large("a") == shelf.large("b") == 2
    (doomed,) = shelf.there.project.clean(max_age_days=30, max_runs=1).runs
    assert doomed.size > 2 * LARGE
    assert (shelf.large("a"), shelf.large("b")) == (0, 2)
    assert shelf.objects() == ["b"]


def test_objects_that_no_run_names_stay(shelf: Shelf) -> None:
    """When the runs' folders are lost, their objects may still heal something: they stay."""
    shelf.run("a")
    shutil.rmtree(shelf.there.folder("a"))
    shelf.run("b")
    shelf.clean(max_runs=0)
    assert shelf.large("a") == 2


def operations(shelf: Shelf, act: Callable[[], object]) -> int:
    with disk.failing_at(0, 0) as seen:
        act()
    return len(seen)


def test_stopped_at_any_point_it_is_finished_by_the_next(tmp_path: Path) -> None:
    """Whichever operation fails, no run is left half in the list, and a second clean removes the rest."""
    made = tmp_path / "made"
    made.mkdir()
    Shelf(made).run("a")
    Shelf(made).run("b")
    shutil.copytree(made, tmp_path / "counted")
    total = operations(Shelf(tmp_path / "counted"), lambda: Shelf(tmp_path / "counted").clean(max_runs=1))
    assert total > 5
    for number in range(1, total + 1):
        shelf = Shelf(shutil.copytree(made, tmp_path / str(number)))
        with disk.failing_at(number, 5):
            try:
                shelf.clean(max_runs=1)
            except (StorageError, OSError):
                pass
        assert set(shelf.run_ids()) in ({"a", "b"}, {"b"})
        shelf.clean(max_runs=1)
        assert os.listdir(shelf.there.runs) == ["b"]
        assert (shelf.large("b"), shelf.objects()) == (2, ["b"])


def test_leftover_of_a_run_that_was_begun_anew_keeps_its_pack(shelf: Shelf) -> None:
    """A pack is not removed while a run of the same id uses it."""
    shelf.run("a")
    os.rename(shelf.there.folder("a"), shelf.there.runs / ".clean-a")
    make_pipeline("t").run(dir=shelf.root, params={"word": "a"}, run_id="a")
    before = sorted(os.listdir(shelf.there.objects / "a"))
    cleaned = shelf.there.project.clean(max_age_days=30, max_runs=50)
    assert cleaned.finished == ("a",)
    assert sorted(os.listdir(shelf.there.objects / "a")) == before
    assert shelf.run_ids() == ["a"]
