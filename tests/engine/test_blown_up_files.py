"""Files that were blown up, mostly with nothing in them: they are not read, and take nothing down with them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from harness import Harness
from holdfast import Pipeline
from holdfast.errors import StorageError
from refusing import hold_less_than

HUGE = 1 << 34


def pipeline(calls: list[str]) -> Pipeline:
    pipe = Pipeline("p")

    @pipe.step(writes={"text": "out.md", "data": "out.csv"})
    def out() -> dict[str, str]:
        calls.append("out")
        return {"text": "words\n", "data": "1,2\n"}

    return pipe


@pytest.mark.parametrize("name", ["out.md", "out.csv", "out.csv.seal"])
def test_a_file_far_larger_than_what_was_accepted_is_damaged(tmp_path: Path, name: str) -> None:
    """It is set aside unread, and put back; nothing runs again."""
    calls: list[str] = []
    pipeline(calls).run(dir=tmp_path, run_id="r")
    before = (tmp_path / name).read_bytes()
    os.truncate(tmp_path / name, HUGE)
    (found,) = Harness(tmp_path).verify("r").findings
    assert (found.task, found.problem) == ("out", "damaged")
    assert pipeline(calls).run(dir=tmp_path).status == "completed"
    assert ((tmp_path / name).read_bytes(), calls) == (before, ["out"])
    aside = list((tmp_path / ".holdfast" / "runs" / "r" / "quarantine").iterdir())
    assert [path.stat().st_size for path in aside] == [HUGE]


@pytest.mark.parametrize("view", ["checkpoint.md", "RESUME.md", ".holdfast/runs/r/checkpoint.json"])
def test_a_view_that_was_blown_up_is_a_note(tmp_path: Path, view: str) -> None:
    """`verify` has a word about it, `list` does without it, and the next run writes it anew."""
    pipeline([]).run(dir=tmp_path, run_id="r")
    os.truncate(tmp_path / view, HUGE)
    harness = Harness(tmp_path)
    report = harness.verify("r")
    told = [note.partition(" ")[0] for note in report.notes if "does not load" not in note]  # declared in here
    assert report.ok and told == [view]
    assert [info.status for info in harness.project.runs()] == ["completed"]
    assert pipeline([]).run(dir=tmp_path).status == "completed"
    assert (tmp_path / view).stat().st_size < HUGE


def test_what_memory_cannot_hold_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clear stop that names the file, where nobody knows how large it may be."""
    hold_less_than(HUGE, monkeypatch)
    (tmp_path / "out.md").touch()
    os.truncate(tmp_path / "out.md", HUGE)
    with pytest.raises(StorageError, match=r"out\.md: File is too large to be held in memory") as caught:
        pipeline([]).run(dir=tmp_path)
    assert isinstance(caught.value.__cause__, OSError) and caught.value.__cause__.errno == errno.ENOMEM
