"""A pipeline that a program runs itself: other processes, and a later command, find it where it stands."""

import subprocess
import sys

import pytest

from harness import Harness
from holdfast import Pipeline
from holdfast.errors import UsageError
from holdfast.pipeline.loader import locate

LIBRARY = """
from holdfast import Pipeline

def plain() -> str:
    return "from the library"

def make():
    pipe = Pipeline("p")
    pipe.step(plain)
    return pipe
"""
TAKES_A_STEP = """
from holdfast import Pipeline
from library import plain

other = Pipeline("other")
book = Pipeline("p")
book.step(plain)
"""
TAKES_A_PIPELINE = """
from library import make

book = make()
"""
RUNS = """
@book.step(executor="process")
def work(plain: str) -> str:
    return plain.upper()

if __name__ == "__main__":
    result = book.run(dir="project")
    assert result.status == "completed", result.outputs
"""


def recorded_file(project):
    """The pipeline's file as the only run of a project has it."""
    harness = Harness(project)
    (run,) = harness.runs.iterdir()
    return harness.picture(run.name).state.file


@pytest.mark.parametrize("beginning", [TAKES_A_STEP, TAKES_A_PIPELINE], ids=["step", "pipeline"])
def test_what_comes_from_a_library_does_not_hide_where_the_pipeline_is(tmp_path, beginning):
    """Worker processes, and the record, name the program's own file and variable."""
    (tmp_path / "project").mkdir()
    (tmp_path / "library.py").write_text(LIBRARY)
    (tmp_path / "main.py").write_text(beginning + RUNS)
    subprocess.run([sys.executable, "main.py"], cwd=tmp_path, check=True)
    assert recorded_file(tmp_path / "project") == "../main.py:book"


def declared_nowhere(executor):
    """A pipeline as a notebook has it: its code was never in a file."""
    names = {"Pipeline": Pipeline}
    source = f"pipe = Pipeline('p')\n@pipe.step(executor='{executor}')\ndef work(): return 1\n"
    exec(compile(source, "<cell 1>", "exec"), names)
    return names["pipe"]


def test_a_pipeline_in_no_file_names_none(tmp_path):
    """The next command then asks for one, instead of looking for a file that never was."""
    assert declared_nowhere("thread").run(dir=tmp_path).status == "completed"
    assert recorded_file(tmp_path) == ""


def test_a_process_needs_a_file(tmp_path):
    """Told before anything is begun."""
    with pytest.raises(UsageError, match="Step work: executor='process' needs the pipeline in a file"):
        declared_nowhere("process").run(dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_pipeline_of_a_function_is_where_its_steps_are():
    """There is no better place."""
    pipe = Pipeline("p")

    @pipe.step
    def work():
        return 1

    found = locate(pipe)
    assert (found.file, found.variable) == (__file__, None)
