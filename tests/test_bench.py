"""The benchmark works: every row is there, and what it counts is what happened. How fast it was is not asked."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).resolve().parent.parent / "bench"

ROWS = [
    "chain",
    "fan-out",
    "fan-out-to-log",
    "fan-out-async",
    "fan-out-async-to-log",
    "artifacts",
    "growth",
    "growth-mean",
    "memory",
    "status-40",
    "status-80",
    "first-step",
    "import",
    "matrix",
    "scan-40",
    "recover-40",
    "scan-cold-40",
    "recover-cold-40",
    "nothing-to-do-40",
]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):
    """Imports a module of the benchmark, which is a folder of scripts and no package."""
    monkeypatch.syspath_prepend(BENCH)

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load


def run_bench(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / "bench.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_every_row_is_measured_printed_and_written(tmp_path: Path) -> None:
    """One quick pass gives each row a ratio, in the table and in the JSON, and leaves nothing else behind."""
    report = tmp_path / "results.json"
    done = run_bench("--quick", "--rounds", "1", "--json", str(report), "--dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    rows = json.loads(report.read_text())["rows"]
    assert [row["name"] for row in rows] == ROWS
    assert all(row["ratio"] > 0 and row["baseline_value"] > 0 for row in rows)
    assert all(f"│ {name} " in done.stdout for name in ROWS)
    assert os.listdir(tmp_path) == ["results.json"]


def test_only_measures_what_is_named(tmp_path: Path) -> None:
    """--only leaves the other groups out, and syncs are counted: a chain needs at least one a step."""
    report = tmp_path / "results.json"
    options = ("--quick", "--rounds", "2", "--only", "chain", "--json", str(report), "--dir", str(tmp_path))
    done = run_bench(*options)
    assert done.returncode == 0, done.stderr
    document = json.loads(report.read_text())
    (row,) = document["rows"]
    assert (row["name"], document["rounds"]) == ("chain", 2)
    assert row["bytes_per_step"] > 300
    assert row["syncs_per_step"] >= 1


def test_a_row_that_does_not_exist_is_refused() -> None:
    """A mistyped --only is an error, not an empty table."""
    done = run_bench("--only", "chian")
    assert done.returncode == 2
    assert "chian" in done.stderr


def test_each_pass_is_compared_with_the_baselines_around_it(bench) -> None:
    """A baseline that drifts does not move the ratio: it is the mean of the one before and the one after."""
    measure = bench("measure")
    bare = iter([1.0, 3.0, 5.0])
    subject = iter([4.0, 8.0])
    compared = measure.interleave(lambda: next(bare), lambda: measure.Sample(next(subject)), 2)
    assert compared.baselines == [2.0, 4.0]
    assert compared.ratios == [2.0, 2.0]


def test_a_row_tells_median_spread_and_whether_the_target_is_met(bench) -> None:
    """Of three ratios the middle one counts, the others are the spread, and the target bounds the middle."""
    measure = bench("measure")
    samples = [measure.Sample(3.0, 1.0), measure.Sample(1.0, 2.0), measure.Sample(2.0, 7.0)]
    row = measure.Comparison([1.0, 1.0, 1.0], samples).row("r", "", "", "s", target=1.9)
    assert (row.ratio, row.spread, row.syncs_per_step) == (2.0, (1.0, 3.0), 7.0)
    assert row.is_met is False
    assert measure.Comparison([1.0], samples[1:2]).row("r", "", "", "s").is_met is None
    ten_times = measure.Comparison([0.1], samples[1:2])
    assert ten_times.row("r", "", "", "s", target_value=1.0).is_met is True
    assert ten_times.row("r", "", "", "s", target=9.0, target_value=1.0).is_met is False


def test_bytes_are_counted_by_what_they_are_for(bench, tmp_path: Path) -> None:
    """Each file of a project counts once, under journal, objects, snapshots, views or artifacts."""
    run = tmp_path / ".holdfast" / "runs" / "r"
    run.mkdir(parents=True)
    (tmp_path / ".holdfast" / "objects").mkdir()
    (tmp_path / "out").mkdir()
    for size, path in enumerate(
        [
            run / "events.jsonl",
            tmp_path / ".holdfast" / "objects" / "r.pack",
            run / "checkpoint_0001.json",
            run / "checkpoint.json",
            tmp_path / "out" / "a.md",
            tmp_path / "RESUME.md",
        ],
        start=1,
    ):
        path.write_bytes(b"x" * 10**size)
    assert bench("measure").bytes_on_disk(tmp_path) == {
        "journal": 10,
        "objects": 100,
        "snapshots": 1000,
        "views": 10_000 + 1_000_000,
        "artifacts": 100_000,
    }


def test_the_room_of_a_journal_in_use_is_not_counted(bench, tmp_path: Path) -> None:
    """What lies behind the last line is made in large pieces, and taken away in the end."""
    journal = tmp_path / ".holdfast" / "runs" / "r" / "events.jsonl"
    journal.parent.mkdir(parents=True)
    for content in (b'{"seq":1}\n', b'{"seq":1}' + b" " * (200 << 10) + b"\n"):
        journal.write_bytes(content)
        assert bench("measure").bytes_on_disk(tmp_path)["journal"] == 10


def test_a_synthetic_run_reads_like_one_that_was_run(bench, tmp_path: Path) -> None:
    """The run that `status` is timed on has the tasks and statuses that really running it gives."""
    from harness import Harness

    made, real = tmp_path / "made", tmp_path / "real"
    made.mkdir()
    real.mkdir()
    bench("synthetic").finished_run(made, 12)
    bench("throughput").run_whole(bench("workloads").long_run(3), real, 1)
    pictures = []
    for project in (made, real):
        pictures.append(Harness(project).picture())
    first, second = pictures
    assert sorted(first.tasks) == sorted(second.tasks)
    assert len(first.tasks) == 13
    assert (first.state.status, first.counts) == (second.state.status, second.counts)


def test_the_bare_program_keeps_every_file(bench, tmp_path: Path) -> None:
    """The baseline of the artifacts row really writes each step's file, and one line of its log a step."""
    baselines, workloads = bench("baselines"), bench("workloads")
    baselines.fan_out_files(tmp_path, ["a", "b"], 2, 0.0, 2, workloads.text)
    written = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert written == {f"{item}-s{n}.md": workloads.text(item, n) for item in "ab" for n in (1, 2)}
    assert (tmp_path / "log").read_bytes() == baselines.LINE * 4
