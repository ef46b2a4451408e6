"""What a continued run says it found: how far it rewinds, in numbers that are true."""

from __future__ import annotations

import shutil
from pathlib import Path

from harness import Harness, RunResult
from holdfast import Pipeline


def run(root: Path, *, fails: bool = False) -> RunResult:
    """Two chapters, the second after the first, with a glossary that the second one's draft takes, and a book."""
    pipe = Pipeline("book")
    pipe.items("chapter", ["one", {"id": "two", "after": ["one"]}])

    @pipe.step(each="chapter", writes="drafts/{chapter}.md")
    def draft(chapter: str, glossary: dict[str, str]) -> str:
        return f"{chapter} {sorted(glossary)}\n"

    @pipe.step(each="chapter", writes="reviews/{chapter}.md")
    def review(draft: str) -> str:
        return f"good: {draft}"

    @pipe.step(each="chapter", appends="glossary.md", sources=["draft"])
    def glossary(source: str) -> str:
        return f"a term of {source}"

    @pipe.step(writes="book.md")
    def book(review: dict[str, str]) -> str:
        if fails:
            raise RuntimeError("no paper")
        return "".join(review.values())

    return Harness(root).run(pipe)


def test_only_finished_tasks_that_depend_on_it_are_told_as_behind(tmp_path: Path) -> None:
    """Not the book, which has never run, and not what stands behind a section: that stands."""
    assert run(tmp_path, fails=True).status == "failed"
    (tmp_path / "drafts" / "one.md").unlink()
    shutil.rmtree(tmp_path / ".holdfast" / "objects")
    result = run(tmp_path)
    assert result.status == "completed"
    (told,) = Harness(tmp_path).events("recovered")
    assert (told["again"], told["behind"]) == (["draft[one]"], 1)  # review[one]


def test_what_only_comes_after_a_question_waits_for_the_answer_too(tmp_path: Path) -> None:
    """All that was finished is looked at: two are asked about, and two of the whole ones wait for the answer."""
    pipe = Pipeline("p")
    pipe.items("part", ["one", {"id": "two", "after": ["one"]}])
    pipe.step(lambda: "text", name="first", writes="first.md")
    pipe.step(lambda: "text", name="then", writes="then.md", after=["first"])
    pipe.step(lambda then: then, name="made", writes="made.md")
    pipe.step(lambda: "text", name="alone", writes="alone.md")
    pipe.step(lambda part: part, name="piece", each="part", writes="{part}.md")
    pipe.run(dir=tmp_path)
    for path in (tmp_path / "first.md", tmp_path / "one.md"):
        path.write_text(path.read_text().replace("text", "words").replace("one\n", "1\n", 1))
    assert pipe.run(dir=tmp_path).needs_review == ["first", "piece[one]"]
    (told,) = Harness(tmp_path).events("recovered")
    assert (told["counts"], told["waiting"]) == ({"ask": 2, "trust": 4}, 2)  # then, made; piece[two] need not wait
