"""What the files alone say: each kind of finding, markers that are none, and files that are nobody's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from holdfast import Context, Pipeline
from holdfast.errors import InTheWayError, UsageError
from holdfast.project.results import ScanResult
from outside import OUTSIDE

LONG = "A sentence that goes on. " * 10


def reviews(topic: str = "x", *, version: int = 1) -> Pipeline:
    pipe = Pipeline("reviews", params={"topic": (str, topic)})

    @pipe.step(writes="outline.md")
    def outline(topic: str) -> str:
        return f"# {topic}\n"

    @pipe.items("ch")
    def chapters(outline: str) -> list[dict[str, Any]]:
        return [{"id": name, "title": name.upper()} for name in ("a", "b")]

    @pipe.step(
        each="ch",
        writes="reviews/{ch}.md",
        marker="REVIEW_COMPLETE",
        version=version,
        check=lambda text: "too short" if len(text) < 5 else None,
    )
    def review(ctx: Context, ch: str, outline: str) -> str:
        return f"{LONG}{ch} of {outline}"

    @pipe.step(each="ch", writes="data/{ch}.json")
    def facts(review: str) -> dict[str, int]:
        return {"length": len(review)}

    @pipe.step(writes="free.txt", marker=None)
    def free() -> str:
        return "free\n"

    return pipe


def scan(root: Path, pipe: Pipeline | None = None, **options: Any) -> ScanResult:
    """With the record of the run."""
    return Harness(root).scan(pipe or reviews(), **options)


def scan_alone(root: Path) -> ScanResult:
    """Of the files alone."""
    state, gone = root / ".holdfast", root.parent / f"{root.name}-gone"
    state.rename(gone)
    try:
        return scan(root)
    finally:
        gone.rename(state)


def kinds(scanned: ScanResult) -> dict[str, str]:
    return {finding.path: finding.kind for finding in scanned.files}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    assert reviews().run(dir=tmp_path).status == "completed"
    return tmp_path


def test_a_finished_project_is_whole_with_and_without_its_record(project: Path) -> None:
    """The same is said with a record, and from the files alone, also of items that a function made."""
    with_record = scan(project)
    assert set(kinds(with_record).values()) == {"sealed"} and len(with_record.files) == 6
    (project / "checkpoint.md").unlink()
    assert kinds(scan_alone(project)) == kinds(with_record)


def test_nothing_is_changed_and_no_record_needed(project: Path) -> None:
    """Scanning touches no file, and works where nothing may be written."""
    before = {path: path.stat().st_mtime_ns for path in project.rglob("*")}
    scan(project)
    assert {path: path.stat().st_mtime_ns for path in project.rglob("*")} == before


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (f"{LONG}\nREVIEW_COMPLETE\n", "plain marker"),
        (f"{LONG}\n<!-- REVIEW_COMPLETE -->\n\n\n", "plain marker"),
        (f"{LONG}\nR1_CODE_REVIEW_COMPLETE\n", "half-finished"),
        (f"{LONG}\nREVIEW_COMPLETE_NOT\n", "half-finished"),
        (f"{LONG}\n```\nREVIEW_COMPLETE\n```\n", "half-finished"),
        (f"{LONG}\n> REVIEW_COMPLETE\n", "half-finished"),
        (f"It will say REVIEW_COMPLETE at the end. {LONG}\n", "half-finished"),
        (f"{LONG}\nREVIEW_COMPLETE\nand one more thought\n", "half-finished"),
        (f"{LONG}\n`REVIEW_COMPLETE`\n", "half-finished"),
        ("", "empty"),
        ("\x00\x00\x00", "damaged"),
        ("ab\nREVIEW_COMPLETE\n", "refused"),
    ],
)
def test_a_marker_counts_only_as_the_exact_last_line(project: Path, content: str, kind: str) -> None:
    """Inside a longer word, in a code block, quoted, or followed by text it is text."""
    (project / "reviews" / "a.md").write_text(content, encoding="utf-8")
    assert kinds(scan_alone(project))["reviews/a.md"] == kind


def test_each_kind_of_damage_has_its_word(project: Path) -> None:
    """Missing, edited, another task's, not what its seal says, cut off in a stream."""
    (project / "free.txt").unlink()
    edited = project / "reviews" / "a.md"
    edited.write_text("edited " + edited.read_text(encoding="utf-8"), encoding="utf-8")
    (project / "reviews" / "b.md").write_bytes((project / "outline.md").read_bytes())
    (project / "reviews" / "b.md.part").write_text("cut", encoding="utf-8")
    (project / "data" / "a.json").write_text("{}", encoding="utf-8")
    found = kinds(scan_alone(project))
    assert found["free.txt"] == "missing"
    assert found["reviews/a.md"] == "changed"
    assert found["reviews/b.md"] == "damaged"
    assert found["reviews/b.md.part"] == "half-finished"
    assert found["data/a.json"] == "damaged"


def test_an_accepted_file_without_its_seal_is_damaged(project: Path) -> None:
    """Where the run is on record, `scan` says what `verify` says; by itself the file is half-finished."""
    path = project / "outline.md"
    path.write_text(path.read_text(encoding="utf-8").partition("<!--")[0], encoding="utf-8")
    assert kinds(scan_alone(project))["outline.md"] == "half-finished"
    assert kinds(scan(project))["outline.md"] == "damaged"


@pytest.mark.parametrize(
    ("put", "word"),
    [
        (lambda path: path.symlink_to("free.txt"), "a symbolic link"),
        (lambda path: path.mkdir(), "a folder"),
        (os.mkfifo, "no regular file"),
    ],
)
def test_what_is_no_file_is_called_what_it_is(project: Path, put: Any, word: str) -> None:
    """The system's own words would mislead: nothing is followed, and nothing waited for."""
    path = project / "outline.md"
    path.unlink()
    put(path)
    details = {finding.path: finding.detail for finding in scan_alone(project).files}
    assert details["outline.md"] == f"it is {word}"


def test_what_was_made_from_an_edited_file_is_stale(project: Path) -> None:
    """The seal's inputs are compared with the files that are there now."""
    edited = project / "outline.md"
    edited.write_text("# other\n" + edited.read_text(encoding="utf-8"), encoding="utf-8")
    found = {finding.path: finding for finding in scan(project).files}
    assert found["reviews/a.md"].kind == "stale" and "outline" in found["reviews/a.md"].detail
    assert found["data/a.json"].kind == "sealed", "what it was made from is still the same review"


def test_other_parameters_and_versions_make_stale(project: Path) -> None:
    """A parameter that is not the one it was made with, or a raised version, is seen from the seal."""
    assert kinds(scan(project, params={"topic": "y"}))["outline.md"] == "stale"
    found = {finding.path: finding for finding in scan(project, reviews(version=2)).files}
    assert found["reviews/a.md"].kind == "stale" and "version" in found["reviews/a.md"].detail


def test_an_order_of_items_that_is_only_inferred_makes_nothing_stale(tmp_path: Path) -> None:
    """checkpoint.md lists items batch by batch, which need not be the order in which they were gathered."""
    pipe = Pipeline("gathered")

    @pipe.items("ch")
    def chapters() -> list[dict[str, Any]]:
        return [{"id": "a"}, {"id": "b", "after": ["a"]}, {"id": "c"}]

    @pipe.step(each="ch", writes="{ch}.md")
    def draft(ch: str) -> str:
        return f"{ch}\n"

    @pipe.step(writes="book.md")
    def book(draft: dict[str, str]) -> str:
        return "".join(draft.values())

    assert pipe.run(dir=tmp_path).status == "completed"
    os.rename(tmp_path / ".holdfast", tmp_path / "gone")
    assert set(kinds(scan(tmp_path, pipe)).values()) == {"sealed"}


def test_an_item_within_another_proves_that_one_too(tmp_path: Path) -> None:
    """With all but the files lost, a half-finished file of the outer item is its task's, as `recover` says."""
    pipe = Pipeline("nested")

    @pipe.items("sub")
    def subs() -> list[str]:
        return ["s"]

    @pipe.step(each="sub", writes="search/{sub}.md")
    def search(sub: str) -> str:
        return f"{sub}\n"

    @pipe.items("url", each="sub")
    def urls(search: str) -> list[str]:
        return ["u"]

    @pipe.step(each="url", writes="scrape/{sub}/{url}.md")
    def scrape(url: str) -> str:
        return f"{url}\n"

    assert pipe.run(dir=tmp_path).status == "completed"
    for name in (".holdfast", "checkpoint.md", "RESUME.md"):
        os.rename(tmp_path / name, tmp_path / f"{name}.gone")
    (tmp_path / "search" / "s.md").write_text("half", encoding="utf-8")
    found = kinds(scan(tmp_path, pipe))
    assert found == {"search/s.md": "half-finished", "scrape/s/u.md": "sealed"}


def test_an_unknown_input_makes_nothing_stale(project: Path) -> None:
    """Without a record the fields of items are unknown: unknown is not different."""
    os.rename(project / ".holdfast", project / "gone")
    assert kinds(scan(project))["reviews/a.md"] == "sealed"


def test_files_that_belong_to_no_task_are_listed(project: Path) -> None:
    """Beside the artifacts, also under a name that an item could have; backups are told apart, folders counted."""
    (project / "reviews" / "notes.txt").write_text("mine", encoding="utf-8")
    (project / "reviews" / "my own.md").write_text("mine", encoding="utf-8")
    (project / "reviews" / "zz.md").write_text("mine", encoding="utf-8")
    (project / "reviews" / "a.md.bak.20260101T000000Z").write_text("old", encoding="utf-8")
    (project / "reviews" / "copy.md").write_bytes((project / "outline.md").read_bytes())
    (project / "README.rst").write_text("mine", encoding="utf-8")
    os.rename(project / ".holdfast", project / "gone")
    scanned = scan(project)
    found = {stranger.path: stranger.kind for stranger in scanned.strangers}
    assert found == {
        "reviews/notes.txt": "stranger",
        "reviews/my own.md": "stranger",
        "reviews/zz.md": "stranger",
        "reviews/copy.md": "stranger",
        "reviews/a.md.bak.20260101T000000Z": "backup",
        "README.rst": "stranger",
        "gone/": "folder",
    }
    assert "reviews/zz.md" not in kinds(scanned)


def test_one_step_alone(project: Path) -> None:
    """--step shows that step's files and nothing else; a step that does not exist is an error."""
    assert set(kinds(scan(project, step="facts"))) == {"data/a.json", "data/b.json"}
    with pytest.raises(UsageError, match="Did you mean review"):
        scan(project, step="revew")


def test_a_folder_that_is_a_link_is_not_followed(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What lies behind a link is not the project's."""
    os.rename(project / "data", tmp_path_factory.mktemp("elsewhere") / "data")
    os.symlink(OUTSIDE.parent, project / "data")
    with pytest.raises(InTheWayError, match="symbolic link"):
        scan(project)


def test_items_of_which_nothing_is_left_are_told(tmp_path: Path) -> None:
    """An empty project has no items: that is said, not guessed."""
    scanned = scan(tmp_path)
    assert scanned.unknown_items == ["ch"]
    assert kinds(scanned) == {"outline.md": "missing", "free.txt": "missing"}
