"""Every state file damaged in every way: the next command ends right and tells, or says in one line what to do.

Three projects are made once, by real processes, and copied for each case: one that failed three times (three
snapshots), one that was killed before any snapshot, and a finished one to compare with.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from forking import KILLED, Said
from outside import OUTSIDE

from .state_project import RUN_ID, Project

Damage = Callable[[Path], None]

UNREADABLE = "chmod 000 does not keep root out"
LINE_CAP = 16 << 20
FILES_ONLY = {"outline", "draft[ch01]", "draft[ch02]", "facts[ch01]", "facts[ch02]"}
"""Steps whose outputs are whole sealed files: none of them may ever run again."""


@dataclass
class Bases:
    """The projects that cases begin with."""

    failed: Project
    killed: Project
    finished: Project

    def named(self, name: str) -> Project:
        project: Project = getattr(self, name)
        return project


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Bases:
    made = Bases(*(Project(tmp_path_factory.mktemp(name)).begin() for name in ("failed", "killed", "fin")))
    (made.failed.outside / "fail").touch()
    assert [made.failed.run("--run-id", RUN_ID).code for _ in range(3)] == [1, 1, 1]
    assert len(made.failed.snapshots()) == 3
    (made.killed.outside / "kill").touch()
    assert made.killed.run("--run-id", RUN_ID).code == KILLED
    assert not made.killed.snapshots()
    assert made.finished.run("--run-id", RUN_ID).code == 0
    return made


# --- ways to damage ------------------------------------------------------------------------------------------


def removed(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()


def instead(make: Damage) -> Damage:
    """`make` something new where the file was."""

    def damage(path: Path) -> None:
        removed(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path)

    return damage


def flipped(at: float) -> Damage:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(len(data) * at)] ^= 0x10
        path.write_bytes(data)

    return damage


def cut(share: float) -> Damage:
    return lambda path: os.truncate(path, int(path.stat().st_size * share))


def zeroed(path: Path) -> None:
    path.write_bytes(b"\0" * max(path.stat().st_size, 10))


def filled_folder(path: Path) -> None:
    path.mkdir()
    (path / "somebody's").write_text("keep me\n")


REPLACED: dict[str, Damage] = {
    "deleted": removed,
    "emptied": instead(Path.touch),
    "garbage": instead(lambda path: path.write_bytes(bytes(range(256)) * 3) and None),
    "folder": instead(filled_folder),
    "dangling-link": instead(lambda path: path.symlink_to("/nowhere/at/all")),
    "link-to-passwd": instead(lambda path: path.symlink_to(OUTSIDE)),
    "fifo": instead(os.mkfifo),
}
DAMAGED: dict[str, Damage] = {
    **REPLACED,
    "zeros": zeroed,
    "half": cut(0.5),
    "last-byte-gone": cut(0.9999),
    "flip-start": flipped(0.01),
    "flip-middle": flipped(0.5),
    "flip-end": flipped(0.99),
}

FILES: dict[str, Callable[[Project], Path]] = {
    "snapshot": lambda project: project.snapshots()[-1],
    "sidecar": lambda project: project.snapshots()[-1].with_suffix(".sha256"),
    "summary": lambda project: project.run_dir / "checkpoint.json",
    "todos": lambda project: project.state / "todos.db",
}
PAGES: dict[str, Callable[[Project], Path]] = {
    "progress.md": lambda project: project.run_dir / "progress.md",
    "checkpoint.md": lambda project: project.root / "checkpoint.md",
    "RESUME.md": lambda project: project.root / "RESUME.md",
}
OUR_FILES = ("engine.lock", "append.lock")
OUR_FOLDERS = ("tmp", f"objects/{RUN_ID}", f"runs/{RUN_ID}/quarantine", f"runs/{RUN_ID}/logs")
STRANGE = {"folder", "dangling-link", "link-to-passwd", "fifo"}


# --- what must hold ------------------------------------------------------------------------------------------


def continued(project: Project, *words: str) -> Said:
    """One more process; nothing it prints is a traceback, and nothing outside was touched."""
    before = OUTSIDE.read_bytes()
    ended = project(*(words or ("resume",)))
    assert "Traceback" not in ended.text, ended.text
    assert OUTSIDE.read_bytes() == before
    return ended


def assert_right(project: Project, bases: Bases, ended: Said, ran: set[str]) -> None:
    """The run is complete, its artifacts are byte for byte right, and nothing but `ran` was done, once."""
    assert ended.code == 0, ended.text
    assert project.bodies() == bases.finished.bodies()
    assert project.ran() == Counter(dict.fromkeys(ran, 1))


def assert_whole(project: Project) -> None:
    """Afterwards nothing is off any more."""
    verified = project("verify")
    assert verified.code == 0, verified.text


BOOK = {"book"}
VALUES = {"score[ch01]", "score[ch02]"}


@pytest.mark.parametrize("how", DAMAGED)
@pytest.mark.parametrize("which", FILES)
def test_derived_state_can_be_damaged_in_any_way(tmp_path: Path, bases: Bases, which: str, how: str) -> None:
    """Snapshots, sidecars, summaries and views: only the step that was left runs, and afterwards all is whole."""
    project = bases.failed.copy(tmp_path)
    DAMAGED[how](FILES[which](project))
    assert_right(project, bases, continued(project), BOOK)
    assert_whole(project)


@pytest.mark.parametrize("how", REPLACED)
@pytest.mark.parametrize("which", PAGES)
def test_whatever_stands_where_a_page_belongs_is_set_aside(
    tmp_path: Path, bases: Bases, which: str, how: str
) -> None:
    """Views replaced by anything: it goes on, and a folder of somebody's is kept."""
    project = bases.failed.copy(tmp_path)
    REPLACED[how](PAGES[which](project))
    assert_right(project, bases, continued(project), BOOK)
    assert_whole(project)
    if how == "folder":
        assert [path.read_text() for path in project.root.rglob("somebody's")] == ["keep me\n"]


@pytest.mark.parametrize("how", ["deleted", "emptied", "garbage"])
@pytest.mark.parametrize("which", ["engine.lock", "append.lock"])
def test_a_lock_file_may_say_anything(tmp_path: Path, bases: Bases, which: str, how: str) -> None:
    """The lock is the kernel's."""
    project = bases.failed.copy(tmp_path)
    REPLACED[how](project.state / which)
    assert_right(project, bases, continued(project), BOOK)
    assert_whole(project)


@pytest.mark.parametrize("how", sorted(STRANGE))
@pytest.mark.parametrize("which", OUR_FILES + OUR_FOLDERS)
@pytest.mark.parametrize("command", ["resume", "recover", "recover --dry-run"])
def test_something_strange_in_our_own_place_stops_with_its_remedy(
    tmp_path: Path, bases: Bases, which: str, how: str, command: str
) -> None:
    """One line names it, and it stays as it is; after it is moved away as that says, all goes on."""
    project = bases.failed.copy(tmp_path)
    place = project.state / which
    REPLACED["emptied" if which in OUR_FOLDERS and how == "folder" else how](place)
    refused = continued(project, *command.split())
    assert (refused.code, len(refused.err.splitlines())) == (4, 1), refused.text
    assert f".holdfast/{which} is " in refused.err
    assert ("ove the link away" if "link" in how else "Move it away") in refused.err
    place.rename(tmp_path / "away")
    ended = continued(project)
    assert_right(project, bases, ended, BOOK | VALUES if which.startswith("objects/book") else BOOK)
    assert_whole(project)


@pytest.mark.parametrize("how", DAMAGED)
@pytest.mark.parametrize("command", ["run", "resume"])
def test_a_journal_with_snapshots_can_be_damaged_in_any_way(
    tmp_path: Path, bases: Bases, how: str, command: str
) -> None:
    """The newest snapshot covers what the journal lost; nothing finished runs again."""
    project = bases.failed.copy(tmp_path)
    DAMAGED[how](project.journal())
    words = ("run", "book.py") if command == "run" else ("resume",)
    assert_right(project, bases, continued(project, *words), BOOK)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("how", ["flip-middle", "zeros", "folder", "deleted"])
def test_the_newest_snapshots_can_all_be_damaged(tmp_path: Path, bases: Bases, count: int, how: str) -> None:
    """The next older one serves, and in the end the journal alone."""
    project = bases.failed.copy(tmp_path)
    for path in project.snapshots()[-count:]:
        DAMAGED[how](path)
    ended = continued(project)
    assert_right(project, bases, ended, BOOK)
    assert_whole(project)
    if how != "deleted":
        assert "checkpoint_0003.json is damaged; it is kept as" in ended.text


@pytest.mark.parametrize("how", DAMAGED)
def test_a_journal_without_snapshots_can_be_damaged_in_any_way(tmp_path: Path, bases: Bases, how: str) -> None:
    """What is lost with it are values, which are made again; no step with a whole sealed file is."""
    project = bases.killed.copy(tmp_path)
    DAMAGED[how](project.journal())
    ended = continued(project, "run", "book.py")
    assert ended.code == 0, ended.text
    assert project.bodies() == bases.finished.bodies()
    assert not project.ran().keys() & FILES_ONLY
    assert_whole(project)


@pytest.mark.parametrize("how", DAMAGED)
def test_copies_that_are_lost_are_made_again(tmp_path: Path, bases: Bases, how: str) -> None:
    """Without the pack only values are lost; afterwards every artifact has its copy again."""
    project = bases.failed.copy(tmp_path)
    DAMAGED[how](project.state / "objects" / RUN_ID / "0001.pack")
    ended = continued(project)
    assert ended.code == 0, ended.text
    assert project.bodies() == bases.finished.bodies()
    assert project.ran().keys() <= BOOK | VALUES
    assert_whole(project)


@pytest.mark.parametrize("how", ["deleted", "emptied-folder"])
def test_a_lost_objects_folder_is_told_and_filled_again(tmp_path: Path, bases: Bases, how: str) -> None:
    """An artifact that is deleted later is healed from the copy that was made again."""
    project = bases.failed.copy(tmp_path)
    removed(project.state / "objects")
    if how == "emptied-folder":
        (project.state / "objects").mkdir()
    ended = continued(project)
    assert "5 copies were missing from objects/ and were made again from their files" in ended.text
    assert_right(project, bases, ended, BOOK | VALUES)
    (project.root / "drafts" / "ch01.md").unlink()
    assert_right(project, bases, continued(project, "run", "book.py"), BOOK | VALUES)


@pytest.mark.parametrize("how", ["emptied", "dangling-link", "link-to-passwd", "fifo"])
@pytest.mark.parametrize("which", [".holdfast", ".holdfast/objects", ".holdfast/runs"])
def test_a_folder_of_state_that_is_none_stops_with_its_remedy(
    tmp_path: Path, bases: Bases, which: str, how: str
) -> None:
    """One line names it; after it is moved away as that says, the run is found again by its files."""
    project = bases.failed.copy(tmp_path)
    folder = project.root / which
    shutil.move(folder, tmp_path / "moved")
    REPLACED[how](folder)
    refused = continued(project, "run", "book.py")
    assert (refused.code, len(refused.err.splitlines())) == (4, 1)
    assert (
        f"{which} is " in refused.err and ("ove the link away" if "link" in how else "Move it away") in refused.err
    )
    folder.rename(tmp_path / "away")
    ended = continued(project, "run", "book.py")
    assert_right(project, bases, ended, BOOK | VALUES)


@pytest.mark.parametrize("how", REPLACED)
def test_a_run_folder_that_is_none_is_not_followed(tmp_path: Path, bases: Bases, how: str) -> None:
    """When its owner has moved it away, the run gets its id back from the seals."""
    project = bases.failed.copy(tmp_path)
    REPLACED[how](project.run_dir)
    if how not in ("deleted", "folder"):
        refused = continued(project, "run", "book.py")
        assert (refused.code, len(refused.err.splitlines())) == (2 if "link" in how else 4, 1)
        assert ("move the link away" if "link" in how else "Move it away") in refused.err
        project.run_dir.rename(tmp_path / "away")
    ended = continued(project, "run", "book.py")
    assert_right(project, bases, ended, BOOK | VALUES)
    assert project.run_dir.is_dir() and not project.run_dir.is_symlink()
    assert_whole(project)


def test_a_link_to_another_folder_is_not_written_through(tmp_path: Path, bases: Bases) -> None:
    """tmp, large objects, quarantine and logs: nothing appears where a link leads."""
    for number, name in enumerate(OUR_FOLDERS):
        project = bases.failed.copy(tmp_path / str(number))
        elsewhere = tmp_path / f"elsewhere-{number}"
        elsewhere.mkdir()
        instead(lambda path, to=elsewhere: path.symlink_to(to))(project.state / name)
        ended = continued(project, "run", "book.py")
        assert ended.code == 4, ended.text
        assert os.listdir(elsewhere) == []


@pytest.mark.skipif(os.geteuid() == 0, reason=UNREADABLE)
@pytest.mark.parametrize("which", ["events.jsonl", "checkpoint_0003.json", "checkpoint.json"])
def test_a_file_that_may_not_be_read_loses_nothing(tmp_path: Path, bases: Bases, which: str) -> None:
    """The journal stops it with one line; whatever is derived is set aside."""
    project = bases.failed.copy(tmp_path)
    path = project.run_dir / which
    path.chmod(0)
    ended = continued(project)
    if which == "events.jsonl":
        assert ended.code == 6 and which in ended.err
        path.chmod(0o600)
        ended = continued(project)
    assert_right(project, bases, ended, BOOK)


# --- the journal, line by line -------------------------------------------------------------------------------


def with_lines(change: Callable[[list[bytes]], list[bytes]]) -> Damage:
    def damage(path: Path) -> None:
        path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))

    return damage


def after_third(line: bytes) -> Damage:
    return with_lines(lambda lines: [*lines[:3], line, *lines[3:]])


LINES: dict[str, Damage] = {
    "duplicated": with_lines(lambda lines: [*lines[:5], lines[4], *lines[5:]]),
    "swapped": with_lines(lambda lines: [*lines[:5], lines[6], lines[5], *lines[7:]]),
    "first-gone": with_lines(lambda lines: lines[1:]),
    "first-two-gone": with_lines(lambda lines: lines[2:]),
    "middle-gone": with_lines(lambda lines: lines[:6] + lines[7:]),
    "20-mb": after_third(b'{"seq":4,"ts":"' + b"9" * (20 << 20) + b'"}\n'),
    "no-utf-8": after_third(b'{"seq":4,\xff\xfe\xfd}\n'),
    "deep": after_third(b'{"seq":4,"ts":"2026","v":1,"event":' + b"[" * 200_000 + b"\n"),
    "nan": after_third(b'{"seq":4,"ts":"2026","v":1,"event":"note","text":NaN}\n'),
    "huge-int": after_third(b'{"seq":' + b"9" * 5000 + b',"ts":"2026","v":1,"event":"note"}\n'),
    "equal-keys": after_third(b'{"seq":4,"seq":5,"ts":"2026","v":1,"event":"note"}\n'),
    "nuls": after_third(b"\0" * 5000 + b"\n"),
    "crlf": with_lines(lambda lines: [line.replace(b"\n", b"\r\n") for line in lines]),
    "bom": with_lines(lambda lines: [b"\xef\xbb\xbf" + lines[0], *lines[1:]]),
}


@pytest.mark.parametrize("base", ["failed", "killed"])
@pytest.mark.parametrize("how", LINES)
def test_damaged_lines_cost_no_finished_step(tmp_path: Path, bases: Bases, how: str, base: str) -> None:
    """All good lines are kept: no step with a whole file runs again, and the end is byte for byte the same."""
    project = bases.named(base).copy(tmp_path)
    LINES[how](project.journal())
    ended = continued(project, "run", "book.py")
    assert ended.code == 0, ended.text
    assert project.bodies() == bases.finished.bodies()
    assert not project.ran().keys() & FILES_ONLY
    if base == "failed":
        assert project.ran() == Counter(BOOK)


def test_a_lost_line_about_a_finished_step_wastes_nothing(tmp_path: Path, bases: Bases) -> None:
    """Its file is adopted; what it has cost was not thrown away."""
    project = bases.killed.copy(tmp_path)
    is_end = re.compile(rb'"event":"node_exit","step_id":"outline"')
    with_lines(lambda lines: [b"\0\n" if is_end.search(line) else line for line in lines])(project.journal())
    ended = continued(project, "run", "book.py")
    assert_right(project, bases, ended, BOOK)
    assert "cost $0.500 ($0.00 now, $0.00 wasted)" in ended.text
    assert_whole(project)


def test_a_journal_cut_at_any_byte_goes_on(tmp_path: Path, bases: Bases) -> None:
    """Without snapshots, at a dozen places over the whole file."""
    size = bases.killed.journal().stat().st_size
    for number in range(12):
        project = bases.killed.copy(tmp_path / str(number))
        os.truncate(project.journal(), size * number // 12 + number % 7)
        ended = continued(project, "run", "book.py")
        assert ended.code == 0, ended.text
        assert project.bodies() == bases.finished.bodies()
        assert not project.ran().keys() & FILES_ONLY


def test_resume_knows_a_run_without_a_beginning_by_its_summary(tmp_path: Path, bases: Bases) -> None:
    """checkpoint.json names pipeline, file and parameters; the id and every finished step stay."""
    project = bases.failed.copy(tmp_path)
    for path in project.snapshots():
        path.unlink()
    LINES["first-gone"](project.journal())
    assert_right(project, bases, continued(project), BOOK)
    assert_whole(project)


def test_resume_knows_a_run_without_a_beginning_by_its_letter(tmp_path: Path, bases: Bases) -> None:
    """With checkpoint.json gone too, RESUME.md names them."""
    project = bases.failed.copy(tmp_path)
    for path in (*project.snapshots(), project.run_dir / "checkpoint.json"):
        path.unlink()
    LINES["first-gone"](project.journal())
    assert_right(project, bases, continued(project), BOOK)
    assert_whole(project)


def test_a_run_of_which_nothing_is_known_says_how_to_go_on(tmp_path: Path, bases: Bases) -> None:
    """Neither journal nor view names its pipeline: the message does what is needed, and it works."""
    project = bases.killed.copy(tmp_path)
    LINES["first-gone"](project.journal())
    refused = continued(project, "resume", RUN_ID)
    assert refused.code == 4 and f"holdfast run FILE.py --resume {RUN_ID}" in refused.err
    assert_right(project, bases, continued(project, "run", "book.py", "--resume", RUN_ID), BOOK)
    assert_whole(project)


BEHIND: dict[str, Damage] = {
    "flipped": flipped(0.1),
    "swapped": LINES["swapped"],
    "duplicated": LINES["duplicated"],
    "lost": LINES["middle-gone"],
    "repeated-at-the-end": with_lines(lambda lines: [*lines, lines[4]]),
    "repeated-twice-and-torn": with_lines(lambda lines: [*lines, lines[4], lines[-1], b"{"]),
}


@pytest.mark.parametrize("how", BEHIND)
@pytest.mark.parametrize("command", ["run book.py", "resume", "recover"])
def test_damage_behind_a_snapshot_is_mended_and_told_once(
    tmp_path: Path, bases: Bases, how: str, command: str
) -> None:
    """`verify` finds it and names `resume`; whichever command comes next mends it, keeps the old one, says so."""
    project = bases.failed.copy(tmp_path)
    BEHIND[how](project.journal())
    found = continued(project, "verify")
    assert found.code == 4 and f"holdfast resume {RUN_ID} keeps every line that is whole" in found.out
    assert not [line for line in found.out.splitlines() if "checkpoint_" in line and not line.startswith("note: ")]
    ended = continued(project, *command.split())
    assert ended.code == 0, ended.text
    told = [line for line in ended.text.splitlines() if "journal" in line]
    assert len(told) == 1 or (command == "recover" and told), ended.text
    assert list((project.run_dir / "quarantine").glob("events.jsonl*"))
    assert_whole(project)
    assert_right(project, bases, continued(project, "run", "book.py"), BOOK)
    assert "quarantine" not in continued(project, "run", "book.py").text


@pytest.mark.parametrize("how", BEHIND)
def test_damage_behind_a_snapshot_of_a_finished_run_is_mended(tmp_path: Path, bases: Bases, how: str) -> None:
    """Although there is nothing to do, what was found is told before that is said."""
    project = bases.finished.copy(tmp_path)
    BEHIND[how](project.journal())
    ended = continued(project, "run", "book.py")
    assert_right(project, bases, ended, set())
    assert "! " in ended.text and "journal" in ended.text
    assert_whole(project)
    assert "journal" not in continued(project, "run", "book.py").text


@pytest.mark.parametrize("base", ["failed", "killed"])
def test_lines_repeated_at_the_end_stop_nobody(tmp_path: Path, bases: Bases, base: str) -> None:
    """Neither who records a note, nor the next run."""
    project = bases.named(base).copy(tmp_path)
    BEHIND["repeated-at-the-end"](project.journal())
    for number in range(2):
        assert continued(project, "note", f"word {number}").code == 0
        BEHIND["repeated-at-the-end"](project.journal())
    assert_right(project, bases, continued(project), BOOK)
    assert_whole(project)


def test_quick_believes_the_snapshot(tmp_path: Path, bases: Bases) -> None:
    """The lines before it are not read; the next run without --quick finds what is wrong with them."""
    project = bases.failed.copy(tmp_path)
    flipped(0.1)(project.journal())
    assert "journal" not in continued(project, "resume", "--quick").text
    assert "the journal was damaged" in continued(project, "run", "book.py").text
    assert_whole(project)


def test_a_journal_that_lost_its_end_is_written_anew(tmp_path: Path, bases: Bases) -> None:
    """`verify` says what is true of it: the snapshot stands in, and resume writes the journal anew."""
    for number, damage in enumerate([with_lines(lambda lines: lines[:6]), removed]):
        project = bases.finished.copy(tmp_path / str(number))
        damage(project.journal())
        (line, *_) = continued(project, "verify").out.splitlines()
        assert "events.jsonl has lost its end" in line and "checkpoint_0001.json" in line
        assert line.endswith(f"holdfast resume {RUN_ID} writes the journal anew, with a word about what it lost")
        assert_right(project, bases, continued(project, "resume", RUN_ID), set())
        assert_whole(project)


def test_an_older_damaged_snapshot_is_set_aside_too(tmp_path: Path, bases: Bases) -> None:
    """Nobody needs it, but `verify` would find it for ever."""
    project = bases.failed.copy(tmp_path)
    zeroed(project.snapshots()[0])
    assert "checkpoint_0001.json is damaged" in continued(project).text
    assert_whole(project)
