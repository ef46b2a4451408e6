"""Rows 1 to 3: what a step costs while a run goes on, against bare programs that keep as much."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import baselines
import workloads
from measure import Row, Sample, Setting, interleave, run_sample, scratch, timed

from holdfast import Pipeline


def chain(setting: Setting) -> Iterator[Row]:
    """A chain of steps: nothing can be shared between two syncs, so every microsecond shows."""
    steps = setting.sizes.chain
    pipe = workloads.chain(steps)

    def bare() -> float:
        with scratch(setting, "bare") as folder:
            return timed(lambda: baselines.chain_log(folder, steps))

    compared = interleave(bare, _runs(setting, pipe, steps, concurrency=8), setting.rounds)
    yield compared.row(
        "chain",
        f"{steps} steps in a chain, values only",
        "one 300-byte write and fdatasync a step",
        "s",
        target=1.6,
    )


def fan_out(setting: Setting) -> Iterator[Row]:
    """Sleeping steps side by side, with threads and with coroutines, against the ideal wall time."""
    sizes = setting.sizes
    yield from _against_ideal(setting, "fan-out", workloads.fan_out(sizes.items, sizes.sleep_s))
    pipe = workloads.fan_out_async(sizes.items, sizes.sleep_s)
    yield next(_against_ideal(setting, "fan-out-async", pipe))


def _against_ideal(setting: Setting, name: str, pipe: Pipeline) -> Iterator[Row]:
    sizes = setting.sizes
    steps = sizes.items * workloads.STEPS
    ideal_s = steps * sizes.sleep_s / sizes.concurrency
    ids = workloads.item_ids(sizes.items)
    bare_syncs: list[int] = []

    def bare() -> float:
        with scratch(setting, "bare") as folder:
            return timed(lambda: bare_syncs.append(_bare(folder)))

    def _bare(folder: object) -> int:
        return baselines.fan_out_log(folder, ids, workloads.STEPS, sizes.sleep_s, sizes.concurrency)  # type: ignore[arg-type]

    compared = interleave(
        bare, _runs(setting, pipe, steps, concurrency=sizes.concurrency), setting.rounds
    )
    yield compared.row(name, "", "", "s")
