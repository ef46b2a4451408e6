"""A power cut takes everything that was not synced: what had been reported done must still be done."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.layout import ProjectLayout
from holdfast.stores import disk

from . import victim
from .harness import Trial, uninterrupted


class Medium:
    """Knows how much of each file a sync has made durable, and makes copies as a power cut would leave them."""

    def __init__(self, project: Path) -> None:
        layout = ProjectLayout(project)
        self.project = project
        self.growing = (layout.run(victim.RUN_ID).journal, layout.objects / f"{victim.RUN_ID}.pack")
        self.durable: dict[Path, int] = dict.fromkeys(self.growing, 0)
        self.cuts: list[tuple[Path, int]] = []

    def hook(self, op: str, path: str) -> None:
        """Called before a sync: everything written by now will be durable if it succeeds."""
        name = Path(path)
        if op == "sync" and name in self.durable:
            self.durable[name] = max(self.durable[name], os.stat(name).st_size)

    def cut(self, to: Path, log: Path, spoil: Callable[[bytes], bytes]) -> None:
        """Copy the project without what was never synced; `spoil` says what becomes of a growing file's tail."""
        durable, told = dict(self.durable), len(log.read_text().splitlines())
        shutil.copytree(self.project, to, ignore=shutil.ignore_patterns("tmp"), copy_function=_copied)
        for path, size in durable.items():
            copy = to / path.relative_to(self.project)
            if copy.exists():
                data = copy.read_bytes()
                copy.write_bytes(data[:size] + spoil(data[size:]))
        for path in to.rglob("*"):
            if path.is_file() and ".holdfast" not in path.parts:
                path.write_bytes(b"")
        self.cuts.append((to, told))


def _copied(source: str, target: str) -> None:
    """Views are written meanwhile: a file that is there for a moment only may be gone."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


SPOILS: dict[str, Callable[[bytes], bytes]] = {
    "lost": lambda tail: b"",
    "torn": lambda tail: tail[: len(tail) // 2],
    "zeros": lambda tail: b"\0" * len(tail),
}


@pytest.fixture
def _syncing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(disk, "sync_enabled", False)  # the medium is simulated
    yield
    disk.hook = None


@pytest.mark.usefixtures("_syncing")
@pytest.mark.parametrize("spoil", SPOILS)
def test_what_was_reported_done_survives_a_power_cut(tmp_path: Path, spoil: str) -> None:
    """At every report, a cut that takes all unsynced data leaves each reported task done."""
    expected = uninterrupted(tmp_path / "calm")
    trial = Trial(tmp_path / "first").begin()
    medium = Medium(trial.project)

    def cut(recorded: Sequence[Any]) -> None:
        if any(getattr(one.event, "status", "") == "completed" for one in recorded):
            medium.cut(tmp_path / f"cut{len(medium.cuts)}" / "project", trial.log, SPOILS[spoil])

    disk.hook = medium.hook
    victim.run(trial.project, trial.log, on_events=cut)
    disk.hook = None
    assert len(medium.cuts) > 4
    for project, told in medium.cuts:
        _check_after_cut(Trial(project.parent), trial.lines()[:told], expected)


def _check_after_cut(after: Trial, before: list[str], expected: dict[str, bytes]) -> None:
    done = {line[4:] for line in before if line.startswith("ack ")}
    after.log.touch()
    result = after.resume()
    ran = {line[4:] for line in after.lines() if line.startswith("run ")}
    assert not ran & done, f"reported done, and ran again: {ran & done}"
    assert result.status == "completed"
    assert after.artifacts() == expected
