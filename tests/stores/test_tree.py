"""The work tree: nothing is read or written through links or outside the root."""

import errno
import gc
import itertools
import os

import pytest

from holdfast.errors import InTheWayError, UsageError
from holdfast.stores import disk
from holdfast.stores.tree import WorkTree
from outside import OUTSIDE


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "project").mkdir()
    tree = WorkTree(tmp_path / "project", tmp_path / "tmp")
    yield tree
    tree.close()


@pytest.fixture
def root(tmp_path, tree):
    return tmp_path / "project"


def test_a_file_is_written_with_its_folders_and_read_back(tree, root):
    """Missing folders are made; what was written is what is read."""
    tree.write("drafts/deep/a.md", b"text", sync=True)
    assert (root / "drafts/deep/a.md").read_bytes() == b"text"
    assert tree.read("drafts/deep/a.md") == b"text"
    assert tree.exists("drafts/deep/a.md")


def test_a_synced_write_syncs_file_and_every_new_entry(tree):
    """Two new folders, the file and its entry cost four syncs; without sync there is none."""
    before = disk.syncs
    tree.write("a/b/c", b"x", sync=True)
    assert disk.syncs == before + 4
    tree.write("a/b/d", b"x", sync=False)
    assert disk.syncs == before + 4


@pytest.mark.parametrize("rel", ["../x", "a/../x", "/etc/x", "", "a//b", "./a", "a/", "a\0b", ".."])
def test_a_path_outside_the_root_is_refused(tree, tmp_path, rel):
    """Every way out is a UsageError in one line, and nothing is created."""
    with pytest.raises(UsageError) as caught:
        tree.write(rel, b"x", sync=False)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path / "project") == []


@pytest.mark.parametrize("use", ["read", "stat", "open_read", "append_open", "remove", "back_up"])
def test_a_link_among_the_parents_is_refused(tree, root, tmp_path, use):
    """No method goes through a linked folder, wherever it leads."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a").write_bytes(b"precious")
    (root / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(InTheWayError, match="link is a symbolic link"):
        getattr(tree, use)("link/a")
    assert (tmp_path / "outside" / "a").read_bytes() == b"precious"


def test_no_copy_is_made_through_a_linked_folder(tree, root, tmp_path):
    """What lies outside does not come into quarantine as if it were the project's."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a").write_bytes(b"precious")
    (root / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(InTheWayError, match="link is a symbolic link"):
        tree.copy_aside("link/a", tmp_path / "quarantine", label="seal")
    assert not (tmp_path / "quarantine").exists()


def test_a_folder_replaced_by_a_link_is_noticed(tree, root, monkeypatch):
    """A folder that was looked at a while ago is not trusted once its name means a link, even to itself."""
    monkeypatch.setattr("holdfast.stores.folders._FRESH_S", 0.0)
    tree.write("a/b/one", b"1", sync=False)
    (root / "a").rename(root / "moved")
    (root / "a").symlink_to("moved")
    with pytest.raises(InTheWayError):
        tree.write("a/b/two", b"2", sync=False)
    assert os.listdir(root / "moved" / "b") == ["one"]


def test_a_folder_that_was_removed_is_made_again(tree, root):
    """A kept descriptor of a deleted folder is not written to."""
    tree.write("a/one", b"1", sync=False)
    (root / "a" / "one").unlink()
    (root / "a").rmdir()
    tree.write("a/two", b"2", sync=False)
    assert (root / "a" / "two").read_bytes() == b"2"


def test_a_file_in_the_place_of_a_folder_is_refused(tree, root):
    """A file in the way is named, not overwritten."""
    (root / "drafts").write_bytes(b"a file")
    with pytest.raises(InTheWayError, match="drafts is in the way"):
        tree.write("drafts/a.md", b"x", sync=False)
    assert (root / "drafts").read_bytes() == b"a file"


def test_stat_tells_absent_from_everything_else(tree, root):
    """None only for nothing; a dangling link is something."""
    (root / "dangling").symlink_to("nowhere")
    assert tree.stat("missing/too") is None
    assert tree.stat("missing") is None
    assert tree.exists("dangling")


def test_an_artifact_that_is_a_link_is_not_read(tree, root):
    """Reading a link as an artifact is ELOOP; writing replaces the link itself."""
    (root / "a").symlink_to(OUTSIDE)
    with pytest.raises(OSError):
        tree.read("a")
    tree.write("a", b"mine", sync=False)
    assert not (root / "a").is_symlink()


def test_descriptors_stay_bounded(tree):
    """Using many folders keeps at most 64 of them open."""
    gc.collect()  # what earlier tests left open must not be closed in between
    before = len(os.listdir("/dev/fd"))
    for number in range(200):
        tree.write(f"d{number}/x", b"x", sync=False)
    assert len(os.listdir("/dev/fd")) <= before + 64
    tree.close()
    assert len(os.listdir("/dev/fd")) <= before  # fewer, if what another test left open has gone meanwhile


def test_a_closed_tree_holds_nothing_open_and_knows_its_project_again(tree, root, tmp_path):
    """A program that runs many pipelines has a tree of each until the collector comes by."""
    tree.write("a/x", b"x", sync=False)
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


def test_a_finished_file_is_moved_in(tree, root, tmp_path):
    """The source is gone, the artifact is there; a link as source is refused."""
    (tmp_path / "out").write_bytes(b"large")
    tree.move_in(tmp_path / "out", "data/out.bin", sync=True)
    assert (root / "data/out.bin").read_bytes() == b"large"
    assert not (tmp_path / "out").exists()
    (tmp_path / "link").symlink_to(OUTSIDE)
    with pytest.raises(UsageError):
        tree.move_in(tmp_path / "link", "data/other", sync=False)


def test_a_file_on_its_way_is_extended_by_one_write_of_ours(tree, tmp_path):
    """It goes through the one module that changes the disk, and follows no link that a step has left."""
    (tmp_path / "out").write_bytes(b"large")
    with disk.failing_at(0, 0) as seen:
        tree.extend_temp(tmp_path / "out", b" and sealed")
    assert (tmp_path / "out").read_bytes() == b"large and sealed"
    assert [operation.split()[0] for operation in seen] == ["open", "write"]
    (tmp_path / "link").symlink_to(tmp_path / "out")
    with pytest.raises(OSError, match="symbolic links"):
        tree.extend_temp(tmp_path / "link", b"!")


def test_appending_grows_a_part_file(tree):
    """Two openings append one after the other."""
    for text in (b"one ", b"two"):
        fd = tree.append_open("drafts/a.md.part")
        os.write(fd, text)
        os.close(fd)
    assert tree.read("drafts/a.md.part") == b"one two"


def test_backing_up_and_setting_aside_keep_the_content(tree, tmp_path):
    """The backup stays beside the original; what is set aside goes to the given folder."""
    tree.write("drafts/a.md", b"one", sync=False)
    backup = tree.back_up("drafts/a.md")
    assert backup.startswith("drafts/a.md.bak.")
    assert tree.read(backup) == b"one"
    assert not tree.exists("drafts/a.md")
    kept = tree.set_aside(backup, tmp_path / "q")
    assert (tmp_path / kept).read_bytes() == b"one"
    assert not tree.exists(backup)


def test_what_cannot_go_to_another_device_is_told_where_it_is(tree, tmp_path, monkeypatch):
    """It stays beside its old place, and that is what is recorded of it."""
    tree.write("drafts/a.md", b"one", sync=False)
    really = disk.rename

    def rename(source, target, **folders):
        if target.startswith(str(tmp_path / "q")):
            raise OSError(errno.EXDEV, "cross-device", target)
        really(source, target, **folders)

    monkeypatch.setattr(disk, "rename", rename)
    kept = tree.set_aside("drafts/a.md", tmp_path / "q")
    assert kept.startswith("drafts/a.md.bak.")
    assert tree.read(kept) == b"one"


def test_an_error_names_the_file_by_its_path_in_the_project(tree):
    """Whoever reads it knows which of many files called a.md is meant."""
    tree.write("drafts/a.md", b"one", sync=False)
    with disk.failing_at(2, errno.ENOSPC), pytest.raises(OSError) as raised:
        tree.write("drafts/a.md", b"two", sync=False)
    assert raised.value.filename == "drafts/a.md"


def test_removing_is_idempotent(tree):
    """A file that is not there is as good as removed."""
    tree.write("a/b", b"", sync=False)
    tree.remove("a/b")
    tree.remove("a/b")
    tree.remove("no/such")
    assert not tree.exists("a/b")


@pytest.mark.parametrize("sync", [True, False])
def test_a_file_that_cannot_be_moved_in_is_told_and_stays_where_it_is(tree, root, tmp_path, sync):
    """At whichever operation: who is told nothing would record a file that is not there."""
    for number in itertools.count(1):
        source = tmp_path / f"made{number}"
        source.write_bytes(b"text")
        with disk.failing_at(number, errno.EIO) as seen:
            try:
                tree.move_in(source, f"{number}/a.bin", sync=sync)
            except OSError:
                assert source.exists() or (root / f"{number}/a.bin").read_bytes() == b"text"
                continue
        assert (root / f"{number}/a.bin").read_bytes() == b"text"
        assert len(seen) < number
        return


@pytest.mark.parametrize(("number", "named"), [(1, "drafts"), (2, "drafts/one.md")])
def test_a_folder_that_cannot_be_synced_is_told_by_a_name(tree, monkeypatch, number, named):
    """The one that was made, or the file whose name was to be in it: a descriptor has none."""
    syncs = []

    def fail(op, path):
        if op == "sync" and not path:
            syncs.append(path)
            if len(syncs) == number:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(disk, "hook", fail)
    with pytest.raises(OSError, match=f"Input/output error: '{named}'"):
        tree.write("drafts/one.md", b"text", sync=True)


@pytest.mark.parametrize(
    "act",
    [
        lambda tree: os.close(tree.append_open("a/b/x")),
        lambda tree: tree.make_durable("a/b/x"),
        lambda tree: tree.remove("a/b/x"),
        lambda tree: tree.rename("a/b/y", "a/b/x"),
        lambda tree: tree.back_up("a/b/x"),
        lambda tree: tree.copy_beside("a/b/x"),
    ],
)
def test_an_error_names_the_file_with_its_folders(tree, act):
    """`p1.md.part` could be anywhere: whoever is told of it has to find it."""
    tree.write("a/b/x", b"x", sync=True)
    tree.write("a/b/y", b"y", sync=True)
    with disk.failing_at(1, errno.EIO), pytest.raises(OSError) as caught:
        act(tree)
    assert caught.value.filename == "a/b/x"
