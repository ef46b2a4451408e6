"""The disk: hooks, counters, short writes, and processes that die where they are told to."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.children import unsynced

from holdfast.stores import disk

WRITER = """
import sys
from pathlib import Path
from holdfast.stores import atomic
atomic.write_file(Path(sys.argv[1]), b"new" * 1000, sync=True)
"""


def run_killed_at(when: str, target: Path) -> int:
    command = [sys.executable, "-c", WRITER, str(target)]
    return subprocess.run(command, env=unsynced(HOLDFAST_KILL_AT=when), check=False).returncode


def test_write_all_continues_after_short_writes(tmp_path, monkeypatch):
    """A write that takes only some bytes at a time still puts all of them in order."""
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real_write(fd, bytes(data)[:7]))
    fd = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    disk.write_all(fd, bytes(range(100)))
    os.close(fd)
    assert (tmp_path / "file").read_bytes() == bytes(range(100))


def test_every_sync_is_asked_for_and_counted(tmp_path, monkeypatch):
    """Whoever wants a folder on the medium waits for the system to say so."""
    asked = []
    monkeypatch.setattr(os, "fsync", asked.append)
    before = disk.syncs
    disk.sync_dir(tmp_path)
    assert len(asked) == 1 and disk.syncs == before + 1


@pytest.mark.parametrize(
    "call", [lambda fd: disk.write_all(fd, b"x", "a.md"), lambda fd: disk.truncate(fd, 1, "a.md")]
)
def test_an_error_of_a_call_on_a_descriptor_names_the_file(tmp_path, call):
    """The system knows only a number; people want to know which file it was."""
    (tmp_path / "a.md").touch()
    reader = os.open(tmp_path / "a.md", os.O_RDONLY)
    try:
        with pytest.raises(OSError) as caught:
            call(reader)
    finally:
        os.close(reader)
    assert caught.value.filename == "a.md"


def test_failing_at_fails_the_chosen_operation_only(tmp_path):
    """The operation with that number raises the errno; the one before it was done."""
    with disk.failing_at(2, errno.ENOSPC), pytest.raises(OSError, match="No space left"):
        disk.mkdir(str(tmp_path / "a"))
        disk.mkdir(str(tmp_path / "b"))
    assert os.listdir(tmp_path) == ["a"]


def test_an_open_never_follows_a_link(tmp_path):
    """Opening a link for writing is refused, and its target is untouched."""
    (tmp_path / "real").write_bytes(b"precious")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError) as caught:
        disk.open_file(str(tmp_path / "link"), os.O_WRONLY | os.O_TRUNC)
    assert caught.value.errno == errno.ELOOP
    assert (tmp_path / "real").read_bytes() == b"precious"


@pytest.mark.parametrize("how", ["", ":torn"])
def test_a_process_killed_at_every_operation_leaves_the_old_file_or_the_new(tmp_path, how):
    """HOLDFAST_KILL_AT stops a real process at each operation; the target is never anything in between."""
    target = tmp_path / "target"
    outcomes = []
    for number in range(1, 20):
        target.write_bytes(b"old")
        status = run_killed_at(f"{number}{how}", target)
        outcomes.append((status, target.read_bytes()))
        if status == 0:
            break
    assert {content for _, content in outcomes} == {b"old", b"new" * 1000}
    assert [status for status, _ in outcomes[:-1]] == [-signal.SIGKILL] * (len(outcomes) - 1)
    assert outcomes[-1] == (0, b"new" * 1000)
    assert len(outcomes) == 6  # open, write, sync, rename, sync of the folder; then undisturbed


def test_a_torn_kill_leaves_half_of_the_write(tmp_path):
    """With `:torn` the first half of the data is on disk when the process dies."""
    assert run_killed_at("2:torn", tmp_path / "target") == -signal.SIGKILL
    (litter,) = os.listdir(tmp_path)
    assert (tmp_path / litter).read_bytes() == (b"new" * 1000)[:1500]


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """What is asked of a system that has F_FULLFSYNC, and how its file system answers."""
    calls: list[str] = []
    answer: list[OSError] = []

    def fcntl_call(fd, command):
        calls.append(f"fcntl {command}")
        if answer:
            raise answer[0]

    monkeypatch.setattr(disk, "_FULL_SYNC", 51)
    monkeypatch.setattr(disk.fcntl, "fcntl", fcntl_call)
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append("fsync"))
    return calls, answer


def test_where_fsync_does_not_reach_the_drive_the_stronger_command_is_given(asked):
    """On a system with F_FULLFSYNC that is how everything is synced, data and folders too."""
    calls, _ = asked
    disk.sync_file(3)
    disk.sync_data(3)
    disk.sync_dir(3)
    assert calls == ["fcntl 51"] * 3


def test_a_share_without_the_stronger_command_is_synced_as_well_as_it_can_be(asked):
    """A file system that does not know F_FULLFSYNC gets fsync instead of stopping the run."""
    calls, answer = asked
    answer.append(OSError(errno.ENOTSUP, "not supported"))
    disk.sync_file(3)
    assert calls == ["fcntl 51", "fsync"]


def test_a_drive_that_fails_to_sync_is_told(asked):
    """An error of the drive itself is no reason to be content with less."""
    calls, answer = asked
    answer.append(OSError(errno.EIO, "input/output error"))
    with pytest.raises(OSError, match="input/output"):
        disk.sync_file(3, "a/file")
    assert calls == ["fcntl 51"]
