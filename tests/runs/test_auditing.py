"""The record read in full: every line, every snapshot, and what one says against the other."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from harness import Harness
from holdfast import EventLog, Pipeline
from holdfast.folding import FOLD_VERSION
from holdfast.runs.history import decode_state, encode_state
from holdfast.snapshots import read_snapshot, write_snapshot
from outside import OUTSIDE
from refusing import refuse_reading


def pipeline() -> Pipeline:
    pipe = Pipeline("p")
    pipe.items("n", [f"i{n}" for n in range(4)])

    @pipe.step(each="n", writes="out/{n}.md")
    def one(n: str) -> str:
        return n * 3

    return pipe


@pytest.fixture
def run(tmp_path: Path) -> Harness:
    """A finished run, looked at once more: two snapshots."""
    pipeline().run(dir=tmp_path)
    pipeline().run(dir=tmp_path)
    return Harness(tmp_path, pipeline())


def problems(run: Harness) -> list[tuple[str, str]]:
    """What is found of the record."""
    return [(Path(found.path).name, found.problem) for found in run.verify().findings if not found.task]


def mend(run: Harness) -> None:
    """Put the journal in order, as the next append would."""
    with EventLog(run.journal(), lock_path=run.state / "append.lock") as log:
        assert list(log)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def test_a_whole_record_has_no_flaw(run: Harness) -> None:
    """Every line and every snapshot is counted, and nothing is wrong."""
    found = run.verify()
    lines = run.journal().read_bytes().count(b"\n")
    assert (found.findings, found.notes) == ([], [])
    assert (found.checked["journal_lines"], found.checked["snapshots"]) == (lines, 2)


def test_damage_behind_a_snapshot_is_found(run: Harness) -> None:
    """A resume would not read that line; the audit does."""
    flip(run.journal(), 30)
    assert {problem for _, problem in problems(run)} == {"damaged"}


def test_a_torn_tail_is_a_flaw(run: Harness) -> None:
    """What no append completes was left by a crash, or by damage of the last line."""
    with run.journal().open("ab") as journal:
        journal.write(b'{"seq":99')
    assert problems(run) == [("events.jsonl", "torn")]


def test_an_append_under_way_is_no_flaw(run: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tail that is whole at the second look was being written."""
    data = run.journal().read_bytes()
    os.truncate(run.journal(), len(data) - 5)
    monkeypatch.setattr("holdfast.runs.auditing.time.sleep", lambda seconds: run.journal().write_bytes(data))
    assert run.verify().findings == []


@pytest.mark.parametrize("at", [0.1, 0.5, 0.99])
def test_a_damaged_snapshot_is_found(run: Harness, at: float) -> None:
    """Wherever the byte is, its own hash does not fit any more."""
    newest = run.snapshots()[-1]
    flip(newest, int(newest.stat().st_size * at))
    assert (newest.name, "damaged") in problems(run)


def test_a_snapshot_that_is_no_file_is_found(run: Harness) -> None:
    """A folder or a link at its name is damage, and not followed."""
    first, second = run.snapshots()
    first.unlink()
    first.mkdir()
    second.unlink()
    second.symlink_to(OUTSIDE)
    assert problems(run) == [(first.name, "damaged"), (second.name, "damaged")]


@pytest.mark.parametrize(("text", "word"), [(None, "missing"), ("0  x\n", "stale")])
def test_a_sidecar_decides_nothing(run: Harness, text: str | None, word: str) -> None:
    """A lost or wrong one is worth a note."""
    sidecar = run.snapshots()[0].with_suffix(".sha256")
    sidecar.unlink() if text is None else sidecar.write_text(text)
    found = run.verify()
    assert found.findings == []
    assert [note.split(";")[0] for note in found.notes] == [f"{sidecar.name} is {word}"]


def test_a_snapshot_must_say_what_the_journal_says(run: Harness) -> None:
    """One that proves itself, but holds another state, is found, with the names of what differs."""
    newest = run.snapshots()[-1]
    saved = decode_state(read_snapshot(newest) or b"")
    saved.state.cost_usd += 1
    write_snapshot(run.folder(), int(newest.stem[-4:]), encode_state(saved.state, saved.position))
    (flaw,) = run.verify().findings
    assert (Path(flaw.path).name, flaw.problem) == (newest.name, "different")
    assert flaw.detail.endswith(": cost_usd")


def test_a_snapshot_of_another_fold_is_not_compared(run: Harness) -> None:
    """What another version made of the journal is not what this one makes of it: that is a note, not a flaw."""
    newest = run.snapshots()[-1]
    payload = (
        (read_snapshot(newest) or b"")
        .replace(b'"fold":%d,' % FOLD_VERSION, b"")
        .replace(b'"pipeline":"p"', b'"pipeline":"q"')
    )
    write_snapshot(run.folder(), int(newest.stem[-4:]), payload)
    found = run.verify()
    assert found.findings == []
    assert found.notes == [f"{newest.name} was saved by another version of Holdfast, and is not compared"]


def test_a_journal_that_lost_its_end_is_the_one_flaw(run: Harness) -> None:
    """Whole lines cut off cleanly are missed all the same; the snapshots that know more are right."""
    lines = run.journal().read_bytes().splitlines(keepends=True)
    run.journal().write_bytes(b"".join(lines[:4]))
    newest = run.snapshots()[-1].name
    (flaw,) = run.verify().findings
    assert (Path(flaw.path).name, flaw.problem) == ("events.jsonl", "shortened")
    assert flaw.detail.startswith(f"it ends at line 4; {newest} knows all up to line ")


def test_a_journal_that_is_gone_is_a_flaw(run: Harness) -> None:
    """The snapshots stand in for all of it."""
    run.journal().unlink()
    (flaw,) = run.verify().findings
    assert (Path(flaw.path).name, flaw.problem) == ("events.jsonl", "shortened")
    assert flaw.detail.startswith("nothing of it is left")


def test_repeated_lines_are_a_flaw_of_the_journal_alone(run: Harness) -> None:
    """In the middle they are damage, at the end a tail; a snapshot whose line they moved is right."""
    lines = run.journal().read_bytes().splitlines(keepends=True)
    run.journal().write_bytes(b"".join([*lines[:3], lines[2], *lines[3:]]))
    assert problems(run) == [("events.jsonl", "damaged")]
    run.journal().write_bytes(b"".join([*lines, lines[2]]))
    assert problems(run) == [("events.jsonl", "repeated")]


def test_a_journal_that_may_not_be_read_is_a_flaw(run: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known about its lines, so it is not called damaged."""
    refuse_reading(run.journal(), monkeypatch)
    assert problems(run) == [("events.jsonl", "forbidden")]


def test_after_a_repair_with_a_gap_the_snapshots_are_no_flaw(run: Harness) -> None:
    """They know what the journal lost: a note says so, and what comes later is compared again."""
    lines = run.journal().read_bytes().splitlines(keepends=True)
    run.journal().write_bytes(b"".join(lines[:4] + lines[5:]))
    mend(run)
    found = run.verify()
    assert found.findings == []
    assert any("covers lines that the journal has lost" in note for note in found.notes)


def test_after_a_repair_without_a_gap_nothing_is_worth_a_word(run: Harness) -> None:
    """Swapped lines are put in order; snapshots from before name lines by their old sums."""
    lines = run.journal().read_bytes().splitlines(keepends=True)
    lines[3], lines[4] = lines[4], lines[3]
    run.journal().write_bytes(b"".join(lines))
    mend(run)
    found = run.verify()
    of_the_record = [note for note in found.notes if "older than the journal" not in note]  # the others are views
    assert (found.findings, of_the_record) == ([], [])


def test_recover_mends_lines_behind_a_snapshot(run: Harness) -> None:
    """The damaged journal goes to quarantine, all good lines stay, and the record is whole again."""
    flip(run.journal(), 30)
    assert run.recover().exit_code == 0
    assert run.verify().findings == []
    assert any(name.startswith("events.jsonl.damaged") for name in os.listdir(run.folder() / "quarantine"))


def test_a_journal_that_is_a_link_is_not_read(run: Harness, tmp_path: Path) -> None:
    """Even one that leads to the very same lines."""
    shutil.move(run.journal(), tmp_path / "elsewhere")
    run.journal().symlink_to(tmp_path / "elsewhere")
    found = run.verify()
    assert found.checked["journal_lines"] == 0
    assert ("events.jsonl", "damaged") in problems(run)
