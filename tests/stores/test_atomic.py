"""Whole-file writes that never show a half, and setting aside that never overwrites."""

import errno
import os
import re
import socket
from pathlib import Path

import pytest

from holdfast import clock
from holdfast.stores import atomic, disk
from outside import OUTSIDE


@pytest.fixture
def frozen_time(monkeypatch):
    monkeypatch.setattr(clock, "now", lambda: 1767969022.0)


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


def test_a_link_at_the_target_is_replaced_not_followed(tmp_path):
    """Writing over a link changes the link, never the file it points to."""
    (tmp_path / "real").write_bytes(b"precious")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    atomic.write_file(tmp_path / "link", b"new", sync=False)
    assert (tmp_path / "real").read_bytes() == b"precious"
    assert not (tmp_path / "link").is_symlink()


def test_a_temporary_left_by_a_process_with_our_pid_is_not_touched(tmp_path, monkeypatch):
    """A name that is taken is passed over."""
    monkeypatch.setattr(atomic, "_counter", iter(range(1, 10)))
    taken = tmp_path / f".hf-tmp-{os.getpid()}-1"
    taken.write_bytes(b"someone's")
    atomic.write_file(tmp_path / "file", b"x", sync=False)
    assert taken.read_bytes() == b"someone's"
    assert (tmp_path / "file").read_bytes() == b"x"


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
        atomic.read_file(tmp_path / "x")
    assert caught.value.errno == expected


def test_read_file_gives_all_bytes_up_to_the_limit(tmp_path):
    """A file at the limit is read whole, one above it is EFBIG."""
    (tmp_path / "x").write_bytes(b"12345")
    assert atomic.read_file(tmp_path / "x", limit=5) == b"12345"
    with pytest.raises(OSError) as caught:
        atomic.read_file(tmp_path / "x", limit=4)
    assert caught.value.errno == errno.EFBIG


@pytest.mark.usefixtures("frozen_time")
def test_setting_aside_twice_in_one_second_keeps_both(tmp_path):
    """Names carry a number, so that nothing is overwritten even within one second."""
    kept = []
    for content in (b"first", b"second"):
        (tmp_path / "x").write_bytes(content)
        kept.append(atomic.set_aside(tmp_path / "x", tmp_path / "q"))
    assert [path.name for path in kept] == ["x.20260109T143022Z.1", "x.20260109T143022Z.2"]
    assert [path.read_bytes() for path in kept] == [b"first", b"second"]
    assert not (tmp_path / "x").exists()


@pytest.mark.usefixtures("frozen_time")
def test_folders_and_links_are_set_aside_as_they_are(tmp_path):
    """A folder keeps its content; a link, even a dangling one, stays a link."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "inner").write_bytes(b"x")
    (tmp_path / "l").symlink_to("nowhere")
    folder = atomic.set_aside(tmp_path / "d", tmp_path / "q", label="odd")
    link = atomic.set_aside(tmp_path / "l", tmp_path / "q")
    assert folder.name == "d.odd.20260109T143022Z.1"
    assert (folder / "inner").read_bytes() == b"x"
    assert os.readlink(link) == "nowhere"


@pytest.mark.usefixtures("frozen_time")
def test_back_up_stays_beside_and_never_overwrites(tmp_path):
    """NAME.bak.TIMESTAMP, then the same with a number."""
    (tmp_path / "a.md").write_bytes(b"1")
    first = atomic.back_up(tmp_path / "a.md")
    (tmp_path / "a.md").write_bytes(b"2")
    second = atomic.back_up(tmp_path / "a.md")
    assert first == tmp_path / "a.md.bak.20260109T143022Z"
    assert second == tmp_path / "a.md.bak.20260109T143022Z.2"
    assert (first.read_bytes(), second.read_bytes()) == (b"1", b"2")


def test_a_name_of_full_length_can_be_set_aside(tmp_path):
    """The new name is shortened to what the file system allows."""
    path = tmp_path / ("ä" * 127)
    path.write_bytes(b"x")
    assert atomic.back_up(path).read_bytes() == b"x"


def test_a_failed_set_aside_leaves_the_file_and_no_reservation(tmp_path):
    """If the rename fails, the file is where it was and the reserved name is free again."""
    (tmp_path / "x").write_bytes(b"x")
    (tmp_path / "q").mkdir()
    with disk.failing_at(2, errno.EIO), pytest.raises(OSError):
        atomic.set_aside(tmp_path / "x", tmp_path / "q")
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
                atomic.cut_tail(fd, path, 4, quarantine)
        except OSError:
            pass
        os.close(fd)
        kept = [entry.read_bytes() for entry in quarantine.iterdir()] if quarantine.exists() else []
        assert path.read_bytes() == b"goodtorn" or b"torn" in kept
        if len(operations) < number:
            break
    assert path.read_bytes() == b"good"


DEAD_PID = 2**31 - 1  # above any that a system gives


def test_litter_is_known_by_its_exact_name(tmp_path):
    """Only regular files of our own pattern are removed."""
    dead = DEAD_PID
    for name in (f".hf-tmp-{dead}-3", f".hf-tmp-{dead}-x", "my.hf-tmp-1-2", "chapter.md"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / f".hf-tmp-{dead}-1").mkdir()
    assert atomic.clear_litter(tmp_path) == 1
    assert set(os.listdir(tmp_path)) == {f".hf-tmp-{dead}-1", f".hf-tmp-{dead}-x", "chapter.md", "my.hf-tmp-1-2"}
    assert atomic.clear_litter(tmp_path / "missing") == 0


def test_the_temporaries_of_a_living_process_are_no_litter(tmp_path):
    """It is about to rename them; those that bear our own number are left from a dead process that had it."""
    (tmp_path / f".hf-tmp-{os.getppid()}-1").write_bytes(b"at work")
    (tmp_path / f".hf-tmp-{os.getpid()}-1").write_bytes(b"left")
    (tmp_path / f".hf-tmp-{os.getpid()}-0123abcd-1").write_bytes(b"left by one that had our number")
    assert atomic.clear_litter(tmp_path) == 2
    assert os.listdir(tmp_path) == [f".hf-tmp-{os.getppid()}-1"]


def test_what_steps_of_dead_processes_wrote_is_litter(tmp_path: Path) -> None:
    """Files and folders, also of a process that had our number; those of living processes, and our own, stay."""
    outside = tmp_path / "chapter.md"
    outside.write_text("a person's")
    for name in (
        f"out-{DEAD_PID}-1-a.bin",
        f"out-{os.getpid()}-0123abcd-1-2024.csv",
        f"out-{os.getppid()}-1-b.bin",
    ):
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / f"out-{DEAD_PID}-0123abcd-2-out").mkdir()
    (tmp_path / f"out-{DEAD_PID}-0123abcd-2-out" / "link").symlink_to(outside)
    own = atomic.fresh_output(tmp_path, "a.bin")
    own.write_bytes(b"growing")
    assert atomic.clear_litter(tmp_path) == 3
    assert set(os.listdir(tmp_path)) == {f"out-{os.getppid()}-1-b.bin", own.name, "chapter.md"}
    assert outside.read_text() == "a person's"


def test_a_path_for_a_steps_own_file_is_never_given_twice(tmp_path: Path) -> None:
    """Another process may have had our number: neither that nor a long name makes two of them one."""
    paths = {atomic.fresh_output(tmp_path, f"{'ä' * 120}.bin") for _ in range(3)}
    assert len(paths) == 3
    assert all(len(os.fsencode(path.name)) < 255 and path.suffix == ".bin" for path in paths)
    assert all(re.match(rf"out-{os.getpid()}-[0-9a-f]{{8}}-\d+-", path.name) for path in paths)


def test_what_another_thread_is_writing_is_no_litter(tmp_path: Path) -> None:
    """A temporary of this very process is in use: only one that was here before it is litter."""
    temp, descriptor = atomic.create_temp(os.fspath(tmp_path))
    os.close(descriptor)
    assert atomic.clear_litter(tmp_path) == 0
    assert os.path.exists(temp)


def test_a_forked_process_has_names_of_its_own(tmp_path: Path) -> None:
    """What a child that died has left is neither in the way of the next child nor kept by it."""
    for _ in range(2):
        child = os.fork()
        if not child:
            atomic.clear_litter(tmp_path)
            atomic.fresh_output(tmp_path, "film.bin").mkdir(exist_ok=True)
            os._exit(0)
        os.waitpid(child, 0)
        (left,) = os.listdir(tmp_path)
        assert left.startswith(f"out-{child}-")
