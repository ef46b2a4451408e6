"""The acceptance over files and objects in memory, with the power cut between any two operations on them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from artifacts.test_acceptance import BOTH, TEXT, Killed, Project, other_form
from holdfast.artifacts.looks import MISSING, SEALED
from holdfast.artifacts.offers import Offer
from holdfast.seals import seal_path
from holdfast.state import IN_PROGRESS, RunState
from holdfast.testing import MemoryFiles, MemoryObjects


class Cutting:
    """A store of which the power is cut before the operation that `countdown` counts down to."""

    def __init__(self, store: Any, countdown: Callable[[], None]) -> None:
        self._store = store
        self._countdown = countdown

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            self._countdown()
            return found(*given, **named)

        return call


class Computer:
    """Files and objects that outlive a process."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.objects = MemoryObjects("R")
        self.operations = 0

    def project(self, state: RunState | None = None, *, cut_at: int = 0) -> Project:
        self.operations = 0

        def count() -> None:
            self.operations += 1
            if 0 < cut_at <= self.operations:  # also what a dead process would still tidy up
                raise Killed

        stores = (Cutting(self.files, count), Cutting(self.objects, count))
        return Project(self.files.root, state, stores=stores)

    def cut(self) -> None:
        self.files.crash()
        self.objects.crash()


def nothing_there(project: Project) -> None:
    """The task begins with an empty folder."""


def accepted_there(project: Project) -> None:
    project.land(project.offer("data", {"a": 1}))
    project.tree.sync("out/data.json")
    project.tree.sync(seal_path("out/data.json"))


def sent_back_there(project: Project) -> None:
    project.land(project.offer("both", {"text": "first\n", "table": "0\n"}))
    project.state.tasks["both"] = replace(project.state.task("both"), status=IN_PROGRESS, round=1)


def large(project: Project) -> Offer:
    out = project.tree.fresh_path("loose.md")
    out.write_text("a film")
    return project.offer("loose", out)


STORIES: dict[str, tuple[str, Callable[[Project], None], Callable[[Project], Offer], list[str]]] = {
    "body": ("text", nothing_there, lambda p: p.offer("text", TEXT), ["out/text.md"]),
    "body-without-copy": ("loose", nothing_there, lambda p: p.offer("loose", TEXT), ["loose.md"]),
    "large": ("loose", nothing_there, large, ["loose.md"]),
    "body-of-several": ("both", nothing_there, lambda p: p.offer("both", BOTH), ["both.md", "both.csv"]),
    "body-again": ("both", sent_back_there, lambda p: p.offer("both", BOTH), ["both.md", "both.csv"]),
    "migrated": ("data", accepted_there, other_form, ["out/data.json"]),
}


def bodies(project: Project, name: str, paths: list[str]) -> dict[str, bytes | None]:
    """What each file is believed to hold; None if it is not believed."""
    found = {path: project.look(path, name) for path in paths}
    return {path: seen.body if seen.kind == SEALED else None for path, seen in found.items()}


@pytest.mark.parametrize("story", STORIES)
def test_whenever_the_power_is_cut_a_file_is_old_or_new_or_not_believed(story: str) -> None:
    """And to offer it again leads to the same end, as if nothing had been."""
    name, prepare, make, paths = STORIES[story]
    undisturbed = Computer().project()
    prepare(undisturbed)
    undisturbed.land(make(undisturbed))
    wanted = bodies(undisturbed, name, paths)
    for at in itertools.count(1):
        computer = Computer()
        prepare(project := computer.project())
        before = bodies(project, name, paths)
        cut = computer.project(project.state, cut_at=at)
        try:
            cut.land(make(cut))
        except Killed:
            pass
        else:
            assert at > 3
            return
        computer.cut()
        after = computer.project(cut.state)
        for path, body in bodies(after, name, paths).items():
            assert body in (before[path], wanted[path], None), f"{path}, cut before operation {at}"
        after.land(make(after))
        assert bodies(after, name, paths) == wanted


@pytest.mark.parametrize("story", STORIES)
def test_what_is_offered_and_has_not_landed_is_under_no_name(story: str) -> None:
    """Neither before the power is cut, nor after it."""
    name, prepare, make, paths = STORIES[story]
    computer = Computer()
    prepare(project := computer.project())
    before = {path: project.look(path, name) for path in paths}
    names = computer.files.names("")
    make(project)
    assert {path: project.look(path, name) for path in paths} == before
    assert computer.files.names("") == names
    computer.cut()
    if prepare is nothing_there:
        assert all(computer.project().look(path, name).kind == MISSING for path in paths)


@pytest.mark.parametrize("story", ["body-without-copy", "large", "migrated"])
def test_what_has_landed_and_has_no_copy_elsewhere_survives(story: str) -> None:
    """It was synced before it was recorded."""
    name, prepare, make, paths = STORIES[story]
    computer = Computer()
    prepare(project := computer.project())
    project.land(make(project))
    whole = bodies(project, name, paths)
    computer.cut()
    assert bodies(computer.project(project.state), name, paths) == whole
    assert None not in whole.values()


def test_what_was_recorded_can_be_put_back_after_a_power_cut() -> None:
    """Its file may be empty, or gone: its copy was synced before the record was."""
    computer = Computer()
    project = computer.project()
    offer = project.offer("text", TEXT)
    project.land(offer)
    computer.cut()
    after = computer.project(project.state)
    (file,) = offer.files
    assert after.artifacts.body(file) == TEXT.encode()
    assert offer.seal is not None
    assert after.acceptance.sealed_files.put_back(file, offer.seal)
    assert after.look("out/text.md", "text").kind == SEALED


def test_nothing_of_it_was_written_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    computer = Computer()
    project = computer.project()
    project.land(project.offer("both", BOTH))
    assert not computer.files.root.exists() and not list(tmp_path.iterdir())
