"""What is true of files on the local disk alone; what is of all stores of files is in test_files.py."""

import errno
import gc
import os

import pytest

from holdfast.errors import InTheWayError, StorageError, UnreadableError, UsageError
from holdfast.stores import disk
from holdfast.stores.tree import LocalFiles
from outside import OUTSIDE


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "project").mkdir()
    tree = LocalFiles(tmp_path / "project", tmp_path / "tmp", tmp_path / "quarantine")
    yield tree
    tree.close()


@pytest.fixture
def root(tmp_path, tree):
    return tmp_path / "project"


def write(tree, path, data, *, sync=False):
    tree.land(tree.stage(path, data, sync=sync))


def test_a_synced_write_syncs_file_and_every_new_entry(tree):
    """Two new folders, the file and its entry cost four syncs; without sync there is none."""
    before = disk.syncs
    write(tree, "a/b/c", b"x", sync=True)
    assert disk.syncs == before + 4
    write(tree, "a/b/d", b"x")
    assert disk.syncs == before + 4


def test_no_copy_is_made_through_a_linked_folder(tree, root, tmp_path):
    """What lies outside does not come into quarantine as if it were the project's."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a").write_bytes(b"precious")
    (root / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(InTheWayError, match="link is a symbolic link"):
        tree.copy_aside("link/a", label="seal")
    assert not (tmp_path / "quarantine").exists()


def test_a_folder_replaced_by_a_link_is_noticed(tree, root, monkeypatch):
    """A folder that was looked at a while ago is not trusted once its name means a link, even to itself."""
    monkeypatch.setattr("holdfast.stores.folders._FRESH_S", 0.0)
    write(tree, "a/b/one", b"1")
    (root / "a").rename(root / "moved")
    (root / "a").symlink_to("moved")
    with pytest.raises(InTheWayError):
        write(tree, "a/b/two", b"2")
    assert os.listdir(root / "moved" / "b") == ["one"]


@pytest.mark.parametrize("grow", [False, True])
def test_a_folder_that_was_removed_is_made_again(tree, root, grow):
    """A kept descriptor of a deleted folder is not written to."""
    write(tree, "a/one", b"1")
    (root / "a" / "one").unlink()
    (root / "a").rmdir()
    if grow:
        tree.append("a/two", b"2")
    else:
        write(tree, "a/two", b"2")
    assert (root / "a" / "two").read_bytes() == b"2"


def test_a_dangling_link_is_something(tree, root):
    """To look tells absent from everything else."""
    (root / "dangling").symlink_to("nowhere")
    assert tree.look("dangling").kind == "link"
    assert tree.look("missing") is None


def test_a_link_in_the_place_of_an_artifact_is_replaced(tree, root):
    """What it leads to is neither read nor written."""
    (root / "a").symlink_to(OUTSIDE)
    with pytest.raises(UnreadableError, match="it is a symbolic link"):
        tree.read("a")
    write(tree, "a", b"mine")
    assert not (root / "a").is_symlink()


def test_descriptors_stay_bounded(tree):
    """Using many folders keeps at most 64 of them open."""
    gc.collect()  # what earlier tests left open must not be closed in between
    before = len(os.listdir("/dev/fd"))
    for number in range(200):
        write(tree, f"d{number}/x", b"x")
    assert len(os.listdir("/dev/fd")) <= before + 64
    tree.close()
    assert len(os.listdir("/dev/fd")) <= before  # fewer, if what another test left open has gone meanwhile


def test_closed_files_hold_nothing_open_and_know_their_project_again(tree, root, tmp_path):
    """A program that runs many pipelines has the files of each until the collector comes by."""
    write(tree, "a/x", b"x")
    gc.collect()
    before = len(os.listdir("/dev/fd"))
    tree.close()
    assert len(os.listdir("/dev/fd")) == before - 2  # the folder `a`, and the project
    assert tree.read("a/x") == b"x"
    tree.close()
    root.rename(tmp_path / "elsewhere")
    root.mkdir()
    with pytest.raises(InTheWayError, match="another folder"):
        tree.read("a/x")


def test_a_link_is_not_staged_as_if_it_were_a_file(tree, tmp_path):
    """Whatever it leads to is not the step's."""
    (tmp_path / "link").symlink_to(OUTSIDE)
    with pytest.raises(UsageError):
        tree.stage("data/other", tmp_path / "link", sync=False)


def test_a_file_on_its_way_is_extended_through_the_one_module_that_changes_the_disk(tree, root):
    out = tree.fresh_path()
    out.write_bytes(b"large")
    with disk.failing_at(0, 0) as seen:
        staged = tree.stage("a.bin", out, b" and sealed", sync=True)
    assert [operation.split()[0] for operation in seen] == ["rename", "open", "write", "sync"]
    tree.land(staged)
    assert (root / "a.bin").read_bytes() == b"large and sealed"


def test_what_cannot_go_to_another_device_is_told_where_it_is(tree, tmp_path, monkeypatch):
    """It stays beside its old place, and that is what is recorded of it."""
    write(tree, "drafts/a.md", b"one")
    really = disk.rename

    def rename(source, target, **folders):
        if target.startswith(str(tmp_path / "quarantine")):
            raise OSError(errno.EXDEV, "cross-device", target)
        really(source, target, **folders)

    monkeypatch.setattr(disk, "rename", rename)
    kept = tree.set_aside("drafts/a.md")
    assert kept.startswith("drafts/a.md.bak.")
    assert tree.read(kept) == b"one"


@pytest.mark.parametrize("sync", [True, False])
def test_a_file_that_cannot_land_is_told_and_not_lost(tree, root, tmp_path, sync):
    """At whichever operation: who is told nothing would record a file that is not there."""
    for number in range(1, 50):
        source = tmp_path / f"made{number}"
        source.write_bytes(b"text")
        staged = None
        with disk.failing_at(number, errno.EIO) as seen:
            try:
                staged = tree.stage(f"{number}/a.bin", source, sync=sync)
                tree.land(staged)
            except StorageError as error:
                assert f"{number}/a.bin" in str(error) or f"{number}:" in str(error)
                places = [source, root / f"{number}/a.bin", *(tmp_path / "tmp").glob("*")]
                assert any(place.exists() and place.read_bytes() == b"text" for place in places)
                continue
        assert (root / f"{number}/a.bin").read_bytes() == b"text"
        assert len(seen) < number
        return
    pytest.fail("it never landed")


@pytest.mark.parametrize("number", [1, 2])
def test_a_folder_that_cannot_be_synced_is_told_by_the_file_in_it(tree, monkeypatch, number):
    """A descriptor has no name."""
    syncs = []

    def fail(op, path):
        if op == "sync" and not path:
            syncs.append(path)
            if len(syncs) == number:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(disk, "hook", fail)
    with pytest.raises(StorageError, match=r"Could not write drafts/one\.md: Input/output error"):
        write(tree, "drafts/one.md", b"text", sync=True)


@pytest.mark.parametrize(
    "act",
    [
        lambda tree: write(tree, "a/b/x", b"z"),
        lambda tree: tree.append("a/b/x", b"z"),
        lambda tree: tree.sync("a/b/x"),
        lambda tree: tree.remove("a/b/x"),
        lambda tree: tree.rename("a/b/y", "a/b/x"),
        lambda tree: tree.set_aside("a/b/x"),
        lambda tree: tree.set_aside("a/b/x", beside=True),
        lambda tree: tree.copy_aside("a/b/x"),
        lambda tree: tree.copy_aside("a/b/x", label="damaged"),
    ],
)
def test_an_error_names_the_file_with_its_folders(tree, act):
    """`p1.md.part` could be anywhere: whoever is told of it has to find it."""
    write(tree, "a/b/x", b"x", sync=True)
    write(tree, "a/b/y", b"y", sync=True)
    with disk.failing_at(1, errno.EIO), pytest.raises(StorageError, match=r" a/b/x: Input/output error"):
        act(tree)
