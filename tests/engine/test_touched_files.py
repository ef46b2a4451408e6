"""A finished file that is touched while its own run is on: the run does not end as if nothing had happened."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Harness
from holdfast import Context, Pipeline


def made_then(ran: list[str], then: Callable[[Path], object], path: Path, *, copy: bool = True) -> Pipeline:
    """Two texts and a step that does something to the first when both are finished."""
    pipe = Pipeline("p")

    @pipe.step(writes="a.md", copy=copy)
    def a() -> str:
        ran.append("a")
        return "text\n"

    @pipe.step(writes="b.md")
    def b(a: str) -> str:
        ran.append("b")
        return f"{a}more\n"

    @pipe.step
    def meddle(b: str) -> None:
        ran.append("meddle")
        then(path)

    return pipe


def replace(path: Path) -> None:
    (path.parent / "other.md").write_text("another's\n")
    (path.parent / "other.md").rename(path)


def edit(path: Path) -> None:
    path.write_text(path.read_text().replace("text", "edited text"))


@pytest.mark.parametrize("touch", [Path.unlink, replace])
@pytest.mark.parametrize("copy", [True, False])
def test_a_file_that_is_lost_during_its_run_is_back_at_the_end(
    tmp_path: Path, touch: Callable[[Path], object], copy: bool
) -> None:
    """Put back from its copy, else made again by its step alone: completed means that it is there."""
    ran: list[str] = []
    result = made_then(ran, touch, tmp_path / "a.md", copy=copy).run(dir=tmp_path)
    assert (result.status, ran) == ("completed", ["a", "b", "meddle", *([] if copy else ["a"])])
    assert Harness(tmp_path).verify(result.run_id).findings == []
    assert len(Harness(tmp_path).events("artifact_healed")) == copy


def test_a_file_that_is_edited_during_its_run_is_asked_about_at_the_end(tmp_path: Path) -> None:
    """The edit stays, and the run waits for an answer."""
    ran: list[str] = []
    result = made_then(ran, edit, tmp_path / "a.md").run(dir=tmp_path)
    assert (result.status, ran) == ("paused", ["a", "b", "meddle"])
    assert (tmp_path / "a.md").read_text().startswith("edited text\n")


def test_a_file_that_was_only_written_once_more_is_left_as_it_is(tmp_path: Path) -> None:
    """The same bytes under the same name are what was accepted: nothing is said about them."""
    ran: list[str] = []
    result = made_then(ran, lambda path: path.write_bytes(path.read_bytes()), tmp_path / "a.md").run(dir=tmp_path)
    assert (result.status, ran) == ("completed", ["a", "b", "meddle"])
    assert not [event for event in Harness(tmp_path).events() if event["event"].startswith("artifact")]


def test_files_that_steps_spoil_for_each_other_end_no_run_as_completed(tmp_path: Path) -> None:
    """They are made good once; then the run fails and names the file, instead of going on for ever."""
    ran: list[str] = []
    pipe = Pipeline("p")

    @pipe.step(writes="a.md", copy=False)
    def a() -> str:
        ran.append("a")
        return f"{len(ran)}\n"

    @pipe.step(writes="b.md")
    def b(a: str) -> str:
        ran.append("b")
        (tmp_path / "a.md").unlink()
        return a

    result = pipe.run(dir=tmp_path)
    assert (result.status, ran) == ("failed", ["a", "b", "a", "b"])
    (stopped,) = Harness(tmp_path).events("run_stopped")
    assert stopped["reason"].startswith("a.md was spoiled again")


def read_by_another(ran: list[str], meddle: Callable[[str], object], *, copy: bool = True) -> Pipeline:
    """A large file, a step after it, and one that reads it; `meddle` is called between, and while it is read."""
    pipe = Pipeline("p")

    @pipe.step(writes="film.bin", copy=copy)
    def film(ctx: Context) -> Path:
        ran.append("film")
        ctx.out.write_bytes(b"film" * 1000)
        return ctx.out

    @pipe.step(after=["film"])
    def pause() -> int:
        meddle("pause")
        return 1

    @pipe.step(writes="size.md", after=["pause"], retries=1, backoff=0.0001)
    def size(ctx: Context, film: Path) -> str:
        ran.append("size")
        meddle("size")
        return f"{ctx.once('count', lambda: film.read_bytes().count(b'film'))}\n"

    return pipe


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("moment", ["pause", "size"])
def test_a_large_file_that_is_spoiled_before_or_while_it_is_read_spoils_nothing(
    tmp_path: Path, moment: str, copy: bool
) -> None:
    """It is whole again before it is read, and what was made of the spoiled one does not count."""
    ran: list[str] = []
    times: list[str] = []

    def spoil(at: str) -> None:
        times.append(at)
        if times == ["pause", "size"][: len(times)] and at == moment:
            (tmp_path / "film.bin").write_bytes(b"spoiled")

    result = read_by_another(ran, spoil, copy=copy).run(dir=tmp_path)
    assert (result.status, result.outputs["size"]) == ("completed", "1000\n")
    assert (ran.count("film"), ran.count("size")) == (1 if copy else 2, 2 if moment == "size" else 1)
    assert Harness(tmp_path).verify(result.run_id).findings == []


def test_what_somebody_adds_behind_the_seal_of_a_large_file_is_not_read(tmp_path: Path) -> None:
    """The file is as it was accepted before a step is given its path."""
    pipe = Pipeline("p")

    @pipe.step(writes="long.md")
    def long(ctx: Context) -> Path:
        ctx.out.write_text("long\n")
        return ctx.out

    @pipe.step(after=["long"])
    def careless() -> int:
        with (tmp_path / "long.md").open("a") as file:
            file.write("added\n")
        return 1

    @pipe.step(after=["careless"])
    def reads(long: Path) -> bool:
        return "added" in long.read_text()

    assert pipe.run(dir=tmp_path).outputs["reads"] is False


@pytest.mark.parametrize("gives", ["text", "file", "path of another"])
def test_what_was_made_while_a_large_file_was_spoiled_is_kept_for_whoever_wants_to_look(
    tmp_path: Path, gives: str
) -> None:
    """It was paid for; only what is not the step's own stays where it is."""
    pipe = Pipeline("p")
    others = tmp_path / "others.txt"
    others.write_text("others")

    @pipe.step(writes="film.bin")
    def film(ctx: Context) -> Path:
        ctx.out.write_bytes(b"film")
        return ctx.out

    @pipe.step(writes="size.txt")
    def size(ctx: Context, film: Path) -> str | Path:
        film.write_bytes(b"spoiled")
        ctx.out.write_text("paid")
        return {"text": "paid", "file": ctx.out, "path of another": others}[gives]

    result = pipe.run(dir=tmp_path)
    assert (result.status, others.read_text()) == ("failed", "others")
    run_dir = Harness(tmp_path).folder(result.run_id)
    told = [event["to"] for event in Harness(tmp_path).events("artifact_set_aside") if event["path"] == "size.txt"]
    assert [(run_dir / to).read_text() for to in told] == ([] if gives == "path of another" else ["paid"])


def test_a_large_file_that_was_only_touched_is_read_once_and_believed(tmp_path: Path) -> None:
    """Another time of change alone is no damage."""
    ran: list[str] = []
    result = read_by_another(ran, lambda _: os.utime(tmp_path / "film.bin", (1, 1))).run(dir=tmp_path)
    assert (result.status, ran, result.outputs["size"]) == ("completed", ["film", "size"], "1000\n")


def spoils_what_is_checked(folder: Path, ran: list[str]) -> Pipeline:
    """A step that spoils a large file which only its check takes; a checklist looks at that file afterwards."""
    pipe = Pipeline("p")

    @pipe.step(writes="film.bin", phase="one")
    def film(ctx: Context) -> Path:
        ctx.out.write_bytes(b"film")
        return ctx.out

    def is_film(film: Path) -> bool:
        return film.read_bytes() == b"film"

    @pipe.step(after=["film"], phase="one", check=lambda output, film: is_film(film))
    def careless() -> int:
        ran.append("careless")
        if len(ran) == 1:
            (folder / "film.bin").write_bytes(b"spoiled")
        return 1

    @pipe.step(after=["careless"], phase="one")
    def careless_too() -> int:
        (folder / "film.bin").write_bytes(b"spoiled again")
        return 1

    pipe.phase("two", checklist=[is_film])

    @pipe.step(phase="two")
    def last() -> int:
        return 1

    return pipe


def test_a_large_file_that_is_spoiled_before_a_check_takes_it_fails_the_attempt_and_not_the_engine(
    tmp_path: Path,
) -> None:
    """What a check, or a checklist, takes is put back for it, at the latest by the next run."""
    ran: list[str] = []
    pipe = spoils_what_is_checked(tmp_path, ran)
    assert pipe.run(dir=tmp_path).status == "failed"
    assert "film.bin is no longer what was accepted" in Harness(tmp_path).events("node_exit")[-1]["error"]
    assert (pipe.run(dir=tmp_path).status, len(ran)) == ("completed", 2)
    assert not Harness(tmp_path).events("checklist_refused")


def test_a_large_file_that_is_spoiled_while_a_checklist_is_asked_is_an_objection(tmp_path: Path) -> None:
    """Nobody can say yes to what is not there; the next run puts it back and asks again."""
    pipe, asked = Pipeline("p"), []

    @pipe.step(writes="film.bin", phase="one")
    def film(ctx: Context) -> Path:
        ctx.out.write_bytes(b"film")
        return ctx.out

    def spoils() -> bool:
        asked.append(1)
        if len(asked) == 1:
            (tmp_path / "film.bin").write_bytes(b"spoiled")
        return True

    pipe.phase("two", checklist=[spoils, lambda film: film.read_bytes() == b"film"])

    @pipe.step(phase="two")
    def last() -> int:
        return 1

    assert pipe.run(dir=tmp_path).status == "paused"
    (refused,) = Harness(tmp_path).events("checklist_refused")
    assert refused["reasons"] == ["film.bin is no longer what was accepted"]
    assert (pipe.run(dir=tmp_path).status, len(asked)) == ("completed", 2)
