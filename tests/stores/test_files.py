"""What every store of files promises: the one on disk, the one in memory, and one that may fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.errors import MISSING, STRANGE, TOO_LARGE, InTheWayError, StorageError, UnreadableError, UsageError
from holdfast.stores.protocols import FILE, FOLDER, Files
from holdfast.stores.tree import LocalFiles
from holdfast.testing import FailingFiles, MemoryFiles


class LocalWorld:
    """A folder; every `open` is another process."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.root.mkdir()
        self._opened: list[LocalFiles] = []

    def open(self) -> Files:
        state = self.root / ".holdfast"
        files = LocalFiles(self.root, state / "tmp", state / "runs" / "r" / "quarantine")
        self._opened.append(files)
        return files

    def kept(self, told: str) -> str:
        """Where something lies that is told to be kept, by its path in the project."""
        return f".holdfast/runs/r/{told}" if told.startswith("quarantine/") else told

    def crash(self) -> None:
        for files in self._opened:
            files.close()


class MemoryWorld:
    """A dict."""

    def __init__(self, folder: Path) -> None:
        self.files = MemoryFiles()

    def open(self) -> Files:
        return self.files

    def kept(self, told: str) -> str:
        return told

    def crash(self) -> None:
        self.files.crash()


class FailingWorld(MemoryWorld):
    """One that could fail, and does not: the wrapper changes nothing else."""

    def open(self) -> Files:
        return FailingFiles(super().open(), 0)


World = LocalWorld | MemoryWorld


@pytest.fixture(params=[LocalWorld, MemoryWorld, FailingWorld])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = request.param(tmp_path)
    yield made
    made.open().close()
    if isinstance(made, LocalWorld):
        made.crash()


def write(files: Files, path: str, data: bytes, *, sync: bool = True) -> None:
    files.land(files.stage(path, data, sync=sync))


def why(act: Callable[[], object]) -> str:
    with pytest.raises(UnreadableError) as caught:
        act()
    return caught.value.why


# --- a file and its place ----------------------------------------------------------------------------------


def test_what_has_landed_is_read_by_another_process(world: World) -> None:
    """Folders are made as they are needed; bytes come back as they are, whole or in pieces."""
    for number, data in enumerate((b"", b"text\n", bytes(range(256)) * 9000)):
        path = f"deep/er/{number}.bin"
        write(world.open(), path, data)
        again = world.open()
        assert again.read(path) == data == b"".join(again.blocks(path))
        assert again.tail(path, 7) == data[-7:]
        found = again.look(path)
        assert found is not None and (found.kind, found.size) == (FILE, len(data))


def test_what_is_staged_is_nowhere_until_it_lands(world: World) -> None:
    """And never, if it is discarded; to discard what has landed is harmless."""
    files = world.open()
    staged = files.stage("a.md", b"text", sync=True)
    assert files.look("a.md") is None and why(lambda: files.read("a.md")) == MISSING
    files.discard(staged)
    files.discard(staged)
    assert "a.md" not in files.names("")
    landed = files.stage("a.md", b"text", sync=True)
    files.land(landed)
    files.discard(landed)
    assert files.read("a.md") == b"text"


def test_a_mark_tells_every_file_from_the_one_before(world: World) -> None:
    """It is known when the file is staged, stays when it lands, and another of the same bytes has another."""
    files = world.open()
    first = files.stage("a.md", b"text", sync=False)
    files.land(first)
    found = files.look("a.md")
    assert found is not None and found.mark == first.found.mark
    second = files.stage("a.md", b"text", sync=False)
    files.land(second)
    assert second.found.mark != first.found.mark


def test_of_a_file_that_is_replaced_readers_see_the_old_or_the_new(world: World) -> None:
    """While one lands a hundred versions, nobody reads a part of any, or nothing."""
    files, over = world.open(), threading.Event()
    versions = [bytes([number]) * 5000 for number in range(100)]
    write(files, "a.bin", versions[0])
    seen: list[bytes] = []

    def look() -> None:
        while not over.is_set():
            seen.append(files.read("a.bin"))

    reader = threading.Thread(target=look)
    reader.start()
    for data in versions:
        write(files, "a.bin", data, sync=False)
    over.set()
    reader.join()
    assert seen and set(seen) <= set(versions)


def test_a_file_that_a_step_wrote_is_claimed_and_lands(world: World) -> None:
    """It is hashed, ends its last line if that is wanted, and is gone from where it was."""
    files = world.open()
    for name, wants_line, whole in (("a.md", True, b"text\n"), ("a.bin", False, b"text"), ("b.md", True, b"")):
        out = files.fresh_path(name)
        assert not out.exists() and out.name.endswith(name)
        out.write_bytes(whole.rstrip(b"\n"))
        claimed = files.claim(out, ends_line=wants_line)
        assert claimed is not None
        assert (claimed.size, claimed.newline_added) == (len(whole), whole == b"text\n")
        assert b"".join(files.blocks(out)) == whole
        files.land(files.stage(name, out, b"<!-- seal -->\n", sync=True))
        assert files.read(name) == whole + b"<!-- seal -->\n"
        assert not out.exists()


def test_what_is_no_file_is_not_claimed(world: World, tmp_path: Path) -> None:
    """Nothing, a folder, and a link to somebody's file."""
    files = world.open()
    out = files.fresh_path()
    assert files.claim(out) is None
    (tmp_path / "theirs").write_bytes(b"theirs")
    out.symlink_to(tmp_path / "theirs")
    assert files.claim(out, ends_line=True) is None
    assert (tmp_path / "theirs").read_bytes() == b"theirs"


def test_a_claimed_file_shares_its_bytes_with_no_other_name(world: World, tmp_path: Path) -> None:
    """A step may have linked its output to somebody's file: what is put to its end is in one of them only."""
    files = world.open()
    out = files.fresh_path("a.md")
    (tmp_path / "theirs").write_bytes(b"theirs")
    out.hardlink_to(tmp_path / "theirs")
    files.claim(out, ends_line=True)
    files.land(files.stage("a.md", out, b"seal\n", sync=False))
    assert (tmp_path / "theirs").read_bytes() == b"theirs"
    assert files.read("a.md") == b"theirs\nseal\n"


def test_what_was_left_at_a_fresh_path_is_discarded(world: World) -> None:
    """Also if nothing was."""
    files = world.open()
    out = files.fresh_path("a.bin")
    files.discard(out)
    out.write_bytes(b"half a film")
    files.discard(out)
    assert not out.exists()


# --- what stands at a name ---------------------------------------------------------------------------------


def test_what_is_not_to_be_had_says_why(world: World) -> None:
    """Missing is one thing, a folder another, and too many bytes a third; nothing of it is an OSError."""
    files = world.open()
    write(files, "folder/a.md", b"12345")
    assert why(lambda: files.read("missing.md")) == why(lambda: files.tail("no/such", 9)) == MISSING
    assert why(lambda: list(files.blocks("missing.md"))) == MISSING
    assert why(lambda: files.copy_aside("missing.md")) == MISSING
    assert why(lambda: files.read("folder/a.md", 4)) == TOO_LARGE
    assert files.read("folder/a.md", 5) == b"12345"


def test_a_name_is_looked_at_as_what_it_is(world: World) -> None:
    """None only if nothing is there."""
    files = world.open()
    write(files, "folder/a.md", b"text")
    found = files.look("folder")
    assert found is not None and found.kind == FOLDER and not found.is_file
    assert files.look("folder/b.md") is None and files.look("no/such/folder") is None


def test_the_names_in_a_folder(world: World) -> None:
    """Files and folders, of that one alone; none if it is not there."""
    files = world.open()
    for path in ("a.md", "sub/b.md", "sub/deep/c.md"):
        write(files, path, b"")
    assert {"a.md", "sub"} <= files.names("") and "b.md" not in files.names("")
    assert files.names("sub") == {"b.md", "deep"}
    assert files.names("no/such") == frozenset()


@pytest.mark.parametrize("path", ["../x", "a/../x", "/etc/x", "", "a//b", "./a", "a/", "a\0b", ".."])
def test_a_path_that_leads_out_of_the_project_is_refused(world: World, path: str) -> None:
    """In one line, whatever is asked of it, and nothing is made."""
    files = world.open()
    uses: list[Callable[[], object]] = [
        lambda: files.look(path),
        lambda: files.read(path),
        lambda: write(files, path, b"x"),
        lambda: files.append(path, b"x"),
        lambda: files.remove(path),
        lambda: files.set_aside(path),
    ]
    for use in uses:
        with pytest.raises(UsageError) as caught:
            use()
        assert "\n" not in str(caught.value)
    assert files.names("") <= {".holdfast"}


def test_a_file_in_the_place_of_a_folder_is_in_the_way(world: World) -> None:
    """It is named, and not overwritten."""
    files = world.open()
    write(files, "drafts", b"a file")
    for use in (lambda: files.look("drafts/a.md"), lambda: write(files, "drafts/a.md", b"x")):
        with pytest.raises(InTheWayError, match="drafts is in the way"):
            use()
    assert files.read("drafts") == b"a file"


def test_a_folder_in_the_place_of_a_file_is_not_overwritten(world: World) -> None:
    """To land there, or to append, fails, and all in it stays."""
    files = world.open()
    write(files, "a.md/b.md", b"text")
    with pytest.raises(StorageError):
        write(files, "a.md", b"x")
    with pytest.raises(StorageError):
        files.append("a.md", b"x")
    assert files.read("a.md/b.md") == b"text"


def test_names_that_differ_in_case_only_never_mix_two_files(world: World) -> None:
    """Where the disk folds case they are one file, and the later one is there whole; elsewhere they are two."""
    files = world.open()
    write(files, "Ä/a.md", b"first")
    write(files, "ä/A.md", b"second")
    assert files.read("ä/A.md") == b"second"
    assert files.read("Ä/a.md") in (b"first", b"second")
    are_two = files.read("Ä/a.md") == b"first"
    assert len(files.names("") - {".holdfast"}) == (2 if are_two else 1)


# --- growing, moving, removing -----------------------------------------------------------------------------


def test_a_file_grows_by_what_is_appended(world: World) -> None:
    """It is made with its folders; somebody else's bytes in it are noticed."""
    files = world.open()
    assert files.append("drafts/a.md.part", b"one ", size=0) == 4
    assert files.append("drafts/a.md.part", b"two") == 7
    assert files.append("drafts/a.md.part", b"three", size=4) is None
    assert files.read("drafts/a.md.part") == b"one two"
    files.sync("drafts/a.md.part")
    world.crash()
    assert world.open().read("drafts/a.md.part") == b"one two"


def test_to_remove_is_to_see_that_it_is_not_there(world: World) -> None:
    """Twice is as good as once, with its folder and without."""
    files = world.open()
    write(files, "a/b", b"")
    for path in ("a/b", "a/b", "no/such"):
        files.remove(path, sync=True)
        assert files.look(path) is None


def test_a_renamed_file_replaces_what_has_its_name(world: World) -> None:
    files = world.open()
    write(files, "a.md", b"new")
    write(files, "deep/b.md", b"old")
    files.rename("a.md", "deep/b.md", sync=True)
    assert files.read("deep/b.md") == b"new" and files.look("a.md") is None
    with pytest.raises(StorageError):
        files.rename("a.md", "c.md")


@pytest.mark.parametrize("beside", [True, False])
def test_setting_aside_overwrites_nothing(world: World, beside: bool) -> None:
    """A hundred times the same name, in one second, a folder among them: each is kept."""
    files = world.open()
    told = []
    for number in range(20):
        write(files, "drafts/a.md", str(number).encode())
        told.append(files.set_aside("drafts/a.md", beside=beside))
        assert files.look("drafts/a.md") is None
    write(files, "drafts/a.md/inside", b"folder")
    whole = files.set_aside("drafts/a.md", beside=beside)
    assert len({*told, whole}) == 21
    assert all(name.startswith("drafts/a.md.bak." if beside else "quarantine/a.md.") for name in told)
    assert [files.read(world.kept(name)) for name in told] == [str(number).encode() for number in range(20)]
    assert files.read(f"{world.kept(whole)}/inside") == b"folder"


@pytest.mark.parametrize("label", ["", "damaged"])
def test_a_copy_is_durable_and_the_file_stays(world: World, label: str) -> None:
    """Beside it, or in quarantine under its label; two copies are two."""
    files = world.open()
    write(files, "drafts/a.md", b"text")
    told = [files.copy_aside("drafts/a.md", label=label) for _ in range(2)]
    start = "quarantine/a.md.damaged." if label else "drafts/a.md.bak."
    assert len(set(told)) == 2 and all(name.startswith(start) for name in told)
    world.crash()
    again = world.open()
    assert [again.read(world.kept(name)) for name in told] == [b"text"] * 2
    assert again.read("drafts/a.md") == b"text"


def test_what_was_refused_is_kept_and_told(world: World) -> None:
    """Bytes that never had a name, and a file that a step wrote."""
    files = world.open()
    out = files.fresh_path("a.bin")
    out.write_bytes(b"film")
    told = [files.keep("a.md", b"text"), files.keep("a.md", b"text"), files.keep(out.name, out)]
    assert len(set(told)) == 3 and all(name.startswith("quarantine/refused/") for name in told)
    assert [files.read(world.kept(name)) for name in told] == [b"text", b"text", b"film"]
    assert not out.exists()


# --- a crash -----------------------------------------------------------------------------------------------


def test_what_has_landed_synced_survives_a_crash(world: World) -> None:
    """In folders of any depth, as the last version of it; what was staged and did not land is nowhere."""
    files = world.open()
    write(files, "a/b/c.md", b"first")
    write(files, "a/b/c.md", b"second")
    files.stage("a/b/d.md", b"staged", sync=True)
    world.crash()
    again = world.open()
    assert again.read("a/b/c.md") == b"second"
    assert again.names("a/b") == {"c.md"}


def test_what_has_landed_unsynced_may_be_lost_but_is_not_torn(world: World) -> None:
    """The old version, the new one, or nothing: the bytes of one never with those of another."""
    files = world.open()
    write(files, "old.md", b"first")
    write(files, "old.md", b"second", sync=False)
    write(files, "new.md", b"text", sync=False)
    world.crash()
    again = world.open()
    assert again.read("old.md") in (b"first", b"second", b"")
    assert again.look("new.md") is None or again.read("new.md") in (b"text", b"")


def test_what_was_set_aside_is_there_after_a_crash(world: World) -> None:
    """Its old name may not come back: it would be believed."""
    files = world.open()
    write(files, "a.md", b"doubtful")
    write(files, "b.md", b"edited")
    told = [files.set_aside("a.md"), files.set_aside("b.md", beside=True)]
    world.crash()
    again = world.open()
    assert [again.read(world.kept(name)) for name in told] == [b"doubtful", b"edited"]
    assert again.look("a.md") is None and again.look("b.md") is None


# --- at once -----------------------------------------------------------------------------------------------


def test_twenty_threads_do_not_lose_each_others_files(world: World) -> None:
    """Each writes, replaces, copies and sets aside in folders that all share."""
    files, failed = world.open(), []
    told: list[str] = []

    def work(number: int) -> None:
        try:
            for turn in range(10):
                path = f"shared/{turn}/{number}.md"
                write(files, path, b"old", sync=False)
                write(files, path, f"{number} {turn}".encode(), sync=False)
                write(files, f"aside/{turn}.md", f"{number} {turn}".encode(), sync=False)
                told.append(files.copy_aside(path, label="damaged"))
                files.append("log", b"line\n")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert all(
        files.read(f"shared/{turn}/{number}.md") == f"{number} {turn}".encode()
        for number in range(20)
        for turn in range(10)
    )
    assert len(set(told)) == 200 and files.read("log") == b"line\n" * 200


# --- failures ----------------------------------------------------------------------------------------------


def test_a_failure_is_told_as_what_the_machine_said_and_changes_nothing() -> None:
    """At whichever operation."""
    for at in range(1, 5):
        inner = MemoryFiles()
        files = FailingFiles(inner, at)
        with pytest.raises(StorageError, match=r"a\.md: Input/output error") as caught:
            write(files, "a.md", b"text")
            files.read("a.md")
            files.set_aside("a.md")
        assert not isinstance(caught.value, UnreadableError)
        assert inner.names("") == ({"a.md"} if at > 2 else frozenset())


def test_links_are_never_followed(tmp_path: Path) -> None:
    """Neither at the end of a path nor on the way, wherever they lead; a link itself is replaced and set aside."""
    world = LocalWorld(tmp_path)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a").write_bytes(b"precious")
    (world.root / "way").symlink_to(tmp_path / "outside")
    (world.root / "end").symlink_to(tmp_path / "outside" / "a")
    files = world.open()
    uses: list[Callable[[], object]] = [
        lambda: files.look("way/a"),
        lambda: files.names("way"),
        lambda: files.read("way/a"),
        lambda: files.tail("way/a", 9),
        lambda: list(files.blocks("way/a")),
        lambda: write(files, "way/a", b"x"),
        lambda: files.append("way/a", b"x"),
        lambda: files.sync("way/a"),
        lambda: files.copy_aside("way/a", label="damaged"),
        lambda: files.set_aside("way/a"),
        lambda: files.remove("way/a"),
    ]
    for use in uses:
        with pytest.raises(InTheWayError, match="way is a symbolic link"):
            use()
    assert why(lambda: files.read("end")) == STRANGE
    with pytest.raises(StorageError):
        files.append("end", b"x")
    assert (tmp_path / "outside" / "a").read_bytes() == b"precious"
    told = files.set_aside("end")
    assert (world.root / world.kept(told)).is_symlink()
    world.crash()
