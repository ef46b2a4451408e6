"""The shape of the code: which way imports point, and what must not be in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "holdfast"

# Left may import right, never the other way; names in one group may import each other.
LAYERS: list[set[str]] = [
    {"__main__", "cli", "testing"},
    {"project"},
    {"sessions"},
    {"runs"},
    {"engine", "recovery"},
    {"checkpoints", "executors", "views"},
    {"context", "decisions", "host", "snapshots", "usage"},
    {"artifacts"},
    {"folding", "journal", "pipeline", "seals"},
    {"state"},
    {"escaping", "events", "settings", "stores"},
    {"values"},
    {"clock", "errors", "layout", "signals", "streams", "threads", "wording"},
]
LEVEL = {name: level for level, group in enumerate(LAYERS) for name in group}


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def unit_of(path: Path) -> str:
    return name_of(path).split(".")[0]


MODULES = {name_of(path) for path in modules()}


def imported(path: Path) -> set[str]:
    """The modules of the package that one imports, also inside functions; what only a type checker reads does not
    count."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    known = {name.removeprefix("holdfast.") for name in found} & MODULES
    # `pipe.run` is the one door from the declaration to the engine, opened when it is called.
    return known - {"project"} if path == SOURCE / "pipeline" / "definition.py" else known


def imported_units(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


def test_every_module_has_a_place() -> None:
    """A new module or folder must be put into the order of layers above."""
    assert {unit_of(path) for path in modules()} <= LEVEL.keys()


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    """No module imports something that stands to its left."""
    mine = unit_of(path)
    wrong = {name for name in imported_units(path) if LEVEL[name] < LEVEL[mine]}
    assert not wrong, f"{mine} imports {wrong}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Every module can be read after those that it imports, also those imported when a function is called."""
    TopologicalSorter({name_of(path): imported(path) - {name_of(path)} for path in modules()}).prepare()


# Words, signs and streams; what events and tasks are called. Nothing that finds, reads or changes a run.
CLI_MAY_IMPORT = {
    "clock",
    "errors",
    "escaping",
    "events",
    "layout",
    "pipeline.names",
    "project",
    "signals",
    "state",
    "streams",
    "threads",
    "views.checkpoint",
    "views.matrix",
    "views.summary",
    "wording",
}


@pytest.mark.parametrize("path", sorted((SOURCE / "cli").glob("*.py")), ids=lambda path: path.name)
def test_the_command_line_calls_nothing_below_the_facade(path: Path) -> None:
    """A command is options, one call on `Project`, and printing; imports within functions count, too."""
    wrong = {name for name in imported(path) if not name.startswith("cli") and name not in CLI_MAY_IMPORT}
    assert not wrong


def test_engine_and_recovery_do_not_know_each_other() -> None:
    """`sessions` is where engine and recovery meet."""
    for path in (SOURCE / "engine").rglob("*.py"):
        assert "recovery" not in imported_units(path), path
    for path in (SOURCE / "recovery").rglob("*.py"):
        assert "engine" not in imported_units(path), path


LOCAL_STORES = {"journal.log", "journal.read", "journal.repair", "journal.preallocation", "stores.lock"}


def test_a_store_is_reached_through_its_protocol() -> None:
    """Which implementation keeps a journal or a lease is decided in one module."""
    for path in modules():
        if unit_of(path) != "journal" and name_of(path) not in ("runs.opening", "testing.stores"):
            assert not imported(path) & LOCAL_STORES, path


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_rebuilds_objects_or_runs_text(path: Path) -> None:
    """State is JSON: no pickle, marshal, eval, exec or yaml anywhere."""
    tree = ast.parse(path.read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not imported & {"pickle", "marshal", "shelve", "yaml", "dill", "cloudpickle"}
    called = {
        node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not called & {"eval", "exec"}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_the_store_layer_changes_files(path: Path) -> None:
    """Writes, renames, removals and syncs go through stores/disk.py, where failpoints hang."""
    if path == SOURCE / "stores" / "disk.py":
        return
    tree = ast.parse(path.read_text())
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert not calls & {
        "os.rename",
        "os.replace",
        "os.unlink",
        "os.remove",
        "os.fsync",
        "os.fdatasync",
        "os.truncate",
        "os.ftruncate",
        "shutil.rmtree",
    }
    opened = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_opened_to_write(node)]
    assert {path.name for _ in opened} <= {"printing.py", "worker.py"}  # the streams of a process, no files


def _is_opened_to_write(call: ast.Call) -> bool:
    """Whether it is `open(...)`, or a Path's, with a mode that writes; or a Path's own way of writing."""
    name = ast.unparse(call.func).rpartition(".")[2]
    modes = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    opens = name in ("open", "fdopen") and any(
        set(mode) <= set("rwaxbt+") and set(mode) & set("wax+") for mode in modes
    )
    return opens or name in ("write_text", "write_bytes")


ACCEPTS, OFFERS = "artifacts.acceptance", "artifacts.offers"
PLACES = {
    "event_of": {ACCEPTS},
    "seals.write_seal": {ACCEPTS, "artifacts.sealed_files", "artifacts.memory"},
    "Seal": {"artifacts.products"},
    "tree.stage": {"artifacts.sealed_files", "artifacts.bookshelf"},  # which draws from accepted sections
    "tree.land": {"artifacts.sealed_files", "artifacts.bookshelf"},
    "ev.TaskAdopted": {OFFERS},
    "ev.ValueMigrated": {OFFERS},
}
"""What happens to an output only when it is accepted, and where that is."""


@pytest.mark.parametrize("call", PLACES)
def test_only_acceptance_writes_seals_and_records_an_output(call: str) -> None:
    """Whoever has an output to offer, a body, a found file or a person, comes the same way."""
    found = {name_of(path) for path in modules() for _ in calls_of(path, call)}
    assert found <= PLACES[call]


def test_only_acceptance_says_that_an_attempt_gave_an_output() -> None:
    found = {
        name_of(path)
        for path in modules()
        for made in calls_of(path, "ev.NodeExited")
        if any(key.arg == "status" and ast.unparse(key.value) == "COMPLETED" for key in made.keywords)
    }
    assert found == {OFFERS}


def calls_of(path: Path, call: str) -> list[ast.Call]:
    """The places in a module where something of this name is called, whichever object it belongs to."""
    nodes = ast.walk(ast.parse(path.read_text()))
    called = [node for node in nodes if isinstance(node, ast.Call)]
    return [node for node in called if re.fullmatch(rf"(.*[._])?{re.escape(call)}", ast.unparse(node.func))]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_repeat_of_a_group_is_possessive(path: Path) -> None:
    """Python before 3.11.5 matches such an expression wrongly: every seal was taken for damaged there."""
    assert re.search(r"\)[?*+]\+", path.read_text()) is None


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_value_of_a_statement_has_a_number(path: Path) -> None:
    """Python 3.12.0 to 3.12.3 takes `?1` for a name without its value: with -W error every run ended with 70."""
    tree = ast.parse(path.read_text())
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    statements = [
        text for text in texts if isinstance(text, str) and re.search(r"\b(SELECT|INSERT|DELETE|FROM)\b", text)
    ]
    assert [text for text in statements if re.search(r"\?\d", text)] == []


# What tests may reach: the façade, protocols, what is tried for all of them in testing/, pure functions.
TESTS = Path(__file__).parent
REACHED_BY_TESTS = {
    "artifacts.memory",
    "clock",
    "decisions",
    "errors",
    "escaping",
    "events",
    "folding",
    "journal.lines",
    "pipeline",
    "project",
    "project.results",
    "seals",
    "settings",
    "signals",
    "state",
    "stores.disk",
    "stores.protocols",
    "testing",
    "values",
    "views.checkpoint",
    "views.picture",
    "wording",
}
DOORS = {
    "harness.py": {"project.run", "stores.lock"},
    "forking.py": {"cli.main"},
    "refusing.py": {"stores.readable"},
}
"""What stands between tests and the code."""

MIRRORS = {
    "artifacts": {"artifacts"},
    "cli": {"cli"},
    "executors": {"executors"},
    "journal": {"journal"},
    "stores": {"stores", "journal"},
    "views": {"views"},
}
"""Folders whose tests are of one part by itself, and what they may reach."""

FILES_THAT_REACH_BELOW = 36


def reached(path: Path) -> set[str]:
    """The modules of the package that a test file imports, but those that it may."""
    folder = path.relative_to(TESTS).parts[0]
    allowed = REACHED_BY_TESTS | DOORS.get(path.name, set())
    own = path.stem.removeprefix("test_")  # tests/test_settings.py is about settings
    return {
        name
        for name in imported_from_the_package(path)
        if name not in allowed
        and name != own
        and not name.startswith(("folding.", "pipeline.", "testing."))
        and name.split(".")[0] not in MIRRORS.get(folder, ())
    }


def imported_from_the_package(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("holdfast."):
            module = str(node.module).removeprefix("holdfast.")
            yield from (inner if (inner := f"{module}.{one.name}") in MODULES else module for one in node.names)
        elif isinstance(node, ast.Import):
            found = (one.name.removeprefix("holdfast.") for one in node.names if one.name.startswith("holdfast."))
            yield from found


def test_tests_reach_the_code_through_the_facade() -> None:
    """What pins a mechanism dies with it: the number may only fall, and the list says where to begin."""
    below = {
        str(path.relative_to(TESTS)): sorted(names) for path in TESTS.rglob("*.py") if (names := reached(path))
    }
    assert len(below) <= FILES_THAT_REACH_BELOW, below
