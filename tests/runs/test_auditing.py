"""The record read in full: every line, every snapshot, and what one says against the other."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from holdfast import Pipeline
from holdfast.folding import FOLD_VERSION
from holdfast.layout import ProjectLayout, RunLayout
from holdfast.project.recover import recover
from holdfast.runs.auditing import DAMAGED, DIFFERENT, FORBIDDEN, REPEATED, SHORTENED, TORN, Audit, audit
from holdfast.runs.choosing import Request
from holdfast.runs.history import decode_state, encode_state
from holdfast.runs.opening import open_journal
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
def run(tmp_path: Path) -> RunLayout:
    """A finished run, looked at once more: two snapshots."""
    run_id = pipeline().run(dir=tmp_path).run_id
    pipeline().run(dir=tmp_path)
    return ProjectLayout(tmp_path).run(run_id)


def snapshots(run: RunLayout) -> list[Path]:
    return sorted(run.dir.glob("checkpoint_*.json"))


def problems(found: Audit) -> list[tuple[str, str]]:
    return [(flaw.path.name, flaw.problem) for flaw in found.flaws]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def test_a_whole_record_has_no_flaw(run: RunLayout) -> None:
    """Every line and every snapshot is counted, and nothing is wrong."""
    found = audit(run)
    lines = run.journal.read_bytes().count(b"\n")
    assert (found.flaws, found.notes, found.lines, found.snapshots) == ([], [], lines, 2)


def test_damage_behind_a_snapshot_is_found(run: RunLayout) -> None:
    """A resume would not read that line; the audit does."""
    flip(run.journal, 30)
    assert {flaw.problem for flaw in audit(run).flaws} == {DAMAGED}


def test_a_torn_tail_is_a_flaw(run: RunLayout) -> None:
    """What no append completes was left by a crash, or by damage of the last line."""
    with run.journal.open("ab") as journal:
        journal.write(b'{"seq":99')
    assert problems(audit(run)) == [("events.jsonl", TORN)]


def test_an_append_under_way_is_no_flaw(run: RunLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tail that is whole at the second look was being written."""
    data = run.journal.read_bytes()
    os.truncate(run.journal, len(data) - 5)
    monkeypatch.setattr("holdfast.runs.auditing.time.sleep", lambda seconds: run.journal.write_bytes(data))
    assert audit(run).flaws == []


@pytest.mark.parametrize("at", [0.1, 0.5, 0.99])
def test_a_damaged_snapshot_is_found(run: RunLayout, at: float) -> None:
    """Wherever the byte is, its own hash does not fit any more."""
    newest = snapshots(run)[-1]
    flip(newest, int(newest.stat().st_size * at))
    assert (newest.name, DAMAGED) in problems(audit(run))


def test_a_snapshot_that_is_no_file_is_found(run: RunLayout) -> None:
    """A folder or a link at its name is damage, and not followed."""
    first, second = snapshots(run)
    first.unlink()
    first.mkdir()
    second.unlink()
    second.symlink_to(OUTSIDE)
    assert problems(audit(run)) == [(first.name, DAMAGED), (second.name, DAMAGED)]


@pytest.mark.parametrize(("text", "word"), [(None, "missing"), ("0  x\n", "stale")])
def test_a_sidecar_decides_nothing(run: RunLayout, text: str | None, word: str) -> None:
    """A lost or wrong one is worth a note."""
    sidecar = snapshots(run)[0].with_suffix(".sha256")
    sidecar.unlink() if text is None else sidecar.write_text(text)
    found = audit(run)
    assert found.flaws == []
    assert [note.split(";")[0] for note in found.notes] == [f"{sidecar.name} is {word}"]


def test_a_snapshot_must_say_what_the_journal_says(run: RunLayout) -> None:
    """One that proves itself, but holds another state, is found, with the names of what differs."""
    newest = snapshots(run)[-1]
    saved = decode_state(read_snapshot(newest) or b"")
    saved.state.cost_usd += 1
    write_snapshot(run.dir, int(newest.stem[-4:]), encode_state(saved.state, saved.position))
    (flaw,) = audit(run).flaws
    assert (flaw.path, flaw.problem) == (newest, DIFFERENT)
    assert flaw.detail.endswith(": cost_usd")


def test_a_snapshot_of_another_fold_is_not_compared(run: RunLayout) -> None:
    """What another version made of the journal is not what this one makes of it: that is a note, not a flaw."""
    newest = snapshots(run)[-1]
    payload = (
        (read_snapshot(newest) or b"")
        .replace(b'"fold":%d,' % FOLD_VERSION, b"")
        .replace(b'"pipeline":"p"', b'"pipeline":"q"')
    )
    write_snapshot(run.dir, int(newest.stem[-4:]), payload)
    found = audit(run)
    assert found.flaws == []
    assert found.notes == [f"{newest.name} was saved by another version of Holdfast, and is not compared"]


def test_a_journal_that_lost_its_end_is_the_one_flaw(run: RunLayout) -> None:
    """Whole lines cut off cleanly are missed all the same; the snapshots that know more are right."""
    lines = run.journal.read_bytes().splitlines(keepends=True)
    run.journal.write_bytes(b"".join(lines[:4]))
    newest = snapshots(run)[-1].name
    (flaw,) = audit(run).flaws
    assert (flaw.path, flaw.problem) == (run.journal, SHORTENED)
    assert flaw.detail.startswith(f"it ends at line 4; {newest} knows all up to line ")


def test_a_journal_that_is_gone_is_a_flaw(run: RunLayout) -> None:
    """The snapshots stand in for all of it."""
    run.journal.unlink()
    (flaw,) = audit(run).flaws
    assert (flaw.path, flaw.problem) == (run.journal, SHORTENED)
    assert flaw.detail.startswith("nothing of it is left")


def test_repeated_lines_are_a_flaw_of_the_journal_alone(run: RunLayout) -> None:
    """In the middle they are damage, at the end a tail; a snapshot whose line they moved is right."""
    lines = run.journal.read_bytes().splitlines(keepends=True)
    run.journal.write_bytes(b"".join([*lines[:3], lines[2], *lines[3:]]))
    assert problems(audit(run)) == [("events.jsonl", DAMAGED)]
    run.journal.write_bytes(b"".join([*lines, lines[2]]))
    assert problems(audit(run)) == [("events.jsonl", REPEATED)]


def test_a_journal_that_may_not_be_read_is_a_flaw(run: RunLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known about its lines, so it is not called damaged."""
    refuse_reading(run.journal, monkeypatch)
    assert problems(audit(run)) == [("events.jsonl", FORBIDDEN)]


def test_after_a_repair_with_a_gap_the_snapshots_are_no_flaw(run: RunLayout) -> None:
    """They know what the journal lost: a note says so, and what comes later is compared again."""
    lines = run.journal.read_bytes().splitlines(keepends=True)
    run.journal.write_bytes(b"".join(lines[:4] + lines[5:]))
    open_journal(run).repair()
    found = audit(run)
    assert found.flaws == []
    assert any("covers lines that the journal has lost" in note for note in found.notes)


def test_after_a_repair_without_a_gap_nothing_is_worth_a_word(run: RunLayout) -> None:
    """Swapped lines are put in order; snapshots from before name lines by their old sums."""
    lines = run.journal.read_bytes().splitlines(keepends=True)
    lines[3], lines[4] = lines[4], lines[3]
    run.journal.write_bytes(b"".join(lines))
    open_journal(run).repair()
    found = audit(run)
    assert (found.flaws, found.notes) == ([], [])


def test_recover_mends_lines_behind_a_snapshot(run: RunLayout) -> None:
    """The damaged journal goes to quarantine, all good lines stay, and the record is whole again."""
    layout = ProjectLayout(run.dir.parents[2])
    flip(run.journal, 30)
    compiled = pipeline().compile()
    assert recover(compiled, layout, Request()).exit_code == 0
    assert audit(run).flaws == []
    assert any(name.startswith("events.jsonl.damaged") for name in os.listdir(run.quarantine))


def test_a_journal_that_is_a_link_is_not_read(run: RunLayout, tmp_path: Path) -> None:
    """Even one that leads to the very same lines."""
    shutil.move(run.journal, tmp_path / "elsewhere")
    run.journal.symlink_to(tmp_path / "elsewhere")
    found = audit(run)
    assert found.lines == 0
    assert ("events.jsonl", DAMAGED) in problems(found)
