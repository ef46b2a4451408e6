"""Row 4: whether a step costs more late in a long run than early, in time, bytes and memory."""

from __future__ import annotations

import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import workloads
from holdfast.stores import disk
from measure import Comparison, Row, Sample, Setting, bytes_on_disk, scratch, spend
from throughput import run_whole


@dataclass(frozen=True)
class Mark:
    """What the disk had seen when a step began."""

    syncs: int
    sizes: dict[str, int]


@dataclass
class Trace:
    """When each body began, and how the disk stood at some of them. Called by every body."""

    project: Path
    marked: set[int]
    times: list[float] = field(default_factory=list)
    marks: dict[int, Mark] = field(default_factory=dict)

    def __call__(self) -> None:
        step = len(self.times)
        self.times.append(time.perf_counter())
        if step in self.marked:
            self.marks[step] = Mark(disk.syncs, bytes_on_disk(self.project))

    def gaps(self, window: range) -> list[float]:
        """Seconds from each body of the window to the next."""
        return [self.times[step + 1] - self.times[step] for step in window]

    def syncs_per_step(self, window: range) -> float:
        return (self.marks[window.stop].syncs - self.marks[window.start].syncs) / len(window)

    def journal_bytes_per_step(self, window: range) -> float:
        first, last = self.marks[window.start].sizes, self.marks[window.stop].sizes
        return (last["journal"] - first["journal"]) / len(window)

    def all_bytes_per_step(self, step: int) -> float:
        """Everything on disk when that step began, divided by the steps before it."""
        return sum(self.marks[step].sizes.values()) / step


def growth(setting: Setting) -> Iterator[Row]:
    """One long run, one step at a time: what a step costs late in it against early in it."""
    early, late = _windows(setting)
    traces = [_trace(setting, early, late) for _ in range(setting.rounds)]
    yield _row(traces, early, late, "median", target=1.2)
    yield _row(traces, early, late, "mean")
    yield _memory(setting)


def _windows(setting: Setting) -> tuple[range, range]:
    """The steps looked at early and late; in full size around step 200 and step 10,000."""
    width = setting.sizes.growth_window
    end = setting.sizes.growth_items * workloads.STEPS - 1
    return range(width // 2, width // 2 + width), range(end - width, end)


def _trace(setting: Setting, early: range, late: range) -> Trace:
    project = scratch(setting, "growth")
    trace = Trace(project, {early.start, early.stop, late.start, late.stop})
    run_whole(workloads.long_run(setting.sizes.growth_items, trace), project, 1)
    return trace


def _row(traces: list[Trace], early: range, late: range, how: str, target: float | None = None) -> Row:
    """The late window against the early one of the same pass: nothing lies between them but steps."""
    average = statistics.median if how == "median" else statistics.fmean
    compared = Comparison(
        [average(trace.gaps(early)) for trace in traces],
        [_sample(trace, early, late, average(trace.gaps(late))) for trace in traces],
    )
    return compared.row(
        "growth" if target else f"growth-{how}",
        f"{how} cost of a step around step {_middle(late)}, one at a time, values only",
        f"the same around step {_middle(early)}",
        "s",
        target=target,
    )


def _middle(window: range) -> int:
    return (window.start + window.stop) // 2


def _sample(trace: Trace, early: range, late: range, value: float) -> Sample:
    details = {
        "journal_bytes_per_step": {
            "early": trace.journal_bytes_per_step(early),
            "late": trace.journal_bytes_per_step(late),
        },
        "all_bytes_per_step": {
            "early": trace.all_bytes_per_step(early.stop),
            "late": trace.all_bytes_per_step(late.stop),
        },
    }
    return Sample(value, trace.syncs_per_step(late), trace.all_bytes_per_step(late.stop), details)


def _memory(setting: Setting) -> Row:
    """What each task adds to the memory of a run that goes on; its value is the number 1.

    Counted by the interpreter, block by block, so one pass of each says it all.
    """
    few, many = setting.sizes.memory_tasks
    small, large = _memory_of(setting, few), _memory_of(setting, many)
    per_task = {name: (large[name] - small[name]) / (many - few) for name in small}
    row = Comparison([float(small["live"])], [Sample(float(large["live"]))]).row(
        "memory",
        f"bytes a task adds: a run of {many} tasks less one of {few}",
        f"all of the run of {few}",
        "B",
        target_value=2048,
        details={"per_task": per_task},
    )
    return replace(row, subject_value=per_task["live"])


def _memory_of(setting: Setting, tasks: int) -> dict[str, int]:
    project = scratch(setting, "memory")
    spent = spend([__file__, str(project), str(tasks)])  # a process of its own, so that nothing is left over
    if spent.status != 0:
        raise RuntimeError("the run whose memory was measured failed")
    found: dict[str, int] = json.loads((project / "memory.json").read_text())
    return found


def _trace_memory(project: Path, tasks: int) -> None:
    """What that process does: `live` at the last body, `peak` with snapshots and views."""
    live = 0

    def look() -> None:
        nonlocal live
        live = tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    run_whole(workloads.long_run(tasks // workloads.STEPS, look), project, 1)
    peak = tracemalloc.get_traced_memory()[1]
    (project / "memory.json").write_text(json.dumps({"live": live, "peak": peak}))


if __name__ == "__main__":
    _trace_memory(Path(sys.argv[1]), int(sys.argv[2]))
