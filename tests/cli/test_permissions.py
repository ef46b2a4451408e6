"""Files and folders that may not be read, entered or written to: told in one line, and nothing is lost by it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from unprivileged import folder_of_a_plain_user

from .conftest import Project

PIPELINE = """
from holdfast import Context, Pipeline

pipe = Pipeline("book")
pipe.items("chapter", ["a", "b"])


@pipe.step
def facts(ctx: Context) -> str:
    with open(ctx.dir / "calls", "a") as calls:
        calls.write("facts\\n")
    return "x" * 2_000_000


@pipe.step(each="chapter", writes="drafts/{chapter}.md")
def draft(ctx: Context, chapter: str, facts: str) -> str:
    with open(ctx.dir / "calls", "a") as calls:
        calls.write(f"{chapter}\\n")
    return f"text of {chapter}\\n"


@pipe.step(writes="book.md")
def assemble(draft: dict) -> str:
    if not (pipe_folder / "go").exists():
        raise RuntimeError("not yet")
    return "".join(draft.values())
"""
LOOKING = (("plan",), ("why", "draft[a]"), ("verify",), ("scan",), ("recover", "--dry-run"))
GOING_ON = (("recover",), ("resume",))


@pytest.fixture
def project(capsys: pytest.CaptureFixture[str]) -> Iterator[Project]:
    """A run whose last step has failed; its files are those of a user who is not root."""
    with folder_of_a_plain_user() as folder:
        made = Project(folder, capsys)
        text = PIPELINE.replace("pipe_folder", f"__import__('pathlib').Path({str(folder)!r})")
        (folder / "book.py").write_text(text)
        assert made.run("--run-id", "r").code == 1
        yield made


def calls(project: Project) -> list[str]:
    return sorted((project.root / "calls").read_text().split())


def assert_goes_on(project: Project, times_called: int = 1) -> None:
    """The run is brought to its end, and nothing is done twice."""
    (project.root / "go").touch()
    assert project("resume").code == 0
    assert calls(project) == sorted(["facts", *["a", "b"] * times_called])
    assert project("verify").code == 0


def test_permissions_keep_us_out(project: Project) -> None:
    """Otherwise nothing here would prove anything."""
    locked = project.root / "locked"
    locked.write_text("x")
    locked.chmod(0)
    with pytest.raises(PermissionError):
        locked.read_text()


@pytest.mark.parametrize("mode", [0o000, 0o444], ids=["closed", "listed only"])
@pytest.mark.parametrize("words", [*LOOKING, *GOING_ON], ids=lambda words: words[0])
def test_a_folder_that_may_not_be_entered_stops_every_command(
    project: Project, words: tuple[str, ...], mode: int
) -> None:
    """Nothing is said of the files in it, neither that they are damaged nor that they are missing."""
    drafts = project.root / "drafts"
    drafts.chmod(mode)
    said = project(*words)
    drafts.chmod(0o700)
    assert said.code == 6
    assert said.err.splitlines()[-1].endswith(f"run the same command: chmod u+rwx {drafts}")
    assert_goes_on(project)


def test_nothing_is_paid_for_that_could_not_be_put_anywhere(project: Project) -> None:
    """A step does not begin while the folder of its file is read-only."""
    drafts = project.root / "drafts"
    drafts.chmod(0o500)
    said = project("resume", "--redo", "draft")
    assert said.code == 6 and f"Could not write into {drafts}" in said.err
    assert calls(project) == ["a", "b", "facts"]
    drafts.chmod(0o700)
    assert_goes_on(project, times_called=2)


def test_a_large_value_that_cannot_be_looked_at_is_not_lost(project: Project) -> None:
    """Its step is not run again for it, and what may not be entered is named."""
    objects = project.root / ".holdfast/objects/r"
    objects.chmod(0)
    said = project("resume")
    objects.chmod(0o700)
    assert said.code == 6 and str(objects) in said.err
    assert_goes_on(project)


@pytest.mark.parametrize("place", ["", ".holdfast/tmp", ".holdfast/runs/r"])
def test_a_word_is_recorded_once_though_no_view_can_be_written(project: Project, place: str) -> None:
    """It is on record, so the command has done what it was asked; what is behind is told."""
    folder = project.root / place
    folder.chmod(0o500)
    said = project("note", "remember the kelp")
    folder.chmod(0o700)
    assert said.code == 0, said.err
    assert said.lines[0].startswith("The note is recorded. The views are behind")
    assert "Permission denied" in said.lines[0]
    assert project("events").out.count("remember the kelp") == 1
    assert project("note", "and more").code == 0
    assert "remember the kelp" in (project.root / "RESUME.md").read_text()


def test_nothing_is_recorded_where_nobody_can_tell_who_runs_the_project(project: Project) -> None:
    """The command can simply be repeated."""
    lock = project.root / ".holdfast/engine.lock"
    lock.chmod(0)
    said = project("note", "remember the kelp")
    lock.chmod(0o600)
    assert said.code == 6 and "engine.lock" in said.err
    assert "remember" not in project("events").out


def test_one_run_that_may_not_be_read_does_not_hide_the_others(project: Project) -> None:
    """`list` shows all of them."""
    (project.root / "other.py").write_text(
        'from holdfast import Pipeline\np = Pipeline("other")\np.step(lambda: 1, name="s")\n'
    )
    assert project("run", str(project.root / "other.py"), "--run-id", "s").code == 0
    closed = project.root / ".holdfast/runs/r"
    closed.chmod(0)
    said = project("list")
    closed.chmod(0o700)
    assert said.code == 0
    assert {line.split()[0] for line in said.lines[1:3]} == {"r", "s"}


def test_clean_removes_nothing_of_a_run_whose_copies_it_cannot_see(project: Project) -> None:
    """With its folder gone, nobody would know that the copies are to go, too."""
    (project.root / "go").touch()
    assert project("resume").code == 0
    objects = project.root / ".holdfast/objects"
    objects.chmod(0)
    said = project("clean", "--max-runs", "0")
    objects.chmod(0o700)
    assert said.code == 6 and str(objects) in said.err
    assert project("clean", "--max-runs", "0").code == 0
    assert not (objects / "r").exists() and not list((project.root / ".holdfast/runs").iterdir())


def test_a_rename_that_is_refused_names_the_file_and_not_a_temporary(project: Project) -> None:
    """The last views of a run go to a folder that is read-only."""
    (project.root / "go").touch()
    assert project("resume").code == 0
    project.root.chmod(0o500)
    said = project("recover")
    project.root.chmod(0o700)
    assert said.code == 6
    assert f"{project.root / 'checkpoint.md'}: Permission denied" in said.err


def test_a_journal_that_may_only_be_read_is_named(project: Project) -> None:
    """What could not be done is not called reading."""
    journal = project.root / ".holdfast/runs/r/events.jsonl"
    journal.chmod(0o400)
    said = project("note", "remember the kelp")
    assert said.code == 6 and f"Could not append to the journal {journal}: Permission denied." in said.err
    assert project("status").code == 0
    journal.chmod(0o600)
    assert_goes_on(project)
