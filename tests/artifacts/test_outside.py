"""Files that `reads` names: which they are, and that "cannot read" is neither "absent" nor a reason to wait."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from holdfast import Pipeline
from holdfast.artifacts import outside
from holdfast.artifacts.outside import OutsideHashes, reads_of
from holdfast.errors import EXIT_STORAGE, StorageError

FILES = ["a/b/c.csv", "a/c.csv", "a/.h/c.csv", "c.csv", ".c.csv", "a/b/d/e.txt", "x[1]/c.csv", "a/b/.c.csv"]
PATTERNS = [
    "*.csv",
    "**/*.csv",
    "**",
    "a/**",
    "a/*/c.csv",
    "*/c.csv",
    ".*",
    "a/.*/c.csv",
    "**/b/**/*",
    "a/b/**/**",
]
PATTERNS += [
    "x[[]1]/*.csv",
    "a/[!b]*",
    "**/**/c.csv",
    "?.csv",
    "nope/*.csv",
    "c.csv/*.csv",
    "*/nope.csv",
    "*/b/c.csv",
]


def counting(calls: list[str]) -> Pipeline:
    pipe = Pipeline("p")

    @pipe.step(reads="inbox/*.csv")
    def paid() -> str:
        calls.append("paid")
        return "x"

    return pipe


def test_views_are_no_files_from_outside(tmp_path: Path) -> None:
    """A step that reads all pages of a project is done once: what a run itself writes there does not count."""
    calls: list[str] = []
    pipe = Pipeline("p")
    pipe.step(name="paid", reads=["*.md", "**/RESUME*"])(lambda: calls.append("paid"))
    (tmp_path / "notes.md").write_text("mine")
    for _ in range(3):
        assert pipe.run(dir=tmp_path).status == "completed"
    (tmp_path / "RESUME.md").rename(tmp_path / "RESUME.md.bak.1")
    pipe.run(dir=tmp_path)
    assert calls == ["paid"]
    (tmp_path / "notes.md").write_text("mine, too")
    pipe.run(dir=tmp_path)
    assert calls == ["paid", "paid"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_what_it_means_to_python(tmp_path: Path, pattern: str) -> None:
    """The same files as those of `glob`, links followed, folders left out."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "a" / "link").symlink_to(tmp_path / "x[1]")
    (tmp_path / "a" / "lost.csv").symlink_to("nowhere")
    expected = {*glob.glob(pattern, root_dir=tmp_path, recursive=True)}
    assert reads_of(tmp_path, [pattern]) == sorted(path for path in expected if not (tmp_path / path).is_dir())


def test_a_link_that_leads_back_is_not_followed_for_ever(tmp_path: Path) -> None:
    """Below `**` each folder is met once on every way."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "c.csv").write_text("x")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "a" / "itself").symlink_to("itself")
    assert reads_of(tmp_path, ["**/*.csv"]) == ["a/c.csv"]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """What is no regular file stops the run with status 6, and is named."""
    (tmp_path / "inbox").mkdir()
    os.mkfifo(tmp_path / "inbox" / "new.csv")
    with pytest.raises(StorageError, match=r"inbox/new\.csv: Not a regular file") as caught:
        counting([]).run(dir=tmp_path)
    assert caught.value.exit_code == EXIT_STORAGE


def test_the_name_of_a_file_may_be_no_text(tmp_path: Path) -> None:
    """Who put it there chose it; it is an input like any other."""
    calls: list[str] = []
    (tmp_path / "inbox").mkdir()
    odd = tmp_path / os.fsdecode(b"inbox/\xff.csv")
    for content in ("1", "1", "2"):
        odd.write_text(content)
        assert counting(calls).run(dir=tmp_path).status == "completed"
    assert calls == ["paid", "paid"]


def test_a_missing_file_is_an_input_like_any_other(tmp_path: Path) -> None:
    """One that is named without a glob counts, and differs from an empty one."""
    assert reads_of(tmp_path, ["gone.csv"]) == ["gone.csv"]
    assert OutsideHashes().of(tmp_path / "gone.csv") == "missing"


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO, errno.EACCES])
def test_a_folder_that_cannot_be_listed_is_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Finished work is not paid for again because its inputs seem to be gone: a clear stop."""
    calls: list[str] = []
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "a.csv").write_text("1")
    counting(calls).run(dir=tmp_path)
    really = os.listdir

    def failing(path: int | str | Path = ".") -> list[str]:
        if str(path).endswith("inbox"):
            raise OSError(code, os.strerror(code), str(path))
        return really(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", failing)
        with pytest.raises(StorageError, match=os.strerror(code)):
            counting(calls).run(dir=tmp_path)
    assert counting(calls).run(dir=tmp_path).status == "completed"
    assert calls == ["paid"]


def test_a_file_is_hashed_once_until_somebody_touches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or puts another of the same size and time there; what was written a moment ago is hashed each time."""
    hashed = []
    really = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda file, name: hashed.append(1) or really(file, name))
    data, hashes = tmp_path / "data.csv", OutsideHashes()
    data.write_text("one")
    first = {hashes.of(data), hashes.of(data)}
    assert (len(first), len(hashed)) == (1, 2)
    monkeypatch.setattr(outside, "SETTLED_S", -1.0)
    assert {hashes.of(data), hashes.of(data)} == first
    assert len(hashed) == 3
    before = data.stat()
    (tmp_path / "new").write_text("two")
    os.utime(tmp_path / "new", ns=(before.st_atime_ns, before.st_mtime_ns))
    (tmp_path / "new").replace(data)
    assert hashes.of(data) not in first


def test_a_file_that_is_removed_while_it_is_read_has_the_hash_of_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it is gone by now is no failure of the disk."""
    data, really = tmp_path / "data.csv", hashlib.file_digest
    data.write_text("one")
    expected = OutsideHashes().of(data)

    def removing(file: BinaryIO, name: str) -> object:
        data.unlink()
        return really(file, name)

    monkeypatch.setattr(outside, "SETTLED_S", -1.0)
    monkeypatch.setattr(hashlib, "file_digest", removing)
    hashes = OutsideHashes()
    assert (hashes.of(data), hashes.of(data)) == (expected, "missing")
