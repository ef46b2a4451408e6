"""Setting aside that never overwrites, and keeps before it cuts."""

import errno
import os

import pytest

from holdfast import clock
from holdfast.stores import asides, disk


@pytest.fixture
def frozen_time(monkeypatch):
    monkeypatch.setattr(clock, "now", lambda: 1767969022.0)


@pytest.mark.usefixtures("frozen_time")
def test_setting_aside_twice_in_one_second_keeps_both(tmp_path):
    """Names carry a number, so that nothing is overwritten even within one second."""
    kept = []
    for content in (b"first", b"second"):
        (tmp_path / "x").write_bytes(content)
        kept.append(asides.set_aside(tmp_path / "x", tmp_path / "q"))
    assert [path.name for path in kept] == ["x.20260109T143022Z.1", "x.20260109T143022Z.2"]
    assert [path.read_bytes() for path in kept] == [b"first", b"second"]
    assert not (tmp_path / "x").exists()


@pytest.mark.usefixtures("frozen_time")
def test_folders_and_links_are_set_aside_as_they_are(tmp_path):
    """A folder keeps its content; a link, even a dangling one, stays a link."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "inner").write_bytes(b"x")
    (tmp_path / "l").symlink_to("nowhere")
    folder = asides.set_aside(tmp_path / "d", tmp_path / "q")
    link = asides.set_aside(tmp_path / "l", tmp_path / "q")
    assert folder.name == "d.20260109T143022Z.1"
    assert (folder / "inner").read_bytes() == b"x"
    assert os.readlink(link) == "nowhere"


@pytest.mark.usefixtures("frozen_time")
def test_back_up_stays_beside_and_never_overwrites(tmp_path):
    """NAME.bak.TIMESTAMP, then the same with a number."""
    (tmp_path / "a.md").write_bytes(b"1")
    first = asides.back_up(tmp_path / "a.md")
    (tmp_path / "a.md").write_bytes(b"2")
    second = asides.back_up(tmp_path / "a.md")
    assert first == tmp_path / "a.md.bak.20260109T143022Z"
    assert second == tmp_path / "a.md.bak.20260109T143022Z.2"
    assert (first.read_bytes(), second.read_bytes()) == (b"1", b"2")


def test_a_name_of_full_length_can_be_set_aside(tmp_path):
    """The new name is shortened to what the file system allows."""
    path = tmp_path / ("ä" * 127)
    path.write_bytes(b"x")
    assert asides.back_up(path).read_bytes() == b"x"


def test_a_failed_set_aside_leaves_the_file_and_no_reservation(tmp_path):
    """If the rename fails, the file is where it was and the reserved name is free again."""
    (tmp_path / "x").write_bytes(b"x")
    (tmp_path / "q").mkdir()
    with disk.failing_at(2, errno.EIO), pytest.raises(OSError):
        asides.set_aside(tmp_path / "x", tmp_path / "q")
    assert (tmp_path / "x").read_bytes() == b"x"
    assert os.listdir(tmp_path / "q") == []


def test_cut_tail_keeps_the_cut_bytes_before_it_cuts(tmp_path):
    """Whatever operation fails, the bytes are in the file or in quarantine."""
    path = tmp_path / "log"
    for number in range(1, 20):
        quarantine = tmp_path / f"q{number}"
        path.write_bytes(b"good" + b"torn")
        fd = os.open(path, os.O_RDWR)
        try:
            with disk.failing_at(number, errno.EIO) as operations:
                asides.cut_tail(fd, path, 4, quarantine)
        except OSError:
            pass
        os.close(fd)
        kept = [entry.read_bytes() for entry in quarantine.iterdir()] if quarantine.exists() else []
        assert path.read_bytes() == b"goodtorn" or b"torn" in kept
        if len(operations) < number:
            break
    assert path.read_bytes() == b"good"
