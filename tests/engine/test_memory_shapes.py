"""Memory steps in all shapes: made items, nested fan-outs, moved files, checks, rewinds, other runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from harness import Harness, RunResult, in_thread
from holdfast import Context, Pipeline, Rewind, seals
from holdfast.artifacts import memory

FILE = "meta/notes.md"


def run(pipe: Pipeline, root: Path, **options: Any) -> RunResult:
    result = in_thread(lambda: pipe.run(dir=root, **options))
    assert isinstance(result, RunResult), result
    return result


def texts(path: Path) -> dict[str, str]:
    """The whole sections of a memory file, as their authors wrote them, in the order of the file."""
    return {
        block.task: seals.author_body(block.body, bool(block.seal and block.seal.newline_added)).decode()
        for block in memory.take_apart(path.read_bytes()).blocks
        if block.kind == memory.INTACT
    }


def simple(ran: list[str] | None = None, *, name: str = "notes", **options: Any) -> Pipeline:
    """Three items, the text of each, and a memory step over it."""
    log = [] if ran is None else ran
    pipe = Pipeline("p", params={"n": (int, 1)}, overwrite=options.pop("overwrite", False))
    pipe.items("part", ["a", "b", {"id": "c", "after": ["a"]}])

    @pipe.step(each="part", writes="{part}-{n}.md" if options.pop("own_files", False) else "{part}.md")
    def text(part: str, n: int) -> str:
        log.append(f"text[{part}]")
        return f"text of {part}, {n}"

    @pipe.step(**{"name": name, "each": "part", "appends": FILE, "sources": "text", **options})
    def keep(source: str) -> str:
        log.append("keep")
        return f"about the {source}"

    return pipe


# --- items -----------------------------------------------------------------------------------------------


def test_items_may_be_made_by_a_function(tmp_path: Path) -> None:
    """The file is opened when the head is there, before anyone knows the items."""
    seen: list[str] = []
    pipe = Pipeline("p")

    @pipe.step
    def opening() -> str:
        return "# Notes"

    @pipe.step
    def plan(opening: str) -> list[str]:
        seen.append((tmp_path / FILE).read_text() if (tmp_path / FILE).exists() else "")
        return ["x", "y"]

    @pipe.items("part")
    def parts(plan: list[str]) -> list[str]:
        return plan

    @pipe.step(each="part", appends=FILE, head="opening")
    def notes(part: str) -> str:
        return f"about {part}"

    assert run(pipe, tmp_path).status == "completed"
    assert seen[0].startswith("<!-- holdfast section=opening bytes=8 -->\n# Notes\n")
    assert texts(tmp_path / FILE) == {"opening": "# Notes", "notes[x]": "about x", "notes[y]": "about y"}


def nested(template: str) -> Pipeline:
    pipe = Pipeline("p")
    pipe.items("part", ["b", "a"])
    pipe.items("page", ["2", "1"], each="part")

    @pipe.step(each="part")
    def opening(part: str) -> str:
        return f"# {part}\n"

    head: dict[str, Any] = {"head": "opening"} if "{part}" in template else {}

    @pipe.step(each="page", appends=template, **head)
    def notes(part: str, page: str) -> str:
        return f"{part}/{page}\n"

    return pipe


def test_each_outer_item_may_have_a_file_of_its_own(tmp_path: Path) -> None:
    """With the outer item in the path there is one file, and one head, for each."""
    run(nested("meta/{part}.md"), tmp_path)
    assert texts(tmp_path / "meta/a.md") == {"opening[a]": "# a\n", "notes[a/2]": "a/2\n", "notes[a/1]": "a/1\n"}
    assert [*texts(tmp_path / "meta/b.md")] == ["opening[b]", "notes[b/2]", "notes[b/1]"]


def test_all_items_may_share_one_file(tmp_path: Path) -> None:
    """Without it, all are in one file, in the order of the outer items, then of the inner ones."""
    run(nested(FILE), tmp_path)
    assert [*texts(tmp_path / FILE)] == ["notes[b/2]", "notes[b/1]", "notes[a/2]", "notes[a/1]"]


def test_a_memory_step_may_take_its_own_past(tmp_path: Path) -> None:
    """Each section is made with those before it at hand."""
    pipe = Pipeline("p")
    pipe.items("part", ["a", {"id": "b", "after": ["a"]}, {"id": "c", "after": ["b"]}])

    @pipe.step(each="part", appends=FILE)
    def notes(part: str, notes: dict[str, str]) -> str:
        return part + "".join(notes.values())

    run(pipe, tmp_path)
    assert texts(tmp_path / FILE) == {"notes[a]": "a", "notes[b]": "ba", "notes[c]": "caba"}


# --- an edited pipeline ----------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["keep", "restore"])
@pytest.mark.parametrize("part", ["a", "b"])
def test_an_edited_section_goes_along_to_another_path(tmp_path: Path, choice: str, part: str) -> None:
    """Whichever section takes the file along, the edit of another is kept or undone where it then stands."""
    ran: list[str] = []
    run(simple(ran), tmp_path)
    ran.clear()
    path = tmp_path / FILE
    path.write_text(path.read_text().replace(f"about the text of {part}", f"my words on {part}"))
    (tmp_path / "holdfast.toml").write_text(f'[run]\non_changed = "{choice}"\n')
    assert run(simple(ran, appends="other/notes.md"), tmp_path).status == "completed"
    assert ran == [] and not path.exists()
    words = "my words on" if choice == "keep" else "about the text of"
    found = texts(tmp_path / "other" / "notes.md")
    assert list(found) == ["notes[a]", "notes[b]", "notes[c]"]
    assert found[f"notes[{part}]"].startswith(f"{words} {part}")
    assert run(simple(ran, appends="other/notes.md"), tmp_path).status == "completed"
    assert ran == []


def test_another_path_moves_the_file_with_all_that_is_in_it(tmp_path: Path) -> None:
    """Nothing is made again, and a person's note moves along."""
    run(simple(), tmp_path)
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes() + b"\nmy note\n")
    before = path.read_bytes()
    ran: list[str] = []
    assert run(simple(ran, appends="other/notes.md"), tmp_path).status == "completed"
    assert ran == []
    assert not path.exists()
    assert (tmp_path / "other/notes.md").read_bytes() == before


def test_another_path_moves_a_file_that_a_head_opens(tmp_path: Path) -> None:
    """The head does not begin it anew there: what a person wrote comes along, and nothing is left behind."""

    def headed(path: str) -> Pipeline:
        pipe = Pipeline("p")
        pipe.items("part", ["a", "b"])
        pipe.step(name="opening")(lambda: "# Notes")
        pipe.step(name="notes", each="part", appends=path, head="opening")(lambda part: f"about {part}")
        return pipe

    run(headed(FILE), tmp_path)
    (tmp_path / FILE).write_text(f"{(tmp_path / FILE).read_text()}A note by hand\n")
    before = (tmp_path / FILE).read_bytes()
    for path, left in (("other/notes.md", FILE), (FILE, "other/notes.md")):
        assert run(headed(path), tmp_path).status == "completed"
        assert (tmp_path / path).read_bytes() == before
        assert not (tmp_path / left).exists()
    assert not Harness(tmp_path).events("artifact_healed")


@pytest.mark.parametrize("is_headed", [True, False])
def test_another_path_where_somebody_s_file_stands(tmp_path: Path, is_headed: bool) -> None:
    """Their words stay in it, the sections come to stand there too, and nothing is lost of the old file."""

    def pipeline(path: str) -> Pipeline:
        pipe = Pipeline("p")
        pipe.items("part", ["a", "b"])
        pipe.step(name="opening")(lambda: "# Notes")
        head = "opening" if is_headed else None
        pipe.step(name="notes", each="part", appends=path, head=head)(lambda part: f"about {part}")
        return pipe

    run(pipeline(FILE), tmp_path)
    (tmp_path / FILE).write_text(f"{(tmp_path / FILE).read_text()}A note by hand\n")
    (tmp_path / "other.md").write_text("somebody's words\n")
    result = run(pipeline("other.md"), tmp_path)
    assert (result.status, Harness(tmp_path).verify(result.run_id).findings) == ("completed", [])
    assert "somebody's words\n" in (tmp_path / "other.md").read_text()
    assert [*texts(tmp_path / "other.md")][-2:] == ["notes[a]", "notes[b]"]
    assert [path for path in tmp_path.rglob("*.md*") if "A note by hand" in path.read_text(errors="replace")]


def test_another_path_and_the_file_is_lost(tmp_path: Path) -> None:
    """Then the sections are written there anew, for nothing."""
    run(simple(), tmp_path)
    before = texts(tmp_path / FILE)
    (tmp_path / FILE).unlink()
    ran: list[str] = []
    run(simple(ran, appends="other/notes.md"), tmp_path)
    assert ran == []
    assert texts(tmp_path / "other/notes.md") == before
    assert not (tmp_path / FILE).exists()


def test_a_renamed_step_keeps_its_sections(tmp_path: Path) -> None:
    """With `was` its old sections are its own, also when only the file is left."""
    run(simple(), tmp_path)
    before = (tmp_path / FILE).read_bytes()
    ran: list[str] = []
    run(simple(ran, name="remarks", was="notes"), tmp_path)
    shutil.rmtree(tmp_path / ".holdfast")
    run(simple(ran, name="remarks", was="notes"), tmp_path)
    assert ran == []
    assert (tmp_path / FILE).read_bytes() == before


def test_a_step_that_begins_or_ends_to_keep_a_memory_runs_again(tmp_path: Path) -> None:
    """A file is no section, and a section no file; neither is taken for the other, or taken away."""
    run(simple(), tmp_path)
    before = (tmp_path / FILE).read_bytes()
    files = {"appends": None, "sources": (), "writes": "{part}-notes.md"}

    def pipe(**options: Any) -> Pipeline:
        made = Pipeline("p", params={"n": (int, 1)})
        made.items("part", ["a", "b", {"id": "c", "after": ["a"]}])
        made.step(name="text", each="part", writes="{part}.md")(lambda part, n: f"text of {part}, {n}")
        made.step(name="notes", each="part", **options)(lambda text: f"about the {text}")
        return made

    assert run(pipe(**files), tmp_path).status == "completed"
    assert (tmp_path / FILE).read_bytes() == before
    assert (tmp_path / "a-notes.md").read_text().startswith("about the text of a, 1\n")
    assert run(simple(), tmp_path).status == "completed"
    assert [*texts(tmp_path / FILE)] == ["notes[a]", "notes[b]", "notes[c]"]
    assert (tmp_path / "a-notes.md").exists()


def test_a_head_that_was_made_again_takes_its_place(tmp_path: Path) -> None:
    """Only the head changes; one that a person edited is left alone, and another text is put in its stead."""

    def pipe(version: int) -> Pipeline:
        made = Pipeline("p")
        made.items("part", ["a"])
        made.step(name="opening", version=version)(lambda: f"# Version {version}")
        made.step(name="notes", each="part", appends=FILE, head="opening")(lambda part: part)
        return made

    run(pipe(1), tmp_path)
    path = tmp_path / FILE
    run(pipe(2), tmp_path)
    assert texts(path) == {"opening": "# Version 2", "notes[a]": "a"}
    path.write_bytes(path.read_bytes().replace(b"# Version 2", b"# My own"))
    edited = path.read_bytes()
    assert run(pipe(2), tmp_path).status == "completed"
    assert path.read_bytes() == edited


# --- people ----------------------------------------------------------------------------------------------


def test_a_file_that_was_there_before_is_continued(tmp_path: Path) -> None:
    """A person's own file is not set aside: sections are added to it."""
    (tmp_path / "meta").mkdir()
    (tmp_path / FILE).write_text("My notes so far.\n")
    run(simple(), tmp_path)
    assert (tmp_path / FILE).read_text().startswith("My notes so far.\n\n<!-- holdfast section=notes[a]")
    assert [p.name for p in (tmp_path / "meta").iterdir()] == ["notes.md"]


def test_notes_between_sections_stay_where_they_are(tmp_path: Path) -> None:
    """While the run goes on, and when it is continued: batch two is added below a note on batch one."""
    pipe = Pipeline("p")
    pipe.items("part", ["a", {"id": "b", "after": ["a"]}])
    path = tmp_path / FILE

    @pipe.step(each="part", appends=FILE)
    def notes(part: str, notes: dict[str, str]) -> str:
        if part == "b":
            path.write_bytes(path.read_bytes() + b"by hand")
        return f"about {part}"

    run(pipe, tmp_path)
    data = path.read_bytes()
    assert (
        data.index(b"about a") < data.index(b"by hand\n\n<!-- holdfast section=notes[b]") < data.index(b"about b")
    )


# --- checks and rewinds ----------------------------------------------------------------------------------


def test_a_check_sees_the_source_too_and_what_it_refuses_is_kept(tmp_path: Path) -> None:
    """A refused section is in quarantine, and not in the file."""
    asked: list[tuple[str, str]] = []

    def fits(output: str, source: str) -> bool:
        asked.append((output, source))
        return "text of b" not in source

    result = run(simple(check=fits), tmp_path)
    assert result.status == "failed"
    assert ("about the text of a, 1", "text of a, 1") in asked
    assert [*texts(tmp_path / FILE)] == ["notes[a]", "notes[c]"]
    assert any("about the text of b" in kept.read_text() for kept in tmp_path.rglob("quarantine/refused/*"))


def test_a_section_that_is_sent_back_is_replaced(tmp_path: Path) -> None:
    """A later item may object to an earlier section: it is made again with the feedback, in its place."""
    pipe = Pipeline("p")
    pipe.items("part", ["a", {"id": "b", "after": ["a"]}])

    @pipe.step(each="part", appends=FILE)
    def notes(ctx: Context, part: str) -> str:
        return f"{part}, {ctx.feedback[0]} than {ctx.previous}" if ctx.feedback else f"first {part}"

    @pipe.step(each="part")
    def review(part: str, notes: dict[str, str]) -> str:
        if notes.get("a", "").startswith("first"):
            raise Rewind("notes[a]", feedback="better")
        return "fine"

    assert run(pipe, tmp_path).status == "completed"
    assert texts(tmp_path / FILE) == {"notes[a]": "a, better than first a", "notes[b]": "first b"}


def test_a_section_may_send_its_source_back(tmp_path: Path) -> None:
    """Its sources are upstream of it like inputs."""
    pipe = Pipeline("p")
    pipe.items("part", ["a"])

    @pipe.step(each="part", writes="{part}.md")
    def text(ctx: Context, part: str) -> str:
        return f"round {ctx.round}"

    @pipe.step(each="part", appends=FILE, sources="text")
    def notes(source: str) -> str:
        if source == "round 0":
            raise Rewind("text", feedback="no")
        return source

    assert run(pipe, tmp_path).status == "completed"
    assert texts(tmp_path / FILE) == {"notes[a]": "round 1"}


def test_without_any_source_the_section_is_left_out(tmp_path: Path) -> None:
    """All sources skipped: the section is skipped too, and the file goes on without it."""
    pipe = Pipeline("p")
    pipe.items("part", ["a", "b"])

    @pipe.step(each="part", on_failure="skip")
    def text(part: str) -> str:
        if part == "a":
            raise RuntimeError("no")
        return part

    @pipe.step(each="part", appends=FILE, sources="text")
    def notes(source: str) -> str:
        return source

    result = run(pipe, tmp_path)
    assert result.picture.record("notes[a]").status == "skipped"
    assert texts(tmp_path / FILE) == {"notes[b]": "b"}


# --- other runs, and no record ---------------------------------------------------------------------------


def test_the_memory_of_another_run_is_not_taken_over(tmp_path: Path) -> None:
    """A run with other parameters asks before it touches sections that belong to a living run."""
    run(simple(own_files=True), tmp_path)
    before = (tmp_path / FILE).read_bytes()
    result = run(simple(own_files=True), tmp_path, params={"n": 2})
    assert result.status == "paused"
    assert (tmp_path / FILE).read_bytes() == before


def test_a_memory_file_that_is_all_that_is_left_brings_its_run_back(tmp_path: Path) -> None:
    """A section does not say which parameters it was made with: it is no proof that they were others."""
    first = run(simple(), tmp_path)
    before = texts(tmp_path / FILE)
    for lost in (".holdfast", "a.md", "b.md", "c.md"):
        shutil.rmtree(tmp_path / lost) if lost == ".holdfast" else (tmp_path / lost).unlink()
    ran: list[str] = []
    result = run(simple(ran), tmp_path)
    assert (result.status, result.run_id) == ("completed", first.run_id)
    assert sorted(ran) == ["text[a]", "text[b]", "text[c]"]
    assert texts(tmp_path / FILE) == before


def test_with_overwrite_sections_of_another_run_are_replaced_not_adopted(tmp_path: Path) -> None:
    """They were made from something else; objects/ keeps them."""
    run(simple(own_files=True, overwrite=True), tmp_path)
    run(simple(own_files=True, overwrite=True), tmp_path, params={"n": 2})
    assert texts(tmp_path / FILE)["notes[a]"] == "about the text of a, 2"
    packs = (tmp_path / ".holdfast" / "objects").glob("*/*.pack")
    assert any(b"about the text of a, 1\n" in pack.read_bytes() for pack in packs)


def test_a_new_run_by_force_makes_all_sections_anew(tmp_path: Path) -> None:
    """Nothing is adopted; what was there is kept."""
    run(simple(), tmp_path)
    ran: list[str] = []
    run(simple(ran), tmp_path, force=True)
    assert ran.count("keep") == 3
    assert len(texts(tmp_path / FILE)) == 3


@pytest.mark.parametrize("lost", ["notes[b]", ""])
def test_with_everything_lost_made_items_are_found_in_the_memory_file(tmp_path: Path, lost: str) -> None:
    """Sections prove items that a function made, and their run; values behind them come back only if needed."""
    ran: list[str] = []
    pipe = Pipeline("p")

    @pipe.items("part")
    def parts() -> list[str]:
        ran.append("parts")
        return ["a", "b"]

    @pipe.step(each="part")
    def text(part: str) -> str:
        ran.append(f"text[{part}]")
        return f"text of {part}"

    @pipe.step(each="part", appends=FILE, sources="text")
    def notes(ctx: Context, source: str) -> str:
        ran.append(ctx.task_id)
        ctx.usage(cost_usd=0.5)
        return f"about {source}"

    first = run(pipe, tmp_path)
    before = texts(tmp_path / FILE)
    shutil.rmtree(tmp_path / ".holdfast")
    for view in ("checkpoint.md", "RESUME.md"):
        (tmp_path / view).unlink()
    if lost:
        path = tmp_path / FILE
        path.write_bytes(path.read_bytes().replace(b"about text of b", b"about\0text of b"))
    ran.clear()
    second = run(pipe, tmp_path)
    assert second.status == "completed"
    assert texts(tmp_path / FILE) == before
    assert second.run_id == first.run_id
    assert sorted(ran) == sorted(["parts", *(["text[b]", "notes[b]"] if lost else [])])


def test_the_events_name_what_was_taken(tmp_path: Path) -> None:
    """A consumer inside the fan-out has one parent that stands for all earlier sections."""
    pipe = Pipeline("p")
    pipe.items("part", ["a", {"id": "b", "after": ["a"]}])
    pipe.step(name="notes", each="part", appends=FILE)(lambda part: part)
    pipe.step(name="text", each="part")(lambda part, notes: part)
    run(pipe, tmp_path)
    (entered,) = Harness(tmp_path).events("node_enter", task="text[b]")
    assert entered["parents"] == ["notes[before b]"]
    (left,) = Harness(tmp_path).events("node_exit", task="notes[a]")
    assert left["files"][0]["kind"] == "unwritten"
