"""`holdfast recover` and `holdfast scan`, as typed: what they print, and their exit status."""

from __future__ import annotations

import json
import shlex
import shutil
from typing import Any

import pytest

from harness import Harness

from .conftest import Project

FILES = """
from holdfast import Pipeline

pipe = Pipeline("notes", params={"topic": (str, "kelp"), "n": (int, 2)})


@pipe.step(writes="outline.md")
def outline(topic: str) -> str:
    print("a step prints")
    return f"# {topic}\\n"


@pipe.items("note")
def names(outline: str, n: int) -> list:
    return [f"n{i}" for i in range(n)]


@pipe.step(each="note", writes="notes/{note}.md", check=lambda text: "too short" if len(text) < 3 else None)
def write(note: str, outline: str) -> str:
    return f"{note} of {outline}"


print("loading prints")
"""


@pytest.fixture
def notes(project: Project) -> Project:
    (project.root / "book.py").write_text(FILES, encoding="utf-8")
    assert project.run("-p", "topic=tides", "--run-id", "first").code == 0
    return project


def document(project: Project, *words: str) -> dict[str, Any]:
    said = project(*words, "--json")
    found = json.loads(said.out)
    assert isinstance(found, dict)
    return {**found, "code": said.code}


def lose(project: Project) -> None:
    shutil.rmtree(project.root / ".holdfast")


def test_recover_takes_file_and_parameters_from_resume_md(notes: Project) -> None:
    """With all state gone, `recover` alone rebuilds the run, and ends with the command that continues it."""
    lose(notes)
    said = notes("recover")
    assert (said.code, said.lines[0]) == (0, "notes: run first (its record is lost)")
    assert "holdfast resume first" in said.lines[-1]
    assert notes("resume").code == 0
    status = document(notes, "status", "first")
    assert (status["status"], status["params"]["topic"]) == ("completed", "tides")


def test_a_dry_run_lists_what_is_done_to_the_files_in_order(notes: Project) -> None:
    """A damaged file, where it would go, and that its copy would take its place."""
    (notes.root / "notes" / "n1.md").write_bytes(b"\0\0")
    lines = notes("recover", "--dry-run").lines
    begun = lines.index("To the files, in this order (TIME stands for the moment):")
    assert lines[begun + 1 :] == [
        "  set aside notes/n1.md -> .holdfast/runs/first/quarantine/n1.md.TIME",
        "  put back notes/n1.md",
        f"Nothing was changed. To do it: holdfast recover --dir '{notes.root}'",
    ]


def test_the_command_that_a_dry_run_names_does_what_it_said(notes: Project) -> None:
    """Where no record and no RESUME.md names the pipeline, the file and its parameters are part of the command."""
    lose(notes)
    (notes.root / "RESUME.md").unlink()
    file = str(notes.root / "book.py")
    last = notes("recover", file, "-p", "topic=tides", "--dry-run").lines[-1]
    words = shlex.split(last.removeprefix("Nothing was changed. To do it: holdfast "))
    assert words == ["recover", file, "-p", "topic=tides", "--dir", str(notes.root)]
    assert notes(*words[:-2]).code == 0
    assert document(notes, "status", "first")["params"]["topic"] == "tides"


def test_a_long_list_of_changes_is_folded_for_people_only(notes: Project) -> None:
    """What is done to many files of one folder is one counted line; --json has each of them."""
    assert notes.run("-p", "topic=tides", "-p", "n=60", "--resume", "first").code == 0
    shutil.rmtree(notes.root / "notes")
    said = notes("recover", "--dry-run").out
    assert "  put back 60 files of notes\n" in said
    listed = document(notes, "recover", "--dry-run")["actions"]
    assert {"do": "put back", "path": "notes/n59.md", "to": None} in listed


def test_recover_json_has_actions_reasons_and_evidence(notes: Project) -> None:
    """One document on stdout, whatever the pipeline prints; dry run and real run say the same."""
    lose(notes)
    (notes.root / "notes" / "n1.md").unlink()
    foreseen = document(notes, "recover", "--dry-run")
    assert not (notes.root / ".holdfast").exists()
    done = document(notes, "recover")
    assert foreseen["tasks"] == done["tasks"]
    tasks = {task["id"]: (task["action"], task["evidence"]) for task in done["tasks"]}
    assert tasks["outline"] == ("adopt", "sealed artifact")
    assert tasks["write[n0]"] == ("adopt", "sealed artifact")
    assert tasks["write[n1]"][0] == "run"
    (found,) = done["disagreements"]
    assert (found["task"], found["believed"]) == ("write[n1]", "files")
    assert done["orphans"] == [] and done["events"] > 0 and foreseen["events"] == 0
    assert document(notes, "recover")["events"] == 0


def test_recover_exits_3_if_a_person_must_decide(notes: Project) -> None:
    """An edited file of a lost run is a question."""
    lose(notes)
    outline = notes.root / "outline.md"
    outline.write_text("# mine\n" + outline.read_text(encoding="utf-8"), encoding="utf-8")
    said = notes("recover")
    assert said.code == 3
    assert any(line.startswith("  outline: outline.md") for line in said.lines), said.out


def test_recover_of_a_whole_run_says_that_it_is_complete(notes: Project) -> None:
    """There is nothing to continue; also if a file was put back."""
    said = notes("recover")
    assert (said.code, said.lines[-1]) == (0, "The run is complete.")
    (notes.root / "outline.md").unlink()
    said = notes("recover")
    assert (said.code, said.lines[-1]) == (0, "The run is complete.")
    assert (notes.root / "outline.md").exists()
    assert "holdfast resume" not in said.out


def test_status_after_recover_says_that_a_person_is_waited_for(notes: Project) -> None:
    """A run of which only a question is open was not interrupted; one that has to run something is to go on."""
    write = notes.root / "notes" / "n1.md"
    write.write_text("mine\n" + write.read_text(encoding="utf-8"), encoding="utf-8")
    assert notes("recover").code == 3
    said = notes("status")
    assert said.lines[0] == "notes, run first: paused (waiting for a person)"
    assert "paused" in notes("list").lines[1]
    lose(notes)
    assert notes("recover").code == 3
    assert notes("status").lines[0] == "notes, run first: not finished (recovered, and not continued yet)"


def test_an_edited_view_is_kept_and_told(notes: Project) -> None:
    """Where a page of somebody's went is told, and not only recorded."""
    page = notes.root / "RESUME.md"
    page.write_text(page.read_text() + "\nMy own words.\n")
    (line,) = [line for line in notes("recover").lines if "RESUME.md" in line]
    kept_as = line.removeprefix("  note: RESUME.md was edited; kept as ")
    assert "My own words." in (notes.root / kept_as).read_text()


def test_what_runs_only_if_something_comes_out_differently_is_counted_apart(notes: Project) -> None:
    """As `plan` counts it: the outline was sent back, and the notes made from it may stand."""
    page = notes.root / "checkpoint.md"
    page.write_text(
        page.read_text(encoding="utf-8").replace("| outline | ✅ |", "| outline | — |"), encoding="utf-8"
    )
    found = document(notes, "recover", "--dry-run")
    assert [task["id"] for task in found["tasks"] if task["if_different"]] == ["names", "write[n0]", "write[n1]"]
    lines = notes("recover", "--dry-run").lines
    assert "1 to be done again; 3 behind only if that comes out differently" in lines


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("recover", "holdfast recover FILE.py"),
        ("scan", "holdfast scan FILE.py"),
        ("plan", "holdfast plan FILE.py --resume first"),
    ],
)
def test_a_pipeline_that_is_gone_is_asked_for_in_the_same_command(
    notes: Project, command: str, advice: str
) -> None:
    """The advice is what was typed, with FILE and the folder."""
    (notes.root / "book.py").rename(notes.root / "other.py")
    said = notes(command)
    assert said.code == 2
    assert said.err.rstrip().endswith(f"Say where it is: {advice}{notes.there}")


def test_recover_without_anything_says_so(project: Project) -> None:
    """A pipeline that never ran has nothing to recover, and nothing is created."""
    (project.root / "book.py").write_text(FILES, encoding="utf-8")
    before = project.files()
    foreseen = project("recover", str(project.root / "book.py"), "--dry-run", "--json")
    assert (foreseen.code, json.loads(foreseen.out)["actions"]) == (0, [])
    said = project("recover", str(project.root / "book.py"))
    assert said.code == 0 and "nothing to recover" in said.out
    assert project.files() == before


def test_recover_without_file_and_letter_asks_for_the_file(project: Project) -> None:
    """One line that says what to give."""
    said = project("recover")
    assert said.code == 2 and "FILE.py" in said.err and len(said.err.splitlines()) == 1


def test_recover_beside_an_engine_is_refused(notes: Project) -> None:
    """Exit status 5, as for any second engine."""
    with Harness(notes.root).held("first"):
        assert notes("recover").code == 5
        assert notes("recover", "--dry-run").code == 0


def test_scan_counts_first_and_then_what_is_not_whole(notes: Project) -> None:
    """A table of what is wrong; hostile names are shown harmless; nothing is changed; exit status 0."""
    (notes.root / "notes" / "n0.md").write_text("cut", encoding="utf-8")
    (notes.root / "notes" / "evil\x1b[31m.md").write_text("x", encoding="utf-8")
    before = notes.files()
    said = notes("scan")
    assert said.code == 0 and "\x1b" not in said.out
    assert said.lines[0] == "notes: 3 files of 3 tasks looked at"
    assert "  2 sealed and whole" in said.lines
    assert any(line.startswith("damaged  write[n0]") for line in said.lines)
    assert any("evil" in line for line in said.lines)
    assert notes.files() == before


def test_scan_works_with_everything_lost(notes: Project) -> None:
    """FILE and parameters come from RESUME.md; --step shows one step."""
    lose(notes)
    found = document(notes, "scan", "--step", "write")
    assert (found["code"], found["counts"]) == (0, {"sealed": 2})
    assert {file["task"] for file in found["files"]} == {"write[n0]", "write[n1]"}
    assert found["files"][0]["run"] == "first"


@pytest.mark.parametrize("text", ["cut", "text\nWRITE_COMPLETE\na word more\n", "text\nOUTLINE_COMPLETE\n"])
def test_scan_says_what_a_file_without_proof_lacks(notes: Project, text: str) -> None:
    """A marker that is not last, or of another step, is there and still counts for nothing: the rule is named."""
    lose(notes)
    (notes.root / "notes" / "n0.md").write_text(text, encoding="utf-8")
    (line,) = (line for line in notes("scan").lines if line.startswith("half-finished  write[n0]"))
    assert line.endswith("does not end in its completion marker")


def test_scan_of_an_unknown_step_is_a_mistake(notes: Project) -> None:
    """Exit status 2, with the name that may have been meant."""
    said = notes("scan", "--step", "wriet")
    assert said.code == 2 and "Did you mean write?" in said.err
