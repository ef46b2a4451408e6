"""Memory: files with one section an item, written in order, and found again whatever happens to them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Harness, RunResult, in_thread
from holdfast import Context, Pipeline, seals
from holdfast.artifacts import memory
from holdfast.errors import FormatTooNewError
from holdfast.seals import seal_sum
from outside import OUTSIDE

FILE = "meta/glossary.md"
CHAPTERS: list[Any] = ["ch01", {"id": "ch02", "after": ["ch01"]}, {"id": "ch03", "after": ["ch02"]}]


class Book:
    """A small book whose glossary grows with its chapters, and a log of what ran."""

    def __init__(self, chapters: list[Any] | None = None) -> None:
        self.ran: list[str] = []
        self.chapters = CHAPTERS if chapters is None else chapters
        self.say: dict[str, str] = {}  # task -> what it gives instead
        self.fail: set[str] = set()
        self.version = 1
        self.got: dict[str, Any] = {}

    def made(self, task: str, text: str) -> str:
        self.ran.append(task)
        if task in self.fail:
            raise RuntimeError("no")
        return self.say.get(task, text)

    def pipe(self) -> Pipeline:
        pipe = Pipeline("book")
        pipe.items("chapter", self.chapters)

        @pipe.step
        def first_terms() -> str:
            return self.made("first_terms", "# Glossary\n")

        @pipe.step(each="chapter", writes="drafts/{chapter}.md")
        def draft(chapter: str, glossary: dict[str, str]) -> str:
            self.got[f"draft[{chapter}]"] = glossary
            return self.made(f"draft[{chapter}]", f"draft of {chapter}\n")

        @pipe.step(each="chapter", writes="final/{chapter}.md", on_failure="skip")
        def final(chapter: str, draft: str) -> str:
            return self.made(f"final[{chapter}]", draft.replace("draft", "final"))

        @pipe.step(
            each="chapter", appends=FILE, sources=["final", "draft"], head="first_terms", version=self.version
        )
        def glossary(ctx: Context, chapter: str, source: str) -> str:
            ctx.usage(cost_usd=0.25, input_tokens=10)
            return self.made(f"glossary[{chapter}]", f"terms of {chapter}, from the {source}")

        @pipe.step
        def index(glossary: dict[str, str]) -> list[str]:
            self.got["index"] = glossary
            return [*glossary]

        return pipe

    def run(self, root: Path, **options: Any) -> RunResult:
        self.ran.clear()
        result = in_thread(lambda: self.pipe().run(dir=root, **options))
        assert isinstance(result, RunResult), result
        return result


def text_of(root: Path) -> bytes:
    return (root / FILE).read_bytes()


def sections_of(root: Path) -> dict[str, str]:
    blocks = memory.take_apart(text_of(root)).blocks
    return {
        block.task: seals.author_body(block.body, bool(block.seal and block.seal.newline_added)).decode()
        for block in blocks
        if block.kind == memory.INTACT
    }


ALL = {
    "first_terms": "# Glossary\n",
    "glossary[ch01]": "terms of ch01, from the final of ch01\n",
    "glossary[ch02]": "terms of ch02, from the final of ch02\n",
    "glossary[ch03]": "terms of ch03, from the final of ch03\n",
}


# --- writing ---------------------------------------------------------------------------------------------


def test_the_file_has_the_head_and_one_section_an_item(tmp_path: Path) -> None:
    """Head first, then the sections in the order of the items; a second run finds nothing to do."""
    book = Book()
    assert book.run(tmp_path).status == "completed"
    assert sections_of(tmp_path) == ALL
    before = text_of(tmp_path)
    assert book.run(tmp_path).status == "completed"
    assert book.ran == []
    assert text_of(tmp_path) == before
    assert [event["sections"] for event in Harness(tmp_path).events("memory_written") if "sections" in event] == [
        ["glossary[ch01]"],
        ["glossary[ch02]"],
        ["glossary[ch03]"],
    ]


def test_the_order_is_that_of_the_items_not_of_time(tmp_path: Path) -> None:
    """Items of one batch are written together, in their order, whichever was finished first."""
    Book(["z", "a", "m"]).run(tmp_path)
    assert [*sections_of(tmp_path)] == ["first_terms", "glossary[z]", "glossary[a]", "glossary[m]"]
    assert len([e for e in Harness(tmp_path).events("memory_written") if "sections" in e]) == 1


def test_the_seal_carries_what_the_section_cost(tmp_path: Path) -> None:
    """Cost, tokens and run stand in the seal, so that the file alone can say them."""
    result = Book().run(tmp_path)
    block = memory.take_apart(text_of(tmp_path)).find(("glossary[ch02]",))
    assert block is not None
    assert block.seal is not None
    assert (block.seal.cost_usd, block.seal.tokens, block.seal.run) == (0.25, 10, result.run_id)
    assert block.seal.marker == "GLOSSARY_COMPLETE"


def test_an_earlier_chapter_that_waits_for_a_person_is_left_out_and_put_in_later(tmp_path: Path) -> None:
    """A batch is written without the section that failed; it takes its place when it is there."""
    book = Book(["a", "b", "c"])
    book.fail = {"glossary[b]"}
    assert book.run(tmp_path).status == "failed"
    assert [*sections_of(tmp_path)] == ["first_terms", "glossary[a]", "glossary[c]"]
    before = text_of(tmp_path)
    book.fail = set()
    assert book.run(tmp_path).status == "completed"
    assert [*sections_of(tmp_path)] == ["first_terms", "glossary[a]", "glossary[b]", "glossary[c]"]
    for block in memory.take_apart(before).blocks:
        assert before[block.start : block.end] in text_of(tmp_path)


def test_text_that_is_not_text_is_refused(tmp_path: Path) -> None:
    """A section is text; anything else fails the step with a clear word."""
    book = Book(["a"])
    book.say = {"glossary[a]": {"no": "text"}}  # type: ignore[dict-item]
    assert book.run(tmp_path).status == "failed"
    (exit_,) = Harness(tmp_path).events("node_exit", task="glossary[a]")
    assert exit_["error"] == "returned dict, but appends needs text"


def test_a_section_may_hold_anything(tmp_path: Path) -> None:
    """Text that quotes whole sections, and the empty text, are given back exactly."""
    (tmp_path / "other").mkdir()
    Book(["x"]).run(tmp_path / "other")
    book = Book(["a", "b", "c"])
    book.say = {"glossary[a]": text_of(tmp_path / "other").decode(), "glossary[b]": "", "glossary[c]": "\n\n"}
    book.run(tmp_path)
    assert book.got["index"] == {name: book.say[f"glossary[{name}]"] for name in "abc"}
    assert sections_of(tmp_path)["glossary[a]"] == book.say["glossary[a]"]


# --- what it is made from --------------------------------------------------------------------------------


def test_the_source_is_the_first_that_is_there(tmp_path: Path) -> None:
    """Where the final text was skipped, the draft is the source, and the record says which it was."""
    book = Book(["a", "b"])
    book.fail = {"final[a]"}
    book.run(tmp_path)
    assert sections_of(tmp_path)["glossary[a]"] == "terms of a, from the draft of a\n"
    (a,), (b,) = (
        Harness(tmp_path).events("node_exit", task="glossary[a]"),
        Harness(tmp_path).events("node_exit", task="glossary[b]"),
    )
    assert [key for key in a["inputs"] if key.startswith("source")] == ["source draft"]
    assert [key for key in b["inputs"] if key.startswith("source")] == ["source final"]


def test_a_section_once_accepted_stands(tmp_path: Path) -> None:
    """Another source, other fields of the item and another head do not make it stale; a raised version does."""
    book = Book(["a", "b"])
    book.run(tmp_path)
    book.chapters = [{"id": "a", "title": "New"}, "b"]
    book.say = {"draft[a]": "another draft\n", "first_terms": "# Terms\n"}
    book.run(tmp_path)
    assert book.ran == ["draft[a]", "final[a]"]
    assert sections_of(tmp_path)["glossary[a]"] == "terms of a, from the final of a\n"
    book.version = 2
    book.run(tmp_path)
    assert sorted(book.ran) == ["glossary[a]", "glossary[b]"]
    assert {
        e["reason"] for e in Harness(tmp_path).events("task_invalidated") if e["step_id"].startswith("glossary")
    } == {"its version was raised from 1 to 2"}
    assert sections_of(tmp_path)["glossary[a]"] == "terms of a, from the another final\n"
    assert [*sections_of(tmp_path)] == ["first_terms", "glossary[a]", "glossary[b]"]


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_version_that_is_taken_back_costs_no_section(tmp_path: Path, is_lost: bool) -> None:
    """Nobody ran the newer one: the sections count again, and are put back if the file was deleted meanwhile."""
    book = Book(["a", "b"])
    assert book.run(tmp_path).status == "completed"
    before = text_of(tmp_path)
    book.version = 2
    assert book.run(tmp_path, budget_usd=0.0).status == "paused"
    if is_lost:
        (tmp_path / FILE).unlink()
    book.version = 1
    assert book.run(tmp_path, budget_usd=9.0).status == "completed"
    assert (book.ran, text_of(tmp_path)) == ([], before)


# --- what others take from it ----------------------------------------------------------------------------


def test_inside_the_fan_out_one_receives_the_sections_before_ones_own(tmp_path: Path) -> None:
    """In the order of the items, of all it comes after, directly or not; outside, all of them."""
    book = Book()
    book.run(tmp_path)
    one, two = ALL["glossary[ch01]"], ALL["glossary[ch02]"]
    assert book.got["draft[ch01]"] == {}
    assert book.got["draft[ch02]"] == {"ch01": one}
    assert book.got["draft[ch03]"] == {"ch01": one, "ch02": two}
    assert [*book.got["index"]] == ["ch01", "ch02", "ch03"]


def test_with_batches_one_receives_the_batches_below(tmp_path: Path) -> None:
    """Where batches are given, they are the order."""
    book = Book(
        [{"id": "a", "batch": 2}, {"id": "b", "batch": 1}, {"id": "c", "batch": 2}, {"id": "d", "batch": 3}]
    )
    book.run(tmp_path)
    assert [*book.got["draft[b]"]] == []
    assert [*book.got["draft[a]"]] == [*book.got["draft[c]"]] == ["b"]
    assert [*book.got["draft[d]"]] == ["a", "b", "c"]


def test_later_sections_make_nothing_stale(tmp_path: Path) -> None:
    """A chapter depends on the sections before it, and on no others."""
    book = Book([*CHAPTERS])
    book.run(tmp_path)
    book.chapters = [*CHAPTERS, {"id": "ch04", "after": ["ch03"]}]
    book.run(tmp_path)
    assert book.ran == ["draft[ch04]", "final[ch04]", "glossary[ch04]"]
    book.run(tmp_path, resume=None)
    assert book.ran == []


def test_a_section_made_again_reaches_those_after_it(tmp_path: Path) -> None:
    """What consumed the old section runs again if the new one differs; the file has the new one in its place."""
    book = Book()
    result = book.run(tmp_path)
    book.say = {"glossary[ch02]": "better terms"}
    redo(book, tmp_path, result.run_id, "glossary[ch02]")
    assert book.ran == ["glossary[ch02]", "draft[ch03]"]  # which gave the same text, so there it ends
    assert sections_of(tmp_path) == {**ALL, "glossary[ch02]": "better terms"}


def redo(book: Book, root: Path, run_id: str, task: str, **settings: Any) -> RunResult:
    book.ran.clear()
    again = (task,) if task else ()
    result = in_thread(lambda: Harness(root).run(book.pipe(), resume=run_id, redo=again, **settings))
    assert isinstance(result, RunResult), result
    return result


# --- lost and damaged ------------------------------------------------------------------------------------


def delete(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.read_bytes().index(b"terms of ch02") + 5])


def zero(path: Path) -> None:
    data = path.read_bytes()
    at = data.index(b"terms of ch02")
    path.write_bytes(data[:at] + b"\0" * 5 + data[at + 5 :])


def garbage(path: Path) -> None:
    path.write_bytes(b"\xff\xfe" * 1000)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to(OUTSIDE)


def another_tasks(path: Path) -> None:
    path.write_bytes((path.parents[1] / "final/ch02.md").read_bytes())


DAMAGES: list[Callable[[Path], None]] = [delete, empty, cut, zero, garbage, folder, link, another_tasks]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_healed_for_nothing(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """Whatever became of the file, the next run puts it back from objects/, and tells it; nothing runs."""
    book = Book()
    book.run(tmp_path)
    before = text_of(tmp_path)
    damage(tmp_path / FILE)
    result = book.run(tmp_path)
    assert result.status == "completed"
    assert book.ran == []
    assert sections_of(tmp_path) == ALL
    if damage not in (garbage,):
        assert text_of(tmp_path) == before
    assert any(note.text.startswith(FILE) for note in result.picture.state.surprises)
    assert not OUTSIDE.read_bytes().startswith(b"# Glossary")


def test_what_was_damaged_is_kept_and_the_rest_stays_byte_for_byte(tmp_path: Path) -> None:
    """The damaged file is in quarantine; whole sections and what a person wrote are where they were."""
    book = Book()
    book.run(tmp_path)
    path = tmp_path / FILE
    data = text_of(tmp_path).replace(
        b"<!-- holdfast section=glossary[ch02]", b"MY NOTE\n<!-- holdfast section=glossary[ch02]"
    )
    path.write_bytes(data)
    zero(path)
    damaged = text_of(tmp_path)
    book.run(tmp_path)
    assert text_of(tmp_path) == data
    assert any(kept.read_bytes() == damaged for kept in tmp_path.rglob("quarantine/*"))


def test_a_section_that_nobody_has_any_more_is_made_again(tmp_path: Path) -> None:
    """Objects and section lost: that one runs again; the whole ones are adopted into nothing but trust."""
    book = Book()
    book.run(tmp_path)
    shutil.rmtree(tmp_path / ".holdfast" / "objects")
    cut(tmp_path / FILE)
    assert book.run(tmp_path).status == "completed"
    assert {task for task in book.ran if task.startswith("glossary")} == {"glossary[ch02]", "glossary[ch03]"}
    assert sections_of(tmp_path) == ALL


def test_copies_that_were_lost_are_made_again_from_the_file(tmp_path: Path) -> None:
    """Objects lost, the file whole: it is the copy's source; then the file may be lost too."""
    book = Book()
    book.run(tmp_path)
    before = text_of(tmp_path)
    shutil.rmtree(tmp_path / ".holdfast" / "objects")
    assert book.run(tmp_path).status == "completed"
    (tmp_path / FILE).unlink()
    assert book.run(tmp_path).status == "completed"
    assert book.ran == []
    assert text_of(tmp_path) == before


def test_an_edited_section_is_asked_about(tmp_path: Path) -> None:
    """By default an edit waits for a person; nothing is overwritten."""
    book = Book()
    run_id = book.run(tmp_path).run_id
    edit(tmp_path)
    assert redo(book, tmp_path, run_id, "").status == "paused"
    assert b"MY terms of ch02" in text_of(tmp_path)
    assert book.ran == []


def test_an_edited_section_can_be_kept(tmp_path: Path) -> None:
    """Kept, it is sealed anew in its place, and what depends on it runs again."""
    book = Book()
    run_id = book.run(tmp_path).run_id
    edit(tmp_path)
    assert redo(book, tmp_path, run_id, "", on_changed="keep").status == "completed"
    assert sections_of(tmp_path)["glossary[ch02]"] == "MY " + ALL["glossary[ch02]"]
    assert [*sections_of(tmp_path)] == [*ALL]
    assert book.ran == ["draft[ch03]"]
    assert book.run(tmp_path).status == "completed"
    assert book.ran == []


def test_several_edited_sections_can_be_restored(tmp_path: Path) -> None:
    """One writing of the file puts all of them back: none is called restored and left as it is."""
    chapters = ["ch01", "ch02", "ch03"]
    book = Book(chapters)
    run_id = book.run(tmp_path).run_id
    file = tmp_path / FILE
    before = file.read_bytes()
    file.write_bytes(before.replace(b"terms of", b"my terms of"))
    asked = book.run(tmp_path, resume=run_id)
    assert (asked.status, asked.needs_review) == (
        "paused",
        [f"glossary[{one}]" for one in ("ch01", "ch02", "ch03")],
    )
    for task in asked.needs_review:
        Harness(tmp_path).decide(task, "restore", run_id=run_id)
    assert (book.run(tmp_path, resume=run_id).status, book.ran) == ("completed", [])
    assert file.read_bytes() == before
    assert Harness(tmp_path).verify(run_id).ok
    assert any(b"my terms of ch03" in kept.read_bytes() for kept in file.parent.glob("glossary.md.bak.*"))


def test_an_edited_section_can_be_restored(tmp_path: Path) -> None:
    """Restored, the file is as it was, and the edited one is beside it."""
    book = Book()
    run_id = book.run(tmp_path).run_id
    before = text_of(tmp_path)
    edit(tmp_path)
    edited = text_of(tmp_path)
    assert redo(book, tmp_path, run_id, "", on_changed="restore").status == "completed"
    assert text_of(tmp_path) == before
    assert [kept.read_bytes() for kept in (tmp_path / "meta").glob("glossary.md.bak.*")] == [edited]
    assert book.ran == []


def edit(root: Path) -> None:
    (root / FILE).write_bytes(text_of(root).replace(b"terms of ch02", b"MY terms of ch02"))


def test_with_everything_lost_whole_sections_are_adopted(tmp_path: Path) -> None:
    """The file alone says which sections are whole, what they cost, and of which run they are."""
    book = Book()
    first = book.run(tmp_path)
    before = text_of(tmp_path)
    shutil.rmtree(tmp_path / ".holdfast")
    second = book.run(tmp_path)
    assert second.status == "completed"
    assert book.ran == []
    assert (second.run_id, second.cost_usd) == (first.run_id, first.cost_usd)
    assert text_of(tmp_path) == before


@pytest.mark.parametrize("lost", [[], ["final"], ["final", "drafts"]])
def test_with_everything_lost_a_section_is_made_from_the_best_source_left(tmp_path: Path, lost: list[str]) -> None:
    """From the final chapter, else the sealed draft, else the chapter is redone."""
    book = Book()
    book.run(tmp_path)
    shutil.rmtree(tmp_path / ".holdfast")
    for folder in lost:
        (tmp_path / folder / "ch02.md").unlink()
    zero(tmp_path / FILE)
    assert book.run(tmp_path).status == "completed"
    assert sections_of(tmp_path) == ALL
    wanted = {"final": "final[ch02]", "drafts": "draft[ch02]"}
    assert {*book.ran} == {"glossary[ch02]", *(wanted[f] for f in lost)}


def test_with_everything_lost_a_damaged_head_is_made_again(tmp_path: Path) -> None:
    """Nobody else has its text: its step runs, and nothing else does."""
    book = Book()
    book.run(tmp_path)
    before = text_of(tmp_path)
    shutil.rmtree(tmp_path / ".holdfast")
    (tmp_path / FILE).write_bytes(before.replace(b"# Glossary", b"# Glo\0sary"))
    assert book.run(tmp_path).status == "completed"
    assert book.ran == ["first_terms"]
    assert sections_of(tmp_path) == ALL


def test_a_long_head_that_objects_has_lost_comes_back_from_the_file(tmp_path: Path) -> None:
    """Its text opens the memory file, so nobody pays for it again."""
    book = Book()
    book.say["first_terms"] = "# Glossary\n" + "A long introduction.\n" * 200
    book.run(tmp_path)
    before = text_of(tmp_path)
    shutil.rmtree(tmp_path / ".holdfast" / "objects")
    result = book.run(tmp_path)
    assert (result.status, book.ran) == ("completed", [])
    assert (result.outputs["first_terms"], text_of(tmp_path)) == (book.say["first_terms"], before)
    told = [finding for event in Harness(tmp_path).events("state_mended") for finding in event["findings"]]
    assert [words for words in told if "first_terms" in words and FILE in words]


@pytest.mark.parametrize("lost", [False, True])
def test_a_section_that_a_newer_holdfast_sealed_is_refused_and_left_alone(tmp_path: Path, lost: bool) -> None:
    """It is no damage: whoever sealed it has paid for it. Quoted in a whole section, such a line is text."""
    newer = b"<!-- GLOSSARY_COMPLETE holdfast=2 task=glossary[ch02] more=1"
    newer += b" sum=" + seal_sum(newer) + b" -->"
    book = Book()
    book.say = {"glossary[ch01]": f"The seal is:\n{newer.decode()}\nand no more.\n"}
    assert book.run(tmp_path).status == "completed"
    path = tmp_path / FILE
    lines = path.read_bytes().splitlines(keepends=True)
    (at,) = [n for n, line in enumerate(lines) if b"holdfast=1 task=glossary[ch02]" in line]
    lines[at] = newer + b"\n"
    path.write_bytes(b"".join(lines))
    before = path.read_bytes()
    if lost:
        shutil.rmtree(tmp_path / ".holdfast")
    book.ran.clear()
    with pytest.raises(FormatTooNewError, match="has a seal of format 2"):
        book.pipe().run(dir=tmp_path)
    assert not [task for task in book.ran if task.startswith("glossary")]
    assert path.read_bytes() == before
