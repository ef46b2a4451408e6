"""Disaster 4: everything that Holdfast knew is lost; only the artifacts are left."""

from __future__ import annotations

from pathlib import Path

import pytest

from .projects import ALL, RUN_ID, Book

TOPIC = 'sea | grass\n"and" <more> `of` it'


@pytest.fixture(scope="session")
def about_sea_grass(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """A finished book with parameters of its own, of which one is hard to write down."""
    book = Book(tmp_path_factory.mktemp("sea-grass")).begin()
    said = book.first_run("-p", f"topic={TOPIC}", "-p", "length=2")
    assert said.code == 0, said.text
    return book


@pytest.fixture
def halfway(book: Book) -> Book:
    """The first batch up to the merge of chapter 2, where the process died; then all state was lost."""
    book.wish({"merge[ch02]": "die"})
    assert book.first_run("--concurrency", "1").code < 0
    book.wish({})
    book.ran()
    book.lose(".holdfast")
    return book


def test_nothing_runs_again(finished: Book, original: Book) -> None:
    """rm -rf .holdfast; `resume` alone: RESUME.md knows the file, the run has its id back, nothing runs."""
    finished.lose(".holdfast")
    said = finished.resume()
    assert said.code == 0, said.text
    assert not finished.ran()
    assert finished.artifacts() == original.artifacts()
    status = finished.status()
    assert (status["run_id"], status["status"]) == (RUN_ID, "completed")
    assert RUN_ID in said.out and "lost" in said.out
    assert finished.verify() == []


def test_cost_comes_back_from_the_seals(finished: Book, original: Book) -> None:
    """What the artifacts cost is known again; what steps without files cost is not, and that is no zero sum."""
    spent = {t["id"]: t["metrics"]["cost_usd"] for t in original.status()["tasks"] if t["outputs"]}
    finished.lose(".holdfast")
    assert finished.run().code == 0
    after = finished.status()
    found = {t["id"]: t["metrics"]["cost_usd"] for t in after["tasks"] if t["outputs"]}
    assert found == spent
    assert after["total_cost_usd"] == pytest.approx(sum(spent.values()))


def test_parameters_come_from_the_letter(about_sea_grass: Book, tmp_path: Path) -> None:
    """RESUME.md has the parameters as they were, however hard to write down: nothing runs, nothing is asked."""
    book = about_sea_grass.copied_to(tmp_path / "here")
    book.lose(".holdfast")
    said = book.resume()
    assert said.code == 0, said.text
    assert not book.ran()
    assert book.status()["params"] == {"topic": TOPIC, "length": 2}
    assert book.artifacts() == about_sea_grass.artifacts()


def test_views_lost_too(about_sea_grass: Book, tmp_path: Path) -> None:
    """With checkpoint.md and RESUME.md gone as well, `run` with file and parameters finds everything again."""
    book = about_sea_grass.copied_to(tmp_path / "here")
    book.lose(".holdfast", "checkpoint.md", "RESUME.md")
    said = book.run("-p", f"topic={TOPIC}", "-p", "length=2")
    assert said.code == 0, said.text
    assert not book.ran()
    assert book.status()["run_id"] == RUN_ID
    assert book.artifacts() == about_sea_grass.artifacts()
    assert book.path("RESUME.md").exists() and book.path("checkpoint.md").exists()


def test_resume_with_nothing_to_go_by_says_what_to_do(finished: Book) -> None:
    """No state, no views: `resume` cannot know the file; one line, exit 2, and nothing is created."""
    finished.lose(".holdfast", "checkpoint.md", "RESUME.md")
    before = finished.artifacts()
    said = finished.resume()
    assert said.code == 2
    assert "holdfast run" in said.err
    assert len(said.err.strip().splitlines()) <= 2
    assert finished.artifacts() == before
    assert not finished.path(".holdfast").exists()


def test_other_parameters_are_refused(finished: Book, original: Book) -> None:
    """The lost run's files are not taken for those of another wish: exit 2, nothing runs, nothing is touched."""
    finished.lose(".holdfast", "checkpoint.md", "RESUME.md")
    said = finished.run("-p", "topic=whales")
    assert said.code == 2, said.text
    assert not finished.ran()
    assert finished.artifacts() == original.artifacts()


def test_an_unfinished_book_goes_on_from_there(halfway: Book, original: Book) -> None:
    """What has an intact sealed file does not run; the rest does; the result is the same book."""
    before = halfway.artifacts()
    said = halfway.resume()
    assert said.code == 0, said.text
    ran = halfway.ran()
    sealed = {"outline", "research[ch01]", "research[ch02]", "draft[ch01]", "draft[ch02]"}
    sealed |= {f"r{n}[ch0{c}]" for n in (1, 2, 3) for c in (1, 2)}
    assert not sealed & set(ran), ran
    assert ran["merge[ch02]"] == 1
    assert set(ran.values()) == {1}
    assert before.items() <= halfway.artifacts().items()
    assert halfway.artifacts() == original.artifacts()
    assert halfway.status()["run_id"] == RUN_ID


def test_values_are_made_again_where_they_are_needed(halfway: Book) -> None:
    """The merge of chapter 2 takes a score, which had no file: that score runs; others only as they are needed."""
    merged = {f"merge[ch{n:02}]" for n in (1, 2, 3) if halfway.path(f"merged/ch{n:02}.md").exists()}
    assert halfway.resume().code == 0
    ran = halfway.ran()
    assert ran["score[ch02]"] == 1
    for done in merged:
        assert ran[done.replace("merge", "score")] == 0, ran


def test_values_nobody_needs_are_not_made_again(finished: Book) -> None:
    """Every consumer of a lost value has its own sealed file: the value stays lost, and the book is complete."""
    finished.lose(".holdfast")
    assert finished.run().code == 0
    assert not finished.ran()
    assert finished.status()["totals"]["completed"] == finished.status()["totals"]["tasks"]
    assert finished.run().code == 0
    assert not finished.ran()


def test_a_value_made_again_otherwise_is_a_question(finished: Book, original: Book) -> None:
    """A lost draft needs the style, which comes out otherwise now: other drafts are not redone unasked."""
    finished.lose(".holdfast", "drafts/ch02.md")
    finished.wish({"style": {"text": "flowery words"}})
    said = finished.resume()
    assert said.code == 3, said.text
    ran = finished.ran()
    assert ran["style"] == 1 and ran["draft[ch02]"] == 1
    assert not {"draft[ch01]", "draft[ch03]"} & set(ran), ran
    for number in (1, 3):
        assert finished.artifacts()[f"drafts/ch0{number}.md"] == original.artifacts()[f"drafts/ch0{number}.md"]
    assert "holdfast decide" in said.out


def test_what_is_lost_is_said(finished: Book) -> None:
    """Attempts, notes and decisions are gone for good; whoever continues reads so in RESUME.md."""
    finished.lose(".holdfast")
    finished.run()
    letter = finished.path("RESUME.md").read_text()
    assert "lost" in letter and "attempts" in letter and "decisions" in letter


def test_lost_again_and_again(finished: Book, original: Book) -> None:
    """State lost a second time, after a recovery: the same again."""
    for _ in range(2):
        finished.lose(".holdfast")
        assert finished.resume().code == 0
    assert not finished.ran()
    assert finished.artifacts() == original.artifacts()


def test_killed_while_it_finds_its_way_back(finished: Book, original: Book) -> None:
    """A kill in the middle of the recovery costs nothing: the next resume goes on from there."""
    finished.lose(".holdfast")
    for point in (12, 25, 40):
        code = finished.resume(kill_at=point).code
        assert code in (-9, 0, 2), code  # 2: RESUME.md has been set aside and not yet written
    assert finished.run().code == 0
    assert not finished.ran()
    assert finished.artifacts() == original.artifacts()
    assert finished.status()["run_id"] == RUN_ID


def test_a_gate_before_adopted_work_counts_as_approved(book: Book) -> None:
    """The book lies bound behind the gate, so somebody must have approved it."""
    book.wish({"gate": True})
    assert book.first_run().code == 3
    assert book("approve", "publish_ok").code == 0
    assert book.resume().code == 0
    book.ran()
    book.lose(".holdfast")
    said = book.resume()
    assert said.code == 0, said.text
    assert not book.ran()


def test_a_gate_with_nothing_behind_it_waits_again(book: Book) -> None:
    """Nothing proves an approval: the gate asks again, and nothing runs."""
    book.wish({"gate": True})
    assert book.first_run().code == 3
    book.ran()
    book.lose(".holdfast")
    said = book.resume()
    assert said.code == 3, said.text
    assert not book.ran()
    assert "holdfast approve publish_ok" in said.out


def test_the_record_is_as_good_as_before(finished: Book, original: Book) -> None:
    """After the recovery files are healed again, and verified against what was adopted."""
    finished.lose(".holdfast")
    assert finished.resume().code == 0
    finished.lose("reviews/ch02-r2.md", "book.md")
    assert finished.run().code == 0
    assert not finished.ran()
    assert finished.artifacts() == original.artifacts()
    assert set(finished.plan().values()) == {"trust"}
    assert {task["id"] for task in finished.status()["tasks"]} >= ALL
