"""One file of a finished or an interrupted run is damaged: the next run is right, or stops as documented."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Harness, RunResult
from holdfast import seals
from holdfast.errors import EXIT_DAMAGE, CheckpointCorruptionError

from . import victim
from .harness import KILLED, Trial

pytestmark = pytest.mark.usefixtures("unsynced")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    trial = Trial(tmp_path_factory.mktemp("finished")).begin()
    assert trial.process() == 0
    return trial


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """Killed in the middle, after all research: at which operation that is, hangs on how often views are due."""
    for point in range(110, 160, 5):
        trial = Trial(tmp_path_factory.mktemp("interrupted")).begin()
        assert trial.process(str(point)) == KILLED
        done, _ = trial.recorded()
        if "outline" in done and sum(task.startswith("research") for task in done) == len(victim.ITEMS):
            return trial
    raise AssertionError("no point to kill it at was found")


def copied(trial: Trial, to: Path) -> Trial:
    """The project in another place: its state names no absolute path."""
    copy = Trial(to / "copy")
    shutil.copytree(trial.project, copy.project)
    copy.log.touch()
    return copy


def ran(trial: Trial) -> set[str]:
    return {line[4:] for line in trial.lines() if line.startswith("run ")}


def bodies(artifacts: dict[str, bytes]) -> dict[str, bytes]:
    """The content without seals, which say what it cost and in which round."""
    return {
        path: seals.take_apart(data).body if seals.is_inline(path) else data
        for path, data in artifacts.items()
        if not path.endswith(".seal")
    }


def flip(at: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(len(data) * at)] ^= 0x10
        path.write_bytes(data)

    return damage


def keep(share: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        os.truncate(path, int(path.stat().st_size * share))

    return damage


def zero(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


def insert_garbage(path: Path) -> None:
    data = path.read_bytes()
    middle = data.find(b"\n", len(data) // 2) + 1
    path.write_bytes(data[:middle] + b"{not json\n\xff\xfe\n" + data[middle:])


def duplicate_line(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:5], lines[4], *lines[5:]]))


def become_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, Callable[[Path], None]] = {
    "deleted": Path.unlink,
    "emptied": keep(0.0),
    "half": keep(0.5),
    "last-byte-gone": keep(0.999),
    "flip-start": flip(0.02),
    "flip-middle": flip(0.5),
    "flip-end": flip(0.98),
    "zeros": zero,
}
LINES = {"garbage": insert_garbage, "duplicate": duplicate_line}


def journal(trial: Trial) -> Path:
    return trial.journal()


def snapshot(trial: Trial) -> Path:
    return sorted(trial.journal().parent.glob("checkpoint_*.json"))[-1]


def sidecar(trial: Trial) -> Path:
    return sorted(trial.journal().parent.glob("checkpoint_*.sha256"))[-1]


def summary(trial: Trial) -> Path:
    return trial.journal().parent / "checkpoint.json"


def todos(trial: Trial) -> Path:
    return Harness(trial.project).todos_db


@pytest.mark.parametrize("how", [*DAMAGE, *LINES])
def test_a_damaged_journal_of_a_finished_run(tmp_path: Path, finished: Trial, how: str) -> None:
    """The snapshot covers the gap: nothing runs again, every artifact is as it was."""
    trial = copied(finished, tmp_path)
    {**DAMAGE, **LINES}[how](journal(trial))
    result = trial.resume()
    assert (result.status, ran(trial)) == ("completed", set())
    assert trial.artifacts() == finished.artifacts()
    assert abs(result.cost_usd - victim.TOTAL_USD) < 1e-9


def resumed_or_set_aside(trial: Trial) -> RunResult:
    """Resume; if the journal's first line is gone, the run stops, and setting its folder aside is the remedy."""
    try:
        return trial.resume()
    except CheckpointCorruptionError as error:
        assert error.exit_code == EXIT_DAMAGE and "set it aside" in str(error)
        shutil.move(trial.journal().parent, trial.folder / "aside")
        return trial.resume()


@pytest.mark.parametrize("how", [*DAMAGE, *LINES])
def test_a_damaged_journal_of_an_interrupted_run(
    tmp_path: Path, finished: Trial, interrupted: Trial, how: str
) -> None:
    """Without any snapshot, sealed artifacts stand in for lost lines: the run ends right all the same."""
    trial = copied(interrupted, tmp_path)
    {**DAMAGE, **LINES}[how](journal(trial))
    result = resumed_or_set_aside(trial)
    assert result.status == "completed"
    assert bodies(trial.artifacts()) == bodies(finished.artifacts())
    assert not {task for task in ran(trial) if task.startswith(("outline", "research"))}


def test_steps_done_after_a_journal_lost_its_end_are_kept(tmp_path: Path, finished: Trial) -> None:
    """No number is given twice: what a process records after the loss counts, also if it is killed at once."""
    trial = copied(finished, tmp_path)
    keep(0.5)(journal(trial))
    (trial.project / "outline.md").unlink()
    shutil.rmtree(Harness(trial.project).objects)
    assert trial.process("200") == 0
    after = ran(trial)
    for path in trial.journal().parent.glob("checkpoint_*"):
        if path.stem != "checkpoint_0001":
            path.unlink()  # as if the process had been killed before its last snapshot
    assert trial.resume().status == "completed"
    assert ran(trial) == after and len(trial.lines()) == len(set(trial.lines()))


@pytest.mark.parametrize("which", [snapshot, sidecar, summary, todos])
@pytest.mark.parametrize("how", [*DAMAGE, "folder"])
def test_damaged_derived_state_changes_nothing(
    tmp_path: Path, finished: Trial, which: Callable[[Trial], Path], how: str
) -> None:
    """Snapshots, sidecars, summaries and views can be lost or garbled: nothing runs again."""
    trial = copied(finished, tmp_path)
    {**DAMAGE, "folder": become_folder}[how](which(trial))
    result = trial.resume()
    assert (result.status, ran(trial)) == ("completed", set())
    assert trial.artifacts() == finished.artifacts()


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_pack(tmp_path: Path, finished: Trial, how: str) -> None:
    """Files that are intact are trusted without their copies; only a lost value makes its step run again."""
    trial = copied(finished, tmp_path)
    DAMAGE[how](Harness(trial.project).objects / victim.RUN_ID / "0001.pack")
    result = trial.resume()
    assert result.status == "completed"
    assert bodies(trial.artifacts()) == bodies(finished.artifacts())
    assert not {task for task in ran(trial) if task.startswith(("outline", "research", "book"))}


ARTIFACTS = [
    "outline.md",
    "research/ch02.md",
    "drafts/ch01.txt",
    "drafts/ch03.json",
    "drafts/ch02.txt.seal",
    "book.md",
]


@pytest.mark.parametrize("name", ARTIFACTS)
@pytest.mark.parametrize("how", ["deleted", "emptied", "half", "zeros", "folder"])
def test_a_damaged_artifact_is_healed_for_nothing(tmp_path: Path, finished: Trial, name: str, how: str) -> None:
    """It comes back byte for byte from objects/, and nothing runs."""
    trial = copied(finished, tmp_path)
    {**DAMAGE, "folder": become_folder}[how](trial.project / name)
    result = trial.resume()
    assert (result.status, ran(trial)) == ("completed", set())
    assert trial.artifacts() == finished.artifacts()


def test_an_artifact_swapped_with_its_sibling_is_healed(tmp_path: Path, finished: Trial) -> None:
    """A whole file of another task is not this task's, however well it is sealed."""
    trial = copied(finished, tmp_path)
    one, other = (trial.project / f"research/ch0{n}.md" for n in (1, 2))
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    result = trial.resume()
    assert (result.status, ran(trial)) == ("completed", set())
    assert trial.artifacts() == finished.artifacts()


def edited(trial: Trial) -> Path:
    path = trial.project / "research/ch02.md"
    path.write_bytes(path.read_bytes().replace(b"facts", b"fiction"))
    return path


def test_an_edited_artifact_waits_for_a_person(tmp_path: Path, finished: Trial) -> None:
    """An edit is neither trusted nor overwritten: the run pauses, and the edit stays where it is."""
    trial = copied(finished, tmp_path)
    path = edited(trial)
    result = trial.resume()
    assert (result.status, result.exit_code, ran(trial)) == ("paused", 3, set())
    assert b"fiction" in path.read_bytes()


def resumed(trial: Trial, on_changed: str) -> RunResult:
    return Harness(trial.project).run(
        victim.make(trial.log), run_id=victim.RUN_ID, concurrency=3, on_changed=on_changed
    )


def test_an_edited_artifact_is_restored_when_told_so(tmp_path: Path, finished: Trial) -> None:
    """`restore` brings the accepted bytes back and keeps the edit beside them."""
    trial = copied(finished, tmp_path)
    edited(trial)
    result = resumed(trial, "restore")
    assert (result.status, ran(trial)) == ("completed", set())
    assert trial.artifacts() == finished.artifacts()
    (aside,) = trial.project.glob("research/ch02.md.bak.*")
    assert b"fiction" in aside.read_bytes()


def test_an_edit_that_is_kept_redoes_what_depends_on_it(tmp_path: Path, finished: Trial) -> None:
    """`keep` accepts the edit, and exactly its consumers run again."""
    trial = copied(finished, tmp_path)
    edited(trial)
    result = resumed(trial, "keep")
    assert result.status == "completed"
    assert ran(trial) == {"draft[ch02]", "score[ch02]", "book"}
    assert b"FICTION" in trial.artifacts()["book.md"]


def test_an_older_version_put_back_is_a_change(tmp_path: Path, finished: Trial) -> None:
    """A whole sealed file of this task that is not the accepted one is asked about."""
    trial = copied(finished, tmp_path)
    old = (trial.project / "research/ch02.md").read_bytes()
    edited(trial)
    assert resumed(trial, "keep").status == "completed"
    (trial.project / "research/ch02.md").write_bytes(old)
    assert trial.resume().status == "paused"


def test_a_project_whose_state_is_gone_is_adopted(tmp_path: Path, finished: Trial) -> None:
    """Without .holdfast the seals alone give back the run id, the cost, and every task with only files."""
    trial = copied(finished, tmp_path)
    shutil.rmtree(trial.project / ".holdfast")
    result = victim.make(trial.log).run(dir=trial.project)
    assert (result.status, result.run_id) == ("completed", victim.RUN_ID)
    assert not {task for task in ran(trial) if task.startswith(("outline", "research", "book"))}
    assert bodies(trial.artifacts()) == bodies(finished.artifacts())


def test_a_copied_project_resumes_in_its_new_place(tmp_path: Path, finished: Trial, interrupted: Trial) -> None:
    """State holds no absolute path: a copy of an interrupted project is finished where it lies."""
    trial = copied(interrupted, tmp_path)
    done, _ = trial.recorded()
    assert trial.resume().status == "completed"
    assert not ran(trial) & done
    assert trial.artifacts() == finished.artifacts()
