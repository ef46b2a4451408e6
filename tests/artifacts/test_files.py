"""Files as they lie there, of which some were read ahead: what was read and what is there now are not mixed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import seals
from holdfast.artifacts.files import Files
from holdfast.artifacts.looks import MARKED, MISSING, SEALED
from holdfast.seals import Seal
from holdfast.stores import tree as tree_module
from holdfast.stores.tree import WorkTree
from holdfast.values import digest

NO_SECTIONS: Any = None
MARKED_TEXT = b"text\n<!-- A_COMPLETE -->\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    """Looks at a project whose only file, which ends in a plain marker, was read ahead."""
    monkeypatch.setattr(tree_module, "FILES_MIN", 1)
    (tmp_path / "a.md").write_bytes(MARKED_TEXT)
    tree = WorkTree(tmp_path, tmp_path / "tmp")
    files = Files(tree, NO_SECTIONS, quick=False)
    files.expect(["a.md"], many_at_once=True)
    assert tree._ahead is not None and tree._ahead._process is not None
    tree._ahead._process.wait()
    yield files
    tree.close()


def test_a_plain_marker_is_none_of_our_seals(files: Files) -> None:
    """Though it begins as a seal does."""
    found = files.look("a.md", ["a"], "A_COMPLETE", in_turn=True)
    assert (found.kind, found.body) == (MARKED, MARKED_TEXT)


def test_a_file_that_is_gone_when_it_is_read_again_is_missing(files: Files, tmp_path: Path) -> None:
    """That it was there a moment ago makes it no failure of the disk."""
    (tmp_path / "a.md").unlink()
    assert files.look("a.md", ["a"], "A_COMPLETE", in_turn=True).kind == MISSING


def test_a_file_that_is_another_when_it_is_read_again_is_hashed_again(files: Files, tmp_path: Path) -> None:
    """The hash of what was there before says nothing about it."""
    seal = Seal("a", "R", 0, "0" * 64, digest(b"sealed\n"))
    (tmp_path / "a.md").write_bytes(b"sealed\n" + seals.write_seal(seal))
    found = files.look("a.md", ["a"], "A_COMPLETE", in_turn=True)
    assert (found.kind, found.body) == (SEALED, b"sealed\n")
