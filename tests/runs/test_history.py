"""A run's state from its disk: snapshots, the journal, and what happens when either is damaged."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast import Pipeline
from holdfast.errors import FormatTooNewError, UnknownRunError
from holdfast.folding import FOLD_VERSION
from holdfast.journal.lines import NO_SUM, close_line
from holdfast.layout import ProjectLayout
from holdfast.runs.history import FORMAT
from holdfast.runs.listing import read_run
from holdfast.runs.opening import open_journal
from holdfast.snapshots import read_snapshot, write_snapshot
from holdfast.state import COMPLETED

OURS = b'"fold":%d,' % FOLD_VERSION


def counting(calls: list[str]) -> Pipeline:
    pipe = Pipeline("p")
    pipe.items("n", [f"i{n}" for n in range(6)])

    @pipe.step(each="n")
    def one(n: str) -> str:
        calls.append(n)
        return n * 3

    @pipe.step
    def all_of(one: dict[str, str]) -> str:
        calls.append("all")
        return "".join(one.values())

    return pipe


@pytest.fixture
def finished(tmp_path: Path) -> tuple[ProjectLayout, str, list[str], Pipeline]:
    calls: list[str] = []
    pipe = counting(calls)
    result = pipe.run(dir=tmp_path)
    calls.clear()
    return ProjectLayout(tmp_path), result.run_id, calls, pipe


def snapshots(layout: ProjectLayout, run_id: str) -> list[Path]:
    return sorted(layout.run(run_id).dir.glob("checkpoint_*.json"))


def test_snapshot_and_journal_say_the_same(finished: tuple[ProjectLayout, str, list[str], Pipeline]) -> None:
    """The fold from the snapshot on equals the fold of the whole journal."""
    layout, run_id, _, _ = finished
    with_snapshot = read_run(layout, run_id)
    for path in snapshots(layout, run_id):
        path.unlink()
    from_journal = read_run(layout, run_id)
    assert with_snapshot.tail_events < from_journal.tail_events
    assert msgspec.json.encode(with_snapshot.state) == msgspec.json.encode(from_journal.state)


def test_a_damaged_newest_snapshot_costs_nothing(finished: tuple[ProjectLayout, str, list[str], Pipeline]) -> None:
    """It is quarantined, the older one or the journal serves, and no step runs again."""
    layout, run_id, calls, pipe = finished
    pipe.run(dir=layout.root)
    newest = snapshots(layout, run_id)[-1]
    newest.write_bytes(newest.read_bytes()[:-40])
    assert pipe.run(dir=layout.root).status == COMPLETED
    assert calls == []
    assert [p.name for p in layout.run(run_id).quarantine.iterdir() if p.name.startswith(newest.name)]


def test_a_snapshot_number_is_never_used_again(finished: tuple[ProjectLayout, str, list[str], Pipeline]) -> None:
    """Even when every snapshot is lost, the next one has a new number."""
    layout, run_id, _, pipe = finished
    used = {path.name for path in snapshots(layout, run_id)}
    for path in snapshots(layout, run_id):
        path.unlink()
    pipe.run(dir=layout.root)
    assert not used & {path.name for path in snapshots(layout, run_id)}


def test_a_snapshot_covers_the_gap_of_a_damaged_journal(
    finished: tuple[ProjectLayout, str, list[str], Pipeline],
) -> None:
    """Damage up to the line the snapshot stands on loses no finished step, and what was damaged is kept."""
    layout, run_id, calls, pipe = finished
    journal = layout.run(run_id).journal
    lines = journal.read_bytes().splitlines(keepends=True)
    for at in range(4, len(lines) - 1):
        lines[at] = lines[at].replace(b'"event"', b'"evEnt"')
    journal.write_bytes(b"".join(lines))
    assert read_run(layout, run_id).state.task("one[i0]").status == COMPLETED
    assert pipe.run(dir=layout.root).status == COMPLETED
    assert calls == []
    assert b"journal_repaired" in journal.read_bytes()
    assert list(layout.run(run_id).quarantine.iterdir())
    assert pipe.run(dir=layout.root).status == COMPLETED
    assert calls == []


def test_without_snapshot_only_the_damaged_step_runs_again(
    finished: tuple[ProjectLayout, str, list[str], Pipeline],
) -> None:
    """Good lines are all kept: one damaged line costs one step, and equal output stops the cascade."""
    layout, run_id, calls, pipe = finished
    for path in snapshots(layout, run_id):
        path.unlink()
    journal = layout.run(run_id).journal
    lines = journal.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if b'"node_exit"' in line and b"one[i3]" in line)
    lines[at] = b"\x00" * (len(lines[at]) - 1) + b"\n"
    journal.write_bytes(b"".join(lines))
    assert pipe.run(dir=layout.root).status == COMPLETED
    assert calls == ["i3"]


def resaved(layout: ProjectLayout, run_id: str, fold: int) -> list[bytes]:
    """All snapshots as another version of the fold would have saved them, with another sum of what was spent."""
    run, made = layout.run(run_id), []
    for path in snapshots(layout, run_id):
        payload = (read_snapshot(path) or b"").replace(OURS, b'"fold":%d,' % fold if fold else b"")
        payload = payload.replace(b'"state":{', b'"state":{"cost_usd":99.0,')
        write_snapshot(run.dir, int(path.stem[-4:]), payload)
        made.append(path.read_bytes())
    return made


@pytest.mark.parametrize("version", [0, FOLD_VERSION + 1])
def test_a_snapshot_of_another_fold_is_passed_over_and_is_no_damage(
    finished: tuple[ProjectLayout, str, list[str], Pipeline], version: int
) -> None:
    """Older or newer: the journal is folded anew, the snapshot stays as it is, and the next one is ours."""
    layout, run_id, calls, pipe = finished
    old = resaved(layout, run_id, version)
    history = read_run(layout, run_id)
    assert (history.state.cost_usd, history.damage, history.journal_damage) == (0.0, [], [])
    assert history.tail_events == history.state.seq
    assert pipe.run(dir=layout.root).status == COMPLETED and calls == []
    *left, newest = [path.read_bytes() for path in snapshots(layout, run_id)]
    assert left == old and newest.startswith(b'{"format":%d,' % FORMAT + OURS)
    assert read_run(layout, run_id).tail_events < history.tail_events


@pytest.mark.parametrize("lost", ["line", "end", "journal"])
def test_a_snapshot_of_another_fold_covers_what_the_journal_lost(
    finished: tuple[ProjectLayout, str, list[str], Pipeline], lost: str
) -> None:
    """It is better than nothing, and told; no step runs again, also not after the journal was mended."""
    layout, run_id, calls, pipe = finished
    resaved(layout, run_id, 0)
    journal = layout.run(run_id).journal
    lines = journal.read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if b'"node_exit"' in line and b"i3" in line)
    kept = {"line": [*lines[:at], b"rot\n", *lines[at + 1 :]], "end": lines[:at], "journal": []}[lost]
    journal.write_bytes(b"".join(kept))
    history = read_run(layout, run_id)
    assert history.state.task("one[i3]").status == COMPLETED
    assert any("which another version of Holdfast saved" in words for words in history.damage)
    assert pipe.run(dir=layout.root).status == COMPLETED
    assert calls == []


def test_something_newer_is_refused_and_left_alone(
    finished: tuple[ProjectLayout, str, list[str], Pipeline],
) -> None:
    """A snapshot of a newer format is not passed over, and nothing is written."""
    layout, run_id, _, pipe = finished
    run = layout.run(run_id)
    write_snapshot(run.dir, 99, b'{"format":3,"position":[1,"0000000000000000",5],"state":{"tasks":[]}}')
    before = {p.name: p.read_bytes() for p in run.dir.iterdir() if p.is_file()}
    with pytest.raises(FormatTooNewError, match="newer"):
        pipe.run(dir=layout.root)
    assert {p.name: p.read_bytes() for p in run.dir.iterdir() if p.is_file()} == before


def test_a_newer_journal_is_refused(finished: tuple[ProjectLayout, str, list[str], Pipeline]) -> None:
    """A journal line of a newer format stops the run."""
    layout, run_id, _, pipe = finished
    for path in snapshots(layout, run_id):
        path.unlink()
    journal = layout.run(run_id).journal
    newer, prev = [], NO_SUM
    for old in journal.read_bytes().splitlines():
        line, prev = close_line(old.replace(b'"v":1', b'"v":2')[: old.rindex(b',"prev"')], prev)
        newer.append(line)
    text = b"".join(newer)
    journal.write_bytes(text)
    with pytest.raises(FormatTooNewError):
        pipe.run(dir=layout.root)
    assert journal.read_bytes() == text


def test_an_unknown_run_is_an_error(finished: tuple[ProjectLayout, str, list[str], Pipeline]) -> None:
    """A wrong id never starts fresh."""
    layout, _, calls, pipe = finished
    with pytest.raises(UnknownRunError, match="no run other"):
        pipe.run(dir=layout.root, resume="other")
    assert calls == []


def test_a_snapshot_finds_its_line_again_after_a_repair(
    finished: tuple[ProjectLayout, str, list[str], Pipeline],
) -> None:
    """Every line was chained anew and moved; still no more is read than what follows the snapshot."""
    layout, run_id, _, _ = finished
    before = read_run(layout, run_id)
    journal = layout.run(run_id).journal
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[3] = b"rot\n"
    journal.write_bytes(b"".join(lines))
    assert open_journal(layout.run(run_id)).repair()
    after = read_run(layout, run_id)
    assert (after.damage, after.journal_damage) == ([], [])
    assert after.tail_events == before.tail_events + 1  # the one that tells of the repair
    assert after.state.tasks == before.state.tasks
