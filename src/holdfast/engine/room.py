"""Room for an output: what has come to stand at a task's path while its step ran is set aside, not overwritten."""

from __future__ import annotations

from typing import Any

from holdfast import events as ev
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.looks import SEALED
from holdfast.pipeline.nodes import Node

_BY_HAND = "edited by hand"


class Room:
    """Looks at the paths of one run's tasks just before they are written. Called by worker threads."""

    def __init__(self, inputs: Inputs, *, may_overwrite: bool) -> None:
        self._inputs = inputs
        self._artifacts = inputs.artifacts
        self._state = inputs.state
        self._may_overwrite = may_overwrite  # other runs' files, if objects/ has them

    def make(self, node: Node, output: Any) -> tuple[list[ev.Event], bool]:
        """Set aside whatever stands there and is neither an earlier version of its own, as it was, nor the output.

        A step that wrote there itself what it returns is not told off for it. Also says whether anything is left
        there, to be replaced.
        """
        events: list[ev.Event] = []
        is_left = False
        own = self._own_files(node)
        for path in self._inputs.paths(node).values():
            if not self._artifacts.tree.exists(path):
                continue
            if self._is_known(node, own.get(path)) or self._holds(path, output) or self._may_go(node, path):
                is_left = True
                continue
            by_hand = path in own and own[path].by_hand
            reason = self._reason(path, is_own=path in own, by_hand=by_hand)
            to = self._artifacts.tree.back_up(path)
            events.append(ev.ArtifactSetAside(step_id=node.id, path=path, to=to, reason=reason))
        return events, is_left

    def keep_section(self, node: Node, path: str) -> list[ev.Event]:
        """Keep a copy of a memory file in which an output will take the place of what a person wrote."""
        is_by_hand = any(file.by_hand for file in self._own_files(node).values())
        if not is_by_hand or not self._artifacts.tree.exists(path):
            return []
        to = self._artifacts.tree.copy_beside(path)
        return [ev.ArtifactSetAside(step_id=node.id, path=path, to=to, reason=_BY_HAND)]

    def _own_files(self, node: Node) -> dict[str, ev.FileRecord]:
        """The files of an earlier version: finished and no longer wanted, or sent back."""
        record = self._state.task(node.id)
        outputs = [output for output in (record.previous, record.accepted) if output is not None]
        return {file.path: file for output in outputs for file in output.files}

    def _is_known(self, node: Node, file: ev.FileRecord | None) -> bool:
        """Whether it is as it was when it was considered, and nobody will look for it here.

        A person may have edited it since; or long before, and the edit was kept: that is in objects/, too, but no
        step can make it again.
        """
        if file is None or file.by_hand:
            return False
        if file.mark and not self._artifacts.files.is_touched(file):
            return True
        return self._artifacts.files.check(file, node.names).kind == SEALED

    def _may_go(self, node: Node, path: str) -> bool:
        """Whether a file is another run's that this one may write over."""
        if not self._may_overwrite:
            return False
        return self._artifacts.is_spare(self._artifacts.files.look(path, node.names, None), self._state.run_id)

    def _holds(self, path: str, output: Any) -> bool:
        try:
            return isinstance(output, str) and self._artifacts.tree.read(path) == output.encode()
        except OSError:
            return False  # whatever it is, it is set aside

    def _reason(self, path: str, *, is_own: bool, by_hand: bool) -> str:
        status = self._artifacts.tree.stat(path)
        if status is not None and not status.st_size:
            return "empty"
        if by_hand:
            return _BY_HAND
        return "edited while its step ran" if is_own else "there before its task was finished"
