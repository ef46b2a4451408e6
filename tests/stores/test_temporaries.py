"""The names of temporaries, and which of them are litter."""

import os
import re
from pathlib import Path

from holdfast.stores import atomic, temporaries

DEAD_PID = 2**31 - 1  # above any that a system gives


def test_a_temporary_of_somebody_else_is_not_touched(tmp_path, monkeypatch):
    """A name that is taken is passed over."""
    monkeypatch.setattr(temporaries, "_counter", iter(range(1, 10)))
    taken = tmp_path / f"{temporaries._OURS}1"
    taken.write_bytes(b"someone's")
    atomic.write_file(tmp_path / "file", b"x", sync=False)
    assert taken.read_bytes() == b"someone's"
    assert (tmp_path / "file").read_bytes() == b"x"


def test_litter_is_known_by_its_exact_name(tmp_path):
    """Only regular files of our own pattern are removed."""
    dead = DEAD_PID
    for name in (f".hf-tmp-{dead}-3", f".hf-tmp-{dead}-x", "my.hf-tmp-1-2", "chapter.md"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / f".hf-tmp-{dead}-1").mkdir()
    assert temporaries.clear_litter(tmp_path) == 1
    assert set(os.listdir(tmp_path)) == {f".hf-tmp-{dead}-1", f".hf-tmp-{dead}-x", "chapter.md", "my.hf-tmp-1-2"}
    assert temporaries.clear_litter(tmp_path / "missing") == 0


def test_the_temporaries_of_a_living_process_are_no_litter(tmp_path):
    """It is about to rename them; those that bear our own number are left from a dead process that had it."""
    (tmp_path / f".hf-tmp-{os.getppid()}-1").write_bytes(b"at work")
    (tmp_path / f".hf-tmp-{os.getpid()}-1").write_bytes(b"left")
    (tmp_path / f".hf-tmp-{os.getpid()}-0123abcd-1").write_bytes(b"left by one that had our number")
    assert temporaries.clear_litter(tmp_path) == 2
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
    own = temporaries.fresh_output(tmp_path, "a.bin")
    own.write_bytes(b"growing")
    assert temporaries.clear_litter(tmp_path) == 3
    assert set(os.listdir(tmp_path)) == {f"out-{os.getppid()}-1-b.bin", own.name, "chapter.md"}
    assert outside.read_text() == "a person's"


def test_a_path_for_a_steps_own_file_is_never_given_twice(tmp_path: Path) -> None:
    """Another process may have had our number: neither that nor a long name makes two of them one."""
    paths = {temporaries.fresh_output(tmp_path, f"{'ä' * 120}.bin") for _ in range(3)}
    assert len(paths) == 3
    assert all(len(os.fsencode(path.name)) < 255 and path.suffix == ".bin" for path in paths)
    assert all(re.match(rf"out-{os.getpid()}-[0-9a-f]{{8}}-\d+-", path.name) for path in paths)


def test_what_another_thread_is_writing_is_no_litter(tmp_path: Path) -> None:
    """A temporary of this very process is in use: only one that was here before it is litter."""
    temp, descriptor = temporaries.create_temp(os.fspath(tmp_path))
    os.close(descriptor)
    assert temporaries.clear_litter(tmp_path) == 0
    assert os.path.exists(temp)


def test_a_forked_process_has_names_of_its_own(tmp_path: Path) -> None:
    """What a child that died has left is neither in the way of the next child nor kept by it."""
    for _ in range(2):
        child = os.fork()
        if not child:
            temporaries.clear_litter(tmp_path)
            temporaries.fresh_output(tmp_path, "film.bin").mkdir(exist_ok=True)
            os._exit(0)
        os.waitpid(child, 0)
        (left,) = os.listdir(tmp_path)
        assert left.startswith(f"out-{child}-")
