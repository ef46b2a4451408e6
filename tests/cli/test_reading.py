"""list, status, events, plan and why: they show the record and change nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import unicodedata
from types import SimpleNamespace

import pytest

from harness import Harness
from holdfast.cli import main as cli
from holdfast.cli.printing import print_json

from .conftest import Project


def test_list_shows_parameters_and_tags_as_columns(project: Project) -> None:
    """Each run is a line with its parameters, tags, status, steps done and cost; the newest comes first."""
    project.run("--run-id", "one")
    project.run("--run-id", "two", "-p", "n=1")
    heading, newest, oldest = (line.split() for line in project("list").lines)
    assert heading == ["run", "pipeline", "topic", "n", "words", "status", "done", "cost"]
    assert newest == ["two", "book", "kelp", "1", "1", "completed", "3/3", "$0.010"]
    assert oldest[0] == "one"


def test_a_tag_hides_no_parameter(project: Project) -> None:
    """One of the same name has a column, and a line, of its own, which says that it is a tag."""
    book = project.root / "book.py"
    book.write_text(book.read_text().replace("ctx.tag(words=", "ctx.tag(topic='weeds', cost=9, words="))
    project.run("-p", "topic=kelp")
    heading, row = project("list").lines
    cells = dict(zip(re.split("  +", heading), re.split("  +", row), strict=True))
    assert (cells["topic"], cells["topic (tag)"], cells["cost (tag)"], cells["words"]) == (
        "kelp",
        "weeds",
        "9",
        "2",
    )
    assert {"  topic: kelp", "  topic (tag): weeds"} <= set(project("status").lines)


def test_list_as_json(project: Project) -> None:
    """list --json is a list of documents; an empty project is an empty list."""
    assert json.loads(project("list", "--json").out) == []
    project.run("--run-id", "one")
    (info,) = json.loads(project("list", "--json").out)
    assert info["run_id"] == "one"
    assert info["params"] == {"topic": "kelp", "n": 2}
    assert (info["done"], info["total"], info["running"]) == (4, 4, False)


def test_empty_project(project: Project) -> None:
    """Without runs, list says so with exit 0, status is a usage error, and neither creates anything."""
    before = project.files()
    assert project("list").code == 0
    assert len(project("list").lines) == 1
    assert project("status").code == 2
    assert project.files() == before


def test_unreadable_run_is_listed(project: Project) -> None:
    """A run whose journal is garbage does not hide the others, and is shown as unreadable."""
    project.run("--run-id", "good")
    broken = project.root / ".holdfast" / "runs" / "broken"
    broken.mkdir()
    (broken / "events.jsonl").write_bytes(b"garbage\n" * 3)
    said = project("list")
    assert said.code == 0
    assert [line.split()[0] for line in said.lines[1:]] == ["good", "broken"]
    assert "unreadable" in said.out


def test_a_lost_beginning_does_not_hide_the_run_that_goes_on(project: Project) -> None:
    """While an engine is at work on another run, `list` shows both."""
    project.run("--run-id", "lost")
    project.run("--run-id", "going", "-p", "n=1")
    run = project.root / ".holdfast" / "runs" / "lost"
    for snapshot in run.glob("checkpoint_*"):
        snapshot.unlink()
    lines = (run / "events.jsonl").read_bytes().splitlines(keepends=True)
    (run / "events.jsonl").write_bytes(b"".join(lines[1:-1]))
    with Harness(project.root).held("going"):
        said = project("list", "--json")
    assert [(info["run_id"], info["running"]) for info in json.loads(said.out)] == [
        ("going", True),
        ("lost", False),
    ]


def test_only_unreadable_runs_are_not_no_runs(project: Project) -> None:
    """Where no run can be read, status says that, and not that there are none."""
    project.run("--run-id", "good")
    run = project.root / ".holdfast" / "runs" / "good"
    for name in os.listdir(run):
        if (run / name).is_file():
            (run / name).write_bytes(b"garbage\n")
    said = project("status")
    assert said.code == 4
    assert "no readable beginning" in said.err


def test_status_shows_matrix_needs_and_the_way_on(project: Project) -> None:
    """status shows each item's steps, what needs a person with its command, cost, and how to continue."""
    project.touch("fail-ch02")
    project.run("--run-id", "one")
    said = project("status")
    assert said.code == 0
    assert said.lines[0].startswith("book, run one: failed")
    assert any(line.split() == ["ch01", "✅"] for line in said.lines)
    assert any(line.split() == ["ch02", "⚠️"] for line in said.lines)
    assert any("holdfast retry 'draft[ch02]'" in line for line in said.lines)
    assert any(line.startswith("Cost: $0.02") for line in said.lines)
    assert said.lines[-1].startswith("Continue with: holdfast resume one")


@pytest.mark.parametrize(("obstacle", "answer"), [("gated", "approve publish_ok"), ("fail-ch02", "retry --all")])
def test_status_after_the_last_answer_waits_for_nobody(project: Project, obstacle: str, answer: str) -> None:
    """Once everything is answered, status and the views no longer say that a person is waited for."""
    project.touch(obstacle)
    project.run("--run-id", "one")
    assert json.loads(project("status", "--json").out)["error"]
    project(*answer.split())
    said = project("status")
    assert said.lines[0] == "book, run one: not finished (all that was asked is answered, so it can be continued)"
    assert said.lines[-1].startswith("Continue with: holdfast resume one --dir")
    assert json.loads(project("status", "--json").out)["error"] is None
    views = [(project.root / name).read_text() for name in ("checkpoint.md", "RESUME.md")]
    assert all("so it can be continued" in view and "waiting for a person" not in view for view in views)


def test_one_answer_of_two_leaves_the_other(project: Project) -> None:
    """When what failed is to be tried again, and a gate still waits, that is what status says."""
    path = project.root / "book.py"
    path.write_text(path.read_text() + "\npipe.gate('plan_ok', after=['chapters'], blocking=False)\n")
    project.touch("fail-ch02")
    project.run("--run-id", "one")
    project("retry", "--all")
    assert project("status").lines[0] == "book, run one: not finished (waiting for a person)"
    assert " not finished " in project("list").lines[1]  # one word in both
    assert json.loads(project("status", "--json").out)["error"] == "waiting for a person"


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_every_way_on_names_the_folder(project: Project, as_json: tuple[str, ...]) -> None:
    """Whatever is typed with --dir suggests commands with --dir, also in errors and in JSON."""
    project.touch("gated")
    project.run("--run-id", "older")
    approve = f"holdfast approve publish_ok{project.there}"
    for words in (("why", "assemble"), ("plan",), ("recover", "--dry-run")):
        assert approve in project(*words, *as_json).out
    assert f"holdfast resume older{project.there}" in project("approve", "publish_ok", *as_json).out
    said = project("retry", "draft[ch01]", *as_json)
    assert f"holdfast resume older --redo 'draft[ch01]'{project.there}" in said.out + said.err


def test_a_way_on_names_the_run_that_is_not_the_newest(project: Project) -> None:
    """`why` and `plan` of an older run suggest commands that mean that run."""
    project.touch("gated")
    project.run("--run-id", "older")
    project.run("--run-id", "newer", "-p", "n=1")
    command = "holdfast approve publish_ok"
    assert f"{command}{project.there}" in project("why", "assemble").out
    for words in (("why", "assemble", "--run", "older"), ("plan", "--resume", "older")):
        assert f"{command} --run older{project.there}" in project(*words).out


def test_a_gate_that_is_not_reached_is_approved_where_it_is(project: Project) -> None:
    """`why` names the folder in what it gives as a reason, too."""
    project.touch("gated")
    project.touch("fail-ch02")
    project.run()
    project("retry", "--all")
    (line,) = [line for line in project("why", "assemble").lines if "next:" in line]
    assert line.endswith(f"after gate publish_ok is approved: holdfast approve publish_ok{project.there}")


def test_recover_of_another_pipeline_names_the_run(project: Project) -> None:
    """Where a newer run of another pipeline is unfinished, a command without --run would mean that one."""
    project.touch("gated")
    project.run("--run-id", "older")
    other = project.root / "other.py"
    other.write_text((project.root / "book.py").read_text().replace('"book"', '"other"'))
    assert project("run", "other.py", "--run-id", "newer").code == 3
    for words in (("--dry-run",), ("--dry-run", "--json"), ()):
        said = project("recover", "book.py", *words)
        assert f"holdfast approve publish_ok --run older{project.there}" in said.out


def test_status_of_a_completed_run_offers_no_continuation(project: Project) -> None:
    """A completed run has nothing to continue."""
    project.run()
    assert "Continue with" not in project("status").out


def test_status_as_json(project: Project) -> None:
    """status --json has the fields of the contract; nobody runs it, so there is no holder."""
    project.run("--run-id", "one")
    document = json.loads(project("status", "--json").out)
    assert document["run_id"] == "one"
    assert document["running"] is False
    assert document["holder"] is None
    assert [task["status"] for task in document["tasks"]] == ["completed"] * 4


LONG = """
from holdfast import Pipeline

pipe = Pipeline("long")


@pipe.step
def words() -> list:
    return ["word"] * 1000
"""


def test_a_large_value_is_shown_as_itself(project: Project) -> None:
    """Where a value is kept is no concern of who reads it, with whichever command."""
    (project.root / "long.py").write_text(LONG)
    for words in (["run", "long.py"], ["status"], ["resume"]):
        (task,) = json.loads(project(*words, "--json").out)["tasks"]
        assert task["value"] == ["word"] * 1000


def test_holder_is_that_of_this_run_only(project: Project) -> None:
    """An engine busy with one run is not said to run another."""
    project.touch("gated")
    project.run("--run-id", "one")
    project.run("--run-id", "two", "-p", "n=1")
    with Harness(project.root).held("two"):
        assert json.loads(project("status", "two", "--json").out)["holder"]["pid"] == os.getpid()
        assert json.loads(project("status", "one", "--json").out)["holder"] is None
        assert "holdfast events two -f" in project("status", "two").lines[-1]


def _cut_off(project: Project, run_id: str) -> None:
    """Leave a run as a killed engine does: nothing in its journal says that it stopped."""
    folder = project.root / ".holdfast" / "runs" / run_id
    journal = folder / "events.jsonl"
    lines = journal.read_bytes()
    stop = lines.index(b'"event":"run_stopped"')
    os.truncate(journal, lines.rindex(b"\n", 0, stop) + 1)
    for name in os.listdir(folder):
        if name.startswith("checkpoint"):
            (folder / name).unlink()


def test_killed_run_is_shown_as_interrupted(project: Project) -> None:
    """A run in progress that nobody runs is interrupted to people; JSON keeps in_progress and running false."""
    project.run("--run-id", "one")
    _cut_off(project, "one")
    assert "interrupted" in project("list").out
    assert project("status").lines[0] == "book, run one: interrupted"
    document = json.loads(project("status", "--json").out)
    assert (document["status"], document["running"]) == ("in_progress", False)


def test_in_a_folder_of_the_project_the_one_with_the_runs_is_named(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who has gone into drafts/ is not told that nothing was ever begun."""
    project.run()
    folder = project.root / "drafts" / "old"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    for command, code in (("status", 2), ("resume", 2), ("list", 0)):
        assert cli.run([command]) == code
        said = capsys.readouterr()
        assert said.out + said.err == "This folder has no runs. One above it has: give --dir ../..\n"
    assert list(folder.iterdir()) == []


def test_events_are_readable_lines(project: Project) -> None:
    """Each event is a line with number, name, task and what people want to know."""
    project.touch("fail-ch02")
    project.run()
    lines = project("events").lines
    failed = next(line for line in lines if "needs_review" in line)
    assert "node_exit  draft[ch02]" in failed
    assert "error=RuntimeError: no luck with ch02" in failed
    assert [int(line.split()[2]) for line in lines] == list(range(1, len(lines) + 1))


def test_a_lost_journal_is_no_empty_one(project: Project) -> None:
    """`events` says that nothing can be read, and names the command that tells what is left; that one works."""
    project.run("--run-id", "one")
    (project.root / ".holdfast" / "runs" / "one" / "events.jsonl").unlink()
    said = project("events")
    assert (said.code, said.out) == (4, "")
    command = f"holdfast verify one{project.there}"
    assert said.err == f"The journal has no readable line. What is left of it: {command}\n"
    assert "checkpoint_0001.json knows all up to line" in project("verify", "one").out


def test_events_as_json_are_the_journal(project: Project) -> None:
    """events --json prints the journal's own lines, byte for byte."""
    project.run("--run-id", "one")
    journal = project.root / ".holdfast" / "runs" / "one" / "events.jsonl"
    assert project("events", "--json").out == journal.read_text(encoding="utf-8")


def test_events_as_json_deceive_no_terminal(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, and only there, what it would obey is escaped: the same JSON."""
    project.run("--run-id", "one")
    project("note", "up \x9b2A and \u202eback")
    written = project("events", "--json").out
    assert "\x9b" in written
    monkeypatch.setattr("holdfast.cli.show.sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    shown = project("events", "--json").out
    assert not {"\x9b", "\u202e"} & set(shown)
    assert [json.loads(line) for line in shown.splitlines()] == [
        json.loads(line) for line in written.split("\n") if line
    ]


def test_hostile_text_is_not_obeyed_by_the_terminal(project: Project) -> None:
    """Control and bidi characters from parameters and notes are never printed as such."""
    project.run("--run-id", "one", "-p", "topic=a\x1b[2J\u202eb\nc")
    project("note", "x\x1b]0;title\x07\x9b1my")
    for words in (["list"], ["status"], ["events"], ["list", "--json"], ["status", "--json"]):
        said = project(*words)
        assert said.code == 0
        assert not set(said.out) & set("\x1b\x07\x9b\u202e")


def test_plan_shows_what_would_be_done(project: Project) -> None:
    """plan groups tasks by what would happen, with reasons, for the run that run would continue."""
    project.run("--run-id", "one")
    before = project.files()
    said = project("plan", "--resume", "one", "-p", "topic=reef")
    assert said.code == 0
    assert said.lines[0] == "book: run one"
    assert any(line.startswith("  changed: parameter topic") for line in said.lines)
    assert "  draft[ch01]: what it was made from has changed: param topic" in said.lines
    assert said.lines[-1].startswith("Expected cost: about $0.02")
    assert project.files() == before


def test_plan_tells_apart_what_runs_only_perhaps(project: Project) -> None:
    """It is neither counted nor priced with what runs for certain."""
    project.run("--run-id", "one")
    project("decide", "draft[ch01]", "redo")
    said = project("plan")
    assert "1 would run again, about $0.010; 1 behind only if that comes out differently" in said.lines
    assert said.lines[-1] == "Expected cost: about $0.010"


def test_what_is_left_out_is_not_called_reused(project: Project) -> None:
    """plan and why say of a skipped task, and of those behind it, that they are left out."""
    project.touch("fail-ch01")
    project.run("--run-id", "one")
    project("decide", "draft[ch01]", "skip")
    said = project("plan")
    at = said.lines.index("1 would be left out")
    assert said.lines[at + 1] == "  draft[ch01]: skipped by a person"
    assert "  next: it is left out: skipped by a person" in project("why", "draft[ch01]").lines


CHAIN = """
from holdfast import Pipeline

pipe = Pipeline("chain")


@pipe.step(writes="a.md")
def a() -> str:
    return "the text"


@pipe.step(writes="b.md")
def b(a: str) -> str:
    return a


@pipe.step(writes="c.json")
def c(b: str) -> dict:
    return {"b": b}
"""


def test_what_nobody_looked_at_is_not_called_reused(project: Project) -> None:
    """Behind a question, damage is healed whatever the answer; what is whole there is not called reused."""
    (project.root / "book.py").write_text(CHAIN)
    project.run("--run-id", "one")
    edited = project.root / "a.md"
    edited.write_text(edited.read_text().replace("the text", "my text"))
    (project.root / "c.json").write_text("{}")
    said = project("plan")
    assert "1 would not be looked at before a person has answered" in said.lines
    assert "  b: finished; looked at after a" in said.lines
    assert "1 would be healed" in said.lines
    assert not any("reused" in line for line in said.lines)
    why = project("why", "b").lines
    assert why[-1] == "  next: nothing before a person has answered: finished; looked at after a"


def test_a_decision_about_a_finished_run_shows_the_way_on(project: Project) -> None:
    """`status` names the command, `resume` alone carries it out, and then nothing is left."""
    project.run("--run-id", "one")
    project("decide", "draft[ch01]", "redo")
    said = project("status")
    assert said.lines[0] == "book, run one: not finished (something is to be done again)"
    assert said.lines[-1].startswith("Continue with: holdfast resume one")
    assert "✓ draft[ch01]" in project("resume").err
    assert project("status").lines[0] == "book, run one: completed"


def test_plan_as_json(project: Project) -> None:
    """plan --json lists every task with action, reason and expected cost."""
    project.run("--run-id", "one")
    document = json.loads(project("plan", "--json").out)
    assert document["run_id"] == "one"
    assert {task["action"] for task in document["tasks"]} == {"trust"}
    assert set(document["tasks"][0]) == {"id", "action", "reason", "expected_cost_usd", "if_different"}
    assert document["orphans"] == document["changes"] == []
    assert document["expected_cost_usd"] == 0


def test_plan_of_a_new_run(project: Project) -> None:
    """With a file and no run, plan shows a new run and creates nothing."""
    before = project.files()
    document = json.loads(project("plan", "book.py", "--json").out)
    assert document["run_id"] is None
    assert [task["action"] for task in document["tasks"]] == ["run", "run"]
    expected = "Expected cost: not known: 2 tasks of steps that have never finished"
    assert project("plan", "book.py").lines[-1] == expected
    assert project.files() == before


def test_plan_without_file_and_without_runs(project: Project) -> None:
    """plan with nothing to plan is a usage error."""
    assert project("plan").code == 2


def test_why_explains_a_task(project: Project) -> None:
    """why tells what the record knows of a task; an unknown task is a usage error."""
    project.run()
    said = project("why", "draft[ch01]")
    assert said.code == 0
    assert "draft[ch01]" in said.out
    said = project("why", "draft[ch99]")
    assert said.code == 2
    assert len(said.err.splitlines()) == 1


def test_why_says_what_may_run_again_and_what_does(project: Project) -> None:
    """Behind a task that is sent back nothing runs again for certain."""
    project.run("--run-id", "one")
    project("decide", "draft[ch01]", "redo")
    assert "  next: it runs again, because: sent back" in project("why", "draft[ch01]").lines
    assert "  next: it runs again only if draft[*] comes out differently" in project("why", "assemble").lines


def test_why_knows_which_gate_was_meant(project: Project) -> None:
    """It explains gates, too; a misspelt one is answered as a misspelt task is."""
    project.touch("gated")
    project.run("--run-id", "one")
    assert project("why", "publish-ok").err == "There is no task publish-ok in run one. Did you mean publish_ok?\n"
    assert project("why", "publish_ok").code == 0


def _read_only_mount_works() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    test = ["unshare", "-m", "sh", "-c", "mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp"]
    return subprocess.run(test, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _read_only_mount_works(), reason="needs root and mount namespaces to be really read-only")
def test_read_only_folder(project: Project) -> None:
    """On a read-only file system the reading commands work; note stops with exit 6 and one line."""
    project.touch("gated")
    project.run("--run-id", "one")
    root = str(project.root)
    commands = [["list"], ["status"], ["events"], ["plan"], ["why", "draft[ch01]"], ["clean", "--dry-run"]]
    script = (
        "import os, sys, json\n"
        'os.system(f\'mount --bind "{sys.argv[1]}" "{sys.argv[1]}"\')\n'
        "os.system(f'mount -o remount,bind,ro \"{sys.argv[1]}\"')\n"
        "from holdfast.cli.main import run\n"
        "codes = [run([*words, '--dir', sys.argv[1]]) for words in json.loads(sys.argv[2])]\n"
        "print('codes', *codes)\n"
    )
    arguments = [root, json.dumps([*commands, ["note", "words"]])]
    result = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == "codes 0 0 0 0 0 0 6"
    assert len(result.stderr.splitlines()) == 1


def test_names_that_are_no_utf_8_are_spelt_out_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    """A file system holds any bytes: a document that names such a file can still be printed, and read."""
    print_json({"files": [{"path": os.fsdecode(b"\xff.md")}], "kept": (os.fsdecode(b"\xfe"), 1, None)})
    assert json.loads(capsys.readouterr().out) == {"files": [{"path": "\\udcff.md"}], "kept": ["\\udcfe", 1, None]}


NAMED = """
from holdfast import Pipeline

pipe = Pipeline("p")
pipe.items("n", ["\u00e9t\u00e9"])


@pipe.step(each="n", writes="{n}.md")
def write(n: str) -> str:
    return n


pipe.gate("caf\u00e9", after=["write"])
"""


def test_a_name_may_be_typed_with_its_accents_apart(project: Project) -> None:
    """Two spellings look the same on every terminal; the one that names are never written in means the other."""
    (project.root / "book.py").write_text(NAMED, encoding="utf-8")
    assert project.run().code == 3
    task = unicodedata.normalize("NFD", "write[\u00e9t\u00e9]")
    assert project("why", task).code == 0
    assert project("reject", task, "--to", task, "--feedback", "no").code == 0
    assert project.run("--redo", task).code == 3
    assert project("approve", unicodedata.normalize("NFD", "caf\u00e9")).code == 0
    assert project("resume").code == 0
