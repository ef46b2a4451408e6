"""How everything here is measured: interleaved with its baseline, syncs and bytes counted, never assumed."""

from __future__ import annotations

import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from holdfast.journal.preallocation import ROOM_MAX
from holdfast.layout import JOURNAL, OBJECTS_DIR, STATE_DIR
from holdfast.stores import disk

T = TypeVar("T")

_TAKEN_BATCHES_MAX = 50
_QUICK_CREATE_S = 0.0001


@dataclass(frozen=True)
class Sizes:
    """How much work each row does."""

    chain: int = 1000
    items: int = 500
    sleep_s: float = 0.005
    concurrency: int = 32
    growth_items: int = 2525  # four steps each: the last window is around step 10,000
    growth_window: int = 200
    memory_tasks: tuple[int, int] = (1000, 11000)
    status_tasks: tuple[int, int] = (10_000, 100_000)
    killed_after: int = 800
    opening_repeats: int = 5
    matrix_items: int = 1000
    lost_artifacts: int = 10_000


QUICK = Sizes(
    chain=40,
    items=8,
    sleep_s=0.001,
    concurrency=4,
    growth_items=30,
    growth_window=20,
    memory_tasks=(40, 80),
    status_tasks=(40, 80),
    killed_after=20,
    opening_repeats=1,
    matrix_items=10,
    lost_artifacts=40,
)


@dataclass(frozen=True)
class Setting:
    """One invocation of the benchmark: how much, how often, where."""

    sizes: Sizes
    rounds: int
    root: Path


@dataclass(frozen=True)
class Row:
    """One line of the result. Targets are upper bounds: of the ratio, of the subject's own figure, or of both."""

    name: str
    subject: str
    baseline: str
    subject_value: float
    baseline_value: float
    unit: str
    ratio: float
    spread: tuple[float, float]  # lowest and highest of the ratios that the median was taken of
    target: float | None = None
    target_value: float | None = None  # of the subject's own figure, in its unit
    syncs_per_step: float | None = None
    bytes_per_step: float | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def is_met(self) -> bool | None:
        """Whether each target is kept; None where there is none."""
        figures = ((self.ratio, self.target), (self.subject_value, self.target_value))
        kept = [figure <= target for figure, target in figures if target is not None]
        return all(kept) if kept else None

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "is_met": self.is_met}


@dataclass(frozen=True)
class Sample:
    """One pass of the subject: its figure, and what it did to the disk."""

    value: float
    syncs_per_step: float | None = None
    bytes_per_step: float | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """Passes of a subject, each with the figure of the baseline measured around it."""

    baselines: list[float]
    samples: list[Sample]

    @property
    def ratios(self) -> list[float]:
        pairs = zip(self.samples, self.baselines, strict=True)
        return [sample.value / baseline for sample, baseline in pairs]

    @property
    def middle(self) -> Sample:
        """The pass whose ratio is the median (of an even number, the lower of the two)."""
        ratios = self.ratios
        return self.samples[ratios.index(statistics.median_low(ratios))]

    def row(self, name: str, subject: str, baseline: str, unit: str, **more: Any) -> Row:
        """The comparison as a line of the result."""
        middle = self.middle
        details = {**middle.details, **more.pop("details", {})}
        return Row(
            name,
            subject,
            baseline,
            statistics.median(sample.value for sample in self.samples),
            statistics.median(self.baselines),
            unit,
            statistics.median(self.ratios),
            (min(self.ratios), max(self.ratios)),
            syncs_per_step=middle.syncs_per_step,
            bytes_per_step=middle.bytes_per_step,
            details=details,
            **more,
        )


def interleave(baseline: Callable[[], float], subject: Callable[[], Sample], rounds: int) -> Comparison:
    """Baseline, subject, baseline, subject, ..., baseline: a machine that slows down slows both.

    Each pass is compared with the mean of the baselines just before and just after it.
    """
    bare = [_settled(baseline)]
    samples = []
    for _ in range(rounds):
        samples.append(_settled(subject))
        bare.append(_settled(baseline))
    return Comparison([(before + after) / 2 for before, after in pairwise(bare)], samples)


def _settled(measure: Callable[[], T]) -> T:
    """The result of `measure`, begun without the garbage of what ran before it."""
    gc.collect()
    return measure()


def scratch(setting: Setting, name: str) -> Path:
    """A fresh folder for one pass.

    None is removed before the end: ext4 passes over inodes that were freed in the last minutes, one by one,
    which makes creating a file up to fifty times slower for whoever comes next.
    """
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=setting.root))


def pass_freed_inodes(setting: Setting) -> None:
    """Take up inodes that something else freed a moment ago, until creating a file is quick again."""
    folder = scratch(setting, "taken")
    for batch in range(_TAKEN_BATCHES_MAX):
        times = [timed((folder / f"{batch}-{number}").touch) for number in range(100)]
        if statistics.median(times) < _QUICK_CREATE_S:
            return


def timed(work: Callable[[], object]) -> float:
    """Seconds that `work` took."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def run_sample(project: Path, steps: int, work: Callable[[], object]) -> Sample:
    """One run in `project`: seconds, syncs and bytes on disk, its beginning and end included."""
    syncs = disk.syncs
    seconds = timed(work)
    sizes = bytes_on_disk(project)
    return Sample(seconds, (disk.syncs - syncs) / steps, sum(sizes.values()) / steps, {"bytes": sizes})


def bytes_on_disk(project: Path) -> dict[str, int]:
    """The size of every file under `project`, summed by what it is for; of a journal in use without its room."""
    sizes = dict.fromkeys(("journal", "objects", "snapshots", "views", "artifacts"), 0)
    for folder, _, names in os.walk(project):
        for name in names:
            path = Path(folder, name)
            sizes[_purpose(path.relative_to(project).parts)] += path.stat().st_size - _room(path)
    return sizes


def _room(path: Path) -> int:
    """Bytes behind the last line of a journal that more lines can be written over."""
    if path.name != JOURNAL:
        return 0
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - ROOM_MAX - 2))
        end = file.read()
    return len(end.removesuffix(b"\n")) - len(end.rstrip())


def _purpose(parts: Sequence[str]) -> str:
    name = parts[-1]
    if STATE_DIR not in parts:
        return "artifacts" if len(parts) > 1 else "views"
    if OBJECTS_DIR in parts:
        return "objects"
    if name == JOURNAL:
        return "journal"
    return "snapshots" if name.startswith("checkpoint_") else "views"


# --- other processes -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spent:
    """What a child process took."""

    wall_s: float
    cpu_s: float
    status: int


def spend(arguments: Sequence[str], extra: dict[str, str] | None = None) -> Spent:
    """Run this interpreter with `arguments` to its end, its output thrown away."""
    environment = child_environment() | (extra or {})
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
    began = time.perf_counter()
    pid = os.posix_spawn(sys.executable, [sys.executable, *arguments], environment, file_actions=quiet)
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - began
    return Spent(wall, usage.ru_utime + usage.ru_stime, os.waitstatus_to_exitcode(status))


def child_environment() -> dict[str, str]:
    """Ours, but with compiled modules kept, as they are for every user after the first start."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
