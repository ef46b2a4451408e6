"""run and resume: what they say at the beginning and the end, their exit statuses, and their mistakes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from harness import Harness
from holdfast.cli import main as cli

from .conftest import Project


def test_new_run_says_what_it_starts_and_what_it_cost(project: Project) -> None:
    """A new run names pipeline, id and parameters in one line, and ends with one line of totals."""
    said = project.run("-p", "topic=sea=weed")
    (run_id,) = project.run_ids()
    assert said.code == 0
    assert said.lines[0] == f"book: new run {run_id}, topic=sea=weed, n=2"
    assert said.lines[1].startswith("Completed: 4 of 4 steps (0 reused, 4 ran now)")
    assert "cost $0.020 ($0.020 now, $0.00 wasted)" in said.lines[1]
    assert len(said.lines) == 2
    assert "✓ draft[ch01]" in said.err


def test_completed_run_has_nothing_to_do(project: Project) -> None:
    """The same command again finds everything complete, says so, and starts no second run."""
    project.run()
    said = project.run()
    assert said.code == 0
    assert said.lines[-1].startswith("Nothing to do: all 4 steps")
    assert len(project.run_ids()) == 1


def test_failed_run_ends_with_the_command_that_continues(project: Project) -> None:
    """A failed task is exit 1, named with its error and its command; the last line continues the run."""
    project.touch("fail-ch02")
    said = project.run()
    (run_id,) = project.run_ids()
    where = shlex.quote(str(project.root))
    assert said.code == 1
    assert "RuntimeError: no luck with ch02" in said.out
    assert f"      holdfast retry 'draft[ch02]' --dir {where}" in said.lines
    assert said.lines[-1] == f"Continue with: holdfast resume {run_id} --dir {where}"


def test_printed_continue_command_works(project: Project) -> None:
    """The last line of a failed run, typed as it stands, completes it without paying for finished steps."""
    broken = project.touch("fail-ch02")
    words = shlex.split(project.run().lines[-1].removeprefix("Continue with: holdfast "))
    broken.unlink()
    said = project(*words[:-2])
    assert said.code == 0
    assert "(2 reused, 2 ran now)" in said.lines[-1]


def test_continued_run_begins_with_what_it_continues(project: Project) -> None:
    """A continued run tells parameters, the last completed task, where it goes on, and the cost so far."""
    project.touch("fail-ch02").unlink()
    project.touch("gated")
    assert project.run().code == 3
    (run_id,) = project.run_ids()
    project("approve", "publish_ok")
    said = project("resume")
    assert said.lines[0] == f"book: continuing run {run_id}"
    assert said.lines[1:3] == ["  topic: kelp", "  n: 2"]
    assert said.lines[3] == "  on record: 3 finished steps"
    assert said.lines[4].startswith("  last completed: draft[")
    assert said.lines[5] == "  continuing from: assemble"
    assert said.lines[6] == "  cost so far: $0.020"
    assert said.code == 0


def test_what_a_run_continues_from_is_counted_where_it_is_not_all_named(project: Project) -> None:
    """Three are named, so that the line stays one."""
    for number in range(1, 6):
        project.touch(f"fail-ch0{number}")
    project.run("-p", "n=5")
    assert "  continuing from: draft[ch01], draft[ch02], draft[ch03] and 2 more" in project("resume").lines


def test_failed_and_rejected_tasks_are_what_a_run_continues_from(project: Project) -> None:
    """They run again at once, so they are named; with --no-retry a failed one is not."""
    project.touch("fail-ch02")
    project.run("--run-id", "one")
    assert "  continuing from: draft[ch02]" in project("resume").lines
    project("reject", "draft[ch01]", "--to", "chapters", "--feedback", "more")
    assert "  continuing from: chapters" in project("resume").lines
    assert not [line for line in project("resume", "--no-retry").lines if "continuing from" in line]


def test_changed_parameter_is_shown_old_and_new(project: Project) -> None:
    """--resume with -p shows the old and the new value of the parameter that changes."""
    project.run()
    (run_id,) = project.run_ids()
    said = project.run("--resume", run_id, "-p", "n=3")
    assert "  n: 2 -> 3" in said.lines
    assert said.code == 0


def test_gate_is_exit_3_with_its_question_and_command(project: Project) -> None:
    """A run that waits at a gate exits with 3 and prints the gate's question and the approving command."""
    project.touch("gated")
    said = project.run()
    assert said.code == 3
    assert "  publish_ok: Read it once more" in said.lines
    assert any(line.strip().startswith("holdfast approve publish_ok --dir") for line in said.lines)


def test_budget_pauses_with_exit_3(project: Project) -> None:
    """A budget that is used up pauses the run, and the end names the option that goes on."""
    said = project.run("--budget", "0.01", "--concurrency", "1")
    assert said.code == 3
    assert "budget" in said.out
    assert "--budget" in said.out
    assert project("plan").lines[-1] == (
        "The budget is used up ($0.010 of $0.010): nothing would start before it is raised with --budget"
    )


def test_needs_of_an_older_run_name_that_run(project: Project) -> None:
    """Where the newest unfinished run is another one, the printed command says which run it means."""
    project.touch("gated")
    project.run("--run-id", "older")
    project.run("--run-id", "newer", "-p", "topic=x")
    said = project("status", "older")
    assert any("holdfast approve publish_ok --run older" in line for line in said.lines)


def test_what_was_left_out_is_not_called_reused(project: Project) -> None:
    """A skipped step was neither run nor used: the last line counts it by itself."""
    (project.root / "fail-ch01").touch()
    project.run()
    project("decide", "draft[ch01]", "skip")
    said = project("resume")
    assert "Completed: 3 of 4 steps (2 reused, 1 ran now, 1 skipped)" in said.lines[-1]


SHRINKING = """
from holdfast import Context, Pipeline, Rewind

pipe = Pipeline("search")


@pipe.step
def search(ctx: Context) -> list:
    return ["good"] if ctx.feedback else ["good", "bad", "worse"]


@pipe.items("source")
def sources(search: list) -> list:
    return search


@pipe.step(each="source")
def fetch(source: str) -> str:
    return source


@pipe.step
def report(fetch: dict) -> str:
    if "bad" in fetch:
        raise Rewind("search", feedback="leave it out")
    return "done"
"""


def test_work_of_items_that_are_gone_is_not_counted_among_what_is_done(project: Project) -> None:
    """What a sent back search no longer finds was fetched now, and is no step of the run any more."""
    (project.root / "book.py").write_text(SHRINKING, encoding="utf-8")
    said = project.run()
    assert said.lines[-1].startswith("Completed: 4 of 4 steps (0 reused, 4 ran now)")


WRITER = """
from holdfast import Pipeline

pipe = Pipeline("writer")


@pipe.step(writes="{name}.md", version={version})
def text() -> str:
    return "the text"


@pipe.step
def length(text: str) -> int:
    return len(text)


if {version} == 2:

    @pipe.migration("text", 1)
    def louder(value: str) -> str:
        return value + "!"
"""


def write_pipeline(project: Project, name: str, version: int) -> None:
    text = WRITER.replace("{name}", name).replace("{version}", str(version))
    (project.root / "book.py").write_text(text, encoding="utf-8")


def test_the_document_says_what_was_believed_and_left_alone(project: Project) -> None:
    """--quick and --only-needed are told to whoever reads --json, too; without them nothing is."""
    write_pipeline(project, "a", 1)
    project.run()
    assert json.loads(project.run("--quick", "--json").out)["unread"] == 1
    assert "unread" not in json.loads(project.run("--json").out)
    (project.root / "a.md").unlink()
    assert json.loads(project.run("--only-needed", "--json").out)["left_alone"] == ["a.md"]


@pytest.mark.parametrize(("name", "version"), [("b", 1), ("a", 2)])
def test_a_file_that_was_moved_or_migrated_is_something_done(project: Project, name: str, version: int) -> None:
    """The last line does not say that there was nothing to do."""
    write_pipeline(project, "a", 1)
    project.run()
    write_pipeline(project, name, version)
    assert project.run().lines[-1].startswith("Completed: 2 of 2 steps (2 reused, 0 ran now)")
    assert project.run().lines[-1].startswith("Nothing to do")


def test_resume_without_unfinished_run(project: Project) -> None:
    """resume with nothing unfinished proves the newest run, like run: a file that was emptied is mended."""
    write_pipeline(project, "a", 1)
    project.run()
    assert project("resume").lines[-1].startswith("Nothing to do")
    made = (project.root / "a.md").read_bytes()
    (project.root / "a.md").write_bytes(b"")
    said = project("resume")
    assert (said.code, (project.root / "a.md").read_bytes()) == (0, made), said.text
    assert not said.lines[-1].startswith("Nothing to do")


def test_an_edit_that_is_kept_is_not_nothing(project: Project) -> None:
    """The file was sealed anew: the last line does not say that there was nothing to do."""
    source = project.root / "book.py"
    title = "@pipe.step(writes='title.md')\ndef title() -> str:\n    return 'Kelp'\n"
    source.write_text(f"{source.read_text()}\n{title}")
    project.run()
    page = project.root / "title.md"
    page.write_text(page.read_text().replace("Kelp", "Dulse"))
    said = project.run("--on-changed", "keep")
    assert said.lines[-1].startswith("Completed: 5 of 5 steps (5 reused, 0 ran now)")
    assert project.run().lines[-1].startswith("Nothing to do")


def test_resume_when_the_file_is_gone(project: Project) -> None:
    """Without the pipeline's file, resume names the file and the command that says where it is."""
    project.touch("gated")
    project.run()
    (run_id,) = project.run_ids()
    (project.root / "book.py").rename(project.root / "moved.py")
    said = project("resume")
    assert said.code == 2
    assert said.err.splitlines() == [
        f"book.py, the pipeline of run {run_id}, is gone."
        f" Say where it is: holdfast run FILE.py --resume {run_id}{project.there}"
    ]
    assert project("run", "moved.py", "--resume", run_id).code == 3


@pytest.mark.parametrize("through_link", [False, True])
def test_a_pipeline_beside_the_project_is_found_after_both_were_moved(
    project: Project, tmp_path: Path, through_link: bool
) -> None:
    """The record has the way from the project to the file, also for a project that a link leads to."""
    project.touch("gated")
    folder = tmp_path / "all"
    inside = folder / "deep" / "project"
    inside.mkdir(parents=True)
    project.root.rename(folder / "source")
    (folder / "link").symlink_to("deep/project")
    project.root = folder / "link" if through_link else inside
    assert project("run", str(folder / "source" / "book.py")).code == 3
    folder.rename(tmp_path / "moved")
    project.root = tmp_path / "moved" / project.root.relative_to(folder)
    assert project("approve", "publish_ok").code == 0
    assert project("resume").code == 0
    assert str(tmp_path) not in (project.root / "RESUME.md").read_text()


def test_a_project_has_one_record_whichever_way_leads_to_it(project: Project, tmp_path: Path) -> None:
    """Begun through a link and gone on with beside it, the run and its pipeline's file are the same."""
    project.touch("gated")
    real, link = project.root, tmp_path / "link"
    link.symlink_to(real)
    project.root = link
    assert project("run", str(real / "book.py"), "--run-id", "r").code == 3
    assert project("approve", "publish_ok").code == 0
    project.root = real
    assert project("resume").code == 0
    recorded = [json.loads(line) for line in project("events", "--json").lines]
    assert {event["file"] for event in recorded if "file" in event} == {"book.py:pipe"}


def test_unknown_run_is_never_a_fresh_start(project: Project) -> None:
    """A run id that does not exist is an error for run and resume, and no folder appears."""
    for words in (("resume", "nosuch"), ("run", str(project.root / "book.py"), "--resume", "nosuch")):
        said = project(*words)
        assert said.code == 2
        assert said.err.startswith("There is no run nosuch.")
    assert not (project.root / ".holdfast").exists()


def test_record_lost_and_found_again(project: Project) -> None:
    """With all state deleted, the run gets back the id in its seals, and the beginning says so."""
    source = (project.root / "book.py").read_text(encoding="utf-8")
    source += "\n\n@pipe.step(writes='title.md')\ndef title(topic: str) -> str:\n    return topic\n"
    (project.root / "book.py").write_text(source, encoding="utf-8")
    project.run("--run-id", "first")
    shutil.rmtree(project.root / ".holdfast")
    said = project.run()
    assert said.lines[0].startswith("book: run first, its record is lost")
    assert said.lines[1].startswith("Files that are whole are taken over")
    assert "(4 reused, 1 ran now)" in said.lines[-1]  # what makes the items; the views speak for the values


def test_redo_runs_a_finished_step_again(project: Project) -> None:
    """--redo does the named step's tasks again and nothing else that is not changed by it."""
    project.run()
    said = project.run("--redo", "draft")
    assert said.code == 0
    assert said.err.count("✓ draft[") == 2
    assert "✓ chapters" not in said.err


def test_redo_names_steps_as_the_pipeline_calls_them_now(project: Project) -> None:
    """A step that was renamed since is redone under its new name; under the old one there is nothing."""
    project.run()
    file = project.root / "book.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("@pipe.step(after", '@pipe.step(name="bind", was="assemble", after'))
    assert "there is no step or task 'assemble'" in project.run("--redo", "assemble").err
    assert "✓ bind" in project.run("--redo", "bind").err


def test_redo_is_not_forgotten_where_the_record_is_lost(project: Project) -> None:
    """What the files prove is taken over first, and then done again as asked."""
    file = project.root / "book.py"
    file.write_text(
        file.read_text(encoding="utf-8").replace("@pipe.step(after", '@pipe.step(writes="b.md", after')
    )
    project.run()
    shutil.rmtree(project.root / ".holdfast")
    said = project.run("--redo", "assemble")
    assert (said.code, said.err.count("= assemble"), said.err.count("✓ assemble")) == (0, 1, 1)


def test_redo_of_an_unknown_name_runs_nothing(project: Project) -> None:
    """A misspelt --redo is a usage error with a suggestion, before anything is recorded."""
    project.run()
    before = project.files()
    said = project.run("--redo", "draft[ch09]")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("redo (--redo): there is no step or task 'draft[ch09]'. Did you mean draft[ch0")
    assert project.files() == before


def test_vanished_items_are_told_and_cannot_be_worked_on(project: Project) -> None:
    """An orphan is named at the end and by status, counts for nothing, and every wish about it is refused."""
    project.run("--run-id", "one")
    told = "No longer in the pipeline, files kept: draft[ch02]."
    assert told in project("resume", "one", "-p", "n=1").lines
    status = project("status", "one")
    assert told in status.lines
    assert "Steps: 3 of 3 done (3 completed)" in status.lines
    before = project.files()
    for words in (
        ["decide", "draft[ch02]", "redo"],
        ["retry", "draft[ch02]"],
        ["resume", "--redo", "draft[ch02]"],
    ):
        said = project(*words)
        assert (said.code, said.out) == (2, "")
        assert "draft[ch02] is no longer in the pipeline: its item or its step is gone." in said.err
    assert project.files() == before


def test_json_result_is_the_status_and_the_exit_code(project: Project) -> None:
    """run --json prints one document, the status with exit_code, and nothing on stderr."""
    project.touch("fail-ch02")
    said = project.run("--json")
    document = json.loads(said.out)
    assert document["exit_code"] == said.code == 1
    assert document["totals"]["needs_review"] == 1
    assert said.err == ""


def test_quiet_prints_only_the_end(project: Project) -> None:
    """--quiet leaves out the beginning and the progress."""
    said = project.run("--quiet")
    assert len(said.lines) == 1
    assert said.lines[0].startswith("Completed")
    assert said.err == ""


def test_held_project_is_exit_5(project: Project) -> None:
    """While another engine holds the project, run refuses with exit 5 and one line naming the holder."""
    project.run()
    with Harness(project.root).held("other"):
        said = project.run()
    assert said.code == 5
    assert len(said.err.splitlines()) == 1
    assert "runs this project" in said.err


def test_several_wrong_parameters_are_told_one_a_line(project: Project) -> None:
    """Every wrong parameter is told, each on its own line."""
    said = project.run("-p", "n=many", "-p", "colour=red")
    assert said.code == 2
    assert len(said.err.splitlines()) == 2
    assert not (project.root / ".holdfast").exists()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["-p", "topic"], "KEY=VALUE"),
        (["-p", "=x"], "KEY=VALUE"),
        (["-p", "n=1", "-p", "n=2"], "given twice"),
        (["--concurrency", "0"], "--concurrency"),
        (["--budget", "much"], "--budget"),
        (["--on-partial", "pray"], "--on-partial"),
        (["--colour"], "--colour"),
        (["--resume", "a", "--force"], "--resume"),
    ],
)
def test_wrong_options_are_usage_errors(project: Project, words: list[str], part: str) -> None:
    """A wrong option is exit 2 and one line that names it; nothing is created."""
    said = project.run(*words)
    assert (said.code, said.out) == (2, "")
    assert len(said.err.splitlines()) == 1
    assert part in said.err
    assert not (project.root / ".holdfast").exists()


def test_a_decision_that_leads_nowhere_offers_no_way_on(project: Project) -> None:
    """A completed run of which nothing is wanted is not offered; one without money is, with more of it."""
    project.run("--run-id", "one")
    assert project("retry", "--all").lines == ["There is nothing to retry."]
    assert json.loads(project("retry", "--all", "--json").out)["continue"] is None
    project.run("--run-id", "two", "-p", "n=3", "--budget", "0.01", "--concurrency", "1")
    assert project("note", "hello").lines[-1] == f"Continue with: holdfast resume two --budget 0.02{project.there}"


HOLDS = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_by_another(project: Project) -> Iterator[None]:
    """Another process keeps todos.db locked: within this one, locks end when any descriptor is closed."""
    words = [sys.executable, "-c", HOLDS, str(project.root / ".holdfast/todos.db")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        yield
        holder.communicate()


def todos(project: Project) -> dict[str, str]:
    with closing(sqlite3.connect(project.root / ".holdfast/todos.db")) as connection:
        return dict(connection.execute("SELECT id, status FROM todos").fetchall())


def test_a_database_that_another_program_holds_is_told_and_made_good(project: Project) -> None:
    """The run is done all the same, a line says what is old, verify has a note, and the next command mends it."""
    project.touch("fail-ch02")
    project.run()
    (project.root / "fail-ch02").unlink()
    locked = ".holdfast/todos.db cannot be read (another program keeps it locked)"
    with held_by_another(project):
        said = project.run()
        assert said.code == 0
        assert f"Not up to date: {locked}; the next command that changes the run writes it anew." in said.lines
        assert locked in json.loads(project.run("--json").out)["not_up_to_date"]
        assert f"Not up to date: {locked}" in project("note", "a word").out
        assert f"Not up to date: {locked}" in project("recover").out
        assert locked in json.loads(project("recover", "--json").out)["not_up_to_date"]
        assert f"{locked}; the next run writes it anew" in project("verify").out
    assert todos(project)["draft[ch02]"] != "done"
    said = project("verify")
    assert said.code == 0 and ".holdfast/todos.db is older than the journal" in said.out
    assert project("note", "another").lines == ["The note is recorded."]
    assert todos(project)["draft[ch02]"] == "done"
    assert "todos.db" not in project("verify").out


def test_a_complete_run_names_what_was_left_out(project: Project) -> None:
    """What was skipped is named at the end, now and whenever the run is looked at, and is not called complete."""
    project.touch("fail-ch01")
    project.run("--run-id", "one")
    project("decide", "draft[ch01]", "skip")
    command = f"holdfast retry --all{project.there}"
    left_out = f"Left out: draft[ch01]. To have that done after all: {command}"
    assert project("resume").lines[-2] == left_out
    *_, told, last = project("resume", "one").lines
    assert told == left_out
    assert last.startswith("Nothing to do: 3 of 4 steps of run one are complete and verified")


def test_whoever_begins_in_another_folder_is_told_of_the_run_beside_the_file(
    project: Project,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is all paid again there, so the first line names the other run, unless the folder was given."""
    project.run("--run-id", "one")
    other = tmp_path_factory.mktemp("other")
    monkeypatch.chdir(other)
    file = str(project.root / "book.py")

    def told_at(*options: str) -> str:
        capsys.readouterr()
        assert cli.run(["run", file, *options]) == 0
        return capsys.readouterr().err

    there = shlex.quote(os.path.relpath(project.root, other))
    told = told_at().splitlines()[0]
    assert told.endswith(f"has a run with these parameters: holdfast resume one --dir {there}")
    assert "has a run" not in told_at()  # it is continued
    assert "has a run" not in told_at("--force", "-p", "topic=reef")
    assert "has a run" not in told_at("--force", "--dir", ".")


def test_where_damaged_files_are_is_told(project: Project) -> None:
    """The end of a run names the folder into which it moved what it found damaged, and only then."""
    text = (project.root / "book.py").read_text()
    (project.root / "book.py").write_text(
        text.replace('step(each="chapter")', 'step(each="chapter", writes="{chapter}.csv")')
    )
    project.run("--run-id", "one")
    (project.root / "ch01.csv").write_text("my own words")
    said = project.run("--quiet")
    where = project.root / ".holdfast" / "runs" / "one" / "quarantine"
    assert said.lines[-2] == f"What was set aside as damaged is in {where.relative_to(project.root)}."
    assert [path.read_text() for path in where.iterdir()] == ["my own words"]
    assert len(project.run("--quiet").lines) == 1


def test_where_refused_outputs_are_is_told(project: Project) -> None:
    """What a check refused was not damaged: the end of the run says what it is, and names its folder."""
    text = (project.root / "book.py").read_text()
    (project.root / "book.py").write_text(
        text.replace('step(each="chapter")', 'step(each="chapter", writes="{chapter}.md", check=lambda out: "no")')
    )
    said = project.run("--run-id", "one")
    where = project.root / ".holdfast" / "runs" / "one" / "quarantine" / "refused"
    assert f"What was refused is kept in {where.relative_to(project.root)}." in said.lines
    assert "damaged" not in said.out
    assert list(where.iterdir()) != []
