"""From `FILE.py[:NAME]` to a compiled pipeline: the one place that runs the user's module.

The file is always read anew, without byte code: a cached `.pyc` is matched by second and size, so an edit
within the same second would run the old pipeline. Whatever goes wrong is one line naming file and line; a
module that did not load to its end never stays in `sys.modules`.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType

import msgspec

from holdfast.errors import HoldfastError, StorageError, UsageError
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.definition import Pipeline
from holdfast.pipeline.names import did_you_mean, printable
from holdfast.stores import disk, readable
from holdfast.wording import message_of

_MEND = "What was recorded is safe: mend that, then run the same command."
_loading: ContextVar[str] = ContextVar("holdfast_loading", default="")  # the file that is read just now


def load_pipeline(reference: str, *, base: Path) -> CompiledPipeline:
    """The pipeline that `reference` names, its file relative to `base`; UsageError if there is none.

    StorageError if the machine did not let it be loaded.
    """
    file, name = _split(reference)
    path = os.path.abspath(base / file)
    module = _import(path, _read(path, shown=file), shown=file)
    variable, pipeline = _choose(module, name, shown=printable(file, 200))
    return msgspec.structs.replace(pipeline.compile(), file=path, variable=variable)


def locate(pipeline: Pipeline) -> CompiledPipeline:
    """A pipeline of the running program, compiled, with the file and the variable by which others can load it.

    It stands at the top level of a module: that of its first function, or the one that made it, for a step may
    come from a library; else that of the program, which may have it from a function. A notebook's is in no file.
    While a file is loaded, by `plan` or a worker, no pipeline may run: it is loaded to be looked at.
    """
    if loading := _loading.get():
        raise UsageError(
            f"{printable(loading, 200)} runs a pipeline as soon as it is loaded; loading it must run nothing.",
            fix='Call run below a line: if __name__ == "__main__":',
        )
    compiled = pipeline.compile()
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    for file in dict.fromkeys([compiled.file, pipeline.made_in, main]):
        variable = _variable_in(file, pipeline) if file and file.endswith(".py") else None
        if variable is not None:
            return msgspec.structs.replace(compiled, file=file, variable=variable)
    if compiled.file is not None and os.path.isfile(compiled.file):
        return compiled
    for step in compiled.spec.steps:
        if step.executor == "process":
            raise UsageError(f"Step {step.name}: executor='process' needs the pipeline in a file.")
    return msgspec.structs.replace(compiled, file=None)


def _variable_in(file: str, pipeline: Pipeline) -> str | None:
    """The variable of the pipeline in a module that was imported from this file."""
    modules = [vars(module) for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    present = [names for names in modules if names.get("__file__") == file]
    return next((key for names in present for key, value in list(names.items()) if value is pipeline), None)


def _split(reference: str) -> tuple[str, str | None]:
    file, colon, name = (reference, "", "") if reference.endswith(".py") else reference.rpartition(":")
    if not file.endswith(".py") or "\0" in reference:
        raise UsageError(
            f"'{printable(reference, 200)}' is not a Python file.",
            fix="Name a pipeline as FILE.py or FILE.py:NAME.",
        )
    if colon and not name:
        raise UsageError(f"'{printable(reference, 200)}' names no pipeline after the colon.")
    return file, name or None


def _read(path: str, *, shown: str) -> bytes:
    file = printable(shown, 200)
    try:
        with readable.naming(path), open(readable.open_followed(Path(path)), "rb") as source:
            return source.read()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"There is no file {file}.", fix="Check the name, and the folder (--dir).") from error
    except (IsADirectoryError, PermissionError) as error:
        raise UsageError(f"{file} cannot be read: {readable.why_unreadable(error)}.") from error
    except OSError as error:
        raise StorageError.from_os(error, "read") from error


class _SourceInHand(importlib.machinery.SourceFileLoader):
    """Runs source that was read already, and neither reads nor writes byte code."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> object:  # type: ignore[override]
        return self.source_to_code(self._source, self.path)


def _import(path: str, source: bytes, *, shown: str) -> ModuleType:
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path, loader=_SourceInHand(name, path, source))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _importable(os.path.dirname(path)), _registered(name, module):
        token = _loading.set(shown)
        try:
            spec.loader.exec_module(module)
        except HoldfastError:
            raise  # says in its own words what to do
        except (Exception, SystemExit) as error:
            words = _import_failure(error, path, shown)
            if _is_the_machines(error):
                raise StorageError(f"{words}.", fix=_MEND) from error
            raise UsageError(words) from error
        finally:
            _loading.reset(token)
    return module


def _module_name(path: str) -> str:
    """The file's stem, as `import` would call it; another where that would hide a different module."""
    stem = re.sub(r"\W", "_", Path(path).stem)
    present = sys.modules.get(stem)
    same_file = present is not None and getattr(present, "__file__", None) == path
    if same_file or (present is None and stem not in sys.stdlib_module_names):
        return stem
    return f"{stem}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"


@contextmanager
def _importable(folder: str) -> Iterator[None]:
    """The folder at the front of sys.path; it stays, because steps may import when they run."""
    before = list(sys.path)
    sys.path[:] = [folder, *(entry for entry in before if entry != folder)]
    # A helper written a moment ago must be found, though its folder's listing was cached.
    importlib.invalidate_caches()
    try:
        yield
    except BaseException:
        sys.path[:] = before
        raise


@contextmanager
def _registered(name: str, module: ModuleType) -> Iterator[None]:
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        yield
    except BaseException:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        raise


def _is_the_machines(error: BaseException) -> bool:
    """Whether it was a lack of descriptors or memory, or a failing disk, and no mistake in the pipeline."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in disk.MACHINES)


def _import_failure(error: BaseException, path: str, shown: str) -> str:
    place = _place(error, path, shown)
    message = error.msg if isinstance(error, SyntaxError) else message_of(error)
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return f"{place}: the pipeline could not be loaded: {printable(text, 300)}"


def _place(error: BaseException, path: str, shown: str) -> str:
    """FILE:LINE, the deepest line of the pipeline's own file that led to the error."""
    if isinstance(error, SyntaxError) and error.filename is not None and error.lineno is not None:
        file = shown if error.filename == path else error.filename
        return f"{printable(file, 200)}:{error.lineno}"
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == path]
    return f"{printable(shown, 200)}:{lines[-1]}" if lines else printable(shown, 200)


def _choose(module: ModuleType, name: str | None, *, shown: str) -> tuple[str, Pipeline]:
    """The variable and the pipeline that `name` means; without a name, the only one there is."""
    variables = {key: value for key, value in vars(module).items() if isinstance(value, Pipeline)}
    found = _distinct(variables)
    if not found:
        raise UsageError(f"{shown} has no pipeline.", fix='Declare one at the top level: pipe = Pipeline("name").')
    if name is None and len(found) > 1:
        raise UsageError(
            f"{shown} has {len(found)} pipelines: {', '.join(found)}.",
            fix=f"Name one, as in {shown}:{next(iter(found))}.",
        )
    if name is None:
        return next(iter(found.items()))
    if name in variables:
        return name, variables[name]
    return _by_own_name(found, name, shown=shown)


def _distinct(variables: dict[str, Pipeline]) -> dict[str, Pipeline]:
    """One object under two names counts once, under the first."""
    found: dict[str, Pipeline] = {}
    for variable, pipeline in variables.items():
        if all(pipeline is not other for other in found.values()):
            found[variable] = pipeline
    return found


def _by_own_name(found: dict[str, Pipeline], name: str, *, shown: str) -> tuple[str, Pipeline]:
    matching = [(variable, pipeline) for variable, pipeline in found.items() if pipeline.name == name]
    if len(matching) == 1:
        return matching[0]
    why = "is the name of several pipelines" if matching else "names no pipeline"
    hint = did_you_mean(name, [*found, *(pipeline.name for pipeline in found.values())])
    raise UsageError(f"'{printable(name)}' {why} in {shown}; there are {', '.join(found)}.{hint}")
