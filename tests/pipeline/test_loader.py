"""Loading a pipeline from a file."""

import os
import sys
from pathlib import Path

import pytest

from holdfast.errors import DefinitionError, StorageError, UsageError
from holdfast.pipeline.loader import load_pipeline

SOUND = """
from holdfast.pipeline.definition import Pipeline
pipe = Pipeline("book")
@pipe.step
def plan(): return "x"
"""


@pytest.fixture(autouse=True)
def imports_as_before():
    """What a test loads is forgotten after it."""
    path, modules = list(sys.path), dict(sys.modules)
    yield
    sys.path[:] = path
    sys.modules.clear()
    sys.modules.update(modules)


def write(folder: Path, text: str, name: str = "my_book.py") -> str:
    (folder / name).write_text(text)
    return name


def refused(reference: str, base: Path) -> str:
    """The one line of the error; neither sys.modules nor sys.path keep a trace of it."""
    path, modules = list(sys.path), set(sys.modules)
    with pytest.raises(UsageError) as caught:
        load_pipeline(reference, base=base)
    assert sys.path == path
    assert not [name for name in set(sys.modules) - modules if "my_book" in name]
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_the_pipeline_with_its_file_and_variable(tmp_path):
    """The compiled pipeline knows where it came from; its module can be imported by name."""
    compiled = load_pipeline(write(tmp_path, SOUND), base=tmp_path)
    assert compiled.spec.name == "book"
    assert (compiled.file, compiled.variable) == (str(tmp_path / "my_book.py"), "pipe")
    assert sys.modules["my_book"].plan is compiled.functions["plan"]
    assert sys.path[0] == str(tmp_path)
    assert not (tmp_path / "__pycache__").exists()


def test_modules_beside_the_file_can_be_imported(tmp_path):
    """The file's folder is at the front of sys.path."""
    write(tmp_path, "TOPIC = 'kelp'", "my_book_helper.py")
    text = "import my_book_helper\n" + SOUND + "assert my_book_helper.TOPIC == 'kelp'\n"
    assert load_pipeline(write(tmp_path, text), base=tmp_path).spec.name == "book"


def test_an_edited_file_is_loaded_anew(tmp_path):
    """A second load sees an edit at once, even one of the same length in the same second."""
    load_pipeline(write(tmp_path, SOUND), base=tmp_path)
    compiled = load_pipeline(write(tmp_path, SOUND.replace("book", "cook")), base=tmp_path)
    assert compiled.spec.name == "cook"
    assert sys.modules["my_book"].plan is compiled.functions["plan"]


def test_a_file_named_like_another_module_hides_nothing(tmp_path):
    """A pipeline in json.py, or two files of one name, get module names of their own."""
    import json

    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    load_pipeline(write(one, SOUND, "json.py"), base=one)
    assert sys.modules["json"] is json
    first = load_pipeline(write(one, SOUND), base=one)
    second = load_pipeline(write(two, SOUND), base=two)
    assert sys.modules["my_book"].plan is first.functions["plan"]
    name = second.functions["plan"].__module__
    assert name != "my_book"
    assert sys.modules[name].plan is second.functions["plan"]


def test_a_file_named_like_a_standard_module_not_yet_imported(tmp_path, monkeypatch):
    """The name stays free for the standard library's module, which others may import later."""
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    compiled = load_pipeline(write(tmp_path, SOUND, "colorsys.py"), base=tmp_path)
    assert "colorsys" not in sys.modules
    assert sys.modules[compiled.functions["plan"].__module__].pipe


def test_choosing_by_name(tmp_path):
    """With several pipelines the variable, or the pipeline's own name, says which; aliases count once."""
    text = SOUND + "same = pipe\nother = Pipeline('sequel')\nother.step(plan)\n"
    write(tmp_path, text)
    assert load_pipeline("my_book.py:other", base=tmp_path).spec.name == "sequel"
    assert load_pipeline("my_book.py:sequel", base=tmp_path).variable == "other"
    assert load_pipeline("my_book.py:book", base=tmp_path).variable == "pipe"
    assert "has 2 pipelines: pipe, other. Name one, as in my_book.py:pipe." in refused("my_book.py", tmp_path)
    assert "'othr' names no pipeline" in refused("my_book.py:othr", tmp_path)
    assert "Did you mean other?" in refused("my_book.py:othr", tmp_path)


def test_an_alias_is_a_name_too(tmp_path):
    """A pipeline under two names can be asked for by either of them."""
    write(tmp_path, SOUND + "same = pipe\n")
    assert load_pipeline("my_book.py", base=tmp_path).variable == "pipe"
    assert load_pipeline("my_book.py:same", base=tmp_path).variable == "same"


def test_a_file_without_pipeline(tmp_path):
    """A module that declares none is told how to."""
    with pytest.raises(UsageError, match="has no pipeline"):
        load_pipeline(write(tmp_path, "x = 1"), base=tmp_path)


@pytest.mark.parametrize("reference", ["", "book", "book.txt", "book.txt:x", ":x", "a\0.py", "book.py:"])
def test_what_is_no_reference(reference, tmp_path):
    """Only FILE.py and FILE.py:NAME are references."""
    assert refused(reference, tmp_path)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), 'data')",
            "OSError: .Errno 24. Too many open files",
        ),
        ("raise OSError(errno.EIO, os.strerror(errno.EIO))", "OSError: .Errno 5. "),
        ("raise MemoryError", "MemoryError"),
    ],
)
def test_what_the_machine_lacks_is_no_mistake_in_the_pipeline(tmp_path, line, words):
    """Whoever runs the same command again, with more of it, gets further: not the status of a mistake."""
    name = write(tmp_path, f"import errno, os\n{line}\n")
    with pytest.raises(StorageError, match=f"my_book.py:2: the pipeline could not be loaded: {words}"):
        load_pipeline(name, base=tmp_path)
    assert "my_book" not in sys.modules


def test_files_that_are_none(tmp_path):
    """A missing file, a folder and a pipe are told as such; nobody waits for what may come out of a pipe."""
    (tmp_path / "dir.py").mkdir()
    os.mkfifo(tmp_path / "pipe.py")
    assert "There is no file my_book.py." in refused("my_book.py", tmp_path)
    assert "There is no file dir.py/x.py." in refused("dir.py/x.py", tmp_path)
    assert "dir.py cannot be read: it is a folder." in refused("dir.py", tmp_path)
    assert "pipe.py cannot be read: it is no regular file." in refused("pipe.py", tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\ny = = 2\n", "my_book.py:2: the pipeline could not be loaded: SyntaxError: invalid syntax"),
        ("\n1 / 0\n", "my_book.py:2: the pipeline could not be loaded: ZeroDivisionError: division by zero"),
        (
            "\n\nimport nowhere_at_all\n",
            "my_book.py:3: the pipeline could not be loaded: ModuleNotFoundError: ",
        ),
        ("raise SystemExit\n", "my_book.py:1: the pipeline could not be loaded: SystemExit"),
        ("import sys\nsys.exit(3)\n", "my_book.py:2: the pipeline could not be loaded: SystemExit: 3"),
        ("raise ValueError('a\\nb\\x1b[0m')\n", "ValueError: a\\nb\\x1b[0m"),
        ("def f():\n    raise KeyError('k')\nf()\n", "my_book.py:2: "),
        ("raise RuntimeError('x' * 10000)\n", "RuntimeError: xxx"),
        ("x = '\0'\n", "my_book.py"),
        ("# coding: nonsense\n", "SyntaxError"),
    ],
)
def test_files_that_cannot_be_loaded(text, expected, tmp_path):
    """Whatever a file does when it is imported is one line with its place; nothing half-loaded is left."""
    line = refused(write(tmp_path, text), tmp_path)
    assert expected in line
    assert len(line) < 600


def test_an_error_that_cannot_say_what_it_is(tmp_path):
    """A class of somebody's own may fail even at its words: the line is told all the same."""
    text = "class OddError(Exception):\n    def __str__(self):\n        raise RuntimeError\nraise OddError\n"
    words = refused(write(tmp_path, text), tmp_path)
    assert words.startswith("my_book.py:4: the pipeline could not be loaded: OddError: its message cannot be had")


def test_the_cause_is_kept(tmp_path):
    """Those who want the traceback find the exception as the cause."""
    with pytest.raises(UsageError) as caught:
        load_pipeline(write(tmp_path, "1 / 0"), base=tmp_path)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_error_in_a_helper_names_the_line_that_imported_it(tmp_path):
    """A module beside the file that fails is told by the file's own line; a syntax error by the module's."""
    write(tmp_path, "\n\n1 / 0\n", "my_book_helper.py")
    text = "\nimport my_book_helper\n"
    assert "my_book.py:2: " in refused(write(tmp_path, text), tmp_path)
    write(tmp_path, "\n\n1 = 0  # another length: byte code is kept by time and size\n", "my_book_helper.py")
    assert "my_book_helper.py:3: " in refused(write(tmp_path, text), tmp_path)


def test_a_failed_reload_leaves_the_module_that_was_there(tmp_path):
    """The module of the earlier load stays, whole, when a later one fails."""
    load_pipeline(write(tmp_path, SOUND), base=tmp_path)
    before = sys.modules["my_book"]
    with pytest.raises(UsageError):
        load_pipeline(write(tmp_path, SOUND + "1 / 0"), base=tmp_path)
    assert sys.modules["my_book"] is before


def test_mistakes_in_the_pipeline_are_told_as_such(tmp_path):
    """A file that loads but declares nonsense gives the list of mistakes."""
    text = SOUND + "@pipe.step\ndef work(pln): ...\n"
    with pytest.raises(DefinitionError) as caught:
        load_pipeline(write(tmp_path, text), base=tmp_path)
    assert caught.value.mistakes[0].startswith("my_book.py:6: step work: parameter pln ")


def test_a_file_that_runs_its_pipeline_is_refused_before_it_does(tmp_path):
    """Loading runs nothing: `plan` only looks, and a worker would begin the run a second time."""
    text = "from pathlib import Path\n" + SOUND + "pipe.run(dir=Path(__file__).parent)\n"
    message = refused(write(tmp_path, text), tmp_path)
    assert message.startswith("my_book.py runs a pipeline as soon as it is loaded")
    assert message.endswith('Call run below a line: if __name__ == "__main__":')
    assert [path.name for path in tmp_path.iterdir()] == ["my_book.py"]
    guarded = text.replace("pipe.run", 'if __name__ == "__main__":\n    pipe.run')
    assert load_pipeline(write(tmp_path, guarded), base=tmp_path).spec.name == "book"
