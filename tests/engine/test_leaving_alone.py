"""--only-needed leaves alone what nothing unfinished needs; --quick believes what nobody touched."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from harness import Harness, RunResult
from holdfast import Pipeline


class Chain:
    """a -> b -> c, each a file; `made` lists what ran."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.made: list[str] = []

    def run(self, **wishes: bool) -> RunResult:
        self.made.clear()
        return Harness(self.root).run(self.pipeline(), **wishes)  # type: ignore[arg-type]

    def pipeline(self) -> Pipeline:
        pipe = Pipeline("chain")

        @pipe.step(writes="a.md")
        def a() -> str:
            self.made.append("a")
            return "a\n"

        @pipe.step(writes="b.md")
        def b(a: str) -> str:
            self.made.append("b")
            return a + "b\n"

        @pipe.step(writes="c.txt")
        def c(b: str) -> str:
            self.made.append("c")
            return b + "c\n"

        return pipe

    def lose(self, *names: str, copies: bool) -> None:
        for name in names:
            (self.root / name).unlink()
        if copies:
            shutil.rmtree(self.root / ".holdfast" / "objects")


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    project = Chain(tmp_path)
    assert project.run().status == "completed"
    return project


@pytest.mark.parametrize("copies", [False, True])
def test_a_missing_intermediate_comes_back_by_default(chain: Chain, copies: bool) -> None:
    """Healed from its copy, or made again, although everything behind it is finished."""
    chain.lose("a.md", copies=copies)
    assert chain.run().status == "completed"
    assert (chain.root / "a.md").exists()
    assert chain.made == (["a"] if copies else [])


def test_only_needed_leaves_a_missing_intermediate_alone(chain: Chain) -> None:
    """Nothing unfinished takes it: it is neither restored nor made again."""
    chain.lose("a.md", copies=True)
    result = chain.run(only_needed=True)
    assert (result.status, result.left_alone) == ("completed", ("a.md",))
    assert (chain.root / "a.md").exists() is False
    assert not chain.made


def test_only_needed_makes_what_an_unfinished_task_takes(chain: Chain) -> None:
    """b is gone and must be made again for c, so a is needed too."""
    chain.lose("a.md", "b.md", "c.txt", copies=True)
    assert chain.run(only_needed=True).status == "completed"
    assert chain.made == ["a", "b", "c"]


def test_only_needed_still_restores_a_final_result(chain: Chain) -> None:
    """What nothing takes is what the run was for."""
    chain.lose("c.txt", copies=False)
    assert chain.run(only_needed=True).status == "completed"
    assert (chain.root / "c.txt").exists()


def test_quick_believes_an_untouched_file_without_reading_it(chain: Chain) -> None:
    """Same inode, time and size: it is not read, and that is said."""
    path = chain.root / "c.txt"
    before = path.stat()
    with path.open("r+b") as file:  # damage that leaves no trace but the bytes
        file.write(b"X")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    result = chain.run(quick=True)
    assert (result.status, result.unread) == ("completed", 3)
    assert path.read_bytes().startswith(b"X")
    assert chain.run().unread == 0
    assert path.read_bytes() == b"a\nb\nc\n"


def test_quick_finds_no_copies_missing_that_are_there(chain: Chain) -> None:
    """What is in objects/ is known without reading the files."""
    chain.run(quick=True)
    assert not Harness(chain.root).events("state_mended")


def test_quick_reads_a_file_that_was_touched(chain: Chain) -> None:
    """A newer time is enough to have it hashed."""
    (chain.root / "c.txt").write_bytes(b"Xn\nb\nc\n")
    result = chain.run(quick=True)
    assert (result.status, result.unread) == ("completed", 2)
    assert (chain.root / "c.txt").read_bytes() == b"a\nb\nc\n"


def test_a_value_that_is_left_alone_is_told(tmp_path: Path) -> None:
    """Nothing but a value is lost: the run does not claim that all is verified."""
    pipe = Pipeline("values")

    @pipe.step
    def large() -> str:
        return "x" * 5000

    @pipe.step(writes="b.md")
    def b(large: str) -> str:
        return large[:3]

    harness = Harness(tmp_path)
    assert harness.run(pipe).status == "completed"
    shutil.rmtree(tmp_path / ".holdfast" / "objects")
    result = harness.run(pipe, only_needed=True)
    assert (result.status, result.left_alone) == ("completed", ("the value of large",))
    assert harness.run(pipe).left_alone == ()
