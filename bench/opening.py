"""Row 5: how long it takes from typing a command until something is seen, or the first new step runs."""

from __future__ import annotations

import shutil
import signal
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import synthetic
import workloads
from measure import Row, Sample, Setting, Spent, interleave, scratch, spend
from throughput import run_whole

KILLED = Path(__file__).with_name("killed.py")
_BARE = "an interpreter that does nothing"


def status(setting: Setting) -> Iterator[Row]:
    """`holdfast status` of finished runs, in a fresh process."""
    small, large = setting.sizes.status_tasks
    project = scratch(setting, "status")
    run_whole(workloads.long_run(small // workloads.STEPS), project, 1)
    yield _status_row(setting, project, small, 0.4)
    project = scratch(setting, "status")
    synthetic.finished_run(project, large)
    yield _status_row(setting, project, large, 2.0)


def _status_row(setting: Setting, project: Path, tasks: int, target_s: float) -> Row:
    command = ["-m", "holdfast", "status", "--dir", str(project)]
    compared = interleave(_bare_start, lambda: Sample(_spent(command).wall_s), _repeats(setting))
    return compared.row(
        f"status-{tasks}",
        f"holdfast status of a finished run of {tasks} steps",
        _BARE,
        "s",
        target_value=target_s,
    )


def first_step(setting: Setting) -> Iterator[Row]:
    """A killed run with files: from the start of the process that resumes it to its first new body."""
    killed = scratch(setting, "killed")
    _kill_a_run(setting, killed)

    def resume() -> Sample:
        project = scratch(setting, "resumed")  # beside the killed one: the way to the pipeline's file is the same
        shutil.copytree(killed, project, dirs_exist_ok=True)
        return Sample(_seconds_to_first_body(setting, project, scratch(setting, "first") / "body"))

    yield interleave(_bare_start, resume, _repeats(setting)).row(
        "first-step",
        f"resume of a run killed after {setting.sizes.killed_after} steps, to its first new body",
        _BARE,
        "s",
        target_value=0.3,
    )


def _kill_a_run(setting: Setting, project: Path) -> None:
    steps = setting.sizes.killed_after
    command = ["-m", "holdfast", "run", str(KILLED), "--dir", str(project), "--concurrency", "4"]
    _killed(command, _environment(setting) | {"BENCH_KILL_AFTER": str(steps)})


def _seconds_to_first_body(setting: Setting, project: Path, file: Path) -> float:
    command = ["-m", "holdfast", "resume", "--dir", str(project)]
    began = time.time_ns()
    _killed(command, _environment(setting) | {"BENCH_FIRST_BODY_FILE": str(file)})
    return (int(file.read_text()) - began) / 1e9


def _environment(setting: Setting) -> dict[str, str]:
    """A quarter more items than are done when it is killed, so that something is left to do."""
    return {"BENCH_ITEMS": str(setting.sizes.killed_after * 5 // 4 // workloads.STEPS + 1)}


def _killed(command: list[str], environment: dict[str, str]) -> None:
    spent = spend(command, environment)
    if spent.status != -signal.SIGKILL:
        raise RuntimeError(f"{' '.join(command)} was to be killed, and ended with {spent.status}")


def imports(setting: Setting) -> Iterator[Row]:
    """`import holdfast`: processor time above that of a bare interpreter."""
    _cpu_ms("import holdfast")  # compiles what is not compiled yet
    repeats = 3 * _repeats(setting)  # the clock of processor time is coarse
    compared = interleave(lambda: _cpu_ms("pass"), lambda: Sample(_cpu_ms("import holdfast")), repeats)
    row = compared.row(
        "import",
        "import holdfast: processor time above the baseline",
        _BARE,
        "ms",
        target_value=60,
    )
    above = [sample.value - bare for sample, bare in zip(compared.samples, compared.baselines, strict=True)]
    yield replace(row, subject_value=statistics.median(above))


def _cpu_ms(code: str) -> float:
    return _spent(["-c", code]).cpu_s * 1000


def _bare_start() -> float:
    return _spent(["-c", "pass"]).wall_s


def _spent(command: list[str]) -> Spent:
    spent = spend(command)
    if spent.status != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {spent.status}")
    return spent


def _repeats(setting: Setting) -> int:
    return setting.rounds * setting.sizes.opening_repeats
