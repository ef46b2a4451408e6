"""Files that belong to no task: which are listed, which are folded, and which a task seems to have written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from holdfast import Pipeline
from outside import OUTSIDE


def notes(folder: str = "notes") -> Pipeline:
    pipe = Pipeline("notes")

    @pipe.step(reads="inbox/*.csv", writes="index.md")
    def index() -> str:
        return "a b\n"

    @pipe.items("name")
    def names(index: str) -> list[str]:
        return index.split()

    @pipe.step(each="name", reads="given/{name}.txt", writes=f"out/{folder}/{{name}}.md")
    def note(name: str) -> str:
        return f"{name}\n"

    @pipe.step(each="name", writes=f"out/{folder}/{{name}}.json")
    def facts(note: str) -> dict[str, int]:
        return {"length": len(note)}

    return pipe


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("inbox/a.csv", "given/a.txt", "given/b.txt"):
        write(tmp_path, name)
    assert notes().run(dir=tmp_path, run_id="first").status == "completed"
    return tmp_path


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("somebody's\n", encoding="utf-8")


def strangers(root: Path, pipe: Pipeline | None = None) -> list[Any]:
    return Harness(root).scan(pipe or notes()).strangers


def test_all_of_the_project_is_looked_at(project: Path) -> None:
    """In the project's own folder and in those above artifacts each file is listed; others are counted."""
    write(project, "helper.py", "out/cover.png", "out/notes/mine.txt", "old.md.part")
    write(project, "data/1.csv", "data/deep/2.csv", "inbox/b.txt")
    found = {one.path: (one.kind, one.files) for one in strangers(project)}
    assert found == {
        "data/": ("folder", 2),
        "helper.py": ("stranger", 1),
        "inbox/": ("folder", 1),
        "old.md.part": ("partial", 1),
        "out/cover.png": ("stranger", 1),
        "out/notes/mine.txt": ("stranger", 1),
    }


def test_what_is_of_no_interest_is_not_listed(project: Path) -> None:
    """Hidden things, folders of tools, virtual environments, views, settings and what `reads` names."""
    write(project, ".git/config", ".env", "out/.DS_Store", "node_modules/x/index.js", "out/__pycache__/a.pyc")
    write(project, "py311/pyvenv.cfg", "py311/lib/x.py", "holdfast.toml")
    assert strangers(project) == []


def test_links_are_listed_and_not_followed(project: Path) -> None:
    """A link to a folder is one file of somebody's."""
    os.symlink(OUTSIDE.parent, project / "elsewhere")
    assert [one.path for one in strangers(project)] == ["elsewhere"]


@pytest.mark.skipif(os.geteuid() == 0, reason="chmod 000 does not keep root out")
def test_a_folder_that_may_not_be_listed_is_told(project: Path) -> None:
    """Cannot read is not absent."""
    (project / "closed").mkdir(0o000)
    assert [(one.path, one.detail) for one in strangers(project)] == [("closed/", "it may not be listed")]


def test_a_file_at_a_path_that_the_pipeline_no_longer_names_is_recognised(project: Path) -> None:
    """With the record lost its seal says whose it is: where to move it is said, and then it is adopted."""
    shutil.rmtree(project / ".holdfast")
    pipe = notes("texts")
    found = {one.path: (one.task, one.detail.partition(": ")[2]) for one in strangers(project, pipe)}
    assert found == {
        "out/notes/a.json": ("facts[a]", "move it, with its .seal file, to out/texts/a.json to have it adopted"),
        "out/notes/a.md": ("note[a]", "move it to out/texts/a.md to have it adopted"),
        "out/notes/b.json": ("facts[b]", "move it, with its .seal file, to out/texts/b.json to have it adopted"),
        "out/notes/b.md": ("note[b]", "move it to out/texts/b.md to have it adopted"),
    }
    os.rename(project / "out" / "notes", project / "out" / "texts")
    assert not [one for one in strangers(project, pipe) if one.task]
    result = pipe.run(dir=project)
    assert (result.run_id, result.status) == ("first", "completed")
    assert result.outputs["note"] == {"a": "a\n", "b": "b\n"}


def test_recovery_tells_of_such_files_and_leaves_them_alone(project: Path) -> None:
    """Their steps are still to run: `recover` says what to do first, and RESUME.md keeps it."""
    shutil.rmtree(project / ".holdfast")
    pipe, harness = notes("texts"), Harness(project)
    foreseen = harness.recover(pipe, dry_run=True)
    done = harness.recover(pipe)
    words = "out/notes/a.md looks like note[a], written under another path: move it to out/texts/a.md"
    assert f"{words} to have it adopted" in foreseen.remarks and foreseen.remarks == done.remarks
    assert (project / "out" / "notes" / "a.md").exists() and not (project / "out" / "texts").exists()
    assert "out/notes/a.md looks like" in (project / "RESUME.md").read_text(encoding="utf-8")


def test_only_so_many_strangers_are_opened(project: Path) -> None:
    """A folder of ten thousand pages of somebody's is counted, not read."""
    write(project, *(f"pages/{number}.md" for number in range(1050)))  # of a folder 1,000 are opened
    assert [(one.path, one.files) for one in strangers(project)] == [("pages/", 1050)]
