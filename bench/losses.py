"""Row 7: how long it takes to find out what is left, and to go on, when all state is lost but the files."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import workloads
from holdfast.layout import STATE_DIR, ProjectLayout
from holdfast.project.recover import recover
from holdfast.project.scan import scan_project
from holdfast.runs.choosing import Request
from measure import Comparison, Row, Sample, Setting, interleave, scratch, timed
from throughput import run_whole

_BARE = "reading and hashing those files once"


def losses(setting: Setting) -> Iterator[Row]:
    """`scan` and `recover` without any record, and the `run` that then has nothing to do.

    First with all files in memory, where everything but the disk counts; then, as after a reboot, with none.
    """
    project = _Project(setting)
    for name, work in (("scan", project.scan), ("recover", project.recover)):
        subject = f"holdfast {name}: {project.count} files"
        found = project.compare(work, is_lost=True, is_cold=False)
        yield found.row(f"{name}-{project.count}", subject, _BARE, "s", target=6.0, target_value=1.0)
    for name, work in (("scan", project.scan), ("recover", project.recover)):
        subject = f"holdfast {name}: {project.count} files, none of them in memory"
        found = project.compare(work, is_lost=True, is_cold=True)
        yield found.row(f"{name}-cold-{project.count}", subject, _BARE, "s", target=4.0)
    found = project.compare(project.run, is_lost=False, is_cold=False)
    subject = f"holdfast run of the finished run: {project.count} files"
    yield found.row(f"nothing-to-do-{project.count}", subject, _BARE, "s")


class _Project:
    """A finished run with many files, to be lost again and again."""

    def __init__(self, setting: Setting) -> None:
        items = setting.sizes.lost_artifacts // workloads.STEPS
        self.count = items * workloads.STEPS
        self._rounds = setting.rounds
        self._root = scratch(setting, "lost")
        self._pipe = workloads.fan_out(items, 0.0, files=True)
        self.run()
        self._compiled, self._layout = self._pipe.compile(), ProjectLayout(self._root)

    def run(self) -> None:
        run_whole(self._pipe, self._root, 8)

    def scan(self) -> None:
        scan_project(self._compiled, self._layout)

    def recover(self) -> None:
        recover(self._compiled, self._layout, Request())

    def compare(self, work: Callable[[], None], *, is_lost: bool, is_cold: bool) -> Comparison:
        """`work` against reading and hashing; with all state lost before, and files dropped from memory."""

        def bare() -> float:
            if is_cold:
                _forget(self._root)
            return timed(lambda: _hash_all(self._root))

        def subject() -> Sample:
            if is_lost:
                _lose(self._root)
            if is_cold:
                _forget(self._root)
            return Sample(timed(work))

        return interleave(bare, subject, self._rounds)


def _lose(project: Path) -> None:
    shutil.rmtree(project / STATE_DIR, ignore_errors=True)


def _forget(project: Path) -> None:
    """Have the system drop the bytes of all files from memory, where it can be told to."""
    if hasattr(os, "posix_fadvise"):
        os.sync()  # what is not on the disk cannot be dropped
        for path in _artifacts(project):
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _hash_all(project: Path) -> None:
    for path in _artifacts(project):
        with open(path, "rb") as file:
            hashlib.sha256(file.read()).hexdigest()


def _artifacts(project: Path) -> Iterator[str]:
    for folder, _, names in os.walk(project):
        if STATE_DIR not in Path(folder).parts and folder != str(project):
            for name in names:
                yield os.path.join(folder, name)
