"""The work tree on paper: what would be there, without anything being touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.stores.paper import Paper, PaperTree


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[PaperTree]:
    for name in ("a.md", "b.md", "c.md"):
        (tmp_path / "out" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "out" / name).write_text("text")
    made = PaperTree(tmp_path, tmp_path / "tmp", tmp_path / "quarantine", Paper(tmp_path))
    yield made
    made.close()


def test_a_folder_lists_what_would_be_in_it(tree: PaperTree, tmp_path: Path) -> None:
    """New names and renamed ones are there, removed ones are not, also if the same name comes back."""
    tree.remove("out/a.md")
    tree.rename("out/b.md", "out/deep/b.md")
    tree.land(tree.stage("new.md", b"text", sync=False))
    tree.land(tree.stage("out/a.md", b"text", sync=False))
    tree.remove("out/c.md")
    assert tree.names("out") == {"a.md"}
    assert tree.names("out/deep") == {"b.md"}
    assert "new.md" in tree.names("")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.md", "b.md", "c.md"]


def test_listing_a_folder_does_not_look_through_all_others(
    tree: PaperTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cost hangs on the folder: with one folder an item it would grow with their square."""
    asked: list[str] = []

    class Counting(dict[str, object]):
        def __contains__(self, path: object) -> bool:
            asked.append(str(path))
            return super().__contains__(path)

        def __iter__(self) -> Iterator[str]:
            for path in super().__iter__():
                asked.append(path)
                yield path

    monkeypatch.setattr(tree, "_new", Counting())
    for number in range(100):
        tree.land(tree.stage(f"item{number}/x.md", b"text", sync=False))
    asked.clear()
    assert tree.names("item7") == {"x.md"}
    assert asked == ["item7/x.md"]
