"""Repairing a journal: every good line is kept, what is missing is said, the original is kept too."""

import errno
import json
import os
import tracemalloc
from pathlib import Path

import pytest

from holdfast.journal.read import scan
from holdfast.journal.repair import repair
from holdfast.stores import disk
from outside import OUTSIDE

from .journal_lines import make_lines


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


@pytest.fixture
def quarantine(tmp_path):
    return tmp_path / "quarantine"


def damaged_journal() -> bytes:
    """Lines 3 and 4 rotten, 6 and 7 swapped, 8 doubled, the tail torn."""
    lines = make_lines(9)
    return b"".join(
        [
            *lines[:2],
            b"rot\n",
            b"\xff\0\n",
            lines[4],
            lines[6],
            lines[5],
            lines[7],
            lines[7],
            lines[8],
            b'{"seq":10,',
        ]
    )


def test_all_good_lines_are_kept_in_order_and_chained(path, quarantine):
    """After repair a scan finds no damage; numbers and fields are unchanged; the gap is named."""
    path.write_bytes(damaged_journal())
    told = repair(path, quarantine)
    found = scan(path)
    events = [line.event() for line in found]
    assert [event["event"] for event in events] == [
        "e1",
        "e2",
        "e5",
        "e6",
        "e7",
        "e8",
        "e9",
        "journal_repaired",
    ]
    assert [event["seq"] for event in events] == [1, 2, 5, 6, 7, 8, 9, 10]
    assert (found.damage, found.torn) == ([], 0)
    assert events[-1]["missing"] == [[3, 4]]
    assert (quarantine / events[-1]["kept_as"]).read_bytes() == damaged_journal()
    assert told[:-1] == events[-1]["findings"]


def test_fields_are_kept_byte_for_byte(path, quarantine):
    """Only `prev` and `sum` of a line change."""
    lines = make_lines(3, extra=b',"price":1.10,"x":"\\u00e4"')
    path.write_bytes(lines[0] + b"rot\n" + lines[2])
    repair(path, quarantine)
    second = path.read_bytes().splitlines(keepends=True)[1]
    assert second[:-53] == lines[2][:-53]


def test_nobody_knows_how_many_lines_were_lost_with_the_whole_journal(path, quarantine):
    """A folder stands where the journal was: that no line is lost would be a lie."""
    path.mkdir()
    (told,) = repair(path, quarantine)[-1:]
    assert "no line is lost" not in told
    assert "was written anew: whatever it held is lost; what stood there is kept as" in told


def test_repair_is_idempotent(path, quarantine):
    """A second repair finds nothing and changes nothing."""
    path.write_bytes(damaged_journal())
    repair(path, quarantine)
    mended = path.read_bytes()
    assert repair(path, quarantine) == []
    assert path.read_bytes() == mended
    assert len(os.listdir(quarantine)) == 1


def test_a_torn_tail_alone_is_only_cut(path, quarantine):
    """The good lines stay the very bytes they were, and the cut bytes are kept."""
    good = b"".join(make_lines(3))
    path.write_bytes(good + b'{"seq":4,"ts"')
    (told,) = repair(path, quarantine)
    assert "13 bytes" in told
    assert path.read_bytes() == good
    assert [entry.read_bytes() for entry in quarantine.iterdir()] == [b'{"seq":4,"ts"']


def test_a_journal_of_nothing_but_garbage_is_cut_to_nothing(path, quarantine):
    """Without any good line all of it is tail; it is kept."""
    path.write_bytes(b"garbage\n" * 10)
    repair(path, quarantine)
    assert path.read_bytes() == b""
    assert [entry.read_bytes() for entry in quarantine.iterdir()] == [b"garbage\n" * 10]


def test_a_failure_at_any_operation_leaves_a_journal_that_can_be_repaired(path, quarantine):
    """After each failed operation the journal is the damaged or the mended one, and repair then works."""
    number = 0
    failed = True
    while failed:
        number += 1
        path.write_bytes(damaged_journal())
        failed = False
        try:
            with disk.failing_at(number, errno.EIO):
                repair(path, quarantine)
        except OSError:
            failed = True
        repair(path, quarantine)
        events = [json.loads(line)["event"] for line in path.read_bytes().splitlines()]
        assert events == ["e1", "e2", "e5", "e6", "e7", "e8", "e9", "journal_repaired"]
    assert number > 6


def test_a_journal_is_not_replaced_under_a_writer_who_could_not_be_told(path, quarantine, monkeypatch):
    """Without a descriptor the old one cannot be emptied: an engine would go on writing where nobody reads."""
    path.write_bytes(damaged_journal())
    before, real = path.read_bytes(), disk.open_file

    def refused(name: str, flags: int, *, dir_fd: int | None = None) -> int:
        if name == str(path) and flags == os.O_RDWR:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), name)
        return real(name, flags, dir_fd=dir_fd)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="Too many open files"):
        patch.setattr(disk, "open_file", refused)
        repair(path, quarantine)
    assert path.read_bytes() == before
    assert repair(path, quarantine)


def test_a_journal_with_thousands_of_holes_is_still_repaired(path, quarantine):
    """What is told about the damage is bounded; how much was lost is said in numbers."""
    path.write_bytes(b"".join(line for seq, line in enumerate(make_lines(2001), 1) if seq % 2))
    repair(path, quarantine)
    told = [line.event() for line in scan(path)][-1]
    assert (told["findings_total"], told["missing_total"]) == (1000, 1000)
    assert len(told["findings"]) == 100


def test_a_journal_of_any_size_is_repaired_in_bounded_memory(path, quarantine):
    """Neither the journal nor its copy is ever held as a whole."""
    lines = make_lines(40, extra=b',"text":"%b"' % (b"x" * (1 << 20)))
    path.write_bytes(b"".join([*lines[:20], b"rot\n", *lines[21:]]))
    del lines
    tracemalloc.start()
    try:
        repair(path, quarantine)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(1 for _ in scan(path)) == 40
    assert peak < 16 << 20


@pytest.mark.parametrize("kind", ["folder", "link", "fifo"])
def test_what_is_no_file_is_set_aside_and_begun_anew(tmp_path: Path, kind: str) -> None:
    """It is never read, followed or waited for; the numbers go on where a snapshot says they were."""
    path = tmp_path / "events.jsonl"
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(OUTSIDE)
    else:
        os.mkfifo(path)
    assert repair(path, tmp_path / "quarantine", known_seq=7)
    (line,) = scan(path)
    assert (line.seq, line.event()["event"]) == (8, "journal_repaired")
    assert len(os.listdir(tmp_path / "quarantine")) == 1
