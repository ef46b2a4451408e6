"""What has come to stand where an output lands: it is set aside, not overwritten, unless it is known, or the same.

A step that wrote there itself what it returns is not told off for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast import events as ev
from holdfast import seals
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.looks import SEALED, above_any_seal
from holdfast.errors import StorageError
from holdfast.events import FileRecord
from holdfast.stores.readable import HELD_MAX
from holdfast.values import digest

_BY_HAND = "edited by hand"
_SEAL_BYTES_MAX = 64 << 10


class Obstacles:
    """Looks at the paths of one run's tasks just before something lands there."""

    def __init__(self, inputs: Inputs, *, may_overwrite: bool) -> None:
        self._artifacts = inputs.artifacts
        self._state = inputs.state
        self._may_overwrite = may_overwrite  # other runs' files, if objects/ has them

    def set_aside(
        self, task: str, names: Sequence[str], file: FileRecord, *, also_empty: bool
    ) -> Iterator[ev.Event]:
        """Set aside what stands in the place of a file and nothing else has; `also_empty`, if nothing is in it."""
        found = self._artifacts.tree.look(file.path)
        if found is None:
            return
        is_empty = found.is_file and not found.size
        if is_empty and not also_empty:
            return
        own = self._own_files(task).get(file.path)
        if self._is_known(names, own) or self._holds(file) or self._is_spare(names, file.path):
            return
        reason = "empty" if is_empty else _why(own)
        to = self._artifacts.tree.set_aside(file.path, beside=True)
        yield ev.ArtifactSetAside(step_id=task, path=file.path, to=to, reason=reason)

    def copy_section(self, task: str, path: str) -> Iterator[ev.Event]:
        """Keep a copy of a memory file in which an output will take the place of what a person wrote."""
        is_by_hand = any(file.by_hand for file in self._own_files(task).values())
        if is_by_hand and self._artifacts.tree.look(path) is not None:
            to = self._artifacts.tree.copy_aside(path)
            yield ev.ArtifactSetAside(step_id=task, path=path, to=to, reason=_BY_HAND)

    def _own_files(self, task: str) -> dict[str, FileRecord]:
        """The files of an earlier version: finished and no longer wanted, or sent back."""
        record = self._state.task(task)
        outputs = [output for output in (record.previous, record.accepted) if output is not None]
        return {file.path: file for output in outputs for file in output.files}

    def _is_known(self, names: Sequence[str], own: FileRecord | None) -> bool:
        """Whether an earlier version is as it was when it was considered, and nobody will look for it here.

        A person may have edited it since; or long before, and the edit was kept: that is in objects/, too, but no
        step can make it again.
        """
        if own is None or own.by_hand:
            return False
        if own.mark and not self._artifacts.files.is_touched(own):
            return True
        return self._artifacts.files.check(own, names).kind == SEALED

    def _holds(self, file: FileRecord) -> bool:
        """Whether what stands there is what lands, sealed or not."""
        try:
            data = self._artifacts.tree.read(file.path, min(file.size + _SEAL_BYTES_MAX, HELD_MAX))
        except StorageError:
            return False  # whatever it is, it is set aside
        bodies = above_any_seal(file.path, data)
        if seals.is_inline(file.path):
            bodies = (*bodies, seals.with_newline(data)[0])
        return any(digest(body) == file.sha256 for body in bodies)

    def _is_spare(self, names: Sequence[str], path: str) -> bool:
        """Whether a file is another run's that this one may write over."""
        if not self._may_overwrite:
            return False
        return self._artifacts.is_spare(self._artifacts.files.look(path, names, None), self._state.run_id)


def _why(own: FileRecord | None) -> str:
    if own is not None and own.by_hand:
        return _BY_HAND
    return "edited while its step ran" if own is not None else "there before its task was finished"
