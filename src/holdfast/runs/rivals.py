"""A new run whose paths hold another run's files: it is refused, with every way out as it would be typed here."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any

from holdfast.errors import UsageError
from holdfast.layout import ProjectLayout
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.runs.listing import RunInfo
from holdfast.state import COMPLETED
from holdfast.values import encode_json, is_same


def refuse_rivals(
    rivals: Mapping[str, RunInfo],
    compiled: CompiledPipeline,
    layout: ProjectLayout,
    given: Mapping[str, Any],
    params: Mapping[str, Any],
) -> None:
    """Refuse to write over the artifacts of another run; with `overwrite` only over those of an unfinished one.

    `rivals`: whose file stands at a path. `given`: the parameters as they were typed.
    """
    for path, owner in rivals.items():
        words = f"This would write over {path}, which belongs to run {owner.run_id}"
        change = _change_words(owner, compiled, layout, given, params)
        if not compiled.spec.overwrite:
            others = "Use another folder (--dir), start over (--force), or declare Pipeline(..., overwrite=True)."
            raise UsageError(f"{words}.", fix=others + change)
        if owner.status != COMPLETED:
            finish = f"Finish it first with 'holdfast resume {owner.run_id}{where(layout)}'"
            raise UsageError(
                f"{words}, and that is not finished.", fix=f"{finish}, or start over (--force).{change}"
            )


def where(layout: ProjectLayout) -> str:
    """The option by which a command that is typed here finds the project; "" if it needs none."""
    is_here = os.path.realpath(layout.root) == os.path.realpath(os.curdir)
    return "" if is_here else f" --dir {shlex.quote(os.fspath(layout.root))}"


def _change_words(
    owner: RunInfo,
    compiled: CompiledPipeline,
    layout: ProjectLayout,
    given: Mapping[str, Any],
    params: Mapping[str, Any],
) -> str:
    """How to give a run of this very pipeline the parameters that were asked for; "" for one of another."""
    changed = [name for name, value in params.items() if not is_same(owner.params.get(name), value)]
    if owner.problem or owner.pipeline != compiled.spec.name or not changed:
        return ""
    words = ["holdfast", "run", _file_from_here(compiled), "--resume", owner.run_id]
    for name in changed:
        words += ["-p", f"{name}={_as_typed(compiled, name, given.get(name), params[name])}"]
    return f" Or change that run: {shlex.join(words)}{where(layout)}"


def _as_typed(compiled: CompiledPipeline, name: str, given: Any, value: Any) -> str:
    """The text that gives this parameter this value: as it was typed, or a text itself, or JSON."""
    for text in (given, value, encode_json(value).decode()):
        if isinstance(text, str) and compiled.params.takes(name, text) == [value]:
            return text
    return "VALUE"


def _file_from_here(compiled: CompiledPipeline) -> str:
    """The pipeline as a command takes it that is typed in this folder."""
    if compiled.file is None:
        return "FILE.py"
    path = os.path.relpath(compiled.file)
    path = compiled.file if path.startswith(os.pardir) else path
    return path if compiled.variable is None else f"{path}:{compiled.variable}"
