"""Whole-file writes that never show a half."""

import errno
import os
import stat

import pytest

from holdfast.stores import atomic, disk


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("via_tmp", [False, True])
def test_a_failure_at_any_operation_leaves_the_target_untouched_and_no_litter(tmp_path, torn, via_tmp):
    """Up to the rename the old content stays, the errno is the injected one, and no temporary is left."""
    target, tmp = tmp_path / "work" / "file", tmp_path / "tmp"
    atomic.make_dirs(target.parent, sync=False)
    atomic.make_dirs(tmp, sync=False)
    for number in range(1, 6):
        target.write_bytes(b"old")
        with disk.failing_at(number, errno.ENOSPC, torn=torn), pytest.raises(OSError) as caught:
            atomic.write_file(target, b"new", sync=True, tmp_dir=tmp if via_tmp else None)
        assert caught.value.errno == errno.ENOSPC
        assert os.listdir(target.parent) == ["file"]
        assert os.listdir(tmp) == []
        renamed = number == 5  # only the sync of the folder failed
        assert target.read_bytes() == (b"new" if renamed else b"old")


def test_the_first_error_is_shown_even_if_cleaning_up_fails_too(tmp_path):
    """ENOSPC on the write is reported although removing the temporary then fails with EIO."""

    def fail(op: str, path: str) -> None:
        if op in ("write", "unlink"):
            raise OSError(errno.ENOSPC if op == "write" else errno.EIO, op)

    disk.hook = fail
    try:
        with pytest.raises(OSError) as caught:
            atomic.write_file(tmp_path / "file", b"x", sync=True)
    finally:
        disk.hook = None
    assert caught.value.errno == errno.ENOSPC


def test_a_temporary_folder_on_another_device_is_not_used(tmp_path):
    """EXDEV on the rename puts the temporary beside the target, and the write succeeds."""
    failed = []

    def other_device(op: str, path: str) -> None:
        if op == "rename" and not failed:
            failed.append(path)
            raise OSError(errno.EXDEV, "cross-device")

    disk.hook = other_device
    try:
        atomic.write_file(tmp_path / "file", b"x", sync=False, tmp_dir=tmp_path / "tmp")
    finally:
        disk.hook = None
    assert failed
    assert (tmp_path / "file").read_bytes() == b"x"
    assert os.listdir(tmp_path / "tmp") == []


def test_a_file_moved_from_another_device_is_durable_before_it_has_its_name(tmp_path, monkeypatch):
    """The copy is synced, and then renamed; its folder is synced, too."""
    (tmp_path / "made").write_bytes(b"text")
    (tmp_path / "to").mkdir()
    seen = []

    def other_device(op: str, path: str) -> None:
        seen.append((op, "made" if path.endswith("made") else "to"))
        if op == "rename" and seen.count(("rename", "to")) == 1:
            raise OSError(errno.EXDEV, "cross-device")

    monkeypatch.setattr(disk, "hook", other_device)
    atomic.move_file(tmp_path / "made", str(tmp_path / "to/file"), sync=True)
    after = seen[seen.index(("rename", "to")) + 1 :]
    assert [one for one in after if one[0] != "open"] == [
        ("write", "to"),
        ("sync", "to"),
        ("rename", "to"),
        ("unlink", "made"),
        ("sync", "to"),
    ]
    assert ((tmp_path / "to/file").read_bytes(), (tmp_path / "made").exists()) == (b"text", False)


def test_a_link_at_the_target_is_replaced_not_followed(tmp_path):
    """Writing over a link changes the link, never the file it points to."""
    (tmp_path / "real").write_bytes(b"precious")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    atomic.write_file(tmp_path / "link", b"new", sync=False)
    assert (tmp_path / "real").read_bytes() == b"precious"
    assert not (tmp_path / "link").is_symlink()


def test_make_dirs_syncs_every_parent_in_order(tmp_path):
    """Each folder's entry is durable before the next folder is made in it."""
    with disk.failing_at(0, 0) as operations:
        atomic.make_dirs(tmp_path / "a" / "b", sync=True)
    assert operations == [
        f"mkdir {tmp_path}/a",
        f"sync {tmp_path}",
        f"mkdir {tmp_path}/a/b",
        f"sync {tmp_path}/a",
    ]


def test_make_dirs_refuses_a_file_in_the_way(tmp_path):
    """A file where a folder must be is an error, not a crash later."""
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(OSError):
        atomic.make_dirs(tmp_path / "a" / "b", sync=False)


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path):
    """Whoever closed it to others, or opened it to them, meant it; a new one has those of the umask."""
    path = tmp_path / "a.md"
    atomic.write_file(path, b"one", sync=False)
    assert mode(path) == 0o666 & ~umask()
    path.chmod(0o640)
    atomic.write_file(path, b"two", sync=False, tmp_dir=tmp_path / "tmp")
    assert (path.read_bytes(), mode(path)) == (b"two", 0o640)
    path.chmod(0o4711)
    atomic.write_file(path, b"three", sync=False)
    assert (path.read_bytes(), mode(path)) == (b"three", 0o711)


def test_permissions_that_cannot_be_read_are_not_lost(tmp_path, monkeypatch):
    """A file that was closed to others stays as it is; it is not opened to them by a look that failed once."""
    path = tmp_path / "a.md"
    path.write_bytes(b"one")
    path.chmod(0o600)
    really = os.stat

    def failing(name, **named):
        if os.fspath(name) == str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)
        return really(name, **named)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output error"):
        patch.setattr(os, "stat", failing)
        atomic.write_file(path, b"two", sync=False, tmp_dir=tmp_path / "tmp")
    assert (path.read_bytes(), mode(path)) == (b"one", 0o600)
    assert os.listdir(tmp_path) == ["a.md"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_another_users_permissions_are_not_taken_over(tmp_path):
    """A file that only its owner could read would otherwise be one that its owner cannot."""
    path = tmp_path / "a.md"
    path.touch()
    path.chmod(0o600)
    os.chown(path, 65534, 65534)
    atomic.write_file(path, b"one", sync=False)
    assert mode(path) == 0o666 & ~umask()


def test_a_file_that_cannot_be_looked_at_while_it_is_replaced_is_named(tmp_path, monkeypatch):
    """A descriptor does not know its file."""
    target = tmp_path / "page.md"
    target.write_bytes(b"old")

    def stale(fd):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", stale)
        with pytest.raises(OSError, match=r"Stale file handle: '.*hf-tmp"):
            atomic.write_file(target, b"new", sync=False)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("page.md", b"old")]


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def umask():
    now = os.umask(0)
    os.umask(now)
    return now
