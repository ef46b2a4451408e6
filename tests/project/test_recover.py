"""A run rebuilt from what is left: what is believed, what is recorded, and that asking twice changes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from harness import Harness, RunResult
from holdfast import Context, Pipeline
from holdfast.artifacts.inputs import Inputs
from holdfast.errors import LockedError
from holdfast.pipeline.nodes import Node
from holdfast.project.results import RecoverResult
from holdfast.stores import disk
from holdfast.stores.tree import LocalFiles


class Book:
    """Values, files, items with fields, a gate and phases; `ran` lists the bodies that were executed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ran: list[str] = []
        self.titles = "first"

    def pipeline(self) -> Pipeline:
        pipe = Pipeline("book", params={"topic": (str, "tides")})
        pipe.phase("Plan")
        pipe.phase("Write")

        @pipe.step(phase="Plan")
        def idea(topic: str) -> dict[str, str]:
            self.ran.append("idea")
            return {"topic": topic}

        @pipe.step(writes="outline.md", phase="Plan")
        def outline(idea: dict[str, str]) -> str:
            self.ran.append("outline")
            return f"# {idea['topic']}\n"

        pipe.gate("read", after=["outline"], ask="Read the outline")

        @pipe.items("ch")
        def chapters(outline: str) -> list[dict[str, Any]]:
            self.ran.append("chapters")
            return [{"id": name, "title": self.titles} for name in ("one", "two", "three")]

        @pipe.step(each="ch", writes="drafts/{ch}.md", phase="Write", marker="DRAFT_COMPLETE")
        def draft(ctx: Context, ch: str, outline: str) -> str:
            self.ran.append(ctx.task_id)
            ctx.usage(cost_usd=0.5)
            return f"{ch} of {outline}"

        @pipe.step(each="ch", phase="Write")
        def score(ctx: Context, draft: str) -> int:
            self.ran.append(ctx.task_id)
            return len(draft)

        @pipe.step(writes="book.md", phase="Write")
        def bind(draft: dict[str, str], score: dict[str, int]) -> str:
            self.ran.append("bind")
            return "".join(draft.values()) + str(sum(score.values()))

        return pipe

    def run(self, **options: Any) -> RunResult:
        self.ran.clear()
        return self.pipeline().run(dir=self.root, **options)

    def recover(self, *, dry_run: bool = False) -> RecoverResult:
        self.ran.clear()
        return Harness(self.root).recover(self.pipeline(), dry_run=dry_run)

    def lose(self, *names: str) -> None:
        for name in names or (".holdfast",):
            path = self.root / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def artifacts(self) -> dict[str, bytes]:
        names = ("outline.md", "book.md", "drafts/one.md", "drafts/two.md", "drafts/three.md")
        return {name: (self.root / name).read_bytes() for name in names if (self.root / name).exists()}

    def files(self) -> dict[str, bytes]:
        return {str(p.relative_to(self.root)): p.read_bytes() for p in self.root.rglob("*") if p.is_file()}


@pytest.fixture
def book(tmp_path: Path) -> Book:
    made = Book(tmp_path)
    assert made.run(run_id="first").status == "paused"
    approve(made)
    assert made.run().status == "completed"
    return made


def approve(book: Book) -> None:
    Harness(book.root).approve("read", run_id="first")


def actions(recovery: RecoverResult) -> dict[str, str]:
    return {task.id: task.action for task in recovery.tasks}


def test_everything_lost_but_the_files(book: Book) -> None:
    """Whatever is sealed is adopted, under the old id; values are believed lost; only items are made again."""
    before, cost = book.artifacts(), 1.5
    book.lose()
    recovery = book.recover()
    assert (recovery.run_id, recovery.record_lost, book.ran) == ("first", True, [])
    assert actions(recovery) == {
        "idea": "adopt",
        "outline": "adopt",
        "chapters": "run",
        "draft[one]": "adopt",
        "draft[two]": "adopt",
        "draft[three]": "adopt",
        "score[one]": "adopt",
        "score[two]": "adopt",
        "score[three]": "adopt",
        "bind": "adopt",
    }
    result = book.run()
    assert (result.status, result.run_id, result.cost_usd, book.ran) == ("completed", "first", cost, ["chapters"])
    assert book.artifacts() == before


def test_without_views_too(book: Book) -> None:
    """checkpoint.md and RESUME.md are gone as well: the seals name run and items, and a gate counts as passed."""
    book.lose()
    book.lose("checkpoint.md", "RESUME.md")
    book.recover()
    assert [e["step_id"] for e in Harness(book.root).events("gate_approved")] == ["read"]
    assert [e["step_id"] for e in Harness(book.root).events("phase_started")] == ["phase:Plan", "phase:Write"]
    assert book.run().status == "completed"
    assert book.ran == ["chapters"]


@pytest.mark.parametrize("harm", ["nothing", "lost", "damaged", "half", "objects", "views"])
def test_a_dry_run_says_exactly_what_is_then_done(book: Book, harm: str) -> None:
    """The same actions for the same reasons, and nothing is changed by asking."""
    if harm in ("lost", "damaged", "half"):
        book.lose()
    if harm in ("damaged", "objects"):
        (book.root / "drafts" / "two.md").write_bytes(b"\0\0\0")
        (book.root / "outline.md").write_text("# edited\n" + (book.root / "outline.md").read_text())
    if harm == "objects":
        book.lose(".holdfast/objects")
    if harm == "half":
        (book.root / "outline.md").write_text("# half")
    if harm == "views":
        book.lose("checkpoint.md", ".holdfast/todos.db")
    before = book.files()
    foreseen = book.recover(dry_run=True)
    assert book.files() == before
    done = book.recover()
    assert foreseen.tasks == done.tasks
    assert foreseen.disagreements == done.disagreements
    assert foreseen.orphans == done.orphans


@pytest.mark.parametrize("harm", ["nothing", "lost", "objects"])
def test_a_second_recovery_records_nothing(book: Book, harm: str) -> None:
    """What the first one found is on record; views are drawn again, the journal stays as it is."""
    if harm == "lost":
        book.lose()
        (book.root / "drafts" / "two.md").unlink()
    if harm == "objects":
        book.lose(".holdfast/objects")
        (book.root / "drafts" / "two.md").unlink()
        (book.root / "drafts" / "one.md").write_text("no seal")
    first = book.recover()
    assert (first.events > 0) == (harm != "nothing")
    events = Harness(book.root).events()
    second = book.recover()
    assert (second.events, Harness(book.root).events()) == (0, events)
    assert not any(task.action == "adopt" for task in second.tasks)


def test_the_pack_of_a_lost_run_is_proved_by_the_recovery_that_finds_it(tmp_path: Path) -> None:
    """A value in it is rotten; the first recovery mends that, as its dry run says; a second finds none."""
    pipe = Pipeline("p")
    pipe.step(name="plan")(lambda: "kelp " * 1000)
    pipe.step(name="draft", writes="draft.md")(lambda plan: f"{len(plan)} characters\n")
    pipe.run(dir=tmp_path)
    shutil.rmtree(tmp_path / ".holdfast" / "runs")
    (pack,) = (tmp_path / ".holdfast" / "objects").glob("*/*.pack")
    pack.write_bytes(pack.read_bytes().replace(b"kelp kelp", b"kelp help", 1))
    harness = Harness(tmp_path)
    foreseen = harness.recover(pipe, dry_run=True)
    assert any("is damaged" in words for words in foreseen.remarks)
    harness.recover(pipe)
    assert any("is damaged" in words for words in harness.events("state_mended")[0]["findings"])
    assert harness.recover(pipe).events == 0


def test_a_damaged_file_of_a_lost_run_is_redone_and_nothing_else(book: Book) -> None:
    """State lost and one artifact damaged: its task runs; equal bytes stop the cascade."""
    before = book.artifacts()
    book.lose()
    (book.root / "drafts" / "two.md").write_bytes(b"")
    recovery = book.recover()
    assert actions(recovery)["draft[two]"] == "run"
    assert book.run().status == "completed"
    assert set(book.ran) == {"chapters", "draft[two]"}
    assert book.artifacts() == before


def test_a_file_whose_name_only_looks_like_an_item_is_left_alone(book: Book) -> None:
    """A person's own file beside the drafts is no task, is not set aside, and is not touched."""
    book.lose()
    own = book.root / "drafts" / "ideas.md"
    own.write_text("mine\n")
    recovery = book.recover()
    assert not [task for task in recovery.tasks if "ideas" in task.id]
    assert own.read_text() == "mine\n"
    assert not list((book.root / "drafts").glob("*.bak.*"))


def test_items_keep_the_order_of_the_view(book: Book) -> None:
    """checkpoint.md lists one, two, three: so does the one that is drawn after the loss."""
    book.lose()
    book.recover()
    page = (book.root / "checkpoint.md").read_text()
    assert page.index("| one ") < page.index("| two ") < page.index("| three ")


def test_an_edited_file_of_a_lost_run_is_asked_about(book: Book) -> None:
    """Exit status 3, one question, and the edit stays where it is."""
    book.lose()
    outline = book.root / "outline.md"
    outline.write_text("# edited\n" + outline.read_text())
    recovery = book.recover()
    assert (recovery.exit_code, actions(recovery)["outline"]) == (3, "ask")
    assert {actions(recovery)[f"draft[{name}]"] for name in ("one", "two", "three")} == {"adopt"}
    assert outline.read_text().startswith("# edited\n")
    assert [e["about"] for e in Harness(book.root).events("question_asked")] == ["changed"]
    assert book.recover().events == 0


def test_disagreements_are_reported_and_recorded(book: Book) -> None:
    """checkpoint.md says that a draft is done, and its file is gone."""
    book.lose()
    (book.root / "drafts" / "two.md").unlink()
    recovery = book.recover()
    (found,) = [one for one in recovery.disagreements if one.task == "draft[two]"]
    assert found.said["checkpoint.md"] == "completed" and found.believed == "files"
    (event,) = Harness(book.root).events("recovered")
    said = ", ".join(f"{source}: {what}" for source, what in found.said.items())
    assert f"draft[two]: {said}; believed: files" in event["disagreements"]


def test_a_view_of_another_run_claims_nothing(book: Book, tmp_path_factory: pytest.TempPathFactory) -> None:
    """checkpoint.md from another project is told of, and not believed."""
    other = Book(tmp_path_factory.mktemp("other"))
    other.run(run_id="other")
    book.lose()
    shutil.copy(other.root / "checkpoint.md", book.root / "checkpoint.md")
    recovery = book.recover()
    assert recovery.run_id == "first"
    assert any("checkpoint.md: it is of run other" in remark for remark in recovery.remarks)


def test_nothing_at_all_is_no_run(tmp_path: Path) -> None:
    """Where nothing ever ran, nothing is made."""
    recovery = Book(tmp_path).recover()
    assert recovery.run_id is None
    assert list(tmp_path.iterdir()) == []


def test_a_project_made_by_agents_with_plain_markers(tmp_path: Path) -> None:
    """Without a single seal, what ends in its marker is adopted and sealed, and what left no file is believed."""
    book = Book(tmp_path)
    (tmp_path / "outline.md").write_text("# tides\n\nOUTLINE_COMPLETE\n")
    recovery = book.recover()
    assert recovery.run_id
    assert actions(recovery)["outline"] == "adopt"
    assert "holdfast=1 task=outline" in (tmp_path / "outline.md").read_text()
    assert actions(book.recover())["outline"] == "trust"


def test_a_run_that_only_its_views_know_of_is_foreseen(book: Book) -> None:
    """No file proves anything, but the run gets a record again: the dry run does not say that there is nothing."""
    outline, draft = (book.root / name for name in ("outline.md", "drafts/one.md"))
    book.lose(".holdfast", "drafts/two.md", "drafts/three.md", "book.md")
    outline.rename(book.root / "other.md")
    draft.rename(outline)
    foreseen, done = book.recover(dry_run=True), book.recover()
    assert foreseen.run_id
    assert foreseen.tasks == done.tasks


def two_steps(words: str, *, takes_plan: bool) -> Pipeline:
    """`text` is made from `plan`, or from the topic alone."""
    pipe = Pipeline("two", params={"topic": (str, "tides")})

    @pipe.step(writes="plan.md")
    def plan(topic: str) -> str:
        return f"{words} {topic}"

    if takes_plan:
        pipe.step(name="text", writes="text.md")(lambda topic, plan: f"text {topic}")
    else:
        pipe.step(name="text", writes="text.md")(lambda topic: f"text {topic}")
    return pipe


def lost_twice(root: Path, pipe: Pipeline) -> tuple[RecoverResult, RecoverResult]:
    """What two recoveries after a loss say, the second of a run that the first one found."""
    for name in (".holdfast", "checkpoint.md", "RESUME.md"):
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    harness = Harness(root)
    return harness.recover(pipe), harness.recover(pipe)


def test_what_does_not_fit_after_a_loss_is_asked_about_at_once(tmp_path: Path) -> None:
    """It is believed, and then compared, by the same recovery: a second one finds nothing to do."""
    two_steps("first", takes_plan=True).run(dir=tmp_path, run_id="ID")
    older = (tmp_path / "plan.md").read_bytes()
    pipe = two_steps("second", takes_plan=True)
    Harness(tmp_path).decide("plan", "redo", run_id="ID")
    pipe.run(dir=tmp_path)
    (tmp_path / "plan.md").write_bytes(older)
    first, second = lost_twice(tmp_path, pipe)
    assert actions(first) == actions(second) | {"plan": "adopt"} == {"plan": "adopt", "text": "ask"}
    assert second.events == 0


def test_an_input_that_is_new_after_a_loss_is_asked_about(tmp_path: Path) -> None:
    """What is whole is not run again unasked, though its seal names all inputs that there were."""
    two_steps("first", takes_plan=False).run(dir=tmp_path)
    first, second = lost_twice(tmp_path, two_steps("first", takes_plan=True))
    assert actions(first)["text"] == actions(second)["text"] == "ask"
    assert second.events == 0


def test_an_engine_at_work_is_not_disturbed(book: Book) -> None:
    """Recovery needs the engine's lock; looking does not."""
    book.lose()
    harness = Harness(book.root)
    harness.state.mkdir()
    with harness.held("first"):
        assert book.recover(dry_run=True).run_id
        with pytest.raises(LockedError):
            book.recover()


def test_a_damaged_journal_is_repaired_on_the_way(book: Book) -> None:
    """A flipped byte in the middle: good lines are kept, the rest comes from the files."""
    journal = Harness(book.root).journal("first")
    for snapshot in journal.parent.glob("checkpoint_*"):
        snapshot.unlink()
    data = bytearray(journal.read_bytes())
    data[data.index(b'"step_id":"draft[two]"')] ^= 1
    journal.write_bytes(bytes(data))
    recovery = book.recover()
    assert recovery.remarks
    assert Harness(book.root).events("journal_repaired")
    assert book.run().status == "completed"
    assert not book.ran


def test_a_journal_without_its_beginning(book: Book) -> None:
    """The first line is damaged, and no snapshot is left: foreseen and done alike, and nothing runs again."""
    journal = Harness(book.root).journal("first")
    for snapshot in journal.parent.glob("checkpoint_*"):
        snapshot.unlink()
    journal.write_bytes(b"x" + journal.read_bytes()[1:])
    foreseen = book.recover(dry_run=True)
    done = book.recover()
    assert foreseen.tasks == done.tasks
    assert book.recover().events == 0
    assert book.run().status == "completed"
    assert not book.ran


def test_a_run_that_was_complete_and_has_lost_something_is_complete_no_longer(book: Book) -> None:
    """With the copy gone too, the draft has to be made again: the run says so."""
    book.lose(".holdfast/objects")
    (book.root / "drafts" / "two.md").unlink()
    book.recover()
    assert Harness(book.root).events("run_stopped")[-1]["status"] == "in_progress"
    assert book.run().status == "completed"
    assert [task for task in book.ran if task.startswith("draft")] == ["draft[two]"]


def test_what_is_half_finished_stays_where_it_is(book: Book) -> None:
    """The next run may be told to continue it, or a person to keep it: recovery takes no choice away."""
    (book.root / "drafts" / "two.md").unlink()
    shutil.rmtree(book.root / ".holdfast" / "objects")
    half = book.root / "drafts" / "two.md.part"
    half.write_text("Half of a draft, and long enough to go on from it. " * 4)
    found = book.recover()
    assert {task.id: task.action for task in found.tasks}["draft[two]"] == "redo"
    assert half.exists()


def test_views_that_say_more_than_is_left_are_kept(book: Book) -> None:
    """Only the views are left: nothing can be believed, and the pages are not drawn over before they are kept."""
    book.lose(".holdfast", "drafts", "outline.md", "book.md")
    said = (book.root / "checkpoint.md").read_text()
    found = Harness(book.root).recover(book.pipeline())
    assert found.run_id
    assert any(one.task == "draft[one]" for one in found.disagreements)
    (kept,) = book.root.glob("checkpoint.md.bak.*")
    assert kept.read_text() == said
    assert len(list(book.root.glob("RESUME.md.bak.*"))) == 1


def test_views_come_back(book: Book) -> None:
    """All views are drawn anew, whether or not there was anything else to do."""
    book.lose("checkpoint.md", "RESUME.md", ".holdfast/todos.db")
    assert book.recover().events == 0
    assert (book.root / "checkpoint.md").exists() and (book.root / "RESUME.md").exists()
    assert (book.root / ".holdfast" / "todos.db").exists()


@pytest.mark.parametrize("is_left", [True, False], ids=["a file is left", "nothing is left"])
def test_what_was_made_from_lost_values_is_looked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_left: bool
) -> None:
    """Not once for each of them: what stands behind a gather is behind all that it gathers."""
    items = 200
    pipe = Pipeline("p")
    pipe.items("i", [f"i{number}" for number in range(items)])

    @pipe.step(each="i")
    def first(i: str) -> int:
        return 1

    @pipe.step
    def middle(first: dict[str, int]) -> int:
        return len(first)

    @pipe.step(each="i")
    def second(i: str, middle: int) -> int:
        return middle

    @pipe.step(writes="end.md")
    def end(second: dict[str, int]) -> str:
        return "x"

    if is_left:
        (tmp_path / "end.md").write_text("x\n<!-- END_COMPLETE -->\n")
    asked = 0
    really = Inputs.paths

    def counted(self: Inputs, node: Node) -> dict[str, str]:
        nonlocal asked
        asked += 1
        return really(self, node)

    monkeypatch.setattr(Inputs, "paths", counted)
    recovery = Harness(tmp_path).recover(pipe, dry_run=True)
    done = sum(task.action == "adopt" for task in recovery.tasks)
    assert done == (2 * items + 2 if is_left else 0)
    assert asked < 20 * len(recovery.tasks)


def test_what_a_page_says_twice_or_in_unknown_words_is_told(tmp_path: Path) -> None:
    """Neither is obeyed, and neither is passed over in silence."""
    pipe = Pipeline("p")

    @pipe.step
    def first() -> int:
        return 1

    pipe.run(dir=tmp_path)
    page = tmp_path / "checkpoint.md"
    page.write_text(
        page.read_text().replace("| first | ✅ | first |", "| first | ✅ | |\n| first | — | |\n| lunch | ✅ | |")
    )
    recovery = Harness(tmp_path).recover(pipe, dry_run=True)
    assert recovery.remarks == [
        "checkpoint.md says two things of first: completed, and also pending",
        "checkpoint.md: not understood: row lunch",
    ]
    assert [task.action for task in recovery.tasks] == ["trust"]


def test_a_lost_file_of_a_step_that_was_renamed_gets_its_new_marker_at_once(tmp_path: Path) -> None:
    """Adopted by its old name, it has the old one's marker: it is sealed anew, and a second recovery is idle."""
    old, new = Pipeline("p"), Pipeline("p")

    @old.step(writes="plan.md")
    def plan() -> str:
        return "kelp"

    @new.step(writes="plan.md", was="plan")
    def sketch() -> str:
        raise AssertionError("it is there")

    old.run(dir=tmp_path)
    shutil.rmtree(tmp_path / ".holdfast")
    harness = Harness(tmp_path)
    harness.recover(new)
    assert "<!-- SKETCH_COMPLETE " in (tmp_path / "plan.md").read_text()
    assert harness.recover(new).events == 0


def test_a_run_that_stops_before_its_items_are_known_again_draws_the_ones_on_record(book: Book) -> None:
    """Views and result count the adopted tasks of items whose function has yet to run, as `status` does."""
    book.lose(".holdfast", "book.md")
    result = book.run(budget_usd=0.1)
    assert result.status == "paused" and "bind" not in book.ran
    assert {"draft[one]", "score[two]", "draft[three]"} <= set(result.picture.tasks)
    assert "| one | ✅ |" in (book.root / "checkpoint.md").read_text()
    [listed] = Harness(book.root).project.runs()
    assert (listed.done, listed.total) == (result.picture.done, result.picture.total)
    drawn = Harness(book.root).picture(result.run_id)
    assert (listed.done, listed.total) == (drawn.done, drawn.total)


def test_a_second_recovery_does_not_guess_which_items_come_before(tmp_path: Path) -> None:
    """Names have no batches: what a later batch knew of an earlier one is unknown, not different."""
    pipe = Pipeline("book")

    @pipe.items("ch")
    def chapters() -> list[dict[str, Any]]:
        return [{"id": "one", "batch": 1}, {"id": "two", "batch": 2}]

    @pipe.step(each="ch", writes="drafts/{ch}.md")
    def draft(ch: str, glossary: dict[str, str]) -> str:
        return f"{ch}, after {sorted(glossary)}\n"

    @pipe.step(each="ch", appends="glossary.md", sources=["draft"])
    def glossary(ch: str, source: str) -> str:
        return f"a term of {source}"

    assert pipe.run(dir=tmp_path).status == "completed"
    harness = Harness(tmp_path)
    shutil.rmtree(harness.state)
    assert harness.recover(pipe).events
    again = harness.recover(pipe)
    assert ([task.id for task in again.tasks if task.action == "ask"], again.events) == ([], 0)
    assert pipe.run(dir=tmp_path).status == "completed"


@pytest.mark.parametrize("view", ["checkpoint.md", ".holdfast/todos.db"])
def test_a_view_is_enough_where_there_are_no_files(tmp_path: Path, view: str) -> None:
    """Steps without files, and nothing else left: the view is believed, and todos.db made from checkpoint.md."""
    pipe = Pipeline("values")

    @pipe.step
    def a() -> int:
        return 1

    @pipe.step
    def b(a: int) -> int:
        raise RuntimeError("no")

    first = pipe.run(dir=tmp_path)
    kept = (tmp_path / view).read_bytes()
    harness = Harness(tmp_path)
    shutil.rmtree(harness.state)
    for name in ("checkpoint.md", "RESUME.md"):
        (tmp_path / name).unlink()
    (tmp_path / view).parent.mkdir(exist_ok=True)
    (tmp_path / view).write_bytes(kept)
    foreseen = harness.recover(pipe, dry_run=True)
    done = harness.recover(pipe)
    assert (done.run_id, [task.action for task in done.tasks]) == (first.run_id, ["redo", "run"])
    assert foreseen.tasks == done.tasks
    assert harness.todos_db.exists()


def test_of_a_lost_run_each_whole_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is wrong, one look says all; and what is believed is synced together."""
    pipe = Pipeline("p")
    pipe.items("n", [f"n{number}" for number in range(40)])

    @pipe.step(each="n", writes="first/{n}.md")
    def first(n: str) -> str:
        return n

    @pipe.step(each="n", writes="second/{n}.md")
    def second(n: str, first: str) -> str:
        return first * 2

    pipe.run(dir=tmp_path)
    written = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/n*.md"))
    shutil.rmtree(tmp_path / ".holdfast")
    seen: list[str] = []
    read = LocalFiles.read

    def counted(self: LocalFiles, rel: str, limit: int | None = None) -> bytes:
        seen.append(rel)
        return read(self, rel, limit)

    monkeypatch.setattr(LocalFiles, "read", counted)
    syncs = disk.syncs
    recovery = Harness(tmp_path).recover(pipe)
    assert disk.syncs - syncs < len(written)
    assert {task.action for task in recovery.tasks} == {"adopt"}
    assert sorted(seen) == written
    assert len(Harness(tmp_path).events("task_adopted")) == len(written)


@pytest.mark.parametrize("first", ["lost", "whole"])
def test_what_is_adopted_is_told_also_if_a_lost_value_before_it_comes_back(tmp_path: Path, first: str) -> None:
    """A task that must run wants the value back; whichever is looked at first, the other one was adopted."""
    pipe = Pipeline("p")
    pipe.step(name="plan")(lambda: "kelp " * 1000)
    for name in (first, *{"lost", "whole"} - {first}):
        pipe.step(name=name, writes=f"{name}.md")(lambda plan: plan)
    harness = Harness(tmp_path)
    harness.run(pipe)
    harness.lose("record", "lost.md")
    foreseen, done = harness.recover(pipe, dry_run=True), harness.recover(pipe)
    assert actions(foreseen) == actions(done) == {"plan": "redo", "lost": "run", "whole": "adopt"}
