"""Row 7: how long it takes to find out what is left, and to go on, when all state is lost but the files."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import workloads
from holdfast.commands.recover import recover
from holdfast.commands.scan import scan_project
from holdfast.layout import STATE_DIR, ProjectLayout
from holdfast.runs.choosing import Request
from holdfast.stores import disk
from measure import Row, Sample, Setting, interleave, scratch, timed
from throughput import run_whole

_BARE = "reading and hashing those files once"


def losses(setting: Setting) -> Iterator[Row]:
    """`scan` and `recover` without any record, and the `run` that then has nothing to do."""
    items = setting.sizes.lost_artifacts // workloads.STEPS
    project, pipe = scratch(setting, "lost"), workloads.fan_out(items, 0.0, files=True)
    disk.sync_enabled, before = False, disk.sync_enabled  # what is only built to be looked at
    try:
        run_whole(pipe, project, 8)
    finally:
        disk.sync_enabled = before
    compiled, layout = pipe.compile(), ProjectLayout(project)

    def scanned() -> Sample:
        _lose(project)
        return Sample(timed(lambda: scan_project(compiled, layout)))

    def recovered() -> Sample:
        _lose(project)
        return Sample(timed(lambda: recover(compiled, layout, Request())))

    def looked_at() -> Sample:
        return Sample(timed(lambda: run_whole(pipe, project, 8)))

    def bare() -> float:
        return timed(lambda: _hash_all(project))

    count = items * workloads.STEPS
    for name, measure, words, target in (
        ("scan", scanned, "holdfast scan", 2.0),
        ("recover", recovered, "holdfast recover", 2.0),
        ("nothing-to-do", looked_at, "holdfast run of the finished run", None),
    ):
        compared = interleave(bare, measure, setting.rounds)
        yield compared.row(f"{name}-{count}", f"{words}: {count} files", _BARE, "s", target=target)


def _lose(project: Path) -> None:
    shutil.rmtree(project / STATE_DIR, ignore_errors=True)


def _hash_all(project: Path) -> None:
    for folder, _, names in os.walk(project):
        if STATE_DIR not in Path(folder).parts and folder != str(project):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    hashlib.sha256(file.read()).hexdigest()
