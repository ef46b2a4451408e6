"""Reading regular files, and nothing that only has the name of one."""

import errno
import os
import socket
from pathlib import Path

import pytest

from holdfast.stores import readable
from outside import OUTSIDE


def make_link(path: Path) -> None:
    path.symlink_to(OUTSIDE)


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (make_link, errno.ELOOP),
        (Path.mkdir, errno.EISDIR),
        (make_fifo, errno.EISDIR),
        (make_socket, errno.EISDIR),
        (lambda path: None, errno.ENOENT),
    ],
)
def test_read_file_reads_regular_files_only(tmp_path, make, expected):
    """Anything but a regular file is an error at once, with an errno that tells what."""
    make(tmp_path / "x")
    with pytest.raises(OSError) as caught:
        readable.read_file(tmp_path / "x")
    assert caught.value.errno == expected


def test_read_file_gives_all_bytes_up_to_the_limit(tmp_path):
    """A file at the limit is read whole, one above it is EFBIG."""
    (tmp_path / "x").write_bytes(b"12345")
    assert readable.read_file(tmp_path / "x", limit=5) == b"12345"
    with pytest.raises(OSError) as caught:
        readable.read_file(tmp_path / "x", limit=4)
    assert caught.value.errno == errno.EFBIG


def test_the_number_of_a_descriptor_is_no_name():
    """Which is what the system names if a folder that is open cannot be listed."""
    with pytest.raises(OSError, match=r"'notes'"), readable.naming("notes"):
        raise OSError(errno.EIO, os.strerror(errno.EIO), 7)


@pytest.mark.parametrize("call", ["read", "fstat"])
def test_what_fails_behind_the_opening_names_the_file(tmp_path, monkeypatch, call):
    """A bad sector is met when the file is open, and the system does not say of which file it speaks."""
    path = tmp_path / "notes.md"
    path.write_bytes(b"text")

    def failing(*args: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch, pytest.raises(OSError, match=r"Input/output error") as caught:
        patch.setattr(os, call, failing)
        readable.read_file(path)
    assert caught.value.filename == str(path)
