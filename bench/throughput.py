"""Rows 1 to 3: what a step costs while a run goes on, against bare programs that keep as much."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import baselines
import workloads
from holdfast import Pipeline
from measure import (
    Comparison,
    Row,
    Sample,
    Setting,
    interleave,
    pass_freed_inodes,
    run_sample,
    scratch,
    timed,
)


def warm_up(setting: Setting) -> None:
    """Load everything that a run loads, and find a quick spot on disk: the first pass is like the others."""
    for pipe in (workloads.fan_out(2, 0.0, files=True), workloads.fan_out_async(2, 0.0)):
        run_whole(pipe, scratch(setting, "warm-up"), 2)
    pass_freed_inodes(setting)


def chain(setting: Setting) -> Iterator[Row]:
    """A chain of steps: nothing can be shared between two syncs, so every microsecond shows."""
    steps = setting.sizes.chain
    bare = _bare(setting, lambda folder: baselines.chain_log(folder, steps))
    runs = _runs(setting, workloads.chain(steps), steps)
    yield interleave(bare, runs, setting.rounds).row(
        "chain",
        f"{steps} steps in a chain, values only",
        "one 300-byte line written and synced a step",
        "s",
        target=1.6,
    )


def fan_out(setting: Setting) -> Iterator[Row]:
    """Sleeping steps side by side, in threads and as coroutines, against the ideal and against a bare log."""
    sizes = setting.sizes
    yield from _sleeping(setting, "fan-out", "threads", workloads.fan_out(sizes.items, sizes.sleep_s))
    coroutines = workloads.fan_out_async(sizes.items, sizes.sleep_s)
    yield from _sleeping(setting, "fan-out-async", "coroutines", coroutines)


def artifacts(setting: Setting) -> Iterator[Row]:
    """The same, with a file of 2 KB a step."""
    sizes = setting.sizes
    pipe = workloads.fan_out(sizes.items, sizes.sleep_s, files=True)
    bare = _bare(setting, lambda folder: baselines.fan_out_files(folder, *_shape(setting), workloads.text))
    yield interleave(bare, _runs(setting, pipe, _steps(setting)), setting.rounds).row(
        "artifacts",
        f"{_shape_text(setting)}, each with a 2 KB file",
        f"the same files written safely and a log line synced for each, {sizes.concurrency} threads",
        "s",
        target=1.3,
    )


def _sleeping(setting: Setting, name: str, how: str, pipe: Pipeline) -> Iterator[Row]:
    sizes = setting.sizes
    bare = _bare(setting, lambda folder: baselines.fan_out_log(folder, *_shape(setting)))
    compared = interleave(bare, _runs(setting, pipe, _steps(setting)), setting.rounds)
    subject = f"{_shape_text(setting)}, values only, {how}"
    ideal_s = _steps(setting) * sizes.sleep_s / sizes.concurrency
    yield Comparison([ideal_s] * setting.rounds, compared.samples).row(
        name,
        subject,
        "the ideal: all sleeping divided by the concurrency",
        "s",
        target=2.0,
        details={"bare_log_to_ideal": statistics.median(compared.baselines) / ideal_s},
    )
    yield compared.row(f"{name}-to-log", subject, f"a log synced in groups, {sizes.concurrency} threads", "s")


def _shape(setting: Setting) -> tuple[list[str], int, float, int]:
    """Items, steps of each, seconds of sleep, threads: what the bare programs of a fan-out take."""
    sizes = setting.sizes
    return workloads.item_ids(sizes.items), workloads.STEPS, sizes.sleep_s, sizes.concurrency


def _shape_text(setting: Setting) -> str:
    sizes = setting.sizes
    return f"{sizes.items} items x {workloads.STEPS} steps of {sizes.sleep_s * 1000:g} ms"


def _steps(setting: Setting) -> int:
    return setting.sizes.items * workloads.STEPS


def _bare(setting: Setting, program: Callable[[Path], object]) -> Callable[[], float]:
    """A pass of a bare program, in a folder of its own."""

    def measure() -> float:
        folder = scratch(setting, "bare")
        return timed(lambda: program(folder))

    return measure


def _runs(setting: Setting, pipe: Pipeline, steps: int) -> Callable[[], Sample]:
    """A pass of the whole `pipe.run`, in a project of its own."""

    def measure() -> Sample:
        project = scratch(setting, "run")
        return run_sample(project, steps, lambda: run_whole(pipe, project, setting.sizes.concurrency))

    return measure


def run_whole(pipe: Pipeline, project: Path, concurrency: int) -> None:
    """Run it, and make sure that what was measured is a run that came to its end."""
    result = pipe.run(dir=project, concurrency=concurrency)
    if result.status != "completed":
        raise RuntimeError(f"the measured run ended as {result.status}")
