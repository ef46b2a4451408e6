"""The power goes while something is put right: a lost record, a damaged file, a memory file.

The files and the record lay safe on the medium before. Which of the places are tried is said in sampling.py.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from harness import Harness, RunResult
from sampling import SEED, sampled

from . import memory_victim, test_memory_kill
from .harness import Trial, texts, uninterrupted
from .medium import HOWS, Medium
from .test_memory_kill import FILE, NOTE, harm

SAMPLE = 2
WORDS, GARBAGE = b"A person's words\n", b"\0\1\2"


class Victim(Protocol):
    """A project and the log of what ran in it."""

    project: Path
    log: Path

    def resume(self) -> RunResult: ...


def cuts(victim: Victim, how: str, make: Callable[[Path], Victim]) -> list[Victim]:
    """Finish the victim's run on a medium, and what is left of it at several places."""
    medium = Medium(victim.project)
    with medium.recording():
        assert victim.resume().status == "completed"
    left = []
    for place in sampled(range(1, len(medium.ops) + 1), SAMPLE, how):
        folder = victim.project.parent / f"cut{place}"
        folder.mkdir()
        medium.cut(place, folder / "project", random.Random(f"{SEED} {place} {how}"), how)
        after = make(folder)
        after.log.touch()
        left.append(after)
    return left


def lose_state(project: Path) -> None:
    shutil.rmtree(project / ".holdfast")


def lose_snapshots_and_views(project: Path) -> None:
    shutil.rmtree(project / ".holdfast" / "runs" / "victim" / "snapshots", ignore_errors=True)
    (project / "checkpoint.md").unlink()


def damage(project: Path) -> None:
    (project / "research" / "ch02.md").write_bytes(GARBAGE)
    (project / "drafts" / "ch01.json").unlink()


def tear_journal(project: Path) -> None:
    journal = project / ".holdfast" / "runs" / "victim" / "events.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-6]) + lines[-6][:40])


def flip_journal(project: Path) -> None:
    journal = project / ".holdfast" / "runs" / "victim" / "events.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[12] = lines[12].replace(b'"seq"', b'"sEq"')
    journal.write_bytes(b"".join(lines))


def edit(project: Path) -> None:
    """A person's words in a file that is then put back as it was; the file is the only place that has them."""
    path = project / "research" / "ch03.md"
    path.write_bytes(WORDS + path.read_bytes())
    (project / "holdfast.toml").write_text('[run]\non_changed = "restore"\n')


def edit_view(project: Path) -> None:
    path = project / "checkpoint.md"
    path.write_bytes(WORDS + path.read_bytes())


DISASTERS = (lose_state, lose_snapshots_and_views, damage, tear_journal, flip_journal, edit, edit_view)
PRECIOUS = {damage: GARBAGE, edit: WORDS, edit_view: WORDS}


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    folder = tmp_path_factory.mktemp("calm")
    uninterrupted(folder)
    return Trial(folder)


@pytest.mark.parametrize("disaster", DISASTERS)
@pytest.mark.parametrize("how", HOWS)
def test_a_recovery_that_loses_power_costs_nothing(
    tmp_path: Path, calm: Trial, disaster: Callable[[Path], None], how: str
) -> None:
    """Whatever is left of the recovery, the next one comes to the same end without running a step."""
    trial = Trial(tmp_path)
    shutil.copytree(calm.project, trial.project)
    disaster(trial.project)
    trial.log.touch()
    for after in cuts(trial, how, Trial):
        assert isinstance(after, Trial)
        assert after.resume().status == "completed", after.folder
        assert not [line for line in after.lines() if line.startswith(("run ", "pay "))], after.folder
        assert texts(after.artifacts()).items() >= texts(calm.artifacts()).items(), after.folder
        assert not Harness(after.project).verify("victim").findings, after.folder
        assert _is_somewhere(after.project, PRECIOUS.get(disaster, b"")), after.folder


@pytest.mark.parametrize("how", HOWS)
def test_an_edit_that_is_kept_survives_a_power_cut(tmp_path: Path, calm: Trial, how: str) -> None:
    """The power goes while it is sealed anew, or while what depends on it is made again: it is in its place."""
    trial = Trial(tmp_path)
    shutil.copytree(calm.project, trial.project)
    edit(trial.project)
    (trial.project / "holdfast.toml").write_text('[run]\non_changed = "keep"\n')
    trial.log.touch()
    for after in cuts(trial, how, Trial):
        assert after.resume().status == "completed", after.project
        assert (after.project / "research" / "ch03.md").read_bytes().startswith(WORDS), after.project
        assert WORDS.upper() in (after.project / "book.md").read_bytes(), after.project
        assert not Harness(after.project).verify("victim").findings, after.project


@pytest.mark.parametrize("how", HOWS)
def test_files_with_plain_markers_survive_a_power_cut(tmp_path: Path, calm: Trial, how: str) -> None:
    """Made by others, and nowhere but here: the power goes while they are sealed, and none is paid for again."""
    trial = Trial(tmp_path)
    shutil.copytree(calm.project, trial.project)
    lose_state(trial.project)
    for path in (*trial.project.glob("research/*.md"), trial.project / "outline.md"):
        above, _, seal = path.read_text().rstrip().rpartition("\n")
        path.write_text(f"{above}\n{seal.split()[1]}\n")
    trial.log.touch()
    for after in cuts(trial, how, Trial):
        assert isinstance(after, Trial)
        assert after.resume().status == "completed", after.folder
        assert not [line for line in after.lines() if line.startswith("pay ")], after.folder
        assert not Harness(after.project).verify("victim").findings, after.folder


def _is_somewhere(project: Path, words: bytes) -> bool:
    return any(words in path.read_bytes() for path in project.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def memories(tmp_path_factory: pytest.TempPathFactory) -> test_memory_kill.Trial:
    trial = test_memory_kill.Trial(tmp_path_factory.mktemp("memories"))
    assert trial.process("0") == 0
    return trial


@pytest.mark.parametrize("how", HOWS)
def test_a_memory_that_loses_power_while_it_is_healed_keeps_what_a_person_wrote(
    tmp_path: Path, memories: test_memory_kill.Trial, how: str
) -> None:
    """Every section is there once, the note stands, and no step with a whole output runs."""
    trial = test_memory_kill.Trial(tmp_path)
    shutil.copytree(memories.project, trial.project, dirs_exist_ok=True)
    harm(trial.project / FILE)
    for after in cuts(trial, how, test_memory_kill.Trial):
        assert isinstance(after, test_memory_kill.Trial)
        assert after.resume().status == "completed", after.project
        assert after.sections() == memories.sections(), after.project
        assert NOTE in after.data(), after.project
        assert not after.ran(), after.project


@pytest.mark.parametrize("how", HOWS)
def test_a_memory_that_loses_power_while_it_is_written_ends_the_same(
    tmp_path: Path, memories: test_memory_kill.Trial, how: str
) -> None:
    """After a cut at any place of the first run, the next one gives the same sections, each once."""
    for after in cuts(test_memory_kill.Trial(tmp_path), how, test_memory_kill.Trial):
        assert isinstance(after, test_memory_kill.Trial)
        assert after.resume().status == "completed", after.project
        assert after.sections() == memories.sections(), after.project
        assert after.data().count(b"TERMS_COMPLETE") == len(memory_victim.CHAPTERS), after.project
