"""What a person did to a finished file is never destroyed, whatever else changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Harness
from holdfast import Context, Pipeline, Rewind


def one_step(*, version: int = 1, copy: bool = True, overwrite: bool = False, name: str = "a.md") -> Pipeline:
    pipe = Pipeline("p", params={"n": (int, 1)}, overwrite=overwrite)

    @pipe.step(writes=name, version=version, copy=copy, reads="in.txt")
    def a(n: int) -> str:
        return f"made {n}\n"

    return pipe


def edit(path: Path) -> None:
    path.write_text(path.read_text().replace("made", "MYEDIT made"))


def anywhere(root: Path, word: str) -> list[str]:
    return [p.name for p in root.rglob("*") if p.is_file() and word in p.read_bytes().decode(errors="replace")]


def by_parameter(root: Path, name: str, run_id: str) -> None:
    one_step(name=name).run({"n": 2}, dir=root, resume=run_id)


def by_version(root: Path, name: str, run_id: str) -> None:
    one_step(name=name, version=2).run(dir=root)


def by_input_file(root: Path, name: str, run_id: str) -> None:
    (root / "in.txt").write_text("other")
    one_step(name=name).run(dir=root)


@pytest.mark.parametrize("name", ["a.md", "a.txt"])
@pytest.mark.parametrize("make_stale", [by_parameter, by_version, by_input_file])
def test_an_edit_survives_that_its_step_runs_again(
    tmp_path: Path, make_stale: Callable[[Path, str, str], None], name: str
) -> None:
    """Made stale by a parameter, a version or a file: the edit is set aside before it is written over."""
    run = one_step(name=name).run(dir=tmp_path)
    edit(tmp_path / name)
    make_stale(tmp_path, name, run.run_id)
    assert "MYEDIT" not in (tmp_path / name).read_text()
    assert anywhere(tmp_path, "MYEDIT")


def test_an_edit_that_waits_for_an_answer_needs_review(tmp_path: Path) -> None:
    """The result names the task, as it does one that used up its attempts."""
    one_step().run(dir=tmp_path)
    edit(tmp_path / "a.md")
    result = one_step().run(dir=tmp_path)
    assert (result.status, result.needs_review, result.picture.done) == ("paused", ["a"], 0)


@pytest.mark.parametrize("above", [False, True])
def test_one_line_more_is_an_edit_too(tmp_path: Path, above: bool) -> None:
    """Also right above the seal, where everything before it is as it was: it is asked about, not taken away."""
    one_step().run(dir=tmp_path)
    lines = (tmp_path / "a.md").read_text().splitlines(keepends=True)
    lines.insert(0 if above else len(lines) - 1, "MYEDIT\n")
    (tmp_path / "a.md").write_text("".join(lines))
    assert one_step().run(dir=tmp_path).status == "paused"
    assert (tmp_path / "a.md").read_text() == "".join(lines)


def long_text(copy: bool, calls: list[str]) -> Pipeline:
    pipe = Pipeline("p")

    @pipe.step(writes="long.md", copy=copy)
    def long(ctx: Context) -> Path:
        calls.append("long")
        ctx.out.write_text("made\nby the step itself\n")
        return ctx.out

    @pipe.step
    def head(long: Path) -> str:
        calls.append("head")
        return "".join(long.read_text().splitlines(keepends=True)[:-1])

    return pipe


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("edited", ["MYEDIT made\nby the step itself\n", "made\nby the step itself\nMYEDIT\n"])
def test_an_edited_text_that_its_step_wrote_itself_is_asked_about_like_any_other(
    tmp_path: Path, edited: str, copy: bool
) -> None:
    """Also with one line more right above the seal, where all that was accepted is still there."""
    calls: list[str] = []
    long_text(copy, calls).run(dir=tmp_path)
    text = (tmp_path / "long.md").read_text().replace("made\nby the step itself\n", edited)
    (tmp_path / "long.md").write_text(text)
    result = long_text(copy, calls).run(dir=tmp_path)
    assert (result.status, result.needs_review) == ("paused", ["long"])
    assert (tmp_path / "long.md").read_text() == text
    (tmp_path / "holdfast.toml").write_text('[run]\non_changed = "keep"\n')
    kept = long_text(copy, calls).run(dir=tmp_path)
    assert (kept.status, kept.outputs["head"]) == ("completed", edited)
    assert calls == ["long", "head", "head"]
    assert Harness(tmp_path).verify(kept.run_id).findings == []


@pytest.mark.parametrize("copy", [True, False])
def test_what_stands_below_the_seal_of_a_text_that_its_step_wrote_itself_is_kept_in_quarantine(
    tmp_path: Path, copy: bool
) -> None:
    """All that was accepted is above it: nothing runs again, though nothing else has those bytes."""
    calls: list[str] = []
    long_text(copy, calls).run(dir=tmp_path)
    whole = (tmp_path / "long.md").read_text()
    (tmp_path / "long.md").write_text(whole + "MYEDIT\n")
    assert long_text(copy, calls).run(dir=tmp_path).status == "completed"
    assert ((tmp_path / "long.md").read_text(), calls) == (whole, ["long", "head"])
    assert anywhere(tmp_path, "MYEDIT")


def test_an_output_without_copy_survives_that_its_step_runs_again(tmp_path: Path) -> None:
    """With copy=False the file is the only one there is: it is set aside, not written over."""
    run = one_step(copy=False).run(dir=tmp_path)
    one_step(copy=False).run({"n": 2}, dir=tmp_path, resume=run.run_id)
    assert (tmp_path / "a.md").read_text().startswith("made 2")
    assert [n for n in anywhere(tmp_path, "made 1\n") if n.startswith("a.md.bak.")]


def test_an_output_without_copy_can_be_sent_back(tmp_path: Path) -> None:
    """Sent back, it is set aside; ctx.previous is None then, and the step runs."""
    pipe = Pipeline("p")
    seen: list[object] = []

    @pipe.step(writes="d.md", copy=False)
    def d(ctx: Context) -> str:
        seen.append(ctx.previous)
        return f"round {ctx.round}\n"

    @pipe.step
    def r(d: str) -> str:
        if "round 0" in d:
            raise Rewind("d", feedback="again")
        return "fine"

    assert pipe.run(dir=tmp_path).status == "completed"
    assert len(seen) == 2
    assert [n for n in anywhere(tmp_path, "round 0\n") if n.startswith("d.md.bak.")]


@pytest.mark.parametrize("name", ["a.md", "a.txt", "a.json"])
def test_force_sets_every_kind_of_file_aside(tmp_path: Path, name: str) -> None:
    """Also files whose seal is beside them."""
    one_step(name=name, copy=False).run(dir=tmp_path)
    one_step(name=name, copy=False).run(dir=tmp_path, force=True)
    assert len(list(tmp_path.glob(f"{name}.bak.*"))) == 1


def test_an_edit_is_asked_about_also_when_the_record_is_lost(tmp_path: Path) -> None:
    """With .holdfast gone, an edited sealed file is a question, not a reason to pay again; keep adopts it."""
    one_step().run(dir=tmp_path)
    edit(tmp_path / "a.md")
    shutil.rmtree(tmp_path / ".holdfast")
    asked = one_step().run(dir=tmp_path)
    assert (asked.status, asked.exit_code) == ("paused", 3)
    (tmp_path / "holdfast.toml").write_text('[run]\non_changed = "keep"\n')
    kept = one_step().run(dir=tmp_path)
    assert kept.status == "completed"
    assert kept.outputs["a"] == "MYEDIT made 1\n"


def test_going_back_to_an_older_run_restores_its_own_files(tmp_path: Path) -> None:
    """With overwrite, the newer run's file is in the way; it is no edit that could be kept as the older run's."""
    first = one_step(overwrite=True).run(dir=tmp_path)
    one_step(overwrite=True).run({"n": 9}, dir=tmp_path)
    back = one_step(overwrite=True).run(dir=tmp_path)
    assert (back.run_id, back.status) == (first.run_id, "completed")
    assert (tmp_path / "a.md").read_text().startswith("made 1")
    assert anywhere(tmp_path, "made 9")


def test_a_stream_that_was_whole_when_it_was_cut_off_can_be_continued(tmp_path: Path) -> None:
    """on_partial=continue: a step that finds nothing left to write returns None, and the partial is its output."""
    pipe = Pipeline("p")

    @pipe.step(writes="w.md", on_partial="continue")
    def w(ctx: Context) -> None:
        done = (ctx.partial or "").count("line")
        for number in range(done, 20):
            ctx.write(f"line {number}\n")

    (tmp_path / "w.md.part").write_text("".join(f"line {number}\n" for number in range(20)))
    result = pipe.run(dir=tmp_path)
    assert result.status == "completed"
    assert result.outputs["w"] == "".join(f"line {number}\n" for number in range(20))


def test_a_budget_stays_until_another_is_given(tmp_path: Path) -> None:
    """Continuing without the option keeps the limit that was set; a higher one goes on."""
    pipe = Pipeline("p")
    pipe.items("i", ["a", "b", "c"])

    @pipe.step(each="i")
    def s(ctx: Context, i: str) -> str:
        ctx.usage(cost_usd=1.0)
        return i

    first = pipe.run(dir=tmp_path, budget_usd=1.0, concurrency=1)
    assert (first.status, first.cost_usd) == ("paused", 1.0)
    again = pipe.run(dir=tmp_path, concurrency=1)
    assert (again.status, again.cost_usd) == ("paused", 1.0)
    assert "--budget" in again.picture.continue_command()
    assert pipe.run(dir=tmp_path, budget_usd=10.0).status == "completed"


def test_a_file_that_appears_while_the_step_runs_is_set_aside(tmp_path: Path) -> None:
    """Somebody writes to the step's path in the meantime: that is kept, and told."""
    pipe = Pipeline("p")

    @pipe.step(writes="out/a.md")
    def a(ctx: Context) -> str:
        (ctx.dir / "out").mkdir()
        (ctx.dir / "out" / "a.md").write_text("somebody else's notes\n")
        return "mine\n"

    result = pipe.run(dir=tmp_path)
    assert result.status == "completed"
    assert (tmp_path / "out" / "a.md").read_text().startswith("mine")
    assert [p.read_text() for p in (tmp_path / "out").glob("a.md.bak.*")] == ["somebody else's notes\n"]


@pytest.mark.parametrize("name", ["d.md", "d.txt"])
def test_an_edit_of_what_was_sent_back_survives_the_new_version(tmp_path: Path, name: str) -> None:
    """A person goes on with the old file while its step makes a better one: both are there afterwards."""
    pipe = Pipeline("p")

    @pipe.step(writes=name)
    def draft(ctx: Context) -> str:
        if ctx.round:
            (tmp_path / name).write_text("better words\n")
        return f"draft {ctx.round}\n"

    @pipe.step
    def review(draft: str) -> None:
        if "0" in draft:
            raise Rewind("draft", feedback="again")

    assert pipe.run(dir=tmp_path).status == "completed"
    (kept,) = tmp_path.glob(f"{name}.bak.*")
    assert kept.read_text() == "better words\n"
    assert (tmp_path / name).read_text().startswith("draft 1\n")


def test_an_old_version_that_nobody_touched_leaves_no_copies(tmp_path: Path) -> None:
    """It is in objects/ already."""
    one_step().run(dir=tmp_path)
    one_step(version=2).run(dir=tmp_path)
    assert not list(tmp_path.glob("a.md.bak.*"))


def test_a_step_that_writes_its_own_file_leaves_no_copies(tmp_path: Path) -> None:
    """A step that writes what it returns to its own path is not told off with a backup."""
    pipe = Pipeline("p")

    @pipe.step(writes="a.md")
    def a(ctx: Context) -> str:
        (ctx.dir / "a.md").write_text("mine\n")
        return "mine\n"

    assert pipe.run(dir=tmp_path).status == "completed"
    assert list(tmp_path.glob("a.md.bak.*")) == []


@pytest.mark.parametrize("rotten", [False, True], ids=["whole copy", "rotten copy"])
def test_a_large_file_is_healed_from_its_copy_else_made_again(tmp_path: Path, rotten: bool) -> None:
    """A file given by path is put back, streamed and proved; with a rotten copy its step runs again."""
    pipe, calls = Pipeline("p"), list[int]()

    @pipe.step(writes="big.bin")
    def big(ctx: Context) -> Path:
        calls.append(1)
        ctx.out.write_bytes(b"0123456789" * 200_000)
        return ctx.out

    pipe.run(dir=tmp_path)
    (tmp_path / "big.bin").write_bytes(b"short")
    if rotten:
        (copy,) = [p for p in (tmp_path / ".holdfast" / "objects").rglob("*") if len(p.name) == 64]
        copy.write_bytes(b"rot")
    assert pipe.run(dir=tmp_path).status == "completed"
    assert (tmp_path / "big.bin").read_bytes() == b"0123456789" * 200_000
    assert len(calls) == (2 if rotten else 1)


def three_steps(texts: list[str], at_work: list[Callable[[], None]]) -> Pipeline:
    """`b` is made from `a`, during which somebody acts."""
    pipe = Pipeline("p")

    @pipe.step(writes="a.md")
    def a() -> str:
        for act in at_work:
            act()
        return texts.pop(0)

    @pipe.step(writes="b.md")
    def b(a: str) -> str:
        return f"made from {a}"

    @pipe.step(writes="c.md")
    def c() -> str:
        return "made\n"

    return pipe


def test_an_edit_made_while_others_run_again_is_seen(tmp_path: Path) -> None:
    """What runs later is judged by its files as they are when its turn comes."""
    at_work = list[Callable[[], None]]()
    pipe = three_steps(["made 0\n", "made 1\n"], at_work)
    pipe.run(dir=tmp_path)
    shutil.rmtree(tmp_path / ".holdfast/objects")
    (tmp_path / "a.md").unlink()
    at_work.append(lambda: edit(tmp_path / "b.md"))
    pipe.run(dir=tmp_path)
    assert "made 1" in (tmp_path / "a.md").read_text()
    assert "MYEDIT" not in (tmp_path / "b.md").read_text()
    assert anywhere(tmp_path, "MYEDIT")


def test_an_edit_made_while_a_lost_run_goes_on_is_seen(tmp_path: Path) -> None:
    """Of a run whose record was lost, too, nothing is judged by what was read before its steps began."""
    at_work = list[Callable[[], None]]()
    pipe = three_steps(["made 0\n", "made 0\n"], at_work)
    pipe.run(dir=tmp_path)
    shutil.rmtree(tmp_path / ".holdfast")
    (tmp_path / "a.md").unlink()
    at_work.append(lambda: edit(tmp_path / "b.md"))
    assert pipe.run(dir=tmp_path).status == "paused"
    assert "MYEDIT" in (tmp_path / "b.md").read_text()


def test_a_rotten_copy_of_a_large_file_is_made_again_from_the_file(tmp_path: Path) -> None:
    """As `verify` says: the file is whole, nothing runs, and the copy is proved afterwards."""
    pipe, calls = Pipeline("p"), []

    @pipe.step(writes="large.bin")
    def large(ctx: Context) -> Path:
        calls.append(ctx.task_id)
        Path(ctx.out).write_bytes(b"kelp" * (1 << 19))
        return Path(ctx.out)

    run_id = pipe.run(dir=tmp_path).run_id
    (copy,) = [p for p in (tmp_path / ".holdfast" / "objects").rglob("*") if len(p.name) == 64]
    copy.write_bytes(b"rotten")
    assert [found.problem for found in Harness(tmp_path).verify(run_id).findings] == ["no copy"]
    assert pipe.run(dir=tmp_path, resume=run_id).status == "completed"
    assert (Harness(tmp_path).verify(run_id).findings, calls) == ([], ["large"])
