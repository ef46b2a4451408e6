"""The files of a project that belong to no task: listed, never touched. Read-only.

One pass over the folders finds them; nothing is opened but, of some, the last bytes: a seal there may be of a task
that is told to write elsewhere now. Not listed: hidden files and folders, folders of tools (`__pycache__`,
`node_modules`, virtual environments), the pipeline's own file, what its `reads` name, and the views. A folder in
which no task writes, now or by its template, is one line with a count.
"""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Collection, Iterator, Mapping

import msgspec

from holdfast import layout, seals
from holdfast.artifacts.outside import reads_of
from holdfast.errors import UsageError
from holdfast.pipeline import templates
from holdfast.pipeline.nodes import split_task_id
from holdfast.pipeline.spec import PipelineSpec, StepSpec
from holdfast.recovery.scan import file_patterns, matching_folders, tail_seal
from holdfast.seals import Seal
from holdfast.stores.listing import Folder, list_below
from holdfast.stores.protocols import Files
from holdfast.wording import counted

BACKUP, PARTIAL, SEAL, STRANGER, FOLDER = "backup", "partial", "seal", "stranger", "folder"

OPENED_MAX = 1000
"""So many strangers' last bytes are read, in the hope of a seal."""

_OWN = frozenset({layout.CHECKPOINT_VIEW, layout.RESUME_VIEW, layout.SETTINGS_FILE})
_TOOLS = frozenset({"__pycache__", "node_modules", "venv", "env"})
_ENVIRONMENT = "pyvenv.cfg"


class Stranger(msgspec.Struct, frozen=True):
    """A file that belongs to no task: a backup, a leftover, somebody's own; or a folder of such."""

    path: str
    kind: str
    detail: str = ""
    files: int = 1
    task: str = ""  # that its seal names, if there is such a task and its file is missing


class Strangers:
    """Looks for them. `artifacts` are the paths of all files that tasks have or would have."""

    def __init__(
        self, spec: PipelineSpec, tree: Files, values: Mapping[str, str], artifacts: Collection[str]
    ) -> None:
        self.spec = spec
        self.tree = tree
        self.values = values
        self._artifacts = artifacts
        self._opened = 0
        self._suffixes = {os.path.splitext(path)[1] for step in spec.steps for path in step.files.values()}

    def find(self, skip: Collection[str] = ()) -> Iterator[Stranger]:
        """All of them, in the order of their paths; `skip` are more files that are somebody's."""
        known = {*skip, *_OWN, *reads_of(self.tree.root, list(self._reads()))}
        ours = self._folders()
        stack = [list_below(self.tree.root, _is_passed_over)]
        while stack:
            folder = stack.pop()
            if folder.path and folder.path not in ours:
                yield from self._folded(folder, known)
                continue
            for name in folder.files:
                path = f"{folder.path}/{name}" if folder.path else name
                if path not in known and not name.startswith(".") and not self._belongs(path):
                    yield self._stranger(path)
            stack += reversed(folder.folders)

    def _folded(self, folder: Folder, known: Collection[str]) -> Iterator[Stranger]:
        """A folder of somebody's in one line; but a file in it that a task of ours has sealed is told."""
        if folder.is_closed:
            yield Stranger(f"{folder.path}/", FOLDER, "it may not be listed", 0)
        mine = (path for path in folder.everything() if not path.rpartition("/")[2].startswith("."))
        others = [path for path in mine if path not in known]
        sealed = ((path, self._seal(path)) for path in others)
        lost = [found for path, seal in sealed if seal is not None and (found := self._lost(path, seal))]
        yield from sorted(lost, key=lambda found: found.path)
        beside = {seals.seal_path(found.path) for found in lost}
        rest = len(others) - len(lost) - sum(path in beside for path in others)
        if rest:
            yield Stranger(f"{folder.path}/", FOLDER, counted(rest, "file"), rest)

    def _stranger(self, path: str) -> Stranger:
        name = path.rpartition("/")[2]
        if ".bak." in name:
            return Stranger(path, BACKUP, "set aside before")
        if name.endswith(layout.PART_SUFFIX):
            return Stranger(path, PARTIAL)
        if name.endswith(layout.SEAL_SUFFIX):
            return Stranger(path, SEAL, "the seal of a file that belongs to no task")
        seal = self._seal(path)
        if seal is None:
            return Stranger(path, STRANGER)
        return self._lost(path, seal) or Stranger(path, STRANGER, f"sealed by {seal.task} of run {seal.run}")

    def _lost(self, path: str, seal: Seal) -> Stranger | None:
        """The file as one that a task has written elsewhere than it would now, if it looks like that."""
        target = self._target(path, seal)
        if not target or self.tree.look(target) is not None:
            return None
        with_seal = "" if seals.is_inline(path) else f", with its {layout.SEAL_SUFFIX} file,"
        words = f"looks like {seal.task}, written under another path: move it{with_seal} to {target}"
        return Stranger(path, STRANGER, f"{words} to have it adopted", 1, seal.task)

    def _seal(self, path: str) -> Seal | None:
        if self._opened >= OPENED_MAX or os.path.splitext(path)[1] not in self._suffixes:
            return None
        self._opened += 1
        return tail_seal(self.tree, path)

    def _target(self, path: str, seal: Seal) -> str:
        """Where the file of the task that a seal names would be; "" if there is none, or nobody can tell."""
        name, item = split_task_id(seal.task)
        step = next((one for one in self.spec.steps if name in (one.name, *one.was)), None)
        fan = self.spec.fan_path(step.each) if step is not None else ()
        if step is None or len(fan) != len(item):
            return ""
        values = {"run_id": seal.run, **self.values, **dict(zip(fan, item, strict=True))}
        ending = os.path.splitext(path)[1]
        wanted = [one for one in step.files.values() if os.path.splitext(one)[1] == ending]
        try:
            return templates.render_path(wanted[0], values) if len(wanted) == 1 else ""
        except (KeyError, UsageError):
            return ""

    # --- what is ours --------------------------------------------------------------------------------------

    def _belongs(self, path: str) -> bool:
        """Whether a file is an artifact, or goes with one: its seal, a stream that was cut off."""
        return (
            path in self._artifacts
            or path.removesuffix(layout.PART_SUFFIX) in self._artifacts
            or path.removesuffix(layout.SEAL_SUFFIX) in self._artifacts
        )

    def _folders(self) -> set[str]:
        """The folders that tasks write to, and those above them."""
        found = {path.rpartition("/")[0] for path in self._artifacts}
        for pattern, template in file_patterns(self.spec, self.values):
            found.update(matching_folders(self.tree, pattern, template))
        for path in [*found]:
            segments = path.split("/")
            found.update(itertools.accumulate(segments, "{}/{}".format))
        return found

    def _reads(self) -> Iterator[str]:
        """The patterns of all files from outside that are inputs, whichever item they are of."""
        names = {name: glob.escape(value) for name, value in self.values.items()}
        for step in self.spec.steps:
            for pattern, values in itertools.product(step.reads, (names, self.values)):
                anything = dict.fromkeys(templates.fields(pattern), "*")
                rendered = templates.render(pattern, {**anything, **_but_items(self.spec, step, values)})
                if templates.check_pattern(rendered) is None:
                    yield rendered


def _but_items(spec: PipelineSpec, step: StepSpec, values: Mapping[str, str]) -> dict[str, str]:
    fan = spec.fan_path(step.each)
    return {name: value for name, value in values.items() if name not in fan}


def _is_passed_over(name: str, files: list[str]) -> bool:
    return name.startswith(".") or name in _TOOLS or _ENVIRONMENT in files
