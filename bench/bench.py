"""The benchmark: what Holdfast costs, as ratios to bare programs measured in the same minutes.

`make bench`, or `python bench/bench.py [--quick] [--only NAME] [--rounds N] [--json PATH] [--dir DIR]`.
How to read what it prints: docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.table import Table

import growth
import losses
import matrix
import opening
import throughput
from measure import QUICK, Row, Setting, Sizes

HERE = Path(__file__).resolve().parent
SCRATCH = HERE.parent / "build"  # on the checkout's file system, and ignored by git

GROUPS: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "chain": throughput.chain,
    "fan-out": throughput.fan_out,
    "artifacts": throughput.artifacts,
    "growth": growth.growth,
    "status": opening.status,
    "first-step": opening.first_step,
    "import": opening.imports,
    "matrix": matrix.matrix,
    "losses": losses.losses,
}


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table, write the JSON."""
    options = _parser().parse_args(arguments)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    options.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=options.dir) as root:
        setting = Setting(QUICK if options.quick else Sizes(), options.rounds, Path(root))
        rows = list(_measure(setting, options.only or list(GROUPS)))
    _write(options.json, setting, rows)
    _print(rows, options.json, is_quick=options.quick)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure what Holdfast costs.")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it works, proves nothing")
    parser.add_argument("--only", action="append", choices=GROUPS, help="one group; may be given several times")
    parser.add_argument("--rounds", type=_positive, default=5, help="passes of each measurement (default: 5)")
    parser.add_argument("--json", type=Path, default=HERE / "results.json", help="where the result is written")
    parser.add_argument("--dir", type=Path, default=SCRATCH, help="the folder, and so the disk, to measure on")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _measure(setting: Setting, names: list[str]) -> Iterator[Row]:
    """Each group in a process of its own, as commands are: none finds the memory that another left."""
    progress = Console(stderr=True)
    for name in names:
        progress.print(f"measuring {name} ...", style="dim")
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            yield from process.submit(_rows, setting, name).result()


def _rows(setting: Setting, name: str) -> list[Row]:
    throughput.warm_up(setting)
    return list(GROUPS[name](setting))


def _write(path: Path, setting: Setting, rows: list[Row]) -> None:
    document = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "rounds": setting.rounds,
        "rows": [row.document() for row in rows],
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _print(rows: list[Row], path: Path, *, is_quick: bool) -> None:
    title = "Holdfast against bare programs, medians"
    note = " (small sizes: beginning and end outweigh the steps, targets say nothing)" if is_quick else ""
    table = Table(title=title + note, title_justify="left")
    table.add_column("row")
    for heading in ("holdfast", "baseline", "ratio", "spread", "target", "syncs/step", "bytes/step"):
        table.add_column(heading, justify="right")
    table.add_column("met")
    for row in rows:
        table.add_row(*_cells(row))
    # A table that folds its columns is unreadable in a log; one that is too wide is not.
    console = Console(width=None if os.isatty(1) else 140)
    console.print(table)
    for row in rows:
        console.print(f"{row.name}: {row.subject}; baseline: {row.baseline}", markup=False, highlight=False)
    console.print(f"Everything, with details: {path}", markup=False, highlight=False)


def _cells(row: Row) -> list[str]:
    low, high = row.spread
    return [
        row.name,
        _figure(row.subject_value, row.unit),
        _figure(row.baseline_value, row.unit),
        f"{row.ratio:.2f}",
        f"{low:.2f}-{high:.2f}",
        _target(row),
        "" if row.syncs_per_step is None else f"{row.syncs_per_step:.3f}",
        "" if row.bytes_per_step is None else f"{row.bytes_per_step:.0f}",
        {True: "yes", False: "NO", None: ""}[row.is_met],
    ]


def _target(row: Row) -> str:
    targets = [f"{row.target:g}"] if row.target is not None else []
    targets += [f"{row.target_value:g} {row.unit}"] if row.target_value is not None else []
    return f"<= {', '.join(targets)}" if targets else ""


def _figure(value: float, unit: str) -> str:
    if unit == "s" and value < 0.01:
        return f"{value * 1e6:.0f} µs"
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


if __name__ == "__main__":
    main()
