"""Room for our own files: what stands in the way is moved, never followed, never lost."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.stores.places import room_for_file, room_for_folder, sound_quarantine


def test_nothing_in_the_way_is_left_as_it_is(tmp_path: Path) -> None:
    """A regular file where one belongs, a folder where one belongs, and nothing at all."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    quarantine = tmp_path / "quarantine"
    assert room_for_file(tmp_path / "file", quarantine) == []
    assert room_for_folder(tmp_path / "folder", quarantine) == []
    assert room_for_file(tmp_path / "missing", quarantine) == []
    assert not quarantine.exists()


def test_a_link_is_moved_as_a_link(tmp_path: Path) -> None:
    """What it leads to is not touched."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("theirs")
    link.symlink_to(target)
    (told,) = room_for_file(link, tmp_path / "quarantine")
    assert told.startswith("link was a symbolic link and is kept as quarantine/link.")
    assert target.read_text() == "theirs" and not os.path.lexists(link)
    (kept,) = (tmp_path / "quarantine").iterdir()
    assert kept.is_symlink()


def test_a_folder_is_moved_with_all_in_it(tmp_path: Path) -> None:
    """Somebody's files in it are kept."""
    (tmp_path / "lock").mkdir()
    (tmp_path / "lock" / "theirs").write_text("keep me")
    room_for_file(tmp_path / "lock", tmp_path / "quarantine")
    (kept,) = (tmp_path / "quarantine").iterdir()
    assert (kept / "theirs").read_text() == "keep me"


def test_a_quarantine_that_is_a_link_is_moved_first(tmp_path: Path) -> None:
    """Nothing is set aside through it."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "quarantine").symlink_to(elsewhere)
    (tmp_path / "tmp").write_text("a file")
    told = room_for_folder(tmp_path / "tmp", tmp_path / "quarantine")
    assert len(told) == 2 and os.listdir(elsewhere) == []
    assert sound_quarantine(tmp_path / "quarantine") == []
