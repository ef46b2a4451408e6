"""A seal line that is damaged while the record exists: noticed, kept, and sealed anew, for nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness import Harness
from holdfast import Context, Pipeline
from holdfast.errors import FormatTooNewError
from holdfast.seals import read_seal, seal_sum


def texts(ran: list[str]) -> Pipeline:
    pipe = Pipeline("texts")

    @pipe.step(writes="kept.md")
    def kept() -> str:
        ran.append("kept")
        return "kept\n"

    @pipe.step(writes="uncopied.md", copy=False)
    def uncopied(kept: str) -> str:
        ran.append("uncopied")
        return "uncopied\n"

    @pipe.step(writes="table.csv", copy=False)
    def table(kept: str) -> str:
        ran.append("table")
        return "a,b\n"

    @pipe.step(writes="large.bin", copy=False)
    def large(ctx: Context, table: str) -> Path:
        ran.append("large")
        ctx.out.write_bytes(b"large" * 1000)
        return ctx.out

    return pipe


@pytest.mark.parametrize("path", ["kept.md", "uncopied.md", "table.csv.seal", "large.bin.seal"])
@pytest.mark.parametrize("old", [b"round=0", b"in=", b"sha256=", b"tokens=0", b"sum=", b" -->"])
def test_a_damaged_seal_is_made_again_and_the_text_is_not(tmp_path: Path, path: str, old: bytes) -> None:
    """Nothing runs, not even where there is no copy; the line as it was found is kept in quarantine."""
    ran: list[str] = []
    assert texts(ran).run(dir=tmp_path, run_id="r").status == "completed"
    ran.clear()
    whole = (tmp_path / path).read_bytes()
    damaged = whole.replace(old, old[:-1] + b"7")
    (tmp_path / path).write_bytes(damaged)
    assert texts(ran).run(dir=tmp_path).status == "completed"
    assert ran == []
    assert (tmp_path / path).read_bytes() == whole
    quarantine = tmp_path / ".holdfast" / "runs" / "r" / "quarantine"
    assert [file.read_bytes() for file in quarantine.iterdir()] == [damaged]


def test_a_deleted_seal_beside_its_file_is_written_again(tmp_path: Path) -> None:
    """What was accepted is there: a large file without a copy need not be made again for want of a line."""
    ran: list[str] = []
    texts(ran).run(dir=tmp_path, run_id="r")
    (tmp_path / "large.bin.seal").unlink()
    ran.clear()
    assert texts(ran).run(dir=tmp_path).status == "completed"
    seal = read_seal((tmp_path / "large.bin.seal").read_bytes())
    assert ran == [] and seal is not None and seal.task == "large"
    letter = (tmp_path / "RESUME.md").read_text()
    assert "large.bin was damaged in its seal; sealed anew; impact: none" in letter and "put back" not in letter


def test_what_stands_in_the_place_of_a_seal_is_set_aside_and_told(tmp_path: Path) -> None:
    """Also if the file beside it is damaged: both are in quarantine, and the journal has a line for each."""
    pipe = texts([])
    pipe.run(dir=tmp_path, run_id="r")
    (tmp_path / "table.csv").write_text("another\n")
    (tmp_path / "table.csv.seal").unlink()
    (tmp_path / "table.csv.seal").symlink_to("elsewhere")
    assert pipe.run(dir=tmp_path).status == "completed"
    told = [event["path"] for event in Harness(tmp_path).events("artifact_set_aside")]
    assert sorted(told) == ["table.csv", "table.csv.seal"]


@pytest.mark.parametrize("lost", (False, True))
@pytest.mark.parametrize("name", ("kept.md", "table.csv.seal"))
def test_a_newer_holdfasts_seal_is_refused_and_its_file_left_alone(tmp_path: Path, name: str, lost: bool) -> None:
    """It is no damage, and no half-finished text: whoever sealed it has finished it."""
    ran: list[str] = []
    texts(ran).run(dir=tmp_path)
    path = tmp_path / name
    above, line = path.read_bytes().rstrip(b"\n").rpartition(b"<!-- ")[::2]
    newer = (b"<!-- " + line.rpartition(b" sum=")[0]).replace(b"holdfast=1", b"holdfast=2") + b" more=1"
    path.write_bytes(above + newer + b" sum=" + seal_sum(newer) + b" -->\n")
    before = path.read_bytes()
    if lost:
        shutil.rmtree(tmp_path / ".holdfast")
    with pytest.raises(FormatTooNewError, match="has a seal of format 2"):
        texts(ran).run(dir=tmp_path)
    assert (len(ran), path.read_bytes()) == (4, before)


def two_files(ran: list[str], *, copy: bool) -> Pipeline:
    pipe = Pipeline("two")

    @pipe.step(writes={"text": "text.md", "data": "data.bin"}, copy=copy)
    def both(ctx: Context) -> dict[str, object]:
        ran.append("both")
        ctx.out.write_bytes(b"large" * 1000)
        return {"text": "words\n", "data": ctx.out}

    return pipe


@pytest.mark.parametrize("damage", ["seal", "missing"])
@pytest.mark.parametrize("copy", [True, False])
def test_what_is_damaged_beside_an_edit_that_is_kept_is_made_whole(
    tmp_path: Path, copy: bool, damage: str
) -> None:
    """From its copy; or for nothing, if only its seal is damaged. Else the step runs, and the edit lies beside."""
    ran: list[str] = []
    two_files(ran, copy=copy).run(dir=tmp_path, run_id="r")
    text, data = tmp_path / "text.md", tmp_path / "data.bin"
    text.write_text(text.read_text().replace("words", "my words"))
    (tmp_path / "data.bin.seal").write_text("nonsense\n") if damage == "seal" else data.unlink()
    (tmp_path / "holdfast.toml").write_text('[run]\non_changed = "keep"\n')
    assert two_files(ran, copy=copy).run(dir=tmp_path).status == "completed"
    assert data.read_bytes() == b"large" * 1000
    assert Harness(tmp_path).verify("r").findings == []
    is_kept = copy or damage == "seal"
    assert (len(ran), text.read_text().startswith("my words")) == (1 if is_kept else 2, is_kept)
    assert len(list(tmp_path.glob("text.md.bak.*"))) == (0 if is_kept else 1)
