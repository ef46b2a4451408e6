"""Snapshots and CheckpointManager: the newest good state, whatever was damaged, and never fewer than two."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import threading

import pytest
from tests.children import unsynced

from holdfast import checkpoints, clock, snapshots
from holdfast.checkpoints import CheckpointManager
from holdfast.errors import (
    CheckpointCorruptionError,
    FormatTooNewError,
    StorageError,
    UsageError,
    ValueRefusedError,
)
from holdfast.journal.eventlog import EventLog
from holdfast.snapshots import newest_snapshot, next_number, rotate, write_snapshot
from holdfast.stores import disk
from outside import OUTSIDE

SAVER = """
import sys
from holdfast.checkpoints import CheckpointManager
manager = CheckpointManager("r1", sys.argv[1], keep=2)
state = manager.load_or_create(n=0)
for n in range(1, 5):
    state["n"] = n
    manager.save(state)
    print(n, flush=True)
"""


@pytest.fixture
def run_dir(tmp_path):
    run_dir = tmp_path / "runs" / "r1"
    run_dir.mkdir(parents=True)
    return run_dir


@pytest.fixture
def manager(tmp_path):
    return CheckpointManager("r1", tmp_path / "runs")


def numbers(run_dir) -> list[int]:
    return [number for number, _ in snapshots.snapshots(run_dir)]


def test_a_snapshot_is_plain_json_that_outsiders_can_check(run_dir):
    """The file parses, carries the hash of what precedes it, and `sha256sum -c` accepts the sidecar."""
    path = write_snapshot(run_dir, 7, b'{"a":1}')
    assert path.name == "checkpoint_0007.json"
    assert json.loads(path.read_bytes())["a"] == 1
    subprocess.run(["sha256sum", "-c", "--quiet", "checkpoint_0007.sha256"], cwd=run_dir, check=True)
    damaged = []
    loaded = newest_snapshot(run_dir, quarantine=None, damaged=damaged)
    assert loaded is not None
    assert (loaded.number, loaded.payload, damaged) == (7, b'{"a":1}', [])


def test_a_snapshot_blown_up_beyond_all_memory_is_damaged(run_dir):
    """It is set aside as it is, and the older one is taken."""
    write_snapshot(run_dir, 1, b'{"n":1}')
    path = write_snapshot(run_dir, 2, b'{"n":2}')
    os.truncate(path, 1 << 43)
    assert snapshots.examine_snapshot(path).payload is None
    damaged = []
    loaded = newest_snapshot(run_dir, quarantine=run_dir / "quarantine", damaged=damaged)
    assert loaded.number == 1
    assert [words.partition(";")[0] for words in damaged] == ["checkpoint_0002.json is damaged"]


def test_an_empty_object_is_a_snapshot_too(run_dir):
    """Zero members need no comma."""
    path = write_snapshot(run_dir, 1, b"{}")
    assert list(json.loads(path.read_bytes())) == ["sha256"]
    assert newest_snapshot(run_dir, quarantine=None).payload == b"{}"


def test_a_change_of_any_byte_is_noticed(run_dir):
    """Each flipped byte, and each truncation, sends the reader to the older snapshot."""
    write_snapshot(run_dir, 1, b'{"n":1}')
    path = write_snapshot(run_dir, 2, b'{"n":2}')
    content = path.read_bytes()
    damaged = [content[:cut] for cut in range(len(content))]
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 0x04
        damaged.append(bytes(flipped))
    for bad in [*damaged, b"\0" * len(content), b"garbage", content + content, b"[" * 10**5]:
        path.write_bytes(bad)
        assert newest_snapshot(run_dir, quarantine=None).number == 1, bad


def test_damaged_ones_go_to_quarantine_and_the_next_older_is_used(run_dir, tmp_path):
    """Newest first; each damaged file is kept under a fresh name and told."""
    for number in (1, 2, 3):
        write_snapshot(run_dir, number, b'{"n":%d}' % number)
    (run_dir / "checkpoint_0003.json").write_bytes(b"")
    (run_dir / "checkpoint_0002.json").unlink()
    (run_dir / "checkpoint_0002.json").symlink_to(OUTSIDE)
    damaged = []
    loaded = newest_snapshot(run_dir, quarantine=run_dir / "quarantine", damaged=damaged)
    assert loaded is not None
    assert loaded.number == 1
    assert len(damaged) == 2
    assert numbers(run_dir) == [1]
    kept = sorted(os.listdir(run_dir / "quarantine"))
    assert [name[:15] for name in kept] == ["checkpoint_0002"] * 2 + ["checkpoint_0003"] * 2


def test_reading_only_moves_nothing(run_dir):
    """Without quarantine the damaged file stays and is only named."""
    path = write_snapshot(run_dir, 1, b'{"n":1}')
    path.write_bytes(b"rot")
    damaged: list[str] = []
    assert newest_snapshot(run_dir, quarantine=None, damaged=damaged) is None
    assert damaged == ["checkpoint_0001.json is damaged"]
    assert path.read_bytes() == b"rot"


@pytest.mark.parametrize("sidecar", [None, b"", b"0" * 64 + b"  checkpoint_0001.json\n"])
def test_the_sidecar_decides_nothing(run_dir, sidecar):
    """Missing, empty or wrong: the snapshot that proves itself is good."""
    path = write_snapshot(run_dir, 1, b'{"n":1}')
    path.with_suffix(".sha256").unlink()
    if sidecar is not None:
        path.with_suffix(".sha256").write_bytes(sidecar)
    assert newest_snapshot(run_dir, quarantine=run_dir / "q").number == 1


def test_order_is_by_number(run_dir):
    """10000 is newer than 9999 although its name sorts before."""
    for number in (9998, 9999, 10000):
        write_snapshot(run_dir, number, b'{"n":1}')
    assert numbers(run_dir) == [10000, 9999, 9998]
    assert newest_snapshot(run_dir, quarantine=None).number == 10000
    assert next_number(run_dir) == 10001


def test_a_file_that_is_called_like_a_late_snapshot_hides_no_later_one(manager):
    """However high the number in its name: what is saved after it is what is loaded."""
    manager.save({"n": 1})
    (manager.layout.dir / "checkpoint_999999999999.json").write_bytes(b"no snapshot")
    for n in (2, 3):
        manager.save({"n": n})
        assert CheckpointManager("r1", manager.layout.dir.parent).load()["n"] == n


def test_numbers_are_never_used_twice(run_dir):
    """A quarantined number, a lone sidecar and the floor all count."""
    write_snapshot(run_dir, 4, b'{"n":1}')
    (run_dir / "quarantine").mkdir()
    (run_dir / "quarantine" / "checkpoint_0009.json.20260101T000000Z.1").write_bytes(b"")
    assert next_number(run_dir) == 10
    assert next_number(run_dir, floor=20) == 21
    assert next_number(run_dir / "missing") == 1


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO, errno.ENOMEM, errno.ENFILE])
def test_what_cannot_be_read_is_not_damaged(run_dir, monkeypatch, code):
    """An error of the machine stops with StorageError; nothing is set aside."""
    write_snapshot(run_dir, 1, b'{"n":1}')

    def fail(*args: object, **kwargs: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(StorageError):
        newest_snapshot(run_dir, quarantine=run_dir / "quarantine")
    assert numbers(run_dir) == [1]


def test_rotation_keeps_the_newest_that_prove_themselves(run_dir):
    """Damaged ones do not count: older good ones stay until enough newer good ones are there."""
    for number in range(1, 7):
        write_snapshot(run_dir, number, b'{"n":1}')
    (run_dir / "checkpoint_0006.json").write_bytes(b"rot")
    (run_dir / "checkpoint_0004.json").write_bytes(b"rot")
    deleted = rotate(run_dir, 1)
    assert [path.name for path in deleted] == ["checkpoint_0001.json", "checkpoint_0002.json"]
    assert numbers(run_dir) == [6, 5, 4, 3]
    assert not (run_dir / "checkpoint_0001.sha256").exists()


def test_rotation_is_not_stopped_by_folders_in_the_place_of_files(run_dir):
    """One in the place of an old snapshot, or of its sidecar, stays; a link to one goes."""
    for number in range(1, 7):
        write_snapshot(run_dir, number, b'{"n":1}')
    for name in ("checkpoint_0001.json", "checkpoint_0002.sha256", "checkpoint_0003.sha256"):
        (run_dir / name).unlink()
    (run_dir / "checkpoint_0001.json").mkdir()
    (run_dir / "checkpoint_0002.sha256").mkdir()
    (run_dir / "checkpoint_0003.sha256").symlink_to("checkpoint_0002.sha256")
    assert [path.name for path in rotate(run_dir, 3)] == ["checkpoint_0002.json", "checkpoint_0003.json"]
    kept = sorted(name for name in os.listdir(run_dir) if name < "checkpoint_0004")
    assert kept == ["checkpoint_0001.json", "checkpoint_0001.sha256", "checkpoint_0002.sha256"]


@pytest.mark.parametrize("payload", [b'{"n":}', b'{"n":1]}', b'{"\xff":1}', b'{"n":' + b"[" * 100_000 + b"}"])
def test_a_snapshot_that_proves_itself_and_is_no_json_is_damaged(run_dir, payload):
    """The hash fits, but nothing can be made of what it covers: the next older one is used."""
    write_snapshot(run_dir, 1, b'{"n":1}')
    write_snapshot(run_dir, 2, payload)
    loaded = newest_snapshot(run_dir, quarantine=run_dir / "quarantine")
    assert loaded is not None
    assert (loaded.number, numbers(run_dir)) == (1, [1])


def test_a_failure_at_any_operation_of_a_save_leaves_a_state_and_never_fewer_than_two(tmp_path):
    """Whatever operation fails, the last saved state or the new one loads, and two good ones exist."""
    number, failed = 0, True
    while failed:
        number += 1
        manager = CheckpointManager(f"r{number}", tmp_path, keep=2)
        for n in range(3):
            manager.save({"n": n})
        failed = False
        try:
            with disk.failing_at(number, errno.ENOSPC, torn=True):
                manager.save({"n": 3})
        except StorageError:
            failed = True
        state = CheckpointManager(f"r{number}", tmp_path, keep=2).load()
        assert state is not None
        assert state["n"] in ((2, 3) if failed else (3,))
        good = [path for _, path in snapshots.snapshots(manager.layout.dir) if snapshots.read_snapshot(path)]
        assert len(good) >= 2
    assert number > 10


def test_a_process_killed_at_every_operation_keeps_what_it_reported(tmp_path):
    """Real kills: the number loaded afterwards is at least the last one printed."""
    number, status = 0, -signal.SIGKILL
    while status == -signal.SIGKILL:
        number += 3  # every third operation of some fifty: all kinds are met
        base = tmp_path / str(number)
        environment = unsynced(HOLDFAST_KILL_AT=str(number))
        process = subprocess.run(
            [sys.executable, "-c", SAVER, str(base)], env=environment, stdout=subprocess.PIPE, check=False
        )
        status = process.returncode
        printed = process.stdout.split()
        state = CheckpointManager("r1", base).load_or_create(n=0)
        assert state["n"] >= (int(printed[-1]) if printed else 0)
    assert status == 0
    assert number > 20


def test_state_is_saved_and_loaded_as_it_is(tmp_path, manager):
    """Own fields come back; run_id, updated_at and _schema_version are set; checkpoint.json says the same."""
    assert manager.load() is None
    state = manager.load_or_create(topic="kelp")
    state["done"] = ["a", "ä"]
    path = manager.save(state)
    loaded = CheckpointManager("r1", tmp_path / "runs").load_or_create(topic="ignored")
    assert loaded == state
    assert (loaded["topic"], loaded["run_id"], loaded["_schema_version"]) == ("kelp", "r1", 0)
    assert json.loads((path.parent / "checkpoint.json").read_bytes()) == loaded


def test_saving_rotates(manager):
    """Five are kept unless told otherwise, and numbers go on."""
    for n in range(8):
        manager.save({"n": n})
    assert numbers(manager.layout.dir) == [8, 7, 6, 5, 4]


def test_only_damaged_snapshots_left_is_an_error_every_time(manager):
    """A run whose state is lost never looks like a run that never was."""
    manager.save({"n": 1}).write_bytes(b"rot")
    for _ in range(2):
        with pytest.raises(CheckpointCorruptionError, match="only damaged"):
            manager.load_or_create()
    assert manager.notices


@pytest.mark.parametrize(
    ("state", "where"),
    [
        ({"a": {"b": [1, {2}]}}, "state.a.b[1]"),
        ({"a": float("inf")}, "state.a"),
        ({"a": b"bytes"}, "state.a"),
        ({"sha256": "x"}, "state.sha256"),
    ],
)
def test_values_that_are_not_json_are_refused_with_their_place(manager, state, where):
    """TypeError with the field's path; nothing is written."""
    with pytest.raises(ValueRefusedError) as caught:
        manager.save(state)
    assert caught.value.where == where
    assert isinstance(caught.value, TypeError)
    assert not manager.layout.dir.exists()


@pytest.mark.parametrize("run_id", ["", ".", "..", "../x", "/etc", "a/b", "a\n", "a.", "x" * 129, "ä", "\u202eab"])
def test_hostile_run_ids_are_refused_in_one_line(tmp_path, run_id):
    """Nothing is created for an id that could leave its folder or deceive a reader."""
    with pytest.raises(UsageError) as caught:
        CheckpointManager(run_id, tmp_path)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_a_state_of_another_run_is_refused(manager):
    """Saving run r2's state as r1 is a mistake."""
    with pytest.raises(UsageError, match="r2"):
        manager.save({"run_id": "r2"})


def test_migrations_are_chained_and_unknown_fields_kept(tmp_path, manager):
    """A state of version 0 passes every step on load; the next save has the new version."""
    manager.save({"pages": "3", "colour": "red"})

    def pages_to_int(state):
        return {**state, "pages": int(state["pages"])}

    def pages_to_list(state):
        return {**state, "pages": list(range(state["pages"]))}

    newer = CheckpointManager("r1", tmp_path / "runs", migrations={0: pages_to_int, 1: pages_to_list})
    state = newer.load()
    assert (state["pages"], state["colour"], state["_schema_version"]) == ([0, 1, 2], "red", 2)
    newer.save(state)
    assert newer.load()["pages"] == [0, 1, 2]
    before = (tmp_path / "runs" / "r1" / "checkpoint.json").read_bytes()
    older = CheckpointManager("r1", tmp_path / "runs")
    for refused in (manager.load, lambda: older.save({"pages": 0}), lambda: manager.save({"_schema_version": 2})):
        with pytest.raises(FormatTooNewError):
            refused()
    assert (tmp_path / "runs" / "r1" / "checkpoint.json").read_bytes() == before
    assert numbers(newer.layout.dir) == [2, 1]


def test_a_missing_migration_is_named(tmp_path, manager):
    """A hole in the chain is never jumped over."""
    manager.save({"n": 1})
    with pytest.raises(CheckpointCorruptionError, match="from version 0 to 1"):
        CheckpointManager("r1", tmp_path / "runs", migrations={1: dict}).load()


@pytest.mark.parametrize("migrations", [{0: dict, 2: dict}, {"0": dict}, {-1: dict}, {0: "dict"}])
def test_migrations_that_lead_nowhere_are_refused_at_once(tmp_path, migrations):
    """Not when the first old state is loaded, months later."""
    with pytest.raises(UsageError, match="migrations"):
        CheckpointManager("r1", tmp_path, migrations=migrations)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CheckpointManager("r", 5), "base_path must be a path, not 5."),
        (lambda: CheckpointManager("r", keep="x"), "keep must be a whole number from 0, not 'x'."),
        (lambda: CheckpointManager("r", keep=-(10**5000)), "keep must be a whole number from 0, not this int."),
        (lambda: CheckpointManager("r", migrations=[]), "migrations must be a dict, not []."),
        (lambda: CheckpointManager.list_runs(None), "base_path must be a path, not None."),
        (lambda: CheckpointManager.cleanup_old_runs(b"runs"), "base_path must be a path, not b'runs'."),
        (
            lambda: CheckpointManager.cleanup_old_runs(max_age_days="30"),
            "max_age_days must be a number from 0, not '30'.",
        ),
        (
            lambda: CheckpointManager.cleanup_old_runs(max_age_days=-1),
            "max_age_days must be a number from 0, not -1",
        ),
        (
            lambda: CheckpointManager.cleanup_old_runs(max_runs=1.5),
            "max_runs must be a whole number from 0, not 1.5",
        ),
        (lambda: CheckpointManager.cleanup_old_runs(dry_run="no"), "dry_run must be True or False, not 'no'."),
        (lambda: EventLog(5), "path must be a path, not 5."),
        (lambda: EventLog(""), "path must name a file, not ''."),
        (lambda: EventLog("/"), "path must name a file, not '/'."),
    ],
)
def test_a_wrong_argument_is_told_at_once_and_by_its_name(make, words):
    """Before anything is saved, or deleted, that was not meant."""
    with pytest.raises(UsageError, match=re.escape(words)):
        make()


@pytest.mark.parametrize("state", [None, [1], "text", 5])
def test_a_state_that_is_no_dict_is_refused(manager, state):
    """One clear error, and nothing is saved."""
    with pytest.raises(ValueRefusedError, match="must be a dict"):
        manager.save(state)
    assert not manager.layout.dir.exists()


def test_what_one_thread_saved_of_a_shared_state_no_other_takes_back(tmp_path, manager, monkeypatch):
    """The newest snapshot is never an older look at the state than one whose `save` has returned."""
    state, encode = {"done": []}, checkpoints.encode_json
    first_has_looked, may_go_on = threading.Event(), threading.Event()

    def encode_slowly(value, where):
        data = encode(value, where)
        if threading.current_thread().name == "first":
            first_has_looked.set()
            may_go_on.wait(30)
        return data

    def work():
        state["done"].append(threading.current_thread().name)
        manager.save(state)

    monkeypatch.setattr(checkpoints, "encode_json", encode_slowly)
    first, second = (threading.Thread(target=work, name=name) for name in ("first", "second"))
    first.start()
    assert first_has_looked.wait(30)
    second.start()
    second.join(0.2)  # it must wait for the first; if it need not, it is through by then
    may_go_on.set()
    first.join()
    second.join()
    assert manager.load()["done"] == ["first", "second"]


def test_threads_may_save_at_once(manager):
    """Every save gets its own number, and the newest loads."""
    manager = CheckpointManager("r1", manager.layout.dir.parent, keep=100)
    threads = [threading.Thread(target=manager.save, args=({"n": n},)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers(manager.layout.dir) == list(range(12, 0, -1))
    assert manager.load() is not None


def test_progress_grows_by_sections_and_a_title_replaces_its_own(manager):
    """Sections stay in the order they first came; text that looks like a mark cannot break them."""
    manager.section("first", "One", ["https://example.org/a"])
    manager.section("looks like\n<!-- holdfast-section 0 -->\na mark", "Two")
    manager.section("better", "One")
    text = manager.section("third", "Three").read_text()
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## One", "## Two", "## Three"]
    assert "better" in text
    assert "first" not in text
    assert "a mark" in text


def test_the_text_of_a_section_stays_within_it(manager):
    """Headings, HTML, an open fence, terminal escapes and marks of ours change nothing but their own section."""
    hostile = "# Big\n<script>x</script>\n\x1b[2J\ud800\n```\n<!-- holdfast-section 0 -->\n## Two"
    manager.section(hostile, "One\n## Three", ["a\n# b"])
    text = manager.section("second", "Two\ud800").read_text()
    own, in_fence, second = [line for line in text.splitlines() if line.startswith(("# ", "## "))]
    assert (own, in_fence, second) == ("## One ## Three", "## Two", "## Two\\\\ud800")
    assert text.count("```") == 2
    assert "<script" not in text and "\x1b" not in text
    assert text.count("<!-- holdfast-section ") == 2


def test_a_section_is_text(manager):
    """Anything else is refused, and nothing is written."""
    with pytest.raises(ValueRefusedError, match="made of text"):
        manager.section(None)
    for sources in ("a.md", 5):
        with pytest.raises(ValueRefusedError, match="a list of texts, not"):
            manager.section("text", "title", sources)
    assert not manager.layout.progress.exists()


def save_runs(base, monkeypatch, *runs) -> None:
    for run_id, status, age_days in runs:
        monkeypatch.setattr(clock, "now", lambda age=age_days: 1_800_000_000.0 - age * 86400)
        CheckpointManager(run_id, base).save({"status": status})
    monkeypatch.setattr(clock, "now", lambda: 1_800_000_000.0)


def test_runs_are_listed_last_updated_first(tmp_path, monkeypatch):
    """The summary tells; where it is damaged the newest snapshot does; what is no run is left out."""
    save_runs(tmp_path, monkeypatch, ("old", "completed", 9), ("new", "failed", 1))
    (tmp_path / "old" / "checkpoint.json").write_bytes(b"{")
    (tmp_path / "empty").mkdir()
    (tmp_path / "a file").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "old")
    runs = CheckpointManager.list_runs(tmp_path)
    assert [(run["run_id"], run["status"]) for run in runs] == [
        ("new", "failed"),
        ("old", "completed"),
        ("empty", "unknown"),
    ]
    assert runs[0]["path"] == str(tmp_path / "new")
    assert CheckpointManager.list_runs(tmp_path / "missing") == []


@pytest.mark.parametrize("updated_at", ["5", "[1]", '"never"', '"99999999-01-01T00:00:00Z"'])
def test_a_summary_that_somebody_changed_hides_no_run(tmp_path, monkeypatch, updated_at):
    """Whatever it says of its age, all runs are listed, and that one is not cleaned away."""
    save_runs(tmp_path, monkeypatch, ("a", "completed", 0), ("b", "completed", 0))
    (tmp_path / "a" / "checkpoint.json").write_text(f'{{"status":"completed","updated_at":{updated_at}}}')
    assert {run["run_id"] for run in CheckpointManager.list_runs(tmp_path)} == {"a", "b"}
    assert "a" not in CheckpointManager.cleanup_old_runs(tmp_path, max_age_days=0, max_runs=0)


def test_a_run_that_is_cleaned_away_meanwhile_is_not_listed(tmp_path, monkeypatch):
    """Another process may delete it between the look at the folder and the look at the run."""
    save_runs(tmp_path, monkeypatch, ("a", "completed", 0))
    monkeypatch.setattr(checkpoints, "names_in", lambda folder: ["a", "gone"])
    assert [run["run_id"] for run in CheckpointManager.list_runs(tmp_path)] == ["a"]


def test_a_run_that_is_a_link_is_refused(tmp_path):
    """Nothing is read or written through it: no list would show it."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "r1").symlink_to(tmp_path / "elsewhere")
    manager = CheckpointManager("r1", tmp_path)
    for use in (manager.load, manager.load_or_create, lambda: manager.save({}), lambda: manager.section("text")):
        with pytest.raises(UsageError, match="is a symbolic link"):
            use()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_cleaning_takes_only_finished_runs(tmp_path, monkeypatch):
    """Too old or too many, but never an unfinished run; a dry run deletes nothing."""
    save_runs(
        tmp_path,
        monkeypatch,
        ("ancient", "completed", 90),
        ("paused", "paused", 90),
        ("going", "in_progress", 90),
        ("third", "failed", 3),
        ("second", "completed", 2),
        ("first", "completed", 1),
    )
    expected = ["third", "ancient"]
    assert CheckpointManager.cleanup_old_runs(tmp_path, max_runs=2, dry_run=True) == expected
    assert len(os.listdir(tmp_path)) == 6
    assert CheckpointManager.cleanup_old_runs(tmp_path, max_runs=2) == expected
    assert sorted(os.listdir(tmp_path)) == ["first", "going", "paused", "second"]


def test_cleaning_that_fails_anywhere_leaves_whole_runs_and_is_finished_by_the_next(tmp_path, monkeypatch):
    """A run is listed whole or not at all, and no remains stay for good."""
    for number in (1, 2, 3):
        base = tmp_path / str(number)
        save_runs(base, monkeypatch, ("a", "completed", 90), ("b", "completed", 90))
        with disk.failing_at(number, errno.EIO), pytest.raises(StorageError):
            CheckpointManager.cleanup_old_runs(base)
        for run in CheckpointManager.list_runs(base):
            assert CheckpointManager(run["run_id"], base).load() is not None
        CheckpointManager.cleanup_old_runs(base)
        assert os.listdir(base) == []
